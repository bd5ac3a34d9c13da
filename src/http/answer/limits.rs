//! Limits in answers: in bodies, and in the header fields of the IETF draft.

use actix_web::HttpResponseBuilder;
use actix_web::http::header::HeaderName;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{instant, words};
use crate::domain::forecast::{Forecast, Returns};
use crate::domain::limit::per::Per;
use crate::domain::limit::total::Total;

/// The largest integer of a structured field (RFC 8941, section 3.3.1).
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A limit with its usage, now or at a grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct LimitUsage {
    /// The limit's name: `minute`, `hour`, `day`, `week`, `month`, `year`, `ever`, or a duration.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    /// The kind of the limit, which says how units return: `calendar`, `from_first_claim`,
    /// `sliding` or `rate`.
    #[schema(value_type = words::LimitKind, example = "calendar")]
    pub kind: &'static str,
    /// The most units in a window; 0 where an override blocks the subject.
    #[schema(example = 3, maximum = 9_007_199_254_740_991_u64)]
    pub max: u64,
    /// The units used. Claims can raise it to at most 2^53 − 1. It can be higher where grants were
    /// recorded afterwards, or where the limit is newer than the entries that it counts.
    #[schema(example = 1)]
    pub used: u64,
    /// The units left; for a rate, the units in its bucket. It is 0 where more than `max` is used:
    /// `max` was lowered, or the policy only observes.
    #[schema(example = 2)]
    pub remaining: u64,
    /// When the window began; null where there is no window.
    #[schema(example = "2026-11-20T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize_some")]
    pub window_start: Option<DateTime<Utc>>,
    /// When more units are left, or the window ends, if nothing more is granted: by the limit, by open
    /// holds that lapse, and by changes of the limit that are known. Null where that is never.
    #[schema(example = "2026-11-21T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize_some")]
    pub more_at: Option<DateTime<Utc>>,
    /// When all units have returned, if nothing more is granted: by the limit, by open holds that
    /// lapse, and by changes of the limit that are known. Null where no units return.
    #[schema(example = "2026-11-21T16:00:00Z")]
    #[serde(serialize_with = "instant::serialize_some")]
    pub resets_at: Option<DateTime<Utc>>,
}

impl LimitUsage {
    pub fn new(total: &Total, returns: Returns) -> Self {
        let per = total.per();
        let window = total.window();
        let Returns { more_at, resets_at } = returns;
        Self {
            per,
            kind: total.kind().as_str(),
            max: total.max,
            used: total.used(),
            remaining: total.remaining(),
            window_start: window
                .filter(|_| per != Per::Ever)
                .map(|window| window.start),
            more_at,
            resets_at,
        }
    }

    /// Limits as they were, or as time alone moves them.
    pub fn all(totals: &[Total]) -> Vec<Self> {
        Self::foretold(totals, &Forecast::default())
    }

    pub fn foretold(totals: &[Total], forecast: &Forecast) -> Vec<Self> {
        let limits = totals.iter();
        let limit = |total| Self::new(total, forecast.returns_of(total));
        limits.map(limit).collect()
    }
}

/// Adds `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11): one item for
/// each limit, named by its `per`. Quotas are in units, times in seconds. `t` is the time until
/// more units return: until then at most `r` units can be used.
pub fn insert_fields(
    response: &mut HttpResponseBuilder,
    totals: &[Total],
    forecast: &Forecast,
    now: DateTime<Utc>,
) {
    let mut policies = String::with_capacity(32);
    let mut limits = String::with_capacity(32);
    for total in totals {
        let quota = total.at_once().min(FIELD_INTEGER_MAX);
        let window = total.refill_seconds();
        push_item(&mut policies, total.per(), (";q=", quota), (";w=", window));
        let remaining = total.remaining().min(FIELD_INTEGER_MAX);
        let more_at = forecast.returns_of(total).more_at;
        let seconds = more_at.map(|more_at| seconds_until(more_at, now));
        push_item(
            &mut limits,
            total.per(),
            (";r=", remaining),
            (";t=", seconds),
        );
    }
    response.insert_header((RATELIMIT_POLICY, policies));
    response.insert_header((RATELIMIT, limits));
}

/// Adds an item to the list in a header field.
fn push_item(list: &mut String, per: Per, units: (&str, u64), seconds: (&str, Option<i64>)) {
    let mut digits = itoa::Buffer::new();
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push('"');
    list.push_str(&per.as_text());
    list.push('"');
    list.push_str(units.0);
    list.push_str(digits.format(units.1));
    if let Some(time) = seconds.1 {
        list.push_str(seconds.0);
        list.push_str(digits.format(time));
    }
}

/// Whole seconds from `now` until an instant. They are rounded up, so that a client that waits this
/// long does not come too early.
pub fn seconds_until(instant: DateTime<Utc>, now: DateTime<Utc>) -> i64 {
    let micros = (instant - now)
        .num_microseconds()
        .unwrap_or(i64::MAX)
        .max(0);
    micros / 1_000_000 + i64::from(micros % 1_000_000 > 0)
}
