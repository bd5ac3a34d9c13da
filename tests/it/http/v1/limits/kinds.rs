//! The claims that each kind of limit grants, and the members of the answers.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{SUBJECT, claim, granted_at_once, put, usage};
use crate::http::problem;
use crate::support::app::{Answer, App, Stack, on_every_way};

on_every_way!(
    a_sliding_limit_has_no_burst_at_a_boundary,
    a_calendar_limit_has_one,
    parts_of_a_day_and_weeks_begin_by_the_clock,
    each_unit_of_a_sliding_limit_returns_by_itself,
    a_step_rounds_up,
    a_window_opens_with_the_first_claim,
    nothing_returns_for_ever,
    a_rate_returns_units_evenly,
    what_a_reversal_gives_back,
    a_hold_of_a_rate_lapses,
    the_readmes_one_time_passwords,
);

const MINUTE: TimeDelta = TimeDelta::minutes(1);

fn has_fields(answer: &Answer, policy: &str, limit: &str) {
    assert_eq!(answer.header("ratelimit-policy"), Some(policy));
    assert_eq!(answer.header("ratelimit"), Some(limit));
}

/// Claims 100 units at the end of a minute and 100 units at the beginning of the next minute.
/// Returns the number of grants.
async fn burst_at_a_boundary(stack: Stack, limit: Value) -> u64 {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([limit])).await;
    clock.set("2026-11-21T03:04:59.9Z".parse().expect("an instant"));
    let mut granted = 0;
    for _ in 0..2 {
        for _ in 0..100 {
            granted += u64::from(claim(&app, 1).await.status == 201);
        }
        clock.advance(TimeDelta::milliseconds(200));
    }
    granted
}

async fn a_sliding_limit_has_no_burst_at_a_boundary(stack: Stack) {
    let limit = json!({ "max": 100, "per": "60s", "kind": "sliding" });
    assert_eq!(burst_at_a_boundary(stack, limit).await, 100);
}

async fn a_calendar_limit_has_one(stack: Stack) {
    let limit = json!({ "max": 100, "per": "minute" });
    assert_eq!(burst_at_a_boundary(stack, limit).await, 200);
}

/// The clock of +05:30 shows 08:34 on Saturday 21 November. A reset of one limit, an override and a change of
/// the first day know them by their names.
async fn parts_of_a_day_and_weeks_begin_by_the_clock(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let weeks = |from: &str| {
        json!({
            "time_zone": "+05:30",
            "reason": "a test",
            "limits": [
                { "max": 2, "per": "6h", "kind": "calendar" },
                { "max": 5, "per": "2 weeks", "from": from },
            ],
        })
    };
    app.put_policy("benefit", weeks("2026-11-23")).await;
    let told = claim(&app, 2).await.is(201)["limits"].clone();
    assert_eq!(
        told[0],
        json!({
            "per": "6h", "kind": "calendar", "max": 2, "used": 2, "remaining": 0,
            "window_start": "2026-11-21T00:30:00Z", "more_at": "2026-11-21T06:30:00Z",
            "resets_at": "2026-11-21T06:30:00Z",
        })
    );
    assert_eq!(told[1]["window_start"], "2026-11-08T18:30:00Z");
    assert_eq!(told[1]["resets_at"], "2026-11-22T18:30:00Z");
    let denied = claim(&app, 1).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.json()["fits_at"], "2026-11-21T06:30:00Z");
    has_fields(
        &denied,
        "\"6h\";q=2;w=21600, \"2 weeks\";q=5;w=1209600",
        "\"6h\";r=0;t=12355, \"2 weeks\";r=3;t=141955",
    );
    clock.set("2026-11-21T06:30:00Z".parse().expect("an instant"));
    claim(&app, 2).await.is(201);
    clock.advance(TimeDelta::hours(6));
    let denied = claim(&app, 2).await;
    assert_eq!(
        denied.json()["fits_at"],
        "2026-11-22T18:30:00Z",
        "{denied:?}"
    );
    // Another first day: the window has begun on 16 November, and both grants are in it.
    app.put_policy("benefit", weeks("2026-11-30")).await.is(200);
    assert_eq!(
        claim(&app, 2).await.json()["fits_at"],
        "2026-11-29T18:30:00Z"
    );
    let limits = json!({ "limits": [{ "max": 6, "per": "2 weeks" }], "reason": "a test" });
    let path = format!("PUT /v1/policies/benefit/overrides/{SUBJECT}");
    app.ask(&path, limits).await.is(201);
    claim(&app, 2).await.is(201);
    clock.advance(TimeDelta::hours(6));
    assert_eq!(claim(&app, 1).await.status, 429);
    let reset = json!({ "per": "2 weeks", "reason": "a test" });
    let path = format!("POST /v1/policies/benefit/subjects/{SUBJECT}/resets");
    app.ask(&path, reset).await.is(201);
    claim(&app, 2).await.is(201);
}

async fn each_unit_of_a_sliding_limit_returns_by_itself(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "60s", "kind": "sliding" }])).await;
    let unused = json!({
        "per": "1m", "kind": "sliding", "max": 3, "used": 0, "remaining": 3,
        "window_start": null, "more_at": null, "resets_at": null,
    });
    assert_eq!(usage(&app).await, unused);
    let first = claim(&app, 1).await;
    first.is(201);
    has_fields(&first, "\"1m\";q=3;w=60", "\"1m\";r=2;t=60");
    clock.advance(TimeDelta::seconds(20));
    let second = claim(&app, 2).await;
    let told = &second.is(201)["limits"][0];
    assert_eq!(told["more_at"], "2026-11-21T03:05:05.678901Z");
    assert_eq!(told["resets_at"], "2026-11-21T03:05:25.678901Z");
    for (units, retry_after) in [(1, "40"), (2, "60"), (3, "60")] {
        let denied = claim(&app, units).await;
        problem(&denied, 429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), Some(retry_after));
        has_fields(&denied, "\"1m\";q=3;w=60", "\"1m\";r=0;t=40");
    }
    let detail = claim(&app, 1).await.json()["detail"].clone();
    assert_eq!(
        detail,
        "member-42 has used 3 of 3 per 1m under benefit; there is room again at \
         2026-11-21T03:05:05.678901Z"
    );
    clock.advance(TimeDelta::seconds(40) - TimeDelta::microseconds(1));
    assert_eq!(claim(&app, 1).await.status, 429);
    clock.advance(TimeDelta::microseconds(1));
    assert_eq!(claim(&app, 2).await.status, 429);
    claim(&app, 1).await.is(201);
    problem(&claim(&app, 4).await, 422, "invalid");
}

async fn a_step_rounds_up(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limit = json!({ "max": 500, "per": "24h", "kind": "sliding", "step": "1h" });
    put(&app, json!([limit])).await;
    let told = claim(&app, 500).await.is(201);
    // The units were taken at 03:04 and count from 04:00 on.
    assert_eq!(told["limits"][0]["more_at"], "2026-11-22T04:00:00Z");
    clock.set("2026-11-22T03:59:59.999999Z".parse().expect("an instant"));
    assert_eq!(claim(&app, 1).await.status, 429);
    clock.advance(TimeDelta::microseconds(1));
    claim(&app, 500).await.is(201);
}

async fn a_window_opens_with_the_first_claim(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(
        &app,
        json!([{ "max": 2, "per": "60s", "kind": "from_first_claim" }]),
    )
    .await;
    assert_eq!(usage(&app).await["window_start"], Value::Null);
    let first = claim(&app, 1).await.is(201);
    let opened = "2026-11-21T03:04:05.678901Z";
    assert_eq!(first["limits"][0]["window_start"], opened);
    assert_eq!(
        first["limits"][0]["resets_at"],
        "2026-11-21T03:05:05.678901Z"
    );
    // Later claims do not move the window.
    clock.advance(TimeDelta::seconds(59));
    let last = claim(&app, 1).await;
    assert_eq!(last.is(201)["limits"][0]["window_start"], opened);
    has_fields(&last, "\"1m\";q=2;w=60", "\"1m\";r=0;t=1");
    assert_eq!(claim(&app, 1).await.header("retry-after"), Some("1"));
    clock.advance(TimeDelta::seconds(1));
    assert_eq!(usage(&app).await["used"], 0);
    // A denied claim opens no window.
    problem(&claim(&app, 3).await, 422, "invalid");
    clock.advance(MINUTE);
    assert_eq!(granted_at_once(&app).await, 2);
}

async fn nothing_returns_for_ever(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 1, "per": "ever" }])).await;
    let granted = claim(&app, 1).await;
    granted.is(201);
    has_fields(&granted, "\"ever\";q=1", "\"ever\";r=0");
    clock.advance(TimeDelta::days(4000));
    let denied = claim(&app, 1).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.header("retry-after"), None);
    let told = denied.json();
    assert_eq!(
        told["detail"],
        "member-42 has used 1 of 1 for ever under benefit; used units of this limit do not return"
    );
    let expected = json!({
        "per": "ever", "kind": "calendar", "max": 1, "used": 1, "remaining": 0,
        "window_start": null, "more_at": null, "resets_at": null,
    });
    assert_eq!(told["limits"][0], expected);
}

async fn a_rate_returns_units_evenly(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(
        &app,
        json!([{ "max": 10, "per": "1s", "kind": "rate", "burst": 20 }]),
    )
    .await;
    assert_eq!(granted_at_once(&app).await, 20);
    let denied = claim(&app, 1).await;
    has_fields(&denied, "\"1s\";q=20;w=2", "\"1s\";r=0;t=1");
    let told = usage(&app).await;
    assert_eq!([&told["used"], &told["remaining"]], [20, 0]);
    assert_eq!(told["more_at"], "2026-11-21T03:04:05.778901Z");
    assert_eq!(told["resets_at"], "2026-11-21T03:04:07.678901Z");
    clock.advance(TimeDelta::microseconds(99_999));
    assert_eq!(claim(&app, 1).await.status, 429);
    clock.advance(TimeDelta::microseconds(1));
    assert_eq!(granted_at_once(&app).await, 1);
    clock.advance(TimeDelta::milliseconds(500));
    assert_eq!(claim(&app, 6).await.header("retry-after"), Some("1"));
    assert_eq!(granted_at_once(&app).await, 5);
    problem(&claim(&app, 21).await, 422, "invalid");
    clock.advance(MINUTE);
    claim(&app, 20).await.is(201);
}

async fn what_a_reversal_gives_back(stack: Stack) {
    for (limit, used) in [
        (json!({ "max": 9, "per": "60s", "kind": "sliding" }), [3, 1]),
        (
            json!({ "max": 9, "per": "60s", "kind": "from_first_claim" }),
            [3, 1],
        ),
        (json!({ "max": 9, "per": "ever" }), [3, 1]),
        // A unit returns every 20/3 s. After 15 s two units have returned, and the reversal gives
        // the third unit back.
        (json!({ "max": 9, "per": "60s", "kind": "rate" }), [1, 0]),
    ] {
        let (app, clock) = App::with_clock(stack).await;
        put(&app, json!([limit])).await;
        let [first, second] = [claim(&app, 1).await, claim(&app, 2).await];
        clock.advance(TimeDelta::seconds(15));
        assert_eq!(usage(&app).await["used"], used[0], "{limit}");
        app.reverse(&second.grant_id(), "a test").await.is(201);
        assert_eq!(usage(&app).await["used"], used[1], "{limit}");
        app.reverse(&first.grant_id(), "a test").await.is(201);
        assert_eq!(usage(&app).await["used"], 0, "{limit}");
    }
}

async fn a_hold_of_a_rate_lapses(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(
        &app,
        json!([{ "max": 1, "per": "1h", "kind": "rate", "burst": 5 }]),
    )
    .await;
    let hold = json!({ "subject": SUBJECT, "units": 3, "hold_seconds": 60 });
    app.claim_body(hold, None).await.is(201);
    claim(&app, 2).await.is(201);
    assert_eq!(claim(&app, 1).await.status, 429);
    clock.advance(TimeDelta::seconds(61));
    // None of the five units has returned with time. The three units of the lapsed hold have
    // returned.
    assert_eq!(usage(&app).await["used"], 2);
    assert_eq!(granted_at_once(&app).await, 3);
}

async fn the_readmes_one_time_passwords(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([
        { "max": 1, "per": "60s", "kind": "sliding" },
        { "max": 5, "per": "24h", "kind": "sliding" },
        { "max": 20, "per": "month" },
    ]);
    put(&app, limits).await;
    for sent in 1..=5 {
        claim(&app, 1).await.is(201);
        let denied = claim(&app, 1).await;
        let both = json!(["1m", "24h"]);
        let lacking = if sent < 5 { json!(["1m"]) } else { both };
        assert_eq!(denied.json()["violated-policies"], lacking);
        clock.advance(MINUTE);
    }
    // There is room again a day after the first claim.
    let denied = claim(&app, 1).await;
    assert_eq!(denied.header("retry-after"), Some("86100"));
    clock.advance(TimeDelta::seconds(86_100));
    claim(&app, 1).await.is(201);
}
