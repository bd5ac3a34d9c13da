//! The URLs of an instance that only reads, as of a standby. They differ when the routes are made, so
//! that no request of any other instance pays for it.

use std::rc::Rc;

use actix_web::HttpResponse;
use actix_web::dev::Payload;
use actix_web::http::header::{HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::answer::{ApiError, HttpAnswer};
use crate::request::{
    AboutNoPolicy, Anyone, Bounded, Caller, EngineData, Handling, Routes, handling,
};

/// How old the answer is at most, in seconds; `unknown` if the standby does not say.
const PERDIEM_LAG: HeaderName = HeaderName::from_static("perdiem-lag");

/// Refuses everything that writes.
pub fn only_reads(routes: Routes) -> Routes {
    routes.with_handlings(
        |bounded, method, handler| match (method.is_safe(), bounded) {
            // The console has forms, such as the sign-in, which write nothing by themselves.
            (_, Bounded::Open) => handler,
            (true, _) => reading(handler, true),
            // A backtest has a body, and reads.
            (false, Bounded::Long) => reading(handler, false),
            (false, _) => handling(refuse),
        },
    )
}

async fn refuse(_caller: Caller<Anyone, AboutNoPolicy>) -> HttpAnswer {
    Err(ApiError::ReadOnly)
}

/// Says how old the answer is. A read that the replay of a standby ended is tried once more, if it
/// has no body.
fn reading(handler: Handling, is_repeatable: bool) -> Handling {
    let handler = Rc::new(handler);
    Rc::new(move |request, payload| {
        let handler = handler.clone();
        Box::pin(async move {
            let engine = request.app_data::<EngineData>();
            let began_at = Instant::now();
            let lag = engine.and_then(|engine| engine.instance.lag());
            let mut answer = handler(request.clone(), payload).await;
            if is_repeatable && met_the_replay(&answer) {
                answer = handler(request, Payload::None).await;
            }
            let age = lag.map(|lag| format!("{:.3}", (lag + began_at.elapsed()).as_secs_f64()));
            let age = age.and_then(|age| HeaderValue::from_str(&age).ok());
            let age = age.unwrap_or(HeaderValue::from_static("unknown"));
            answer.headers_mut().insert(PERDIEM_LAG, age);
            answer
        })
    })
}

fn met_the_replay(answer: &HttpResponse) -> bool {
    let error = answer.error();
    let error = error.and_then(|error| error.as_error::<ApiError>());
    error.is_some_and(ApiError::is_replay_conflict)
}
