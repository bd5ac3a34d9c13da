//! Limits against plain models: lists of grants, from which all is computed anew each time.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use uuid::Uuid;

use crate::domain::account::{Unknown, Verdict, decide, totals_at};
use crate::domain::claim::Units;
use crate::domain::correction::give_back;
use crate::domain::grant::{Entry, EntryKind, Line};
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::limit::shape::{Limit, Shape};
use crate::domain::limit::text::{decode_totals, encode_totals};
use crate::domain::limit::total::{LimitState, Total};
use crate::domain::past::{Movement, Past, Wanted, total_after};
use crate::domain::policy::Policy;
use crate::domain::refusal::Refusal;
use crate::domain::samples::policy;

/// Limits of every kind, whose units return within minutes.
const LIMITS: [(u64, &str); 12] = [
    (5, "minute"),
    (40, "ever"),
    (5, "1m from_first_claim"),
    (9, "2m from_first_claim"),
    (1, "10s sliding"),
    (5, "1m sliding"),
    (20, "3m sliding"),
    (7, "1m sliding step 10s"),
    (150, "100s sliding step 1s"),
    (3, "20s rate"),
    (7, "1m rate burst 2"),
    (2, "15s rate burst 9"),
];

#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Claim(u64),
    Reverse(prop::sample::Index),
    /// The last line tells no limit, as after a change of the policy.
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        Just(0),
        Just(1),
        1i64..5_000_000,
        Just(10_000_000),
        1i64..90_000_000,
        Just(59_999_999),
        Just(60_000_000),
    ];
    let step = prop_oneof![
        5 => wait.prop_map(Step::Wait),
        8 => (1u64..5).prop_map(Step::Claim),
        2 => any::<prop::sample::Index>().prop_map(Step::Reverse),
    ];
    prop::collection::vec(step, 1..80)
}

/// Most of them claim or give back, while little returns.
fn busy_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1i64..6_000_000).prop_map(Step::Wait),
        1 => (1i64..60_000_000).prop_map(Step::Wait),
        8 => (1u64..6).prop_map(Step::Claim),
        4 => any::<prop::sample::Index>().prop_map(Step::Reverse),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 20..120)
}

fn policies() -> impl Strategy<Value = Policy> {
    let limits = prop::sample::subsequence(LIMITS.to_vec(), 1..4).prop_shuffle();
    limits.prop_filter_map("two limits per one time", |limits| {
        let name = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let mut names: Vec<String> = limits.iter().map(|(_, per)| name(per)).collect();
        names.sort_unstable();
        names.dedup();
        (names.len() == limits.len()).then(|| policy(1, "UTC", &limits))
    })
}

/// A grant of the plain list.
#[derive(Debug, Clone)]
struct PlainGrant {
    at: i64,
    units: u64,
    is_reversed: bool,
}

/// What is used of a limit at an instant; `None` for a rate.
fn used(limit: &Limit, grants: &[PlainGrant], now: i64) -> Option<u64> {
    let standing = |grant: &&PlainGrant| !grant.is_reversed;
    let sum = |is_inside: &dyn Fn(i64) -> bool| {
        let inside = grants
            .iter()
            .filter(standing)
            .filter(|grant| is_inside(grant.at));
        inside.map(|grant| grant.units).sum::<u64>()
    };
    Some(match limit.shape {
        Shape::Calendar(_) => sum(&|at| at.div_euclid(60_000_000) == now.div_euclid(60_000_000)),
        Shape::Ever => sum(&|_| true),
        Shape::Sliding { per, step } => {
            let step = step.map_or(1, |step| step.micros());
            let rounded = |at: i64| (at + step - 1).div_euclid(step) * step;
            sum(&|at| now < rounded(at) + per.micros())
        }
        Shape::FromFirstClaim(per) => {
            let mut opened: Option<i64> = None;
            for grant in grants {
                if opened.is_none_or(|opened| opened + per.micros() <= grant.at) {
                    opened = Some(grant.at);
                }
            }
            let open = opened.filter(|opened| now < opened + per.micros());
            open.map_or(0, |opened| sum(&|at| at >= opened))
        }
        Shape::Rate { .. } => return None,
    })
}

/// The time until a rate's bucket is full, by its definition: the most that some of the last grants
/// cost beyond the time since the first of them.
fn owed(limit: &Limit, grants: &[PlainGrant], now: i64) -> i64 {
    let Shape::Rate { per, .. } = limit.shape else {
        return 0;
    };
    let max = i64::try_from(limit.max).unwrap();
    let cost = |units: u64| (units.cast_signed() * per.micros() + max - 1).div_euclid(max);
    let ends = grants.iter().enumerate().map(|(first, grant)| {
        let costs: i64 = grants[first..].iter().map(|grant| cost(grant.units)).sum();
        costs - (now - grant.at)
    });
    ends.max().unwrap_or(0).max(0)
}

/// An account that the production code decides for, beside the plain list.
struct ModelAccount {
    policy: Policy,
    now: DateTime<Utc>,
    entries: Vec<Entry>,
    plain: Vec<PlainGrant>,
    has_reversals: bool,
    was_forgotten: bool,
}

impl ModelAccount {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            now: "2026-11-21T03:04:05.678901Z".parse().unwrap(),
            entries: Vec::new(),
            plain: Vec::new(),
            has_reversals: false,
            was_forgotten: false,
        }
    }

    fn last(&self) -> Option<&Line> {
        self.entries.last().map(|entry| &entry.line)
    }

    /// Asks the rule, and tells it of the entries what it wants.
    fn ask<T>(&self, rule: impl Fn(&Past) -> Result<T, Unknown>) -> T {
        let mut past = Past::default();
        loop {
            match rule(&past) {
                Ok(said) => return said,
                Err(Unknown::Past(wanted)) => past.extend(self.past(&wanted)),
                Err(unknown) => panic!("{unknown:?}"),
            }
        }
    }

    fn past(&self, wanted: &Wanted) -> Past {
        let mut past = Past::default();
        assert_eq!(wanted.windows, [], "each line tells all limits");
        if let Some(since) = wanted.since {
            let tail = self.entries.iter().filter(|entry| entry.line.at > since);
            past.insert_tail(since, tail.map(Movement::from).collect());
        }
        if let Some(grant) = wanted.grant {
            let found = self.entries.iter().find(|entry| entry.id == grant);
            past.insert_grant(grant, found.unwrap().line.totals.clone());
        }
        past
    }

    fn append(&mut self, kind: EntryKind, units: Units, line: Line) {
        self.entries.push(Entry {
            account: AccountId(Uuid::nil()),
            id: EntryId::new(line.at, line.number, 0),
            kind,
            units,
            key: None,
            metadata: None,
            provisional: None,
            would_deny: false,
            is_erased: false,
            claimed_by: None,
            note: None,
            line,
        });
    }

    fn claim(&mut self, units: Units) -> Result<(), Refusal> {
        let verdict = self.ask(|past| decide(&self.policy, units, self.last(), past, self.now));
        match verdict {
            Verdict::Granted(line) => {
                self.plain.push(PlainGrant {
                    at: line.at.timestamp_micros(),
                    units: units.get(),
                    is_reversed: false,
                });
                self.append(EntryKind::Grant { held_until: None }, units, line);
                Ok(())
            }
            Verdict::Refused(refusal) => Err(refusal),
            Verdict::WouldDeny(_) => panic!("it enforces"),
        }
    }

    fn reverse(&mut self, index: prop::sample::Index) {
        let grants = self.entries.iter();
        let grants = grants.filter(|entry| matches!(entry.kind, EntryKind::Grant { .. }));
        let grants: Vec<&Entry> = grants.collect();
        let standing: Vec<usize> = (0..grants.len())
            .filter(|place| !self.plain[*place].is_reversed)
            .collect();
        if standing.is_empty() {
            return;
        }
        let place = *index.get(&standing);
        let (of, units) = (grants[place].id, grants[place].units);
        let line = self.ask(|past| give_back(&self.policy, units, of, self.last(), past, self.now));
        self.plain[place].is_reversed = true;
        self.has_reversals = true;
        self.append(EntryKind::Reversal { of }, units, line);
    }

    fn forget(&mut self) {
        if let Some(entry) = self.entries.last_mut() {
            entry.line.totals = Arc::new([]);
            self.was_forgotten = true;
        }
    }

    /// The totals now, as the last line tells them.
    fn totals(&self) -> Vec<Total> {
        self.ask(|past| totals_at(&self.policy, self.last(), past, self.now))
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let now = self.now.timestamp_micros();
        let totals = self.totals();
        let told = decode_totals(&encode_totals(&totals)).unwrap();
        prop_assert_eq!(&told, &totals);
        for (limit, total) in self.policy.rule.limits.iter().zip(&totals) {
            match used(limit, &self.plain, now) {
                Some(used) => {
                    prop_assert_eq!(total.used(), used, "{:?}", total);
                    prop_assert_eq!(total.remaining(), limit.max.saturating_sub(used));
                    prop_assert!(used <= limit.max);
                }
                None => self.check_rate(limit, total, now)?,
            }
            check_times(total)?;
        }
        Ok(())
    }

    fn check_rate(&self, limit: &Limit, total: &Total, now: i64) -> Result<(), TestCaseError> {
        let LimitState::Rate(bucket) = &total.state else {
            panic!("no rate")
        };
        if !self.has_reversals && !self.was_forgotten {
            prop_assert_eq!(bucket.owed, owed(limit, &self.plain, now));
        }
        // In any span no more than the burst and what returned in it.
        let (Shape::Rate { per, .. }, burst) = (limit.shape, limit.ceiling) else {
            panic!("no rate")
        };
        let standing = self.plain.iter().filter(|grant| !grant.is_reversed);
        let standing: Vec<&PlainGrant> = standing.collect();
        for (first, begin) in standing.iter().enumerate() {
            let mut units = 0;
            for end in &standing[first..] {
                units += u128::from(end.units);
                let span = u128::from((end.at - begin.at).unsigned_abs());
                let returned = u128::from(limit.max) * span;
                let most = u128::from(burst) * u128::from(per.micros().unsigned_abs()) + returned;
                prop_assert!(units * u128::from(per.micros().unsigned_abs()) <= most);
            }
        }
        Ok(())
    }
}

const MOMENT: TimeDelta = TimeDelta::microseconds(1);

fn aged(total: &Total, at: DateTime<Utc>) -> Total {
    let mut total = total.clone();
    total.age(at);
    total
}

/// What a total tells of the time to come is so, and was not so a microsecond before.
fn check_times(total: &Total) -> Result<(), TestCaseError> {
    if matches!(total.state, LimitState::Calendar(_)) {
        return Ok(());
    }
    for units in 1..=total.at_once() {
        let units = Units::new(units.into()).unwrap();
        if !total.fits(units) {
            let at = total.fits_at(units).unwrap();
            prop_assert!(aged(total, at).fits(units), "{:?}", total);
            prop_assert!(!aged(total, at - MOMENT).fits(units), "{:?}", total);
        }
    }
    let never = Units::new(i128::from(total.at_once()) + 1).unwrap();
    prop_assert_eq!(total.fits_at(never), None);
    match total.resets_at() {
        Some(at) => {
            prop_assert_eq!(aged(total, at).used(), 0);
            prop_assert_eq!(aged(total, at).resets_at(), None);
            prop_assert_eq!(aged(total, at - MOMENT).resets_at(), Some(at));
        }
        None => prop_assert_eq!(total.used(), 0),
    }
    match total.more_at() {
        Some(at) if total.used() > 0 => {
            prop_assert!(aged(total, at).remaining() > total.remaining());
            prop_assert_eq!(aged(total, at - MOMENT).remaining(), total.remaining());
        }
        // An opened window of which nothing is used ends, too.
        Some(_) => prop_assert!(matches!(total.state, LimitState::FromFirstClaim(_))),
        None => prop_assert_eq!(total.used(), 0),
    }
    Ok(())
}

proptest! {
    #[test]
    fn totals_are_what_the_plain_list_says(policy in policies(), steps in steps()) {
        let mut account = ModelAccount::new(policy);
        for step in steps {
            match step {
                Step::Wait(micros) => account.now += TimeDelta::microseconds(micros),
                Step::Reverse(index) => account.reverse(index),
                Step::Forget => account.forget(),
                Step::Claim(units) => {
                    let units = Units::new(units.into()).unwrap();
                    let (before, limits) = (account.totals(), account.policy.rule.limits.clone());
                    let now = account.now.timestamp_micros();
                    let fits = limits.iter().zip(&before).all(|(limit, total)| {
                        match used(limit, &account.plain, now) {
                            Some(used) => used + units.get() <= limit.max,
                            None => total.fits(units),
                        }
                    });
                    match account.claim(units) {
                        Ok(()) => prop_assert!(fits),
                        Err(Refusal::Denied(told)) => {
                            prop_assert!(!fits);
                            prop_assert_eq!(told, before);
                        }
                        Err(Refusal::NeverFits { max, .. }) => prop_assert!(units.get() > max),
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
            account.check()?;
        }
    }

    /// As if the limit were new: the account's entries tell it.
    #[test]
    fn the_entries_tell_what_the_line_would(policy in policies(), steps in steps()) {
        let mut account = ModelAccount::new(policy);
        for step in steps {
            match step {
                Step::Wait(micros) => account.now += TimeDelta::microseconds(micros),
                Step::Reverse(index) => account.reverse(index),
                Step::Forget => account.forget(),
                Step::Claim(units) => {
                    let _ = account.claim(Units::new(units.into()).unwrap());
                }
            }
        }
        let Some(last) = account.last() else { return Ok(()) };
        let blind = Line { totals: Arc::new([]), ..last.clone() };
        for (limit, total) in account.policy.rule.limits.iter().zip(account.totals()) {
            if matches!(total.state, LimitState::Calendar(_)) {
                continue;
            }
            let next = blind.number + 1;
            let unused = Total::unused(limit, &account.policy.rule.calendar, account.now, next);
            let read = match total_after(unused.clone(), Some(&blind), &Past::default(), account.now) {
                Ok(read) => read,
                Err(wanted) => {
                    let past = account.past(&wanted);
                    total_after(unused, Some(&blind), &past, account.now).unwrap()
                }
            };
            match limit.shape {
                Shape::Sliding { .. } => prop_assert_eq!(read, total),
                // A window that was opened before is not known: it may be another one, in which no
                // less is used of what counts in both.
                Shape::FromFirstClaim(_) => prop_assert!(read.used() >= total.used()),
                _ => prop_assert!(read.used() >= total.used(), "{:?} {:?}", read, total),
            }
        }
    }

    /// Claims and reversals follow each other fast, the line forgets, and the max changes: in no span
    /// are there more units than the larger burst, and what the larger max returned.
    #[test]
    fn no_rate_is_exceeded(steps in busy_steps(), maxima in prop::collection::vec(1u64..8, 1..4)) {
        let rates = maxima.iter().map(|max| policy(1, "UTC", &[(*max, "20s rate burst 9")]));
        let rates: Vec<Policy> = rates.collect();
        let largest = rates.iter().max_by_key(|policy| policy.rule.limits[0].max).unwrap();
        let limit = largest.rule.limits[0];
        let mut account = ModelAccount::new(rates[0].clone());
        account.was_forgotten = true;
        let turn = steps.len().div_ceil(rates.len());
        for (number, step) in steps.into_iter().enumerate() {
            account.policy = rates[number / turn].clone();
            match step {
                Step::Wait(micros) => account.now += TimeDelta::microseconds(micros),
                Step::Reverse(index) => account.reverse(index),
                Step::Forget => account.forget(),
                Step::Claim(units) => {
                    let _ = account.claim(Units::new(units.into()).unwrap());
                }
            }
        }
        let total = account.totals().remove(0);
        account.check_rate(&limit, &total, account.now.timestamp_micros())?;
    }

    /// The entries tell a sliding limit all that the line did.
    #[test]
    fn no_sliding_limit_is_exceeded(
        steps in busy_steps(),
        per in prop_oneof![Just("40s sliding"), Just("40s sliding step 4s")],
    ) {
        let mut account = ModelAccount::new(policy(1, "UTC", &[(9, per)]));
        for step in steps {
            match step {
                Step::Wait(micros) => account.now += TimeDelta::microseconds(micros),
                Step::Reverse(index) => account.reverse(index),
                Step::Forget => account.forget(),
                Step::Claim(units) => {
                    let _ = account.claim(Units::new(units.into()).unwrap());
                }
            }
            account.check()?;
        }
    }
}
