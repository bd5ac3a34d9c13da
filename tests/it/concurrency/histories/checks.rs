//! Compares each answer with the model, and then updates the model.

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use super::entries::What;
use super::plain::{Adjusted, Closed, Done, Expected, Model, counted_at};
use super::steps::{Adjustment, Claim, Move, Reset, calendar_body};
use crate::support::app::Answer;

pub type Checked = Result<(), TestCaseError>;

impl Model {
    /// Checks the limits in an answer for a subject.
    pub fn check_limits(&self, subject: usize, now: DateTime<Utc>, told: &Value) -> Checked {
        self.check_limits_with(subject, None, 0, now, told)
    }

    /// Checks the limits as if these units were also used, and a calendar was told.
    fn check_limits_with(
        &self,
        subject: usize,
        calendar: Option<usize>,
        units: u64,
        now: DateTime<Utc>,
        told: &Value,
    ) -> Checked {
        let limits = self.limits(subject, now);
        prop_assert_eq!(
            told.as_array().map(Vec::len),
            Some(limits.len()),
            "{}",
            told
        );
        let used = self.used_and_left(subject, calendar, now);
        for (number, (limit, (used, left))) in limits.iter().zip(used).enumerate() {
            let told = &told[number];
            let used = used + units;
            let left = left.saturating_sub(units);
            prop_assert_eq!(&told["per"], &json!(limit.per()));
            prop_assert_eq!(&told["kind"], limit.shape.kind().as_str());
            prop_assert_eq!(&told["max"], limit.max, "{}", told);
            prop_assert_eq!(&told["used"], used, "{}", told);
            prop_assert_eq!(&told["remaining"], left, "{}", told);
        }
        Ok(())
    }

    /// Checks the answer to a claim, and records it.
    pub fn claim(&mut self, claim: Claim, now: DateTime<Utc>, answer: &Answer) -> Checked {
        // 1. Ask the model for the expected outcome.
        let expected = self.expect(claim, now);
        let is_of_counter = matches!(expected, Expected::Granted | Expected::Denied);
        // 2. A decision first lapses the holds that are due.
        if is_of_counter {
            self.lapse(claim.subject, now);
        }
        // 3. After a roll-back of Redis, a counter may deny a claim that fits.
        if self.is_doubtful(now) && is_of_counter && answer.status == 429 {
            // The limits in a denial may come from the counter.
            return is_problem(429, &answer.json(), 429, "quota-exceeded");
        }
        // 4. Compare the status and the content.
        let status = answer.status.as_u16();
        let told = answer.json();
        if matches!(expected, Expected::Denied | Expected::NeverFits) {
            self.check_forecast(claim, now, &told)?;
            if status == 429 {
                self.check_denied(claim, now, &told)?;
            }
        }
        self.check_claim(claim, expected, now, status, &told)
    }

    /// Checks the limits of a denial.
    fn check_denied(&self, claim: Claim, now: DateTime<Utc>, told: &Value) -> Checked {
        self.check_limits_with(claim.subject, claim.calendar, 0, now, &told["limits"])
    }

    /// Checks when a claim that is not granted would be granted.
    fn check_forecast(&self, claim: Claim, now: DateTime<Utc>, told: &Value) -> Checked {
        // A subject without room is told when it has some itself.
        let own = claim.units > self.own_room(claim, now) && !self.exceeds_total(claim, now);
        let known = if own {
            self.without_totals()
        } else {
            self.clone()
        };
        let is_granted = |at: DateTime<Utc>| {
            let after = known.with_lapses(claim.subject, at);
            after.expect(claim, at) == Expected::Granted
        };
        match told["fits_at"].as_str() {
            Some(fits_at) => {
                let fits_at: DateTime<Utc> = fits_at.parse().expect("an instant");
                prop_assert!(is_granted(fits_at), "{}", told);
                let just_before = fits_at - TimeDelta::microseconds(1);
                prop_assert!(just_before < now || !is_granted(just_before), "{}", told);
            }
            None => {
                for at in self.changes(claim.subject, now) {
                    prop_assert!(!is_granted(at), "{} at {}", told, at);
                }
            }
        }
        Ok(())
    }

    fn check_claim(
        &mut self,
        claim: Claim,
        expected: Expected,
        now: DateTime<Utc>,
        status: u16,
        told: &Value,
    ) -> Checked {
        match expected {
            Expected::Granted => {
                let used = self.used_and_left(claim.subject, claim.calendar, now);
                prop_assert_eq!(status, 201, "{}; {:?}", told, used);
                let id = told["grant"]["id"].as_str().expect("an id").to_owned();
                self.grant(claim, now, id, told["limits"].clone());
                self.check_limits(claim.subject, now, &told["limits"])?;
                self.check_grant(self.grants.len() - 1, now, &told["grant"])
            }
            Expected::Repeated(place) => {
                prop_assert_eq!(status, 200, "{}", told);
                let [told_then, limits] = [&self.grants[place].limits, &told["limits"]];
                prop_assert_eq!(without_forecast(limits), without_forecast(told_then));
                self.check_grant(place, now, &told["grant"])
            }
            Expected::Denied => {
                is_problem(status, told, 429, "quota-exceeded")?;
                self.check_denied(claim, now, told)
            }
            Expected::Reversed => is_problem(status, told, 409, "grant-reversed"),
            Expected::Lapsed => is_problem(status, told, 410, "hold-lapsed"),
            Expected::KeyReused => is_problem(status, told, 422, "idempotency-key-reused"),
            Expected::Unknown => is_problem(status, told, 404, "unknown-policy"),
            Expected::Inactive => is_problem(status, told, 409, "policy-inactive"),
            // A known change of the limits can make room for the units.
            Expected::NeverFits if status == 429 => is_problem(status, told, 429, "quota-exceeded"),
            Expected::NeverFits | Expected::NoCalendar => is_problem(status, told, 422, "invalid"),
        }
    }

    /// Checks the answer to a dry run, which changes nothing.
    pub fn check_rehearsal(
        &mut self,
        claim: Claim,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        let told = answer.json();
        let (outcome, units) = match self.expect(claim, now) {
            // The rest would come from top-ups.
            Expected::Granted => ("granted", claim.units.min(self.room(claim, now))),
            // A known change of the limits can make room for more units than fit now.
            Expected::NeverFits if answer.status == 200 => ("denied", 0),
            Expected::Denied => ("denied", 0),
            other => {
                let status = answer.status.as_u16();
                return self.check_claim(claim, other, now, status, &told);
            }
        };
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        prop_assert_eq!(&told["outcome"], outcome);
        if outcome == "denied" {
            self.check_forecast(claim, now, &told)?;
        }
        self.check_limits_with(claim.subject, claim.calendar, units, now, &told["limits"])
    }

    /// Checks the answer to an atomic batch, and records it: all claims or none.
    pub fn claim_together(
        &mut self,
        claims: &[Claim],
        key: Option<usize>,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        // 1. A bundle that is known is told again.
        if let Some((bundled, first)) = key.and_then(|key| self.bundles.get(&key)).cloned() {
            return self.check_bundle(&bundled, first, claims, now, answer);
        }
        // 2. Each claim is expected after those before it.
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        let told = answer.json()["items"].clone();
        let before = self.clone();
        let is_in_the_way =
            |expected: &Expected| !matches!(expected, Expected::Granted | Expected::Repeated(_));
        let mut tried = self.clone();
        let mut expected = Vec::new();
        for claim in claims {
            let of_claim = tried.expect(*claim, now);
            if of_claim == Expected::Granted {
                let id = format!("{}", tried.grants.len());
                tried.grant(*claim, now, id, Value::Null);
            }
            expected.push(of_claim);
        }
        let is_refused = expected.iter().any(is_in_the_way);
        // 3. All are granted, or none. What is granted now is the bundle.
        let is_bundle = !is_refused && expected.contains(&Expected::Granted);
        for (number, (claim, expected)) in claims.iter().zip(expected).enumerate() {
            let item = &told[number];
            let status = item["status"].as_u64().expect("a status") as u16;
            match expected {
                // The claim would have been granted. The claims after it are decided as if it was.
                Expected::Granted if is_refused => {
                    is_problem(status, item, 424, "failed-dependency")?;
                    self.grant(*claim, now, String::new(), Value::Null);
                }
                expected => self.check_claim(*claim, expected, now, status, item)?,
            }
        }
        prop_assert_eq!(answer.json()["bundle"].is_string(), is_bundle);
        if is_refused {
            *self = before;
        } else if let Some(key) = key {
            self.bundles
                .insert(key, (claims.to_vec(), before.grants.len()));
        }
        Ok(())
    }

    /// Checks the answer to a batch whose key has a bundle, with its first grant in this place.
    fn check_bundle(
        &mut self,
        bundled: &[Claim],
        first: usize,
        claims: &[Claim],
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        let places = first..first + bundled.len();
        let mut both = places.clone().zip(claims);
        let is_same = both.all(|(place, claim)| self.grants[place].is(*claim));
        prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
        let told = answer.json()["items"].clone();
        if !is_same || claims.len() != bundled.len() {
            // Some of its claims are others, and so nothing is granted.
            let items = told.as_array().expect("items").iter();
            let codes: Vec<Option<&str>> = items.map(|item| item["code"].as_str()).collect();
            prop_assert!(codes.iter().all(Option::is_some), "{}", told);
            prop_assert!(codes.contains(&Some("idempotency-key-reused")), "{}", told);
            return Ok(());
        }
        for (number, (place, claim)) in places.zip(claims).enumerate() {
            let item = &told[number];
            let status = item["status"].as_u64().expect("a status") as u16;
            self.check_claim(*claim, self.expect_again(place, now), now, status, item)?;
        }
        Ok(())
    }

    /// Checks the representation of a grant.
    pub fn check_grant(&self, place: usize, now: DateTime<Utc>, told: &Value) -> Checked {
        let grant = &self.grants[place];
        prop_assert_eq!(&told["id"], &grant.id);
        prop_assert_eq!(&told["units"], grant.claim.units);
        prop_assert_eq!(&told["state"], grant.state(now), "{}", told);
        let held_until = told["held_until"].as_str().map(str::parse);
        let held_until: Option<DateTime<Utc>> = held_until.transpose().expect("an instant");
        prop_assert_eq!(held_until, grant.held_until());
        let is_reversed = matches!(grant.closed, Some(Closed::Reversed(_)));
        prop_assert_eq!(told.get("reversal").is_some(), is_reversed);
        prop_assert_eq!(told["returned_units"].as_u64().unwrap_or(0), grant.returned);
        prop_assert_eq!(
            told["topped_up_units"].as_u64().unwrap_or(0),
            grant.topped_up
        );
        let is_confirmed = grant.confirmed.is_some();
        prop_assert_eq!(told.get("confirmation").is_some(), is_confirmed);
        Ok(())
    }

    /// Checks a list of the grants in a state, the newest first.
    pub fn check_list(&self, state: &str, now: DateTime<Utc>, told: &Value) -> Checked {
        let grants = self.grants.iter();
        let mut ids: Vec<&str> = grants
            .filter(|grant| grant.state(now) == state)
            .map(|grant| grant.id.as_str())
            .collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        let items = told["items"].as_array().expect("items").iter();
        let told: Vec<&str> = items.filter_map(|item| item["id"].as_str()).collect();
        prop_assert_eq!(told, ids, "those in the state {}", state);
        Ok(())
    }

    /// Checks the answer to a reversal, and records it.
    pub fn reverse(&mut self, place: usize, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let subject = self.grants[place].claim.subject;
        let status = answer.status.as_u16();
        let told = answer.json();
        let grant = &self.grants[place];
        match &grant.closed {
            Some(Closed::Reversed(first)) => return is_repeated(answer, first),
            _ if grant.state(now) == "lapsed" => {
                return is_problem(status, &told, 410, "hold-lapsed");
            }
            _ => {}
        }
        prop_assert_eq!(status, 201, "{}", told);
        let units = grant.left().cast_signed();
        let at = grant.at;
        self.enter(subject, What::Reversal(grant.entry), -units, at, now);
        let own = self.give_units_back(place, units.unsigned_abs());
        self.count_last(-own.cast_signed());
        self.grants[place].closed = Some(Closed::Reversed(told.clone()));
        self.check_grant(place, now, &told["grant"])?;
        self.check_limits(subject, now, &told["limits"])
    }

    /// Checks the answer to a reversal of one unit, under a new key, and records it.
    pub fn reverse_one(&mut self, place: usize, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let status = answer.status.as_u16();
        let told = answer.json();
        let grant = &self.grants[place];
        if grant.state(now) == "reversed" {
            return is_problem(status, &told, 409, "grant-reversed");
        }
        if grant.left() == 1 || grant.state(now) == "lapsed" {
            return self.reverse(place, now, answer);
        }
        prop_assert_eq!(status, 201, "{}", told);
        let subject = grant.claim.subject;
        self.give_back(place, 1, now);
        self.check_grant(place, now, &told["grant"])?;
        self.check_limits(subject, now, &told["limits"])
    }

    fn give_back(&mut self, place: usize, units: u64, now: DateTime<Utc>) {
        let grant = &self.grants[place];
        let subject = grant.claim.subject;
        let of = grant.entry;
        let at = grant.at;
        self.enter(
            subject,
            What::PartialReversal(of),
            -units.cast_signed(),
            at,
            now,
        );
        let own = self.give_units_back(place, units);
        self.count_last(-own.cast_signed());
        self.grants[place].returned += units;
    }

    /// Checks the answer to a confirmation of some units, or of all that are left, and records it.
    pub fn confirm(
        &mut self,
        place: usize,
        asked: Option<u64>,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        let subject = self.grants[place].claim.subject;
        let status = answer.status.as_u16();
        let told = answer.json();
        let grant = &self.grants[place];
        match (grant.state(now), grant.held_until(), &grant.confirmed) {
            (_, None, _) => return is_problem(status, &told, 409, "not-a-hold"),
            ("lapsed", ..) => return is_problem(status, &told, 410, "hold-lapsed"),
            ("reversed", ..) => return is_problem(status, &told, 409, "grant-reversed"),
            (_, _, Some(first)) => {
                let settled = first["grant"]["confirmation"]["units"].as_u64();
                return if asked.is_none() || asked == settled {
                    is_repeated(answer, first)
                } else {
                    is_problem(status, &told, 422, "invalid")
                };
            }
            (_, Some(_), None) => {}
        }
        prop_assert_eq!(status, 201, "{}", told);
        let at = grant.at;
        let left = grant.left();
        let settled = asked.unwrap_or(left);
        if settled < left {
            self.give_back(place, left - settled, now);
        }
        self.enter(subject, What::Confirmation, 0, at, now);
        self.grants[place].confirmed = Some(told.clone());
        self.check_grant(place, now, &told["grant"])?;
        self.check_limits(subject, now, &told["limits"])
    }

    /// Checks the answer to an adjustment, and records it.
    pub fn adjust(
        &mut self,
        adjustment: Adjustment,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        let Adjustment { subject, units, .. } = adjustment;
        let given = counted_at(adjustment, now);
        let status = answer.status.as_u16();
        let told = answer.json();
        match adjustment.key.and_then(|key| self.keys.get(&key)) {
            Some(Done::Adjustment(place)) if self.adjustments[*place].is(&adjustment, given) => {
                return is_repeated(answer, &self.adjustments[*place].answer);
            }
            Some(_) => return is_problem(status, &told, 422, "idempotency-key-reused"),
            None => {}
        }
        if self.is_archived(now) {
            return is_problem(status, &told, 404, "unknown-policy");
        }
        let at = given.unwrap_or(now);
        let lowers = units < 0;
        if lowers && !self.can_take_off(subject, units.unsigned_abs(), at, now) {
            return is_problem(status, &told, 422, "invalid");
        }
        prop_assert_eq!(status, 201, "{}", told);
        self.enter(subject, What::Adjustment, units, at, now);
        prop_assert_eq!(&told["units"], units);
        self.check_limits(subject, now, &told["limits"])?;
        if let Some(key) = adjustment.key {
            let place = self.adjustments.len();
            self.keys.insert(key, Done::Adjustment(place));
        }
        self.adjustments.push(Adjusted {
            subject,
            units,
            at,
            entered_at: now,
            answer: told,
        });
        Ok(())
    }

    /// Checks the answer to a reset, and records it.
    pub fn reset(&mut self, reset: Reset, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let subject = reset.subject;
        let per = reset.per();
        let status = answer.status.as_u16();
        let told = answer.json();
        let is_same = |(done, _): &(Reset, Value)| done.subject == subject && done.per() == per;
        match reset.key.and_then(|key| self.keys.get(&key)) {
            Some(Done::Reset(place)) if is_same(&self.resets[*place]) => {
                return is_repeated(answer, &self.resets[*place].1);
            }
            Some(_) => return is_problem(status, &told, 422, "idempotency-key-reused"),
            None => {}
        }
        if self.is_archived(now) {
            return is_problem(status, &told, 404, "unknown-policy");
        }
        let used = self.used_and_left(subject, None, now);
        let limits = self.limits(subject, now);
        let named = limits.iter().zip(used);
        let named = named.filter(|(limit, _)| per.is_none_or(|per| per == limit.per()));
        let used: Vec<u64> = named.map(|(_, (used, _))| used).collect();
        if used.is_empty() {
            return is_problem(status, &told, 422, "invalid");
        }
        if used.iter().all(|used| *used == 0) {
            return is_problem(status, &told, 409, "nothing-used");
        }
        prop_assert_eq!(status, 201, "{}", told);
        self.enter(subject, What::Reset(per), 0, now, now);
        prop_assert_eq!(&told["kind"], "reset");
        prop_assert_eq!(told["per"].as_str(), reset.per);
        self.check_limits(subject, now, &told["limits"])?;
        if let Some(key) = reset.key {
            self.keys.insert(key, Done::Reset(self.resets.len()));
        }
        self.resets.push((reset, told));
        Ok(())
    }

    /// Checks the answer to a move of a calendar, and records it.
    pub fn move_calendar(&mut self, moved: Move, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let Move {
            subject, calendar, ..
        } = moved;
        let status = answer.status.as_u16();
        let told = answer.json();
        let is_same = |(done, answer): &(Move, Value)| {
            let asked = calendar_body(calendar);
            let mut parts = asked.as_object().expect("an object").iter();
            done.subject == subject && parts.all(|(name, value)| answer["calendar"][name] == *value)
        };
        match moved.key.and_then(|key| self.keys.get(&key)) {
            Some(Done::Move(place)) if is_same(&self.moves[*place]) => {
                return is_repeated(answer, &self.moves[*place].1);
            }
            Some(_) => return is_problem(status, &told, 422, "idempotency-key-reused"),
            None => {}
        }
        if self.is_archived(now) {
            return is_problem(status, &told, 404, "unknown-policy");
        }
        if !self.takes_calendars(now) {
            return is_problem(status, &told, 422, "invalid");
        }
        prop_assert_eq!(status, 201, "{}", told);
        self.enter_in(Some(calendar), subject, What::Calendar, 0, now, now);
        prop_assert_eq!(&told["kind"], "calendar");
        self.check_limits(subject, now, &told["limits"])?;
        if let Some(key) = moved.key {
            self.keys.insert(key, Done::Move(self.moves.len()));
        }
        self.moves.push((moved, told));
        Ok(())
    }

    /// Checks a subject's usage.
    pub fn check_usage(&self, subject: usize, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let status = answer.status.as_u16();
        let told = answer.json();
        if self.is_archived(now) {
            return is_problem(status, &told, 404, "unknown-policy");
        }
        let own = told.get("calendar").is_some();
        prop_assert_eq!(own, self.takes_calendars(now));
        self.check_top_ups(subject, now, &told["top_ups"])?;
        self.check_limits(subject, now, &told["limits"])
    }

    /// Checks a subject's entries, the newest first.
    pub fn check_entries(&self, subject: usize, told: &Value) -> Checked {
        let expected = self.entries_of(subject).rev();
        let expected: Vec<Value> = expected
            .map(|entry| {
                let anchor = entry.own.anchor.map(|anchor| anchor.to_string());
                let zone = entry.own.zone.as_ref().map(|zone| zone.name());
                json!([entry.what.word(), entry.units, anchor, zone])
            })
            .collect();
        let told = told["items"].as_array().expect("items").iter();
        let told: Vec<Value> = told
            .map(|entry| {
                let own = &entry["calendar"];
                json!([
                    entry["kind"],
                    entry["units"],
                    own["anchor"],
                    own["time_zone"]
                ])
            })
            .collect();
        prop_assert_eq!(told, expected);
        Ok(())
    }
}

/// Checks that an answer, or an item of one, is the expected problem.
pub fn is_problem(status: u16, told: &Value, expected: u16, kind: &str) -> Checked {
    prop_assert_eq!(status, expected, "{}; {}", kind, told);
    let type_of = told["type"].as_str().expect("a type");
    prop_assert_eq!(type_of.rsplit(['#', '/']).next(), Some(kind), "{}", told);
    Ok(())
}

/// Checks that the answer to a repeated request equals the first answer.
pub fn is_repeated(answer: &Answer, first: &Value) -> Checked {
    prop_assert_eq!(answer.status.as_u16(), 200, "{:?}", answer);
    let [mut told, mut first] = [answer.json(), first.clone()];
    for answer in [&mut told, &mut first] {
        answer["limits"] = without_forecast(&answer["limits"]);
    }
    prop_assert_eq!(told, first);
    Ok(())
}

/// Limits without what was foretold: a repeated answer does not foretell.
fn without_forecast(limits: &Value) -> Value {
    let mut limits = limits.clone();
    for limit in limits.as_array_mut().into_iter().flatten() {
        for name in ["more_at", "resets_at"] {
            limit[name].take();
        }
    }
    limits
}
