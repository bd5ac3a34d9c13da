//! The one source of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::identity::to_micros;

/// A source of time, cut to microseconds, so that every store returns what it got. A clone is
/// cheap.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The clock of the machine.
    System(SystemClock),
    /// A clock that is set by hand.
    Manual(ManualClock),
    /// One of these clocks with a correction.
    Followed(FollowedClock),
}

impl Clock {
    pub fn system() -> Self {
        Self::System(SystemClock)
    }

    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
            Self::Followed(clock) => clock.now(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one source of time")]
    pub fn now(self) -> DateTime<Utc> {
        to_micros(Utc::now())
    }
}

/// A clock that is set by hand, to try out midnight. Clones share it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub fn at(now: DateTime<Utc>) -> Self {
        Self(Arc::new(AtomicI64::new(now.timestamp_micros())))
    }

    pub fn now(&self) -> DateTime<Utc> {
        let micros = self.0.load(Ordering::SeqCst);
        DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// Sets the clock to any instant, including an earlier one.
    pub fn set(&self, now: DateTime<Utc>) {
        self.0.store(now.timestamp_micros(), Ordering::SeqCst);
    }

    pub fn advance(&self, by: TimeDelta) {
        let micros = by.num_microseconds().unwrap_or(0);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

/// A correction changes by at most one part in this many of the time that passes.
const SLEW: i64 = 10;

/// A clock that follows the clock of the ledger: its own time and a correction. Clones share both.
///
/// Invariant: after the start the correction changes by at most a tenth of the time that passes. So
/// the time never jumps, and it runs backwards only if the own clock does.
#[derive(Debug, Clone)]
pub struct FollowedClock {
    own: Arc<Clock>,
    correction: Arc<ArcSwap<Slewing>>,
}

/// A correction that moves from one number of microseconds to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slewing {
    from: i64,
    /// The instant of the own clock at which the move started, in microseconds since 1970.
    since: i64,
    to: i64,
}

impl Slewing {
    /// The correction at an instant of the own clock.
    fn at(self, own: i64) -> i64 {
        let most = own.saturating_sub(self.since).max(0) / SLEW;
        self.from + (self.to - self.from).clamp(-most, most)
    }

    /// Moves to the nearest correction within bounds. A correction within the bounds stays: a
    /// measurement that took long has wide bounds, and changes nothing.
    fn towards(self, least: i64, most: i64, own: i64) -> Self {
        Self {
            from: self.at(own),
            since: own,
            to: self.to.max(least).min(most),
        }
    }
}

impl FollowedClock {
    pub fn new(own: Clock) -> Self {
        Self {
            own: Arc::new(own),
            correction: Arc::default(),
        }
    }

    pub fn now(&self) -> DateTime<Utc> {
        let own = self.own.now();
        let correction = self.correction.load().at(own.timestamp_micros());
        own + TimeDelta::microseconds(correction)
    }

    pub fn own(&self) -> DateTime<Utc> {
        self.own.now()
    }

    /// Follows the clock of the ledger. That clock said `theirs` while the own clock went from
    /// `asked_at` to `told_at`. After the move the two clocks differ by at most this time.
    /// `at_once` skips the slow move: nothing was decided yet.
    pub fn follow(
        &self,
        theirs: DateTime<Utc>,
        asked_at: DateTime<Utc>,
        told_at: DateTime<Utc>,
        at_once: bool,
    ) {
        let between = |own: DateTime<Utc>| (theirs - own).num_microseconds();
        let (Some(least), Some(most)) = (between(told_at), between(asked_at)) else {
            return;
        };
        let own = told_at.timestamp_micros();
        let before = **self.correction.load();
        let mut correction = before.towards(least, most.max(least), own);
        if at_once {
            correction.from = correction.to;
        }
        // A move in progress is not changed: each new step would be rounded.
        if correction.to != before.to || at_once {
            self.correction.store(Arc::new(correction));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn instant(micros: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(micros).unwrap()
    }

    fn micros(clock: &FollowedClock) -> i64 {
        clock.now().timestamp_micros()
    }

    #[test]
    fn the_first_measurement_counts_at_once() {
        let own = ManualClock::at(instant(1_000_000));
        let clock = FollowedClock::new(Clock::Manual(own.clone()));
        clock.follow(instant(4_000_000), clock.own(), clock.own(), true);
        assert_eq!(micros(&clock), 4_000_000);
        // Later moves take ten times as long as the offset.
        clock.follow(instant(3_000_000), clock.own(), clock.own(), false);
        assert_eq!(micros(&clock), 4_000_000);
        own.advance(TimeDelta::seconds(5));
        assert_eq!(micros(&clock), 8_500_000);
        own.advance(TimeDelta::seconds(5));
        assert_eq!(micros(&clock), 13_000_000);
        own.advance(TimeDelta::seconds(5));
        assert_eq!(micros(&clock), 18_000_000);
    }

    #[test]
    fn a_measurement_that_took_long_changes_nothing() {
        let own = ManualClock::at(instant(10_000_000));
        let clock = FollowedClock::new(Clock::Manual(own.clone()));
        clock.follow(instant(9_000_000), instant(8_000_000), clock.own(), true);
        assert_eq!(micros(&clock), 10_000_000);
        clock.follow(instant(7_000_000), instant(8_000_000), clock.own(), true);
        assert_eq!(micros(&clock), 9_000_000);
    }

    proptest! {
        /// For any measurements in any number.
        #[test]
        fn the_time_goes_on_and_comes_near_the_ledgers(
            ahead in -9_000_000i64..9_000_000,
            steps in prop::collection::vec((0i64..3_000_000, 0i64..40_000), 1..60),
        ) {
            let own = ManualClock::at(instant(1_000_000_000));
            let clock = FollowedClock::new(Clock::Manual(own.clone()));
            let theirs = |own: DateTime<Utc>| own - TimeDelta::microseconds(ahead);
            let mut before = micros(&clock);
            let (mut passed, mut slowest) = (0, 0);
            for (wait, call) in steps {
                let asked_at = clock.own();
                own.advance(TimeDelta::microseconds(call));
                let told_at = clock.own();
                // The clock of the ledger said this in the middle of the call.
                let told = theirs(asked_at) + TimeDelta::microseconds(call / 2);
                clock.follow(told, asked_at, told_at, false);
                own.advance(TimeDelta::microseconds(wait));
                let (now, by) = (micros(&clock), wait + call);
                prop_assert!(now >= before + by - by.div_euclid(SLEW) - 2, "{now} {before} {by}");
                prop_assert!(now <= before + by + by.div_euclid(SLEW) + 2, "{now} {before} {by}");
                before = now;
                passed += wait;
                slowest = slowest.max(call);
            }
            if passed > (ahead.abs() + slowest) * SLEW {
                let off = (micros(&clock) - theirs(clock.own()).timestamp_micros()).abs();
                prop_assert!(off <= slowest, "{off} {slowest}");
            }
        }
    }
}
