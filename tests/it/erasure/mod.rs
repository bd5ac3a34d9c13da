//! Erasures of subjects: the texts are erased at once, and the account's id is replaced when none
//! of its entries counts any more.

mod interrupted;
mod keys;
mod races;
mod traces;
mod unchanged;
mod views;

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{Answer, App, Ground, eventually};
use crate::support::direct::Direct;

/// Asks for an erasure.
async fn erase(app: &App, subject: &str, reason: &str) -> Answer {
    let path = format!("/v1/subjects/{subject}/erasure");
    let body = json!({ "reason": reason });
    Answer::of(app.request(Method::POST, &path).json(&body)).await
}

/// How many accounts are still being erased, at a step or before it.
async fn erasing(ground: &Ground, step: u32) -> usize {
    let sql = "SELECT CAST(step AS text) FROM erasing_accounts";
    let steps = Direct::to(ground).await.texts(sql).await;
    let steps = steps
        .iter()
        .map(|text| text.parse::<u32>().expect("a step"));
    steps.filter(|found| *found <= step).count()
}

/// Waits until every erased account is past a step, while time passes.
async fn all_are_past(ground: &Ground, step: u32, clock: &ManualClock) {
    eventually("the accounts are past the step", || async {
        clock.advance(TimeDelta::seconds(10));
        erasing(ground, step).await == 0
    })
    .await;
}

/// The items of a list in an answer.
fn shown(answer: &Answer) -> Vec<Value> {
    crate::http::items(answer)
}
