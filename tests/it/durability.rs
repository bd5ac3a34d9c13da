//! Nothing acknowledged is lost: perdiem is killed under load, the database too, and every
//! grant that a client saw stands in the ledger, once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perdiem::domain::claim::IdempotencyKey;
use perdiem::domain::grant::Grant;
use perdiem::domain::identity::KeyId;
use perdiem::domain::policy::PolicyName;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::app::{Answer, Ground, KEY, Stack, eventually};
use crate::support::books::Books;
use crate::support::process::Process;
use crate::support::servers::{Postgres, Redis};

const CLIENTS: usize = 8;
/// How many grants are seen before the blow.
const SEEN_FIRST: usize = 150;

/// What became of the clients' claims: by key, the grant's id, or none where no answer came.
type Outcomes = HashMap<String, Option<String>>;

/// Clients that claim with new keys until they are told to stop, or the connection breaks.
struct Load {
    clients: JoinSet<()>,
    granted: Arc<AtomicUsize>,
    outcomes: Arc<Mutex<Outcomes>>,
}

impl Load {
    fn start(url: &str, round: usize) -> Self {
        let granted = Arc::new(AtomicUsize::new(0));
        let outcomes = Arc::new(Mutex::new(Outcomes::new()));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (url, granted, outcomes) = (url.to_owned(), granted.clone(), outcomes.clone());
            clients.spawn(async move {
                let http = crate::support::app::client();
                for number in 0.. {
                    let key = format!("order-{round}-{client}-{number}");
                    let note = |id: Option<String>| {
                        let mut outcomes = outcomes.lock().expect("no panic");
                        outcomes.insert(key.clone(), id);
                    };
                    note(None);
                    let Ok(response) = claim(&http, &url, &key).send().await else {
                        return;
                    };
                    let status = response.status();
                    if status == StatusCode::SERVICE_UNAVAILABLE {
                        continue;
                    }
                    assert_eq!(status, StatusCode::CREATED);
                    let Ok(body) = response.json::<Value>().await else {
                        return;
                    };
                    note(body["grant"]["id"].as_str().map(str::to_owned));
                    granted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Self {
            clients,
            granted,
            outcomes,
        }
    }

    /// Waits until so many grants were seen, in the midst of the load.
    async fn is_under_way(&self) {
        eventually("enough was granted", || async {
            self.granted.load(Ordering::SeqCst) >= SEEN_FIRST
        })
        .await;
    }

    async fn end(self) -> Outcomes {
        self.clients.join_all().await;
        std::mem::take(&mut self.outcomes.lock().expect("no panic"))
    }
}

/// Each key at one of five subjects.
fn claim(http: &Client, url: &str, key: &str) -> reqwest::RequestBuilder {
    let subject = format!("member-{}", key.len() % 5);
    http.post(format!("{url}/v1/policies/benefit/claims"))
        .bearer_auth(KEY)
        .header("Idempotency-Key", key)
        .timeout(Duration::from_secs(20))
        .json(&json!({ "subject": subject }))
}

async fn put_policy(process: &Process) {
    let body = json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": 1_000_000, "per": "year" }],
    });
    let request = process.request(Method::PUT, "/v1/policies/benefit");
    let answer = Answer::of(request.json(&body)).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
}

/// Every grant that was seen is in the ledger under its key; the unknown ones are retried,
/// and then every key has one grant, the one that the client was told.
async fn check(ground: &Ground, process: &Process, outcomes: &Outcomes) {
    let books = Books::open(ground).await;
    let policy = PolicyName::new("benefit").expect("a name");
    let identity = books.ledger.identity().clone();
    let by_key = |accounts: Vec<Vec<Grant>>| -> HashMap<KeyId, String> {
        let grants: Vec<Grant> = accounts.into_iter().flatten().collect();
        let count = grants.len();
        let by_key: HashMap<KeyId, String> = grants
            .into_iter()
            .map(|grant| {
                let id = grant.entry.id.0.to_string();
                (grant.entry.key.expect("a key"), id)
            })
            .collect();
        assert_eq!(by_key.len(), count, "a key has two grants");
        by_key
    };
    let key_of = |key: &str| {
        let key = IdempotencyKey::parse(key).expect("a key");
        identity.key(&policy, &key)
    };
    let ledger = by_key(books.audit().await.into_values().collect());
    let mut unknown = 0;
    for (key, id) in outcomes {
        match id {
            Some(id) => assert_eq!(ledger.get(&key_of(key)), Some(id), "{key} was lost"),
            None => unknown += 1,
        }
    }
    assert!(unknown <= outcomes.len());
    let http = crate::support::app::client();
    let mut told = outcomes.clone();
    for (key, id) in &mut told {
        let answer = Answer::of(claim(&http, &process.url, key)).await;
        let retried = answer.json()["grant"]["id"].as_str().map(str::to_owned);
        match id {
            Some(_) => {
                assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
                assert_eq!(*id, retried);
            }
            None => {
                let stood = ledger.contains_key(&key_of(key));
                let status = match stood {
                    true => StatusCode::OK,
                    false => StatusCode::CREATED,
                };
                assert_eq!(answer.status, status, "{answer:?}");
                *id = retried;
            }
        }
    }
    let ledger = by_key(books.audit().await.into_values().collect());
    assert_eq!(ledger.len(), told.len());
    for (key, id) in &told {
        assert_eq!(ledger.get(&key_of(key)), id.as_ref(), "{key}");
    }
}

/// Kills perdiem under load, three times, and after each start again it goes on.
async fn survives_kills(ground: &Ground, redis: Option<&Redis>) {
    let redis_url = redis.map(Redis::url);
    let settings: Vec<(&str, &str)> = redis_url
        .iter()
        .map(|url| ("REDIS_URL", url.as_str()))
        .collect();
    let mut process = Process::start(&ground.database_url, &settings);
    put_policy(&process).await;
    let mut outcomes = Outcomes::new();
    for round in 0..3 {
        let load = Load::start(&process.url, round);
        load.is_under_way().await;
        process.kill();
        outcomes.extend(load.end().await);
        process = Process::start(&ground.database_url, &settings);
    }
    check(ground, &process, &outcomes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn perdiem_is_killed_on_sqlite() {
    survives_kills(&Ground::new(Stack::Sqlite), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn perdiem_is_killed_on_postgres() {
    survives_kills(&Ground::new(Stack::Postgres), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn perdiem_is_killed_on_redis_and_postgres() {
    let redis = Redis::start();
    survives_kills(&Ground::new(Stack::Postgres), Some(&redis)).await;
}

/// The database is killed under load, with perdiem and without it, and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_killed() {
    let mut postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    let mut process = Process::start(&ground.database_url, &[]);
    put_policy(&process).await;
    let mut outcomes = Outcomes::new();
    for round in 0..3 {
        let load = Load::start(&process.url, round);
        load.is_under_way().await;
        postgres.kill();
        if round % 2 == 0 {
            process.kill();
        }
        postgres.restart();
        if round % 2 == 0 {
            process = Process::start(&ground.database_url, &[]);
        } else {
            // It goes on by itself.
            let before = load.granted.load(Ordering::SeqCst);
            eventually("claims are granted again", || async {
                load.granted.load(Ordering::SeqCst) > before + SEEN_FIRST
            })
            .await;
            process.kill();
            process = Process::start(&ground.database_url, &[]);
        }
        outcomes.extend(load.end().await);
    }
    check(&ground, &process, &outcomes).await;
}
