//! The ledger goes back in time while instances run: a standby that had missed commits is
//! promoted. What it lacks is lost, and nothing that an instance remembers may be appended to.

use reqwest::StatusCode;

use crate::support::app::{Answer, App, Ground, eventually};
use crate::support::books::Books;
use crate::support::proxy::Proxy;
use crate::support::servers::{Postgres, Redis};

const SUBJECTS: usize = 12;

fn key(subject: usize, number: u64) -> String {
    format!("order-{subject}-{number}")
}

/// Claims for every subject, each with a key of its own.
async fn claim_for_all(app: &App, number: u64) -> Vec<Answer> {
    let mut answers = Vec::new();
    for subject in 0..SUBJECTS {
        let (name, key) = (format!("member-{subject}"), key(subject, number));
        answers.push(app.claim(&name, Some(&key)).await);
    }
    answers
}

/// As [`claim_for_all`], until the ledger answers.
async fn granted_to_all(app: &App, number: u64) -> Vec<Answer> {
    for subject in 0..SUBJECTS {
        let (name, key) = (format!("member-{subject}"), key(subject, number));
        eventually("the claim is granted", || async {
            app.claim(&name, Some(&key)).await.status.is_success()
        })
        .await;
    }
    claim_for_all(app, number).await
}

/// A standby that had missed commits is promoted. With counters, some bear lines that are lost.
async fn a_lagging_standby_is_promoted(redis_url: Option<String>) {
    let mut primary = Postgres::start();
    let database_url = primary.create_database();
    let name = database_url.rsplit('/').next().expect("a name").to_owned();
    let proxy = Proxy::before(primary.port()).await;
    let mut ground = Ground::of_database(proxy.url(&database_url));
    ground.redis_url = redis_url;
    let apps = [App::start(&ground).await, App::start(&ground).await];
    apps[0].benefit(100, "UTC").await;
    claim_for_all(&apps[0], 1).await;
    let standby = primary.start_standby();
    standby.cut_off().await;
    for (number, app) in [(2, 1), (3, 1), (4, 0), (5, 0), (6, 0)] {
        for answer in claim_for_all(&apps[app], number).await {
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        }
    }
    primary.kill();
    standby.promote();
    proxy.lead_to(standby.port());
    // First a new key, at the instance that knows the last lines. Then those of grants that were
    // lost: they are free again.
    for (number, app) in [(7, 0), (4, 0), (3, 1)] {
        for answer in granted_to_all(&apps[app], number).await {
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            assert_eq!(answer.header("Idempotent-Replayed"), Some("true"));
        }
    }
    ground.database_url = standby.url(&name);
    let books = Books::open(&ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.len(), SUBJECTS);
    for grants in accounts.values() {
        assert_eq!(grants.len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_standby_is_promoted_without_counters() {
    a_lagging_standby_is_promoted(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_standby_is_promoted_with_counters() {
    let redis = Redis::start();
    a_lagging_standby_is_promoted(Some(redis.url())).await;
}
