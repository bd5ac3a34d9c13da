//! All requests at the same time: claims, retries, holds, confirmations, reversals, adjustments,
//! batches, overrides, tiers, and changes of the policy and its total, which sometimes only observes. Many clients use
//! every instance while the clock moves.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::http::invalid_places;
use crate::judge::{Correction, Kind, Outcome, Wish};
use crate::support::app::{Answer, App, Stack, instant, on_every_stack};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::dice::Dice;

on_every_stack!(everything_at_once);

const CLIENTS: usize = 16;
const ACTS: usize = 40;
const SUBJECTS: usize = 3;
/// More units than any subject uses in a day.
const MOST: u64 = 10_000;

struct Client<'a> {
    number: usize,
    fleet: &'a Fleet,
    dice: Dice,
}

impl Client<'_> {
    fn app(&mut self) -> Arc<App> {
        let number = self.dice.below(2);
        self.fleet.app(number)
    }

    fn subject(&mut self) -> String {
        format!("member-{}", self.dice.below(SUBJECTS))
    }

    /// A grant that a client knows. The newest grants are preferred, so that several clients
    /// correct the same grant at the same time.
    fn choose(&mut self) -> Option<Uuid> {
        let granted = self.fleet.granted();
        let most = if self.dice.percent(60) { 4 } else { 30 };
        let place = self.dice.below(granted.len().clamp(1, most));
        granted.iter().rev().nth(place).copied()
    }

    /// Adds a claim that nobody has sent. Returns its place among the wishes.
    fn wish(&mut self, has_key: bool) -> usize {
        let claim = Wish::of(&self.subject()).units(self.dice.between(1, 3));
        let seconds = self.dice.between(1, 20);
        let wish = Wish {
            has_key,
            hold_seconds: self.dice.percent(40).then_some(seconds),
            ..claim
        };
        self.fleet.wishes([wish])[0]
    }

    async fn act(&mut self) {
        match self.dice.below(100) {
            0..24 => self.claim().await,
            24..30 => self.retry().await,
            30..42 => self.reverse().await,
            42..48 => self.reverse_part().await,
            48..66 => self.confirm().await,
            66..74 => self.adjust().await,
            74..82 => self.claim_together().await,
            82..86 => self.look().await,
            86..93 => {
                let seconds = self.dice.between(0, 8).cast_signed();
                self.fleet.clock.advance(TimeDelta::seconds(seconds));
            }
            93..95 => self.put_override().await,
            95..97 => self.put_tier().await,
            _ => self.put().await,
        }
    }

    async fn claim(&mut self) {
        let has_key = self.dice.percent(30);
        let wish = self.wish(has_key);
        self.fleet.send(self.dice.below(2), wish).await;
        if has_key && self.dice.percent(50) {
            self.fleet.send(self.dice.below(2), wish).await;
        }
    }

    /// One of the latest claims with keys.
    fn choose_sent(&mut self) -> Option<usize> {
        let place = self.dice.below(12);
        let history = self.fleet.history();
        let wishes = history.wishes.iter().enumerate();
        let mut keyed = wishes.filter(|(_, wish)| wish.has_key);
        keyed.nth_back(place).map(|(wish, _)| wish)
    }

    async fn retry(&mut self) {
        if let Some(wish) = self.choose_sent() {
            self.fleet.send(self.dice.below(2), wish).await;
        }
    }

    async fn claim_together(&mut self) {
        let count = self.dice.between(2, 5);
        let wishes: Vec<usize> = (0..count).map(|_| self.wish(false)).collect();
        let body = self.fleet.batch(&wishes);
        let began = self.fleet.time();
        let request = self.app().request(Method::POST, "/v1/claims").json(&body);
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let items = answer.json()["items"].as_array().expect("items").clone();
        let status = |item: &Value| item["status"].as_u64().expect("a status") as u16;
        let granted = items.iter().filter(|item| status(item) == 201).count();
        assert!(granted == 0 || granted == items.len(), "{answer:?}");
        for (item, wish) in items.iter().zip(wishes) {
            let status = StatusCode::from_u16(status(item)).expect("a status");
            let outcome = Outcome::of(status, &item.to_string());
            self.fleet.note(self.number, wish, began, outcome);
        }
    }

    /// Records the answer to a correction. The text for a grant that a lapse ended differs each
    /// time, and so do forecasts.
    fn told(&self, kind: Kind, of: Uuid, status: u16, mut answer: Value) {
        for limit in answer["limits"].as_array_mut().into_iter().flatten() {
            let limit = limit.as_object_mut().expect("a limit");
            limit.retain(|name, _| !["more_at", "resets_at"].contains(&name.as_str()));
        }
        self.fleet.told(Correction {
            began: Duration::ZERO,
            ended: self.fleet.time(),
            kind,
            of,
            reason: String::new(),
            is_new: status == 201,
            answer: if kind == Kind::Lapse {
                Value::Null
            } else {
                answer
            },
        });
    }

    async fn reverse(&mut self) {
        let Some(grant) = self.choose() else { return };
        let reason = format!("client {}", self.number);
        let answer = self.app().reverse(&grant.to_string(), &reason).await;
        let told = answer.json();
        match answer.status.as_u16() {
            status @ (200 | 201) => self.told(Kind::Reversal, grant, status, told),
            410 => {
                assert!(answer.text.contains("hold-lapsed"), "{answer:?}");
                self.told(Kind::Lapse, grant, 410, told);
            }
            _ => panic!("{answer:?}"),
        }
    }

    /// Reverses a unit at both instances at the same time, with one key.
    async fn reverse_part(&mut self) {
        let Some(grant) = self.choose() else { return };
        let key = Uuid::new_v4().to_string();
        let answers = all_at_once(2, |client| {
            let app = self.fleet.app(client);
            let id = grant.to_string();
            let key = key.as_str();
            async move { app.reverse_units(&id, 1, key, key).await }
        });
        let answers = answers.await;
        let is_told = |status: u16| {
            answers
                .iter()
                .filter(|answer| answer.status == status)
                .count()
        };
        assert!(is_told(201) <= 1, "{answers:?}");
        for answer in &answers {
            let told = answer.json();
            match answer.status.as_u16() {
                // It was the last unit.
                status @ (200 | 201) if told["grant"]["reversal"]["reason"] == key => {
                    self.told(Kind::Reversal, grant, status, told);
                }
                200 | 201 => {}
                409 if answer.text.contains("claim-in-progress") => {}
                410 if answer.text.contains("hold-lapsed") => {
                    self.told(Kind::Lapse, grant, 410, told);
                }
                409 => assert!(answer.text.contains("grant-reversed"), "{answer:?}"),
                _ => panic!("{answer:?}"),
            }
        }
    }

    async fn confirm(&mut self) {
        let Some(grant) = self.choose() else { return };
        let units = self.dice.percent(30).then_some(1);
        let answer = self.app().confirm_units(&grant.to_string(), units).await;
        let told = answer.json();
        match answer.status.as_u16() {
            status @ (200 | 201) => self.told(Kind::Confirmation, grant, status, told),
            410 => self.told(Kind::Lapse, grant, 410, told),
            // It was confirmed with other units.
            422 => assert!(units.is_some(), "{answer:?}"),
            409 => {
                let is_either = ["not-a-hold", "grant-reversed"]
                    .iter()
                    .any(|kind| answer.text.contains(kind));
                assert!(is_either, "{answer:?}");
            }
            _ => panic!("{answer:?}"),
        }
    }

    /// Makes an adjustment at both instances at the same time, with one key.
    async fn adjust(&mut self) {
        let units = [-3, -2, -1, 1, 2, 3][self.dice.below(6)];
        let mut body = json!({ "units": units, "reason": "by hand" });
        if self.dice.percent(50) {
            let ago = TimeDelta::seconds(self.dice.between(0, 100_000).cast_signed());
            body["at"] = json!(self.fleet.clock.now() - ago);
        }
        let subject = self.subject();
        let key = Uuid::new_v4().to_string();
        let answers = all_at_once(2, |client| {
            let app = self.fleet.app(client);
            let body = body.clone();
            let subject = &subject;
            let key = Some(key.as_str());
            async move { app.adjust(subject, body, key).await }
        });
        for answer in answers.await {
            let told = answer.json();
            match answer.status.as_u16() {
                status @ (200 | 201) => {
                    let kind = [Kind::AdjustmentDown, Kind::AdjustmentUp][usize::from(units > 0)];
                    let id = told["id"].as_str().expect("an id").parse();
                    self.told(kind, id.expect("a UUID"), status, told);
                }
                409 => assert!(answer.text.contains("claim-in-progress"), "{answer:?}"),
                // The usage would fall below zero.
                422 => assert!(answer.text.contains("invalid"), "{answer:?}"),
                _ => panic!("{answer:?}"),
            }
        }
    }

    async fn look(&mut self) {
        let path = format!("/v1/policies/benefit/subjects/{}", self.subject());
        let answer = self.app().get(&path).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }

    async fn put_override(&mut self) {
        let app = self.app();
        let subject = self.subject();
        let answer = if self.dice.percent(30) {
            app.delete_override(&subject).await
        } else {
            let seconds = self.dice.between(1, 60).cast_signed();
            let until = self.fleet.clock.now() + TimeDelta::seconds(seconds);
            let body = json!({
                "limits": [{ "max": self.dice.between(1, 30), "per": "day" }],
                "until": self.dice.percent(50).then_some(until),
                "reason": "a test",
            });
            app.put_override(&subject, body).await
        };
        // There is no override, or it ended during the request.
        let is_fine = answer.status.is_success()
            || [StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY].contains(&answer.status);
        assert!(is_fine, "{answer:?}");
    }

    async fn put_tier(&mut self) {
        let app = self.app();
        let subject = self.subject();
        let answer = if self.dice.percent(30) {
            app.end_tier(&subject).await
        } else {
            let seconds = self.dice.between(1, 60).cast_signed();
            let until = self.fleet.clock.now() + TimeDelta::seconds(seconds);
            let until = self.dice.percent(50).then_some(until);
            let tier = ["gold", "slow"][self.dice.below(2)];
            app.put_tier(&subject, tier, until).await
        };
        // The policy lacks the tier, the subject is in none, or it ended during the request.
        let is_fine = answer.status.is_success()
            || [StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY].contains(&answer.status);
        assert!(is_fine, "{answer:?}");
    }

    async fn put(&mut self) {
        let zones = ["GMT+8", "UTC", "America/New_York", "Australia/Lord_Howe"];
        let max = self.dice.between(4, 24);
        let limits = match self.dice.below(3) {
            0 => json!([{ "max": max, "per": "day" }]),
            1 => json!([{ "max": max, "per": "day" }, { "max": 3 * max, "per": "week" }]),
            _ => json!([{ "max": max, "per": "day" }, { "max": max, "per": "minute" }]),
        };
        let tiers = json!([
            { "name": "gold", "limits": [{ "max": 2 * max, "per": "day" }] },
            { "name": "slow", "limits": [{ "max": 1, "per": "day" }] },
        ]);
        let total = match self.dice.below(2) {
            0 => json!([{ "max": 2 * max, "per": "day" }]),
            _ => json!([{ "max": 2 * max, "per": "day" }, { "max": 9 * max, "per": "ever" }]),
        };
        let on_orphans = ["keep", "drop"][self.dice.below(2)];
        let body = json!({
            "time_zone": zones[self.dice.below(zones.len())],
            "limits": limits,
            "tiers": if self.dice.percent(70) { tiers } else { json!([]) },
            "orphaned_overrides": on_orphans,
            "warn_at": if self.dice.percent(70) { vec![50, 80, 100] } else { Vec::new() },
            "mode": if self.dice.percent(30) { "observe" } else { "enforce" },
            "effective": if self.dice.percent(20) { "next_window" } else { "now" },
            "total": if self.dice.percent(60) { total } else { json!([]) },
            "reason": "a test",
        });
        // The change is after each earlier entry, which may be in the statistics of its day already.
        self.fleet.clock.advance(TimeDelta::microseconds(1));
        let answer = self.app().put_policy("benefit", body).await;
        // The calendar of a total stays.
        let is_fine = answer.status.is_success() || invalid_places(&answer) == ["#/time_zone"];
        assert!(is_fine, "{answer:?}");
    }
}

/// Clients send all requests around a midnight. Afterwards the holds that are due lapse with the
/// next claim, and clients get exactly the units that are left for each subject.
async fn everything_at_once(stack: Stack) {
    let fleet = &Fleet::start_sweeping(stack, instant("2026-11-21T15:59:00Z")).await;
    let limits = |max: u64| json!([{ "max": max, "per": "day" }]);
    fleet.put("GMT+8", limits(12)).await;
    let seed = Uuid::new_v4().as_u64_pair().0;
    println!("seed {seed}");
    all_at_once(CLIENTS, |number| async move {
        let dice = Dice::of(seed, number);
        let mut client = Client {
            number,
            fleet,
            dice,
        };
        for _ in 0..ACTS {
            client.act().await;
        }
    })
    .await;
    fleet.clock.advance(TimeDelta::minutes(1));
    let subjects = (0..SUBJECTS).map(|number| format!("member-{number}"));
    let subjects: Vec<String> = subjects.collect();
    for subject in &subjects {
        let deleted = fleet.apps[0].delete_override(subject).await.status;
        let ended = fleet.apps[0].end_tier(subject).await.status;
        let is_gone = |status: StatusCode| status.is_success() || status == StatusCode::NOT_FOUND;
        assert!(is_gone(deleted) && is_gone(ended), "{deleted}, {ended}");
    }
    fleet.put("GMT+8", limits(MOST)).await;
    let claims = |client: usize| vec![Wish::of(&subjects[client])];
    let told = fleet.claim_all(SUBJECTS, claims).await;
    assert_eq!(told, [SUBJECTS, 0, 0]);
    let stores = fleet.finds_nothing().await;
    for subject in &subjects {
        let used = MOST - stores.room(subject, fleet.clock.now());
        fleet.apps[0].override_day(subject, used + 9).await;
        fleet.everybody_knows_all().await;
        assert_eq!(fleet.drain(6, subject).await, 9);
    }
    fleet.finds_nothing().await;
    fleet.tells_one_story().await;
    fleet.denials_are_counted().await;
}
