//! The setup of a trial: stores, instances, policies and habits of clients.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load::Habits;
use crate::support::app::{Answer, KEY, client};
use crate::support::dice::Dice;
use crate::support::process::Process;
use crate::support::servers::free_port;

/// The longest wait for a condition, on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The stores of an instance.
#[derive(Debug, Clone)]
pub struct Place {
    pub database_url: String,
    pub redis_url: Option<String>,
}

/// The setup of a trial.
#[derive(Debug, Clone)]
pub struct Setup {
    /// One place for each instance.
    pub places: Vec<Place>,
    /// The ledger, without a proxy.
    pub database_url: String,
    /// The Redis servers whose counters are checked at the end, without a proxy.
    pub redis_urls: Vec<String>,
    pub settings: Vec<(String, String)>,
    pub habits: Habits,
    /// The policies of the claims.
    pub policies: Vec<(&'static str, Value)>,
    /// Whether an admin enters something by hand, beside the clients.
    pub has_admin: bool,
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
            has_admin: false,
            habits: Habits::default(),
            policies: vec![
                ("benefit", daily()),
                ("sms", by_the_minute()),
                ("codes", one_by_one()),
                ("visits", from_the_first()),
            ],
        }
    }

    /// Sets a variable in the environment of the instances.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }
}

/// A rule of five a day.
pub fn daily() -> Value {
    let limits = json!([{ "max": 5, "per": "day" }, { "max": 8, "per": "month" }]);
    json!({ "time_zone": "+08:00", "limits": limits })
}

/// A rule that denies no claim.
pub fn roomy() -> Value {
    let limits = json!([{ "max": 1_000_000, "per": "day" }]);
    json!({ "time_zone": "+08:00", "limits": limits })
}

/// A rule of three a minute.
pub fn by_the_minute() -> Value {
    let limits = json!([{ "max": 3, "per": "minute" }, { "max": 7, "per": "hour" }]);
    json!({ "time_zone": "+08:00", "limits": limits })
}

/// A rule with two limits. The units of one limit return one by one, before the clients leave their
/// subject for good. The other limit is nine in all.
pub fn one_by_one() -> Value {
    json!({ "time_zone": "+08:00", "limits": [
        { "max": 4, "per": "2s", "kind": "sliding" },
        { "max": 2, "per": "1s", "kind": "rate", "burst": 3 },
        { "max": 9, "per": "ever" },
    ] })
}

/// A rule whose units return in the order of the claims: a whole window at once, and step by step.
pub fn from_the_first() -> Value {
    json!({ "time_zone": "+08:00", "limits": [
        { "max": 3, "per": "1s", "kind": "from_first_claim" },
        { "max": 8, "per": "3s", "kind": "sliding", "step": "1s" },
    ] })
}

/// A rule for each member's own calendar, with windows that zones divide in different ways.
pub fn of_members() -> Value {
    json!({
        "time_zone": "UTC",
        "calendar": "first_grant",
        "limits": [{ "max": 3, "per": "hour" }, { "max": 5, "per": "week" }],
        "tiers": [{ "name": "gold", "limits": [{ "max": 6, "per": "hour" }, { "max": 9, "per": "week" }] }],
    })
}

/// A rule with a total of all subjects, which is used up after some seconds.
pub fn of_the_crowd() -> Value {
    json!({
        "time_zone": "+08:00",
        "limits": [{ "max": 2, "per": "day" }],
        "total": [{ "max": 200, "per": "day" }],
    })
}

/// A rule with one or two limits of any kind.
pub fn of_any_kind(dice: &mut Dice) -> Value {
    let max = dice.between(2, 7);
    let kinds = [
        json!({ "max": max, "per": "day" }),
        json!({ "max": max, "per": "ever" }),
        json!({ "max": max, "per": "1s", "kind": "from_first_claim" }),
        json!({ "max": max, "per": "2s", "kind": "sliding" }),
        json!({ "max": max, "per": "3s", "kind": "sliding", "step": "1s" }),
        json!({ "max": max, "per": "4s", "kind": "rate", "burst": dice.between(2, 9) }),
    ];
    let first = dice.below(kinds.len());
    let second = dice.below(kinds.len());
    let mut limits = vec![kinds[first].clone()];
    if second != first {
        limits.push(kinds[second].clone());
    }
    json!({ "time_zone": "+05:30", "limits": limits })
}

/// A rule with one more field.
pub fn with(mut rule: Value, field: &str, value: &str) -> Value {
    rule[field] = json!(value);
    rule
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
    pub fn start(place: &Place, settings: &[(String, String)], log: PathBuf) -> Self {
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

    /// The content of its log.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Starts the instance again after it ended. `settings` apply to this start only.
    pub fn start_again(&mut self, settings: &[(&str, &str)]) {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings: Vec<_> = self.settings.iter().cloned().chain(settings).collect();
        self.process = launch(&self.place, self.port, &settings, &self.log);
    }
}

/// Starts an instance. Tries again while another program's connection has the port.
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

pub async fn put_policies(url: &str, setup: &Setup) {
    for (policy, body) in &setup.policies {
        put_policy(url, policy, body.clone()).await;
    }
}

pub async fn put_policy(url: &str, policy: &str, mut body: Value) {
    body["reason"] = "a trial".into();
    let request = client()
        .put(format!("{url}/v1/policies/{policy}"))
        .bearer_auth(KEY);
    let answer = Answer::of(request.json(&body)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}
