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

/// The bucket of a rate under one max and burst, in parts: a unit has as many parts as `per` has
/// microseconds.
struct PlainBucket {
    parts: i128,
    max: u64,
    burst: u64,
    /// What the bucket lacks at the beginning.
    begun_at: i64,
    begun_with: i128,
    /// The entries that moved units since then, without what was given back.
    events: Vec<Event>,
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
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => {
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
    /// only this long before that line.
    fn counting(&self, kept_from: usize, ago: i64) -> impl Iterator<Item = Event> {
        let since = self.begins_at(kept_from).map_or(i64::MIN, |at| at - ago);
        let counts = move |event: &Event| event.place >= kept_from || event.counted_at > since;
        self.events().filter(counts)
    }

    /// The instant of the line before a new limit. A limit that every line has begins at the first line.
    fn begins_at(&self, kept_from: usize) -> Option<i64> {
        Some(self.event(kept_from.checked_sub(1)?).at)
    }

    fn used_in(&self, window: Window) -> u64 {
        let contains = |event: &Event| {
            let counted_at = DateTime::from_timestamp_micros(event.counted_at).unwrap();
            window.contains(counted_at)
        };
        let inside = self.events().filter(contains);
        inside.fold(0, |used, event| event.used_after(used))
    }

    /// The start and the usage of the window.
    pub fn opened_by_claims(&self, limit: &Limit, per: Elapsed, at: i64) -> (Option<i64>, u64) {
        let (kept_from, per) = (self.kept_from(limit), per.micros());
        let mut windows: Vec<(i64, u64)> = Vec::new();
        // The start of a window before the first line is not known: it ends as late as it can.
        let earlier = self.counting(kept_from, per);
        let earlier = earlier.take_while(|event| event.place < kept_from);
        let takes = earlier.filter(|event| matches!(event.effect, Effect::Take));
        windows.extend(
            takes
                .map(|event| event.counted_at)
                .max()
                .map(|start| (start, 0)),
        );
        for event in self.counting(kept_from, per) {
            if event.place < kept_from {
                let used = windows.last_mut().map(|(_, used)| used);
                used.into_iter()
                    .for_each(|used| *used = event.used_after(*used));
                continue;
            }
            let is_open = |(start, _): &(i64, u64)| event.at < start + per;
            let is_new = !windows.last().is_some_and(is_open);
            if is_new && matches!(event.effect, Effect::Take) && event.at < event.counted_at + per {
                windows.push((event.counted_at, 0));
            }
            let current = windows.last_mut();
            let Some((start, used)) = current.filter(|window| is_open(window)) else {
                continue;
            };
            if event.counted_at >= *start {
                *used = event.used_after(*used);
            }
        }
        let current = windows.last().filter(|(start, _)| at < start + per);
        current.map_or((None, 0), |(start, used)| (Some(*start), *used))
    }

    /// The units that count at an instant, by the instants at which they were taken.
    pub fn sliding(&self, limit: &Limit, per: Elapsed, at: i64) -> BTreeMap<i64, u64> {
        let (kept_from, per) = (self.kept_from(limit), per.micros());
        let step = limit.shape.step().map_or(1, Elapsed::micros);
        let begins_at = self.begins_at(kept_from).unwrap_or_default();
        let ago = per + (begins_at - per).rem_euclid(step);
        let cell = |instant: i64| (instant + step - 1).div_euclid(step) * step;
        let mut taken: BTreeMap<i64, u64> = BTreeMap::new();
        for event in self.counting(kept_from, ago) {
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

    /// The parts that the bucket lacks.
    pub fn rate(&self, limit: &Limit, per: Elapsed, at: i64) -> i128 {
        let kept_from = self.kept_from(limit);
        let told = |place| match place < self.limits.len() {
            true => self.told(place, limit),
            false => *limit,
        };
        let mut bucket = PlainBucket::full(&told(kept_from), per);
        // 1. A new bucket is empty one refill time before the line that does not have the limit, and no
        //    emptier at that line.
        if let Some(begins_at) = self.begins_at(kept_from) {
            let refill = bucket.refill();
            (bucket.begun_at, bucket.begun_with) = (begins_at - refill, bucket.empty());
            let earlier = self.counting(kept_from, refill);
            let earlier = earlier.take_while(|event| event.place < kept_from);
            earlier.for_each(|event| bucket.meet(event, i64::MIN));
            bucket.begin_again(begins_at);
            bucket.begun_with = bucket.begun_with.min(bucket.empty());
        }
        // 2. Under another max or burst, a bucket begins from the line before on.
        let mut before = bucket.begun_at;
        for event in self.events().skip(kept_from) {
            bucket.go_on(&told(event.place), before);
            bucket.meet(event, event.at - bucket.refill());
            before = event.at;
        }
        bucket.go_on(limit, before);
        bucket.owed(at)
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
                let parts = i128::from(per.micros());
                let used = (self.rate(limit, per, at) + parts - 1) / parts;
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

impl Event {
    /// The usage after the entry, if it was `used` before.
    fn used_after(&self, used: u64) -> u64 {
        match self.effect {
            Effect::Take => used + self.units,
            Effect::GiveBack(_) | Effect::TakeOff => used.saturating_sub(self.units),
            Effect::Nothing => used,
        }
    }
}

impl PlainBucket {
    fn full(limit: &Limit, per: Elapsed) -> Self {
        Self {
            parts: per.micros().into(),
            max: limit.max,
            burst: burst_of(limit),
            begun_at: i64::MIN,
            begun_with: 0,
            events: Vec::new(),
        }
    }

    /// What an empty bucket lacks.
    fn empty(&self) -> i128 {
        i128::from(self.burst) * self.parts
    }

    /// The time in which an empty bucket becomes full.
    fn refill(&self) -> i64 {
        let back = back_in_micro(self.max);
        i64::try_from((self.empty() + back - 1) / back).unwrap()
    }

    /// Begins again after an instant.
    fn begin_again(&mut self, after: i64) {
        self.begun_with = self.owed(after);
        self.begun_at = after;
        self.events.clear();
    }

    /// Begins again after an instant if the limit has another max or burst.
    fn go_on(&mut self, limit: &Limit, after: i64) {
        if (self.max, self.burst) != (limit.max, burst_of(limit)) {
            self.begin_again(after);
            (self.max, self.burst) = (limit.max, burst_of(limit));
        }
    }

    /// Takes the next entry. What is given back of a grant after an instant was never taken.
    fn meet(&mut self, event: Event, gives_back_after: i64) {
        let Effect::GiveBack(grant) = event.effect else {
            return self.events.push(event);
        };
        let mut own = self.events.iter_mut();
        let own = own.find(|own| own.place == grant && own.counted_at > gives_back_after);
        own.into_iter()
            .for_each(|own| own.units = own.units.saturating_sub(event.units));
    }

    /// What the bucket lacks at an instant.
    fn owed(&self, at: i64) -> i128 {
        let back = |from: i64, to: i64| {
            back_in_micro(self.max) * i128::from(to).saturating_sub(from.into()).max(0)
        };
        let (mut owed, mut clock) = (self.begun_with, self.begun_at);
        for event in &self.events {
            owed = (owed - back(clock, event.at)).max(0);
            clock = event.at;
            let cost = i128::from(event.units) * self.parts;
            let left = (cost - back(event.counted_at, event.at)).max(0);
            owed = match event.effect {
                Effect::Take => owed + left,
                Effect::TakeOff => (owed - left).max(0),
                Effect::GiveBack(_) | Effect::Nothing => owed,
            };
        }
        (owed - back(clock, at)).max(0)
    }
}
