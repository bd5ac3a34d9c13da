//! While claims keep coming: no false alarm, and nothing that healing breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use super::{Scene, nothing_differs, reconcile};
use crate::support::app::{App, Stack, eventually, on_every_stack};
use crate::support::books::Books;

const CLIENTS: usize = 16;
const SUBJECTS: usize = 6;

on_every_stack!(no_false_alarm_while_claims_keep_coming);

/// Clients that claim on a few subjects, with keys and without, until they are told to stop.
struct Crowd {
    stop: Arc<AtomicBool>,
    clients: JoinSet<usize>,
}

impl Crowd {
    fn start(apps: &[Arc<App>]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let app = apps[client % apps.len()].clone();
            let stop = stop.clone();
            clients.spawn(async move {
                let mut granted = 0;
                for claim in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let policy = ["benefit", "plenty", "counted"][claim % 3];
                    let body =
                        json!({ "subject": format!("member-{}", (client + claim) % SUBJECTS) });
                    let key = format!("{client}-{claim}");
                    let key = (claim % 2 == 0).then_some(key.as_str());
                    let answer = app.claim_under(policy, body, key).await;
                    match answer.status {
                        StatusCode::CREATED => granted += 1,
                        StatusCode::TOO_MANY_REQUESTS => {}
                        _ => panic!("{answer:?}"),
                    }
                }
                granted
            });
        }
        Self { stop, clients }
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await.into_iter().sum()
    }
}

async fn no_false_alarm_while_claims_keep_coming(stack: Stack) {
    let scene = Scene::live(stack).await;
    let plenty = json!({
        "time_zone": "UTC",
        "limits": [{ "max": 1_000_000, "per": "minute" }, { "max": 1_000_000, "per": "month" }],
    });
    scene.app.put_policy("plenty", plenty).await;
    counted(&scene.app, scene.ground.redis_url.is_some()).await;
    let second = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => None,
        Stack::Postgres | Stack::RedisAndPostgres => Some(App::start(&scene.ground).await),
    };
    let ground = scene.ground.clone();
    let mut apps = vec![Arc::new(scene.app)];
    apps.extend(second.map(Arc::new));
    let crowd = Crowd::start(&apps);
    for round in 0..8 {
        let reports = apps.iter().map(|app| nothing_differs(app, round % 2 == 0));
        futures_util::future::join_all(reports).await;
    }
    let granted = crowd.end().await;
    assert!(granted > 0);
    let books = Books::open(&ground).await;
    all_are_recorded(&books, granted).await;
    books.counters_follow().await;
    let report = nothing_differs(&apps[0], false).await;
    assert_eq!(report["entry_count"], granted);
}

/// A policy that Redis decides, where there is one: its grants are appended afterwards.
async fn counted(app: &App, by_redis: bool) {
    let body = json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": 1_000_000, "per": "hour" }, { "max": 1_000_000, "per": "week" }],
        "durability": if by_redis { "counted" } else { "recorded" },
    });
    let answer = app.put_policy("counted", body).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

async fn all_are_recorded(books: &Books, granted: usize) {
    eventually("every grant stands in the ledger", || async {
        let accounts = books.audit().await;
        accounts.values().map(Vec::len).sum::<usize>() == granted
    })
    .await;
}

/// Whatever is planted while claims and healing go on, nobody gets more than there is, and in
/// the end every counter is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healing_beside_claims_leaves_everything_right() {
    let scene = Scene::live(Stack::RedisAndPostgres).await;
    scene.app.benefit(100_000, "GMT+8").await;
    scene
        .app
        .put_policy(
            "plenty",
            json!({
                "time_zone": "UTC", "limits": [{ "max": 1_000_000, "per": "day" }],
            }),
        )
        .await;
    counted(&scene.app, false).await;
    let Scene {
        app, books, hand, ..
    } = scene;
    let hand = hand.expect("Redis");
    let apps = vec![Arc::new(app)];
    let crowd = Crowd::start(&apps);
    for round in 0..6 {
        for (index, name) in hand.names().await.iter().enumerate() {
            let words: &[&str] = match (index + round) % 4 {
                0 => &["HSET", name, "number", "99999"],
                1 => &["HSET", name, "number", "1"],
                2 => &["SET", name, "junk"],
                _ => &["DEL", name],
            };
            hand.run::<redis::Value>(words).await;
        }
        let report = reconcile(&apps[0], true).await;
        assert_eq!(report["alarm_count"], 0, "{report}");
        assert_eq!(report["counters"], "compared");
    }
    let granted = crowd.end().await;
    all_are_recorded(&books, granted).await;
    reconcile(&apps[0], true).await;
    nothing_differs(&apps[0], false).await;
}
