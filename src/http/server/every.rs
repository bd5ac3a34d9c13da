//! What holds for every request: an id, on each line that is logged for it and in its answer; the
//! fields that each answer has; and its connection knows while it is at work.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CACHE_CONTROL, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::web::Bytes;
use actix_web::{Error, HttpRequest, HttpResponse};
use pin_project_lite::pin_project;
use tracing::Instrument;
use uuid::Uuid;

use super::super::credentials;
use super::super::error::ApiError;
use super::super::route::{Routes, pattern};
use super::bounds::keep;
use super::connection::{AtWork, Exchange};
use crate::chain::Chain;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LENGTH_MOST: usize = 64;
const NOTHING_HERE: &str = "there is nothing at this path; see /docs";

pin_project! {
    /// A body that keeps something until it is written or given up.
    pub struct Kept<B, K> {
        #[pin]
        body: B,
        kept: K,
    }
}

impl<B, K> Kept<B, K> {
    /// Keeps something with a body.
    pub fn with(body: B, kept: K) -> Self {
        Self { body, kept }
    }
}

impl<B: MessageBody, K> MessageBody for Kept<B, K> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.project().body.poll_next(context)
    }
}

/// Answers a request. Each step takes the next one as a future, which it may wait for or not.
pub async fn answer(routes: Rc<Routes>, request: ServiceRequest) -> Result<ServiceResponse, Error> {
    let (request, payload) = request.into_parts();
    let route = routes.find(&request);
    let handled = async {
        let Some(route) = route else {
            return HttpResponse::from_error(ApiError::NotFound(NOTHING_HERE));
        };
        let handled = route.handle(request.clone(), payload);
        keep(route.bounded, &request, handled).await
    };
    let answer = oversee(&request, credentials::oversee(&request, handled)).await;
    Ok(ServiceResponse::new(request, answer))
}

/// Gives each request an id, the client's own if it sent a fit one, and logs how it ended.
/// Paths are logged as patterns: they may hold subjects.
async fn oversee(
    request: &HttpRequest,
    answer: impl Future<Output = HttpResponse>,
) -> HttpResponse {
    let at_work = request.conn_data::<Rc<Exchange>>().cloned();
    let at_work = at_work.map(AtWork::begin);
    let id = own_id(request).unwrap_or_else(|| Uuid::new_v4().to_string());
    let span = tracing::info_span!("request", request_id = %id);
    let answer = async {
        let answer = answer.await;
        log_end(request, &answer);
        answer
    };
    let mut answer = answer.instrument(span).await;
    let headers = answer.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(X_REQUEST_ID, value);
    }
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    answer.map_body(|_, body| Kept::with(body, at_work).boxed())
}

/// Logs a failure of the service with its causes. Too much work is counted, not logged.
fn log_end(request: &HttpRequest, answer: &HttpResponse) {
    let (method, path) = (request.method(), pattern(request).unwrap_or("-"));
    let status = answer.status();
    let error = answer.error();
    let error = error.and_then(|error| error.as_error::<ApiError>());
    if status.is_server_error() && !error.is_some_and(ApiError::is_overload) {
        let cause = error.map(|error| Chain(error).to_string());
        tracing::error!(%method, path, status = status.as_u16(), cause, "a request failed");
    } else {
        tracing::debug!(%method, path, status = status.as_u16(), "a request ended");
    }
}

/// The client's id: short, and without what could confuse a log.
fn own_id(request: &HttpRequest) -> Option<String> {
    let id = request.headers().get(X_REQUEST_ID)?.to_str().ok()?;
    let fits = (1..=LENGTH_MOST).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    fits.then(|| id.to_owned())
}
