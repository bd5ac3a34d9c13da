//! A request's id: the client's own id if it is valid, otherwise a new one. The answer and all log
//! lines of the request have it.

use std::cell::OnceCell;

use actix_web::HttpRequest;
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

impl RequestId {
    pub fn of(request: &HttpRequest) -> Self {
        Self {
            value: own(request).unwrap_or_else(new),
            span: OnceCell::new(),
        }
    }

    pub fn value(&self) -> HeaderValue {
        self.value.clone()
    }

    /// The log span of the request.
    pub fn span(&self) -> &Span {
        let text = self.value.to_str().unwrap_or_default();
        let make = || tracing::info_span!("request", request_id = %text);
        self.span.get_or_init(make)
    }
}

/// The client's id, if it is short and has only characters that are safe in a log.
fn own(request: &HttpRequest) -> Option<HeaderValue> {
    let value = request.headers().get(X_REQUEST_ID)?;
    let fits = (1..=LENGTH_MOST).contains(&value.len())
        && value
            .as_bytes()
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    fits.then(|| value.clone())
}

fn new() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let text = Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(text).expect("a UUID is visible ASCII")
}
