//! The end of a trial: counters come to follow the ledger, and the judge looks at what is left.

use std::io::Write;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::sleep;

use super::load::Closing;
use super::report;
use super::seed::Seed;
use super::setup::{DEADLINE, Instance, Setup};
use crate::judge::{Breach, History, Stores, judge};
use crate::support::app::{Answer, App, KEY, client, eventually};
use crate::support::dice::Dice;

/// How long settlements may be under way.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);
/// How many committed claims are sent again in the end.
const REPEATS_MOST: usize = 250;
/// How many breaches are shown.
const SHOWN_MOST: usize = 12;

/// What is left when a trial has ended: what clients were told, and where the stores are.
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
            let log = instance.logged();
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
            let log = instance.logged();
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

/// Corrects every counter, also those of accounts that the ledger lost.
pub async fn reconcile(url: &str, setup: &Setup) {
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
pub async fn close(closing: &mut Closing, setup: &Setup, seed: u64) -> usize {
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
