//! The lapses of holds are recorded soon after their ends, also if their subjects never come again.
//! Then every reader tells one story.

use chrono::TimeDelta;
use futures_util::future::join_all;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::http::all_items;
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::quiet::one_story;

on_every_store!(
    a_hold_lapses_although_nobody_comes_again,
    a_thousand_lapses_that_are_due_are_recorded_each_once,
    a_lapse_behind_a_thousand_confirmed_holds_is_recorded,
    what_is_confirmed_at_the_end_does_not_lapse_too,
);

crate::support::app::tests_on!(counters_follow_lapses: redis RedisAndSqlite);

/// Applications on one ground. They have one clock, and record lapses at once.
struct Scene {
    ground: Ground,
    apps: Vec<App>,
    clock: ManualClock,
}

impl Scene {
    async fn new(stack: Stack) -> Self {
        let ground = Ground::new(stack);
        let clock = ManualClock::at(instant(NOON));
        // SQLite has one process.
        let instances = match stack {
            Stack::Postgres | Stack::RedisAndPostgres => 2,
            Stack::Sqlite | Stack::RedisAndSqlite => 1,
        };
        let mut apps = Vec::new();
        for _ in 0..instances {
            let app = App::start_with(&ground, |options| {
                options.clock = Clock::Manual(clock.clone());
                options.record_lapses_after = Some(TimeDelta::zero());
            });
            apps.push(app.await);
        }
        apps[0].benefit(3, "GMT+8").await;
        Self {
            ground,
            apps,
            clock,
        }
    }

    fn app(&self) -> &App {
        &self.apps[0]
    }

    async fn hold(&self, subject: &str, seconds: u64) -> String {
        let body = json!({ "subject": subject, "units": 2, "hold_seconds": seconds });
        self.app().claim_body(body, None).await.grant_id()
    }

    /// The entries of this kind, the oldest first.
    async fn entries(&self, kind: &str) -> Vec<Value> {
        all_items(self.app(), &format!("/v1/entries?limit=1000&kind={kind}")).await
    }

    async fn has_lapses(&self, count: usize) {
        eventually("the lapses are recorded", || async {
            self.entries("lapse").await.len() >= count
        })
        .await;
    }

    /// A reconciliation finds nothing, and neither does the judge.
    async fn nothing_is_wrong(&self) {
        let urls: Vec<&str> = self.apps.iter().map(|app| app.url.as_str()).collect();
        let clock = Clock::Manual(self.clock.clone());
        one_story(&self.ground.database_url, &urls, &clock).await;
        let request = self
            .app()
            .request(reqwest::Method::POST, "/v1/reconciliations");
        let report = Answer::of(request.json(&json!({ "apply": false })))
            .await
            .json();
        assert_eq!(
            (&report["alarm_count"], &report["difference_count"]),
            (&json!(0), &json!(0)),
            "{report}"
        );
    }
}

async fn a_hold_lapses_although_nobody_comes_again(stack: Stack) {
    let scene = Scene::new(stack).await;
    let grant = scene.hold("a", 60).await;
    scene.clock.advance(TimeDelta::days(40));
    scene.has_lapses(1).await;
    // The entry is at the end of the hold.
    let lapses = scene.entries("lapse").await;
    let end = instant(NOON) + TimeDelta::seconds(60);
    let at: Vec<_> = lapses
        .iter()
        .map(|lapse| instant(lapse["at"].as_str().expect("an instant")))
        .collect();
    assert_eq!(at, [end]);
    assert_eq!(
        lapses[0]["grant"]["id"]
            .as_str()
            .or(lapses[0]["grant"].as_str()),
        Some(&*grant)
    );
    // Statistics, usage, the grant and the export tell the same.
    let days = are_sums_of_the_entries(scene.app()).await;
    let day = days
        .iter()
        .find(|day| day["lapsed_grants"] == 1)
        .expect("a day");
    assert_eq!(
        (&day["net_units"], &day["lapsed_units"]),
        (&json!(0), &json!(2))
    );
    let usage = scene
        .app()
        .get("/v1/policies/benefit/subjects/a")
        .await
        .json();
    assert_eq!(usage["limits"][0]["used"], 0);
    let told = scene.app().get(&format!("/v1/grants/{grant}")).await.json();
    assert_eq!(told["state"], "lapsed", "{told}");
    let csv = scene.app().get("/v1/entries/export?format=csv").await.text;
    assert_eq!(
        csv.lines().filter(|line| line.contains("lapse")).count(),
        1,
        "{csv}"
    );
    scene.nothing_is_wrong().await;
}

async fn a_thousand_lapses_that_are_due_are_recorded_each_once(stack: Stack) {
    let scene = Scene::new(stack).await;
    // A subject with three holds, holds that end at the same instant, and one that goes on.
    let subject = |number: u64| format!("subject-{}", number / 3);
    for some in (0..1_000).collect::<Vec<u64>>().chunks(100) {
        let holds = some.iter().map(async |number| {
            let body = json!({ "subject": subject(*number), "hold_seconds": 10 + number % 7 });
            scene.app().claim_body(body, None).await.grant_id()
        });
        join_all(holds).await;
    }
    scene.hold("another", 3600).await;
    scene.clock.advance(TimeDelta::minutes(30));
    scene.has_lapses(1_000).await;
    let mut grants: Vec<String> = scene
        .entries("lapse")
        .await
        .iter()
        .map(|lapse| lapse["grant"].to_string())
        .collect();
    grants.sort_unstable();
    grants.dedup();
    assert_eq!(grants.len(), 1_000);
    eventually("no lapse is overdue", || async {
        let metrics = scene.app().get("/metrics").await.text;
        metrics.contains("perdiem_lapses_lag_seconds 0.0")
    })
    .await;
    scene.nothing_is_wrong().await;
}

/// The sweep reads about a thousand holds at once, also if no lapse is due among them.
async fn a_lapse_behind_a_thousand_confirmed_holds_is_recorded(stack: Stack) {
    let scene = Scene::new(stack).await;
    for some in (0..1_050).collect::<Vec<u64>>().chunks(150) {
        let confirmed = some.iter().map(async |number| {
            let grant = scene.hold(&format!("subject-{number}"), 10).await;
            assert!(scene.app().confirm(&grant).await.status.is_success());
        });
        join_all(confirmed).await;
    }
    scene.hold("last", 11).await;
    scene.clock.advance(TimeDelta::minutes(30));
    scene.has_lapses(1).await;
    assert_eq!(scene.entries("lapse").await.len(), 1);
    scene.nothing_is_wrong().await;
}

/// Confirmations race with the sweep at the ends of the holds.
async fn what_is_confirmed_at_the_end_does_not_lapse_too(stack: Stack) {
    let scene = Scene::new(stack).await;
    let mut grants = Vec::new();
    for number in 0..40 {
        grants.push(scene.hold(&format!("subject-{number}"), 5).await);
    }
    scene
        .clock
        .advance(TimeDelta::seconds(5) - TimeDelta::microseconds(1));
    let confirming = grants.iter().map(|grant| scene.app().confirm(grant));
    let ending = async { scene.clock.advance(TimeDelta::microseconds(1)) };
    let (answers, ()) = tokio::join!(join_all(confirming), ending);
    let confirmed = answers.iter().filter(|answer| answer.status.is_success());
    let confirmed = confirmed.count();
    let lapsed = answers
        .iter()
        .filter(|answer| answer.status == StatusCode::GONE);
    assert_eq!(lapsed.count(), grants.len() - confirmed);
    scene.has_lapses(grants.len() - confirmed).await;
    assert_eq!(scene.entries("confirmation").await.len(), confirmed);
    assert_eq!(scene.entries("lapse").await.len(), grants.len() - confirmed);
    scene.nothing_is_wrong().await;
}

/// A counter that says that nothing is left learns that a hold lapsed.
async fn counters_follow_lapses(stack: Stack) {
    let scene = Scene::new(stack).await;
    scene.hold("a", 60).await;
    let body = json!({ "subject": "a", "units": 2 });
    let denied = scene.app().claim_body(body, None).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    scene.clock.advance(TimeDelta::seconds(61));
    scene.has_lapses(1).await;
    eventually("the counter equals the last line", || async {
        let request = scene
            .app()
            .request(reqwest::Method::POST, "/v1/reconciliations");
        let report = Answer::of(request.json(&json!({ "apply": false })))
            .await
            .json();
        report["difference_count"] == 0
    })
    .await;
}
