//! Random histories through HTTP, against a plain model that sums entries.
//!
//! Redis is tampered with all the while: its counters are lost, set too high, set back to
//! what they were, or overwritten with junk. None of that may change an answer.

mod plain;
mod steps;
mod tampering;

use chrono::TimeDelta;
use perdiem::domain::grant::GrantState;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use reqwest::StatusCode;
use serde_json::json;

use crate::support::app::{NOON, Stack, instant, on_every_stack};
use crate::support::books::Books;
use crate::support::crowd::Fleet;
use plain::{Model, counted_at};
use steps::{Claim, RuleChoice, SUBJECTS, Step, steps};
use tampering::Tamperer;

on_every_stack!(random_histories_are_what_the_model_says);

/// A grant that nobody was given.
const NOBODYS: &str = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";

fn subject_text(subject: usize) -> String {
    format!("member-{subject}")
}

fn key_text(key: Option<usize>) -> Option<String> {
    key.map(|key| format!("order-{key}"))
}

/// A history on real servers, beside the model.
struct Play {
    fleet: Fleet,
    books: Books,
    model: Model,
    tamperer: Option<Tamperer>,
}

impl Play {
    async fn begin(stack: Stack) -> Self {
        let fleet = Fleet::start(stack, instant(NOON)).await;
        let books = Books::open(&fleet.ground).await;
        let tamperer = Tamperer::new(&fleet, &books).await;
        let mut play = Self {
            fleet,
            books,
            model: Model::new(RuleChoice::FIRST.rule()),
            tamperer,
        };
        play.put(RuleChoice::FIRST).await;
        play
    }

    async fn put(&mut self, choice: RuleChoice) {
        let answer = self.fleet.apps[0].put_policy("benefit", choice.body());
        let answer = answer.await;
        assert!(answer.status.is_success(), "{answer:?}");
        let version = answer.json()["version"].as_u64().expect("a version");
        self.fleet.everybody_knows(version).await;
        self.model.rule = choice.rule();
    }

    async fn claim(&mut self, number: usize, claim: Claim) -> Result<StatusCode, TestCaseError> {
        let body = json!({
            "subject": subject_text(claim.subject),
            "units": claim.units,
            "hold_seconds": claim.hold_seconds,
        });
        let key = key_text(claim.key);
        let app = self.fleet.app(number);
        let answer = app.claim_body(body, key.as_deref()).await;
        self.model.claim(claim, self.fleet.clock.now(), &answer)?;
        Ok(answer.status)
    }

    /// One of the grants; none before the first.
    fn choose(&self, index: Index) -> Option<usize> {
        let grants = self.model.grants();
        (grants > 0).then(|| index.index(grants))
    }

    async fn step(&mut self, number: usize, step: Step) -> Result<(), TestCaseError> {
        let now = self.fleet.clock.now();
        let app = self.fleet.app(number);
        match step {
            Step::Claim(claim) => {
                self.claim(number, claim).await?;
            }
            Step::Reverse(index) => match self.choose(index) {
                Some(place) => {
                    let reason = format!("step {number}");
                    let answer = app.reverse(self.model.id(place), &reason).await;
                    self.model.reverse(place, now, &answer)?;
                }
                None => {
                    let answer = app.reverse(NOBODYS, "x").await;
                    prop_assert_eq!(answer.status, StatusCode::NOT_FOUND);
                }
            },
            Step::Confirm(index) => match self.choose(index) {
                Some(place) => {
                    let answer = app.confirm(self.model.id(place)).await;
                    self.model.confirm(place, now, &answer)?;
                }
                None => {
                    let answer = app.confirm(NOBODYS).await;
                    prop_assert_eq!(answer.status, StatusCode::NOT_FOUND);
                }
            },
            Step::Adjust(adjustment) => {
                let body = json!({
                    "units": adjustment.units,
                    "at": counted_at(adjustment, now),
                    "reason": "by hand",
                });
                let (subject, key) = (subject_text(adjustment.subject), key_text(adjustment.key));
                let answer = app.adjust(&subject, body, key.as_deref()).await;
                self.model.adjust(adjustment, now, &answer)?;
            }
            Step::Usage { subject } => {
                let path = format!("/v1/policies/benefit/subjects/{}", subject_text(subject));
                let usage = app.get(&path).await;
                self.model.check_usage(subject, now, &usage.json())?;
            }
            Step::Grant(index) => {
                if let Some(place) = self.choose(index) {
                    let path = format!("/v1/grants/{}", self.model.id(place));
                    let answer = app.get(&path).await;
                    self.model.check_grant(place, now, &answer.json())?;
                }
            }
            Step::List { state } => {
                let state = GrantState::ALL[state].as_str();
                let path = format!("/v1/grants?policy=benefit&state={state}&limit=1000");
                let answer = app.get(&path).await;
                self.model.check_list(state, now, &answer.json())?;
            }
            Step::Rule(choice) => self.put(choice).await,
            Step::Wait { seconds } => self.fleet.clock.advance(TimeDelta::seconds(seconds)),
            Step::Tamper(tampering) => {
                if let Some(tamperer) = &mut self.tamperer {
                    tamperer.tamper(tampering, now).await;
                    let doubtful_until = tamperer.doubtful_until(tampering);
                    self.model.doubtful_until = self.model.doubtful_until.max(doubtful_until);
                }
            }
        }
        Ok(())
    }

    /// A claim at each subject heals its counter, whatever was done to it: each is asked for more
    /// than fits, since a denial is confirmed too. Then all books are equal.
    async fn end(&mut self) -> Result<(), TestCaseError> {
        self.fleet.clock.advance(TimeDelta::seconds(10));
        for subject in 0..SUBJECTS {
            let claim = Claim {
                subject,
                units: 1,
                hold_seconds: None,
                key: None,
            };
            while self.claim(subject, claim).await? == StatusCode::CREATED {}
            let path = format!(
                "/v1/policies/benefit/subjects/{}/entries?limit=1000",
                subject_text(subject)
            );
            let entries = self.fleet.app(subject).get(&path).await;
            self.model.check_entries(subject, &entries.json())?;
        }
        let accounts = self.books.audit().await;
        let grants: usize = accounts.values().map(Vec::len).sum();
        prop_assert_eq!(grants, self.model.grants());
        self.books.counters_follow().await;
        Ok(())
    }
}

async fn play(stack: Stack, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut play = Play::begin(stack).await;
    for (number, step) in steps.into_iter().enumerate() {
        let played = play.step(number, step).await;
        played.map_err(|error| TestCaseError::fail(format!("step {number}: {error}")))?;
    }
    play.end().await
}

async fn random_histories_are_what_the_model_says(stack: Stack) {
    let cases = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => 24,
        Stack::Postgres | Stack::RedisAndPostgres => 6,
    };
    let handle = tokio::runtime::Handle::current();
    let played = tokio::task::spawn_blocking(move || {
        let config = Config {
            cases,
            max_shrink_iters: 60,
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new(config);
        runner.run(&steps(), |steps| handle.block_on(play(stack, steps)))
    });
    if let Err(error) = played.await.expect("it is played") {
        panic!("{error}");
    }
}
