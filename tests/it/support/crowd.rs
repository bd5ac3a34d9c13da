//! Many clients at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use perdiem::clock::{Clock, ManualClock};
use perdiem::domain::grant::Entry;
use perdiem::domain::identity::AccountId;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::app::{Answer, App, Ground, Stack, eventually};
use super::books::Books;

/// Instances on one ground that share a clock, as many as the ledger allows.
pub struct Fleet {
    pub ground: Ground,
    pub clock: ManualClock,
    pub apps: Vec<Arc<App>>,
}

impl Fleet {
    /// Two instances on PostgreSQL; one on SQLite, which is for one process.
    pub async fn start(stack: Stack, now: DateTime<Utc>) -> Self {
        let ground = Ground::new(stack);
        let clock = ManualClock::at(now);
        let count = match stack {
            Stack::Sqlite | Stack::RedisAndSqlite => 1,
            Stack::Postgres | Stack::RedisAndPostgres => 2,
        };
        let mut apps = Vec::new();
        for _ in 0..count {
            let app = App::start_with(&ground, |options| {
                options.clock = Clock::Manual(clock.clone());
            });
            apps.push(Arc::new(app.await));
        }
        Self {
            ground,
            clock,
            apps,
        }
    }

    /// The instance that serves a client.
    pub fn app(&self, client: usize) -> Arc<App> {
        self.apps[client % self.apps.len()].clone()
    }

    /// Puts a policy `benefit`, and waits until every instance knows it. Returns its version.
    pub async fn put(&self, time_zone: &str, limits: Value) -> u64 {
        let version = self.put_quietly(time_zone, limits).await;
        self.everybody_knows(version).await;
        version
    }

    /// Puts a policy `benefit`. Returns its version.
    pub async fn put_quietly(&self, time_zone: &str, limits: Value) -> u64 {
        let body = json!({ "time_zone": time_zone, "limits": limits, "reason": "a test" });
        let answer = self.apps[0].put_policy("benefit", body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.json()["version"].as_u64().expect("a version")
    }

    /// Waits until every instance knows all changes up to now, by a change that comes after
    /// them: changes are learned in their order.
    pub async fn everybody_knows_all(&self) {
        let name = format!("marker-{}", uuid::Uuid::new_v4());
        let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
        let answer = self.apps[0].put_policy(&name, body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        for app in &self.apps {
            eventually("every change is known", || async {
                let usage = format!("/v1/policies/{name}/subjects/nobody");
                app.get(&usage).await.status == StatusCode::OK
            })
            .await;
        }
    }

    /// Waits until every instance decides under a version of `benefit`.
    pub async fn everybody_knows(&self, version: u64) {
        for app in &self.apps {
            eventually("the policy is known", || async {
                let usage = app.get("/v1/policies/benefit/subjects/nobody").await;
                usage.status == StatusCode::OK
                    && usage.json()["policy_version"].as_u64() >= Some(version)
            })
            .await;
        }
    }

    /// Once nothing is under way: the auditor finds the ledger right and the counters equal to it,
    /// and so does a reconciliation. Returns the entries, by account.
    pub async fn is_in_order(&self) -> BTreeMap<AccountId, Vec<Entry>> {
        let books = Books::open(&self.ground).await;
        books.audit().await;
        books.counters_follow().await;
        for app in &self.apps {
            let request = app.request(Method::POST, "/v1/reconciliations");
            let report = Answer::of(request.json(&json!({ "apply": false }))).await;
            assert_eq!(report.status, StatusCode::CREATED, "{report:?}");
            assert_eq!(report.json()["difference_count"], 0, "{report:?}");
            assert_eq!(report.json()["alarm_count"], 0, "{report:?}");
        }
        books.entries().await
    }
}

/// Runs what `clients` clients do, all at once, and returns what came of each, in no order.
pub async fn all_at_once<T, F>(clients: usize, act: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut set = JoinSet::new();
    for client in 0..clients {
        set.spawn(act(client));
    }
    set.join_all().await
}

/// How many answers have a status.
pub fn count(answers: &[Answer], status: StatusCode) -> usize {
    answers
        .iter()
        .filter(|answer| answer.status == status)
        .count()
}
