//! The ledger's answers to one instance stall while another instance acknowledges a change. Every
//! later decision uses the change.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinHandle;

use crate::support::app::{Answer, App, Ground, Stack, eventually};
use crate::support::books::Books;
use crate::support::proxy::{Mode, Proxy};

/// Two instances on one PostgreSQL. One of them is behind a proxy.
struct Site {
    stalled: Arc<App>,
    other: App,
    proxy: Proxy,
    pool: PgPool,
    ground: Ground,
}

/// A kind of request for one unit.
#[derive(Debug, Clone, Copy)]
enum Way {
    Claim,
    Batch,
    DryRun,
}

impl Site {
    async fn new(stack: Stack) -> Self {
        let ground = Ground::new(stack);
        let pool = PgPool::connect(&ground.database_url).await.expect("a pool");
        let port = pool.connect_options().get_port();
        let proxy = Proxy::before(port).await;
        let mut behind = ground.clone();
        behind.database_url = proxy.url(&ground.database_url);
        let deadline = Duration::from_secs(8);
        let stalled = App::start_with(&behind, |options| options.claim_deadline = deadline);
        let stalled = Arc::new(stalled.await);
        let other = App::start(&ground).await;
        Self {
            stalled,
            other,
            proxy,
            pool,
            ground,
        }
    }

    /// Changes the policy at the other instance.
    async fn change(&self, max: u64) {
        self.other.benefit(max, "GMT+8").await;
    }

    /// Waits until the instance behind the proxy knows the policy.
    async fn is_known(&self, max: u64) {
        eventually("the policy is known", || async {
            let usage = self.stalled.get("/v1/policies/benefit/subjects/x").await;
            usage.status == StatusCode::OK && usage.json()["limits"][0]["max"] == max
        })
        .await;
        eventually("the ledger answers", || async { self.is_ready().await }).await;
    }

    async fn is_ready(&self) -> bool {
        self.stalled.get("/readyz").await.status == StatusCode::OK
    }

    /// Asks for a unit behind the proxy. Returns after the ledger was asked; its answer stalls.
    async fn ask(&self, way: Way, subject: &str) -> JoinHandle<StatusCode> {
        // This claim opens a connection.
        let warm = self.stalled.claim(&format!("before-{subject}"), None).await;
        assert!(warm.status != StatusCode::SERVICE_UNAVAILABLE, "{warm:?}");
        let now = sqlx::query_scalar("SELECT clock_timestamp()");
        let now: chrono::DateTime<chrono::Utc> = now.fetch_one(&self.pool).await.expect("a time");
        self.proxy.set(Mode::HoldAnswers);
        let app = self.stalled.clone();
        let subject = subject.to_owned();
        let asking = tokio::spawn(async move { way.ask(&app, &subject).await });
        eventually("the ledger was asked", || async {
            let count: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'perdiem'
                     AND query LIKE '%entries%' AND query_start > $1",
            )
            .bind(now)
            .fetch_one(&self.pool)
            .await
            .expect("a count");
            count > 0
        })
        .await;
        asking
    }

    /// Waits until the instance is not ready, because the ledger is silent. Then lets the answers
    /// through.
    async fn release(&self) {
        eventually("the ledger is silent", || async { !self.is_ready().await }).await;
        self.proxy.set(Mode::Pass);
    }
}

impl Way {
    /// The status of a claim or of a dry run.
    async fn ask(self, app: &App, subject: &str) -> StatusCode {
        let key = format!("order-{}", uuid::Uuid::new_v4());
        match self {
            Self::Claim => app.claim(subject, Some(&key)).await.status,
            Self::DryRun => {
                let body = json!({ "subject": subject, "dry_run": true });
                let told = app.claim_body(body, Some(&key)).await.json();
                match told["outcome"].as_str() {
                    Some("granted") => StatusCode::CREATED,
                    Some("denied") => StatusCode::TOO_MANY_REQUESTS,
                    _ => panic!("{told}"),
                }
            }
            Self::Batch => {
                let claim = json!({ "policy": "benefit", "subject": subject });
                let body = json!({ "atomic": true, "claims": [claim] });
                let request = app.request(Method::POST, "/v1/claims").json(&body);
                let told: Value = Answer::of(request).await.json();
                let status = told["items"][0]["status"]
                    .as_u64()
                    .map(|status| status as u16);
                let status = status.unwrap_or_else(|| panic!("{told}"));
                StatusCode::from_u16(status).expect("a status")
            }
        }
    }
}

/// A look stalls while the `max` changes. The change holds for every kind of request.
async fn holds_after_a_look_that_stalled(stack: Stack, before: u64, after: u64) {
    let granted = StatusCode::CREATED;
    let denied = StatusCode::TOO_MANY_REQUESTS;
    let site = Site::new(stack).await;
    for (way, subject) in [(Way::Claim, "a"), (Way::Batch, "b"), (Way::DryRun, "c")] {
        site.change(before).await;
        site.is_known(before).await;
        let (app, told, expected) = if after > before {
            (&*site.stalled, &[granted, denied][..], granted)
        } else {
            (&site.other, &[granted][..], denied)
        };
        for status in told {
            assert_eq!(Way::Claim.ask(app, subject).await, *status);
        }
        let asking = site.ask(way, subject).await;
        site.change(after).await;
        site.release().await;
        assert_eq!(asking.await.expect("the task ends"), expected, "{way:?}");
    }
    Books::open(&site.ground).await.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_max_holds_after_a_look_that_stalled() {
    holds_after_a_look_that_stalled(Stack::Postgres, 5, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_max_holds_after_a_look_that_stalled() {
    holds_after_a_look_that_stalled(Stack::Postgres, 1, 5).await;
}

/// A counter denied a claim before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_max_holds_over_a_counter_after_a_look_that_stalled() {
    holds_after_a_look_that_stalled(Stack::RedisAndPostgres, 1, 5).await;
}

/// An append never arrives, and the instance does not know this. It must not send the append again
/// under the old terms. It also cannot tell for certain that the claim is denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lowered_max_holds_after_an_append_that_was_lost() {
    let site = Site::new(Stack::Postgres).await;
    site.change(5).await;
    site.is_known(5).await;
    let first = site.stalled.claim("member-42", None).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    site.proxy.strand();
    // The instance knows the line of the earlier claim, so it appends at once.
    let app = site.stalled.clone();
    let asking = tokio::spawn(async move { app.claim("member-42", None).await });
    site.change(1).await;
    let answer = asking.await.expect("the task ends");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    eventually("the ledger answers", || async { site.is_ready().await }).await;
    let again = site.stalled.claim("member-42", None).await;
    assert_eq!(again.status, StatusCode::TOO_MANY_REQUESTS, "{again:?}");
    Books::open(&site.ground).await.audit().await;
}
