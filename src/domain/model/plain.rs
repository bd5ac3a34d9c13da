//! The plain model: a list of entries, and the usage by the definitions alone.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use proptest::prelude::*;

use crate::domain::grant::{Direction, Entry, EntryKind};
use crate::domain::histories::History;
use crate::domain::limit::per::Elapsed;
use crate::domain::limit::shape::{Limit, Shape};
use crate::domain::policy::Policy;
use crate::domain::window::Window;

/// The entries of an account, and the limits that decided each of them.
#[derive(Default)]
pub struct Book {
    pub history: History,
    pub limits: Vec<Vec<Limit>>,
}

/// The effect of an entry on the usage.
#[derive(Debug, Clone, Copy)]
enum Effect {
    Take,
    /// Gives back the units of the entry with this index.
    GiveBack(usize),
    TakeOff,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    place: usize,
    effect: Effect,
    units: u64,
    /// The instant of the entry, in microseconds.
    at: i64,
    /// The instant at which the units count.
    counted_at: i64,
}

/// The bucket of a rate, in parts: a unit has as many parts as `per` has microseconds.
pub struct PlainBucket {
    parts: i128,
    pub owed: i128,
    given_back: i128,
    /// For each grant under the same max: when its last unit returns, on the scale of returned
    /// parts.
    returns: BTreeMap<usize, i128>,
    /// The parts that have returned so far, and the parts of each grant that still wait in the
    /// queue.
    returned: i128,
    queue: Vec<(Option<usize>, i128)>,
}

/// The parts that return in a microsecond. A max of 0 blocks; units return as with a max of 1.
fn back_in_micro(max: u64) -> i128 {
    max.max(1).into()
}

fn burst_of(limit: &Limit) -> u64 {
    limit.shape.burst().unwrap_or(limit.max)
}

/// Whether a limit continues from a line that another limit decided.
fn goes_on(one: &Limit, two: &Limit) -> bool {
    let step = one.shape.step() == two.shape.step();
    one.per() == two.per() && one.shape.kind() == two.shape.kind() && step
}

impl Book {
    fn event(&self, place: usize) -> Event {
        let entry = &self.history.entries[place];
        let effect = match entry.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => Effect::Take,
            EntryKind::Adjustment(Direction::Down) => Effect::TakeOff,
            EntryKind::Confirmation { .. } => Effect::Nothing,
            EntryKind::Reversal { of } | EntryKind::Lapse { of } => {
                let is_it = |other: &Entry| other.id == of;
                Effect::GiveBack(self.history.entries.iter().position(is_it).unwrap())
            }
        };
        Event {
            place,
            effect,
            units: entry.units.get(),
            at: entry.line.at.timestamp_micros(),
            counted_at: entry.counted_at().timestamp_micros(),
        }
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        (0..self.history.entries.len()).map(|place| self.event(place))
    }

    /// The index from which on all lines have the limit; the number of lines if the last line does
    /// not have it.
    fn kept_from(&self, limit: &Limit) -> usize {
        let tells = |limits: &&Vec<Limit>| limits.iter().any(|other| goes_on(other, limit));
        self.limits.len() - self.limits.iter().rev().take_while(tells).count()
    }

    fn told(&self, place: usize, limit: &Limit) -> Limit {
        let limits = self.limits[place].iter();
        *limits
            .into_iter()
            .find(|other| goes_on(other, limit))
            .unwrap()
    }

    /// The entries that count for a limit that lines have from an index on. Earlier entries count
    /// only after an instant.
    fn counting(&self, kept_from: usize, since: i64) -> impl Iterator<Item = Event> {
        let counts = move |event: &Event| event.place >= kept_from || event.counted_at > since;
        self.events().filter(counts)
    }

    /// The instant before which nothing is known of a limit that starts with a line, or now.
    fn begins_at(&self, kept_from: usize, at: i64, ago: i64) -> i64 {
        let line = self.history.entries.get(kept_from);
        line.map_or(at, |entry| entry.line.at.timestamp_micros()) - ago
    }

    fn used_in(&self, window: Window) -> u64 {
        let contains = |event: &Event| {
            let counted_at = DateTime::from_timestamp_micros(event.counted_at).unwrap();
            window.contains(counted_at)
        };
        let inside = self.events().filter(contains);
        inside.fold(0, |used: u64, event| match event.effect {
            Effect::Take => used + event.units,
            Effect::GiveBack(_) | Effect::TakeOff => used.saturating_sub(event.units),
            Effect::Nothing => used,
        })
    }

    /// The start and the usage of the window.
    pub fn opened_by_claims(&self, limit: &Limit, per: Elapsed, at: i64) -> (Option<i64>, u64) {
        let (kept_from, per) = (self.kept_from(limit), per.micros());
        let since = self.begins_at(kept_from, at, per);
        let mut windows: Vec<(i64, u64)> = Vec::new();
        for event in self.counting(kept_from, since) {
            let is_open = |(start, _): &(i64, u64)| event.at < start + per;
            let is_new = !windows.last().is_some_and(is_open);
            if is_new && matches!(event.effect, Effect::Take) && event.at < event.counted_at + per {
                windows.push((event.counted_at, 0));
            }
            let current = windows.last_mut();
            let Some((start, used)) = current.filter(|window| is_open(window)) else {
                continue;
            };
            match event.effect {
                _ if event.counted_at < *start => {}
                Effect::Take => *used += event.units,
                Effect::GiveBack(_) | Effect::TakeOff => *used = used.saturating_sub(event.units),
                Effect::Nothing => {}
            }
        }
        let current = windows.last().filter(|(start, _)| at < start + per);
        current.map_or((None, 0), |(start, used)| (Some(*start), *used))
    }

    /// The units that count at an instant, by the instants at which they were taken.
    pub fn sliding(&self, limit: &Limit, per: Elapsed, at: i64) -> BTreeMap<i64, u64> {
        let (kept_from, per) = (self.kept_from(limit), per.micros());
        let step = limit.shape.step().map_or(1, Elapsed::micros);
        let since = self.begins_at(kept_from, at, per).div_euclid(step) * step;
        let cell = |instant: i64| (instant + step - 1).div_euclid(step) * step;
        let mut taken: BTreeMap<i64, u64> = BTreeMap::new();
        for event in self.counting(kept_from, since) {
            let own = cell(event.counted_at);
            if own + per <= event.at {
                continue;
            }
            match event.effect {
                Effect::Take => *taken.entry(own).or_default() += event.units,
                Effect::GiveBack(_) => {
                    let mut from_own = taken.range_mut(own..);
                    if let Some((_, units)) = from_own.find(|(_, units)| **units > 0) {
                        *units = units.saturating_sub(event.units);
                    }
                }
                Effect::TakeOff => {
                    let mut rest = event.units;
                    for (_, units) in taken.range_mut(event.at - per + 1..) {
                        let off = rest.min(*units);
                        *units -= off;
                        rest -= off;
                    }
                }
                Effect::Nothing => {}
            }
        }
        taken.retain(|instant, units| *units > 0 && at < instant + per);
        taken
    }

    pub fn rate(&self, limit: &Limit, per: Elapsed, at: i64) -> PlainBucket {
        let kept_from = self.kept_from(limit);
        let parts = i128::from(per.micros());
        let first = match kept_from < self.limits.len() {
            true => self.told(kept_from, limit),
            false => *limit,
        };
        let full = i128::from(burst_of(&first)) * parts;
        let back = back_in_micro(first.max);
        let refill = i64::try_from((full + back - 1) / back).unwrap();
        let since = self.begins_at(kept_from, at, refill);
        let mut bucket = PlainBucket {
            parts,
            owed: full,
            given_back: 0,
            returns: BTreeMap::new(),
            returned: 0,
            queue: vec![(None, full)],
        };
        // Under another max, all units return by that max from the line before on.
        let (mut clock, mut max) = (since, first.max);
        for event in self.counting(kept_from, since) {
            let is_kept = event.place >= kept_from;
            if is_kept && self.told(event.place, limit).max != max {
                max = self.told(event.place, limit).max;
                bucket.returns.clear();
                bucket.given_back = 0;
            }
            bucket.pass(max, event.at - clock);
            clock = event.at;
            bucket.meet(&event, max, is_kept);
        }
        bucket.pass(limit.max, at - clock);
        bucket
    }

    /// The used and the remaining units of a limit, at an instant that is not before the last
    /// entry.
    pub fn used_and_left(&self, policy: &Policy, limit: &Limit, now: DateTime<Utc>) -> (u64, u64) {
        let at = now.timestamp_micros();
        let used = match limit.shape {
            Shape::Calendar(length) => self.used_in(policy.rule.calendar.window(length, now)),
            Shape::Ever => self.used_in(Window::EVER),
            Shape::FromFirstClaim(per) => self.opened_by_claims(limit, per, at).1,
            Shape::Sliding { per, .. } => self.sliding(limit, per, at).values().sum(),
            Shape::Rate { per, .. } => {
                let bucket = self.rate(limit, per, at);
                let used = (bucket.owed + bucket.parts - 1) / bucket.parts;
                u64::try_from(used).unwrap()
            }
        };
        let left = match limit.max {
            0 => 0,
            _ => limit.shape.at_once(limit.max).saturating_sub(used),
        };
        (used, left)
    }

    /// The indexes of grants that were decided and not given back.
    fn standing(&self) -> impl Iterator<Item = Event> {
        let is_given_back = |place: usize| {
            let mut events = self.events();
            events.any(|event| matches!(event.effect, Effect::GiveBack(of) if of == place))
        };
        let is_decided = |event: &Event| {
            let entry = &self.history.entries[event.place];
            matches!(entry.kind, EntryKind::Grant { .. }) && entry.provisional.is_none()
        };
        self.events()
            .filter(move |event| is_decided(event) && !is_given_back(event.place))
    }

    /// Checks after a grant that no span of time has more units than a limit allows. Grants that
    /// were given back since, and adjustments, do not count.
    pub fn is_never_over(&self, limit: &Limit) -> Result<(), TestCaseError> {
        let now = self.event(self.limits.len() - 1).at;
        let grants: Vec<Event> = self.standing().collect();
        let sum = |from: i64| {
            let inside = grants.iter().filter(|event| event.counted_at >= from);
            inside.map(|event| event.units).sum::<u64>()
        };
        match limit.shape {
            Shape::Sliding { per, .. } => {
                prop_assert!(sum(now - per.micros() + 1) <= limit.max);
            }
            Shape::Rate { per, .. } => {
                let same = |limits: &&Vec<Limit>| limits.contains(limit);
                let kept = self.limits.iter().rev().take_while(same).count();
                let kept_from = self.limits.len() - kept;
                for grant in grants.iter().filter(|event| event.place >= kept_from) {
                    let span = i128::from(now - grant.counted_at) * i128::from(limit.max);
                    let most = i128::from(burst_of(limit)) * i128::from(per.micros()) + span;
                    let of_span = i128::from(sum(grant.counted_at)) * i128::from(per.micros());
                    prop_assert!(of_span <= most, "{limit:?}: {of_span} of {most}");
                }
            }
            Shape::Calendar(_) | Shape::Ever | Shape::FromFirstClaim(_) => {}
        }
        Ok(())
    }
}

impl PlainBucket {
    fn pass(&mut self, max: u64, micros: i64) {
        let mut back = back_in_micro(max) * i128::from(micros.max(0));
        self.owed = (self.owed - back).max(0);
        self.returned += back;
        // The queue is served in its order.
        for (_, parts) in &mut self.queue {
            let served = back.min(*parts);
            *parts -= served;
            back -= served;
        }
        self.queue.retain(|(_, parts)| *parts > 0);
    }

    fn meet(&mut self, event: &Event, max: u64, is_known: bool) {
        let cost = i128::from(event.units) * self.parts;
        let late = back_in_micro(max) * i128::from((event.at - event.counted_at).max(0));
        let not_refilled = (cost - late).max(0);
        match event.effect {
            Effect::Take => {
                self.owed += if self.owed == 0 { not_refilled } else { cost };
                let queued = match self.queue.is_empty() {
                    true => not_refilled,
                    false => cost,
                };
                self.queue.push((Some(event.place), queued));
                if is_known {
                    let returns = self.owed + self.given_back + self.returned;
                    self.returns.insert(event.place, returns);
                }
            }
            Effect::GiveBack(of) => {
                let returns = self.returns.get(&of);
                let outstanding = returns.map_or(0, |returns| {
                    (returns - self.given_back - self.returned).clamp(0, cost)
                });
                let off = outstanding.min(self.owed);
                self.owed -= off;
                self.given_back += off;
                self.queue.retain(|(grant, _)| *grant != Some(of));
            }
            Effect::TakeOff => {
                let off = not_refilled.min(self.owed);
                self.owed -= off;
                self.given_back += off;
            }
            Effect::Nothing => {}
        }
    }

    /// The units that are still owed if each grant that is given back takes along those of its own
    /// units that time has not refilled.
    pub fn queued(&self) -> i128 {
        self.queue.iter().map(|(_, parts)| parts).sum()
    }
}
