//! The plain model: a list of entries, and the usage by the definitions alone.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use proptest::prelude::*;

use crate::elapsed::Elapsed;
use crate::grant::{Direction, Entry, EntryKind};
use crate::histories::History;
use crate::limit::per::Per;
use crate::limit::shape::{Limit, Shape};
use crate::policy::Policy;
use crate::window::Window;

use super::top_ups::PlainTopUps;

/// The entries of an account, and the limits that decided each of them.
#[derive(Default)]
pub struct Book {
    pub history: History,
    pub limits: Vec<Vec<Limit>>,
    pub top_ups: PlainTopUps,
}

/// The effect of an entry on the usage.
#[derive(Debug, Clone, Copy)]
enum EventEffect {
    Take,
    /// Gives back the units of the entry with this index.
    GiveBack(usize),
    TakeOff,
    /// Begins a limit again, or all limits.
    Reset(Option<Per>),
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    place: usize,
    effect: EventEffect,
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
    /// The last instant before the beginning at which an entry moved units.
    moved_at: i64,
    /// The entries that moved units since then, without what was given back. What was taken off was
    /// taken off at the instant at which it counts.
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
    let settings = |limit: &Limit| (limit.shape.step(), limit.shape.first_day());
    one.per() == two.per() && one.shape.kind() == two.shape.kind() && settings(one) == settings(two)
}

impl Book {
    /// Follows the entries that were made since. `room` is what the windows had left before them.
    pub fn meet(&mut self, room: u64) -> Result<(), TestCaseError> {
        for entry in &self.history.entries[self.top_ups.own.len()..] {
            self.top_ups.meet(entry, room);
            let told = entry.line.top_ups.as_ref();
            prop_assert!(self.top_ups.is_told_by(entry), "{told:?}");
        }
        Ok(())
    }

    fn event(&self, place: usize) -> Event {
        let entry = &self.history.entries[place];
        let effect = match entry.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => EventEffect::Take,
            EntryKind::Adjustment(Direction::Down) => EventEffect::TakeOff,
            EntryKind::Confirmation { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => EventEffect::Nothing,
            EntryKind::Reset { per } => EventEffect::Reset(per),
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => {
                let is_it = |other: &Entry| other.id == of;
                EventEffect::GiveBack(self.history.entries.iter().position(is_it).unwrap())
            }
        };
        Event {
            place,
            effect,
            units: self.top_ups.own[place],
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

    fn limit_at(&self, place: usize, limit: &Limit) -> Limit {
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

    /// As `counting`, from the last of these entries on that reset the limit, if there is one.
    fn counting_since_reset(&self, limit: &Limit, kept_from: usize, ago: i64) -> Vec<Event> {
        since_reset(limit.per(), self.counting(kept_from, ago).collect())
    }

    /// The instant of the line before a new limit. A limit that every line has begins at the first line.
    fn begins_at(&self, kept_from: usize) -> Option<i64> {
        Some(self.event(kept_from.checked_sub(1)?).at)
    }

    fn used_in(&self, per: Per, window: Window) -> u64 {
        let contains = |event: &Event| {
            let counted_at = DateTime::from_timestamp_micros(event.counted_at).unwrap();
            window.contains(counted_at)
        };
        let inside = since_reset(per, self.events().filter(contains).collect());
        inside.iter().fold(0, |used, event| event.used_after(used))
    }

    /// The start and the usage of the window.
    pub fn opened_by_claims(&self, limit: &Limit, per: Elapsed, at: i64) -> (Option<i64>, u64) {
        let kept_from = self.kept_from(limit);
        let per = per.micros();
        let mut windows: Vec<(i64, u64)> = Vec::new();
        // The start of a window before the first line is not known: it ends as late as it can, and has
        // the most that a window can have.
        let counting = self.counting_since_reset(limit, kept_from, per);
        let (earlier, later): (Vec<Event>, Vec<Event>) = counting
            .into_iter()
            .partition(|event| event.place < kept_from);
        let takes = earlier.iter().filter(|event| event.takes());
        let start = takes.map(|event| event.counted_at).max();
        windows.extend(start.map(|start| (start, most_of_a_window(&earlier))));
        for event in later {
            let is_open = |(start, _): &(i64, u64)| event.at < start + per;
            let is_new = !windows.last().is_some_and(is_open);
            if is_new && event.takes() && event.at < event.counted_at + per {
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
        let kept_from = self.kept_from(limit);
        let per = per.micros();
        let step = limit.shape.step().map_or(1, Elapsed::micros);
        let begins_at = self.begins_at(kept_from).unwrap_or_default();
        let ago = per + (begins_at - per).rem_euclid(step);
        let cell = |instant: i64| (instant + step - 1).div_euclid(step) * step;
        // An adjustment before the first line of the limit took units first that do not count any more.
        let mut counting: Vec<Event> = self.counting(kept_from, ago).collect();
        let is_early = |event: &Event| event.place < kept_from && event.takes_off();
        if counting.iter().any(is_early) {
            let known = |event: &Event| !is_early(event) || event.at > begins_at - ago;
            counting = self.counting(kept_from, ago + per).filter(known).collect();
        }
        let counting = since_reset(limit.per(), counting);
        let mut units_by_start: BTreeMap<i64, u64> = BTreeMap::new();
        for event in counting {
            let own = cell(event.counted_at);
            if own + per <= event.at {
                continue;
            }
            match event.effect {
                EventEffect::Take => *units_by_start.entry(own).or_default() += event.units,
                EventEffect::GiveBack(_) => {
                    if let Some(units) = units_by_start.get_mut(&own) {
                        *units = units.saturating_sub(event.units);
                    }
                }
                EventEffect::TakeOff => {
                    let mut rest = event.units;
                    for (_, units) in units_by_start.range_mut(event.at - per + 1..=own) {
                        let off = rest.min(*units);
                        *units -= off;
                        rest -= off;
                    }
                }
                EventEffect::Reset(_) | EventEffect::Nothing => {}
            }
        }
        units_by_start.retain(|instant, units| *units > 0 && at < instant + per);
        units_by_start
    }

    /// The parts that the bucket lacks.
    pub fn rate(&self, limit: &Limit, per: Elapsed, at: i64) -> i128 {
        let kept_from = self.kept_from(limit);
        let limit_at = |place| {
            if place < self.limits.len() {
                self.limit_at(place, limit)
            } else {
                *limit
            }
        };
        let mut bucket = PlainBucket::full(&limit_at(kept_from), per);
        let counting = self.counting_since_reset(limit, kept_from, bucket.refill());
        // 1. A new bucket is empty one refill time before the line that does not have the limit, and no
        //    emptier at that line. It was full at its reset.
        if let Some(begins_at) = self.begins_at(kept_from) {
            let earlier = counting.iter().take_while(|event| event.place < kept_from);
            (bucket.begun_at, bucket.begun_with) = match earlier.clone().next() {
                Some(event) if event.resets(limit.per()) => (event.at, 0),
                _ => (begins_at - bucket.refill(), bucket.empty()),
            };
            earlier.for_each(|event| bucket.meet(*event, i64::MIN));
            bucket.begin_again(begins_at, self.moved_before(kept_from));
            bucket.begun_with = bucket.begun_with.min(bucket.empty());
        }
        // 2. Under another max or burst, a bucket begins from the line before on.
        let mut before = bucket.begun_at;
        for event in self.events().skip(kept_from) {
            let moved_at = self.moved_before(event.place);
            bucket.go_on(&limit_at(event.place), before, moved_at);
            if counting.iter().any(|counts| counts.place == event.place) {
                bucket.meet(event, event.at - bucket.refill());
            }
            before = event.at;
        }
        bucket.go_on(limit, before, self.moved_before(self.limits.len()));
        bucket.owed(at)
    }

    /// The instant of the last entry before an index that moved units.
    fn moved_before(&self, place: usize) -> i64 {
        let earlier = self.events().take(place);
        let moves = |event: &Event| {
            use EventEffect::{GiveBack, Take, TakeOff};
            event.units > 0 && matches!(event.effect, Take | GiveBack(_) | TakeOff)
        };
        let moving = earlier.filter(moves);
        moving.last().map_or(i64::MIN, |event| event.at)
    }

    /// The used and the remaining units of a limit, at an instant that is not before the last
    /// entry.
    pub fn used_and_left(&self, policy: &Policy, limit: &Limit, now: DateTime<Utc>) -> (u64, u64) {
        let at = now.timestamp_micros();
        let used = match limit.shape {
            Shape::Calendar(division) => {
                self.used_in(limit.per(), policy.rule.calendar.window(division, now))
            }
            Shape::Ever => self.used_in(Per::Ever, Window::EVER),
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

    /// The grants that were decided, without what was given back of them.
    fn standing(&self) -> impl Iterator<Item = Event> {
        let is_decided = |event: &Event| {
            let entry = &self.history.entries[event.place];
            matches!(entry.kind, EntryKind::Grant { .. }) && entry.provisional.is_none()
        };
        let events: Vec<Event> = self.events().collect();
        let decided = events.clone().into_iter().filter(is_decided);
        let standing = decided.map(|event| event.net(&events));
        standing.collect::<Vec<_>>().into_iter()
    }

    /// Checks after a grant that no span of time that ends now has more units than a limit allows.
    /// Grants that were given back since do not count, and neither does what an adjustment took off
    /// inside the span: it was taken at or before the adjustment's instant. An adjustment from before
    /// the span took nothing of it. What was granted before the last reset does not count.
    pub fn is_never_over(&self, limit: &Limit) -> Result<(), TestCaseError> {
        let now = self.event(self.limits.len() - 1).at;
        let resets = self.events().filter(|event| event.resets(limit.per()));
        let reset_at = resets.last().map_or(i64::MIN, |event| event.at);
        let counts = |event: &Event| event.counted_at >= reset_at;
        let grants: Vec<Event> = self.standing().filter(counts).collect();
        let off = self.events().filter(Event::takes_off).filter(counts);
        let off: Vec<Event> = off.collect();
        let step = limit.shape.step().map_or(1, Elapsed::micros);
        let cell = |event: &Event| (event.counted_at + step - 1).div_euclid(step) * step;
        let sum = |from: i64| {
            let of = |events: &[Event]| {
                let inside = events.iter().filter(|event| cell(event) >= from);
                inside.map(|event| event.units).sum::<u64>()
            };
            of(&grants).saturating_sub(of(&off))
        };
        match limit.shape {
            Shape::Sliding { per, .. } => {
                let starts = grants.iter().map(cell);
                for from in starts.filter(|from| now < from + per.micros()) {
                    prop_assert!(sum(from) <= limit.max, "{limit:?}: {}", sum(from));
                }
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

/// The events that count in a limit: those that count at or after the last one that resets it.
fn since_reset(per: Per, mut events: Vec<Event>) -> Vec<Event> {
    let reset = events.iter().rfind(|event| event.resets(per)).copied();
    if let Some(reset) = reset {
        events.retain(|event| event.counted_at >= reset.at);
    }
    events
}

/// The most units that one of the windows of some entries has: what was given back was never taken,
/// and an adjustment of before the window took nothing off.
fn most_of_a_window(events: &[Event]) -> u64 {
    let used_after = |start: i64| {
        let inside = events.iter().filter(|event| event.counted_at > start);
        inside.fold(0, |used, event| match event.effect {
            EventEffect::GiveBack(_) => used,
            _ => event.net(events).used_after(used),
        })
    };
    let off = events.iter().filter(|event| event.takes_off());
    let starts = off.map(|event| event.counted_at).chain([i64::MIN]);
    starts.map(used_after).max().unwrap_or_default()
}

impl Event {
    fn resets(&self, limit: Per) -> bool {
        matches!(self.effect, EventEffect::Reset(per) if per.is_none_or(|per| per == limit))
    }

    fn takes(&self) -> bool {
        matches!(self.effect, EventEffect::Take) && self.units > 0
    }

    fn takes_off(&self) -> bool {
        matches!(self.effect, EventEffect::TakeOff)
    }

    /// The entry without what some entries give back of it.
    fn net(self, events: &[Self]) -> Self {
        let gives =
            |event: &&Self| matches!(event.effect, EventEffect::GiveBack(of) if of == self.place);
        let given_back = events.iter().filter(gives).map(|event| event.units);
        let units = self.units.saturating_sub(given_back.sum());
        Self { units, ..self }
    }

    /// The usage after the entry, if it was `used` before.
    fn used_after(&self, used: u64) -> u64 {
        match self.effect {
            EventEffect::Take => used + self.units,
            EventEffect::GiveBack(_) | EventEffect::TakeOff => used.saturating_sub(self.units),
            EventEffect::Reset(_) | EventEffect::Nothing => used,
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
            moved_at: i64::MIN,
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

    /// Begins again after an instant. `moved_at` is the last instant until then at which units moved.
    fn begin_again(&mut self, after: i64, moved_at: i64) {
        self.begun_with = self.owed(after);
        self.begun_at = after;
        self.moved_at = moved_at;
        self.events.clear();
    }

    /// Begins again after an instant if the limit has another max or burst.
    fn go_on(&mut self, limit: &Limit, after: i64, moved_at: i64) {
        if (self.max, self.burst) != (limit.max, burst_of(limit)) {
            self.begin_again(after, moved_at);
            (self.max, self.burst) = (limit.max, burst_of(limit));
        }
    }

    /// Takes the next entry. What is given back of a grant after an instant was never taken. What is
    /// taken off after that instant was taken off then, unless units moved before the beginning since.
    fn meet(&mut self, event: Event, gives_back_after: i64) {
        match event.effect {
            EventEffect::Take | EventEffect::Nothing => self.events.push(event),
            EventEffect::Reset(_) => {}
            EventEffect::TakeOff => {
                if event.counted_at > gives_back_after && event.counted_at >= self.moved_at {
                    let at = event.counted_at.max(self.begun_at);
                    let place = self.events.partition_point(|other| other.at <= at);
                    self.events.insert(place, Event { at, ..event });
                }
            }
            EventEffect::GiveBack(grant) => {
                let mut own = self.events.iter_mut();
                let own = own.find(|own| own.place == grant && own.counted_at > gives_back_after);
                own.into_iter()
                    .for_each(|own| own.units = own.units.saturating_sub(event.units));
            }
        }
    }

    /// What the bucket lacks at an instant.
    fn owed(&self, at: i64) -> i128 {
        let back = |from: i64, to: i64| {
            back_in_micro(self.max) * i128::from(to).saturating_sub(from.into()).max(0)
        };
        let mut owed = self.begun_with;
        let mut clock = self.begun_at;
        for event in &self.events {
            owed = (owed - back(clock, event.at)).max(0);
            clock = event.at;
            let cost = i128::from(event.units) * self.parts;
            owed = match event.effect {
                EventEffect::Take => owed + (cost - back(event.counted_at, event.at)).max(0),
                EventEffect::TakeOff => (owed - cost).max(0),
                EventEffect::GiveBack(_) | EventEffect::Reset(_) | EventEffect::Nothing => owed,
            };
        }
        (owed - back(clock, at)).max(0)
    }
}
