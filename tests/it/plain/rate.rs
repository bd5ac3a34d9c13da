//! `rate`: a bucket, represented by the instant at which it is full again (as in ITU-T I.371).
//!
//! Time is measured in parts of a unit: each microsecond returns `max` parts. Therefore nothing is
//! rounded.

use super::{Effect, PlainAccount, PlainBucket, PlainEntry, PlainLimit, Return};

/// A bucket under one `max` and `burst`. The scale of its instants depends on that `max`.
struct Refill {
    max: u64,
    burst: u64,
    parts_of_unit: i128,
    /// Where this bucket begins, and when it would be full then.
    since: usize,
    full_at: i128,
    /// The entries since then, with their places. What was given back of a grant was never taken.
    entries: Vec<(usize, PlainEntry)>,
}

impl PlainAccount {
    pub(super) fn bucket(&self, limit: &PlainLimit, at: i64) -> PlainBucket {
        // 1. Find the line since which every line has the limit. The bucket is full before the
        //    account's first line.
        let place = self.kept_from(limit);
        let first = self.told(place, limit).unwrap_or(limit);
        let mut refill = Refill::full(first, place);
        // 2. The earlier state of a new limit's bucket is unknown. The model assumes that it was
        //    empty one refill time before the line without the limit, and that it is no emptier at
        //    that line.
        let mut before = self.line_before(place).unwrap_or(i64::MIN);
        if place > 0 {
            let back = refill.time();
            refill.full_at = refill.on_scale(before - back) + refill.empty();
            for (own, entry) in self.counting(place, back).filter(|(own, _)| *own < place) {
                refill.meet(own, entry, i64::MIN);
            }
            let owed = refill.owed(before).min(refill.empty());
            refill.begin(before, owed, place);
        }
        // 3. Go through the entries: begin again where a line has another `max` or `burst`.
        for (own, entry) in self.entries.iter().enumerate().skip(place) {
            refill.go_on(self.told(own, limit).unwrap_or(limit), before, own);
            refill.meet(own, entry, entry.at - refill.time());
            before = entry.at;
        }
        refill.go_on(limit, before, self.entries.len());
        PlainBucket {
            at,
            owed: refill.owed(at),
            since: refill.since,
        }
    }
}

fn burst_of(limit: &PlainLimit) -> u64 {
    match limit.returns {
        Return::Rate { burst } => burst,
        Return::FromFirstClaim | Return::Sliding { .. } => panic!("{limit:?} is no rate"),
    }
}

impl Refill {
    fn full(limit: &PlainLimit, since: usize) -> Self {
        Self {
            max: limit.max,
            burst: burst_of(limit),
            parts_of_unit: limit.per.into(),
            since,
            full_at: i128::MIN,
            entries: Vec::new(),
        }
    }

    /// The parts that return in a microsecond. A `max` of 0 blocks, and its units return as with 1.
    fn speed(&self) -> i128 {
        self.max.max(1).into()
    }

    /// The parts that an empty bucket lacks.
    fn empty(&self) -> i128 {
        i128::from(self.burst) * self.parts_of_unit
    }

    /// The time in which an empty bucket becomes full.
    fn time(&self) -> i64 {
        let micros = (self.empty() + self.speed() - 1) / self.speed();
        i64::try_from(micros).expect("a time")
    }

    /// An instant on the scale of the `max`.
    fn on_scale(&self, at: i64) -> i128 {
        i128::from(at) * self.speed()
    }

    fn begin(&mut self, at: i64, owed: i128, place: usize) {
        self.full_at = self.on_scale(at) + owed;
        self.since = place;
        self.entries.clear();
    }

    /// Begins again after an instant if the limit has another `max` or `burst`. The owed units then
    /// return at the new speed.
    fn go_on(&mut self, limit: &PlainLimit, after: i64, place: usize) {
        if (self.max, self.burst) != (limit.max, burst_of(limit)) {
            let owed = self.owed(after);
            (self.max, self.burst) = (limit.max, burst_of(limit));
            self.begin(after, owed, place);
        }
    }

    /// Takes the next entry. Only a grant after an instant is given back.
    fn meet(&mut self, place: usize, entry: &PlainEntry, gives_back_after: i64) {
        let Effect::GiveBack(grant) = entry.effect else {
            return self.entries.push((place, *entry));
        };
        let mut entries = self.entries.iter_mut();
        let own = entries.find(|(own, _)| *own == grant);
        if let Some((_, own)) = own.filter(|(_, own)| own.counted_at > gives_back_after) {
            own.units = own.units.saturating_sub(entry.units);
        }
    }

    /// The parts that the bucket lacks at an instant.
    fn owed(&self, at: i64) -> i128 {
        let full_at = self
            .entries
            .iter()
            .fold(self.full_at, |full_at, (_, entry)| {
                let now = self.on_scale(entry.at);
                let cost = i128::from(entry.units) * self.parts_of_unit;
                let left = (self.on_scale(entry.counted_at) + cost - now).clamp(0, cost);
                let full_at = full_at.max(now);
                match entry.effect {
                    Effect::Grant | Effect::Take => full_at + left,
                    Effect::TakeOff => (full_at - left).max(now),
                    Effect::GiveBack(_) | Effect::Nothing => full_at,
                }
            });
        full_at.saturating_sub(self.on_scale(at)).max(0)
    }
}
