//! Random histories through HTTP, compared with a plain model of their entries.
//!
//! A history is a list of numbers. Each number selects one step: a claim, a correction, a change of
//! the policy, a pause, or a change in Redis. `Play` executes the step on real servers and in the
//! model (`plain`), and `checks` compares the answer with the model. At the end, the judge checks
//! the ledger and the counters, the service must explain each answer again (`explained`), and the
//! statistics, the usage and the entries must tell one story. The instances record lapses during the
//! history: no answer may depend on when they do.
//!
//! `tampering` changes Redis during the history: counters are lost, too high, rolled back, or
//! overwritten with junk. None of these changes may alter an answer. Read `play` first, then
//! `Play::step`.
//!
//! `PERDIEM_HISTORIES=10` plays ten times as many histories. A failure prints its numbers, and
//! `PERDIEM_HISTORY=1,2,3` plays that one history.

mod checks;
mod entries;
mod explained;
mod limits;
mod plain;
mod steps;
mod tampering;
mod top_ups;
mod totals;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use perdiem::domain::grant::GrantState;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::judge::Kind;
use crate::support::app::{Answer, NOON, Stack, instant, on_every_stack};
use crate::support::crowd::Fleet;
use crate::support::dice::Dice;
use checks::{Checked, is_problem};
use explained::Answers;
use plain::{Model, counted_at};
use steps::{
    Adjustment, Claim, Move, OverrideChoice, Reset, RuleChoice, SUBJECTS, TierChoice, TopUpChoice,
    calendar_body, draw_key, draw_subject,
};
use tampering::Tamperer;

on_every_stack!(random_histories_are_what_the_model_says);

/// The id of a grant that does not exist.
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
    answers: Answers,
    /// The steps that were executed, for the message of a failure.
    course: Vec<String>,
}

/// An action on a grant.
#[derive(Debug, Clone, Copy)]
enum Follow {
    Reverse,
    ReverseOne,
    /// These units, or all that are left.
    Confirm(Option<u64>),
    Look,
}

impl Play {
    async fn begin(stack: Stack) -> Self {
        let fleet = Fleet::start_sweeping(stack, instant(NOON)).await;
        let tamperer = Tamperer::new(&fleet).await;
        let answers = Answers::of(&fleet.ground).await;
        let mut play = Self {
            fleet,
            model: Model::default(),
            tamperer,
            answers,
            course: Vec::new(),
        };
        play.put(RuleChoice::FIRST, false).await.expect("a policy");
        play
    }

    fn note(&mut self, what: String) {
        self.course.push(what);
    }

    /// A moment passes before a change of the policy. So the change is after each earlier entry, whose
    /// local day it must not change: the entry may be in the statistics already.
    fn moment_passes(&self) {
        self.fleet.clock.advance(TimeDelta::microseconds(1));
    }

    /// Puts the policy, and waits until every instance knows it.
    async fn put(&mut self, choice: RuleChoice, waits: bool) -> Checked {
        self.moment_passes();
        // A total moves only at once.
        let has_total = |choice: &RuleChoice| choice.total.is_some();
        let had_total = self
            .model
            .versions
            .last()
            .is_some_and(|version| has_total(&version.choice));
        let waits = waits && !had_total && !has_total(&choice);
        self.note(format!("put {choice:?}, waits: {waits}"));
        let now = self.fleet.clock.now();
        let choice = self.model.with_pause(choice, now);
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

    async fn pause(&mut self, is_paused: bool) -> Checked {
        self.moment_passes();
        self.note(format!("paused: {is_paused}"));
        let answer = self.fleet.apps[0].pause(is_paused).await;
        let expected = self.model.pause(is_paused, self.fleet.clock.now());
        prop_assert_eq!(answer.status.as_u16(), expected, "{:?}", answer);
        self.fleet.everybody_knows_all().await;
        Ok(())
    }

    async fn archive(&mut self) -> Checked {
        self.moment_passes();
        self.note("archive".to_owned());
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

    /// Compares the answer to a change of an exception with the model's, and waits until every instance knows it.
    async fn changes(&self, answer: &Answer, expected: Result<(), &'static str>) -> Checked {
        match expected {
            Ok(()) => prop_assert!(answer.status.is_success(), "{:?}", answer),
            Err(kind) => {
                let status = if kind == "invalid" { 422 } else { 404 };
                is_problem(answer.status.as_u16(), &answer.json(), status, kind)?;
            }
        }
        self.fleet.everybody_knows_all().await;
        Ok(())
    }

    async fn put_override(&mut self, subject: usize, choice: OverrideChoice) -> Checked {
        self.note(format!("{subject}: {choice:?}"));
        let now = self.fleet.clock.now();
        let until = choice
            .seconds
            .map(|seconds| now + TimeDelta::seconds(seconds));
        let body = json!({
            "limits": [{ "max": choice.max, "per": choice.per() }],
            "until": until,
            "reason": "a test",
        });
        let app = self.fleet.app(0);
        let answer = app.put_override(&subject_text(subject), body).await;
        let expected = self.model.put_override(subject, choice, until, now);
        self.changes(&answer, expected).await
    }

    async fn delete_override(&mut self, subject: usize) -> Checked {
        self.note(format!("{subject}: delete the override"));
        let app = self.fleet.app(0);
        let answer = app.delete_override(&subject_text(subject)).await;
        let expected = self.model.delete_override(subject);
        self.changes(&answer, expected).await
    }

    async fn put_tier(&mut self, subject: usize, choice: TierChoice) -> Checked {
        self.note(format!("{subject}: {choice:?}"));
        let now = self.fleet.clock.now();
        let until = choice
            .seconds
            .map(|seconds| now + TimeDelta::seconds(seconds));
        let app = self.fleet.app(0);
        let answer = app
            .put_tier(&subject_text(subject), choice.tier, until)
            .await;
        let expected = self.model.put_tier(subject, choice.tier, until, now);
        self.changes(&answer, expected).await
    }

    async fn end_tier(&mut self, subject: usize) -> Checked {
        self.note(format!("{subject}: end the tier"));
        let answer = self.fleet.app(0).end_tier(&subject_text(subject)).await;
        let expected = self.model.end_tier(subject);
        self.changes(&answer, expected).await
    }

    async fn claim(&mut self, number: usize, claim: Claim) -> Result<StatusCode, TestCaseError> {
        let claim = self.model.fit(claim, self.fleet.clock.now());
        self.note(format!("{claim:?}"));
        let key = key_text(claim.key);
        let app = self.fleet.app(number);
        let answer = app.claim_body(claim.body(), key.as_deref()).await;
        let now = self.fleet.clock.now();
        self.model.claim(claim, now, &answer)?;
        if !self.model.is_doubtful(now) {
            self.answers.take(claim, now, &answer).await;
        }
        Ok(answer.status)
    }

    /// Claims an atomic batch, as one claim if it has a key.
    async fn claim_together(
        &mut self,
        number: usize,
        claims: &[Claim],
        key: Option<usize>,
    ) -> Checked {
        let now = self.fleet.clock.now();
        let claims = claims.iter().map(|claim| Claim {
            key: claim.key.filter(|_| key.is_none()),
            ..self.model.fit(*claim, now)
        });
        let claims: &[Claim] = &claims.collect::<Vec<_>>();
        self.note(format!("together: {claims:?}, key: {key:?}"));
        let claim = |claim: &Claim| {
            let mut body = claim.body();
            body["policy"] = json!("benefit");
            body["idempotency_key"] = json!(key_text(claim.key));
            body
        };
        let bodies: Vec<Value> = claims.iter().map(claim).collect();
        let app = self.fleet.app(number);
        let request = app.request(Method::POST, "/v1/claims");
        let request = match key {
            Some(key) => request.header("Idempotency-Key", format!("bundle-{key}")),
            None => request,
        };
        let answer = Answer::of(request.json(&json!({ "claims": bodies, "atomic": true }))).await;
        let now = self.fleet.clock.now();
        self.model.claim_together(claims, key, now, &answer)
    }

    async fn rehearse(&mut self, number: usize, claim: Claim) -> Checked {
        let claim = self.model.fit(claim, self.fleet.clock.now());
        self.note(format!("rehearse {claim:?}"));
        let mut body = claim.body();
        body["dry_run"] = json!(true);
        let app = self.fleet.app(number);
        let key = key_text(claim.key);
        let answer = app.claim_body(body, key.as_deref()).await;
        let now = self.fleet.clock.now();
        self.model.check_rehearsal(claim, now, &answer)
    }

    async fn adjust(&mut self, number: usize, adjustment: Adjustment) -> Checked {
        self.note(format!("{adjustment:?}"));
        let now = self.fleet.clock.now();
        let body = json!({
            "units": adjustment.units,
            "at": counted_at(adjustment, now),
            "reason": "by hand",
        });
        let subject = subject_text(adjustment.subject);
        let key = key_text(adjustment.key);
        let app = self.fleet.app(number);
        let answer = app.adjust(&subject, body, key.as_deref()).await;
        self.model.adjust(adjustment, now, &answer)
    }

    async fn reset(&mut self, number: usize, reset: Reset) -> Checked {
        // The reset is later than each earlier entry.
        self.moment_passes();
        self.note(format!("{reset:?}"));
        let now = self.fleet.clock.now();
        let subject = subject_text(reset.subject);
        let key = key_text(reset.key);
        let app = self.fleet.app(number);
        let answer = app.reset(&subject, reset.per, key.as_deref()).await;
        self.model.reset(reset, now, &answer)
    }

    async fn move_calendar(&mut self, number: usize, moved: Move) -> Checked {
        self.note(format!("{moved:?}"));
        let now = self.fleet.clock.now();
        let subject = subject_text(moved.subject);
        let path = format!("/v1/policies/benefit/subjects/{subject}/calendar");
        let mut body = calendar_body(moved.calendar);
        body["reason"] = json!("a move");
        let request = self.fleet.app(number).request(Method::POST, &path);
        let request = match key_text(moved.key) {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        let answer = Answer::of(request.json(&body)).await;
        self.model.move_calendar(moved, now, &answer)
    }

    async fn top_up(&mut self, number: usize, choice: TopUpChoice) -> Checked {
        self.note(format!("{choice:?}"));
        let now = self.fleet.clock.now();
        let until = choice
            .until(now)
            .to_rfc3339_opts(SecondsFormat::Micros, true);
        let subject = subject_text(choice.subject);
        let path = format!("/v1/policies/benefit/subjects/{subject}/top-ups");
        let body = json!({ "units": choice.units, "until": until, "reason": "a top-up" });
        let request = self.fleet.app(number).request(Method::POST, &path);
        let request = match key_text(choice.key) {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        let answer = Answer::of(request.json(&body)).await;
        self.model.top_up(choice, now, &answer)
    }

    async fn end_top_up(&mut self, number: usize, dice: &mut Dice) -> Checked {
        let given = &self.model.top_ups;
        if given.is_empty() {
            return Ok(());
        }
        let place = dice.below(given.len());
        let now = self.fleet.clock.now();
        let subject = subject_text(given[place].choice.subject);
        let id = given[place].answer["id"].as_str().expect("an id");
        let path = format!("/v1/policies/benefit/subjects/{subject}/top-ups/{id}/reversal");
        self.note(format!("end the top-up {place}"));
        let request = self.fleet.app(number).request(Method::POST, &path);
        let answer = Answer::of(request.json(&json!({ "reason": "an end" }))).await;
        self.model.end_top_up(place, now, &answer)
    }

    /// Reverses, confirms or reads one of the grants. Before the first grant, the request names no
    /// grant.
    async fn follow(&mut self, number: usize, what: Follow, dice: &mut Dice) -> Checked {
        let app = self.fleet.app(number);
        let now = self.fleet.clock.now();
        let grants = &self.model.grants;
        let place = (!grants.is_empty()).then(|| dice.below(grants.len()));
        let id = place.map_or(NOBODYS.to_owned(), |place| grants[place].id.clone());
        self.note(format!("{what:?} {place:?}"));
        let answer = match what {
            Follow::Reverse => app.reverse(&id, &format!("step {number}")).await,
            Follow::ReverseOne => {
                let key = format!("part {number}");
                app.reverse_units(&id, 1, &key, &key).await
            }
            Follow::Confirm(units) => app.confirm_units(&id, units).await,
            Follow::Look => app.get(&format!("/v1/grants/{id}")).await,
        };
        match (place, what) {
            (None, _) => prop_assert_eq!(answer.status, StatusCode::NOT_FOUND),
            (Some(place), Follow::Reverse) => self.model.reverse(place, now, &answer)?,
            (Some(place), Follow::ReverseOne) => self.model.reverse_one(place, now, &answer)?,
            (Some(place), Follow::Confirm(units)) => {
                self.model.confirm(place, units, now, &answer)?;
            }
            (Some(place), Follow::Look) => self.model.check_grant(place, now, &answer.json())?,
        }
        Ok(())
    }

    async fn look_at_usage(&mut self, number: usize, subject: usize) -> Checked {
        let path = format!("/v1/policies/benefit/subjects/{}", subject_text(subject));
        let usage = self.fleet.app(number).get(&path).await;
        let now = self.fleet.clock.now();
        self.model.check_usage(subject, now, &usage)
    }

    async fn look_at_total(&mut self, number: usize) -> Checked {
        let usage = self
            .fleet
            .app(number)
            .get("/v1/policies/benefit/total")
            .await;
        self.model.check_total(self.fleet.clock.now(), &usage)
    }

    async fn list(&mut self, number: usize, state: GrantState) -> Checked {
        let state = state.as_str();
        let path = format!("/v1/grants?policy=benefit&state={state}&limit=1000");
        let list = self.fleet.app(number).get(&path).await;
        let now = self.fleet.clock.now();
        self.model.check_list(state, now, &list.json())
    }

    async fn tamper(&mut self, dice: &mut Dice) {
        self.note(format!("tamper by {dice:?}"));
        if let Some(tamperer) = &mut self.tamperer {
            let doubtful_until = tamperer.tamper(dice, self.fleet.clock.now()).await;
            self.model.doubtful_until = self.model.doubtful_until.max(doubtful_until);
        }
    }

    /// Executes the step that a number selects.
    async fn step(&mut self, number: usize, choice: u64) -> Checked {
        let dice = &mut Dice::new(choice);
        match dice.below(85) {
            0..24 => self.claim(number, Claim::draw(dice)).await.map(drop),
            24..26 => self.rehearse(number, Claim::draw(dice)).await,
            26..30 => {
                let key = draw_key(dice);
                let claims = Claim::draw_together(dice);
                self.claim_together(number, &claims, key).await
            }
            30..34 => self.follow(number, Follow::Reverse, dice).await,
            34..36 => self.follow(number, Follow::ReverseOne, dice).await,
            36..40 => self.follow(number, Follow::Confirm(None), dice).await,
            40..42 => self.follow(number, Follow::Confirm(Some(1)), dice).await,
            42..44 => self.follow(number, Follow::Look, dice).await,
            44..48 => self.adjust(number, Adjustment::draw(dice)).await,
            48..51 => self.look_at_usage(number, draw_subject(dice)).await,
            72..74 => self.look_at_total(number).await,
            51 => self.list(number, GrantState::ALL[dice.below(4)]).await,
            52..55 => self.put(RuleChoice::draw(dice), dice.percent(30)).await,
            55 => self.archive().await,
            56..58 => {
                let subject = draw_subject(dice);
                self.put_override(subject, OverrideChoice::draw(dice)).await
            }
            58 => self.delete_override(draw_subject(dice)).await,
            59..65 => {
                let seconds = match dice.below(7) {
                    0..4 => dice.between(0, 9),
                    4..6 => dice.between(600, 20_000),
                    _ => dice.between(50_000, 200_000),
                };
                let by = TimeDelta::seconds(seconds.cast_signed());
                self.note(format!("{seconds} s pass"));
                self.fleet.clock.advance(by);
                Ok(())
            }
            65 => self.pause(dice.percent(70)).await,
            66 => self.pause(false).await,
            67..69 => self.reset(number, Reset::draw(dice)).await,
            69..71 => {
                let subject = draw_subject(dice);
                self.put_tier(subject, TierChoice::draw(dice)).await
            }
            71 => self.end_tier(draw_subject(dice)).await,
            76..79 => self.move_calendar(number, Move::draw(dice)).await,
            79..83 => self.top_up(number, TopUpChoice::draw(dice)).await,
            83..85 => self.end_top_up(number, dice).await,
            _ => {
                self.tamper(dice).await;
                Ok(())
            }
        }
    }

    /// Each subject claims until a claim is denied. Then the ledger, the counters and the model
    /// must agree. A counter that was raised by tampering and has only windows that the policy no
    /// longer has denies nothing. Therefore no claim heals it, and a reconciliation is needed.
    async fn end(&mut self) -> Checked {
        // 1. No altered counter counts as confirmed any more, and the first policy is in force
        //    again.
        self.fleet.clock.advance(TimeDelta::seconds(10));
        self.put(RuleChoice::FIRST, false).await?;
        self.pause(false).await?;
        // 2. Claim until a denial, and compare the subject's entries with the model.
        for subject in 0..SUBJECTS {
            let claim = Claim {
                subject,
                units: 1,
                hold_seconds: None,
                key: None,
                calendar: None,
            };
            while self.claim(subject, claim).await? == StatusCode::CREATED {}
            let path = format!(
                "/v1/policies/benefit/subjects/{}/entries?limit=1000",
                subject_text(subject)
            );
            let entries = self.fleet.app(subject).get(&path).await;
            self.model.check_entries(subject, &entries.json())?;
        }
        // 3. Ask the service to explain each earlier answer.
        self.answers.are_explained(&self.fleet.app(0)).await?;
        // 4. Heal the counters that no claim heals.
        if self.tamperer.is_some() {
            let heal = json!({ "apply": true });
            let report = self
                .fleet
                .app(0)
                .ask("POST /v1/reconciliations", heal)
                .await;
            report.is(201);
        }
        // 5. The judge finds no breach, and the ledger has as many grants as the model.
        let stores = self.fleet.finds_nothing().await;
        let grants = stores.of_kind(Kind::Grant).count();
        prop_assert_eq!(grants, self.model.grants.len());
        // 6. The statistics, the usage and the entries tell one story.
        self.fleet.tells_one_story().await;
        Ok(())
    }
}

/// Plays one history.
async fn play(stack: Stack, choices: Vec<u64>) -> Checked {
    // 1. Start the instances, with a policy, and an empty model.
    let mut play = Play::begin(stack).await;
    // 2. Execute each step, and compare its answer with the model. A failure prints all steps up to
    //    it.
    for (number, choice) in choices.into_iter().enumerate() {
        let played = play.step(number, choice).await;
        played.map_err(|error| {
            let course = play.course.join("\n");
            TestCaseError::fail(format!("step {number}: {error}\n{course}"))
        })?;
    }
    // 3. Compare everything that is stored.
    let ended = play.end().await;
    ended.map_err(|error| {
        let course = play.course.join("\n");
        TestCaseError::fail(format!("at the end: {error}\n{course}"))
    })
}

/// Plays new histories, or the one of `PERDIEM_HISTORY`, which has commas between its numbers.
/// `PERDIEM_HISTORIES` multiplies the number of histories.
async fn random_histories_are_what_the_model_says(stack: Stack) {
    // 1. Choose the number of histories.
    let cases = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => 12,
        Stack::Postgres | Stack::RedisAndPostgres => 4,
    };
    let more = std::env::var("PERDIEM_HISTORIES").ok();
    let more: u32 = more.map_or(1, |more| more.parse().expect("a number"));
    // 2. Play one given history, if there is one.
    if let Ok(one) = std::env::var("PERDIEM_HISTORY") {
        let choices = one
            .split(',')
            .map(|choice| choice.parse().expect("a number"));
        let played = play(stack, choices.collect()).await;
        return played.unwrap_or_else(|error| panic!("{error}"));
    }
    // 3. Play random histories. proptest shortens a history that fails.
    let handle = tokio::runtime::Handle::current();
    let played = tokio::task::spawn_blocking(move || {
        let config = Config {
            cases: cases * more,
            max_shrink_iters: 60,
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new(config);
        let choices = prop::collection::vec(any::<u64>(), 20..120);
        runner.run(&choices, |choices| handle.block_on(play(stack, choices)))
    });
    if let Err(error) = played.await.expect("the histories end") {
        panic!("{error}");
    }
}
