//! A counted grant is found by its id before the ledger has it.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::app::{
    App, Ground, NOON, Stack, eventually, instant, on_every_stack, on_every_store_with_redis,
};
use crate::support::crowd::Fleet;
use crate::support::servers::{Postgres, Redis};

on_every_stack!(an_unknown_id_is_not_found);
on_every_store_with_redis!(a_grant_is_found_right_after_its_answer);

fn counted() -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": 1000, "per": "day" }],
        "durability": "counted",
    })
}

async fn a_grant_is_found_right_after_its_answer(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let version = fleet.put_body(counted()).await;
    fleet.everybody_knows(version).await;
    let one = fleet.app(0);
    let other = fleet.app(1);
    for number in 0..40 {
        let granted = one.claim(&format!("member-{}", number % 7), None).await;
        assert_eq!(granted.status, StatusCode::CREATED, "{granted:?}");
        let id = granted.grant_id();
        match number % 3 {
            0 => {
                let found = other.get(&format!("/v1/grants/{id}")).await;
                assert_eq!(found.status, StatusCode::OK, "{number}: {found:?}");
                assert_eq!(found.json(), granted.json()["grant"]);
            }
            1 => {
                let reversed = other.reverse(&id, "a test").await;
                assert_eq!(reversed.status, StatusCode::CREATED, "{reversed:?}");
            }
            _ => {
                let confirmed = other.confirm(&id).await;
                assert_eq!(confirmed.status, StatusCode::CONFLICT, "{confirmed:?}");
                assert!(confirmed.text.contains("not-a-hold"), "{confirmed:?}");
            }
        }
    }
    fleet.finds_nothing().await;
}

/// Many requests wait for the same read.
async fn an_unknown_id_is_not_found(stack: Stack) {
    let app = App::on(stack).await;
    if matches!(stack, Stack::RedisAndSqlite | Stack::RedisAndPostgres) {
        app.put_policy("benefit", counted()).await;
        app.claim("member-42", None).await;
    }
    let ids = (0..60).map(|_| Uuid::new_v4());
    let answers = join_all(ids.map(|id| {
        let app = &app;
        async move { app.get(&format!("/v1/grants/{id}")).await }
    }));
    for answer in answers.await {
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{answer:?}");
    }
}

/// A grant that may wait in the queue is not answered "not found", also when no policy is counted
/// any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_nothing_is_said_to_be_unknown() {
    let mut redis = Redis::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.redis_url = Some(redis.url());
    let app = App::start_with(&ground, |options| {
        options.redis_timeout = Duration::from_millis(500);
        options.claim_deadline = Duration::from_secs(2);
    })
    .await;
    app.benefit(3, "GMT+8").await;
    let path = format!("/v1/grants/{}", Uuid::new_v4());
    assert_eq!(app.get(&path).await.status, StatusCode::NOT_FOUND);
    redis.kill();
    eventually("the instance cannot read the queue", || async {
        app.get(&path).await.status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let answer = app.get(&path).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert!(answer.header("Retry-After").is_some());
    assert!(answer.text.contains("try again"), "{answer:?}");
    redis.restart();
    eventually("the queue is empty", || async {
        app.get(&path).await.status == StatusCode::NOT_FOUND
    })
    .await;
}

/// The ledger accepts nothing for some time. The grant is not answered "not found".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_goes_on_to_wait_is_not_said_to_be_unknown() {
    let postgres = Postgres::start();
    let redis = Redis::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    ground.redis_url = Some(redis.url());
    let app = App::start_with(&ground, |options| {
        options.claim_deadline = Duration::from_secs(2);
    })
    .await;
    app.put_policy("benefit", counted()).await;
    let pool = sqlx::PgPool::connect(&ground.database_url).await;
    let mut lock = pool.expect("a pool").begin().await.expect("a transaction");
    sqlx::query("LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .expect("a lock");
    let granted = app.claim("member-42", None).await;
    assert_eq!(granted.status, StatusCode::CREATED, "{granted:?}");
    let id = granted.grant_id();
    let path = format!("/v1/grants/{id}");
    for answer in [app.get(&path).await, app.reverse(&id, "a test").await] {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
        assert!(answer.header("Retry-After").is_some());
    }
    lock.rollback().await.expect("the lock is released");
    eventually("the grant is found", || async {
        app.get(&path).await.status == StatusCode::OK
    })
    .await;
}
