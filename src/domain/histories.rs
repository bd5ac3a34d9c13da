//! Histories of an account for the tests, made by the rule.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate, TimeDelta, Utc};
use proptest::option;
use proptest::sample::{Index, select};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use super::account::{UnitsAsked, Unknown, Verdict, decide, instant_after, record};
use super::claim::Units;
use super::correction::{Hold, adjust, carry_on, give_back, lapse, move_calendar, shrink};
use super::grant::{Direction, Entry, EntryKind, Followers, Line};
use super::identity::{AccountId, EntryId};
use super::kind::Kind;
use super::limit::sliding::TakenUnits;
use super::limit::total::{LimitState, Total};
use super::own_calendar::OwnCalendar;
use super::past::{Movement, Past, WantedPast, WindowSum};
use super::policy::Policy;
use super::reset::reset;
use super::topping_up::{end_top_up, top_up};
use super::warning::Levels;
use super::zone::Zone;

/// The action of a step.
#[derive(Debug, Clone)]
pub enum What {
    Grant,
    /// A hold with this time.
    Hold(TimeDelta),
    /// A provisional grant of this long ago.
    Record(TimeDelta),
    Reverse(Index),
    Confirm(Index),
    /// An adjustment that counts this long ago.
    Adjust(Direction, TimeDelta),
    /// A reset of one limit of the policy, or of all.
    Reset(Option<Index>),
    /// A grant that tells a calendar, or a move by an admin.
    GrantIn(OwnCalendar),
    MoveTo(OwnCalendar),
    /// A top-up that lasts this long, or the end of one.
    TopUp(TimeDelta),
    EndTopUp(Index),
}

/// The wanted past of the entries up to a number. Sums follow the plain definition and are never
/// below zero. They have what counts at or after the last reset inside the window.
pub fn past(entries: &[Entry], number: u64, wanted: &WantedPast) -> Past {
    let mut past = Past::default();
    let earlier = || entries.iter().filter(|entry| entry.line.number <= number);
    if let Some(since) = wanted.since {
        let tail = earlier().filter(|entry| entry.line.at > since);
        past.insert_tail(since, tail.map(Movement::from).collect());
    }
    for window in &wanted.windows {
        let inside = || earlier().filter(|entry| window.window.contains(entry.counted_at()));
        let mut resets = inside().filter(|entry| entry.kind.resets(window.per));
        let reset_at = resets.next_back().map(|entry| entry.line.at);
        let counting = inside().filter(|entry| reset_at <= Some(entry.counted_at()));
        let used = counting.fold(0, |sum: i64, entry| {
            let units = entry.own_units().cast_signed();
            match entry.kind {
                EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => sum + units,
                EntryKind::Confirmation { .. }
                | EntryKind::Reset { .. }
                | EntryKind::Calendar
                | EntryKind::TopUp
                | EntryKind::TopUpReversal { .. } => sum,
                EntryKind::Reversal { .. }
                | EntryKind::PartialReversal { .. }
                | EntryKind::Lapse { .. }
                | EntryKind::Adjustment(Direction::Down) => (sum - units).max(0),
            }
        });
        let used = used.cast_unsigned();
        past.insert(*window, WindowSum { used, reset_at });
    }
    past
}

/// An account with its entries.
pub struct History {
    pub account: AccountId,
    pub entries: Vec<Entry>,
    pub open: Vec<Hold>,
}

impl Default for History {
    fn default() -> Self {
        Self::of(AccountId(Uuid::nil()))
    }
}

impl History {
    pub fn of(account: AccountId) -> Self {
        Self {
            account,
            entries: Vec::new(),
            open: Vec::new(),
        }
    }

    pub fn last(&self) -> Option<&Line> {
        self.entries.last().map(|entry| &entry.line)
    }

    /// What the rule says once it has the past that it asks for.
    pub fn ask<T>(&self, rule: impl Fn(&Past) -> Result<T, Unknown>) -> T {
        let mut known = Past::default();
        loop {
            match rule(&known) {
                Ok(said) => return said,
                Err(Unknown::Past(wanted)) => {
                    known.extend(self.past(&wanted));
                }
                Err(unknown) => panic!("{unknown:?}"),
            }
        }
    }

    /// The wanted past of all entries.
    pub fn past(&self, wanted: &WantedPast) -> Past {
        past(&self.entries, u64::MAX, wanted)
    }

    fn enter(&mut self, kind: EntryKind, units: Units, counted_at: DateTime<Utc>, line: Line) {
        let nonce = self.account.0.as_u64_pair().1;
        let id = EntryId::new(counted_at, line.number, nonce);
        match kind {
            EntryKind::Grant {
                held_until: Some(until),
            } => self.open.push(Hold {
                grant: id,
                units,
                granted: units,
                top_ups: line.top_ups.clone(),
                until,
                version: line.policy_version,
            }),
            EntryKind::Confirmation { of }
            | EntryKind::Reversal { of }
            | EntryKind::Lapse { of } => self.open.retain(|hold| hold.grant != of),
            EntryKind::PartialReversal { of } => shrink(self.open.iter_mut(), of, units),
            EntryKind::Grant { held_until: None }
            | EntryKind::Adjustment(_)
            | EntryKind::Reset { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => {}
        }
        let lapses_at = self.open.iter().map(|hold| hold.until).min();
        self.entries.push(Entry {
            account: self.account,
            id,
            kind,
            units,
            key: None,
            metadata: None,
            provisional: None,
            would_deny: false,
            crossed: Levels::default(),
            bundle: None,
            is_erased: false,
            claimed_by: None,
            note: None,
            line: Line { lapses_at, ..line },
        });
    }

    pub fn lapse(&mut self, now: DateTime<Utc>) {
        let at = instant_after(self.last(), now);
        let due = self.open.iter().filter(|hold| hold.until <= at);
        let mut due: Vec<Hold> = due.cloned().collect();
        due.sort_by_key(|hold| hold.until);
        for hold in due {
            let line = self.ask(|past| lapse(&hold, self.last().unwrap(), past));
            let kind = EntryKind::Lapse { of: hold.grant };
            self.enter(kind, hold.units, line.at, line);
        }
    }

    /// A grant that was not given back, if there is one.
    fn choose(&self, index: Index) -> Option<Entry> {
        let closed: Vec<EntryId> = self.entries.iter().filter_map(closes).collect();
        let standing = self.entries.iter().filter(|entry| {
            matches!(entry.kind, EntryKind::Grant { .. }) && !closed.contains(&entry.id)
        });
        let standing: Vec<&Entry> = standing.collect();
        (!standing.is_empty()).then(|| (*index.get(&standing)).clone())
    }

    /// Does one action after the lapses that are due. Returns the verdict on a claim.
    pub fn step(
        &mut self,
        policy: &Policy,
        units: Units,
        what: &What,
        now: DateTime<Utc>,
    ) -> Option<Verdict> {
        if let What::Record(ago) = what {
            let granted_at = now - *ago;
            let recorded = self
                .ask(|sums| record(policy, units, self.last(), sums, granted_at))
                .unwrap();
            let kind = EntryKind::Grant { held_until: None };
            self.enter(kind, units, granted_at, recorded.0);
            let entry = self.entries.last_mut().unwrap();
            entry.provisional = Some(recorded.1);
            return None;
        }
        self.lapse(now);
        match what {
            What::Grant | What::Hold(_) | What::GrantIn(_) => {
                let calendar = match what {
                    What::GrantIn(own) => Some(own),
                    _ => None,
                };
                let asked = UnitsAsked {
                    units,
                    calendar: calendar.cloned().map(Arc::new),
                };
                let verdict =
                    self.ask(|sums| decide(policy, asked.clone(), self.last(), sums, now));
                if let Verdict::Granted(line) = verdict.clone() {
                    let held_until = match what {
                        What::Hold(lasts) => Some(line.at + *lasts),
                        _ => None,
                    };
                    self.enter(EntryKind::Grant { held_until }, units, line.at, line);
                }
                return Some(verdict);
            }
            What::Reverse(index) => {
                // These units, or all that are left.
                let grant = self.choose(*index)?;
                let of = grant.id;
                let followers = Followers::among(of, &self.entries);
                let left = followers.left(&grant).unwrap();
                let (kind, units) = if units < left {
                    (EntryKind::PartialReversal { of }, units)
                } else {
                    (EntryKind::Reversal { of }, left)
                };
                let returned = followers.returning(&grant, units);
                let line = self.ask(|past| give_back(policy, &returned, self.last(), past, now));
                self.enter(kind, units, line.at, line);
            }
            What::Confirm(index) => {
                let hold = index_of(*index, &self.open).cloned()?;
                let line = self.ask(|sums| carry_on(policy, self.last(), sums, now));
                let kind = EntryKind::Confirmation { of: hold.grant };
                self.enter(kind, hold.units, line.at, line);
            }
            What::Adjust(direction, ago) => {
                let at = now - *ago;
                let adjusted =
                    self.ask(|sums| adjust(policy, units, *direction, at, self.last(), sums, now));
                if let Ok(line) = adjusted {
                    self.enter(EntryKind::Adjustment(*direction), units, at, line);
                }
            }
            What::Reset(limit) => {
                let limits = &policy.rule.limits;
                let per = limit.map(|index| index.get(limits).per());
                let reset = self.ask(|past| reset(policy, per, self.last(), past, now));
                if let Ok(line) = reset {
                    self.enter(EntryKind::Reset { per }, Units::ONE, line.at, line);
                }
            }
            What::MoveTo(own) => {
                let moved =
                    self.ask(|past| move_calendar(policy, Some(own), self.last(), past, now));
                if let Ok(line) = moved {
                    self.enter(EntryKind::Calendar, Units::ONE, line.at, line);
                }
            }
            What::TopUp(lasts) => {
                let ends_at = now + *lasts;
                let given = self.ask(|past| top_up(policy, ends_at, self.last(), past, now));
                if let Ok(line) = given {
                    self.enter(EntryKind::TopUp, units, line.at, line);
                    self.entries.last_mut().unwrap().add_top_up(ends_at);
                }
            }
            What::EndTopUp(index) => {
                let given = self.entries.iter().filter(|it| it.kind == EntryKind::TopUp);
                let given: Vec<&Entry> = given.collect();
                let given = (*index_of(*index, &given)?).clone();
                let ended = self.ask(|past| end_top_up(policy, given.id, self.last(), past, now));
                if let Ok((line, units)) = ended {
                    let kind = EntryKind::TopUpReversal { of: given.id };
                    self.enter(kind, units, line.at, line);
                }
            }
            What::Record(_) => {}
        }
        None
    }
}

/// What a claim or an admin says of a calendar.
pub fn any_calendar() -> impl Strategy<Value = OwnCalendar> {
    let zones = [
        None,
        Some("GMT+14"),
        Some("America/New_York"),
        Some("Australia/Lord_Howe"),
    ];
    let zone = select(zones.to_vec());
    let anchor = option::of((0i32..1200).prop_map(|days| {
        // Many are on the last days of a month.
        let day = NaiveDate::from_ymd_opt(2024, 1, 31).unwrap() + TimeDelta::days(days.into());
        if days % 2 == 0 {
            day
        } else {
            day.with_day(31).unwrap_or(day)
        }
    }));
    (zone, anchor).prop_map(|(zone, anchor)| OwnCalendar {
        zone: zone.map(|zone| Zone::parse(zone).unwrap()),
        anchor,
    })
}

/// Checks that some steps lead to entries of these kinds, and to no others. `make` makes the entries of some steps.
pub fn assert_every_kind_is_made<S: Strategy>(
    kinds: &[Kind],
    steps: S,
    make: impl Fn(S::Value) -> Vec<Entry>,
) {
    let mut runner = TestRunner::deterministic();
    let mut made = HashSet::new();
    for _ in 0..100 {
        let steps = steps.new_tree(&mut runner).unwrap().current();
        made.extend(make(steps).iter().map(|entry| entry.kind.kind()));
    }
    assert_eq!(made, kinds.iter().copied().collect());
}

fn closes(entry: &Entry) -> Option<EntryId> {
    match entry.kind {
        EntryKind::Reversal { of } | EntryKind::Lapse { of } => Some(of),
        EntryKind::Grant { .. }
        | EntryKind::Confirmation { .. }
        | EntryKind::PartialReversal { .. }
        | EntryKind::Adjustment(_)
        | EntryKind::Reset { .. }
        | EntryKind::Calendar
        | EntryKind::TopUp
        | EntryKind::TopUpReversal { .. } => None,
    }
}

fn index_of<T>(index: Index, items: &[T]) -> Option<&T> {
    (!items.is_empty()).then(|| index.get(items))
}

/// Changes one value of a total.
pub fn plant(total: &mut Total, which: Index) {
    if let Some(reset_at) = &mut total.reset_at
        && which.index(5) == 0
    {
        *reset_at -= TimeDelta::microseconds(1);
        return;
    }
    match &mut total.state {
        LimitState::Calendar(calendar) => calendar.used += 1,
        LimitState::FromFirstClaim(opened) => match &mut opened.opened {
            Some(at) if which.index(2) == 0 => *at -= TimeDelta::microseconds(1),
            Some(_) => opened.used += 1,
            None => opened.opened = Some(DateTime::UNIX_EPOCH),
        },
        LimitState::Sliding(log) if log.pairs.is_empty() => {
            log.pairs.push(TakenUnits { at: 0, units: 1 });
        }
        LimitState::Sliding(log) => {
            let which = which.index(3 * log.pairs.len());
            let place = which / 3;
            match which % 3 {
                0 => log.pairs[place].units += 1,
                1 => log.pairs[place].at -= 1,
                _ => drop(log.pairs.remove(place)),
            }
        }
        LimitState::Rate(bucket) => match which.index(3) {
            0 => bucket.owed += 1,
            1 => bucket.since += 1,
            _ => bucket.at -= 1,
        },
    }
}
