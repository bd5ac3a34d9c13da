//! Told instants: a claim at the instant that a denial tells is granted, and a claim a microsecond
//! earlier is denied and tells the same instant. They know windows, open holds, the end of an
//! override, and a scheduled version.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::host::clock::ManualClock;
use serde_json::{Value, json};

use super::{SUBJECT, claim, put, usage};
use crate::http::{problem, replace};
use crate::support::app::{Answer, App, NOON, Stack, instant, on_every_way};
use crate::support::desk::on_every_store;

on_every_way!(
    a_lapse_makes_room_under_every_kind,
    the_first_lapses_that_are_enough_are_told,
    the_end_of_an_override_makes_room,
    the_end_of_a_block_is_told,
    a_scheduled_version_makes_room,
    units_that_never_fit_now_fit_later,
    a_policy_that_begins_is_told,
    a_counted_policy_foretells,
);

on_every_store!(
    nothing_that_is_known_makes_room,
    every_answer_tells_the_same,
    more_holds_are_open_than_a_forecast_reads,
);

const USAGE: &str = "/v1/policies/benefit/subjects/member-42";

async fn hold(app: &App, units: u64, seconds: u64) -> Answer {
    let body = json!({ "subject": SUBJECT, "units": units, "hold_seconds": seconds });
    let answer = app.claim_body(body, None).await;
    answer.is(201);
    answer
}

fn after(seconds: f64) -> DateTime<Utc> {
    instant(NOON) + TimeDelta::microseconds((seconds * 1e6).round() as i64)
}

fn told(answer: &Answer) -> DateTime<Utc> {
    let told = answer.at("/fits_at");
    instant(told.as_str().unwrap_or_else(|| panic!("{answer:?}")))
}

/// Checks that a denial tells this instant, again and again, and that it comes true.
async fn comes_true(app: &App, clock: &ManualClock, units: u64, expected: DateTime<Utc>) {
    for _ in 0..3 {
        let denied = claim(app, units).await;
        problem(&denied, 429, "quota-exceeded");
        assert_eq!(told(&denied), expected, "{denied:?}");
        let micros = (expected - clock.now()).num_microseconds().expect("a span");
        let seconds = (micros as u64).div_ceil(1_000_000).max(1).to_string();
        assert_eq!(denied.header("retry-after"), Some(seconds.as_str()));
        let written = denied.at("/fits_at");
        let detail = denied.at("/detail");
        let detail = detail.as_str().expect("a detail");
        assert!(
            detail.contains(written.as_str().expect("an instant")),
            "{detail}"
        );
    }
    let span = expected - clock.now();
    clock.set(clock.now() + span / 3);
    assert_eq!(told(&claim(app, units).await), expected);
    clock.set(expected - TimeDelta::microseconds(1));
    let denied = claim(app, units).await;
    assert_eq!(told(&denied), expected);
    assert_eq!(denied.header("retry-after"), Some("1"));
    clock.set(expected);
    claim(app, units).await.is(201);
}

/// Case 7.
async fn a_lapse_makes_room_under_every_kind(stack: Stack) {
    for limit in [
        json!({ "max": 1, "per": "day" }),
        json!({ "max": 1, "per": "ever" }),
        json!({ "max": 1, "per": "1h", "kind": "sliding" }),
        json!({ "max": 1, "per": "1h", "kind": "from_first_claim" }),
        json!({ "max": 1, "per": "1h", "kind": "rate" }),
    ] {
        let (app, clock) = App::with_clock(stack).await;
        put(&app, json!([limit])).await;
        let held = hold(&app, 1, 30).await;
        assert_eq!(
            instant_of(&held, "/limits/0/more_at"),
            after(30.0),
            "{limit}"
        );
        comes_true(&app, &clock, 1, after(30.0)).await;
    }
}

fn instant_of(answer: &Answer, place: &str) -> DateTime<Utc> {
    let told = answer.at(place);
    instant(told.as_str().unwrap_or_else(|| panic!("{answer:?}")))
}

async fn the_first_lapses_that_are_enough_are_told(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(
        &app,
        json!([{ "max": 3, "per": "day" }, { "max": 4, "per": "ever" }]),
    )
    .await;
    let first = hold(&app, 1, 300).await.grant_id();
    hold(&app, 1, 200).await;
    hold(&app, 1, 100).await;
    for (units, seconds) in [(1, 100.0), (2, 200.0), (3, 300.0)] {
        let denied = claim(&app, units).await;
        assert_eq!(told(&denied), after(seconds), "{units}");
        assert_eq!(instant_of(&denied, "/limits/0/more_at"), after(100.0));
        assert_eq!(instant_of(&denied, "/limits/1/resets_at"), after(300.0));
    }
    // A confirmed hold does not lapse. A reversal gives back at once.
    app.confirm(&first).await.is(201);
    let midnight = instant("2026-11-22T00:00:00Z");
    assert_eq!(told(&claim(&app, 3).await), midnight);
    let denied = claim(&app, 2).await;
    assert_eq!(told(&denied), after(200.0));
    assert_eq!(denied.at("/limits/1/resets_at"), Value::Null);
    app.reverse(&first, "a test").await.is(201);
    comes_true(&app, &clock, 2, after(100.0)).await;
}

/// Case 8.
async fn the_end_of_an_override_makes_room(stack: Stack) {
    for (max, used, seconds) in [(1, 1, 3.0), (1, 2, 4.0), (2, 2, 4.5)] {
        let (app, clock) = App::with_clock(stack).await;
        put(&app, json!([{ "max": 3, "per": "day" }])).await;
        for _ in 0..used {
            claim(&app, 1).await.is(201);
        }
        let limits = json!([{ "max": max, "per": "day" }]);
        let body = json!({ "limits": limits, "until": after(seconds), "reason": "a test" });
        app.put_override(SUBJECT, body).await.is(201);
        assert_eq!(usage(&app).await["more_at"], json!(after(seconds)));
        comes_true(&app, &clock, 1, after(seconds)).await;
    }
}

/// Case 8: what an override with a `max` of 0 was is a block.
async fn the_end_of_a_block_is_told(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 1, "per": "day" }])).await;
    let block = async |until: Value| {
        let path = format!("PUT /v1/policies/benefit/blocks/{SUBJECT}");
        let body = json!({ "until": until, "reason": "a test" });
        app.ask(&path, body).await
    };
    let is_blocked = async |retry_after: Option<&str>| {
        let answer = claim(&app, 1).await;
        problem(&answer, 403, "subject-blocked");
        assert_eq!(answer.header("retry-after"), retry_after, "{answer:?}");
    };
    block(json!(after(3.0))).await.is(201);
    is_blocked(Some("3")).await;
    clock.set(after(3.0) - TimeDelta::microseconds(1));
    is_blocked(Some("1")).await;
    clock.set(after(3.0));
    hold(&app, 1, 60).await;
    // The window is full longer than the block lasts, and the other way round.
    block(json!(after(10.0))).await.is(200);
    is_blocked(Some("60")).await;
    block(json!(after(90.0))).await.is(200);
    is_blocked(Some("87")).await;
    block(Value::Null).await.is(200);
    is_blocked(None).await;
    app.remove_block(SUBJECT).await.is(200);
    comes_true(&app, &clock, 1, after(63.0)).await;
}

/// Case 8: a raise that waits for the next window. The other limit ends later.
async fn a_scheduled_version_makes_room(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let rule = |max: u64, effective: &str| {
        json!({
            "time_zone": "UTC", "limits": [{ "max": max, "per": "week" }],
            "effective": effective, "reason": "a test",
        })
    };
    app.put_policy("benefit", rule(2, "now")).await.is(201);
    claim(&app, 2).await.is(201);
    let week = instant("2026-11-23T00:00:00Z");
    assert_eq!(told(&claim(&app, 1).await), week);
    app.put_policy("benefit", rule(4, "next_window"))
        .await
        .is(200);
    let midnight = instant("2026-11-22T00:00:00Z");
    let denied = claim(&app, 2).await;
    assert_eq!(instant_of(&denied, "/limits/0/more_at"), midnight);
    assert_eq!(instant_of(&denied, "/limits/0/resets_at"), week);
    comes_true(&app, &clock, 2, midnight).await;
}

async fn units_that_never_fit_now_fit_later(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "day" }])).await;
    problem(&claim(&app, 5).await, 422, "invalid");
    let rule = json!({
        "time_zone": "UTC", "limits": [{ "max": 5, "per": "day" }],
        "effective": "next_window", "reason": "a test",
    });
    app.put_policy("benefit", rule).await.is(200);
    problem(&claim(&app, 6).await, 422, "invalid");
    let denied = claim(&app, 5).await;
    assert_eq!(denied.at("/limits/0/remaining"), 3);
    assert_eq!(denied.at("/violated-policies"), json!(["day"]));
    comes_true(&app, &clock, 5, instant("2026-11-22T00:00:00Z")).await;
}

async fn a_policy_that_begins_is_told(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let rule = |changes: Value| {
        let mut rule = json!({
            "time_zone": "UTC", "limits": [{ "max": 1, "per": "ever" }], "reason": "a test",
        });
        for (name, value) in changes.as_object().expect("an object") {
            rule[name] = value.clone();
        }
        rule
    };
    let begins = json!({ "active_from": after(60.5) });
    app.put_policy("benefit", rule(begins)).await.is(201);
    let inactive = async |retry_after: Option<&str>, words: &str| {
        let answer = claim(&app, 1).await;
        let told = problem(&answer, 409, "policy-inactive");
        assert_eq!(answer.header("retry-after"), retry_after, "{answer:?}");
        let detail = told["detail"].as_str().expect("a detail");
        assert!(detail.ends_with(words), "{detail}");
    };
    inactive(
        Some("61"),
        "is not active before 2026-11-21T03:05:06.178901Z",
    )
    .await;
    clock.set(after(60.5) - TimeDelta::microseconds(1));
    inactive(
        Some("1"),
        "is not active before 2026-11-21T03:05:06.178901Z",
    )
    .await;
    clock.set(after(60.5));
    hold(&app, 1, 3600 * 24).await;
    // A pause has no end that is known.
    app.pause(true).await.is(200);
    inactive(None, "is paused").await;
    app.pause(false).await.is(200);
    let lapses_at = after(60.5) + TimeDelta::days(1);
    clock.set(instant("2026-11-22T00:00:00Z"));
    comes_true(&app, &clock, 1, lapses_at).await;
}

async fn a_counted_policy_foretells(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let rule = json!({
        "time_zone": "UTC", "limits": [{ "max": 2, "per": "day" }], "durability": "counted",
    });
    let answer = app.put_policy("benefit", rule).await;
    // Without Redis no policy is counted.
    if !answer.status.is_success() {
        return;
    }
    hold(&app, 1, 30).await;
    claim(&app, 1).await.is(201);
    comes_true(&app, &clock, 1, after(30.0)).await;
    let limits = json!([{ "max": 1, "per": "day" }]);
    let body = json!({ "limits": limits, "until": after(100.0) });
    app.put_override(SUBJECT, body).await.is(201);
    assert_eq!(told(&claim(&app, 1).await), instant("2026-11-22T00:00:00Z"));
    let limits = json!([{ "max": 3, "per": "day" }]);
    app.put_policy(
        "benefit",
        json!({
            "time_zone": "UTC", "limits": limits, "durability": "counted", "reason": "a test",
        }),
    )
    .await
    .is(200);
    comes_true(&app, &clock, 1, after(100.0)).await;
}

async fn nothing_that_is_known_makes_room(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let no_end = json!({ "limits": [{ "max": 1, "per": "day" }], "reason": "a test" });
    let rule = json!({
        "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }, { "max": 2, "per": "ever" }],
        "active_until": after(90.0),
    });
    app.put_policy("benefit", rule).await.is(201);
    hold(&app, 1, 60).await;
    let is_denied = async |words: &str| {
        let denied = claim(&app, 1).await;
        problem(&denied, 429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), None);
        assert_eq!(denied.at("/fits_at"), Value::Null);
        let detail = denied.at("/detail");
        assert!(
            detail.as_str().expect("a detail").ends_with(words),
            "{detail}"
        );
    };
    assert_eq!(told(&claim(&app, 1).await), after(60.0));
    clock.set(after(60.0));
    // This hold lapses when the policy has ended.
    hold(&app, 1, 60).await;
    is_denied("; nothing that is known now makes room for it").await;
    let never = json!([{ "max": 1, "per": "ever" }]);
    put(&app, never).await;
    app.confirm(&hold_of(&app).await).await.is(201);
    is_denied("; used units of this limit do not return").await;
    let rule = json!({
        "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }], "active_until": after(900.0),
    });
    replace(&app, rule).await;
    app.put_override(SUBJECT, no_end).await.is(201);
    is_denied("; nothing that is known now makes room for it").await;
}

async fn hold_of(app: &App) -> String {
    let held = app.get("/v1/grants?state=held").await;
    let id = held.at("/items/0/id");
    id.as_str().expect("an id").to_owned()
}

/// Denials, dry runs, batches, usage, explanations and the answers of holds tell one story.
async fn every_answer_tells_the_same(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(
        &app,
        json!([{ "max": 2, "per": "day" }, { "max": 2, "per": "1h", "kind": "rate" }]),
    )
    .await;
    let dry = json!({ "subject": SUBJECT, "hold_seconds": 30, "dry_run": true });
    let rehearsed = app.claim_body(dry.clone(), None).await.is(200);
    let held = hold(&app, 1, 30).await;
    assert_eq!(rehearsed["limits"], held.json()["limits"]);
    assert_eq!(
        held.header("ratelimit"),
        Some("\"day\";r=1;t=30, \"1h\";r=1;t=30")
    );
    hold(&app, 1, 60).await;
    let denied = claim(&app, 2).await;
    assert_eq!(told(&denied), after(60.0));
    assert_eq!(
        denied.header("ratelimit"),
        Some("\"day\";r=0;t=30, \"1h\";r=0;t=30")
    );
    let limits = denied.at("/limits");
    assert_eq!(limits[0]["more_at"], json!(after(30.0)));
    assert_eq!(limits[0]["resets_at"], json!(after(60.0)));
    assert_eq!(app.get(USAGE).await.at("/limits"), limits);

    let dry = json!({ "subject": SUBJECT, "units": 2, "dry_run": true });
    let dry = app.claim_body(dry, None).await.is(200);
    assert_eq!(dry["limits"], limits);
    assert_eq!(dry["fits_at"], json!(after(60.0)));
    let mut alone = denied.json();
    alone
        .as_object_mut()
        .expect("a denial")
        .remove("request_id");
    for atomic in [false, true] {
        let claim = json!({ "policy": "benefit", "subject": SUBJECT, "units": 2 });
        let batch = json!({ "claims": [claim], "atomic": atomic });
        let batch = app.ask("POST /v1/claims", batch).await;
        assert_eq!(batch.at("/items/0"), alone, "{atomic}");
    }
    let at = NOON;
    let explained = app.get(&format!("{USAGE}?at={at}&units=2")).await.is(200);
    assert_eq!(explained["fits_at"], json!(after(60.0)));
    for (limit, explained) in limits
        .as_array()
        .expect("limits")
        .iter()
        .zip(explained["limits"].as_array().expect("limits"))
    {
        for name in ["more_at", "resets_at", "used"] {
            assert_eq!(limit[name], explained[name], "{name}");
        }
    }
    // The same, later: the claim would have been granted at the told instant.
    clock.set(after(61.0));
    for (at, outcome) in [(60.0 - 1e-6, "denied"), (60.0, "granted")] {
        let at = after(at).to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let path = format!("{USAGE}?at={at}&units=2");
        let explained = app.get(&path).await.is(200);
        assert_eq!(explained["outcome"], outcome);
        let fits_at = match outcome {
            "denied" => json!(after(60.0)),
            _ => Value::Null,
        };
        assert_eq!(explained["fits_at"], fits_at);
    }
}

/// The told instant is then the end of the last hold: never too early, and not "never".
async fn more_holds_are_open_than_a_forecast_reads(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 300, "per": "ever" }])).await;
    let claim_of = |index: u64| json!({ "policy": "benefit", "subject": SUBJECT, "hold_seconds": 1000 + index });
    let claims: Vec<Value> = (0..300).map(claim_of).collect();
    let batch = json!({ "claims": claims, "atomic": true });
    app.ask("POST /v1/claims", batch).await.is(200);
    for (units, seconds) in [(1, 1000.0), (256, 1255.0), (257, 1299.0), (300, 1299.0)] {
        assert_eq!(told(&claim(&app, units).await), after(seconds), "{units}");
    }
    clock.set(after(1200.0));
    comes_true(&app, &clock, 290, after(1289.0)).await;
}
