//! What a request may take: time, and a place among those of its caller. The table of URLs says
//! which bounds hold where.

use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::http::Method;
use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, ResponseError};
use tokio::time::{Instant, timeout_at};

use super::kept::Kept;
use crate::engine::{Engine, Place, Share};
use crate::http::answer::ApiError;
use crate::http::request::{Authenticated, Bounded, WAIT_MOST};

/// How many times the time of an answer a long one may take until it begins.
const LONG_TIMES: u32 = 30;

impl Bounded {
    /// How long the answer may take to begin; `None` where other bounds hold, or none is needed.
    fn time(self, answer_time: Duration) -> Option<Duration> {
        match self {
            Self::Claim | Self::Batch | Self::Open => None,
            Self::Asked => Some(answer_time),
            Self::Waits => Some(answer_time + WAIT_MOST),
            Self::Long => Some(answer_time * LONG_TIMES),
        }
    }

    /// The share that a place is taken of.
    fn share(self, method: &Method) -> Option<Share> {
        match self {
            Self::Asked if method.is_safe() => Some(Share::Reads),
            Self::Asked => Some(Share::Edits),
            Self::Claim | Self::Batch | Self::Waits | Self::Long | Self::Open => None,
        }
    }
}

/// Answers within the bounds, or with 503. Work that has begun goes on to its end: an edit may
/// be done though its answer says that it took too long.
pub async fn keep(
    bounded: Bounded,
    request: &HttpRequest,
    answer: impl Future<Output = HttpResponse>,
) -> HttpResponse {
    let engine = request.app_data::<Data<Engine>>();
    let time = engine.and_then(|engine| bounded.time(engine.answer_time()));
    // Without a valid key nobody is let in.
    let (Some(engine), Some(time), Some(caller)) = (engine, time, caller(request)) else {
        return answer.await;
    };
    let deadline = Instant::now() + time;
    let place = match bounded.share(request.method()) {
        None => None,
        Some(share) => match engine.place(share, &caller, deadline).await {
            Some(place) => Some(place),
            None => return ApiError::TooManyAtOnce.error_response(),
        },
    };
    match timeout_at(deadline, answer).await {
        // The answer keeps its place until it is written.
        Ok(mut answer) => {
            let place = place.or_else(|| answer.extensions_mut().remove::<Place>());
            answer.map_body(|_, body| Kept::with(body, place).boxed())
        }
        Err(_) => ApiError::TooSlow.error_response(),
    }
}

fn caller(request: &HttpRequest) -> Option<Arc<str>> {
    match request.extensions().get::<Authenticated>() {
        Some(Authenticated(Ok(Some(principal)))) => Some(principal.key.clone()),
        _ => None,
    }
}
