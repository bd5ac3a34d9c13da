//! Limits in answers: in bodies, and in the header fields of the IETF draft.

use actix_web::HttpResponseBuilder;
use actix_web::http::header::HeaderName;
use chrono::{DateTime, Utc};

use domain::forecast::Forecast;
use domain::limit::total::Total;
use domain::shared::SharedTotal;

/// The largest integer of a structured field (RFC 8941, section 3.3.1).
const FIELD_INTEGER_MAX: u64 = 999_999_999_999_999;

pub const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Adds `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11): one item for
/// each limit, named by its `per`; that of a limit that all subjects share begins with `total`. Quotas are in units, times in seconds. `t` is the time until
/// more units return: until then at most `r` units can be used.
pub fn insert_fields(
    response: &mut HttpResponseBuilder,
    totals: &[Total],
    shared: &[SharedTotal],
    forecast: &Forecast,
    now: DateTime<Utc>,
) {
    let mut policies = String::with_capacity(32);
    let mut limits = String::with_capacity(32);
    for total in totals {
        let quota = total.at_once().min(FIELD_INTEGER_MAX);
        let window = total.refill_seconds();
        let name = total.per().as_text();
        push_item(&mut policies, &name, (";q=", quota), (";w=", window));
        let remaining = total.remaining().min(FIELD_INTEGER_MAX);
        let more_at = forecast.returns_of(total).more_at;
        let seconds = more_at.map(|more_at| seconds_until(more_at, now));
        push_item(&mut limits, &name, (";r=", remaining), (";t=", seconds));
    }
    for total in shared {
        let name = shared_name(total);
        let quota = total.limit.max.min(FIELD_INTEGER_MAX);
        let window = total
            .ends_at
            .map(|ends_at| (ends_at - total.key.start).num_seconds());
        push_item(&mut policies, &name, (";q=", quota), (";w=", window));
        let remaining = total.remaining().min(FIELD_INTEGER_MAX);
        let seconds = total.ends_at.map(|ends_at| seconds_until(ends_at, now));
        push_item(&mut limits, &name, (";r=", remaining), (";t=", seconds));
    }
    response.insert_header((RATE_LIMIT_POLICY, policies));
    response.insert_header((RATE_LIMIT, limits));
}

/// The name of a limit that all subjects share.
pub fn shared_name(total: &SharedTotal) -> String {
    format!("total {}", total.limit.per())
}

/// Adds an item to the list in a header field.
fn push_item(list: &mut String, name: &str, units: (&str, u64), seconds: (&str, Option<i64>)) {
    let mut digits = itoa::Buffer::new();
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push('"');
    list.push_str(name);
    list.push('"');
    list.push_str(units.0);
    list.push_str(digits.format(units.1));
    if let Some(time) = seconds.1 {
        list.push_str(seconds.0);
        list.push_str(digits.format(time));
    }
}

/// `Retry-After`: whole seconds until a claim fits, and at least one; `None` if that is not known.
pub fn retry_after(fits_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Option<u64> {
    let wait = seconds_until(fits_at?, now);
    Some(wait.max(1).cast_unsigned())
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
