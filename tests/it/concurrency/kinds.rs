//! Limits of every kind under many clients of two instances, also while a policy changes between
//! kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::desk::on_every_store;

/// A limit of each kind, with room for eight units. No unit returns during a test.
fn kinds() -> [Value; 6] {
    [
        json!({ "max": 8, "per": "ever" }),
        json!({ "max": 8, "per": "400d", "kind": "from_first_claim" }),
        json!({ "max": 8, "per": "399d", "kind": "sliding" }),
        json!({ "max": 8, "per": "100d", "kind": "sliding", "step": "24h" }),
        json!({ "max": 8, "per": "398d", "kind": "rate" }),
        json!({ "max": 8, "per": "397d", "kind": "rate", "burst": 8 }),
    ]
}

on_every_store!(
    exactly_the_limit_is_granted,
    a_change_between_kinds_grants_nothing_twice
);

async fn put(app: &App, limits: Value) {
    let rule = json!({ "time_zone": "UTC", "limits": limits, "reason": "a test" });
    let answer = app.put_policy("benefit", rule).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Two instances on one ledger, with PostgreSQL and Redis; one instance with SQLite, which allows
/// only one.
async fn fleet(stack: Stack) -> Vec<Arc<App>> {
    let (stack, count) = match stack {
        Stack::Postgres => (Stack::RedisAndPostgres, 2),
        _ => (Stack::RedisAndSqlite, 1),
    };
    let ground = Ground::new(stack);
    let mut apps = Vec::new();
    for _ in 0..count {
        apps.push(Arc::new(App::start(&ground).await));
    }
    apps
}

/// Sends many claims of one unit at the same time. Returns how many were granted.
async fn claims(apps: &[Arc<App>], subject: &str) -> u64 {
    let mut clients = JoinSet::new();
    for client in 0..24 {
        let app = apps[client % apps.len()].clone();
        let subject = subject.to_owned();
        clients.spawn(async move {
            let mut granted = 0;
            for _ in 0..3 {
                let answer = app.claim(&subject, None).await;
                match answer.status.as_u16() {
                    201 => granted += 1,
                    429 => {}
                    _ => panic!("{answer:?}"),
                }
            }
            granted
        });
    }
    clients.join_all().await.into_iter().sum()
}

/// Waits until every instance has the policy's version.
async fn is_known(apps: &[Arc<App>], version: usize) {
    for app in apps {
        eventually("the instance knows the policy", async || {
            let usage = app.get("/v1/policies/benefit/subjects/nobody").await;
            usage.status == 200 && usage.json()["policy_version"] == version
        })
        .await;
    }
}

async fn exactly_the_limit_is_granted(stack: Stack) {
    let apps = fleet(stack).await;
    for (number, limit) in kinds().into_iter().enumerate() {
        put(&apps[0], json!([limit])).await;
        is_known(&apps, number + 1).await;
        let granted = claims(&apps, &format!("member-{number}")).await;
        assert_eq!(granted, 8, "{limit}");
    }
}

/// Every limit counts all grants, because its span is longer than the test. Therefore the account
/// never has more than eight units.
async fn a_change_between_kinds_grants_nothing_twice(stack: Stack) {
    let apps = fleet(stack).await;
    put(&apps[0], json!([kinds()[0]])).await;
    is_known(&apps, 1).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let changing = tokio::spawn({
        let app = apps[0].clone();
        let is_over = is_over.clone();
        async move {
            let mut changes = 0;
            while !is_over.load(Ordering::SeqCst) {
                for one in kinds() {
                    for other in kinds() {
                        put(&app, json!([one])).await;
                        put(&app, json!([other])).await;
                        changes += 2;
                    }
                }
            }
            changes
        }
    });
    let mut subjects = JoinSet::new();
    for number in 0..6 {
        let apps = apps.clone();
        subjects.spawn(async move { claims(&apps, &format!("member-{number}")).await });
    }
    let granted = subjects.join_all().await;
    is_over.store(true, Ordering::SeqCst);
    assert!(changing.await.expect("no panic") > 0);
    assert_eq!(granted, [8; 6]);
}
