//! What a proxy is told of its question.

use std::sync::Arc;

use actix_web::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use chrono::{DateTime, Utc};
use prost_types::value::Kind;
use prost_types::{Duration, ListValue, Struct, Value};
use uuid::Uuid;

use super::messages::{Code, CurrentLimit, DescriptorStatus, HeaderField, RateLimitResponse, Unit};
use crate::answer::{
    ApiError, RATE_LIMIT, RATE_LIMIT_POLICY, insert_fields, seconds_until, shared_name,
};
use crate::server::gate::{PERDIEM_BUNDLE, PERDIEM_GRANT, PERDIEM_WOULD_DENY};
use domain::forecast::Forecast;
use domain::limit::per::Per;
use domain::limit::total::Total;
use domain::policy::PolicyName;
use domain::shared::SharedTotal;
use domain::window::Length;

/// What became of the claim of a descriptor.
pub type Became = Result<Passed, ApiError>;

/// A claim that is granted, or that would be.
pub struct Passed {
    pub totals: Arc<[Total]>,
    pub forecast: Forecast,
    /// The instant of the answer.
    pub now: DateTime<Utc>,
    /// `None` if the descriptor only looked.
    pub grant: Option<Uuid>,
    /// The bundle of the grant; `None` for the grant of a question with one descriptor.
    pub bundle: Option<Uuid>,
    pub would_deny: bool,
}

impl Passed {
    /// A claim of which nothing else is told.
    pub fn without_limits(now: DateTime<Utc>) -> Self {
        Self {
            totals: Arc::default(),
            forecast: Forecast::default(),
            now,
            grant: None,
            bundle: None,
            would_deny: false,
        }
    }

    /// The limit with the fewest units left.
    fn binding(&self) -> Option<&Total> {
        self.totals.iter().min_by_key(|total| total.remaining())
    }
}

/// The answer to a question that is refused whole.
pub fn refused(error: &ApiError, document: impl FnOnce(&ApiError) -> Vec<u8>) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        response_headers_to_add: fields(&error.error_response()),
        raw_body: document(error),
        ..RateLimitResponse::default()
    }
}

/// The answer to a question, from what became of each claim. `document` makes the body of a refusal.
///
/// # Errors
/// The first error, if no claim is refused and one of them could not be decided.
pub fn tell(
    policies: &[&PolicyName],
    became: Vec<Became>,
    document: impl FnOnce(&ApiError) -> Vec<u8>,
) -> Result<RateLimitResponse, ApiError> {
    // 1. One refusal refuses the question: the one for which the user waits longest.
    let refusals = became.iter().filter_map(|it| it.as_ref().err());
    let refusals = refusals.filter(|error| error.is_refusal());
    let refusal = refusals.max_by_key(|error| (error.retry_after().is_none(), error.retry_after()));
    let answer = match refusal {
        Some(error) => {
            let parts = policies.iter().zip(&became);
            let violated = parts.flat_map(|(policy, became)| violated(policy, became));
            RateLimitResponse {
                dynamic_metadata: Some(metadata(Vec::new(), violated.collect(), false)),
                ..refused(error, document)
            }
        }
        // 2. Without one, an error leaves it undecided.
        None if became.iter().any(Result::is_err) => {
            let mut errors = became.into_iter().filter_map(Result::err);
            let error = errors.find(|error| !matches!(error, ApiError::FailedDependency));
            return Err(error.unwrap_or(ApiError::FailedDependency));
        }
        None => granted(&became),
    };
    // 3. Tell each descriptor's part.
    let parts = policies.iter().zip(&became);
    let statuses = parts.map(|(policy, became)| status(policy, became));
    Ok(RateLimitResponse {
        statuses: statuses.collect(),
        ..answer
    })
}

/// The answer to a question whose claims are all granted. The fields are of the policy with the fewest units left.
fn granted(became: &[Became]) -> RateLimitResponse {
    let passed = || became.iter().flatten();
    let mut response = HttpResponse::Ok();
    let told = passed().filter_map(|passed| Some((passed, passed.binding()?.remaining())));
    if let Some((least, _)) = told.min_by_key(|(_, remaining)| *remaining) {
        insert_fields(
            &mut response,
            &least.totals,
            &[],
            &least.forecast,
            least.now,
        );
    }
    let grants = passed().filter_map(|passed| passed.grant);
    let grants: Vec<String> = grants.map(|grant| grant.to_string()).collect();
    let mut bundles = passed().filter(|passed| passed.grant.is_some());
    let bundle = bundles.next().and_then(|passed| passed.bundle);
    // A question that repeats a part of another one has grants of several bundles, and names none.
    let bundle = bundle.filter(|bundle| bundles.all(|passed| passed.bundle == Some(*bundle)));
    let bundle = bundle.map(|bundle| field(&PERDIEM_BUNDLE, &bundle.to_string()));
    let would_deny = passed().any(|passed| passed.would_deny);
    let of_grants = grants.iter().map(|grant| field(&PERDIEM_GRANT, grant));
    let mark = would_deny.then(|| field(&PERDIEM_WOULD_DENY, "true"));
    RateLimitResponse {
        overall_code: Code::Ok.into(),
        response_headers_to_add: fields(&response.finish()),
        request_headers_to_add: of_grants.chain(bundle).chain(mark).collect(),
        dynamic_metadata: Some(metadata(grants, Vec::new(), would_deny)),
        ..RateLimitResponse::default()
    }
}

fn status(policy: &PolicyName, became: &Became) -> DescriptorStatus {
    let (code, binding, wait) = match became {
        Ok(passed) => {
            let binding = passed.binding();
            let more_at = binding.and_then(|total| passed.forecast.returns_of(total).more_at);
            let wait = more_at.map(|more_at| seconds_until(more_at, passed.now));
            (Code::Ok, binding.map(BindingLimit::from), wait)
        }
        Err(error) if error.is_refusal() => {
            let binding = match error {
                ApiError::Denied(denial) => {
                    let shared = denial.binding_shared().map(BindingLimit::from);
                    shared.or_else(|| denial.binding().map(BindingLimit::from))
                }
                _ => None,
            };
            let wait = error.retry_after().map(u64::cast_signed);
            (Code::OverLimit, binding, wait)
        }
        // Nothing keeps it from a grant, but another descriptor.
        Err(ApiError::FailedDependency) => (Code::Ok, None, None),
        Err(_) => (Code::Unknown, None, None),
    };
    DescriptorStatus {
        code: code.into(),
        limit_remaining: binding.as_ref().map_or(0, |bound| narrow(bound.remaining)),
        current_limit: binding.map(|bound| CurrentLimit {
            requests_per_unit: narrow(bound.at_once),
            unit: unit(bound.per).into(),
            name: named(policy, &bound.name),
        }),
        duration_until_reset: wait.map(|seconds| Duration { seconds, nanos: 0 }),
    }
}

fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// The limit that a claim has least room in.
struct BindingLimit {
    per: Per,
    name: String,
    at_once: u64,
    remaining: u64,
}

impl From<&Total> for BindingLimit {
    fn from(total: &Total) -> Self {
        Self {
            per: total.per(),
            name: total.per().to_string(),
            at_once: total.at_once(),
            remaining: total.remaining(),
        }
    }
}

impl From<&SharedTotal> for BindingLimit {
    fn from(total: &SharedTotal) -> Self {
        Self {
            per: total.limit.per(),
            name: shared_name(total),
            at_once: total.limit.max,
            remaining: total.remaining(),
        }
    }
}

/// A limit's name, with that of its policy.
fn named(policy: &PolicyName, limit: &str) -> String {
    format!("{policy}/{limit}")
}

/// The unit of time that a limit counts by; unknown if the protocol has no such unit.
fn unit(per: Per) -> Unit {
    match per {
        Per::Calendar(Length::Minute) => Unit::Minute,
        Per::Calendar(Length::Hour) => Unit::Hour,
        Per::Calendar(Length::Day) => Unit::Day,
        Per::Calendar(Length::Week) => Unit::Week,
        Per::Calendar(Length::Month) => Unit::Month,
        Per::Calendar(Length::Year) => Unit::Year,
        Per::Calendar(Length::Quarter) | Per::Weeks(_) | Per::Ever => Unit::Unknown,
        Per::Elapsed(elapsed) => match elapsed.seconds() {
            1 => Unit::Second,
            60 => Unit::Minute,
            3600 => Unit::Hour,
            86_400 => Unit::Day,
            604_800 => Unit::Week,
            _ => Unit::Unknown,
        },
    }
}

/// The names of the limits that denied a claim.
fn violated(policy: &PolicyName, became: &Became) -> Vec<String> {
    match became {
        Err(ApiError::Denied(denial)) => {
            let violated = denial.violated();
            violated.map(|limit| named(policy, &limit)).collect()
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// What the user's answer gets.
fn fields(response: &HttpResponse) -> Vec<HeaderField> {
    let told = [RATE_LIMIT_POLICY, RATE_LIMIT, RETRY_AFTER, CONTENT_TYPE];
    let field = |name: HeaderName| {
        let value = response.headers().get(&name)?.to_str().ok()?;
        Some(field(&name, value))
    };
    told.into_iter().filter_map(field).collect()
}

fn field(name: &HeaderName, value: &str) -> HeaderField {
    HeaderField {
        key: name.as_str().to_owned(),
        value: value.to_owned(),
    }
}

/// What the proxy's own filters and logs can read.
fn metadata(grants: Vec<String>, violated: Vec<String>, would_deny: bool) -> Struct {
    let list = |texts: Vec<String>| {
        let values = texts.into_iter().map(Kind::StringValue).map(valued);
        Kind::ListValue(ListValue {
            values: values.collect(),
        })
    };
    let fields = [
        ("grants", list(grants)),
        ("violated_limits", list(violated)),
        ("would_deny", Kind::BoolValue(would_deny)),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), valued(value)));
    Struct {
        fields: fields.into(),
    }
}

fn valued(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}
