//! `rate`: a bucket, represented by the instant at which it is full again (as in ITU-T I.371).
//!
//! Time is measured in parts of a unit: each microsecond returns `max` parts. Therefore nothing is
//! rounded.

use std::collections::BTreeMap;

use super::{Effect, PlainAccount, PlainBucket, PlainEntry, PlainLimit, Return};

/// A bucket under one `max`. The scale of its instants depends on that `max`.
struct Refill {
    max: u64,
    parts_of_unit: i128,
    /// When the bucket is full.
    full_at: i128,
    given_back: i128,
    since: usize,
    /// For each grant, when its last unit returns if nothing is given back.
    returns: BTreeMap<usize, i128>,
}

impl PlainAccount {
    pub(super) fn bucket(&self, limit: &PlainLimit, at: i64) -> PlainBucket {
        // 1. Find the line since which every line has the limit, and the bucket's size and speed at
        //    that line.
        let place = self.kept_from(limit);
        let first = self.told(place, limit).unwrap_or(limit);
        let Return::Rate { burst } = first.returns else {
            panic!("{first:?} is no rate")
        };
        let (parts_of_unit, speed) = (i128::from(first.per), speed_of(first.max));
        // The bucket's earlier state is unknown. The model assumes that it was empty one refill
        // time ago.
        let empty = i128::from(burst) * parts_of_unit;
        let back = (empty + speed - 1) / speed;
        let after = self.begins_after(place, at, i64::try_from(back).expect("a time"));
        let mut refill = Refill {
            max: first.max,
            parts_of_unit,
            full_at: i128::from(after) * speed + empty,
            given_back: 0,
            since: place,
            returns: BTreeMap::new(),
        };
        let mut before = after;
        // 2. Go through the entries: change the speed where a line has another `max`, and then fill
        //    or empty the bucket.
        for (own, entry) in self.counting(place, after) {
            if let Some(told) = self.told(own, limit).filter(|_| own >= place) {
                refill.go_on(told.max, before, own);
            }
            refill.meet(own, entry, own >= place);
            before = entry.at;
        }
        // 3. Change to the present `max`, and compute what the bucket lacks now.
        refill.go_on(limit.max, before, self.entries.len());
        PlainBucket {
            at,
            owed: refill.owed(at),
            given_back: refill.given_back,
            since: refill.since,
        }
    }
}

/// The parts that return in a microsecond. A `max` of 0 blocks, and its units return as with 1.
fn speed_of(max: u64) -> i128 {
    max.max(1).into()
}

impl Refill {
    /// An instant on the scale of the present `max`.
    fn on_scale(&self, at: i64) -> i128 {
        i128::from(at) * speed_of(self.max)
    }

    fn owed(&self, at: i64) -> i128 {
        (self.full_at - self.on_scale(at)).max(0)
    }

    /// Continues after an instant, possibly under another `max`. The owed units then return at the
    /// new speed.
    fn go_on(&mut self, max: u64, after: i64, place: usize) {
        if max == self.max {
            return;
        }
        let owed = self.owed(after);
        self.max = max;
        self.full_at = self.on_scale(after) + owed;
        self.given_back = 0;
        self.since = place;
        self.returns.clear();
    }

    fn meet(&mut self, place: usize, entry: &PlainEntry, is_kept: bool) {
        let (now, counted) = (self.on_scale(entry.at), self.on_scale(entry.counted_at));
        let cost = i128::from(entry.units) * self.parts_of_unit;
        let outstanding = match entry.effect {
            Effect::Nothing => return,
            Effect::Grant | Effect::Take => {
                self.full_at = match self.full_at > now {
                    true => self.full_at + cost,
                    false => now.max(counted + cost),
                };
                if is_kept {
                    self.returns.insert(place, self.full_at + self.given_back);
                }
                return;
            }
            Effect::GiveBack(grant) => match self.returns.get(&grant) {
                Some(returns) => returns - self.given_back - now,
                None => return,
            },
            Effect::TakeOff => counted + cost - now,
        };
        let off = outstanding.clamp(0, cost).min(self.owed(entry.at));
        self.full_at -= off;
        self.given_back += off;
    }
}
