//! Policies whose claims Redis decides while the ledger does not answer.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::books::Books;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, Redis, redis_at};

/// An application with its own PostgreSQL and Redis, which the tests can stop.
struct Site {
    app: App,
    ground: Ground,
    postgres: Postgres,
    redis: Redis,
}

impl Site {
    async fn new() -> Self {
        let postgres = Postgres::start();
        let redis = Redis::start();
        let mut ground = Ground::new(Stack::Sqlite);
        ground.database_url = postgres.create_database();
        ground.redis_url = Some(redis.url());
        let app = App::start_with(&ground, |options| {
            options.claim_deadline = Duration::from_secs(4);
            options.redis_timeout = Duration::from_millis(500);
        })
        .await;
        Self {
            app,
            ground,
            postgres,
            redis,
        }
    }

    async fn redis(&self) -> MultiplexedConnection {
        redis_at(self.redis.url()).await
    }

    /// Waits until Redis has the counter of the only account.
    async fn is_settled(&self) {
        eventually("the counter is settled", || async {
            let mut redis = self.redis().await;
            let names: Vec<String> = redis::cmd("KEYS")
                .arg("*")
                .query_async(&mut redis)
                .await
                .expect("names");
            names.len() == 1
        })
        .await;
    }

    /// Claims until there is a decision. An instance needs some time to find that a server is gone.
    async fn decided(&self, policy: &str, subject: &str, key: &str) -> (StatusCode, Value) {
        let body = json!({ "subject": subject });
        self.decided_of(policy, body, Some(key)).await
    }

    async fn decided_of(
        &self,
        policy: &str,
        body: Value,
        key: Option<&str>,
    ) -> (StatusCode, Value) {
        loop {
            let answer = self.app.claim_under(policy, body.clone(), key).await;
            match answer.status {
                // The earlier claim with this key got no answer in time, and may still be open.
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::CONFLICT => {}
                status => return (status, answer.json()),
            }
        }
    }

    async fn recorded(&self, filter: &str) -> Vec<Value> {
        let answer = self.app.get(&format!("/v1/grants?{filter}")).await;
        match answer.status {
            StatusCode::OK => answer.json()["items"].as_array().expect("items").clone(),
            _ => Vec::new(),
        }
    }
}

fn policy(on_ledger_outage: &str) -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": 3, "per": "day" }],
        "on_ledger_outage": on_ledger_outage,
    })
}

/// The claim was sent to the ledger before the instance knew that the ledger does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_under_way_is_decided_by_redis_in_time() {
    for outage in [Mode::Hold, Mode::Refuse] {
        let postgres = Postgres::start();
        let redis = Redis::start();
        let proxy = Proxy::before(postgres.port()).await;
        let mut ground = Ground::new(Stack::Sqlite);
        ground.database_url = proxy.url(&postgres.create_database());
        ground.redis_url = Some(redis.url());
        let app = App::start_with(&ground, |options| {
            options.claim_deadline = Duration::from_secs(12);
            options.redis_timeout = Duration::from_secs(2);
        })
        .await;
        app.put_policy("sms", policy("count")).await;
        proxy.set(outage);
        let claim = json!({ "subject": "member-42" });
        let answer = app.claim_under("sms", claim, None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{outage:?}: {answer:?}");
        assert_eq!(answer.json()["provisional"], true, "{answer:?}");
        proxy.set(Mode::Pass);
        eventually("the grant is recorded", || async {
            let answer = app.get("/v1/grants?provisional=true").await;
            answer.status == StatusCode::OK && answer.json()["items"][0].is_object()
        })
        .await;
    }
}

/// No grant waits any more. The ledger decides alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_stopped_counting_is_decided_without_redis() {
    let Site {
        app,
        ground,
        mut redis,
        postgres: _postgres,
    } = Site::new().await;
    for durability in ["counted", "recorded"] {
        let mut rule = policy("refuse");
        rule["durability"] = json!(durability);
        rule["reason"] = json!("a test");
        app.put_policy("sms", rule).await;
    }
    drop(app);
    let app = App::start(&ground).await;
    redis.kill();
    for (key, status) in [("1", 201), ("2", 201), ("3", 201), ("4", 429), ("5", 429)] {
        let claim = json!({ "subject": "member-42" });
        let answer = app.claim_under("sms", claim, Some(key)).await;
        assert_eq!(answer.status, status, "{key}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_decides_until_the_ledger_is_back() {
    let mut site = Site::new().await;
    site.app.put_policy("sms", policy("count")).await;
    site.app.put_policy("money", policy("refuse")).await;
    let first = site
        .app
        .claim_under("sms", json!({ "subject": "a" }), Some("1"))
        .await;
    assert!(first.json().get("provisional").is_none(), "{first:?}");
    site.is_settled().await;

    site.postgres.kill();
    let (status, second) = site.decided("sms", "a", "2").await;
    assert_eq!(status, StatusCode::CREATED, "{second}");
    assert_eq!(second["provisional"], true);
    assert_eq!(second["limits"][0]["used"], 2);
    let refused = site
        .app
        .claim_under("money", json!({ "subject": "a" }), None)
        .await;
    assert_eq!(
        refused.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{refused:?}"
    );
    assert!(refused.header("Retry-After").is_some());
    let (status, third) = site.decided("sms", "a", "3").await;
    assert_eq!(
        (status, &third["limits"][0]["used"]),
        (StatusCode::CREATED, &json!(3))
    );
    let body = json!({ "subject": "a" });
    let (status, denied) = site.decided_of("sms", body.clone(), None).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{denied}");
    // Just after the connection to Redis began, the instance cannot know whether the counter lacks
    // a key.
    let unsure = site.app.claim_under("sms", body, Some("4")).await;
    assert_eq!(unsure.status, StatusCode::SERVICE_UNAVAILABLE, "{unsure:?}");
    let (status, again) = site.decided("sms", "a", "2").await;
    assert_eq!((status, &again), (StatusCode::OK, &second));
    // Only the ledger has the grant of this key, and the ledger does not answer.
    let known = site
        .app
        .claim_under("sms", json!({ "subject": "a" }), Some("1"))
        .await;
    assert_eq!(known.status, StatusCode::SERVICE_UNAVAILABLE, "{known:?}");
    // A new subject counts from zero.
    let (status, other) = site.decided("sms", "b", "5").await;
    assert_eq!(
        (status, &other["limits"][0]["used"]),
        (StatusCode::CREATED, &json!(1))
    );

    site.postgres.restart();
    eventually("the queued grants are recorded", || async {
        site.recorded("provisional=true").await.len() == 3
    })
    .await;
    assert!(site.recorded("over=true").await.is_empty());
    let (status, again) = site.decided("sms", "a", "2").await;
    assert_eq!(
        (status, &again["grant"]),
        (StatusCode::OK, &second["grant"])
    );
    let (status, denied) = site.decided("sms", "a", "4").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{denied}");
    let (status, exact) = site.decided("sms", "b", "6").await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(exact["limits"][0]["used"], 2);
    let books = Books::open(&site.ground).await;
    books.audit().await;
    books.counters_follow().await;
}

/// Neither store answers: nothing is decided, and nothing is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_both_there_is_no_decision() {
    let mut site = Site::new().await;
    site.app.put_policy("sms", policy("count")).await;
    site.postgres.kill();
    site.redis.kill();
    let refused = site
        .app
        .claim_under("sms", json!({ "subject": "a" }), Some("1"))
        .await;
    assert_eq!(
        refused.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{refused:?}"
    );
    site.redis.restart();
    let (status, body) = site.decided("sms", "a", "1").await;
    assert_eq!(
        (status, &body["provisional"]),
        (StatusCode::CREATED, &json!(true))
    );
    site.postgres.restart();
    eventually("the grant is recorded", || async {
        site.recorded("policy=sms").await.len() == 1
    })
    .await;
    Books::open(&site.ground).await.audit().await;
}

/// Redis lost its counter in the outage, and granted all units that can be counted once more. The
/// ledger gets every answered grant, and the sum is exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_can_be_counted_is_recorded_exactly() {
    const MOST: u64 = 9_007_199_254_740_991;
    let mut site = Site::new().await;
    let mut rule = policy("count");
    rule["limits"][0]["max"] = json!(MOST);
    site.app.put_policy("sms", rule).await;
    let body = json!({ "subject": "a", "units": MOST });
    let first = site.app.claim_under("sms", body.clone(), None).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    site.is_settled().await;
    site.postgres.kill();
    redis::cmd("FLUSHALL")
        .exec_async(&mut site.redis().await)
        .await
        .expect("Redis is flushed");
    let (status, second) = site.decided_of("sms", body.clone(), None).await;
    assert_eq!(status, StatusCode::CREATED, "{second}");
    site.postgres.restart();
    eventually("the grant is recorded", || async {
        site.recorded("over=true").await.len() == 1
    })
    .await;
    let used = async || {
        let usage = site.app.get("/v1/policies/sms/subjects/a").await;
        usage.json()["limits"][0]["used"].as_u64()
    };
    assert_eq!(used().await, Some(2 * MOST));
    let reversed = site.app.reverse(&first.grant_id(), "a test").await;
    assert_eq!(reversed.json()["limits"][0]["used"], MOST, "{reversed:?}");
    let books = Books::open(&site.ground).await;
    books.audit().await;
    books.counters_follow().await;
}
