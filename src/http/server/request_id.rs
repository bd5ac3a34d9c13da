//! A request's id: the client's own id if it is valid, otherwise a new one. The answer and all log
//! lines of the request have it, and beside it the id of the client's trace, if it sends one.

use std::cell::OnceCell;

use actix_web::http::header::{HeaderName, HeaderValue};
use tracing::Span;
use uuid::Uuid;

/// The header field of a request and of its answer.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header field of a request that belongs to a trace.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const LENGTH_MOST: usize = 64;
/// The bytes of a field `traceparent`: a version, the trace, the client's span, and flags.
const TRACEPARENT_LENGTH: usize = 55;

/// The id of a trace: 32 hexadecimal digits.
type TraceId = [u8; 32];

/// A request's id, and the span that shows the id in the log. The span costs a tenth of a claim's
/// time in HTTP, so it is made when it is first needed.
pub struct RequestId {
    value: HeaderValue,
    trace: Option<TraceId>,
    span: OnceCell<Span>,
}

/// The id of a request, for its handler.
pub struct OwnId(pub String);

impl RequestId {
    /// The id of a request with these fields, `X-Request-Id` and `traceparent`.
    pub fn of(field: Option<&[u8]>, traceparent: Option<&[u8]>) -> Self {
        Self {
            value: field.and_then(own).unwrap_or_else(new),
            trace: traceparent.and_then(trace_of),
            span: OnceCell::new(),
        }
    }

    pub fn value(&self) -> HeaderValue {
        self.value.clone()
    }

    pub fn text(&self) -> &str {
        self.value.to_str().unwrap_or_default()
    }

    /// The id of the client's trace.
    pub fn trace_id(&self) -> Option<&str> {
        str::from_utf8(self.trace.as_ref()?).ok()
    }

    /// The log span of the request.
    pub fn span(&self) -> &Span {
        let text = self.text();
        let trace_id = self.trace_id();
        let make = || tracing::info_span!("request", request_id = %text, trace_id);
        self.span.get_or_init(make)
    }
}

/// The client's id, if it is short and has only characters that are safe in a log.
fn own(field: &[u8]) -> Option<HeaderValue> {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let fits = (1..=LENGTH_MOST).contains(&field.len()) && field.iter().all(is_safe);
    HeaderValue::from_bytes(field).ok().filter(|_| fits)
}

/// The id of the trace (W3C Trace Context, section 3.2). A later version may have more behind these parts.
fn trace_of(field: &[u8]) -> Option<TraceId> {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let is_set = |digits: &[u8]| digits.iter().all(is_hex) && digits.iter().any(|it| *it != b'0');
    let (parts, more) = field.split_at_checked(TRACEPARENT_LENGTH)?;
    let [v, w, b'-', rest @ ..] = parts else {
        return None;
    };
    let version = [*v, *w];
    let is_known = version.iter().all(is_hex) && version != *b"ff";
    let ends = more.is_empty() || (version != *b"00" && more.starts_with(b"-"));
    let trace = rest.first_chunk()?;
    let [b'-', span @ .., b'-', f, g] = &rest[trace.len()..] else {
        return None;
    };
    let fits = is_set(trace) && is_set(span) && is_hex(f) && is_hex(g);
    (is_known && ends && fits).then_some(*trace)
}

fn new() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let text = Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(text).expect("a UUID is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_of_a_valid_field_is_found() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let span = "b7ad6b7169203331";
        let zeros = "0".repeat(32);
        for (field, is_valid) in [
            (format!("00-{trace}-{span}-01"), true),
            (format!("cc-{trace}-{span}-00-what-comes-later"), true),
            (format!("00-{trace}-{span}-01-more"), false),
            (format!("cc-{trace}-{span}-01."), false),
            (format!("ff-{trace}-{span}-01"), false),
            (format!("00-{zeros}-{span}-01"), false),
            (format!("00-{trace}-{}-01", &zeros[..16]), false),
            (format!("00-{}-{span}-01", trace.to_uppercase()), false),
            (format!("00-{trace}-{span}-0g"), false),
            (format!("00-{trace}-{span}"), false),
            (format!("00_{trace}-{span}-01"), false),
            (format!("00-{trace}_{span}-01"), false),
            (format!("00-{trace}-{span}_01"), false),
            (String::new(), false),
        ] {
            let id = RequestId::of(None, Some(field.as_bytes()));
            assert_eq!(id.trace_id(), is_valid.then_some(trace), "{field}");
        }
    }
}
