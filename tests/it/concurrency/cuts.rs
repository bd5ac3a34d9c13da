//! Connections that break under load: outcomes are found out or sent again, never guessed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perdiem::domain::claim::IdempotencyKey;
use perdiem::domain::policy::PolicyName;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::books::Books;
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::proxy::{Mode, Proxy};

const CLIENTS: usize = 24;
const KEYS: usize = 50;

/// PostgreSQL cuts perdiem's connections again and again, in the midst of statements, while
/// two instances race for the same keys and the same last units.
async fn cut_connections(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 20, "per": "day" }]))
        .await;
    let stop = Arc::new(AtomicBool::new(false));
    let pool = sqlx::PgPool::connect(&fleet.ground.database_url)
        .await
        .expect("a pool");
    let cuts = tokio::spawn({
        let stop = stop.clone();
        async move {
            let mut cut = 0;
            while !stop.load(Ordering::SeqCst) {
                // Those that carry claims, mostly in the midst of one.
                let count: i64 = sqlx::query_scalar(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND application_name = 'perdiem'
                         AND query LIKE '%entries%'",
                )
                .fetch_one(&pool)
                .await
                .expect("a count");
                cut += count;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            cut
        }
    });
    let answers = all_at_once(CLIENTS, |client| {
        let app = fleet.app(client);
        async move {
            let mut answers = Vec::new();
            for number in 0..KEYS {
                // Each key at six clients, at both instances, at five subjects in turn.
                let number = number + client / 6 * KEYS;
                let key = format!("order-{number}");
                let subject = format!("member-{}", number % 5);
                let answer = loop {
                    let answer = app.claim(&subject, Some(&key)).await;
                    match answer.status {
                        StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => {}
                        _ => break answer,
                    }
                };
                answers.push((number, answer));
            }
            answers
        }
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    let cut = cuts.await.expect("it ends");
    assert!(cut > 0, "nothing was cut");

    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.len(), 5);
    for grants in accounts.values() {
        assert_eq!(grants.len(), 20);
    }
    let policy = PolicyName::new("benefit").expect("a name");
    let ids: HashMap<_, _> = accounts
        .values()
        .flatten()
        .map(|grant| (grant.entry.key, grant.entry.id.0.to_string()))
        .collect();
    assert_eq!(ids.len(), 100, "a key has two grants");
    let mut created = HashMap::new();
    for (number, answer) in answers.into_iter().flatten() {
        let key = IdempotencyKey::parse(&format!("order-{number}")).expect("a key");
        let key = books.ledger.identity().key(&policy, &key);
        let granted = match answer.status {
            StatusCode::CREATED => {
                assert!(created.insert(number, ()).is_none(), "granted twice");
                true
            }
            StatusCode::OK => true,
            StatusCode::TOO_MANY_REQUESTS => false,
            _ => panic!("{answer:?}"),
        };
        if granted {
            let id = answer.json()["grant"]["id"].as_str().map(str::to_owned);
            assert_eq!(ids.get(&Some(key)), id.as_ref(), "{answer:?}");
        }
    }
    // Whatever stands is found again, at each instance.
    for number in 0..CLIENTS / 6 * KEYS {
        let text = format!("order-{number}");
        let key = IdempotencyKey::parse(&text).expect("a key");
        let key = books.ledger.identity().key(&policy, &key);
        let stands = ids.contains_key(&Some(key));
        for app in &fleet.apps {
            let subject = format!("member-{}", number % 5);
            eventually("the connections are whole again", || async {
                let answer = app.claim(&subject, Some(&text)).await;
                let status = match stands {
                    true => StatusCode::OK,
                    false => StatusCode::TOO_MANY_REQUESTS,
                };
                if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                    return false;
                }
                assert_eq!(answer.status, status, "{answer:?}");
                true
            })
            .await;
        }
    }
    books.audit().await;
    books.counters_follow().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    cut_connections(Stack::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_and_postgres() {
    cut_connections(Stack::RedisAndPostgres).await;
}

/// The same ground, with PostgreSQL behind a proxy that cuts every so many answers.
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

/// Every eighth answer of PostgreSQL is lost on its way to one of two instances, after the
/// commit: without keys, each grant that stands was told to exactly one client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers() {
    let ground = Ground::new(Stack::Postgres);
    let (proxy, behind) = behind_proxy(&ground, 8).await;
    let apps = [
        Arc::new(App::start(&behind).await),
        Arc::new(App::start(&ground).await),
    ];
    apps[0].benefit(1_000_000, "GMT+8").await;
    eventually("both know the policy", || async {
        apps[1].claim("nobody", None).await.status == StatusCode::CREATED
    })
    .await;
    proxy.cut(true);
    let answers = all_at_once(16, |client| {
        let app = apps[client % 2].clone();
        async move {
            let mut answers = Vec::new();
            for number in 0..40 {
                let subject = format!("member-{}", (client + number) % 4);
                answers.push(app.claim(&subject, None).await);
            }
            answers
        }
    })
    .await;
    proxy.cut(false);
    assert!(proxy.cuts() > 5, "only {} answers were lost", proxy.cuts());
    let mut told: Vec<String> = answers
        .into_iter()
        .flatten()
        .map(|answer| {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
            let id = answer.json()["grant"]["id"].as_str().map(str::to_owned);
            id.expect("an id")
        })
        .collect();
    let accounts = Books::open(&ground).await.audit().await;
    let mut stand: Vec<String> = accounts
        .values()
        .flatten()
        .filter(|grant| grant.subject.as_deref() != Some("nobody"))
        .map(|grant| grant.entry.id.0.to_string())
        .collect();
    told.sort();
    stand.sort();
    assert_eq!(told.len(), stand.len(), "told, and standing");
    assert_eq!(told, stand);
}

/// The connection breaks while an atomic batch without keys is being committed, slowly. It is
/// sent again, waits for itself, and loses to itself: it is granted once.
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
    // Of perdiem's connections.
    let count = async |condition: &str| -> i64 {
        let query = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'perdiem' AND {condition}"
        );
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(query));
        count.fetch_one(&pool).await.expect("a count")
    };
    eventually("it is being committed", async || {
        count("wait_event = 'advisory'").await == 1
    })
    .await;
    proxy.set(Mode::Refuse);
    eventually("the connections break", async || {
        count("state = 'idle'").await == 0
    })
    .await;
    proxy.set(Mode::Pass);
    eventually("it was sent again", async || {
        count("wait_event = 'transactionid'").await == 1
    })
    .await;
    sqlx::query("SELECT pg_advisory_unlock(42)")
        .execute(&mut *gate)
        .await
        .expect("no lock");
    let answer = batch.await.expect("it ends");
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let items = answer.json()["items"].as_array().expect("items").clone();
    assert!(items.iter().all(|item| item["status"] == 201), "{items:?}");
    let accounts = Books::open(&ground).await.audit().await;
    assert_eq!(accounts.len(), 2);
    assert!(accounts.values().all(|grants| grants.len() == 1), "twice");
}

/// An instance takes an account to be new that has a counter, and does not hear that it exists: the
/// counter does not lag when the claim was decided again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_about_a_newcomer() {
    let ground = Ground::new(Stack::RedisAndPostgres);
    let (proxy, behind) = behind_proxy(&ground, 1).await;
    let one = App::start(&ground).await;
    let two = Arc::new(App::start(&behind).await);
    one.benefit(3, "GMT+8").await;
    eventually("both know the policy", || async {
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
    // Its burst's answer is among so many.
    eventually("answers are lost", || async { proxy.cuts() >= 4 }).await;
    proxy.cut(false);
    let answer = claim.await.expect("it ends");
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    books.counters_follow().await;
}
