//! Redis comes back as it was a while ago: its counters lack the keys of grants that stand in the
//! ledger.

use std::collections::HashMap;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::json;

use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::books::Books;
use crate::support::servers::{Postgres, Redis};

const SUBJECTS: usize = 8;

struct Site {
    apps: [App; 2],
    ground: Ground,
    redis: Redis,
    _postgres: Postgres,
    /// The id that each key was told first.
    told: HashMap<String, String>,
}

impl Site {
    async fn new() -> Self {
        let (postgres, redis) = (Postgres::start(), Redis::start());
        let mut ground = Ground::new(Stack::Sqlite);
        ground.database_url = postgres.create_database();
        ground.redis_url = Some(redis.url());
        let start = || {
            App::start_with(&ground, |options| {
                options.redis_timeout = Duration::from_millis(500);
            })
        };
        let apps = [start().await, start().await];
        let policy = json!({
            "time_zone": "GMT+8",
            "limits": [{ "max": 1000, "per": "day" }],
            "durability": "counted",
        });
        apps[0].put_policy("benefit", policy).await;
        eventually("both know the policy", || async {
            let usage = apps[1].get("/v1/policies/benefit/subjects/nobody").await;
            usage.status == StatusCode::OK
        })
        .await;
        Self {
            apps,
            ground,
            redis,
            _postgres: postgres,
            told: HashMap::new(),
        }
    }

    /// Claims with so many keys, and waits until the ledger has their grants.
    async fn claim(&mut self, from: usize, to: usize) {
        for number in from..to {
            let key = format!("order-{number}");
            let app = &self.apps[number / SUBJECTS % 2];
            let granted = app.claim(&subject(number), Some(&key)).await;
            assert_eq!(granted.status, StatusCode::CREATED, "{granted:?}");
            self.told.insert(key, granted.grant_id());
        }
        let books = Books::open(&self.ground).await;
        eventually("every grant is recorded", || async {
            books.accounts().await.values().map(Vec::len).sum::<usize>() == to
        })
        .await;
        books.counters_follow().await;
    }
}

fn subject(number: usize) -> String {
    format!("member-{}", number % SUBJECTS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_retry_gets_its_first_id() {
    let mut site = Site::new().await;
    site.claim(0, 32).await;
    site.redis.command::<()>(&["SAVE"]);
    site.claim(32, 96).await;
    site.redis.kill();
    site.redis.restart();
    for number in 0..96 {
        let key = format!("order-{number}");
        for app in &site.apps {
            let again = loop {
                let again = app.claim(&subject(number), Some(&key)).await;
                // Until Redis is known to be back.
                if again.status != StatusCode::SERVICE_UNAVAILABLE {
                    break again;
                }
            };
            assert_eq!(again.status, StatusCode::OK, "{key}: {again:?}");
            assert_eq!(again.grant_id(), site.told[&key], "{key}");
        }
    }
    site.claim(96, 104).await;
    let books = Books::open(&site.ground).await;
    books.audit().await;
    books.counters_follow().await;
}
