//! Random histories through HTTP, against a plain model that sums entries.
//!
//! Redis is tampered with all the while: its counters are lost, set too high, set back to
//! what they were, or overwritten with junk. None of that may change an answer.
//!
//! `PERDIEM_HISTORIES=10` plays ten times as many.

mod checks;
mod plain;
mod steps;
mod tampering;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::grant::GrantState;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::judge::Kind;
use crate::support::app::{Answer, NOON, Stack, instant, on_every_stack};
use crate::support::crowd::Fleet;
use checks::{Checked, is_problem};
use plain::{Model, counted_at};
use steps::{Claim, OverrideChoice, RuleChoice, SUBJECTS, Step, steps};
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
    model: Model,
    tamperer: Option<Tamperer>,
}

impl Play {
    async fn begin(stack: Stack) -> Self {
        let fleet = Fleet::start(stack, instant(NOON)).await;
        let tamperer = Tamperer::new(&fleet).await;
        let mut play = Self {
            fleet,
            model: Model::default(),
            tamperer,
        };
        play.put(RuleChoice::FIRST, false).await.expect("it is put");
        play
    }

    /// Puts the policy, and lets every instance know.
    async fn put(&mut self, choice: RuleChoice, waits: bool) -> Checked {
        let now = self.fleet.clock.now();
        let app = self.fleet.app(0);
        let answer = app.put_policy("benefit", choice.body(waits)).await;
        match self.model.put(choice, waits, now) {
            Some(effective_at) => {
                prop_assert!(answer.status.is_success(), "{:?}", answer);
                let told = answer.json()["effective_at"].clone();
                let told: DateTime<Utc> =
                    told.as_str().expect("a text").parse().expect("an instant");
                prop_assert_eq!(told, effective_at);
            }
            None => is_problem(answer.status.as_u16(), &answer.json(), 422, "invalid")?,
        }
        self.fleet.everybody_knows_all().await;
        Ok(())
    }

    async fn archive(&mut self) -> Checked {
        let path = "/v1/policies/benefit?reason=a+test";
        let answer = Answer::of(self.fleet.apps[0].request(Method::DELETE, path)).await;
        let expected = if self.model.archive(self.fleet.clock.now()) {
            200
        } else {
            404
        };
        prop_assert_eq!(answer.status.as_u16(), expected, "{:?}", answer);
        self.fleet.everybody_knows_all().await;
        Ok(())
    }

    async fn put_override(&mut self, subject: usize, choice: OverrideChoice) -> Checked {
        let now = self.fleet.clock.now();
        let until = choice
            .seconds
            .map(|seconds| now + TimeDelta::seconds(seconds));
        let body = json!({
            "limits": [{ "max": choice.max, "per": choice.per.as_str() }],
            "until": until,
            "reason": "a test",
        });
        let app = self.fleet.app(0);
        let answer = app.put_override(&subject_text(subject), body).await;
        match self.model.put_override(subject, choice, until) {
            Ok(()) => prop_assert!(answer.status.is_success(), "{:?}", answer),
            Err(kind) => {
                let status = if kind == "invalid" { 422 } else { 404 };
                is_problem(answer.status.as_u16(), &answer.json(), status, kind)?;
            }
        }
        self.fleet.everybody_knows_all().await;
        Ok(())
    }

    async fn delete_override(&mut self, subject: usize) -> Checked {
        let app = self.fleet.app(0);
        let answer = app.delete_override(&subject_text(subject)).await;
        match self.model.delete_override(subject) {
            Ok(()) => prop_assert!(answer.status.is_success(), "{:?}", answer),
            Err(kind) => is_problem(answer.status.as_u16(), &answer.json(), 404, kind)?,
        }
        self.fleet.everybody_knows_all().await;
        Ok(())
    }

    async fn claim(&mut self, number: usize, claim: Claim) -> Result<StatusCode, TestCaseError> {
        let key = key_text(claim.key);
        let app = self.fleet.app(number);
        let answer = app.claim_body(claim.body(), key.as_deref()).await;
        self.model.claim(claim, self.fleet.clock.now(), &answer)?;
        Ok(answer.status)
    }

    async fn claim_together(&mut self, number: usize, claims: &[Claim]) -> Checked {
        let claim = |claim: &Claim| {
            let mut body = claim.body();
            body["policy"] = json!("benefit");
            body["idempotency_key"] = json!(key_text(claim.key));
            body
        };
        let bodies: Vec<Value> = claims.iter().map(claim).collect();
        let app = self.fleet.app(number);
        let request = app.request(Method::POST, "/v1/claims");
        let answer = Answer::of(request.json(&json!({ "claims": bodies, "atomic": true }))).await;
        let now = self.fleet.clock.now();
        self.model.claim_together(claims, now, &answer)
    }

    /// One of the grants; none before the first.
    fn choose(&self, index: Index) -> Option<usize> {
        let grants = self.model.grants.len();
        (grants > 0).then(|| index.index(grants))
    }

    async fn step(&mut self, number: usize, step: Step) -> Checked {
        let now = self.fleet.clock.now();
        let app = self.fleet.app(number);
        match step {
            Step::Claim(claim) => {
                self.claim(number, claim).await?;
            }
            Step::Rehearse(claim) => {
                let mut body = claim.body();
                body["dry_run"] = json!(true);
                let key = key_text(claim.key);
                let answer = app.claim_body(body, key.as_deref()).await;
                self.model.check_rehearsal(claim, now, &answer)?;
            }
            Step::ClaimTogether(claims) => self.claim_together(number, &claims).await?,
            Step::Reverse(index) => match self.choose(index) {
                Some(place) => {
                    let reason = format!("step {number}");
                    let answer = app.reverse(&self.model.grants[place].id, &reason).await;
                    self.model.reverse(place, now, &answer)?;
                }
                None => {
                    let answer = app.reverse(NOBODYS, "x").await;
                    prop_assert_eq!(answer.status, StatusCode::NOT_FOUND);
                }
            },
            Step::Confirm(index) => match self.choose(index) {
                Some(place) => {
                    let answer = app.confirm(&self.model.grants[place].id).await;
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
                self.model.check_usage(subject, now, &usage)?;
            }
            Step::Grant(index) => {
                if let Some(place) = self.choose(index) {
                    let path = format!("/v1/grants/{}", self.model.grants[place].id);
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
            Step::Rule { choice, waits } => self.put(choice, waits).await?,
            Step::Archive => self.archive().await?,
            Step::Override { subject, choice } => self.put_override(subject, choice).await?,
            Step::DeleteOverride { subject } => self.delete_override(subject).await?,
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
    async fn end(&mut self) -> Checked {
        self.fleet.clock.advance(TimeDelta::seconds(10));
        self.put(RuleChoice::FIRST, false).await?;
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
        let stores = self.fleet.finds_nothing().await;
        let grants = stores.of_kind(Kind::Grant).count();
        prop_assert_eq!(grants, self.model.grants.len());
        Ok(())
    }
}

async fn play(stack: Stack, steps: Vec<Step>) -> Checked {
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
    let more = std::env::var("PERDIEM_HISTORIES").ok();
    let more: u32 = more.map_or(1, |more| more.parse().expect("a number"));
    let handle = tokio::runtime::Handle::current();
    let played = tokio::task::spawn_blocking(move || {
        let config = Config {
            cases: cases * more,
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
