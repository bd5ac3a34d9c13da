//! Limits in answers: in bodies and in the fields of the IETF's draft.

use actix_web::HttpResponseBuilder;
use actix_web::http::header::HeaderName;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{instant, words};
use crate::domain::grant::Total;
use crate::domain::window::Per;

/// The largest integer of a structured field (RFC 8941, section 3.3.1).
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A limit and its window, as they are now or were at a grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct LimitUsage {
    /// The window: `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[schema(value_type = words::Per, example = "day")]
    pub per: &'static str,
    /// The most units in a window; 0 where an override blocks the subject.
    #[schema(example = 3, maximum = 9_007_199_254_740_991_u64)]
    pub max: u64,
    /// The units used in the window. Claims bring it to 2^53 − 1 at most; it can be more where
    /// grants were recorded afterwards, or the limit is younger than the window's entries.
    #[schema(example = 1)]
    pub used: u64,
    /// The units left; 0 where more is used: `max` was lowered, or the policy only observes.
    #[schema(example = 2)]
    pub remaining: u64,
    /// When the window began.
    #[schema(example = "2026-11-20T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize")]
    pub window_start: DateTime<Utc>,
    /// When it ends, and the next one begins at zero.
    #[schema(example = "2026-11-21T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize")]
    pub resets_at: DateTime<Utc>,
}

impl From<&Total> for LimitUsage {
    fn from(total: &Total) -> Self {
        Self {
            per: total.per.as_str(),
            max: total.max,
            used: total.used,
            remaining: total.remaining(),
            window_start: total.window.start,
            resets_at: total.window.end,
        }
    }
}

impl LimitUsage {
    pub fn all(totals: &[Total]) -> Vec<Self> {
        totals.iter().map(Self::from).collect()
    }
}

/// Adds `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10): one item
/// a limit, named by its `per`; quotas in units, times in seconds.
pub fn insert_fields(response: &mut HttpResponseBuilder, totals: &[Total], now: DateTime<Utc>) {
    let (mut policies, mut limits) = (String::with_capacity(32), String::with_capacity(32));
    for total in totals {
        let quota = total.max.min(FIELD_INTEGER_MAX);
        let window = (total.window.end - total.window.start).num_seconds();
        push_item(&mut policies, total.per, (";q=", quota), (";w=", window));
        let remaining = total.remaining().min(FIELD_INTEGER_MAX);
        let seconds = seconds_until(total.window.end, now);
        push_item(&mut limits, total.per, (";r=", remaining), (";t=", seconds));
    }
    response.insert_header((RATELIMIT_POLICY, policies));
    response.insert_header((RATELIMIT, limits));
}

/// Adds an item to the list in a field.
fn push_item(list: &mut String, per: Per, units: (&str, u64), seconds: (&str, i64)) {
    let mut digits = itoa::Buffer::new();
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push('"');
    list.push_str(per.as_str());
    list.push('"');
    list.push_str(units.0);
    list.push_str(digits.format(units.1));
    list.push_str(seconds.0);
    list.push_str(digits.format(seconds.1));
}

/// Whole seconds from `now` until an instant, rounded up, so that a client that waits so
/// long does not come too early.
pub fn seconds_until(instant: DateTime<Utc>, now: DateTime<Utc>) -> i64 {
    let millis = (instant - now).num_milliseconds().max(0);
    millis / 1000 + i64::from(millis % 1000 > 0)
}
