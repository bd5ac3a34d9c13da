//! The clock of a sandbox, which a developer moves to try out tomorrow.

use actix_web::HttpResponse;
use chrono::{DateTime, TimeDelta, Utc};

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{Admin, Anyone, Body, Caller, EngineData, parse_instant};
use api::sandbox::{SandboxClockAnswer, SandboxClockBody};
use api::strict::WholeNumber;
use host::clock::SandboxClock;

const NO_SANDBOX: &str = "this instance is no sandbox: start one with perdiem serve --sandbox";
const ONE_OF_BOTH: &str = "write either at or advance_seconds";

fn clock_of(engine: &EngineData) -> Result<SandboxClock, ApiError> {
    let clock = engine.instance.sandbox_clock();
    clock.cloned().ok_or(ApiError::NotFound(NO_SANDBOX))
}

fn target(body: SandboxClockBody, now: DateTime<Utc>) -> Result<DateTime<Utc>, ApiError> {
    match (body.at, body.advance_seconds) {
        (Some(at), None) => {
            parse_instant(&at).map_err(|error| ApiError::invalid_body("/at", error))
        }
        (None, Some(WholeNumber(seconds))) => {
            let by = i64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            let at = by.and_then(TimeDelta::try_seconds);
            let at = at.and_then(|by| now.checked_add_signed(by));
            let detail = "write a number of seconds above 0, at most 100 years";
            at.ok_or_else(|| ApiError::invalid_body("/advance_seconds", detail))
        }
        (Some(_), Some(_)) | (None, None) => Err(ApiError::invalid_body("", ONE_OF_BOTH)),
    }
}

describe! {
    /// Show the time of a sandbox.
    ///
    /// Every other instance answers 404.
    GET: "get_sandbox_clock" of "operation", |it| it
        .json::<SandboxClockAnswer>(200, "The time.")
        .problem(404, "`not-found`: this instance is no sandbox.")
        .is_about_nobody()
}
pub async fn get(_caller: Caller<Anyone>, engine: EngineData) -> HttpAnswer {
    let now = clock_of(&engine)?.now();
    Ok(HttpResponse::Ok().json(SandboxClockAnswer { now }))
}

describe! {
    /// Move the clock of a sandbox forward, to try out tomorrow today.
    ///
    /// Windows begin, holds lapse, and keys end at once. The clock never goes back. Every other instance
    /// answers 404.
    POST: "move_sandbox_clock" of "operation", |it| it
        .json::<SandboxClockAnswer>(200, "The new time.")
        .problem(404, "`not-found`: this instance is no sandbox.")
}
pub async fn post(
    _caller: Caller<Admin>,
    body: Body<SandboxClockBody>,
    engine: EngineData,
) -> HttpAnswer {
    let clock = clock_of(&engine)?;
    let at = target(body.0, clock.now())?;
    let now = clock.move_to(at);
    let now = now.map_err(|error| ApiError::invalid_body("", error))?;
    Ok(HttpResponse::Ok().json(SandboxClockAnswer { now }))
}
