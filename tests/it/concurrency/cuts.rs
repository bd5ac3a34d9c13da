//! Connections that break under load. The instance finds out the outcome, or sends the request
//! again. It never guesses.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::judge::Wish;
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::books::Books;
use crate::support::crowd::Fleet;
use crate::support::proxy::{Mode, Proxy};

/// The same ground, with PostgreSQL behind a proxy that cuts every `every`th answer.
async fn behind_proxy(ground: &Ground, every: u64) -> (Proxy, Ground) {
    let address = ground.database_url.split(['@', '/']).nth(3);
    let address: SocketAddr = address
        .and_then(|text| text.parse().ok())
        .expect("an address");
    let proxy = Proxy::start(address, every).await;
    let mut behind = ground.clone();
    behind.database_url = proxy.url(&ground.database_url);
    (proxy, behind)
}

/// One of two instances loses every eighth answer of PostgreSQL, after the commit. The claims have
/// no keys. Each grant in the ledger was answered to exactly one client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers() {
    let ground = Ground::new(Stack::Postgres);
    let (proxy, behind) = behind_proxy(&ground, 8).await;
    let fleet = Fleet::on(&[&ground, &behind], instant(NOON)).await;
    let limits = json!([{ "max": 1_000_000, "per": "day" }]);
    fleet.put("GMT+8", limits).await;
    proxy.cut(true);
    let claims = |client: usize| {
        let subjects = (0..40).map(|number| (client + number) % 4);
        subjects
            .map(|subject| Wish::of(&format!("member-{subject}")))
            .collect()
    };
    assert_eq!(fleet.claim_all(16, claims).await, [16 * 40, 0, 0]);
    proxy.cut(false);
    assert!(proxy.cuts() > 5, "only {} answers were lost", proxy.cuts());
    fleet.finds_nothing().await;
}

/// The connection breaks during the slow commit of an atomic batch without keys. The instance sends
/// the batch again. The second attempt waits for the first and loses to it. The batch is granted
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_commit_of_an_atomic_batch() {
    let ground = Ground::new(Stack::Postgres);
    let (proxy, behind) = behind_proxy(&ground, 1).await;
    let app = Arc::new(App::start(&behind).await);
    app.benefit(10, "GMT+8").await;
    let pool = sqlx::PgPool::connect(&ground.database_url)
        .await
        .expect("a pool");
    sqlx::raw_sql(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION wait()",
    )
    .execute(&pool)
    .await
    .expect("a slow commit");
    let mut gate = pool.acquire().await.expect("a connection");
    sqlx::query("SELECT pg_advisory_lock(42)")
        .execute(&mut *gate)
        .await
        .expect("a lock");
    let batch = tokio::spawn({
        let app = app.clone();
        async move {
            let claims =
                ["a", "b"].map(|subject| json!({ "policy": "benefit", "subject": subject }));
            let body = json!({ "claims": claims, "atomic": true });
            Answer::of(app.request(Method::POST, "/v1/claims").json(&body)).await
        }
    });
    // Counts only perdiem's connections.
    let count = async |condition: &str| -> i64 {
        let query = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'perdiem' AND {condition}"
        );
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(query));
        count.fetch_one(&pool).await.expect("a count")
    };
    eventually("the batch is being committed", async || {
        count("wait_event = 'advisory'").await == 1
    })
    .await;
    proxy.set(Mode::Refuse);
    eventually("the connections break", async || {
        count("state = 'idle'").await == 0
    })
    .await;
    proxy.set(Mode::Pass);
    eventually("the batch was sent again", async || {
        count("wait_event = 'transactionid'").await == 1
    })
    .await;
    sqlx::query("SELECT pg_advisory_unlock(42)")
        .execute(&mut *gate)
        .await
        .expect("the lock is released");
    let answer = batch.await.expect("the task ends");
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let items = answer.json()["items"].as_array().expect("items").clone();
    assert!(items.iter().all(|item| item["status"] == 201), "{items:?}");
    let accounts = Books::open(&ground).await.audit().await;
    assert_eq!(accounts.len(), 2);
    assert!(accounts.values().all(|grants| grants.len() == 1), "twice");
}

/// An instance takes an account for new, although the account has a counter, and loses the answer
/// that says so. After the claim is decided again, the counter does not lag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_about_a_newcomer() {
    let ground = Ground::new(Stack::RedisAndPostgres);
    let (proxy, behind) = behind_proxy(&ground, 1).await;
    let one = App::start(&ground).await;
    let two = Arc::new(App::start(&behind).await);
    one.benefit(3, "GMT+8").await;
    eventually("both instances know the policy", || async {
        two.claim("nobody", None).await.status == StatusCode::CREATED
    })
    .await;
    for number in 0..10 {
        let answer = two.claim(&format!("fresh-{number}"), None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
    let answer = one.claim("member-42", None).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let denied = json!({ "subject": "member-42", "units": 3 });
    let denied = one.claim_body(denied, None).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    let books = Books::open(&ground).await;
    books.counters_follow().await;
    proxy.cut(true);
    let claim = tokio::spawn({
        let two = two.clone();
        async move { two.claim("member-42", None).await }
    });
    // One of these answers belongs to the claim's burst.
    eventually("answers are lost", || async { proxy.cuts() >= 4 }).await;
    proxy.cut(false);
    let answer = claim.await.expect("the task ends");
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    books.counters_follow().await;
}
