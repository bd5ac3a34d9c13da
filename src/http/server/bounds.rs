//! The bounds of a request: a time, and a place among the requests of its caller. The table of URLs
//! names the bounds of each URL.

use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::http::Method;
use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use tokio::time::{Instant, timeout_at};

use super::kept::Kept;
use crate::answer::ApiError;
use crate::request::{Authenticated, Bounded, WAIT_MOST};
use engine::{Authority, Engine, Principal, Share};

/// A long answer may take this many times the usual time until it begins.
const LONG_TIMES: u32 = 30;

impl Bounded {
    /// The longest time until the answer begins; `None` where other bounds hold, or no bound is
    /// needed.
    fn time(self, answer_time: Duration) -> Option<Duration> {
        match self {
            Self::Claim | Self::Batch | Self::Open => None,
            Self::Asked => Some(answer_time),
            Self::Waits => Some(answer_time + WAIT_MOST),
            Self::Long => Some(answer_time * LONG_TIMES),
        }
    }

    /// Whether the request can last so long that its key must be checked again.
    fn outlasts_its_key(self) -> bool {
        matches!(self, Self::Waits | Self::Long)
    }

    /// The share from which the request takes its place.
    fn share(self, method: &Method) -> Option<Share> {
        match self {
            Self::Asked if method.is_safe() => Some(Share::Reads),
            Self::Asked => Some(Share::Edits),
            Self::Claim | Self::Batch | Self::Waits | Self::Long | Self::Open => None,
        }
    }
}

/// Answers within the bounds, or with 503. Work that has begun continues to its end: a change may
/// be made although its answer says that it took too long.
pub async fn keep(
    bounded: Bounded,
    request: &HttpRequest,
    answer: impl Future<Output = HttpResponse>,
) -> HttpResponse {
    // 1. Leave a request alone that has no time limit, or no valid key: it is refused soon.
    let engine = request.app_data::<Data<Engine>>();
    let time = engine.and_then(|engine| bounded.time(engine.instance.answer_time));
    let (Some(engine), Some(time), Some(principal)) = (engine, time, caller(request)) else {
        return answer.await;
    };
    // 2. Wait for a place, at most until the deadline.
    let deadline = Instant::now() + time;
    let place = match bounded.share(request.method()) {
        None => None,
        Some(share) => match engine.callers.place(share, &principal.key, deadline).await {
            Some(place) => Some(place),
            None => return HttpResponse::from_error(ApiError::TooManyAtOnce),
        },
    };
    // 3. Answer before the deadline, and before the key loses its rights. The answer keeps its
    // place until it is written.
    let authority = Authority::new(&engine.callers, principal);
    let answer = async {
        if bounded.outlasts_its_key() {
            authority.until_lost(answer).await
        } else {
            Some(answer.await)
        }
    };
    match timeout_at(deadline, answer).await {
        Ok(None) => HttpResponse::from_error(ApiError::KeyLost),
        Ok(Some(answer)) => answer.map_body(|_, body| Kept::with(body, place).boxed()),
        Err(_) => HttpResponse::from_error(ApiError::TooSlow),
    }
}

fn caller(request: &HttpRequest) -> Option<Principal> {
    match request.extensions().get::<Authenticated>() {
        Some(Authenticated(Ok(Some(principal)))) => Some(principal.clone()),
        _ => None,
    }
}
