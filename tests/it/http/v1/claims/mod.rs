//! Claims of an unknown policy, and claims while the ledger is gone.

mod denials;
mod ended;
mod observe;
mod parts;
mod replays;
mod usage;

use std::time::Duration;

use serde_json::json;

use crate::http::problem;
use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::servers::Postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_policy_is_told() {
    let app = App::on(Stack::Sqlite).await;
    for (key, dry_run) in [(None, false), (Some("order-17"), false), (None, true)] {
        let body = json!({ "subject": "member-42", "dry_run": dry_run });
        let answer = app.claim_under("nothing", body, key).await;
        let told = problem(&answer, 404, "unknown-policy");
        assert!(told["detail"].as_str().unwrap().contains("nothing"));
    }
    let answer = app.get("/v1/policies/nothing/subjects/member-42").await;
    problem(&answer, 404, "unknown-policy");
}

/// PostgreSQL is killed. Claims get 503 within their deadline, and are decided again after the
/// restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_that_is_gone_decides_nothing() {
    let mut postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    let app = App::start_with(&ground, |options| {
        options.claim_deadline = Duration::from_millis(500);
    })
    .await;
    app.benefit(3, "GMT+8").await;
    let first = app.decided("member-42", "order-1").await;
    assert!(first.status.is_success(), "{first:?}");
    postgres.kill();
    for (key, dry_run) in [
        (None, false),
        (Some("order-1"), false),
        (Some("order-2"), false),
        (None, true),
    ] {
        let body = json!({ "subject": "member-42", "dry_run": dry_run });
        let answer = app.claim_body(body, key).await;
        problem(&answer, 503, "undecided");
        assert_eq!(answer.header("retry-after"), Some("1"));
        for secret in ["postgres", "refused", "127.0.0.1", "SQL"] {
            assert!(!answer.text.contains(secret), "{answer:?}");
        }
    }
    // A fault that needs no ledger is still named.
    let body = json!({ "subject": "member-42", "units": 0 });
    assert_eq!(app.claim_body(body, None).await.status, 422);
    // Every other request gets 503.
    for path in ["/v1/policies", "/v1/policies/benefit/subjects/member-42"] {
        let answer = app.get(path).await;
        problem(&answer, 503, "unavailable");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    eventually("the instance says that it is not ready", async || {
        let answer = app.get("/readyz").await;
        answer.status == 503 && answer.text.contains("the ledger does not answer")
    })
    .await;
    assert_eq!(app.get("/livez").await.status, 200);

    postgres.restart();
    eventually("the instance is ready again", async || {
        app.get("/readyz").await.status == 200
    })
    .await;
    eventually("a claim is decided", async || {
        app.claim("member-42", Some("order-2")).await.status == 200
    })
    .await;
    let again = app.decided("member-42", "order-1").await;
    assert_eq!((again.status.as_u16(), again.json()), (200, first.json()));
    let history = app.get("/v1/grants").await.json();
    assert!(
        history["items"]
            .as_array()
            .is_some_and(|items| items.len() <= 3)
    );
}
