//! Many clients at the same time, and the answers they receive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use perdiem::engine::EngineOptions;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use super::dice::Dice;
use super::quiet::one_story;
use crate::judge::{
    Attempt, Correction, History, Outcome, Stores, Story, Wish, judge, judge_denials,
};

/// The longest time of open settlements, on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// Instances on one ground that share a clock, as many as the ledger allows, with the history of
/// their clients.
pub struct Fleet {
    pub ground: Ground,
    pub clock: ManualClock,
    pub apps: Vec<Arc<App>>,
    began: Instant,
    history: Mutex<History>,
}

impl Fleet {
    /// Two instances on PostgreSQL; one on SQLite, which is for one process.
    pub async fn start(stack: Stack, now: DateTime<Utc>) -> Self {
        Self::start_with(stack, now, |_| {}).await
    }

    /// As [`Fleet::start`], and the instances record lapses as soon as they are due.
    pub async fn start_sweeping(stack: Stack, now: DateTime<Utc>) -> Self {
        let sweeps = |options: &mut EngineOptions| {
            options.record_lapses_after = Some(TimeDelta::zero());
        };
        Self::start_with(stack, now, sweeps).await
    }

    async fn start_with(
        stack: Stack,
        now: DateTime<Utc>,
        change: impl Fn(&mut EngineOptions),
    ) -> Self {
        let ground = Ground::new(stack);
        match stack {
            Stack::Sqlite | Stack::RedisAndSqlite => Self::on_with(&[&ground], now, change).await,
            Stack::Postgres | Stack::RedisAndPostgres => {
                Self::on_with(&[&ground; 2], now, change).await
            }
        }
    }

    /// One instance for each of several connections to one ground. The first connection has no
    /// proxy.
    pub async fn on(grounds: &[&Ground], now: DateTime<Utc>) -> Self {
        Self::on_with(grounds, now, |_| {}).await
    }

    /// As [`Fleet::on`], with some options changed.
    pub async fn on_with(
        grounds: &[&Ground],
        now: DateTime<Utc>,
        change: impl Fn(&mut EngineOptions),
    ) -> Self {
        let clock = ManualClock::at(now);
        let mut apps = Vec::new();
        for ground in grounds {
            let app = App::start_with(ground, |options| {
                options.clock = Clock::Manual(clock.clone());
                change(options);
            });
            apps.push(Arc::new(app.await));
        }
        Self::of(grounds[0].clone(), clock, apps)
    }

    pub fn of(ground: Ground, clock: ManualClock, apps: Vec<Arc<App>>) -> Self {
        Self {
            ground,
            clock,
            apps,
            began: Instant::now(),
            history: Mutex::default(),
        }
    }

    /// As [`Fleet::start`] at [`NOON`], with a policy `benefit` of so many a day in GMT+8.
    pub async fn with_max(stack: Stack, max: usize) -> Self {
        let fleet = Self::start(stack, instant(NOON)).await;
        let limits = json!([{ "max": max, "per": "day" }]);
        fleet.put("GMT+8", limits).await;
        fleet
    }

    /// The instance that serves a client.
    pub fn app(&self, client: usize) -> Arc<App> {
        self.apps[client % self.apps.len()].clone()
    }

    /// Puts a policy `benefit`, and waits until every instance knows it. Returns its version.
    pub async fn put(&self, time_zone: &str, limits: Value) -> u64 {
        let version = self.put_quietly(time_zone, limits).await;
        self.everybody_knows(version).await;
        version
    }

    /// Puts a policy `benefit`. Returns its version.
    pub async fn put_quietly(&self, time_zone: &str, limits: Value) -> u64 {
        let body = json!({ "time_zone": time_zone, "limits": limits, "reason": "a test" });
        self.put_body(body).await
    }

    /// As [`Fleet::put_quietly`], with the whole body.
    pub async fn put_body(&self, body: Value) -> u64 {
        let answer = self.apps[0].put_policy("benefit", body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer.json()["version"].as_u64().expect("a version")
    }

    /// Waits until every instance knows all earlier changes. It makes one more change and waits for
    /// that one, because instances learn changes in order.
    pub async fn everybody_knows_all(&self) {
        let name = format!("marker-{}", Uuid::new_v4());
        let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
        let answer = self.apps[0].put_policy(&name, body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        for app in &self.apps {
            eventually("every change is known", || async {
                let usage = format!("/v1/policies/{name}/subjects/nobody");
                app.get(&usage).await.status == StatusCode::OK
            })
            .await;
        }
    }

    /// Waits until every instance decides under a version of `benefit`.
    pub async fn everybody_knows(&self, version: u64) {
        for app in &self.apps {
            eventually("the policy is known", || async {
                let usage = app.get("/v1/policies/benefit/subjects/nobody").await;
                usage.status == StatusCode::OK
                    && usage.json()["policy_version"].as_u64() >= Some(version)
            })
            .await;
        }
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no panic")
    }

    /// The grants in the answers to clients, in the order of the answers.
    pub fn granted(&self) -> Vec<Uuid> {
        let history = self.history();
        let granted = history.attempts.iter().filter_map(|attempt| {
            let is_new = matches!(attempt.outcome, Outcome::Granted(_));
            attempt.outcome.told().filter(|_| is_new)
        });
        granted.map(|told| told.id).collect()
    }

    /// Records the answer to a correction.
    pub fn told(&self, correction: Correction) {
        self.history().corrections.push(correction);
    }

    /// Adds claims that clients may send. Returns their places.
    pub fn wishes(&self, wishes: impl IntoIterator<Item = Wish>) -> Vec<usize> {
        let mut history = self.history();
        let from = history.wishes.len();
        history.wishes.extend(wishes);
        (from..history.wishes.len()).collect()
    }

    /// The body of an atomic batch of claims.
    pub fn batch(&self, wishes: &[usize]) -> Value {
        let history = self.history();
        let claims = wishes.iter().map(|wish| {
            let mut claim = history.wishes[*wish].body(*wish);
            claim["policy"] = json!("benefit");
            claim
        });
        json!({ "claims": claims.collect::<Vec<_>>(), "atomic": true })
    }

    /// Sends a claim until its client knows the outcome. A claim without a key is sent once.
    pub async fn send(&self, client: usize, wish: usize) -> Outcome {
        let claim = self.history().wishes[wish].clone();
        let key = claim.has_key.then(|| format!("wish-{wish}"));
        let policy = &claim.policy;
        let body = claim.body(wish);
        loop {
            let app = self.app(client);
            let began = self.began.elapsed();
            let answer = app.claim_under(policy, body.clone(), key.as_deref()).await;
            let outcome = Outcome::of(answer.status, &answer.text);
            self.note(client, wish, began, outcome.clone());
            if outcome.is_known() || key.is_none() {
                return outcome;
            }
        }
    }

    /// The time since the beginning of the history.
    pub fn time(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records the outcome of a request for a claim.
    pub fn note(&self, client: usize, wish: usize, began: Duration, outcome: Outcome) {
        self.history().attempts.push(Attempt {
            wish,
            instance: client % self.apps.len(),
            began,
            ended: self.time(),
            outcome,
        });
    }

    /// Sends each client's claims in order, with all clients at the same time. Returns how many
    /// claims were granted, repeated and denied.
    pub async fn send_all(
        &self,
        clients: usize,
        turns: impl Fn(usize) -> Vec<usize>,
    ) -> [usize; 3] {
        let outcomes = all_at_once(clients, |client| {
            let turns = turns(client);
            async move {
                let mut outcomes = Vec::new();
                for wish in turns {
                    outcomes.push(self.send(client, wish).await);
                }
                outcomes
            }
        });
        let mut counts = [0; 3];
        for outcome in outcomes.await.into_iter().flatten() {
            match outcome {
                Outcome::Granted(_) => counts[0] += 1,
                Outcome::Repeated(_) => counts[1] += 1,
                Outcome::Denied => counts[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        counts
    }

    /// As [`Fleet::send_all`], for new claims.
    pub async fn claim_all(
        &self,
        clients: usize,
        claims: impl Fn(usize) -> Vec<Wish>,
    ) -> [usize; 3] {
        let turns = |client| self.wishes(claims(client));
        self.send_all(clients, turns).await
    }

    /// Clients claim one unit at a time until each is denied. Returns how many were granted.
    pub async fn drain(&self, clients: usize, subject: &str) -> usize {
        let granted = all_at_once(clients, |client| async move {
            let mut granted = 0;
            while self.claim_once(client, subject).await {
                granted += 1;
            }
            granted
        });
        granted.await.into_iter().sum()
    }

    /// Claims one unit. Returns whether it was granted.
    async fn claim_once(&self, client: usize, subject: &str) -> bool {
        let wish = self.wishes([Wish::of(subject)])[0];
        match self.send(client, wish).await {
            Outcome::Granted(_) => true,
            Outcome::Denied => false,
            other => panic!("{other:?}"),
        }
    }

    /// Clients send claims until `stop` is set. Half of the claims have keys, and some of these are
    /// sent again at another instance.
    pub async fn load(&self, clients: usize, stop: &AtomicBool, claim: impl Fn(&mut Dice) -> Wish) {
        let claim = &claim;
        all_at_once(clients, |client| async move {
            let mut dice = Dice::of(1, client);
            while !stop.load(Ordering::SeqCst) {
                let has_key = dice.percent(50);
                let claim = claim(&mut dice);
                let wish = self.wishes([Wish { has_key, ..claim }])[0];
                self.send(client, wish).await;
                if has_key && dice.percent(50) {
                    self.send(client + 1, wish).await;
                }
            }
        })
        .await;
    }

    /// Asserts that the judge and a reconciliation find no breach. Call it when no request is open.
    /// Returns the content of the stores.
    pub async fn finds_nothing(&self) -> Stores {
        let deadline = Instant::now() + SETTLED_WITHIN;
        let stores = loop {
            let stores = self.ground.stores().await;
            let (breaches, may_pass) = {
                let history = self.history();
                let breaches = judge(&history, &stores);
                let may_pass = breaches.iter().all(|breach| breach.may_pass(&history));
                (breaches, may_pass)
            };
            if breaches.is_empty() {
                break stores;
            }
            assert!(may_pass && Instant::now() < deadline, "{breaches:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        for app in &self.apps {
            let request = app.request(Method::POST, "/v1/reconciliations");
            let report = Answer::of(request.json(&json!({ "apply": false }))).await;
            assert_eq!(report.status, StatusCode::CREATED, "{report:?}");
            assert_eq!(report.json()["difference_count"], 0, "{report:?}");
            assert_eq!(report.json()["alarm_count"], 0, "{report:?}");
        }
        stores
    }

    /// Waits for rest, and asserts that the statistics, the usage and the entries tell one story.
    /// The instances must record lapses.
    pub async fn tells_one_story(&self) {
        let urls: Vec<&str> = self.apps.iter().map(|app| app.url.as_str()).collect();
        let clock = Clock::Manual(self.clock.clone());
        one_story(&self.ground.database_url, &urls, &clock).await;
    }

    /// Waits until the statistics have each denial that a client was told. Each claim must be known.
    pub async fn denials_are_counted(&self) {
        let breaches = async || {
            let story = Story::read(&self.ground.database_url).await;
            judge_denials(&self.history(), &story.expect("the figures can be read"))
        };
        eventually("the denials are counted", async || {
            breaches().await.is_empty()
        })
        .await;
    }
}

/// Runs `act` for each of the clients, all at the same time, and returns the results.
pub async fn all_at_once<T, F>(clients: usize, act: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T>,
{
    join_all((0..clients).map(act)).await
}
