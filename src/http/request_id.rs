//! A request's id: on every line that is logged for it, and in its answer.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest};
use tracing::Instrument;
use uuid::Uuid;

use crate::chain::Chain;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LENGTH_MOST: usize = 64;

/// Gives each request an id, the client's own if it sent a fit one, and logs how it ended.
/// Paths are logged as patterns: they may hold subjects.
pub async fn identify(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let id = own_id(&request).unwrap_or_else(|| Uuid::new_v4().to_string());
    let span = tracing::info_span!("request", request_id = %id);
    async move {
        let mut response = match next.call(request).await {
            Ok(response) => response.map_into_left_body(),
            Err(error) => return Err(error),
        };
        let status = response.status();
        if status.is_server_error()
            && let Some(error) = response.response().error()
        {
            let error = error.as_error::<super::error::ApiError>();
            let cause = error.map(|error| Chain(error).to_string());
            let (method, path) = of(response.request());
            tracing::error!(%method, path, status = status.as_u16(), cause, "a request failed");
        } else if tracing::enabled!(tracing::Level::DEBUG) {
            // To find the pattern is to route again.
            let (method, path) = of(response.request());
            tracing::debug!(%method, path, status = status.as_u16(), "a request ended");
        }
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(X_REQUEST_ID, value);
        }
        Ok::<ServiceResponse<actix_web::body::EitherBody<_>>, Error>(response)
    }
    .instrument(span)
    .await
}

/// A request's method, and its path as a pattern.
fn of(request: &HttpRequest) -> (&Method, String) {
    let pattern = request.match_pattern();
    (request.method(), pattern.unwrap_or_else(|| "-".to_owned()))
}

/// The client's id: short, and without what could confuse a log.
fn own_id(request: &ServiceRequest) -> Option<String> {
    let id = request.headers().get(X_REQUEST_ID)?.to_str().ok()?;
    let fits = (1..=LENGTH_MOST).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    fits.then(|| id.to_owned())
}
