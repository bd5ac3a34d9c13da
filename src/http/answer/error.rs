//! The errors of requests, and the problem document for each one.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::{HttpResponse, ResponseError};
use chrono::{DateTime, Utc};

use super::denial::{Asked, Denial, InactiveAnswer};
use super::etag;
use super::limits::retry_after;
use super::problem::{self, ProblemKind};
use api::instant::written;
use api::orphans::OrphansBody;
use api::problem::{InvalidPart, Problem};
use domain::claim::{UNITS_MAX, Units};
use domain::forecast::Forecast;
use domain::grant::{Entry, GrantEnd};
use domain::key::Role;
use domain::limit::per::Per;
use domain::limit::total::NotUsed;
use domain::partial::PARTS_MOST;
use domain::policy::PolicyName;
use domain::refusal::{CorrectionRefusal, Refusal};
use domain::schedule::UnreadableTerms;
use domain::top_up::TOP_UPS_MOST;
use engine::{Failure, Outcome, Undecided, WaitingChange};

/// Every answer to a request that is not a success.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the request has no key: send a valid key as Authorization: Bearer <key>")]
    Unauthorized,
    #[error("this key is not valid: it is mistyped, unknown, revoked or ended; send a valid key")]
    WrongKey,
    #[error(
        "this key was revoked, has ended or was changed while the request was in progress: send a \
         valid key"
    )]
    KeyLost,
    #[error("too many wrong keys were sent: send a valid key, or try again later")]
    TooManyWrongKeys(Duration),
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("{0}")]
    Malformed(String),
    #[error("the body is larger than {0} bytes: send less")]
    TooLarge(usize),
    #[error("the body has a Content-Encoding: send the plain JSON, without this field")]
    EncodedBody,
    #[error("the request did not arrive in time: send all of it at once")]
    SlowRequest,
    #[error("the request cannot be read: send valid HTTP/1.1")]
    UnreadableHead,
    #[error("this port speaks TLS: send the request to https:// instead of http://")]
    WithoutTls,
    #[error("the request's head is larger than 128 KiB, or has more than 96 fields: send less")]
    HeadTooLarge,
    #[error("the request has wrong values, listed in errors")]
    Invalid(Vec<InvalidPart>),
    #[error("there is no policy {0}, or it is archived: check the name")]
    UnknownPolicy(String),
    /// For requests that also show archived policies.
    #[error("there is no policy {0}: check the name")]
    UnheardPolicy(String),
    #[error("{0}")]
    NotFound(&'static str),
    #[error("{0}")]
    NotSealed(String),
    #[error("{0}")]
    Archived(String),
    #[error("this path does not take this method: use {0}")]
    MethodNotAllowed(String),
    #[error("a claim with the same Idempotency-Key is being decided now: try again")]
    ClaimInProgress,
    #[error("this instance already runs a reconciliation: wait for its report, then try again")]
    ReconciliationInProgress,
    #[error(
        "this is the last admin key that is not revoked and has no end: create another admin key \
         first"
    )]
    LastAdminKey,
    #[error("this key is revoked and cannot be changed: create a new key")]
    KeyRevoked,
    #[error(
        "this key has ended, and its replacement would have the same end: give it another end first, or create a new key"
    )]
    KeyEnded,
    #[error(
        "this subject is being erased, and an override, a tier or a block would store its name again: try again \
        after {at}",
        at = written(*.0)
    )]
    BeingErased(DateTime<Utc>),
    #[error("{0}")]
    PolicyInactive(Box<InactiveAnswer>),
    #[error("{subject} is blocked under {policy}{}", describe_end(*.until))]
    SubjectBlocked {
        subject: String,
        policy: PolicyName,
        until: Option<DateTime<Utc>>,
        /// The instant from which on the claim would be granted, if it is known.
        fits_at: Option<DateTime<Utc>>,
        /// The instant of the answer.
        now: DateTime<Utc>,
    },
    #[error(
        "the change leaves overrides without their limit, or beyond its bounds, or subjects without their \
         tier ({count} in all): write orphaned_overrides with drop or keep",
        count = .0.count
    )]
    OrphanedOverrides(OrphansBody),
    #[error(
        "this change is valid, but nothing is changed yet: it waits for a second admin, who can approve the \
         proposal until {}",
        written(.0.until)
    )]
    NeedsApproval(WaitingChange),
    #[error("your own key proposed this change: another admin must approve it")]
    OwnProposal,
    #[error("{}: propose the change again", describe_stale(*.0))]
    StaleProposal(Option<u32>),
    #[error("this grant is not a hold: there is nothing to confirm")]
    NotAHold,
    #[error("nothing is used{}: there is nothing to reset", .0.map_or(String::new(), |per| format!(" per {per}")))]
    NothingUsed(Option<Per>),
    #[error(
        "the subject has no top-up with this id of which a unit is left: its usage lists the top-ups"
    )]
    NothingLeft,
    #[error("this grant was reversed at {}: claim again if the units are needed", written(*.0))]
    GrantReversed(DateTime<Utc>),
    #[error("this hold lapsed at {}: claim again", written(*.0))]
    HoldGone(DateTime<Utc>),
    #[error("this hold lapsed at {}: its units were given back then", written(*.0))]
    HoldLapsed(DateTime<Utc>),
    #[error(
        "the grant of this Idempotency-Key was reversed at {}: send another Idempotency-Key to claim again",
        written(*.0)
    )]
    RetryOfReversed(DateTime<Utc>),
    #[error(
        "the hold of this Idempotency-Key lapsed at {}: send another Idempotency-Key to claim again",
        written(*.0)
    )]
    RetryOfLapsed(DateTime<Utc>),
    #[error("another claim of the batch was not granted, so this claim is not granted either")]
    FailedDependency,
    #[error("{}", describe_version(*.0))]
    PreconditionFailed(Option<u32>),
    #[error(
        "this Idempotency-Key belongs to another claim: use a new key for a new claim; the same \
         key requires the same subject, units, hold and metadata"
    )]
    KeyReused,
    #[error("{0}")]
    Denied(Box<Denial>),
    #[error("the claim could not be decided: {0}; a retry with the same Idempotency-Key is safe")]
    Undecided(#[source] Undecided),
    #[error("the service cannot do this now: try again")]
    Unavailable(#[source] Failure),
    #[error(
        "the ledger has no grant with this id, but Redis may have one that is not recorded yet: \
         try again"
    )]
    MayWait,
    #[error("{0}")]
    UnreadableTerms(Arc<UnreadableTerms>),
    #[error(
        "the clock of this instance is off by more than the tolerance: nothing is changed; ask \
         another instance, or do what /readyz says"
    )]
    ClockOff,
    #[error(
        "this instance only reads: send claims and changes to an instance whose /readyz says \
         \"read_only\": false"
    )]
    ReadOnly,
    #[error(
        "this instance only reads, so it cannot record an export: send HEAD with the same parameters to \
         an instance whose /readyz says \"read_only\": false, and then send here export= with the \
         revision that its Link has"
    )]
    Unrecorded,
    #[error(
        "the gate has no valid key of the role claim for this policy: set one in PERDIEM_GATE_KEY or \
         PERDIEM_GATE_KEY_FILE, and start perdiem again"
    )]
    WrongGateKey,
    #[error("too many exports and backtests are in progress: try again")]
    Overloaded,
    #[error("too many requests with this key are in progress: try again")]
    TooManyAtOnce,
    #[error(
        "reads of subjects are recorded, and too many came in a second: read fewer subjects, and try again"
    )]
    TooManyReads,
    #[error(
        "the answer took too long: ask for less, or try again; after a change, first read whether \
         it was made"
    )]
    TooSlow,
}

/// Why a request with a valid key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("a key with the role {role} may not do this: use a key with the role {}", or(.wanted))]
    Role { role: Role, wanted: &'static [Role] },
    #[error("this key is confined to other policies: use a key for this policy")]
    OtherPolicy,
    #[error(
        "another key put this, and a support key changes only what it put itself: ask an admin"
    )]
    BeyondBounds,
    #[error("another key made this export: use that key, or make an export of your own")]
    OtherExporter,
    #[error("this key is confined to policies: name one of them, with policy=")]
    NoPolicy,
    #[error(
        "this key is confined to policies, but the request is about all policies: use a key that \
         is not confined"
    )]
    AllPolicies,
}

fn or(roles: &[Role]) -> String {
    let names: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// What is wrong with the end of a top-up.
pub const END_HAS_PASSED: &str = "the end has passed; write an instant to come";

impl ApiError {
    /// The error behind an answer.
    pub fn of(answer: &HttpResponse) -> Option<&Self> {
        answer.error()?.as_error()
    }

    pub fn invalid(parameter: &'static str, detail: impl ToString) -> Self {
        Self::Invalid(vec![InvalidPart::parameter(parameter, detail)])
    }

    pub fn invalid_body(pointer: &str, detail: impl ToString) -> Self {
        Self::Invalid(vec![InvalidPart::body(pointer, detail)])
    }

    /// The error for a claim or a correction that was refused.
    fn refused(asked: Asked, refusal: Refusal, forecast: Forecast) -> Self {
        match refusal {
            Refusal::Archived => Self::UnknownPolicy(asked.policy.name.to_string()),
            Refusal::Inactive(why) => Self::PolicyInactive(Box::new(InactiveAnswer {
                asked,
                why,
                fits_at: forecast.fits_at,
            })),
            Refusal::Blocked(block) => Self::SubjectBlocked {
                subject: asked.subject,
                policy: asked.policy.name.clone(),
                until: block.until,
                fits_at: forecast.fits_at,
                now: asked.now,
            },
            Refusal::NeverFits { per, max } => {
                let detail = format!(
                    "these units can never fit: at most {max} fit per {per}; send fewer units"
                );
                Self::invalid_body("/units", detail)
            }
            Refusal::NoOwnCalendar => {
                let detail = "all subjects have the calendar of the policy: leave the calendar out, or write \
                              calendar subject into the policy";
                Self::invalid_body("/calendar", detail)
            }
            Refusal::Denied(denied) => Self::Denied(Box::new(Denial {
                asked,
                own_units: denied.own_units,
                totals: denied.totals,
                shared: denied.shared,
                forecast,
            })),
            Refusal::TooMany => {
                let detail =
                    format!("a window would have more than {UNITS_MAX} units: send fewer units");
                Self::invalid_body("/units", detail)
            }
            Refusal::Ended(end) => Self::retried(end),
            Refusal::NotCorrected(CorrectionRefusal::NotUsed(not_used)) => {
                let NotUsed { per, used, is_past } = not_used;
                let then = if is_past { " then" } else { "" };
                let detail =
                    format!("only {used} are used{then} per {per}: subtract at most {used}");
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::FewerLeft(left)) => {
                let detail =
                    format!("only {left} units of this grant are left: write at most {left}");
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::ConfirmedOther(units)) => {
                let units = units.get();
                let detail = format!(
                    "this hold was confirmed with {units} units: reverse units of the grant instead"
                );
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::ErasedInParts) => {
                let detail = "the subject of this grant was erased: leave units out, and all that are left \
                              are reversed";
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::TooManyParts) => {
                let detail = format!(
                    "a grant has at most {PARTS_MOST} reversals of some of its units: leave units out, \
                     and all that are left are reversed"
                );
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::NoSuchLimit(per)) => {
                let limits = asked.policy.rule.limits.iter();
                let limits: Vec<String> = limits.map(|limit| limit.per().to_string()).collect();
                let detail = format!(
                    "the policy has no limit per {per}; write one of: {}",
                    limits.join(", ")
                );
                Self::invalid_body("/per", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::NoTopUps) => {
                let detail = "Redis decides the claims of this policy alone, and knows no top-ups: write \
                              durability recorded into the policy, or adjust the usage";
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::TooManyTopUps) => {
                let detail = format!(
                    "a subject has at most {TOP_UPS_MOST} top-ups at the same time: reverse one first"
                );
                Self::invalid_body("/units", detail)
            }
            Refusal::NotCorrected(CorrectionRefusal::EndHasPassed) => {
                Self::invalid_body("/until", END_HAS_PASSED)
            }
            Refusal::NotCorrected(CorrectionRefusal::NothingLeft) => Self::NothingLeft,
            Refusal::NotCorrected(CorrectionRefusal::NothingUsed(per)) => Self::NothingUsed(per),
            Refusal::NotCorrected(CorrectionRefusal::NotAHold) => Self::NotAHold,
            Refusal::NotCorrected(CorrectionRefusal::Reversed(at)) => Self::GrantReversed(at),
            Refusal::NotCorrected(CorrectionRefusal::Lapsed(at)) => Self::HoldGone(at),
            Refusal::NotCorrected(CorrectionRefusal::GivenBack(at)) => Self::HoldLapsed(at),
        }
    }

    /// The answer to a retry of a claim whose grant has ended.
    pub fn retried(end: GrantEnd) -> Self {
        match end {
            GrantEnd::Reversed(at) => Self::RetryOfReversed(at),
            GrantEnd::Lapsed(at) => Self::RetryOfLapsed(at),
        }
    }

    /// Whether a claim was decided, and not granted. Any other error of a claim is one of settings, or passes.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Denied(_)
                | Self::PolicyInactive(_)
                | Self::SubjectBlocked { .. }
                | Self::Invalid(_)
                | Self::KeyReused
                | Self::RetryOfReversed(_)
                | Self::RetryOfLapsed(_)
        )
    }

    /// Whether a standby ended the read for its replay.
    pub fn is_replay_conflict(&self) -> bool {
        matches!(self, Self::Unavailable(Failure::Ledger(error)) if error.is_replay_conflict())
    }

    /// Whether the cause is already known from metrics or the log: the service has too much work, a
    /// clock is off, a rule cannot be read, the gate's key cannot claim, or the instance only reads, from a
    /// standby that is behind.
    pub fn is_told_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::Overloaded
                | Self::WrongGateKey
                | Self::TooManyAtOnce
                | Self::TooManyReads
                | Self::ClockOff
                | Self::ReadOnly
                | Self::Unrecorded
                | Self::Unavailable(Failure::NotFollowed)
                | Self::Undecided(Undecided::Overloaded | Undecided::Clock | Undecided::Ahead(_))
                | Self::UnreadableTerms(_)
        )
    }

    /// The problem document. A denial has a larger one.
    pub fn problem(&self) -> Problem {
        let errors = match self {
            Self::Invalid(parts) => parts.clone(),
            _ => Vec::new(),
        };
        let problem = self.kind().problem(self.to_string(), errors);
        match self {
            Self::SubjectBlocked { until, .. } => Problem {
                blocked_until: *until,
                ..problem
            },
            Self::OrphanedOverrides(orphans) => Problem {
                orphaned_overrides: Some(orphans.clone()),
                ..problem
            },
            Self::NeedsApproval(waiting) => Problem {
                proposal: Some(waiting.proposal.clone()),
                ..problem
            },
            _ => problem,
        }
    }

    /// The problem document of the request with this id, in this trace, as JSON.
    pub fn json(&self, request_id: &str, trace_id: Option<&str>) -> Vec<u8> {
        if let Self::Denied(denial) = self {
            return denial.json(request_id, trace_id);
        }
        let problem = Problem {
            request_id: Some(request_id.to_owned()),
            trace_id: trace_id.map(str::to_owned),
            ..self.problem()
        };
        serde_json::to_vec(&problem).expect("a problem is written as JSON")
    }

    fn kind(&self) -> ProblemKind {
        match self {
            Self::Unauthorized | Self::WrongKey | Self::KeyLost => problem::UNAUTHORIZED,
            Self::TooManyWrongKeys(_) => problem::TOO_MANY_WRONG_KEYS,
            Self::Forbidden(_) => problem::FORBIDDEN,
            Self::Malformed(_) | Self::UnreadableHead | Self::WithoutTls => problem::MALFORMED,
            Self::TooLarge(_) => problem::TOO_LARGE,
            Self::EncodedBody => problem::ENCODED_BODY,
            Self::HeadTooLarge => problem::HEAD_TOO_LARGE,
            Self::SlowRequest => problem::SLOW_REQUEST,
            Self::Invalid(_) => problem::INVALID,
            Self::UnknownPolicy(_) | Self::UnheardPolicy(_) => problem::UNKNOWN_POLICY,
            Self::NotFound(_) => problem::NOT_FOUND,
            Self::NotSealed(_) => problem::NOT_SEALED,
            Self::Archived(_) => problem::ARCHIVED,
            Self::MethodNotAllowed(_) => problem::METHOD_NOT_ALLOWED,
            Self::ClaimInProgress => problem::CLAIM_IN_PROGRESS,
            Self::ReconciliationInProgress => problem::RECONCILIATION_IN_PROGRESS,
            Self::LastAdminKey => problem::LAST_ADMIN_KEY,
            Self::KeyRevoked => problem::KEY_REVOKED,
            Self::KeyEnded => problem::KEY_ENDED,
            Self::BeingErased(_) => problem::BEING_ERASED,
            Self::PolicyInactive(..) => problem::POLICY_INACTIVE,
            Self::SubjectBlocked { .. } => problem::SUBJECT_BLOCKED,
            Self::OrphanedOverrides(_) => problem::ORPHANED_OVERRIDES,
            Self::NeedsApproval(_) => problem::NEEDS_APPROVAL,
            Self::OwnProposal => problem::OWN_PROPOSAL,
            Self::NotAHold => problem::NOT_A_HOLD,
            Self::NothingUsed(_) => problem::NOTHING_USED,
            Self::NothingLeft => problem::NOTHING_LEFT,
            Self::FailedDependency => problem::FAILED_DEPENDENCY,
            Self::GrantReversed(_) | Self::RetryOfReversed(_) => problem::GRANT_REVERSED,
            Self::HoldGone(_) | Self::HoldLapsed(_) | Self::RetryOfLapsed(_) => {
                problem::HOLD_LAPSED
            }
            Self::PreconditionFailed(_) | Self::StaleProposal(_) => problem::PRECONDITION_FAILED,
            Self::KeyReused => problem::IDEMPOTENCY_KEY_REUSED,
            Self::Denied(_) => problem::QUOTA_EXCEEDED,
            Self::Undecided(_) => problem::UNDECIDED,
            Self::ReadOnly | Self::Unrecorded => problem::READ_ONLY,
            Self::Unavailable(_)
            | Self::WrongGateKey
            | Self::UnreadableTerms(_)
            | Self::ClockOff
            | Self::MayWait
            | Self::Overloaded
            | Self::TooManyAtOnce
            | Self::TooManyReads
            | Self::TooSlow => problem::UNAVAILABLE,
        }
    }

    /// After how many seconds the client should try again.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Denied(denial) => denial.retry_after(),
            Self::TooManyWrongKeys(wait) => Some(wait.as_millis().div_ceil(1000) as u64),
            Self::PolicyInactive(inactive) => inactive.retry_after(),
            Self::SubjectBlocked { fits_at, now, .. } => retry_after(*fits_at, *now),
            _ => self.kind().retry_after,
        }
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.kind().status
    }

    /// The answer, without its body: `server::every::complete` writes the problem document, which has the
    /// id of the request.
    fn error_response(&self) -> HttpResponse {
        if let Self::Denied(denial) = self {
            return denial.response();
        }
        let mut response = HttpResponse::build(self.status_code())
            .content_type(problem::MEDIA_TYPE)
            .finish();
        if let Self::SlowRequest = self {
            let head = response.head_mut();
            head.set_connection_type(ConnectionType::Close);
        }
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        match self {
            Self::Unauthorized | Self::WrongKey | Self::KeyLost => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // RFC 9110, section 15.5.16.
            Self::EncodedBody => {
                let identity = HeaderValue::from_static("identity");
                headers.insert(header::ACCEPT_ENCODING, identity);
            }
            Self::MethodNotAllowed(allowed) => {
                let allowed = HeaderValue::from_str(allowed).ok();
                allowed.map(|allowed| headers.insert(header::ALLOW, allowed));
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

/// The entry of a claim or a correction, and whether it was made before, under the same key.
pub fn entered(
    outcome: Outcome,
    forecast: Forecast,
    subject: Option<&str>,
    units: Units,
    now: DateTime<Utc>,
) -> Result<(Entry, bool), ApiError> {
    match outcome {
        Outcome::Entered(entry) => Ok((entry, false)),
        Outcome::Repeated(entry) => Ok((entry, true)),
        Outcome::KeyReused => Err(ApiError::KeyReused),
        Outcome::Withheld(..) => Err(ApiError::FailedDependency),
        Outcome::Refused(policy, refusal) => {
            let asked = Asked {
                policy,
                subject: subject.unwrap_or_default().to_owned(),
                units,
                now,
            };
            Err(ApiError::refused(asked, refusal, forecast))
        }
    }
}

fn describe_end(until: Option<DateTime<Utc>>) -> String {
    until.map_or(String::new(), |until| format!(" until {}", written(until)))
}

fn describe_stale(version: Option<u32>) -> String {
    match version {
        Some(version) => {
            format!("the policy has changed since this was proposed: its version is {version}")
        }
        None => "the policy does not exist any more".to_owned(),
    }
}

fn describe_version(version: Option<u32>) -> String {
    match version {
        Some(version) => {
            format!("its version is {version}: read it again, and send its ETag in If-Match")
        }
        None => "it does not exist: leave out If-Match to create it".to_owned(),
    }
}
