//! One entry is in the future: it harms its own account.

use reqwest::StatusCode;
use serde_json::json;

use super::{YEAR, claim_of, grants, put, readiness, start, start_with, stop};
use crate::judge::judge_ledger;
use crate::support::app::{Answer, Ground, Stack, eventually};
use crate::support::process::Process;
use crate::support::wall_clock::WallClock;

/// A ledger with an entry of `late` that is a year ahead.
async fn with_one_entry_ahead(wall: &WallClock) -> Ground {
    let ground = Ground::new(Stack::Sqlite);
    let process = start(&ground, wall);
    put(&process, "benefit", json!([{ "max": 3, "per": "day" }])).await;
    grants(&process, "member-1").await;
    stop(process);
    wall.put(YEAR);
    let process = start(&ground, wall);
    grants(&process, "late").await;
    stop(process);
    wall.put(0);
    ground
}

/// The subject of the entry gets an answer that says why.
async fn is_told(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert!(answer.text.contains("undecided"), "{answer:?}");
    assert!(answer.text.contains("in the future"), "{answer:?}");
}

async fn atomic(process: &Process, subjects: &[&str]) -> Answer {
    let claims = subjects.iter();
    let claims = claims.map(|subject| json!({ "policy": "benefit", "subject": subject }));
    let body = json!({ "atomic": true, "claims": claims.collect::<Vec<_>>() });
    let request = process.request(reqwest::Method::POST, "/v1/claims");
    Answer::of(request.json(&body)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_a_year_ahead_harms_its_own_account() {
    let wall = WallClock::new();
    let ground = with_one_entry_ahead(&wall).await;
    let process = start(&ground, &wall);
    // 1. Everybody else is decided, also in the transactions of the account that is ahead.
    for _ in 0..2 {
        let (late, one, new) = tokio::join!(
            claim_of(&process, "late"),
            claim_of(&process, "member-1"),
            claim_of(&process, "new"),
        );
        is_told(&late).await;
        for answer in [one, new] {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
    }
    is_told(&atomic(&process, &["late", "new"]).await).await;
    assert!(atomic(&process, &["new"]).await.status.is_success());
    let denied = claim_of(&process, "new").await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    // 2. The instance is ready, and warns.
    eventually("the entry is told", || async {
        let (is_ready, troubles) = readiness(&process).await;
        assert!(is_ready, "{troubles}");
        troubles.contains("in the future")
    })
    .await;
    stop(process);
    // 3. After a restart too, and nothing was appended to the account.
    let process = start(&ground, &wall);
    grants(&process, "another").await;
    is_told(&claim_of(&process, "late").await).await;
    let stores = ground.stores().await;
    assert_eq!(judge_ledger(&stores), []);
    let late = stores.entries.iter().filter(|it| it.subject == "late");
    assert_eq!(late.count(), 1);
}

/// With the check switched off, the subject is decided in the windows of its last entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_is_ahead_can_be_decided_without_the_check() {
    let wall = WallClock::new();
    let ground = with_one_entry_ahead(&wall).await;
    let off = [("PERDIEM_CLOCK_TOLERANCE_SECONDS", "0")];
    let process = start_with(&ground, &wall, &off);
    for _ in 0..2 {
        grants(&process, "late").await;
    }
    let denied = claim_of(&process, "late").await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    assert_eq!(judge_ledger(&ground.stores().await), []);
}
