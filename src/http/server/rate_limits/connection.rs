//! The connections of the rate limit service: HTTP/2 without TLS.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;

use actix_web::rt;
use futures_util::future::LocalBoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, interval_at, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use super::RateLimits;
use super::messages::{RateLimitRequest, RateLimitResponse};
use crate::server::request_id::{RequestId, TRACEPARENT, X_REQUEST_ID};

/// The only method.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The largest question, in bytes.
const QUESTION_MAX_BYTES: usize = 64 * 1024;
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
}

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = LocalBoxFuture<'static, Result<tonic::Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let limits = self.limits.clone();
        let id = self.id.clone();
        Box::pin(async move {
            let answer = limits.answer(request.into_inner(), &id).await;
            answer.map(tonic::Response::new)
        })
    }
}

impl RateLimits {
    /// Serves a connection until the proxy or the server ends it, or nothing is asked for the idle time.
    pub async fn serve(self: Rc<Self>, io: TcpStream) {
        if let Err(error) = io.set_nodelay(true) {
            tracing::debug!(%error, "a connection of the rate limit service answers late");
        }
        let ending = self.ending.clone();
        let idle_time = self.bounds.idle_time;
        let begun = Rc::new(Cell::new(0_u64));
        let answering = {
            let begun = begun.clone();
            service_fn(move |request| {
                begun.set(begun.get() + 1);
                self.clone().respond(request)
            })
        };
        let connection = http2::Builder::new(InThisThread)
            .max_concurrent_streams(QUESTIONS_MOST)
            .initial_stream_window_size(QUESTION_MAX_BYTES as u32)
            .serve_connection(TokioIo::new(io), answering);
        let mut connection = pin!(connection);
        let mut checks = interval_at(Instant::now() + idle_time, idle_time);
        let mut seen = 0;
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
                _ = checks.tick() => {
                    if is_leaving {
                        return;
                    }
                    let before = seen;
                    seen = begun.get();
                    if seen != before {
                        continue;
                    }
                }
            }
            // The proxy asks nothing more here, and what is in progress is answered.
            is_leaving = true;
            connection.as_mut().graceful_shutdown();
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
            Ok(Ok(body)) => Full::new(body.to_bytes()),
            Ok(Err(_)) => {
                let most = format!("the question is larger than {QUESTION_MAX_BYTES} bytes");
                return Ok(Status::resource_exhausted(most).into_http());
            }
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
        };
        let mut grpc = Grpc::new(ProstCodec::default());
        Ok(grpc.unary(method, Request::from_parts(head, body)).await)
    }
}
