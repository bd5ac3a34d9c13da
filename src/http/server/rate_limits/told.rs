//! What a proxy is told of its question.

use std::sync::Arc;

use actix_web::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use chrono::{DateTime, Utc};
use prost_types::value::Kind;
use prost_types::{Duration, ListValue, Struct, Value};
use uuid::Uuid;

use super::messages::{Code, CurrentLimit, DescriptorStatus, HeaderField, RateLimitResponse, Unit};
use crate::answer::{ApiError, RATE_LIMIT, RATE_LIMIT_POLICY, insert_fields, seconds_until};
use domain::forecast::Forecast;
use domain::limit::per::Per;
use domain::limit::total::Total;
use domain::policy::PolicyName;
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
    let (overall_code, response, raw_body) = match refusal {
        Some(error) => (Code::OverLimit, error.error_response(), document(error)),
        // 2. Without one, an error leaves it undecided.
        None if became.iter().any(Result::is_err) => {
            let mut errors = became.into_iter().filter_map(Result::err);
            let error = errors.find(|error| !matches!(error, ApiError::FailedDependency));
            return Err(error.unwrap_or(ApiError::FailedDependency));
        }
        // 3. All claims are granted: the fields are of the policy with the fewest units left.
        None => (Code::Ok, tell_least(&became), Vec::new()),
    };
    // 4. Tell each descriptor's part.
    let parts = policies.iter().zip(&became);
    let statuses = parts.map(|(policy, became)| status(policy, became));
    let passed: Vec<&Passed> = match overall_code {
        Code::Ok => became.iter().flatten().collect(),
        // The application is not asked. A grant of before, of the same key, is none of this answer.
        Code::OverLimit | Code::Unknown => Vec::new(),
    };
    Ok(RateLimitResponse {
        overall_code: overall_code.into(),
        statuses: statuses.collect(),
        response_headers_to_add: fields(&response),
        request_headers_to_add: request_fields(&passed),
        raw_body,
        dynamic_metadata: Some(metadata(policies, &became, &passed)),
    })
}

/// An answer with the fields of the claim whose limit has the fewest units left.
fn tell_least(became: &[Became]) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    let passed = became.iter().flatten();
    let told = passed.filter_map(|passed| Some((passed, passed.binding()?.remaining())));
    if let Some((passed, _)) = told.min_by_key(|(_, remaining)| *remaining) {
        insert_fields(&mut response, &passed.totals, &passed.forecast, passed.now);
    }
    response.finish()
}

fn status(policy: &PolicyName, became: &Became) -> DescriptorStatus {
    let (code, binding, wait) = match became {
        Ok(passed) => {
            let binding = passed.binding();
            let more_at = binding.and_then(|total| passed.forecast.returns_of(total).more_at);
            let wait = more_at.map(|more_at| seconds_until(more_at, passed.now));
            (Code::Ok, binding, wait)
        }
        Err(error) if error.is_refusal() => {
            let binding = match error {
                ApiError::Denied(denial) => denial.binding(),
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
        current_limit: binding.map(|total| CurrentLimit {
            requests_per_unit: narrow(total.at_once()),
            unit: unit(total.per()).into(),
            name: named(policy, total),
        }),
        limit_remaining: binding.map_or(0, |total| narrow(total.remaining())),
        duration_until_reset: wait.map(|seconds| Duration { seconds, nanos: 0 }),
    }
}

fn narrow(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// A limit's name: that of its policy, and its `per`.
fn named(policy: &PolicyName, total: &Total) -> String {
    format!("{policy}/{}", total.per())
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

/// What the user's answer gets.
fn fields(response: &HttpResponse) -> Vec<HeaderField> {
    let told = [RATE_LIMIT_POLICY, RATE_LIMIT, RETRY_AFTER, CONTENT_TYPE];
    let field = |name: HeaderName| {
        let value = response.headers().get(&name)?.to_str().ok()?;
        Some(field(name.as_str(), value))
    };
    told.into_iter().filter_map(field).collect()
}

fn field(key: &str, value: impl Into<String>) -> HeaderField {
    HeaderField {
        key: key.to_owned(),
        value: value.into(),
    }
}

/// What the application's request gets.
fn request_fields(passed: &[&Passed]) -> Vec<HeaderField> {
    let grants = passed.iter().filter_map(|passed| passed.grant);
    let grants = grants.map(|grant| field("perdiem-grant", grant.to_string()));
    let would_deny = passed.iter().any(|passed| passed.would_deny);
    let would_deny = would_deny.then(|| field("perdiem-would-deny", "true"));
    grants.chain(would_deny).collect()
}

/// What the proxy's own filters and logs can read.
fn metadata(policies: &[&PolicyName], became: &[Became], passed: &[&Passed]) -> Struct {
    let list = |texts: Vec<String>| {
        let values = texts.into_iter().map(Kind::StringValue).map(valued);
        Kind::ListValue(ListValue {
            values: values.collect(),
        })
    };
    let grants = passed.iter().filter_map(|passed| passed.grant);
    let violated = policies.iter().zip(became).flat_map(|(policy, became)| {
        let denial = match became {
            Err(ApiError::Denied(denial)) => Some(denial),
            Ok(_) | Err(_) => None,
        };
        let lacking = denial.into_iter().flat_map(|denial| denial.lacking());
        lacking.map(|total| named(policy, total))
    });
    let would_deny = passed.iter().any(|passed| passed.would_deny);
    let fields = [
        ("grants", list(grants.map(|id| id.to_string()).collect())),
        ("violated_limits", list(violated.collect())),
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
