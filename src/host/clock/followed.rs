//! The clock that follows the clock of the ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};

use super::{Clock, SandboxClock, at_micros};

/// A correction changes by at most one part in this many of the time that passes.
const SLEW: i64 = 10;

/// A clock that follows the clock of the ledger: its own time and a correction. Clones share both.
///
/// Invariant: after the start the correction changes by at most a tenth of the time that passes. So
/// the time never jumps, and it runs backwards only if the own clock does.
#[derive(Debug, Clone)]
pub struct FollowedClock {
    source: Arc<Clock>,
    /// How far the own time is ahead of the source, in microseconds. It changes only before the
    /// first decision.
    start: Arc<AtomicI64>,
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
    pub(super) fn sandbox(&self) -> Option<&SandboxClock> {
        self.source.sandbox()
    }

    pub fn new(source: Clock) -> Self {
        Self {
            source: Arc::new(source),
            start: Arc::default(),
            correction: Arc::default(),
        }
    }

    pub fn now(&self) -> DateTime<Utc> {
        at_micros(self.micros())
    }

    pub(super) fn micros(&self) -> i64 {
        let own = self.own_micros();
        own + self.correction.load().at(own)
    }

    /// How far the time is ahead of the own time.
    pub fn correction(&self) -> TimeDelta {
        TimeDelta::microseconds(self.correction.load().at(self.own_micros()))
    }

    /// The own time, without the correction.
    pub fn own(&self) -> DateTime<Utc> {
        at_micros(self.own_micros())
    }

    fn own_micros(&self) -> i64 {
        self.source.micros() + self.start.load(Ordering::SeqCst)
    }

    /// How far the wall clock is ahead of this clock; negative if it is behind.
    pub fn wall_ahead(&self) -> TimeDelta {
        let start = TimeDelta::microseconds(self.start.load(Ordering::SeqCst));
        self.source.wall_ahead() - start - self.correction()
    }

    /// Starts again at the wall clock. Only a clock that has decided nothing may do this.
    pub fn start_again(&self) {
        let ahead = self.source.wall_ahead().num_microseconds().unwrap_or(0);
        self.start.store(ahead, Ordering::SeqCst);
        self.correction.store(Arc::default());
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
    use crate::clock::ManualClock;

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

    /// NTP sets the wall clock while the instance runs.
    #[test]
    fn a_step_of_the_wall_clock_changes_no_instant() {
        let own = ManualClock::at(instant(1_000_000_000));
        let clock = FollowedClock::new(Clock::Manual(own.clone()));
        clock.follow(instant(1_002_000_000), clock.own(), clock.own(), true);
        for by in [3600, -86_400, 365 * 86_400] {
            let by = TimeDelta::seconds(by);
            let before = clock.now();
            own.step_wall(by);
            assert_eq!(clock.now(), before);
            assert_eq!(clock.wall_ahead(), by - TimeDelta::seconds(2));
            own.step_wall(-by);
        }
    }

    /// The wall clock is corrected before the first decision.
    #[test]
    fn a_clock_that_starts_again_is_at_the_wall_clock() {
        let own = ManualClock::at(instant(1_000_000_000));
        let clock = FollowedClock::new(Clock::Manual(own.clone()));
        clock.follow(instant(1_002_000_000), clock.own(), clock.own(), true);
        own.step_wall(TimeDelta::hours(-3));
        clock.start_again();
        assert_eq!(clock.now(), own.now() - TimeDelta::hours(3));
        assert_eq!(clock.wall_ahead(), TimeDelta::zero());
    }

    /// A crystal that is 200 ppm fast or slow, and the ledger's clock is looked at every second, for
    /// a week.
    #[test]
    fn a_clock_that_drifts_for_a_week_stays_at_the_ledgers_time() {
        for drift in [200, -200] {
            let own = ManualClock::at(instant(1_000_000_000));
            let clock = FollowedClock::new(Clock::Manual(own.clone()));
            let mut theirs = 1_000_000_000;
            for _ in 0..7 * 24 * 3600 {
                own.advance(TimeDelta::microseconds(1_000_000 + drift));
                theirs += 1_000_000;
                let off = micros(&clock) - theirs;
                assert!(off.abs() < 5_000, "{off}");
                clock.follow(instant(theirs), clock.own(), clock.own(), false);
            }
        }
    }

    /// The machine sleeps for eight hours. Its time since the start goes on, as the ledger's does.
    #[test]
    fn a_machine_that_slept_wakes_at_the_right_time() {
        let own = ManualClock::at(instant(1_000_000_000));
        let clock = FollowedClock::new(Clock::Manual(own.clone()));
        clock.follow(instant(1_001_000_000), clock.own(), clock.own(), true);
        own.advance(TimeDelta::hours(8));
        assert_eq!(micros(&clock), 1_001_000_000 + 8 * 3_600_000_000);
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
                let mut passed = 0;
    let mut slowest = 0;
                for (wait, call) in steps {
                    let asked_at = clock.own();
                    own.advance(TimeDelta::microseconds(call));
                    let told_at = clock.own();
                    // The clock of the ledger said this in the middle of the call.
                    let their_time = theirs(asked_at) + TimeDelta::microseconds(call / 2);
                    clock.follow(their_time, asked_at, told_at, false);
                    own.advance(TimeDelta::microseconds(wait));
                    let now = micros(&clock);
    let by = wait + call;
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
