//! A block denies every claim of its subject, whatever the limits are.

use chrono::{SecondsFormat, TimeDelta};
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{all_items, archive, problem, replace};
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant, on_every_way};
use crate::support::desk::on_every_store;

on_every_way!(a_block_denies_whatever_the_limits_are);
on_every_store!(
    a_block_outlives_the_archive_and_every_version,
    a_block_ends_when_it_says,
    grants_of_before_the_block_can_be_told_and_corrected,
    a_batch_knows_blocks,
    denials_of_blocked_subjects_are_counted,
    a_backtest_knows_when_a_subject_was_blocked,
);

const BLOCK: &str = "/v1/policies/benefit/blocks/fraud";

#[track_caller]
fn is_blocked(answer: &Answer) {
    problem(answer, 403, "subject-blocked");
    // The reason is for admins.
    assert!(!answer.text.contains("a test"), "{answer:?}");
}

/// Case 1 of the list of cases: the policy gets other limits, and the block holds.
async fn a_block_denies_whatever_the_limits_are(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "GMT+8").await;
    app.block("fraud").await.is(201);
    is_blocked(&app.claim("fraud", None).await);
    is_blocked(&app.claim("fraud", Some("a key")).await);
    for limits in [
        json!([{ "max": 3, "per": "24h", "kind": "sliding" }]),
        json!([{ "max": 3, "per": "ever" }]),
        json!([{ "max": 3, "per": "1s", "kind": "rate" }, { "max": 9, "per": "day" }]),
    ] {
        replace(&app, json!({ "limits": limits })).await;
        for units in [1, 3, 100] {
            let claim = json!({ "subject": "fraud", "units": units });
            is_blocked(&app.claim_body(claim, None).await);
        }
        is_blocked(&app.claim("fraud", Some("a key")).await);
        let dry = json!({ "subject": "fraud", "dry_run": true });
        is_blocked(&app.claim_body(dry, None).await);
        assert_eq!(app.claim("other", None).await.status, 201);
    }
    // Another instance knows the block too.
    let other = App::start(&ground).await;
    is_blocked(&other.claim("fraud", Some("another key")).await);
    assert_eq!(
        all_items(&app, "/v1/grants?subject=fraud").await,
        [] as [Value; 0]
    );
    app.remove_block("fraud").await.is(200);
    assert_eq!(app.claim("fraud", Some("a key")).await.status, 201);
}

/// Case 2: the policy is archived and put again. Further members: a scheduled version takes effect; the
/// time zone changes.
async fn a_block_outlives_the_archive_and_every_version(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    app.block("fraud").await.is(201);
    archive(&app).await;
    problem(&app.claim("fraud", None).await, 404, "unknown-policy");
    problem(&app.get(BLOCK).await, 404, "unknown-policy");
    problem(&app.block("fraud").await, 404, "unknown-policy");
    let ever = json!({
        "time_zone": "UTC", "limits": [{ "max": 3, "per": "ever" }], "reason": "again",
    });
    app.put_policy("benefit", ever).await.is(201);
    is_blocked(&app.claim("fraud", None).await);
    assert_eq!(app.get(BLOCK).await.at("/reason"), "a test");
    let next = json!({
        "limits": [{ "max": 3, "per": "7d", "kind": "from_first_claim" }],
        "effective": "next_window",
    });
    replace(&app, next).await;
    clock.advance(TimeDelta::days(2));
    is_blocked(&app.claim("fraud", None).await);
    assert_eq!(app.claim("other", None).await.at("/limits/0/per"), "168h");
}

async fn a_block_ends_when_it_says(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let until = instant(NOON) + TimeDelta::seconds(90);
    let written = until.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let block = json!({ "reason": "a test", "until": written });
    app.ask(&format!("PUT {BLOCK}"), block).await.is(201);
    let denied = app.claim("fraud", None).await;
    is_blocked(&denied);
    assert_eq!(denied.header("retry-after"), Some("90"));
    assert_eq!(denied.at("/blocked_until"), json!(until));
    clock.set(until - TimeDelta::microseconds(1));
    is_blocked(&app.claim("fraud", None).await);
    clock.set(until);
    assert_eq!(app.claim("fraud", None).await.status, 201);
    // Without an end nothing tells when to try again.
    app.block("fraud").await.is(200);
    let denied = app.claim("fraud", None).await;
    is_blocked(&denied);
    assert_eq!(denied.header("retry-after"), None);
    assert_eq!(denied.json().get("blocked_until"), None);
}

async fn grants_of_before_the_block_can_be_told_and_corrected(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "GMT+8").await;
    let grant = app.claim("fraud", Some("order-1")).await.grant_id();
    let hold = json!({ "subject": "fraud", "hold_seconds": 600 });
    let hold = app.claim_body(hold, Some("order-2")).await.grant_id();
    app.block("fraud").await.is(201);
    is_blocked(&app.claim("fraud", Some("order-3")).await);
    // A retry gets the grant of before.
    let again = app.claim("fraud", Some("order-1")).await;
    assert_eq!(again.is(200)["grant"]["id"], grant.as_str());
    // A block stops new claims only.
    let confirm = app.request(Method::POST, &format!("/v1/grants/{hold}/confirmation"));
    assert!(Answer::of(confirm).await.status.is_success());
    assert!(app.reverse(&grant, "a test").await.status.is_success());
    let adjustment = json!({ "units": 2, "reason": "a test" });
    let path = "/v1/policies/benefit/subjects/fraud/adjustments";
    let adjusted = app.ask(&format!("POST {path}"), adjustment).await;
    assert!(adjusted.status.is_success(), "{adjusted:?}");
    is_blocked(&app.claim("fraud", None).await);
}

async fn a_batch_knows_blocks(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "GMT+8").await;
    app.block("fraud").await.is(201);
    for (atomic, expected) in [(false, [201, 403]), (true, [424, 403])] {
        let claims =
            ["other", "fraud"].map(|subject| json!({ "policy": "benefit", "subject": subject }));
        let body = json!({ "claims": claims, "atomic": atomic });
        let batch = app.ask("POST /v1/claims", body).await;
        let statuses = [0, 1].map(|item| batch.json()["items"][item]["status"].clone());
        assert_eq!(json!(statuses), json!(expected), "{batch:?}");
    }
    let used = app.get("/v1/policies/benefit/subjects/other").await;
    assert_eq!(used.at("/limits/0/used"), 1);
}

async fn denials_of_blocked_subjects_are_counted(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(9, "GMT+8").await;
    app.block("fraud").await.is(201);
    for key in [None, Some("a key")] {
        is_blocked(&app.claim("fraud", key).await);
    }
    eventually("the denials are counted", || async {
        let days = app
            .get("/v1/stats?policy=benefit&from=2026-11-21&to=2026-11-22")
            .await;
        let days: Value = days.json();
        days["items"][0]["denied_claims"] == 2
    })
    .await;
    let metrics = app.get("/metrics").await.text;
    assert!(metrics.contains("blocked"), "{metrics}");
}

async fn a_backtest_knows_when_a_subject_was_blocked(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "GMT+8").await;
    replace(
        &app,
        json!({ "limits": [{ "max": 9, "per": "day" }], "mode": "observe" }),
    )
    .await;
    let claim = async || {
        clock.advance(TimeDelta::minutes(1));
        app.claim("fraud", None).await.is(201)["would_deny"].clone()
    };
    assert_eq!(claim().await, Value::Null);
    clock.advance(TimeDelta::minutes(1));
    app.block("fraud").await.is(201);
    assert_eq!([claim().await, claim().await], [true, true]);
    clock.advance(TimeDelta::minutes(1));
    app.remove_block("fraud").await.is(200);
    assert_eq!(claim().await, Value::Null);
    let policy = json!({ "time_zone": "GMT+8", "limits": [{ "max": 9, "per": "day" }] });
    let body = json!({ "policy": policy, "from": "2026-11-21", "to": "2026-11-22" });
    let tried = app.ask("POST /v1/policies/benefit/backtest", body).await;
    assert_eq!(
        [tried.at("/total/grants"), tried.at("/total/denied_grants")],
        [4, 2]
    );
}
