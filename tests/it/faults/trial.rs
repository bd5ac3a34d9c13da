//! A trial: two instances under load, something that breaks, and a verdict.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use perdiem::engine::EngineOptions;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::load::{Closing, Desk, Habits, Load};
use super::report;
use crate::judge::{Breach, History, Stores, judge};
use crate::support::app::{Answer, App, Ground, KEY, client, eventually};
use crate::support::dice::Dice;
use crate::support::process::Process;
use crate::support::servers::free_port;

/// How long something may take that must come about, on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// How long settlements may be under way.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);
/// How many standing claims are sent again in the end.
const REPEATS_MOST: usize = 250;
/// How many breaches are shown.
const SHOWN_MOST: usize = 12;

/// Where an instance finds its stores.
#[derive(Debug, Clone)]
pub struct Place {
    pub database_url: String,
    pub redis_url: Option<String>,
}

/// What a trial stands on.
#[derive(Debug, Clone)]
pub struct Setup {
    /// One for each instance.
    pub places: Vec<Place>,
    /// The ledger, past every proxy.
    pub database_url: String,
    /// The Redis servers whose counters count in the end, past every proxy.
    pub redis_urls: Vec<String>,
    pub settings: Vec<(String, String)>,
    pub habits: Habits,
    /// The policies that are claimed under.
    pub policies: Vec<(&'static str, Value)>,
}

impl Setup {
    /// Two instances in one place.
    pub fn plain(database_url: String, redis_url: String) -> Self {
        Self::of(2, database_url, Some(redis_url))
    }

    /// So many instances in one place.
    pub fn of(instances: usize, database_url: String, redis_url: Option<String>) -> Self {
        let place = Place {
            database_url: database_url.clone(),
            redis_url: redis_url.clone(),
        };
        Self {
            places: vec![place; instances],
            database_url,
            redis_urls: redis_url.into_iter().collect(),
            settings: Vec::new(),
            habits: Habits::default(),
            policies: vec![("benefit", daily()), ("sms", by_the_minute())],
        }
    }
}

impl Setup {
    /// Sets a variable in the instances' environment.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }
}

/// A rule of five a day.
pub fn daily() -> Value {
    let limits = json!([{ "max": 5, "per": "day" }, { "max": 8, "per": "month" }]);
    json!({ "time_zone": "+08:00", "limits": limits })
}

/// A rule that denies nobody.
pub fn roomy() -> Value {
    let limits = json!([{ "max": 1_000_000, "per": "day" }]);
    json!({ "time_zone": "+08:00", "limits": limits })
}

/// A rule of three a minute.
pub fn by_the_minute() -> Value {
    let limits = json!([{ "max": 3, "per": "minute" }, { "max": 7, "per": "hour" }]);
    json!({ "time_zone": "+08:00", "limits": limits })
}

/// An instance that keeps its address when it starts again.
pub struct Instance {
    pub process: Process,
    port: u16,
    place: Place,
    settings: Vec<(String, String)>,
    log: PathBuf,
}

impl Instance {
    fn start(place: &Place, settings: &[(String, String)], log: PathBuf) -> Self {
        let port = free_port();
        let process = launch(place, port, settings, &log);
        Self {
            process,
            port,
            place: place.clone(),
            settings: settings.to_vec(),
            log,
        }
    }

    /// Starts it again, after it has ended. `settings` hold for this start only.
    pub fn start_again(&mut self, settings: &[(&str, &str)]) {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings: Vec<_> = self.settings.iter().cloned().chain(settings).collect();
        self.process = launch(&self.place, self.port, &settings, &self.log);
    }
}

/// Starts an instance, as often as it takes: for a moment another program's connection may
/// have its port.
fn launch(place: &Place, port: u16, settings: &[(String, String)], log: &Path) -> Process {
    let bind = format!("127.0.0.1:{port}");
    let mut all = vec![("PERDIEM_BIND", bind.as_str())];
    if let Some(url) = &place.redis_url {
        all.push(("REDIS_URL", url));
    }
    let settings = settings.iter();
    all.extend(settings.map(|(name, value)| (name.as_str(), value.as_str())));
    let deadline = Instant::now() + DEADLINE;
    loop {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let file = file.expect("a log");
        if let Some(process) = Process::try_start_logging(&place.database_url, &all, file) {
            return process;
        }
        let text = || fs::read_to_string(log).unwrap_or_default();
        assert!(Instant::now() < deadline, "it does not start: {}", text());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Two instances under load.
pub struct Trial {
    seed: Seed,
    pub dice: Dice,
    /// Those that are processes.
    pub instances: Vec<Instance>,
    /// Those in this process.
    apps: Vec<App>,
    urls: Vec<String>,
    setup: Setup,
    load: Load,
    _folder: TempDir,
}

impl Trial {
    /// Starts the instances and the load, and waits until both instances grant.
    pub async fn begin(name: &'static str, setup: Setup) -> Self {
        Self::begin_seeded(Seed::choose(name), setup).await
    }

    /// As [`Trial::begin`], from a seed of one's own.
    pub async fn begin_seeded(seed: Seed, setup: Setup) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |(number, place): (usize, &Place)| {
            let log = folder.path().join(format!("{number}.log"));
            Instance::start(place, &setup.settings, log)
        };
        let mut places = setup.places.iter().enumerate();
        let mut instances: Vec<Instance> = places.by_ref().take(1).map(start).collect();
        put_policies(&instances[0].process.url, &setup).await;
        // The others know the policies when they start.
        instances.extend(places.map(start));
        Self::go(seed, setup, instances, Vec::new(), folder).await
    }

    /// As [`Trial::begin`], with instances in this process, as many as there are places.
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
        let policies = setup.policies.iter().map(|(name, _)| (*name).to_owned());
        let desk = Desk {
            name: name.replace(' ', "-"),
            urls: urls.clone(),
            policies: policies.collect(),
            habits: setup.habits.clone(),
        };
        let load = Load::start(desk, seed.number);
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

    /// Notes what is done to the servers.
    pub fn mark(&self, what: &str) {
        self.load.mark(what);
    }

    /// Waits until so many more grants were answered, by whichever instance.
    pub async fn grants(&self, count: usize) {
        let sum = || self.load.grants().iter().sum::<usize>();
        let goal = sum() + count;
        self.until("more grants", || sum() >= goal).await;
    }

    /// Waits until each instance has answered so many more grants.
    pub async fn everybody_grants(&self, count: usize) {
        let before = self.load.grants();
        self.until("more grants at each instance", || {
            let now = self.load.grants();
            now.iter()
                .zip(&before)
                .all(|(now, before)| *now >= before + count)
        })
        .await;
    }

    /// Waits until one instance has answered so many more grants.
    pub async fn instance_grants(&self, instance: usize, count: usize) {
        let goal = self.load.grants()[instance] + count;
        let enough = || self.load.grants()[instance] >= goal;
        self.until("more grants at an instance", enough).await;
    }

    /// Waits until nobody is about to send a claim again.
    pub async fn everybody_knows(&self) {
        let knows = || self.load.unknown_claims() == 0;
        self.until("all claims are known", knows).await;
    }

    /// Waits until no instance has anything to complain of: Redis serves it, too.
    pub async fn everybody_is_untroubled(&self) {
        let deadline = Instant::now() + DEADLINE;
        let http = client();
        for url in &self.urls {
            loop {
                let ready = Answer::of(http.get(format!("{url}/readyz"))).await;
                let troubles = ready.json()["troubles"].clone();
                let mut troubles = troubles.as_array().expect("troubles").iter();
                // Those that the machine has grow old by themselves.
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

    /// Puts a policy at an instance that may not be able to.
    pub async fn try_put_policy(&self, instance: usize, policy: &str, mut body: Value) {
        body["reason"] = "a trial".into();
        let url = format!("{}/v1/policies/{policy}", self.urls[instance]);
        let request = client().put(url).bearer_auth(KEY).timeout(DEADLINE);
        // Whether it took place shows in the ledger.
        let _ = request.json(&body).send().await;
    }

    /// From now on what Redis alone decided may be lost.
    pub fn redis_lost_data(&self) {
        self.load.redis_lost_data();
    }

    /// The time since the load began.
    pub fn time(&self) -> Duration {
        self.load.time()
    }

    /// A copy of the ledger takes its place just now: what was committed since it was copied may
    /// be lost.
    pub fn ledger_is_copy(&mut self, copied: Duration, database_url: String) {
        self.load.ledger_lost_part(copied);
        self.setup.database_url = database_url;
    }

    /// How many grants were answered that Redis alone decided.
    pub fn provisional_grants(&self) -> usize {
        self.load.provisional_grants()
    }

    /// In the end the counters are looked for in these Redis servers.
    pub fn counters_are_in(&mut self, redis_urls: Vec<String>) {
        self.setup.redis_urls = redis_urls;
    }

    /// An instance that ended starts again, and aborts at a step that it passes `most` times
    /// before, at the most.
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

    /// Waits until something is so.
    pub async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_so() {
            assert!(Instant::now() < deadline, "not so in time: {what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets so many milliseconds pass, by lot.
    pub async fn pause(&mut self, least: u64, most: u64) {
        let millis = self.dice.between(least, most);
        sleep(Duration::from_millis(millis)).await;
    }

    /// Puts a policy at an instance.
    pub async fn put_policy(&self, instance: usize, policy: &str, body: Value) {
        put_policy(&self.urls[instance], policy, body).await;
    }

    /// Ends the load, with all servers up again: clients retry what is open, standing claims
    /// are sent again, and counters are given time to follow.
    pub async fn judge(self) -> Judge {
        let mut closing = self.load.end().await;
        if !closing.history().lost_parts.is_empty() {
            reconcile(&self.urls[0], &self.setup).await;
        }
        let healed = close(&mut closing, &self.setup, self.seed.number).await;
        Judge {
            seed: self.seed,
            instances: self.instances,
            _apps: self.apps,
            setup: self.setup,
            history: closing.history(),
            healed,
            _folder: self._folder,
        }
    }

    /// Ends the load, and sees that nothing is wrong.
    pub async fn end(self) {
        self.judge().await.finds_nothing().await;
    }
}

/// What is left when a trial has ended: who was told what, and what stands.
pub struct Judge {
    seed: Seed,
    instances: Vec<Instance>,
    _apps: Vec<App>,
    setup: Setup,
    history: History,
    healed: usize,
    _folder: TempDir,
}

impl Judge {
    /// What is wrong, as of now.
    pub async fn check(&self) -> Vec<Breach> {
        judge(&self.history, &read(&self.setup).await)
    }

    /// How often anything was asked.
    pub fn attempts(&self) -> usize {
        self.history.attempts.len()
    }

    /// Sees that each claim was decided at the second attempt at the latest.
    pub fn nobody_failed_twice(&self) {
        for attempts in self.history.by_wish() {
            let failures = attempts.iter().filter(|one| !one.outcome.is_known());
            assert!(
                failures.count() <= 1,
                "{attempts:?}\n{}",
                report::course(&self.history)
            );
        }
    }

    /// Sees that no instance logged this.
    pub fn logs_lack(&self, text: &str) {
        for instance in &self.instances {
            let log = fs::read_to_string(&instance.log).unwrap_or_default();
            assert!(!log.contains(text), "{log}");
        }
    }

    /// Sees that nothing is wrong, and tells what was measured.
    pub async fn finds_nothing(self) {
        let found = self.check().await;
        let mut breaches: Vec<String> = found
            .iter()
            .map(|breach| explain(breach, &self.history))
            .collect();
        for instance in &self.instances {
            let log = fs::read_to_string(&instance.log).unwrap_or_default();
            let panics = log.lines().filter(|line| line.contains("panicked"));
            breaches.extend(panics.map(str::to_owned));
        }
        let (name, number) = (self.seed.name, self.seed.number);
        let count = self.setup.places.len();
        let line = report::line(name, &self.history, count, self.healed, number);
        // Past the capture of the test harness: the figures are wanted also when all is well.
        let _ = writeln!(std::io::stderr(), "{line}");
        assert!(
            breaches.is_empty(),
            "{} breaches:\n{}\n{}",
            breaches.len(),
            breaches[..breaches.len().min(SHOWN_MOST)].join("\n"),
            report::course(&self.history)
        );
    }
}

async fn put_policies(url: &str, setup: &Setup) {
    for (policy, body) in &setup.policies {
        put_policy(url, policy, body.clone()).await;
    }
}

async fn put_policy(url: &str, policy: &str, mut body: Value) {
    body["reason"] = "a trial".into();
    let request = client()
        .put(format!("{url}/v1/policies/{policy}"))
        .bearer_auth(KEY);
    let answer = Answer::of(request.json(&body)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Corrects every counter, also those of accounts that the ledger lost.
async fn reconcile(url: &str, setup: &Setup) {
    let counters = match setup.redis_urls.is_empty() {
        true => "absent",
        false => "compared",
    };
    let request = client().post(format!("{url}/v1/reconciliations"));
    let request = request.bearer_auth(KEY).json(&json!({ "apply": true }));
    eventually("a reconciliation has ended", || async {
        let answer = Answer::of(request.try_clone().expect("a body in memory")).await;
        answer.status == StatusCode::CREATED && answer.json()["counters"] == counters
    })
    .await;
}

async fn read(setup: &Setup) -> Stores {
    Stores::read(&setup.database_url, &setup.redis_urls)
        .await
        .expect("the ledger can be read")
}

/// Sends standing claims again, and sees that the counters come to follow the ledger: by
/// themselves, or, where a settlement was lost, by one more claim. Returns how many needed it.
async fn close(closing: &mut Closing, setup: &Setup, seed: u64) -> usize {
    let mut stores = read(setup).await;
    let deadline = Instant::now() + DEADLINE;
    while !stores.others.is_empty() && Instant::now() < deadline {
        sleep(Duration::from_millis(100)).await;
        stores = read(setup).await;
    }
    closing.all_is_quiet();
    let history = closing.history();
    let standing = stores.entries.iter().filter_map(|entry| entry.wish);
    let mut standing: Vec<usize> = standing
        .filter(|wish| history.wishes.get(*wish).is_some_and(|wish| wish.has_key))
        .collect();
    let mut dice = Dice::new(seed);
    while standing.len() > REPEATS_MOST {
        standing.swap_remove(dice.below(standing.len()));
    }
    for wish in standing {
        closing.repeat(wish).await;
    }
    let deadline = Instant::now() + DEADLINE;
    let mut healed = None;
    loop {
        let drifted = settle(setup).await;
        let healed = *healed.get_or_insert(drifted.len());
        if drifted.is_empty() || Instant::now() > deadline {
            return healed;
        }
        for (policy, subject) in drifted {
            closing.claim(&policy, &subject).await;
        }
    }
}

/// Gives settlements the time that they may take. Returns the policies and subjects whose
/// counters still are not their account's last line.
async fn settle(setup: &Setup) -> Vec<(String, String)> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    loop {
        let stores = read(setup).await;
        let last = stores.last_entries();
        let drifted = stores.drifted();
        if drifted.is_empty() || Instant::now() > deadline {
            return drifted
                .iter()
                .filter_map(|counter| last.get(&counter.account))
                .map(|entry| (entry.policy.clone(), entry.subject.clone()))
                .collect();
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A breach, with all that happened to its claim.
fn explain(breach: &Breach, history: &History) -> String {
    let wish = breach.wish();
    let mut text = format!("{breach:?}");
    let attempts = history.attempts.iter();
    for attempt in attempts.filter(|attempt| Some(attempt.wish) == wish) {
        text.push_str(&format!("\n    {attempt:?}"));
    }
    text
}

/// What chance begins with. Says how to repeat a trial that failed.
pub struct Seed {
    pub name: &'static str,
    pub number: u64,
    /// The command that repeats it.
    pub again: String,
}

impl Seed {
    /// The one that `PERDIEM_FAULTS_SEED` names, or a new one.
    pub fn choose(name: &'static str) -> Self {
        let named = std::env::var("PERDIEM_FAULTS_SEED");
        let number = named.map_or_else(
            |_| getrandom::u64().expect("the system has randomness") % 1_000_000_000,
            |text| text.parse().expect("PERDIEM_FAULTS_SEED is a number"),
        );
        let filter = name.split(' ').next().unwrap_or_default();
        Self {
            name,
            number,
            again: format!("PERDIEM_FAULTS_SEED={number} scripts/test {filter}"),
        }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "to run {} again: {}",
                self.name,
                self.again
            );
        }
    }
}
