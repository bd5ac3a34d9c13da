//! What goes wrong, as problem documents (RFC 9457).

use std::time::Duration;

use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::{HttpResponse, ResponseError};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::caller::Forbidden;
use super::denial::{Asked, Denial};
use super::problems::{self, ProblemKind};
use crate::domain::account::Refusal;
use crate::domain::claim::UNITS_MAX;
use crate::domain::correction::CorrectionRefusal;
use crate::domain::policy::{Fault, Inactive, PolicyName};
use crate::engine::{
    ClaimFailure, EditError, Failure, InvalidCursor, KeyError, ListFailure, ReconcileFailure,
    Undecided,
};

/// Where problem types are explained.
const TYPES: &str = "/docs/problems#";

/// Everything that a request can be answered with but success and a denial.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// No key.
    #[error("send a valid key as Authorization: Bearer <key>")]
    Unauthorized,
    /// A key that is not valid.
    #[error("this is no valid key: it is mistyped or unknown, was revoked, or has ended")]
    WrongKey,
    /// Too many wrong keys; so long until the next one.
    #[error("too many wrong keys: try again later, with a valid one")]
    TooManyWrongKeys(Duration),
    /// A key that may not do this.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// Not JSON, an unknown field, a wrong type.
    #[error("{0}")]
    Malformed(String),
    /// A body over the limit.
    #[error("the body is over the limit of {0} bytes")]
    TooLarge(usize),
    /// The body took too long to arrive.
    #[error("the request did not arrive in time: send all of it at once")]
    SlowRequest,
    /// The head is no HTTP.
    #[error("the request cannot be read: send HTTP/1.1")]
    UnreadableHead,
    /// The head is over the limit.
    #[error("the request's head is over the limit of 128 KiB and 96 fields: send less")]
    HeadTooLarge,
    /// Values out of bounds, or that do not fit what stands.
    #[error("the request has values out of bounds; see errors")]
    Invalid(Vec<InvalidPart>),
    /// No such policy, or archived.
    #[error("there is no policy {0}, or it is archived")]
    UnknownPolicy(String),
    /// Nothing at this path.
    #[error("{0}")]
    NotFound(&'static str),
    /// Another method is wanted: one of these.
    #[error("this path knows the methods {0}")]
    MethodNotAllowed(String),
    /// The same key is being decided.
    #[error("a claim with the same Idempotency-Key is being decided right now; try again")]
    ClaimInProgress,
    /// This instance is at another reconciliation.
    #[error("a reconciliation is under way at this instance; wait for its report, and try again")]
    ReconciliationInProgress,
    /// Without it nobody could make keys any more.
    #[error(
        "this is the last admin key that is neither revoked nor given an end: make another one \
         first, so that somebody can make keys tomorrow"
    )]
    LastAdminKey,
    /// A revoked key has no other end.
    #[error("this key is revoked, and stays so: make a new one")]
    KeyRevoked,
    /// The policy grants nothing just now.
    #[error("the policy {0} is {inactive}", inactive = describe_inactive(*.1))]
    PolicyInactive(PolicyName, Inactive),
    /// Only a hold can be confirmed.
    #[error("this grant is no hold: there is nothing to confirm")]
    NotAHold,
    /// A reversed hold cannot be confirmed.
    #[error("this grant was reversed at {}", written(*.0))]
    GrantReversed(DateTime<Utc>),
    /// A lapsed hold cannot be confirmed.
    #[error("this hold lapsed at {}: claim anew", written(*.0))]
    HoldGone(DateTime<Utc>),
    /// A lapsed hold cannot be reversed.
    #[error("this hold lapsed at {}, and its units were given back then", written(*.0))]
    HoldLapsed(DateTime<Utc>),
    /// A claim of an atomic batch that would have been granted, were it not for others.
    #[error("this claim would have been granted, but others of the batch were not: none is")]
    FailedDependency,
    /// The precondition failed.
    #[error("{}", describe_version(*.0))]
    PreconditionFailed(Option<u32>),
    /// The same key with another claim.
    #[error(
        "this Idempotency-Key stands for another claim: the same key means the same subject, \
         units, hold and metadata; take a new key for a new claim"
    )]
    KeyReused,
    /// Some window lacks room.
    #[error("{0}")]
    Denied(Box<Denial>),
    /// It could not be decided exactly.
    #[error("the claim could not be decided exactly: {0}; it is safe to retry with the same key")]
    Undecided(#[source] Undecided),
    /// The service cannot do it just now.
    #[error("the service cannot do this right now; try again")]
    Unavailable(#[source] Failure),
    /// A grant may wait for the ledger unseen.
    #[error(
        "the ledger has no grant with this id, but one that Redis counted may wait for it: \
         try again"
    )]
    MayWait,
    /// Too many exports and backtests are under way.
    #[error("too many exports and backtests are under way; try again")]
    Overloaded,
    /// Too many of the caller's requests are under way.
    #[error("too many requests with this key wait for their answers; try again")]
    TooManyAtOnce,
    /// The answer took too long.
    #[error(
        "the answer took too long: ask for less, or try again; what was to be changed may be \
         changed, so read it first"
    )]
    TooSlow,
}

/// A part of a request that is invalid, and why.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InvalidPart {
    /// What is wrong and what to do.
    pub detail: String,
    /// Where in the body: a JSON pointer as a URI fragment (RFC 6901, section 6).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "#/limits/0/max")]
    pub pointer: Option<String>,
    /// Which parameter: of the path, the query or the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<&'static str>,
}

/// A problem document (RFC 9457), as `application/problem+json`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Tells kinds of problems apart, and leads to a page that explains this one.
    #[serde(rename = "type")]
    #[schema(example = "/docs/problems#invalid")]
    pub kind: String,
    /// The kind, for people.
    #[schema(example = "Invalid")]
    pub title: &'static str,
    /// The status of the answer.
    #[schema(example = 422)]
    pub status: u16,
    /// What is wrong this time, and what to do.
    pub detail: String,
    /// Each invalid part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InvalidPart>,
}

impl InvalidPart {
    /// A parameter of the path, the query or the header.
    pub fn parameter(parameter: &'static str, detail: impl ToString) -> Self {
        Self {
            detail: detail.to_string(),
            pointer: None,
            parameter: Some(parameter),
        }
    }

    /// A part of the body.
    pub fn body(pointer: &str, detail: impl ToString) -> Self {
        Self {
            detail: detail.to_string(),
            pointer: Some(format!("#{pointer}")),
            parameter: None,
        }
    }

    /// The same part of a body that is itself at a place of another.
    pub fn inside(self, place: &str) -> Self {
        let pointer = self.pointer.as_deref();
        let inner = pointer.and_then(|pointer| pointer.strip_prefix('#'));
        Self {
            pointer: inner.map(|inner| format!("#{place}{inner}")),
            ..self
        }
    }
}

impl From<Fault> for InvalidPart {
    fn from(fault: Fault) -> Self {
        Self::body(&fault.pointer, fault.detail)
    }
}

impl ApiError {
    /// One invalid parameter.
    pub fn invalid(parameter: &'static str, detail: impl ToString) -> Self {
        Self::Invalid(vec![InvalidPart::parameter(parameter, detail)])
    }

    /// A claim that was not granted.
    pub fn refused(asked: Asked, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Archived => Self::UnknownPolicy(asked.policy.name.to_string()),
            Refusal::Inactive(why) => Self::PolicyInactive(asked.policy.name.clone(), why),
            Refusal::NeverFits { per, max } => {
                let detail = format!("these units can never fit: the max per {per} is {max}");
                Self::Invalid(vec![InvalidPart::body("/units", detail)])
            }
            Refusal::Denied(totals) => Self::Denied(Box::new(Denial { asked, totals })),
            Refusal::TooMany => {
                let detail =
                    format!("more than {UNITS_MAX} would be used in a window: send fewer units");
                Self::Invalid(vec![InvalidPart::body("/units", detail)])
            }
            Refusal::NotCorrected(CorrectionRefusal::NotUsed { per, used }) => {
                let detail = format!("more than the {used} that are used in this {per}");
                Self::Invalid(vec![InvalidPart::body("/units", detail)])
            }
            Refusal::NotCorrected(CorrectionRefusal::NotAHold) => Self::NotAHold,
            Refusal::NotCorrected(CorrectionRefusal::Reversed(at)) => Self::GrantReversed(at),
            Refusal::NotCorrected(CorrectionRefusal::Lapsed(at)) => Self::HoldGone(at),
            Refusal::NotCorrected(CorrectionRefusal::GivenBack(at)) => Self::HoldLapsed(at),
        }
    }

    /// Whether more was asked for than the service takes on.
    pub fn is_overload(&self) -> bool {
        matches!(
            self,
            Self::Overloaded | Self::TooManyAtOnce | Self::Undecided(Undecided::Overloaded)
        )
    }

    /// The problem document; a denial has more to say.
    pub fn problem(&self) -> Problem {
        let errors = match self {
            Self::Invalid(parts) => parts.clone(),
            _ => Vec::new(),
        };
        let kind = self.kind();
        Problem {
            kind: format!("{TYPES}{}", kind.name),
            title: kind.title,
            status: kind.status.as_u16(),
            detail: self.to_string(),
            errors,
        }
    }

    fn kind(&self) -> ProblemKind {
        match self {
            Self::Unauthorized | Self::WrongKey => problems::UNAUTHORIZED,
            Self::TooManyWrongKeys(_) => problems::TOO_MANY_WRONG_KEYS,
            Self::Forbidden(_) => problems::FORBIDDEN,
            Self::Malformed(_) | Self::UnreadableHead => problems::MALFORMED,
            Self::TooLarge(_) => problems::TOO_LARGE,
            Self::HeadTooLarge => problems::HEAD_TOO_LARGE,
            Self::SlowRequest => problems::SLOW_REQUEST,
            Self::Invalid(_) => problems::INVALID,
            Self::UnknownPolicy(_) => problems::UNKNOWN_POLICY,
            Self::NotFound(_) => problems::NOT_FOUND,
            Self::MethodNotAllowed(_) => problems::METHOD_NOT_ALLOWED,
            Self::ClaimInProgress => problems::CLAIM_IN_PROGRESS,
            Self::ReconciliationInProgress => problems::RECONCILIATION_IN_PROGRESS,
            Self::LastAdminKey => problems::LAST_ADMIN_KEY,
            Self::KeyRevoked => problems::KEY_REVOKED,
            Self::PolicyInactive(..) => problems::POLICY_INACTIVE,
            Self::NotAHold => problems::NOT_A_HOLD,
            Self::FailedDependency => problems::FAILED_DEPENDENCY,
            Self::GrantReversed(_) => problems::GRANT_REVERSED,
            Self::HoldGone(_) => problems::HOLD_GONE,
            Self::HoldLapsed(_) => problems::HOLD_LAPSED,
            Self::PreconditionFailed(_) => problems::PRECONDITION_FAILED,
            Self::KeyReused => problems::IDEMPOTENCY_KEY_REUSED,
            Self::Denied(_) => problems::QUOTA_EXCEEDED,
            Self::Undecided(_) => problems::UNDECIDED,
            Self::Unavailable(_)
            | Self::MayWait
            | Self::Overloaded
            | Self::TooManyAtOnce
            | Self::TooSlow => problems::UNAVAILABLE,
        }
    }

    /// After how many seconds it is worth another try.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyWrongKeys(wait) => Some(wait.as_millis().div_ceil(1000) as u64),
            _ => self.kind().retry_after,
        }
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.kind().status
    }

    fn error_response(&self) -> HttpResponse {
        if let Self::Denied(denial) = self {
            return denial.response();
        }
        let problem = self.problem();
        let status = self.status_code();
        let mut response = problem_response(status, &problem);
        if let Self::SlowRequest = self {
            response
                .head_mut()
                .set_connection_type(ConnectionType::Close);
        }
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        match self {
            Self::Unauthorized | Self::WrongKey => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::MethodNotAllowed(allowed) => {
                if let Ok(allowed) = HeaderValue::from_str(allowed) {
                    headers.insert(header::ALLOW, allowed);
                }
            }
            Self::PreconditionFailed(Some(version)) => {
                if let Ok(etag) = HeaderValue::from_str(&etag(*version)) {
                    headers.insert(header::ETAG, etag);
                }
            }
            _ => {}
        }
        response
    }
}

/// An answer with a problem document.
pub fn problem_response(status: StatusCode, problem: &impl Serialize) -> HttpResponse {
    let mut response = HttpResponse::build(status).json(problem);
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}

/// The version of a policy, an override or a key as an ETag.
pub fn etag(version: u32) -> String {
    format!("\"{version}\"")
}

fn describe_inactive(inactive: Inactive) -> String {
    match inactive {
        Inactive::Paused => "paused".to_owned(),
        Inactive::Before(from) => format!("not active before {}", written(from)),
        Inactive::After(until) => format!("not active since {}", written(until)),
    }
}

fn written(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn describe_version(version: Option<u32>) -> String {
    match version {
        Some(version) => {
            format!("it stands at version {version}: read it again, and send its ETag in If-Match")
        }
        None => "it does not exist: send no If-Match to create it".to_owned(),
    }
}

impl From<ClaimFailure> for ApiError {
    fn from(failure: ClaimFailure) -> Self {
        match failure {
            ClaimFailure::UnknownPolicy(name) => Self::UnknownPolicy(name.to_string()),
            ClaimFailure::InProgress => Self::ClaimInProgress,
            ClaimFailure::Undecided(undecided) => Self::Undecided(undecided),
        }
    }
}

impl From<Undecided> for ApiError {
    fn from(undecided: Undecided) -> Self {
        Self::Undecided(undecided)
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::MayWait => Self::MayWait,
            Failure::Ledger(error) if error.is_out_of_time() => Self::TooSlow,
            failure @ (Failure::Ledger(_) | Failure::Silent | Failure::Interrupted) => {
                Self::Unavailable(failure)
            }
        }
    }
}

impl From<InvalidCursor> for ApiError {
    fn from(error: InvalidCursor) -> Self {
        Self::invalid("cursor", error)
    }
}

impl From<ListFailure> for ApiError {
    fn from(failure: ListFailure) -> Self {
        match failure {
            ListFailure::UnknownPolicy(name) => Self::UnknownPolicy(name.to_string()),
            ListFailure::Cursor(error) => error.into(),
            ListFailure::Overloaded => Self::Overloaded,
            ListFailure::Failure(failure) => failure.into(),
        }
    }
}

impl From<ReconcileFailure> for ApiError {
    fn from(failure: ReconcileFailure) -> Self {
        match failure {
            ReconcileFailure::InProgress => Self::ReconciliationInProgress,
            ReconcileFailure::Failure(failure) => failure.into(),
        }
    }
}

impl From<(PolicyName, EditError)> for ApiError {
    fn from((policy, error): (PolicyName, EditError)) -> Self {
        match error {
            EditError::PreconditionFailed(version) => Self::PreconditionFailed(version),
            EditError::UnknownPolicy => Self::UnknownPolicy(policy.to_string()),
            EditError::UnknownOverride => {
                Self::NotFound("this subject has no override under this policy")
            }
            EditError::Misfit(faults) => {
                Self::Invalid(faults.into_iter().map(InvalidPart::from).collect())
            }
            EditError::ReasonRequired => {
                reason_required("say why: a reason is needed to replace what stands")
            }
        }
    }
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::UnknownKey => Self::NotFound("there is no key with this id"),
            KeyError::PreconditionFailed(version) => Self::PreconditionFailed(Some(version)),
            KeyError::Revoked => Self::KeyRevoked,
            KeyError::LastAdmin => Self::LastAdminKey,
            KeyError::UnknownPolicies(unknown) => {
                let part = |(index, name): (usize, PolicyName)| {
                    let detail = format!("there is no policy {name}, or it is archived");
                    InvalidPart::body(&format!("/policies/{index}"), detail)
                };
                Self::Invalid(unknown.into_iter().map(part).collect())
            }
        }
    }
}

fn reason_required(detail: &str) -> ApiError {
    ApiError::Invalid(vec![InvalidPart::body("/reason", detail)])
}
