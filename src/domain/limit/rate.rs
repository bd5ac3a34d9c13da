//! `rate`: a bucket of `burst` units that is refilled evenly, with `max` units each `per`.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A), in whole microseconds: what is owed is
//! the time until the bucket is full. Times are rounded up, so that the bucket never holds more
//! than the units that time has given back.

use chrono::{DateTime, Utc};

use super::per::Elapsed;

/// The longest time that a bucket may owe, in microseconds: about 5,000 years.
pub const OWED_MAX: i64 = 160_000_000_000_000_000;

/// A bucket as of an instant. The `max` by which it is refilled stands beside it; a `max` of 0, which
/// blocks, refills it as 1 does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub per: Elapsed,
    /// The most units that it holds.
    pub burst: u64,
    /// As of when, in microseconds since 1970.
    pub at: i64,
    /// The time until it is full, in microseconds.
    pub owed: i64,
    /// The number of the account's line from which on it was kept under one `max`.
    pub since: u64,
    /// What was given back since that line, in microseconds.
    pub given_back: i64,
}

impl Bucket {
    pub fn full(per: Elapsed, burst: u64, at: DateTime<Utc>, since: u64) -> Self {
        Self {
            per,
            burst,
            at: at.timestamp_micros(),
            owed: 0,
            since,
            given_back: 0,
        }
    }

    /// The time in which so many units return.
    pub fn cost(&self, max: u64, units: u64) -> i64 {
        let micros = u128::from(units) * u128::from(self.per.micros().unsigned_abs());
        let cost = micros.div_ceil(u128::from(max.max(1)));
        i64::try_from(cost).unwrap_or(i64::MAX)
    }

    /// The units that it holds.
    pub fn left(&self, max: u64) -> u64 {
        let room = self.cost(max, self.burst).saturating_sub(self.owed).max(0);
        self.returned(max, room).min(self.burst)
    }

    /// The units that it lacks.
    pub fn used(&self, max: u64) -> u64 {
        let over = self.owed.saturating_sub(self.cost(max, self.burst));
        match over > 0 {
            true => self
                .burst
                .saturating_add(self.returned(max, over).saturating_add(1)),
            false => self.burst - self.left(max),
        }
    }

    /// The units that return in a time.
    fn returned(&self, max: u64, micros: i64) -> u64 {
        let units = u128::from(micros.unsigned_abs()) * u128::from(max.max(1));
        let units = units / u128::from(self.per.micros().unsigned_abs());
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The bucket as of an instant; an earlier one leaves it as it is.
    pub fn age(&mut self, at: DateTime<Utc>) {
        let later = at.timestamp_micros().max(self.at);
        self.owed = self.owed.saturating_sub(later - self.at).max(0);
        self.at = later;
    }

    /// Goes on under another `max` from a line on: what is outstanding goes on in units.
    pub fn change_max(&mut self, old: u64, new: u64, line: u64) {
        let (old, new) = (u128::from(old.max(1)), u128::from(new.max(1)));
        let owed = (u128::from(self.owed.unsigned_abs()) * old).div_ceil(new);
        self.owed = i64::try_from(owed).unwrap_or(OWED_MAX).min(OWED_MAX);
        self.since = line;
        self.given_back = 0;
    }

    /// Adds units that count at an instant.
    pub fn add(&mut self, max: u64, units: u64, counted_at: DateTime<Utc>) {
        let more = match self.owed {
            0 => self.not_refilled(max, units, counted_at),
            _ => self.cost(max, units),
        };
        self.owed = self.owed.saturating_add(more).min(OWED_MAX);
    }

    /// Takes off units that counted at an instant, as far as time has not refilled them.
    pub fn take_off(&mut self, max: u64, units: u64, counted_at: DateTime<Utc>) {
        self.lower(self.not_refilled(max, units, counted_at));
    }

    /// What is still owed of units that were taken from a full bucket at an instant.
    fn not_refilled(&self, max: u64, units: u64, counted_at: DateTime<Utc>) -> i64 {
        let passed = self.at.saturating_sub(counted_at.timestamp_micros());
        self.cost(max, units).saturating_sub(passed.max(0)).max(0)
    }

    /// Gives back a grant's units as far as time has not refilled them. The bucket's units return in
    /// the order in which they were taken, so the bucket after the `grant` tells when its last one
    /// returns. A grant of before the bucket's first line gives nothing back.
    pub fn give_back(&mut self, max: u64, units: u64, grant: &Self) {
        if grant.since != self.since {
            return;
        }
        let returns_at = grant
            .at
            .saturating_add(grant.owed)
            .saturating_add(grant.given_back);
        let passed = self.at.saturating_add(self.given_back);
        let outstanding = returns_at.saturating_sub(passed);
        let off = outstanding.clamp(0, self.cost(max, units));
        self.lower(off);
    }

    fn lower(&mut self, off: i64) {
        let off = off.min(self.owed);
        self.owed -= off;
        self.given_back = self.given_back.saturating_add(off);
    }

    /// The instant at which so many units fit, in microseconds since 1970; `None`: never.
    pub fn fits_at(&self, max: u64, units: u64) -> Option<i64> {
        if units > self.burst {
            return None;
        }
        let room = self.cost(max, self.burst) - self.cost(max, units);
        Some(self.at.saturating_add((self.owed - room).max(0)))
    }

    /// The instant at which it is full; `None` where it is so already.
    pub fn resets_at(&self) -> Option<i64> {
        (self.owed > 0).then(|| self.at.saturating_add(self.owed))
    }
}
