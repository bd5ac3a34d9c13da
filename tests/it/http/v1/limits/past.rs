//! Adjustments that count at an instant of the past, and reversals after them: no limit ever has more
//! units than it allows.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{SUBJECT, claim, put, usage};
use crate::http::problem;
use crate::support::app::{Answer, App, Stack, on_every_way};

on_every_way!(
    only_what_was_taken_by_then_is_taken_off,
    a_reversal_lowers_only_its_own_grant,
    a_bucket_that_was_full_then_lacks_as_much_as_before,
    the_units_of_a_window_are_interchangeable,
);

fn second(second: i64) -> DateTime<Utc> {
    let begin: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().expect("an instant");
    begin + TimeDelta::seconds(second)
}

/// Takes units off that count at a second.
async fn take_off(app: &App, units: i64, at: i64) -> Answer {
    let body = json!({ "units": -units, "at": second(at), "reason": "a mistake" });
    app.adjust(SUBJECT, body, None).await
}

/// The detail of a refused adjustment.
fn why(answer: &Answer) -> Value {
    problem(answer, 422, "invalid")["errors"][0]["detail"].clone()
}

async fn only_what_was_taken_by_then_is_taken_off(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "10s", "kind": "sliding" }])).await;
    clock.set(second(5));
    claim(&app, 3).await.is(201);
    clock.set(second(6));
    let refused = take_off(&app, 3, 4).await;
    let none = "only 0 are used then per 10s: subtract at most 0";
    assert_eq!(why(&refused), none);
    assert_eq!(claim(&app, 1).await.status, 429);
    let refused = take_off(&app, 4, 6).await;
    assert_eq!(why(&refused), "only 3 are used per 10s: subtract at most 3");
    take_off(&app, 2, 5).await.is(201);
    assert_eq!(usage(&app).await["used"], 1);
    claim(&app, 2).await.is(201);
    // Of the units that were taken by the fifth second, one is left.
    clock.set(second(7));
    let refused = take_off(&app, 2, 5).await;
    assert_eq!(
        why(&refused),
        "only 1 are used then per 10s: subtract at most 1"
    );
    // Units that have returned are taken off of nothing.
    clock.set(second(15));
    take_off(&app, 2, 5).await.is(201);
    assert_eq!(usage(&app).await["used"], 2);
}

async fn a_reversal_lowers_only_its_own_grant(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "10s", "kind": "sliding" }])).await;
    clock.set(second(5));
    let first = claim(&app, 3).await.grant_id();
    take_off(&app, 3, 5).await.is(201);
    clock.set(second(6));
    claim(&app, 3).await.is(201);
    // Nothing is left of the first grant.
    app.reverse(&first, "a test").await.is(201);
    assert_eq!(usage(&app).await["used"], 3);
    assert_eq!(claim(&app, 1).await.status, 429);
}

async fn a_bucket_that_was_full_then_lacks_as_much_as_before(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 10, "per": "10s", "kind": "rate" }])).await;
    clock.set(second(2));
    claim(&app, 1).await.is(201);
    clock.set(second(5));
    claim(&app, 5).await.is(201);
    take_off(&app, 5, 4).await.is(201);
    assert_eq!(usage(&app).await["used"], 5);
    // At the fifth second these units were missing.
    clock.set(second(6));
    take_off(&app, 3, 5).await.is(201);
    assert_eq!(usage(&app).await["used"], 1);
}

async fn the_units_of_a_window_are_interchangeable(stack: Stack) {
    for limit in [
        json!({ "max": 3, "per": "10s", "kind": "from_first_claim" }),
        json!({ "max": 3, "per": "minute" }),
    ] {
        let (app, clock) = App::with_clock(stack).await;
        put(&app, json!([limit])).await;
        clock.set(second(1));
        claim(&app, 1).await.is(201);
        clock.set(second(5));
        claim(&app, 2).await.is(201);
        take_off(&app, 3, 4).await.is(201);
        assert_eq!(usage(&app).await["used"], 0, "{limit}");
        claim(&app, 3).await.is(201);
    }
}
