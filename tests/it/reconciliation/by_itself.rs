//! Reconciliations without a request: at intervals, by one of the instances that share a ledger.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::host::clock::{Clock, ManualClock};
use serde_json::Value;

use super::{PATH, Scene, reconcile};
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant, on_every_stack};
use crate::support::desk::on_every_store;

on_every_stack!(it_heals_by_itself);
on_every_store!(a_restart_is_no_reason_for_a_round);

async fn start(ground: &Ground, every: Duration) -> App {
    App::start_with(ground, |options| options.reconcile_every = Some(every)).await
}

async fn reports(app: &App) -> Vec<Value> {
    let list = app.get(&format!("{PATH}?limit=1000")).await.json();
    list["items"].as_array().expect("items").clone()
}

fn started_at(report: &Value) -> DateTime<Utc> {
    instant(report["started_at"].as_str().expect("an instant"))
}

async fn it_heals_by_itself(stack: Stack) {
    let scene = Scene::new(stack).await;
    scene.grants("member-42", 2).await;
    // On the day of the grants, because a counter expires after its day has ended.
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(&scene.ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.reconcile_every = Some(Duration::from_secs(1));
    })
    .await;
    let has_counters = scene.ground.redis_url.is_some();
    if has_counters {
        let name = scene.counter_of("member-42");
        let _: i64 = scene.run(&["HSET", &name, "number", "9"]).await;
    }
    eventually("a reconciliation ran and healed", || async {
        clock.advance(TimeDelta::seconds(1));
        let reports = reports(&app).await;
        for report in &reports {
            assert_eq!(report["requested_by"], Value::Null);
            assert_eq!(report["apply"], true);
            assert_eq!(report["alarm_count"], 0);
        }
        let healed = reports.iter().any(|report| report["healed_count"] == 1);
        reports.len() >= 3 && healed == has_counters
    })
    .await;
    scene.books.counters_follow().await;
}

/// The first instance begins the round, and the others skip it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_instances_does_a_round() {
    for stack in [Stack::Postgres, Stack::RedisAndPostgres] {
        let ground = Ground::new(stack);
        let every = Duration::from_secs(1);
        let mut apps = Vec::new();
        for _ in 0..3 {
            apps.push(start(&ground, every).await);
        }
        eventually("there were rounds", || async {
            reports(&apps[0]).await.len() >= 4
        })
        .await;
        drop(apps);
        let app = App::start(&ground).await;
        let mut starts: Vec<DateTime<Utc>> = reports(&app).await.iter().map(started_at).collect();
        starts.sort_unstable();
        for pair in starts.windows(2) {
            assert!(pair[1] - pair[0] >= TimeDelta::seconds(1), "{starts:?}");
        }
    }
}

/// The ledger's reports decide when a round is due. The age of the process does not matter.
async fn a_restart_is_no_reason_for_a_round(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let start = || {
        App::start_with(&ground, |options| {
            options.clock = Clock::Manual(clock.clone());
            options.reconcile_every = Some(Duration::from_secs(3600));
        })
    };
    let app = start().await;
    eventually("the first round", || async {
        reports(&app).await.len() == 1
    })
    .await;
    drop(app);
    clock.advance(TimeDelta::seconds(3599));
    drop(start().await);
    let app = start().await;
    assert_eq!(reports(&app).await.len(), 1);
    // A report without healing does not delay the next round.
    reconcile(&app, false).await;
    drop(app);
    clock.advance(TimeDelta::seconds(1));
    let app = start().await;
    eventually("the second round", || async {
        reports(&app).await.len() == 3
    })
    .await;
}
