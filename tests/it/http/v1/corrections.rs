//! What becomes of a grant afterwards: reversals, holds, confirmations; and adjustments.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{problem, replace};
use crate::support::app::{Answer, App, NOON, Stack, instant, on_every_stack};
use crate::support::desk::on_every_store;

on_every_stack!(
    a_reversal_gives_back_once,
    a_hold_lapses_by_itself,
    units_are_entered_by_hand,
);

on_every_store!(
    a_reversal_reaches_windows_that_have_ended,
    a_confirmed_hold_stays,
    grants_are_listed_by_state,
    more_holds_lapse_than_a_draft_takes,
);

async fn post(app: &App, path: &str, body: &Value) -> Answer {
    Answer::of(app.request(Method::POST, path).json(body)).await
}

async fn reverse(app: &App, grant: &Value, reason: &str) -> Answer {
    let path = format!("/v1/grants/{}/reversal", grant.as_str().expect("an id"));
    post(app, &path, &json!({ "reason": reason })).await
}

async fn confirm(app: &App, grant: &Value) -> Answer {
    let path = format!("/v1/grants/{}/confirmation", grant.as_str().expect("an id"));
    Answer::of(app.request(Method::POST, &path)).await
}

async fn granted(app: &App, body: Value) -> Value {
    let answer = app.claim_body(body, None).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["grant"]["id"].clone()
}

async fn hold(app: &App, seconds: u64) -> Value {
    granted(
        app,
        json!({ "subject": "member-42", "hold_seconds": seconds }),
    )
    .await
}

/// The units that are used in each limit's window.
async fn used(app: &App) -> Vec<u64> {
    crate::http::used(app, "benefit", "member-42").await
}

async fn state(app: &App, grant: &Value) -> Value {
    let answer = app
        .get(&format!("/v1/grants/{}", grant.as_str().expect("an id")))
        .await;
    answer.json()["state"].clone()
}

/// The kinds of the account's entries, the newest first, with their units.
async fn entries(app: &App) -> Vec<(String, i64)> {
    let path = "/v1/policies/benefit/subjects/member-42/entries";
    let answer = app.get(path).await;
    let items = answer.json()["items"].as_array().expect("items").clone();
    items
        .iter()
        .map(|entry| {
            let kind = entry["kind"].as_str().expect("a kind");
            (kind.to_owned(), entry["units"].as_i64().expect("units"))
        })
        .collect()
}

async fn a_reversal_gives_back_once(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "subject": "member-42", "units": 3 });
    let grant = granted(&app, body.clone()).await;
    assert_eq!(app.claim("member-42", None).await.status, 429);
    let first = reverse(&app, &grant, "SMS gateway refused").await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.json()["grant"]["state"], "reversed");
    let reversal = &first.json()["grant"]["reversal"];
    assert_eq!(reversal["reason"], "SMS gateway refused");
    assert_eq!(reversal["by"], "PERDIEM_ADMIN_KEY");
    assert_eq!(first.json()["limits"][0]["remaining"], 3);
    let again = reverse(&app, &grant, "another reason").await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json(), first.json());
    assert_eq!(used(&app).await, [0]);
    // What was given back can be claimed again, at once.
    granted(&app, body).await;
    assert_eq!(state(&app, &grant).await, "reversed");
    let expected = [("grant", 3), ("reversal", -3), ("grant", 3)];
    assert_eq!(
        entries(&app).await,
        expected.map(|(kind, units)| (kind.to_owned(), units))
    );
    problem(&confirm(&app, &grant).await, 409, "not-a-hold");
}

async fn a_reversal_reaches_windows_that_have_ended(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }]);
    replace(&app, json!({ "limits": limits })).await;
    let grant = granted(&app, json!({ "subject": "member-42", "units": 2 })).await;
    clock.advance(TimeDelta::days(1));
    app.claim("member-42", None).await;
    assert_eq!(used(&app).await, [1, 3]);
    let answer = reverse(&app, &grant, "late").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(used(&app).await, [1, 1]);
    // Yesterday's day stands in no line any more: another zone brings its hours back.
    replace(
        &app,
        json!({ "time_zone": "America/New_York", "limits": limits }),
    )
    .await;
    let answer = app.claim("member-42", None).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(used(&app).await, [2, 2]);
}

async fn a_hold_lapses_by_itself(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2, "GMT+8").await;
    let first = hold(&app, 60).await;
    clock.advance(TimeDelta::seconds(30));
    let second = hold(&app, 60).await;
    assert_eq!(state(&app, &first).await, "held");
    for _ in 0..3 {
        assert_eq!(app.claim("member-42", None).await.status, 429);
    }
    // At its very end, and not before.
    clock.advance(TimeDelta::seconds(30) - TimeDelta::microseconds(1));
    assert_eq!(state(&app, &first).await, "held");
    assert_eq!(app.claim("member-42", None).await.status, 429);
    clock.advance(TimeDelta::microseconds(1));
    assert_eq!(state(&app, &first).await, "lapsed");
    assert_eq!(used(&app).await, [1]);
    let dry = json!({ "subject": "member-42", "dry_run": true });
    assert_eq!(app.claim_body(dry, None).await.json()["outcome"], "granted");
    problem(&confirm(&app, &first).await, 410, "hold-lapsed");
    problem(&reverse(&app, &first, "too late").await, 409, "hold-lapsed");
    assert_eq!(app.claim("member-42", None).await.status, 201);
    assert_eq!(app.claim("member-42", None).await.status, 429);
    assert_eq!(state(&app, &second).await, "held");
    clock.advance(TimeDelta::seconds(30));
    // A denial is decided after the lapses too.
    let body = json!({ "subject": "member-42", "units": 2 });
    assert_eq!(app.claim_body(body, None).await.status, 429);
    assert_eq!(used(&app).await, [1]);
    let kinds = entries(&app).await.into_iter().map(|(kind, _)| kind);
    let kinds: Vec<String> = kinds.collect();
    assert_eq!(kinds, ["lapse", "grant", "lapse", "grant", "grant"]);
    assert_eq!(app.claim("member-42", None).await.status, 201);
}

async fn a_confirmed_hold_stays(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2, "GMT+8").await;
    let body = json!({ "subject": "member-42", "hold_seconds": 60 });
    let answer = app.claim_body(body.clone(), Some("order-17")).await;
    let grant = answer.json()["grant"]["id"].clone();
    assert_eq!(answer.json()["grant"]["state"], "held");
    assert_eq!(
        answer.json()["grant"]["held_until"],
        "2026-11-21T03:05:05.678901Z"
    );
    let first = confirm(&app, &grant).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.json()["grant"]["state"], "granted");
    assert_eq!(
        first.json()["grant"]["confirmation"]["by"],
        "PERDIEM_ADMIN_KEY"
    );
    clock.advance(TimeDelta::hours(1));
    let again = confirm(&app, &grant).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, first.json()));
    assert_eq!(used(&app).await, [1]);
    // Its retry shows its state now; another hold is another claim.
    let retry = app.claim_body(body, Some("order-17")).await;
    assert_eq!(retry.status, 200);
    assert_eq!(retry.json()["grant"]["state"], "granted");
    for hold in [json!(61), json!(null)] {
        let body = json!({ "subject": "member-42", "hold_seconds": hold });
        let answer = app.claim_body(body, Some("order-17")).await;
        problem(&answer, 422, "idempotency-key-reused");
    }
    assert_eq!(
        reverse(&app, &grant, "changed their mind").await.status,
        201
    );
    assert_eq!(used(&app).await, [0]);
    problem(&confirm(&app, &grant).await, 409, "grant-reversed");
    // A hold that was reversed in time does not lapse as well.
    let held = hold(&app, 60).await;
    assert_eq!(reverse(&app, &held, "refused").await.status, 201);
    clock.advance(TimeDelta::hours(1));
    assert_eq!(used(&app).await, [0]);
    assert_eq!(app.claim("member-42", None).await.status, 201);
    assert_eq!(state(&app, &held).await, "reversed");
}

async fn units_are_entered_by_hand(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }]);
    replace(&app, json!({ "limits": limits })).await;
    let path = "/v1/policies/benefit/subjects/member-42/adjustments";
    let opening = json!({
        "units": 17, "at": "2026-11-03T00:00:00Z", "reason": "opening balance",
    });
    let send = async |body: &Value, key: &str| {
        let request = app.request(Method::POST, path).json(body);
        Answer::of(request.header("Idempotency-Key", key)).await
    };
    let first = send(&opening, "opening-1").await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.json()["units"], 17);
    assert_eq!(first.json()["counted_at"], "2026-11-03T00:00:00Z");
    assert_eq!(first.json()["by"], "PERDIEM_ADMIN_KEY");
    let again = send(&opening, "opening-1").await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json(), first.json());
    assert_eq!(used(&app).await, [0, 17]);
    let other = json!({ "units": 18, "at": "2026-11-03T00:00:00Z", "reason": "opening balance" });
    let refused = send(&other, "opening-1").await;
    problem(&refused, 422, "idempotency-key-reused");
    // Today's count in both windows, and may go over.
    let today = json!({ "units": 4, "reason": "by phone" });
    assert_eq!(post(&app, path, &today).await.status, 201);
    assert_eq!(used(&app).await, [4, 21]);
    assert_eq!(app.claim("member-42", None).await.status, 429);
    let down = |units: i64| json!({ "units": units, "reason": "counted twice" });
    let answer = post(&app, path, &down(-5)).await;
    problem(&answer, 422, "invalid");
    assert!(answer.text.contains("#/units"), "{answer:?}");
    assert_eq!(post(&app, path, &down(-4)).await.status, 201);
    assert_eq!(used(&app).await, [0, 17]);
    assert_eq!(app.claim("member-42", None).await.status, 201);
    let tomorrow = instant(NOON) + TimeDelta::days(1);
    for wrong in [
        json!({ "units": 0, "reason": "x" }),
        json!({ "units": 1, "reason": " " }),
        json!({ "units": 1, "reason": "x", "at": tomorrow }),
        json!({ "units": 1, "reason": "x", "at": "yesterday" }),
        json!({ "units": 9_007_199_254_740_992_i64, "reason": "x" }),
        json!({ "units": 9_007_199_254_740_991_i64, "reason": "x" }),
    ] {
        problem(&post(&app, path, &wrong).await, 422, "invalid");
    }
    let refused = post(&app, path, &json!({ "units": 1 })).await;
    problem(&refused, 400, "malformed");
    let expected = [
        ("grant", 1),
        ("adjustment", -4),
        ("adjustment", 4),
        ("adjustment", 17),
    ];
    assert_eq!(
        entries(&app).await,
        expected.map(|(kind, units)| (kind.to_owned(), units))
    );
}

async fn grants_are_listed_by_state(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(100, "GMT+8").await;
    let mut of_state: Vec<(&str, Vec<Value>)> = Vec::new();
    let plain = granted(&app, json!({ "subject": "member-42" })).await;
    let reversed = granted(&app, json!({ "subject": "member-42" })).await;
    reverse(&app, &reversed, "x").await;
    let (lapsed, unseen) = (hold(&app, 1).await, hold(&app, 2).await);
    let confirmed = hold(&app, 1).await;
    confirm(&app, &confirmed).await;
    let held = hold(&app, 100).await;
    let undone = hold(&app, 100).await;
    reverse(&app, &undone, "x").await;
    clock.advance(TimeDelta::seconds(1));
    // An entry tells of the first lapse, and nothing of the second.
    let last = granted(&app, json!({ "subject": "member-42" })).await;
    clock.advance(TimeDelta::seconds(1));
    of_state.push(("granted", vec![last, confirmed, plain]));
    of_state.push(("reversed", vec![undone, reversed]));
    of_state.push(("lapsed", vec![unseen, lapsed]));
    of_state.push(("held", vec![held]));
    for scope in [
        "",
        "&policy=benefit",
        "&subject=member-42",
        "&from=2026-11-21T00:00:00Z",
    ] {
        for (state, expected) in &of_state {
            let answer = app.get(&format!("/v1/grants?state={state}{scope}")).await;
            let items = answer.json()["items"].as_array().expect("items").clone();
            let ids: Vec<Value> = items.iter().map(|grant| grant["id"].clone()).collect();
            assert_eq!(&ids, expected, "{state}{scope}");
            assert!(
                items.iter().all(|grant| grant["state"] == *state),
                "{answer:?}"
            );
        }
    }
    let csv = app.get("/v1/grants/export?format=csv&state=reversed").await;
    assert_eq!(csv.text.lines().count(), 3, "{csv:?}");
}

async fn more_holds_lapse_than_a_draft_takes(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2500, "GMT+8").await;
    let hold = json!({ "policy": "benefit", "subject": "member-42", "hold_seconds": 60 });
    for count in [1000, 1000, 500] {
        let claims = vec![hold.clone(); count];
        let body = json!({ "claims": claims, "atomic": true });
        let answer = post(&app, "/v1/claims", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(used(&app).await, [2500]);
    assert_eq!(app.claim("member-42", None).await.status, 429);
    clock.advance(TimeDelta::seconds(60));
    assert_eq!(used(&app).await, [0]);
    // All of them before the claim, and before an atomic batch.
    let body = json!({ "subject": "member-42", "units": 2500 });
    let dry = json!({ "subject": "member-42", "units": 2500, "dry_run": true });
    assert_eq!(app.claim_body(dry, None).await.json()["outcome"], "granted");
    assert_eq!(app.claim_body(body, None).await.status, 201);
    assert_eq!(used(&app).await, [2500]);
    let state = "/v1/grants?state=lapsed&subject=member-42&limit=1000";
    assert_eq!(
        app.get(state).await.json()["items"]
            .as_array()
            .map(Vec::len),
        Some(1000)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_told_and_changes_nothing() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let grant = granted(&app, json!({ "subject": "member-42" })).await;
    let never = json!("0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42");
    problem(&reverse(&app, &never, "x").await, 404, "not-found");
    problem(&confirm(&app, &never).await, 404, "not-found");
    problem(&reverse(&app, &json!("17"), "x").await, 422, "invalid");
    problem(&reverse(&app, &grant, "").await, 422, "invalid");
    let refused = reverse(&app, &grant, &"x".repeat(1001)).await;
    problem(&refused, 422, "invalid");
    let path = format!("/v1/grants/{}/reversal", grant.as_str().expect("an id"));
    for wrong in [json!({}), json!({ "reason": "x", "units": 1 }), json!([])] {
        problem(&post(&app, &path, &wrong).await, 400, "malformed");
    }
    let path = format!("/v1/grants/{}/confirmation", grant.as_str().expect("an id"));
    let refused = post(&app, &path, &json!({ "reason": "x" })).await;
    problem(&refused, 400, "malformed");
    for seconds in [json!(0), json!(-1), json!(2_592_001), json!(1e30)] {
        let body = json!({ "subject": "member-42", "hold_seconds": seconds });
        problem(&app.claim_body(body, None).await, 422, "invalid");
    }
    // An adjustment is no grant.
    let path = "/v1/policies/benefit/subjects/member-42/adjustments";
    let entry = post(&app, path, &json!({ "units": 1, "reason": "x" })).await;
    let refused = reverse(&app, &entry.json()["id"], "x").await;
    problem(&refused, 404, "not-found");
    let unknown = "/v1/policies/unknown/subjects/member-42/adjustments";
    let answer = post(&app, unknown, &json!({ "units": 1, "reason": "x" })).await;
    problem(&answer, 404, "unknown-policy");
    assert_eq!(used(&app).await, [2]);
    assert_eq!(state(&app, &grant).await, "granted");
}
