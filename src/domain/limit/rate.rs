//! `rate`: a bucket of `burst` units. Time refills the bucket evenly, with `max` units each `per`.
//!
//! Source: the generic cell rate algorithm (ITU-T I.371, annex A), in parts of a unit. A unit has as many
//! parts as `per` has microseconds, so each microsecond brings exactly `max` parts back. Only the instants
//! in answers are rounded.

use chrono::{DateTime, Utc};

use super::shape::TOTAL_MAX;
use crate::elapsed::Elapsed;

/// The longest time until parts are back that an answer tells, in microseconds: about 5,000 years.
const RETURN_MAX: i64 = 160_000_000_000_000_000;

/// The state of a bucket at an instant. [`super::total::Total`] has the `max` that refills the bucket. A
/// `max` of 0 blocks the subject, and refills the bucket as 1 does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    pub per: Elapsed,
    /// The units that a full bucket holds.
    pub burst: u64,
    /// The instant of this state, in microseconds since 1970.
    pub at: i64,
    /// The missing parts. More than `burst` units only if more was used than fits.
    pub owed: u128,
    /// The number of the account's first line under the present `max`.
    pub since: u64,
}

/// A change of a bucket: units that were taken and are not given back, or that were taken off by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketChange {
    /// The instant of the change: of the line that took the units, or the one of which they were taken off.
    pub at: DateTime<Utc>,
    pub counted_at: DateTime<Utc>,
    pub units: u64,
    pub takes: bool,
}

/// What happened to a bucket after an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Afterwards {
    /// The number of the first line that must be under the present `max` and `burst`.
    pub line: u64,
    /// In the order of their instants.
    pub changes: Vec<BucketChange>,
}

/// What happened to a bucket from a grant on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AfterGrant {
    pub grant: BucketChange,
    /// From the grant's line on.
    pub after: Afterwards,
}

impl Afterwards {
    /// Nothing happened.
    pub const NOTHING: Self = Self {
        line: u64::MAX,
        changes: Vec::new(),
    };
}

impl Bucket {
    pub fn full(per: Elapsed, burst: u64, at: DateTime<Utc>, since: u64) -> Self {
        Self {
            per,
            burst,
            at: at.timestamp_micros(),
            owed: 0,
            since,
        }
    }

    /// Converts units to parts.
    pub fn parts(&self, units: u64) -> u128 {
        u128::from(units) * self.parts_of_unit()
    }

    fn parts_of_unit(&self) -> u128 {
        u128::from(self.per.micros().unsigned_abs())
    }

    /// The missing units. A part of a unit counts as a unit.
    pub fn used(&self) -> u64 {
        let units = self.owed.div_ceil(self.parts_of_unit());
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The whole units that can be taken.
    pub fn left(&self) -> u64 {
        self.burst.saturating_sub(self.used())
    }

    /// The time in which an empty bucket is full, in microseconds.
    pub fn refill(&self, max: u64) -> i64 {
        returns_in(max, self.parts(self.burst))
    }

    /// Refills the bucket up to an instant. An earlier instant changes nothing.
    pub fn age(&mut self, max: u64, at: DateTime<Utc>) {
        let later = at.timestamp_micros().max(self.at);
        self.owed = self.owed.saturating_sub(returned(max, self.at, later));
        self.at = later;
    }

    /// Takes units that count at `counted_at` out of the bucket, but not the parts that time has refilled
    /// already.
    pub fn add(&mut self, max: u64, units: u64, counted_at: DateTime<Utc>) {
        let more = self.not_refilled(max, units, counted_at);
        self.owed = (self.owed + more).min(self.parts(TOTAL_MAX));
    }

    /// The parts of units of `counted_at` that time has not refilled.
    fn not_refilled(&self, max: u64, units: u64, counted_at: DateTime<Utc>) -> u128 {
        self.left_at(max, units, counted_at, self.at)
    }

    /// The parts of units of `counted_at` that time has not refilled at an instant.
    fn left_at(&self, max: u64, units: u64, counted_at: DateTime<Utc>, at: i64) -> u128 {
        let returned = returned(max, counted_at.timestamp_micros(), at);
        self.parts(units).saturating_sub(returned)
    }

    /// Applies a change at its instant.
    pub fn change(&mut self, max: u64, change: &BucketChange) {
        self.age(max, change.at);
        if change.takes {
            self.add(max, change.units, change.counted_at)
        } else {
            self.lower(self.parts(change.units))
        }
    }

    /// Gives units of a grant back: the bucket lacks what it would lack if the grant had not taken them.
    /// Changes that count before `reset_at` changed nothing.
    pub fn give_back(
        &mut self,
        max: u64,
        units: u64,
        grant: &AfterGrant,
        reset_at: Option<DateTime<Utc>>,
    ) {
        let BucketChange {
            at,
            counted_at,
            units: all,
            ..
        } = grant.grant;
        let left = |units| self.left_at(max, units, counted_at, at.timestamp_micros());
        let off = left(all) - left(all.saturating_sub(units));
        self.put_back(max, off, &grant.after, reset_at);
    }

    /// Takes units off at an instant: the bucket lacks what it would lack if this had been done then.
    /// Changes that count before `reset_at` changed nothing.
    pub fn take_off(
        &mut self,
        max: u64,
        units: u64,
        after: &Afterwards,
        reset_at: Option<DateTime<Utc>>,
    ) {
        self.put_back(max, self.parts(units), after, reset_at);
    }

    /// Puts parts back at an instant of the past. Nothing is put back before the present `max`.
    ///
    /// With the parts, the bucket lacks them less from the instant on, until it is full. From then on it
    /// lacks what the later changes took. It lacks at least what the changes after the instant took out of
    /// a bucket that was full then: `without`. So the entries before the instant are not needed, and parts
    /// can be put back in any order.
    fn put_back(
        &mut self,
        max: u64,
        off: u128,
        after: &Afterwards,
        reset_at: Option<DateTime<Utc>>,
    ) {
        if after.line < self.since {
            return;
        }
        let mut without = Self {
            at: i64::MIN,
            owed: 0,
            ..*self
        };
        let changed = |change: &&BucketChange| reset_at <= Some(change.counted_at);
        for change in after.changes.iter().filter(changed) {
            without.change(max, change);
        }
        without.owed = without
            .owed
            .saturating_sub(returned(max, without.at, self.at));
        self.lower(off.min(self.owed.saturating_sub(without.owed)));
    }

    fn lower(&mut self, off: u128) {
        self.owed = self.owed.saturating_sub(off);
    }

    /// The instant from which on the units fit, in microseconds since 1970. `None`: never.
    pub fn fits_at(&self, max: u64, units: u64) -> Option<i64> {
        let room = self.parts(self.burst.checked_sub(units)?);
        let missing = self.owed.saturating_sub(room);
        Some(self.at.saturating_add(returns_in(max, missing)))
    }

    /// The instant at which the bucket is full, in microseconds since 1970. `None`: it is full.
    pub fn resets_at(&self, max: u64) -> Option<i64> {
        (self.owed > 0).then(|| self.at.saturating_add(returns_in(max, self.owed)))
    }
}

/// The parts that time refills between two instants.
fn returned(max: u64, from: i64, to: i64) -> u128 {
    let passed = to.saturating_sub(from).max(0);
    u128::from(max.max(1)) * u128::from(passed.unsigned_abs())
}

/// The time in which some parts return, in microseconds.
fn returns_in(max: u64, parts: u128) -> i64 {
    let micros = parts.div_ceil(u128::from(max.max(1)));
    i64::try_from(micros).map_or(RETURN_MAX, |micros| micros.min(RETURN_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).unwrap()
    }

    fn bucket(per: &str, burst: u64) -> Bucket {
        Bucket::full(per.parse().unwrap(), burst, at(0), 1)
    }

    #[test]
    fn a_max_that_divides_no_time_loses_no_unit() {
        for (max, per) in [(3, "1s"), (7, "24h"), (6, "1s"), (11, "1s"), (13, "400d")] {
            let mut bucket = bucket(per, max);
            for used in 1..=max {
                assert_eq!(bucket.fits_at(max, 1), Some(0));
                bucket.add(max, 1, at(0));
                assert_eq!((bucket.used(), bucket.left()), (used, max - used));
            }
            let per = bucket.per.micros();
            assert_eq!(bucket.resets_at(max), Some(per));
            // The first unit is back as soon as it may be, and no sooner.
            let first = per / i64::try_from(max).unwrap() + 1;
            assert_eq!(bucket.fits_at(max, 1), Some(first));
            bucket.age(max, at(first - 1));
            assert_eq!(bucket.left(), 0);
            bucket.age(max, at(first));
            assert_eq!(bucket.left(), 1);
            bucket.age(max, at(per - 1));
            assert_eq!((bucket.left(), bucket.resets_at(max)), (max - 1, Some(per)));
            bucket.age(max, at(per));
            assert_eq!((bucket.left(), bucket.resets_at(max)), (max, None));
        }
    }

    #[test]
    fn what_is_over_the_burst_is_used_to_the_unit() {
        let mut bucket = bucket("1s", 20);
        for used in 1..=25 {
            bucket.add(10, 1, at(0));
            assert_eq!(
                (bucket.used(), bucket.left()),
                (used, 20u64.saturating_sub(used))
            );
        }
        assert_eq!(bucket.fits_at(10, 1), Some(600_000));
        assert_eq!(bucket.fits_at(10, 20), Some(2_500_000));
        assert_eq!(bucket.fits_at(10, 21), None);
    }

    fn take_at(second: i64) -> BucketChange {
        let at = at(second * 1_000_000);
        BucketChange {
            at,
            counted_at: at,
            units: 1,
            takes: true,
        }
    }

    #[test]
    fn what_comes_back_is_what_would_not_be_missing() {
        // One unit a second: two grants at once, and one a second later.
        let changes = [0, 0, 1].map(take_at);
        let mut bucket = bucket("1s", 5);
        for change in &changes {
            bucket.change(1, change);
        }
        let grant = |place: usize, later: &[BucketChange]| AfterGrant {
            grant: changes[place],
            after: Afterwards {
                line: place as u64 + 1,
                changes: later.to_vec(),
            },
        };
        bucket.age(1, at(1_500_000));
        assert_eq!(bucket.owed, 1_500_000);
        // Without one of the first two, the bucket was full when the third one came.
        let mut other = bucket;
        other.give_back(1, 1, &grant(0, &changes[1..]), None);
        assert_eq!(other.owed, 500_000);
        // The other one of the two has returned meanwhile.
        other.give_back(1, 1, &grant(1, &changes[2..]), None);
        assert_eq!(other.owed, 500_000);
        other.give_back(1, 1, &grant(2, &[]), None);
        assert_eq!(other.owed, 0);
        // The same in another order.
        let mut other = bucket;
        other.give_back(1, 1, &grant(2, &[]), None);
        assert_eq!(other.owed, 500_000);
        other.give_back(1, 1, &grant(1, &[]), None);
        assert_eq!(other.owed, 0);
        // A grant of before another max gives nothing back.
        bucket.since = 4;
        let before = bucket;
        bucket.give_back(1, 1, &grant(2, &[]), None);
        assert_eq!(bucket, before);
    }

    #[test]
    fn what_is_taken_off_was_missing_then() {
        // One unit a second: three units, and two more at the fifth second.
        let five = [0, 0, 0, 5, 5].map(take_at);
        let after = |place: usize| Afterwards {
            line: place as u64 + 1,
            changes: five[place..].to_vec(),
        };
        for (place, aged, units, owed) in [
            // At the fourth second the bucket was full: nothing was missing.
            (3, 5, 5, 2),
            // After the first three units, time refilled the bucket in any case.
            (3, 6, 2, 1),
            // At the fifth second two units were missing.
            (5, 5, 1, 1),
            (5, 6, 5, 0),
        ] {
            let mut bucket = bucket("1s", 10);
            five.iter().for_each(|change| bucket.change(1, change));
            bucket.age(1, at(aged * 1_000_000));
            bucket.take_off(1, units, &after(place), None);
            assert_eq!(bucket.owed, owed * 1_000_000, "{place} {aged} {units}");
        }
        // What was taken off then was never missing later.
        let mut bucket = bucket("1s", 10);
        for change in &[0, 0, 0, 1, 1].map(take_at) {
            bucket.change(1, change);
        }
        let off = BucketChange {
            takes: false,
            ..take_at(0)
        };
        let after = Afterwards {
            line: 4,
            changes: vec![off, take_at(1), take_at(1)],
        };
        bucket.take_off(1, 1, &after, None);
        assert_eq!(bucket.owed, 3_000_000);
        bucket.since = 5;
        bucket.take_off(1, 1, &after, None);
        assert_eq!(bucket.owed, 3_000_000);
    }

    #[test]
    fn the_largest_bucket_overflows_nothing() {
        let mut bucket = bucket("400d", u64::MAX);
        bucket.add(0, u64::MAX, at(0));
        bucket.add(0, u64::MAX, at(0));
        assert_eq!(bucket.used(), TOTAL_MAX);
        assert_eq!(bucket.resets_at(0), Some(RETURN_MAX));
        assert_eq!(bucket.refill(0), RETURN_MAX);
        assert_eq!(bucket.fits_at(0, u64::MAX), Some(RETURN_MAX));
        let all = AfterGrant {
            grant: BucketChange {
                units: u64::MAX,
                ..take_at(0)
            },
            after: Afterwards::NOTHING,
        };
        bucket.give_back(u64::MAX, u64::MAX, &all, None);
        assert_eq!(bucket.owed, 0);
        bucket.age(u64::MAX, at(RETURN_MAX));
        assert_eq!(bucket.at, RETURN_MAX);
    }
}
