//! A request's id: the client's own id if it is valid, otherwise a new one. The answer and all log
//! lines of the request have it.

use std::cell::OnceCell;

use actix_web::http::header::{HeaderName, HeaderValue};
use tracing::Span;
use uuid::Uuid;

/// The header field of a request and of its answer.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LENGTH_MOST: usize = 64;

/// A request's id, and the span that shows the id in the log. The span costs a tenth of a claim's
/// time in HTTP, so it is made when it is first needed.
pub struct RequestId {
    value: HeaderValue,
    span: OnceCell<Span>,
}

/// The id of a request, for its handler.
pub struct OwnId(pub String);

impl RequestId {
    /// The id of a request with this field.
    pub fn of(field: Option<&[u8]>) -> Self {
        Self {
            value: field.and_then(own).unwrap_or_else(new),
            span: OnceCell::new(),
        }
    }

    pub fn value(&self) -> HeaderValue {
        self.value.clone()
    }

    pub fn text(&self) -> &str {
        self.value.to_str().unwrap_or_default()
    }

    /// The log span of the request.
    pub fn span(&self) -> &Span {
        let text = self.text();
        let make = || tracing::info_span!("request", request_id = %text);
        self.span.get_or_init(make)
    }
}

/// The client's id, if it is short and has only characters that are safe in a log.
fn own(field: &[u8]) -> Option<HeaderValue> {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let fits = (1..=LENGTH_MOST).contains(&field.len()) && field.iter().all(is_safe);
    HeaderValue::from_bytes(field).ok().filter(|_| fits)
}

fn new() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let text = Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(text).expect("a UUID is visible ASCII")
}
