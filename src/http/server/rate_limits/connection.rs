//! The connections of the rate limit service: HTTP/2 without TLS.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use actix_web::rt;
use futures_util::future::{LocalBoxFuture, ready};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use super::RateLimits;
use super::messages::{RateLimitRequest, RateLimitResponse};
use crate::server::connection::Bounds;
use crate::server::request_id::{RequestId, TRACEPARENT, X_REQUEST_ID};

/// The only method.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The largest question, in bytes: some descriptors with all that a user can write into the fields of a request.
const QUESTION_MAX_BYTES: usize = 256 * 1024;
/// A message without fields.
const NO_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);
/// The most bytes of a question that are on their way.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The time of a connection that ends without a question in progress, for the last answers to leave.
const PARTING_TIME: Duration = Duration::from_secs(1);
/// The most questions in progress of a connection.
const QUESTIONS_MOST: u32 = 1024;

/// Runs the tasks of a connection in its thread.
#[derive(Clone, Copy)]
struct InThisThread;

impl<F: Future<Output = ()> + 'static> Executor<F> for InThisThread {
    fn execute(&self, task: F) {
        rt::spawn(task);
    }
}

/// The method of one question.
struct ShouldRateLimit {
    limits: Rc<RateLimits>,
    id: Rc<RequestId>,
    is_too_large: bool,
}

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = LocalBoxFuture<'static, Result<tonic::Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let limits = self.limits.clone();
        let id = self.id.clone();
        if self.is_too_large {
            let refused = RateLimits::too_large(QUESTION_MAX_BYTES, &id);
            return Box::pin(ready(Ok(tonic::Response::new(refused))));
        }
        Box::pin(async move {
            let answer = limits.answer(request.into_inner(), &id).await;
            answer.map(tonic::Response::new)
        })
    }
}

/// What the questions of a connection tell it.
struct Activity {
    has_begun: Cell<bool>,
    at_work: Cell<u32>,
    /// When the connection began, or the last question began or ended.
    since: Cell<Instant>,
}

impl Activity {
    fn begin() -> Rc<Self> {
        Rc::new(Self {
            has_begun: Cell::new(false),
            at_work: Cell::new(0),
            since: Cell::new(Instant::now()),
        })
    }

    fn is_asked(&self) -> bool {
        self.at_work.get() > 0
    }

    /// When the connection has waited long enough for a question.
    fn waits_until(&self, bounds: Bounds) -> Instant {
        if self.is_asked() {
            Instant::now() + bounds.idle_time
        } else if self.has_begun.get() {
            self.since.get() + bounds.idle_time
        } else {
            self.since.get() + bounds.request_time
        }
    }
}

/// A question in progress, until it is dropped.
struct InProgress(Rc<Activity>);

impl InProgress {
    fn begin(activity: &Rc<Activity>) -> Self {
        activity.has_begun.set(true);
        activity.at_work.set(activity.at_work.get() + 1);
        Self(activity.clone())
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.at_work.set(self.0.at_work.get() - 1);
        self.0.since.set(Instant::now());
    }
}

impl RateLimits {
    /// Serves a connection until the proxy or the server ends it. The first question must arrive within the time of
    /// a request, and each other one within the idle time after those before it.
    pub async fn serve(self: Rc<Self>, io: TcpStream) {
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(%error, "a connection of the rate limit service answers late");
        }
        let ending = self.ending.clone();
        let bounds = self.bounds;
        let activity = Activity::begin();
        let answering = {
            let activity = activity.clone();
            service_fn(move |request| {
                let in_progress = InProgress::begin(&activity);
                let responding = self.clone().respond(request);
                async move {
                    let response = responding.await;
                    drop(in_progress);
                    response
                }
            })
        };
        let connection = http2::Builder::new(InThisThread)
            .max_concurrent_streams(QUESTIONS_MOST)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .serve_connection(TokioIo::new(io), answering);
        let mut connection = pin!(connection);
        let mut check = pin!(sleep(bounds.request_time));
        let mut is_leaving = false;
        loop {
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection of the rate limit service broke");
                    }
                    return;
                }
                () = ending.cancelled(), if !is_leaving => {}
                () = &mut check => {
                    let until = activity.waits_until(bounds);
                    if is_leaving && !activity.is_asked() {
                        return;
                    }
                    if !is_leaving && until > Instant::now() {
                        check.as_mut().reset(until);
                        continue;
                    }
                }
            }
            // The proxy asks nothing more here. What is in progress is answered, and its answer gets some time to
            // leave.
            if !is_leaving {
                is_leaving = true;
                connection.as_mut().graceful_shutdown();
            }
            check.as_mut().reset(Instant::now() + PARTING_TIME);
        }
    }

    async fn respond(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            let here = format!("there is only {SHOULD_RATE_LIMIT}");
            return Ok(Status::unimplemented(here).into_http());
        }
        let (head, body) = request.into_parts();
        let body = Limited::new(body, QUESTION_MAX_BYTES).collect();
        let body = match timeout(self.bounds.request_time, body).await {
            Ok(Ok(body)) => Some(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => None,
            Ok(Err(_)) => return Ok(Status::cancelled("the question broke off").into_http()),
            Err(_) => {
                let late = "the question did not arrive in time";
                return Ok(Status::deadline_exceeded(late).into_http());
            }
        };
        let field = |name: &str| head.headers.get(name).map(HeaderValue::as_bytes);
        let id = RequestId::of(field(X_REQUEST_ID.as_str()), field(TRACEPARENT.as_str()));
        let method = ShouldRateLimit {
            limits: self,
            id: Rc::new(id),
            is_too_large: body.is_none(),
        };
        let body = Full::new(body.unwrap_or(NO_MESSAGE));
        let mut grpc = Grpc::new(ProstCodec::default());
        Ok(grpc.unary(method, Request::from_parts(head, body)).await)
    }
}
