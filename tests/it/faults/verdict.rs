//! The end of a trial: counters follow the ledger, and the judge checks the stores.

use std::io::Write;
use std::time::{Duration, Instant};

use perdiem::host::clock::Clock;
use reqwest::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::load::Closing;
use super::report;
use super::seed::Seed;
use super::setup::{DEADLINE, Instance, Setup};
use crate::judge::{Breach, History, Stores, judge};
use crate::support::app::{Answer, App, KEY, client};
use crate::support::dice::Dice;
use crate::support::quiet::one_story;
use crate::support::waiting::eventually_within;

/// The longest time of open settlements.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);
/// The most committed claims that are sent again at the end.
const REPEATS_MOST: usize = 250;
/// The most breaches that are printed.
const SHOWN_MOST: usize = 12;

/// An ended trial: the history, and the places of the stores.
pub struct Ended {
    pub seed: Seed,
    pub instances: Vec<Instance>,
    pub _apps: Vec<App>,
    pub setup: Setup,
    pub history: History,
    pub healed: usize,
    pub _folder: TempDir,
}

impl Ended {
    /// The breaches at this moment.
    pub async fn check(&self) -> Vec<Breach> {
        judge(&self.history, &read(&self.setup).await)
    }

    /// Asserts that each claim was decided at the first or second attempt.
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

    /// Asserts that no instance logged this.
    pub fn logs_lack(&self, text: &str) {
        for instance in &self.instances {
            let log = instance.logged();
            assert!(!log.contains(text), "{log}");
        }
    }

    /// As [`Ended::finds_nothing`]. Then the statistics tell the same as the entries, in the table and
    /// at each instance.
    pub async fn tells_one_story(self) {
        let instances = self.instances.iter().map(|one| one.process.url.as_str());
        let urls: Vec<&str> = instances.collect();
        one_story(&self.setup.database_url, &urls, &Clock::system()).await;
        self.finds_nothing().await;
    }

    /// Asserts that there is no breach, and prints the measurements.
    pub async fn finds_nothing(self) {
        let found = self.check().await;
        let mut breaches: Vec<String> = found
            .iter()
            .map(|breach| explain(breach, &self.history))
            .collect();
        for instance in &self.instances {
            let log = instance.logged();
            let panics = log.lines().filter(|line| line.contains("panicked"));
            breaches.extend(panics.map(str::to_owned));
        }
        let name = self.seed.name;
        let number = self.seed.number;
        let count = self.setup.places.len();
        let line = report::line(name, &self.history, count, self.healed, number);
        // The line bypasses the capture of the test harness, so that the measurements of a
        // successful trial are visible.
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

/// Corrects every counter, also the counters of accounts that the ledger lost.
pub async fn reconcile(url: &str, setup: &Setup) {
    let counters = if setup.redis_urls.is_empty() {
        "absent"
    } else {
        "compared"
    };
    let request = client().post(format!("{url}/v1/reconciliations"));
    let request = request.bearer_auth(KEY).json(&json!({ "apply": true }));
    // Another one may still wait for an answer that was lost.
    eventually_within(
        Duration::from_secs(90),
        "a reconciliation has ended",
        || async {
            let answer = Answer::of(request.try_clone().expect("a body in memory")).await;
            // Shown where it does not end.
            println!("{} {}", answer.status, answer.text);
            answer.status == StatusCode::CREATED && answer.json()["counters"] == counters
        },
    )
    .await;
}

async fn read(setup: &Setup) -> Stores {
    Stores::read(&setup.database_url, &setup.redis_urls)
        .await
        .expect("the ledger can be read")
}

/// Waits until every hold has lapsed. Sends committed claims again, and asserts that the counters follow
/// the ledger. After a lost settlement, one more claim corrects a counter. Returns how many counters needed one.
pub async fn close(closing: &mut Closing, setup: &Setup, seed: u64) -> usize {
    let mut stores = read(setup).await;
    let deadline = Instant::now() + DEADLINE;
    let is_quiet = |stores: &Stores| stores.others.is_empty() && !stores.has_open_holds();
    while !is_quiet(&stores) && Instant::now() < deadline {
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

/// Waits for open settlements. Returns the policies and subjects whose counters still differ from
/// their account's last line.
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

/// A breach, with the history of its claim.
fn explain(breach: &Breach, history: &History) -> String {
    let wish = breach.wish();
    let mut text = format!("{breach:?}");
    let attempts = history.attempts.iter();
    for attempt in attempts.filter(|attempt| Some(attempt.wish) == wish) {
        text.push_str(&format!("\n    {attempt:?}"));
    }
    text
}
