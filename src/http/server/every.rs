//! The steps that every request takes: it gets an id, for its log lines and its answer; its answer
//! gets the common header fields; and its connection knows that it is in progress.

use std::rc::Rc;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{
    CACHE_CONTROL, HeaderName, HeaderValue, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::http::{ConnectionType, Method, Version};
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse};
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Span};

use super::bounds::keep;
use super::credentials;
use super::exchange::{AtWork, Exchange};
use super::in_process::Logged;
use super::kept::Kept;
use super::request_id::{OwnId, RequestId, TRACEPARENT, X_REQUEST_ID};
use crate::answer::ApiError;
use crate::request::{Bounded, Routes, pattern};
use host::chain::Chain;

/// Says that an answer comes from a sandbox.
const PERDIEM_SANDBOX: HeaderName = HeaderName::from_static("perdiem-sandbox");

const NOTHING_HERE: &str = "there is nothing at this path: see /docs";

/// Answers a request. Each step takes the next step as a future, so a step can answer without the
/// next one.
pub async fn answer(routes: Rc<Routes>, request: ServiceRequest) -> Result<ServiceResponse, Error> {
    // 1. Find the URL, and give the request its id.
    let (request, payload) = request.into_parts();
    let route = routes.find(&request);
    let is_sandbox = routes.is_sandbox;
    let field = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    let id = RequestId::of(field(X_REQUEST_ID), field(TRACEPARENT));
    let bounded = route.as_ref().map(|route| route.bounded);
    if bounded == Some(Bounded::Open) {
        let own = OwnId(id.text().to_owned());
        request.extensions_mut().insert(own);
    }
    // 2. The innermost step: the handler, within the bounds of its URL.
    let handled = async {
        let Some(route) = route else {
            return HttpResponse::from_error(ApiError::NotFound(NOTHING_HERE));
        };
        let handled = route.handle(request.clone(), payload);
        keep(route.bounded, &request, handled).await
    };
    // 3. Around it: the check of the key.
    let handled = credentials::oversee(&request, &id, handled);
    // 4. Outermost: the log line and the common header fields.
    let mut answer = oversee(&request, &id, handled.instrument(span(&id, bounded))).await;
    if request.headers().contains_key(UPGRADE) {
        // perdiem takes no offer of another protocol. actix would confirm it, and end the connection.
        answer.head_mut().set_connection_type(ConnectionType::Close);
    }
    if request.version() < Version::HTTP_11 && answer.body().size() == BodySize::Stream {
        // Such a client knows no chunks: the end of the connection is the end of the body.
        let head = answer.head_mut();
        head.no_chunking(true);
        head.set_connection_type(ConnectionType::Close);
    }
    if is_sandbox {
        let says = HeaderValue::from_static("true");
        answer.headers_mut().insert(PERDIEM_SANDBOX, says);
    }
    Ok(ServiceResponse::new(request, answer))
}

/// The log span of a request. A claim has none, unless details are logged: its errors are logged
/// here, with the id.
fn span(id: &RequestId, bounded: Option<Bounded>) -> Span {
    match bounded {
        Some(Bounded::Claim) if !logs_details() => Span::none(),
        _ => id.span().clone(),
    }
}

/// Whether more is logged than usual.
pub fn logs_details() -> bool {
    LevelFilter::current() > LevelFilter::INFO
}

/// Adds the request's id and the common header fields to the answer, and logs how the request
/// ended.
async fn oversee(
    request: &HttpRequest,
    id: &RequestId,
    answer: impl Future<Output = HttpResponse>,
) -> HttpResponse {
    let at_work = request.conn_data::<Rc<Exchange>>().cloned();
    let at_work = at_work.map(|exchange| AtWork::begin(exchange, request));
    let answer = answer.await;
    if let Some(at_work) = &at_work {
        at_work.end_body();
    }
    let pattern = pattern(request).unwrap_or("-");
    log_end(request.method(), pattern, id, &answer);
    complete(answer, id).map_body(|_, body| Kept::with(body, at_work).boxed())
}

/// Adds what every answer has: the id of the request, and the common header fields. The answer of an error
/// gets its problem document.
pub fn complete(mut answer: HttpResponse, id: &RequestId) -> HttpResponse {
    let headers = answer.headers_mut();
    headers.insert(X_REQUEST_ID, id.value());
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    let problem = ApiError::of(&answer).map(|error| error.json(id.text(), id.trace_id()));
    match problem {
        Some(json) => answer.set_body(BoxBody::new(json)),
        None => answer,
    }
}

/// Logs a failure of the service with its causes. Too much work and rules that cannot be read are
/// counted, not logged. Paths are logged as patterns, because they can contain subjects.
pub fn log_end(method: &Method, path: &str, id: &RequestId, answer: &HttpResponse) {
    let status = answer.status();
    let error = ApiError::of(answer);
    let is_told = error.is_some_and(ApiError::is_told_elsewhere)
        || answer.extensions().get::<Logged>().is_some();
    let is_failure = status.is_server_error() && !is_told;
    if !is_failure && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let _in_span = id.span().enter();
    let status = status.as_u16();
    if is_failure {
        let cause = error.map(|error| Chain(error).to_string());
        tracing::error!(%method, path, status, cause, "a request failed");
    } else {
        tracing::debug!(%method, path, status, "a request ended");
    }
}
