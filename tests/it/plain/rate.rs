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
    /// The last instant before it begins at which units moved.
    moved_at: i64,
    /// The entries since then, with their places. What was given back of a grant was never taken. What
    /// was taken off was taken off at the instant at which it counts.
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
        let mut moved_at = self.moved_before(place);
        let counting = self.counting(limit, place, refill.time());
        let counts = |own: usize| counting.iter().any(|(counted, _)| *counted == own);
        if place > 0 {
            let earlier = counting.iter().take_while(|(own, _)| *own < place);
            // At its reset the bucket was full.
            refill.full_at = match earlier.clone().next() {
                Some((_, entry)) if entry.effect.resets(limit) => refill.on_scale(entry.at),
                _ => refill.on_scale(before - refill.time()) + refill.empty(),
            };
            for (own, entry) in earlier {
                refill.meet(*own, entry, i64::MIN);
            }
            let owed = refill.owed(before).min(refill.empty());
            refill.begin(before, owed, place, moved_at);
        }
        // 3. Go through the entries: begin again where a line has another `max` or `burst`.
        for (own, entry) in self.entries.iter().enumerate().skip(place) {
            let told = self.told(own, limit).unwrap_or(limit);
            refill.go_on(told, before, own, moved_at);
            if counts(own) {
                refill.meet(own, entry, entry.at - refill.time());
            }
            before = entry.at;
            if entry.effect.moves() {
                moved_at = entry.at;
            }
        }
        refill.go_on(limit, before, self.entries.len(), moved_at);
        PlainBucket {
            at,
            owed: refill.owed(at),
            since: refill.since,
        }
    }

    /// The last instant before a place at which units moved.
    fn moved_before(&self, place: usize) -> i64 {
        let mut earlier = self.entries[..place].iter().rev();
        let last = earlier.find(|entry| entry.effect.moves());
        last.map_or(i64::MIN, |entry| entry.at)
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
            moved_at: i64::MIN,
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

    fn begin(&mut self, at: i64, owed: i128, place: usize, moved_at: i64) {
        self.full_at = self.on_scale(at) + owed;
        self.since = place;
        self.moved_at = moved_at;
        self.entries.clear();
    }

    /// Begins again after an instant if the limit has another `max` or `burst`. The owed units then
    /// return at the new speed.
    fn go_on(&mut self, limit: &PlainLimit, after: i64, place: usize, moved_at: i64) {
        if (self.max, self.burst) != (limit.max, burst_of(limit)) {
            let owed = self.owed(after);
            (self.max, self.burst) = (limit.max, burst_of(limit));
            self.begin(after, owed, place, moved_at);
        }
    }

    /// Takes the next entry. Only a grant after an instant is given back. Units are taken off only
    /// after that instant, and only if no units moved since then before the bucket began.
    fn meet(&mut self, place: usize, entry: &PlainEntry, gives_back_after: i64) {
        match entry.effect {
            Effect::Grant | Effect::Take => self.entries.push((place, *entry)),
            Effect::Reset(_) | Effect::Nothing => {}
            Effect::TakeOff => {
                let at = entry.counted_at;
                if gives_back_after < at && self.moved_at <= at {
                    let taken_off = PlainEntry { at, ..*entry };
                    let later = self.entries.iter().rev();
                    let later = later.take_while(|(_, other)| at < other.at).count();
                    let next = self.entries.len() - later;
                    self.entries.insert(next, (place, taken_off));
                }
            }
            Effect::GiveBack(grant) => {
                let mut entries = self.entries.iter_mut();
                let own = entries.find(|(own, _)| *own == grant);
                if let Some((_, own)) = own.filter(|(_, own)| own.counted_at > gives_back_after) {
                    own.units = own.units.saturating_sub(entry.units);
                }
            }
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
                match entry.effect {
                    Effect::Grant | Effect::Take => full_at.max(now) + left,
                    // A bucket that was full then stays full from the same instant on.
                    Effect::TakeOff => full_at.min(full_at.saturating_sub(cost).max(now)),
                    Effect::GiveBack(_) | Effect::Reset(_) | Effect::Nothing => full_at,
                }
            });
        full_at.saturating_sub(self.on_scale(at)).max(0)
    }
}
