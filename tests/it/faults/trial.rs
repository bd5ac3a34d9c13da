//! A trial: instances under load, faults, and the check at the end.

use std::time::{Duration, Instant};

use perdiem::engine::EngineOptions;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::admin::Admin;
use super::load::{CLIENTS, Desk, Load};
use super::seed::Seed;
use super::setup::{DEADLINE, Instance, Place, Setup, put_policies, put_policy};
use super::verdict::{Ended, close, reconcile};
use crate::support::app::{Answer, App, Ground, KEY, client};
use crate::support::dice::Dice;

/// The instances of a trial, and their load.
pub struct Trial {
    seed: Seed,
    pub dice: Dice,
    /// The instances that are processes.
    pub instances: Vec<Instance>,
    /// The instances in this process.
    apps: Vec<App>,
    urls: Vec<String>,
    setup: Setup,
    pub load: Load,
    _folder: TempDir,
}

impl Trial {
    /// Starts the instances and the load, and waits until each instance grants.
    pub async fn begin(name: &'static str, setup: Setup) -> Self {
        Self::begin_seeded(Seed::choose(name), setup).await
    }

    /// As [`Trial::begin`], with a given seed.
    pub async fn begin_seeded(seed: Seed, setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |(number, place): (usize, &Place)| {
            let log = folder.path().join(format!("{number}.log"));
            Instance::start(place, &setup.settings, log)
        };
        let mut places = setup.places.iter().enumerate();
        let mut instances: Vec<Instance> = places.by_ref().take(1).map(start).collect();
        put_policies(&instances[0].process.url, &setup).await;
        // The other instances read the policies when they start.
        instances.extend(places.map(start));
        Self::go(seed, setup, instances, Vec::new(), folder).await
    }

    /// As [`Trial::begin`], with instances in this process, one for each place.
    pub async fn begin_with(
        name: &'static str,
        setup: Setup,
        ground: &Ground,
        change: impl Fn(usize, &mut EngineOptions),
    ) -> Self {
        let seed = Seed::choose(name);
        let mut apps = Vec::new();
        for number in 0..setup.places.len() {
            let app = App::start_with(ground, |options| change(number, options)).await;
            if apps.is_empty() {
                put_policies(&app.url, &setup).await;
            }
            apps.push(app);
        }
        let folder = tempfile::tempdir().expect("a folder");
        Self::go(seed, setup, Vec::new(), apps, folder).await
    }

    async fn go(
        seed: Seed,
        setup: Setup,
        instances: Vec<Instance>,
        apps: Vec<App>,
        folder: TempDir,
    ) -> Self {
        let name = seed.name;
        let urls = instances.iter().map(|one| one.process.url.clone());
        let urls: Vec<String> = urls.chain(apps.iter().map(|app| app.url.clone())).collect();
        let desk = Desk {
            name: name.replace(' ', "-"),
            urls: urls.clone(),
            policies: setup.policies.clone(),
            habits: setup.habits.clone(),
        };
        let mut load = Load::start(desk, seed.number);
        if setup.has_admin {
            let dice = Dice::of(seed.number, CLIENTS);
            load.start_beside(|shared| Admin::new(shared, dice).enter_on_and_on());
        }
        let trial = Self {
            dice: Dice::new(seed.number),
            seed,
            instances,
            apps,
            urls,
            setup,
            load,
            _folder: folder,
        };
        trial.everybody_grants(10).await;
        trial
    }

    /// Notes an action on the servers.
    pub fn mark(&self, what: &str) {
        self.load.mark(what);
    }

    /// Waits until so many more grants were answered, at any instance.
    pub async fn grants(&self, count: usize) {
        let sum = || self.load.grants().iter().sum::<usize>();
        let goal = sum() + count;
        self.until("more grants", || sum() >= goal).await;
    }

    /// Waits until each instance has answered so many more grants.
    pub async fn everybody_grants(&self, count: usize) {
        self.those_grant(count, |_| true).await;
    }

    /// Waits until one instance has answered so many more grants.
    pub async fn instance_grants(&self, instance: usize, count: usize) {
        self.those_grant(count, |one| one == instance).await;
    }

    /// Waits until the selected instances have answered so many more grants.
    pub async fn those_grant(&self, count: usize, is_one: impl Fn(usize) -> bool) {
        let before = self.load.grants();
        self.until("more grants at some instances", || {
            let now = self.load.grants();
            let mut both = now.iter().zip(&before).enumerate();
            both.all(|(one, (now, before))| !is_one(one) || *now >= before + count)
        })
        .await;
    }

    /// Waits until no client will send a claim again.
    pub async fn everybody_knows(&self) {
        let knows = || self.load.unknown_claims() == 0;
        self.until("all claims are known", knows).await;
    }

    /// Waits until no instance reports a trouble. Redis must work, too.
    pub async fn everybody_is_untroubled(&self) {
        let deadline = Instant::now() + DEADLINE;
        let http = client();
        for url in &self.urls {
            loop {
                let ready = Answer::of(http.get(format!("{url}/readyz"))).await;
                let troubles = ready.json()["troubles"].clone();
                let mut troubles = troubles.as_array().expect("troubles").iter();
                // The machine's rules of time zones can be too old. That trouble is no failure.
                if troubles.all(|trouble| trouble.to_string().contains("rules of time zones are")) {
                    break;
                }
                assert!(Instant::now() < deadline, "still troubled: {ready:?}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// The ledger's database.
    pub fn database(&self) -> &str {
        let name = self.setup.database_url.rsplit('/').next();
        name.expect("a name")
    }

    /// Puts a policy at an instance that may be unable to accept it.
    pub async fn try_put_policy(&self, instance: usize, policy: &str, mut body: Value) {
        body["reason"] = "a trial".into();
        let url = format!("{}/v1/policies/{policy}", self.urls[instance]);
        let request = client().put(url).bearer_auth(KEY).timeout(DEADLINE);
        // The ledger shows whether the policy was accepted.
        let _ = request.json(&body).send().await;
    }

    /// A copy replaces the ledger now. The entries that were committed after the copy was made may
    /// be lost.
    pub fn ledger_is_copy(&mut self, copied: Duration, database_url: String) {
        self.load.ledger_lost_part(copied);
        self.setup.database_url = database_url;
    }

    /// At the end, the counters are in these Redis servers.
    pub fn counters_are_in(&mut self, redis_urls: Vec<String>) {
        self.setup.redis_urls = redis_urls;
    }

    /// Starts an ended instance again. It aborts at a step, after it passed the step at most `most`
    /// times.
    pub async fn aborts_at(&mut self, instance: usize, step: &str, most: u32) {
        let passes = self.dice.between(0, most.into());
        let points = format!("{step}={passes}*off->return");
        self.instances[instance].start_again(&[("FAILPOINTS", &points)]);
        self.mark(step);
        let deadline = Instant::now() + DEADLINE;
        while self.instances[instance].process.ended().is_none() {
            assert!(Instant::now() < deadline, "{step} is not reached");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a condition is true.
    pub async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so() {
            assert!(Instant::now() < deadline, "not so in time: {what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for a random time between so many milliseconds.
    pub async fn pause(&mut self, least: u64, most: u64) {
        let millis = self.dice.between(least, most);
        sleep(Duration::from_millis(millis)).await;
    }

    /// Puts a policy at an instance.
    pub async fn put_policy(&self, instance: usize, policy: &str, body: Value) {
        put_policy(&self.urls[instance], policy, body).await;
    }

    /// Ends the load, after all servers are up again. Clients retry their open claims, committed
    /// claims are sent again, and counters get time to follow.
    pub async fn judge(self) -> Ended {
        let mut closing = self.load.end().await;
        if !closing.history().lost_parts.is_empty() {
            reconcile(&self.urls[0], &self.setup).await;
        }
        let healed = close(&mut closing, &self.setup, self.seed.number).await;
        Ended {
            seed: self.seed,
            instances: self.instances,
            _apps: self.apps,
            setup: self.setup,
            history: closing.history(),
            healed,
            _folder: self._folder,
        }
    }

    /// Ends the load, and asserts that there is no breach.
    pub async fn end(self) {
        self.judge().await.finds_nothing().await;
    }
}
