//! The plain model: a list of entries with their instants, and what the words mean.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::policy::Rule;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::steps::{Adjustment, Claim};
use crate::support::app::Answer;

type Checked = Result<(), TestCaseError>;

/// A line of an account.
struct Entry {
    subject: usize,
    kind: &'static str,
    /// What it adds to the units used.
    units: i64,
    /// The instant in whose windows they count.
    at: DateTime<Utc>,
}

/// A grant, and what became of it.
struct Grant {
    claim: Claim,
    at: DateTime<Utc>,
    id: String,
    /// The limits as the answer told them.
    limits: Value,
    /// The answer to its confirmation.
    confirmed: Option<Value>,
    closed: Option<Closed>,
}

enum Closed {
    /// With this answer.
    Reversed(Value),
    Lapsed,
}

/// Units that were entered by hand.
struct Adjusted {
    subject: usize,
    units: i64,
    /// The instant in whose windows they count.
    at: DateTime<Utc>,
    /// When they were entered.
    entered_at: DateTime<Utc>,
    answer: Value,
}

/// What a key stands for.
#[derive(Clone, Copy)]
enum Done {
    /// The grant in this place.
    Grant(usize),
    /// The adjustment in this place.
    Adjustment(usize),
}

/// The whole truth.
pub struct Model {
    pub rule: Rule,
    /// Counters that came back from an earlier moment may deny until then, as if nothing had been
    /// given back.
    pub doubtful_until: Option<DateTime<Utc>>,
    entries: Vec<Entry>,
    grants: Vec<Grant>,
    adjustments: Vec<Adjusted>,
    keys: HashMap<usize, Done>,
}

impl Grant {
    fn held_until(&self) -> Option<DateTime<Utc>> {
        let seconds = self.claim.hold_seconds?;
        Some(self.at + TimeDelta::seconds(seconds.cast_signed()))
    }

    fn state(&self, now: DateTime<Utc>) -> &'static str {
        match (&self.closed, self.held_until()) {
            (Some(Closed::Reversed(_)), _) => "reversed",
            (Some(Closed::Lapsed), _) => "lapsed",
            (None, Some(until)) if self.confirmed.is_none() => match now < until {
                true => "held",
                false => "lapsed",
            },
            (None, _) => "granted",
        }
    }
}

impl Adjusted {
    /// Whether it is what an adjustment asks for that gives this instant.
    fn is(&self, other: &Adjustment, at: Option<DateTime<Utc>>) -> bool {
        (self.subject, self.units) == (other.subject, other.units)
            && self.at == at.unwrap_or(self.entered_at)
    }
}

impl Model {
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            doubtful_until: None,
            entries: Vec::new(),
            grants: Vec::new(),
            adjustments: Vec::new(),
            keys: HashMap::new(),
        }
    }

    /// How many grants there are.
    pub fn grants(&self) -> usize {
        self.grants.len()
    }

    /// The id of one of the grants.
    pub fn id(&self, grant: usize) -> &str {
        &self.grants[grant].id
    }

    /// Before anything else is entered, a subject's holds lapse that are due, the first one first.
    fn lapse(&mut self, subject: usize, now: DateTime<Utc>) {
        let grants = self.grants.iter_mut();
        let mut due: Vec<&mut Grant> = grants
            .filter(|grant| grant.claim.subject == subject)
            .filter(|grant| grant.closed.is_none() && grant.state(now) == "lapsed")
            .collect();
        due.sort_by_key(|grant| (grant.held_until(), grant.id.clone()));
        for grant in due {
            grant.closed = Some(Closed::Lapsed);
            self.entries.push(Entry {
                subject,
                kind: "lapse",
                units: -grant.claim.units.cast_signed(),
                at: grant.at,
            });
        }
    }

    /// What each limit's window that contains an instant holds of a subject: a `max`, and what is
    /// used of it. It never falls below zero.
    fn used(&self, subject: usize, at: DateTime<Utc>) -> Vec<(u64, u64)> {
        let limits = self.rule.limits.iter();
        let used = limits.map(|limit| {
            let window = self.rule.calendar.window(limit.per, at);
            let entries = self.entries.iter();
            let inside =
                entries.filter(|entry| entry.subject == subject && window.contains(entry.at));
            let used = inside.fold(0, |used, entry| (used + entry.units).max(0));
            (limit.max, used.cast_unsigned())
        });
        used.collect()
    }

    fn check_limits(&self, subject: usize, now: DateTime<Utc>, told: &Value) -> Checked {
        for (number, (max, used)) in self.used(subject, now).into_iter().enumerate() {
            let told = &told[number];
            prop_assert_eq!(&told["max"], max);
            prop_assert_eq!(&told["used"], used);
            prop_assert_eq!(&told["remaining"], max.saturating_sub(used));
        }
        Ok(())
    }

    /// Checks the answer to a claim, and takes it down.
    pub fn claim(&mut self, claim: Claim, now: DateTime<Utc>, answer: &Answer) -> Checked {
        self.lapse(claim.subject, now);
        let known = claim.key.and_then(|key| self.keys.get(&key).copied());
        if let Some(done) = known {
            return self.check_repeated(claim, done, now, answer);
        }
        let used = self.used(claim.subject, now);
        if used.iter().any(|(max, _)| claim.units > *max) {
            return is_problem(answer, StatusCode::UNPROCESSABLE_ENTITY, "invalid");
        }
        if !used.iter().all(|(max, used)| used + claim.units <= *max) {
            is_problem(answer, StatusCode::TOO_MANY_REQUESTS, "quota-exceeded")?;
            return self.check_limits(claim.subject, now, &answer.json()["limits"]);
        }
        let is_doubtful = self.doubtful_until.is_some_and(|until| now <= until);
        if is_doubtful && answer.status == StatusCode::TOO_MANY_REQUESTS {
            return Ok(());
        }
        prop_assert_eq!(
            answer.status,
            StatusCode::CREATED,
            "{:?}; {:?}",
            answer,
            used
        );
        self.enter(claim.subject, "grant", claim.units.cast_signed(), now);
        let told = answer.json();
        self.check_limits(claim.subject, now, &told["limits"])?;
        if let Some(key) = claim.key {
            self.keys.insert(key, Done::Grant(self.grants.len()));
        }
        self.grants.push(Grant {
            claim,
            at: now,
            id: answer.grant_id(),
            limits: told["limits"].clone(),
            confirmed: None,
            closed: None,
        });
        self.check_grant(self.grants.len() - 1, now, &told["grant"])
    }

    fn check_repeated(
        &self,
        claim: Claim,
        done: Done,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        let same = |grant: &Grant| {
            (
                grant.claim.subject,
                grant.claim.units,
                grant.claim.hold_seconds,
            ) == (claim.subject, claim.units, claim.hold_seconds)
        };
        match done {
            Done::Grant(place) if same(&self.grants[place]) => {
                prop_assert_eq!(answer.status, StatusCode::OK, "{:?}", answer);
                let told = answer.json();
                prop_assert_eq!(&told["limits"], &self.grants[place].limits);
                self.check_grant(place, now, &told["grant"])
            }
            Done::Grant(_) | Done::Adjustment(_) => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                is_problem(answer, status, "idempotency-key-reused")
            }
        }
    }

    /// Checks what is told of a grant.
    pub fn check_grant(&self, place: usize, now: DateTime<Utc>, told: &Value) -> Checked {
        let grant = &self.grants[place];
        prop_assert_eq!(&told["id"], &grant.id);
        prop_assert_eq!(&told["units"], grant.claim.units);
        prop_assert_eq!(&told["state"], grant.state(now), "{}", told);
        let held_until = told["held_until"].as_str().map(|text| text.parse());
        let held_until: Option<DateTime<Utc>> = held_until.transpose().expect("an instant");
        prop_assert_eq!(held_until, grant.held_until());
        let is_reversed = matches!(grant.closed, Some(Closed::Reversed(_)));
        prop_assert_eq!(told.get("reversal").is_some(), is_reversed);
        prop_assert_eq!(
            told.get("confirmation").is_some(),
            grant.confirmed.is_some()
        );
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
        let items = told["items"].as_array().expect("items");
        let told: Vec<&str> = items
            .iter()
            .filter_map(|item| item["id"].as_str())
            .collect();
        prop_assert_eq!(told, ids, "those in the state {}", state);
        Ok(())
    }

    /// Checks the answer to a reversal, and takes it down.
    pub fn reverse(&mut self, place: usize, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let subject = self.grants[place].claim.subject;
        self.lapse(subject, now);
        let grant = &self.grants[place];
        match &grant.closed {
            Some(Closed::Reversed(first)) => return is_repeated(answer, first),
            Some(Closed::Lapsed) => {
                return is_problem(answer, StatusCode::CONFLICT, "hold-lapsed");
            }
            None => {}
        }
        prop_assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer);
        let (units, at) = (grant.claim.units.cast_signed(), grant.at);
        self.enter(subject, "reversal", -units, at);
        self.grants[place].closed = Some(Closed::Reversed(answer.json()));
        self.check_grant(place, now, &answer.json()["grant"])?;
        self.check_limits(subject, now, &answer.json()["limits"])
    }

    /// Checks the answer to a confirmation, and takes it down.
    pub fn confirm(&mut self, place: usize, now: DateTime<Utc>, answer: &Answer) -> Checked {
        let subject = self.grants[place].claim.subject;
        self.lapse(subject, now);
        let grant = &self.grants[place];
        match (&grant.closed, grant.held_until(), &grant.confirmed) {
            (_, None, _) => return is_problem(answer, StatusCode::CONFLICT, "not-a-hold"),
            (Some(Closed::Lapsed), ..) => {
                return is_problem(answer, StatusCode::GONE, "hold-lapsed");
            }
            (Some(Closed::Reversed(_)), ..) => {
                return is_problem(answer, StatusCode::CONFLICT, "grant-reversed");
            }
            (None, _, Some(first)) => return is_repeated(answer, first),
            (None, Some(_), None) => {}
        }
        prop_assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer);
        let at = grant.at;
        self.enter(subject, "confirmation", 0, at);
        self.grants[place].confirmed = Some(answer.json());
        self.check_grant(place, now, &answer.json()["grant"])?;
        self.check_limits(subject, now, &answer.json()["limits"])
    }

    /// Checks the answer to an adjustment, and takes it down.
    pub fn adjust(
        &mut self,
        adjustment: Adjustment,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Checked {
        let Adjustment { subject, units, .. } = adjustment;
        let given = counted_at(adjustment, now);
        self.lapse(subject, now);
        match adjustment.key.and_then(|key| self.keys.get(&key)) {
            Some(Done::Adjustment(place)) if self.adjustments[*place].is(&adjustment, given) => {
                return is_repeated(answer, &self.adjustments[*place].answer);
            }
            Some(Done::Adjustment(_) | Done::Grant(_)) => {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                return is_problem(answer, status, "idempotency-key-reused");
            }
            None => {}
        }
        let at = given.unwrap_or(now);
        let used = self.used(subject, at);
        if used.iter().any(|(_, used)| used.cast_signed() + units < 0) {
            return is_problem(answer, StatusCode::UNPROCESSABLE_ENTITY, "invalid");
        }
        prop_assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer);
        self.enter(subject, "adjustment", units, at);
        let told = answer.json();
        prop_assert_eq!(&told["units"], units);
        self.check_limits(subject, now, &told["limits"])?;
        if let Some(key) = adjustment.key {
            self.keys
                .insert(key, Done::Adjustment(self.adjustments.len()));
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

    /// Checks a subject's usage.
    pub fn check_usage(&mut self, subject: usize, now: DateTime<Utc>, told: &Value) -> Checked {
        self.lapse(subject, now);
        self.check_limits(subject, now, &told["limits"])
    }

    /// Checks a subject's entries, the newest first.
    pub fn check_entries(&self, subject: usize, told: &Value) -> Checked {
        let entries = self.entries.iter().rev();
        let entries = entries.filter(|entry| entry.subject == subject);
        let expected: Vec<Value> = entries
            .map(|entry| json!([entry.kind, entry.units]))
            .collect();
        let told = told["items"].as_array().expect("items").iter();
        let told: Vec<Value> = told
            .map(|entry| json!([entry["kind"], entry["units"]]))
            .collect();
        prop_assert_eq!(told, expected);
        Ok(())
    }

    fn enter(&mut self, subject: usize, kind: &'static str, units: i64, at: DateTime<Utc>) {
        self.entries.push(Entry {
            subject,
            kind,
            units,
            at,
        });
    }
}

/// The instant that an adjustment gives.
pub fn counted_at(adjustment: Adjustment, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = adjustment.seconds_ago?;
    Some(now - TimeDelta::seconds(seconds))
}

fn is_problem(answer: &Answer, status: StatusCode, kind: &str) -> Checked {
    prop_assert_eq!(answer.status, status, "{:?}", answer);
    let problem = answer.json();
    let type_of = problem["type"].as_str().expect("a type");
    prop_assert_eq!(type_of.rsplit(['#', '/']).next(), Some(kind), "{}", problem);
    Ok(())
}

/// What was done before is answered as it was.
fn is_repeated(answer: &Answer, first: &Value) -> Checked {
    prop_assert_eq!(answer.status, StatusCode::OK, "{:?}", answer);
    prop_assert_eq!(&answer.json(), first);
    Ok(())
}
