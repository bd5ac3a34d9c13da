//! The top-ups of the plain model: where each unit of a grant came from.

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::checks::{Checked, is_problem, is_repeated};
use super::entries::{Given, Source, What};
use super::plain::{Done, Model};
use super::steps::TopUpChoice;
use crate::support::app::Answer;

impl Model {
    /// The top-ups of a subject that go on at an instant, in the order in which they are used.
    fn live(&self, subject: usize, now: DateTime<Utc>) -> Vec<usize> {
        let is_live = |given: &Given| {
            given.choice.subject == subject && now < given.until && given.ended.is_none()
        };
        let all = 0..self.top_ups.len();
        let mut live: Vec<usize> = all.filter(|place| is_live(&self.top_ups[*place])).collect();
        live.sort_by_key(|place| self.top_ups[*place].until);
        live
    }

    /// The units that a subject has beside its windows.
    pub fn topped_up(&self, subject: usize, now: DateTime<Utc>) -> u64 {
        let live = self.live(subject, now).into_iter();
        live.map(|place| self.top_ups[place].left).sum()
    }

    /// The units that a subject was given beside its windows.
    pub fn given_to(&self, subject: usize, now: DateTime<Utc>) -> u64 {
        let live = self.live(subject, now).into_iter();
        live.map(|place| self.top_ups[place].choice.units).sum()
    }

    /// Takes the units of a grant: as many of the windows as these have room for, and the rest from top-ups.
    pub fn draw(
        &mut self,
        subject: usize,
        units: u64,
        room: u64,
        now: DateTime<Utc>,
    ) -> Vec<Source> {
        let mut live = self.live(subject, now);
        let take = |unit: u64| {
            if unit < room {
                return None;
            }
            live.retain(|place| self.top_ups[*place].left > 0);
            let place = *live.first()?;
            self.top_ups[place].left -= 1;
            Some(place)
        };
        (0..units).map(take).collect()
    }

    /// Gives units of a grant back, those that were taken last first. Returns how many the windows get.
    pub fn give_units_back(&mut self, grant: usize, units: u64) -> u64 {
        let mut own = 0;
        for _ in 0..units {
            match self.grants[grant].sources.pop().expect("a unit is left") {
                None => own += 1,
                Some(place) => self.top_ups[place].left += 1,
            }
        }
        own
    }

    /// Checks the answer to a top-up, and records it.
    pub fn top_up(&mut self, choice: TopUpChoice, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let TopUpChoice { subject, units, .. } = choice;
        let until = choice.until(now);
        let status = answer.status.as_u16();
        let told = answer.json();
        let is_same = |given: &Given| {
            (given.choice.subject, given.choice.units, given.until) == (subject, units, until)
        };
        match choice.key.and_then(|key| self.keys.get(&key)) {
            Some(Done::TopUp(place)) if is_same(&self.top_ups[*place]) => {
                return is_repeated(answer, &self.top_ups[*place].answer);
            }
            Some(_) => return is_problem(status, &told, 422, "idempotency-key-reused"),
            None => {}
        }
        if self.is_archived(now) {
            return is_problem(status, &told, 404, "unknown-policy");
        }
        if self.live(subject, now).len() >= 16 {
            return is_problem(status, &told, 422, "invalid");
        }
        prop_assert_eq!(status, 201, "{}", told);
        self.enter(subject, What::TopUp, 0, now, now);
        prop_assert_eq!(&told["top_up"]["units"], units);
        self.check_limits(subject, now, &told["limits"])?;
        if let Some(key) = choice.key {
            self.keys.insert(key, Done::TopUp(self.top_ups.len()));
        }
        self.top_ups.push(Given {
            choice,
            until,
            left: units,
            answer: told,
            ended: None,
        });
        Ok(())
    }

    /// Checks the answer to the reversal of a top-up, and records it.
    pub fn end_top_up(&mut self, place: usize, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let status = answer.status.as_u16();
        let told = answer.json();
        let given = self.top_ups[place].clone();
        if let Some(first) = &given.ended {
            return is_repeated(answer, first);
        }
        // The lapses that are due come first: they can return units.
        self.lapse(given.choice.subject, now);
        if now >= given.until || self.top_ups[place].left == 0 {
            return is_problem(status, &told, 409, "nothing-left");
        }
        prop_assert_eq!(status, 201, "{}", told);
        prop_assert_eq!(&told["top_up"]["units"], self.top_ups[place].left);
        prop_assert_eq!(&told["top_up"]["id"], &given.answer["id"]);
        self.enter(given.choice.subject, What::TopUpReversal, 0, now, now);
        self.top_ups[place].ended = Some(told);
        Ok(())
    }

    /// Checks the top-ups in a subject's usage, which has the lapses that are due.
    pub fn check_top_ups(&self, subject: usize, now: DateTime<Utc>, told: &Value) -> Checked {
        let mut after = self.clone();
        after.lapse(subject, now);
        let live = after.live(subject, now).into_iter();
        let expected = live.map(|place| {
            let given = &after.top_ups[place];
            json!([given.answer["id"], given.left])
        });
        let told = told.as_array().into_iter().flatten();
        let told: Vec<Value> = told.map(|it| json!([it["id"], it["units_left"]])).collect();
        prop_assert_eq!(told, expected.collect::<Vec<_>>());
        Ok(())
    }
}
