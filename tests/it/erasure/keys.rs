//! The keys of an erased subject still belong to its claims.

use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::TimeDelta;
use perdiem::host::clock::{Clock, ManualClock};
use serde_json::json;

use super::{all_are_past, erase};
use crate::support::app::{
    App, Ground, NOON, Stack, eventually, instant, on_every_store_with_redis,
};
use crate::support::direct::Direct;

on_every_store_with_redis!(counted_claims_know_the_keys_of_an_erased_subject);

async fn counted_claims_know_the_keys_of_an_erased_subject(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let start = || {
        App::start_with(&ground, |options| {
            options.clock = Clock::Manual(clock.clone());
        })
    };
    let app = start().await;
    let limits = json!([{ "max": 3, "per": "day" }]);
    let rule = json!({ "time_zone": "Asia/Shanghai", "limits": limits, "durability": "counted" });
    for policy in ["benefit", "trial"] {
        app.put_policy(policy, rule.clone()).await.is(201);
    }
    let mut grants = Vec::new();
    for key in ["k-1", "k-2", "k-3"] {
        let first = app.claim("member-42", Some(key)).await;
        assert_eq!(first.status, 201);
        grants.push(first.grant_id());
    }
    recorded(&ground, 3).await;
    assert_eq!(erase(&app, "member-42", "a test").await.status, 200);
    clock.advance(TimeDelta::hours(14));
    all_are_past(&ground, 3, &clock).await;

    // An instance that has not seen these claims repeats each of them.
    let app = start().await;
    redis_decides_alone(&app).await;
    let repeats = async |key: &str, grant: &str| {
        let again = app.claim("member-42", Some(key)).await;
        assert_eq!((again.status.as_u16(), &*again.grant_id()), (200, grant));
    };
    // 1. Redis knows no entry of the new account yet.
    assert_eq!(app.claim("member-42", Some("k-4")).await.status, 201);
    repeats("k-1", &grants[0]).await;
    // 2. Redis has its line.
    recorded(&ground, 4).await;
    for key in ["k-5", "k-6"] {
        assert_eq!(app.claim("member-42", Some(key)).await.status, 201);
        repeats("k-2", &grants[1]).await;
    }
    // 3. The new account has no room.
    recorded(&ground, 6).await;
    assert_eq!(app.claim("member-42", Some("k-7")).await.status, 429);
    repeats("k-3", &grants[2]).await;
}

/// Waits until Redis decides the second claim of a new subject without the ledger: an instance trusts counters only
/// some time after it has connected.
async fn redis_decides_alone(app: &App) {
    let counts = async || {
        let metrics = app.get("/metrics").await.text;
        let count = "perdiem_stage_seconds_count{stage=\"count\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(count));
        line.map_or(0, |number| number.parse::<u64>().expect("a number"))
    };
    let subjects = AtomicUsize::new(0);
    eventually("Redis decides alone", || async {
        let subject = format!("stranger-{}", subjects.fetch_add(1, Ordering::Relaxed));
        let before = counts().await;
        for key in ["first", "second"] {
            let body = json!({ "subject": subject });
            let key = format!("{subject}-{key}");
            let claimed = app.claim_under("trial", body, Some(&key)).await;
            assert_eq!(claimed.status, 201, "{claimed:?}");
        }
        // The first one is counted again after the ledger was read.
        counts().await - before == 3
    })
    .await;
}

/// Waits until the ledger has so many entries of the policy.
async fn recorded(ground: &Ground, entries: usize) {
    eventually("the grants are recorded", || async {
        let sql =
            "SELECT CAST(count(*) AS text) FROM entries AS e JOIN policies AS p ON p.id = e.policy
            WHERE p.name = 'benefit'";
        Direct::to(ground).await.texts(sql).await == [entries.to_string()]
    })
    .await;
}
