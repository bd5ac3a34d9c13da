//! Wrong clocks: the wall clock of a machine steps, a clock is wrong at the start, an instant is
//! refused by the append, an entry is in the future.

mod bounds;
mod edits;
mod future;
mod starts;
mod steps;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::app::{Answer, Ground};
use crate::support::process::Process;
use crate::support::wall_clock::WallClock;

const DAY: i64 = 24 * 60 * 60;
const YEAR: i64 = 365 * DAY;

/// Starts an instance that reads a wall clock, with the default tolerance.
fn start(ground: &Ground, wall: &WallClock) -> Process {
    start_with(ground, wall, &[])
}

fn start_with(ground: &Ground, wall: &WallClock, settings: &[(&str, &str)]) -> Process {
    let settings = [&wall.settings(), settings].concat();
    Process::start(&ground.database_url, &settings)
}

/// Ends an instance as an operator does.
fn stop(mut process: Process) {
    process.terminate();
    assert!(process.wait().success());
}

/// Puts a policy with some limits, in GMT+8.
async fn put(process: &Process, policy: &str, limits: Value) {
    let body = json!({ "time_zone": "GMT+8", "limits": limits, "reason": "a test" });
    let request = process.request(Method::PUT, &format!("/v1/policies/{policy}"));
    let answer = Answer::of(request.json(&body)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

async fn claim(process: &Process, policy: &str, body: Value) -> Answer {
    let path = format!("/v1/policies/{policy}/claims");
    Answer::of(process.request(Method::POST, &path).json(&body)).await
}

async fn claim_of(process: &Process, subject: &str) -> Answer {
    claim(process, "benefit", json!({ "subject": subject })).await
}

async fn grants(process: &Process, subject: &str) {
    let answer = claim_of(process, subject).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
}

/// Whether an instance is ready, and its troubles in one text.
async fn readiness(process: &Process) -> (bool, String) {
    let answer = Answer::of(process.request(Method::GET, "/readyz")).await;
    let is_ready = answer.status == StatusCode::OK;
    (is_ready, answer.json()["troubles"].to_string())
}
