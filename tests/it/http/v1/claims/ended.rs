//! Retries of grants that have ended. A reversed grant gets 409, a lapsed hold 410, in every way in which
//! a claim can be repeated.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{problem, replace};
use crate::support::app::{Answer, App, Stack, eventually, on_every_stack, tests_on};
use crate::support::command_line::command;

on_every_stack!(
    a_key_of_a_reversed_grant_grants_nothing,
    a_key_of_a_lapsed_hold_grants_nothing,
    a_retry_says_so_in_every_way,
    what_comes_late_is_told_when_the_hold_lapsed,
);

tests_on!(a_counted_grant_that_was_reversed_says_so: redis_and_sqlite RedisAndSqlite, redis_and_postgres RedisAndPostgres);

async fn batch(app: &App, keys: &[&str], atomic: bool) -> Vec<Value> {
    let claim = |key: &&str| json!({ "policy": "benefit", "subject": "a", "idempotency_key": key });
    let claims: Vec<Value> = keys.iter().map(claim).collect();
    let request = app.request(Method::POST, "/v1/claims");
    let answer = Answer::of(request.json(&json!({ "claims": claims, "atomic": atomic }))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["items"].as_array().expect("items").clone()
}

fn statuses(items: &[Value]) -> Vec<u64> {
    let statuses = items.iter().map(|item| item["status"].as_u64());
    statuses.map(|status| status.expect("a status")).collect()
}

/// Two quotes of one order: the first is cancelled, the second is accepted, and the first comes again.
async fn a_key_of_a_reversed_grant_grants_nothing(stack: Stack) {
    let app = App::on(stack).await;
    replace(&app, json!({ "limits": [{ "max": 1, "per": "ever" }] })).await;
    let first = app.claim("a", Some("quote-A")).await.grant_id();
    assert_eq!(app.reverse(&first, "cancelled").await.status, 201);
    assert_eq!(app.claim("a", Some("quote-B")).await.status, 201);
    for _ in 0..2 {
        let told = problem(
            &app.claim("a", Some("quote-A")).await,
            409,
            "grant-reversed",
        );
        let detail = told["detail"].as_str().expect("a text");
        assert!(detail.contains("another Idempotency-Key"), "{detail}");
    }
    // Another claim with the key is still another claim, and the accepted quote is still granted.
    let other = json!({ "subject": "a", "units": 1, "metadata": { "b": 1 } });
    problem(
        &app.claim_body(other, Some("quote-A")).await,
        422,
        "idempotency-key-reused",
    );
    assert_eq!(app.claim("a", Some("quote-B")).await.status, 200);
    assert_eq!(
        app.get("/v1/grants").await.json()["items"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
}

async fn a_key_of_a_lapsed_hold_grants_nothing(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "UTC").await;
    let body = json!({ "subject": "a", "hold_seconds": 60 });
    let retry = async || app.claim_body(body.clone(), Some("order-1")).await;
    let hold = retry().await.grant_id();
    clock.advance(TimeDelta::seconds(60) - TimeDelta::microseconds(1));
    assert_eq!(retry().await.status, 200);
    // Nothing has recorded the lapse yet.
    clock.advance(TimeDelta::microseconds(1));
    problem(&retry().await, 410, "hold-lapsed");
    app.claim("a", None).await;
    problem(&retry().await, 410, "hold-lapsed");
    problem(&app.confirm(&hold).await, 410, "hold-lapsed");
    // A hold that is confirmed in time stays in force.
    let body = json!({ "subject": "a", "hold_seconds": 60 });
    let hold = app
        .claim_body(body.clone(), Some("order-2"))
        .await
        .grant_id();
    assert_eq!(app.confirm(&hold).await.status, 201);
    clock.advance(TimeDelta::hours(1));
    let again = app.claim_body(body, Some("order-2")).await;
    assert_eq!(
        (again.status.as_u16(), &again.json()["grant"]["state"]),
        (200, &json!("granted"))
    );
}

/// The instant is the end of the hold, however late the confirmation comes, and whether or not the lapse is
/// recorded.
async fn what_comes_late_is_told_when_the_hold_lapsed(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "UTC").await;
    let body = json!({ "subject": "a", "hold_seconds": 60 });
    let claimed = app.claim_body(body.clone(), Some("order-1")).await;
    let hold = claimed.grant_id();
    let until = claimed.at("/grant/held_until");
    let until = until.as_str().expect("an instant");
    let lapsed = format!("lapsed at {until}");
    for _ in 0..2 {
        clock.advance(TimeDelta::hours(5));
        let retry = app.claim_body(body.clone(), Some("order-1")).await;
        let confirmed = app.confirm(&hold).await;
        let reversed = app.reverse(&hold, "too late").await;
        for answer in [retry, confirmed, reversed] {
            let told = problem(&answer, 410, "hold-lapsed");
            let detail = told["detail"].as_str().expect("a text");
            assert!(detail.contains(&lapsed), "{detail}");
        }
        let fault = command(&app, &format!("confirm {hold}")).await.fault_of(3);
        assert!(fault.contains(&lapsed), "{fault}");
        app.claim("a", None).await.is(201);
        let explained = app.get(&format!("/v1/grants/{hold}/explanation")).await;
        let explained = explained.is(200);
        assert_eq!(explained["since"][0]["kind"], "lapse", "{explained}");
        assert_eq!(explained["since"][0]["at"], until, "{explained}");
        let printed = command(&app, &format!("explain {hold}")).await.well(0);
        let since: Vec<&str> = printed.split("since then: lapsed\n").collect();
        let shown = until.trim_end_matches('Z');
        assert!(since[1].trim_start().starts_with(shown), "{printed}");
    }
}

/// In a batch, in an atomic batch, in a dry run, under a paused and under an observing policy, and on the
/// command line.
async fn a_retry_says_so_in_every_way(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "UTC").await;
    let gone = app.claim("a", Some("gone")).await.grant_id();
    app.claim("a", Some("in-force")).await;
    assert_eq!(app.reverse(&gone, "cancelled").await.status, 201);
    let items = batch(&app, &["gone", "in-force", "new-1"], false).await;
    assert_eq!(statuses(&items), [409, 200, 201]);
    assert!(
        items[0]["type"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("grant-reversed"))
    );
    // An atomic batch is refused whole.
    let items = batch(&app, &["gone", "new-2"], true).await;
    assert_eq!(statuses(&items), [409, 424]);
    let dry = json!({ "subject": "a", "dry_run": true });
    problem(
        &app.claim_body(dry.clone(), Some("gone")).await,
        409,
        "grant-reversed",
    );
    assert_eq!(app.claim_body(dry, Some("in-force")).await.status, 200);
    let said = command(&app, "claim benefit a --idempotency-key gone").await;
    assert_eq!(said.code, 3, "{said:?}");
    assert!(
        said.stdout
            .starts_with("denied: the grant of this --idempotency-key was reversed"),
        "{said:?}"
    );
    let said = command(&app, "claim benefit a --idempotency-key in-force").await;
    assert_eq!(said.code, 0, "{said:?}");
    replace(&app, json!({ "mode": "observe" })).await;
    for paused in [false, true] {
        if paused {
            app.pause(true).await.is(200);
        }
        problem(&app.claim("a", Some("gone")).await, 409, "grant-reversed");
        assert_eq!(app.claim("a", Some("in-force")).await.status, 200);
    }
}

async fn a_counted_grant_that_was_reversed_says_so(stack: Stack) {
    let (app, clock): (App, ManualClock) = App::with_clock(stack).await;
    replace(&app, json!({ "durability": "counted" })).await;
    let counted = app.claim("a", Some("order-1")).await;
    assert_eq!(
        (counted.status.as_u16(), &counted.json()["provisional"]),
        (201, &json!(true))
    );
    let id = counted.grant_id();
    eventually("the ledger has the grant", || async {
        app.reverse(&id, "cancelled").await.status != 503
    })
    .await;
    problem(
        &app.claim("a", Some("order-1")).await,
        409,
        "grant-reversed",
    );
    clock.advance(TimeDelta::days(3));
    problem(
        &app.claim("a", Some("order-1")).await,
        409,
        "grant-reversed",
    );
    assert_eq!(app.claim("a", Some("order-2")).await.status, 201);
}
