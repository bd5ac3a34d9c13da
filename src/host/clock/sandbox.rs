//! The clock of a sandbox: it goes on like the machine's clock, and can be moved forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

use super::{SystemClock, at_micros};

/// How far a sandbox may be ahead of the machine.
const AHEAD_MOST: TimeDelta = TimeDelta::days(36_525);

/// A clock that a developer moves. Clones share it.
///
/// Invariant: it never runs backwards, because a ledger's entries do not either.
#[derive(Debug, Clone)]
pub struct SandboxClock {
    source: SystemClock,
    /// How far it is ahead of its source, in microseconds.
    ahead: Arc<AtomicI64>,
}

/// Why a clock was not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMoved {
    #[error("the clock of a sandbox only goes forward: write an instant after its present one")]
    Backwards,
    #[error("the clock of a sandbox goes at most 100 years ahead: write an earlier instant")]
    TooFar,
}

impl SandboxClock {
    pub fn start() -> Self {
        Self {
            source: SystemClock::start(),
            ahead: Arc::default(),
        }
    }

    /// A clock that begins at an instant: before or after that of the machine.
    pub fn starting_at(at: DateTime<Utc>) -> Self {
        let clock = Self::start();
        let ahead = at.timestamp_micros() - clock.source.micros();
        clock.ahead.store(ahead, Ordering::SeqCst);
        clock
    }

    pub(super) fn micros(&self) -> i64 {
        self.source.micros() + self.ahead.load(Ordering::SeqCst)
    }

    pub(super) fn wall_ahead(&self) -> TimeDelta {
        self.source.wall_ahead()
    }

    pub fn now(&self) -> DateTime<Utc> {
        at_micros(self.micros())
    }

    /// Moves the clock to an instant. Returns the instant that it shows then.
    ///
    /// # Errors
    /// [`NotMoved`]: the clock goes on as before.
    pub fn move_to(&self, at: DateTime<Utc>) -> Result<DateTime<Utc>, NotMoved> {
        let ahead = at.timestamp_micros() - self.source.micros();
        if TimeDelta::microseconds(ahead) > AHEAD_MOST {
            return Err(NotMoved::TooFar);
        }
        if self.ahead.fetch_max(ahead, Ordering::SeqCst) > ahead {
            return Err(NotMoved::Backwards);
        }
        Ok(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn it_can_begin_in_the_past() {
        let now = SandboxClock::start().now();
        let began = now - TimeDelta::days(14);
        let clock = SandboxClock::starting_at(began);
        assert!(clock.now() >= began && clock.now() < began + TimeDelta::minutes(1));
        assert!(clock.wall_ahead().abs() < TimeDelta::seconds(5));
        assert_eq!(
            clock.move_to(began - TimeDelta::days(1)),
            Err(NotMoved::Backwards)
        );
        assert!(clock.move_to(now).unwrap() >= now);
    }

    #[test]
    fn it_goes_forward_only_and_not_too_far() {
        let clock = SandboxClock::start();
        let began = clock.now();
        let tomorrow = began + TimeDelta::days(1);
        let moved = clock.move_to(tomorrow).unwrap();
        assert!(moved >= tomorrow && moved < tomorrow + TimeDelta::minutes(1));
        assert_eq!(clock.move_to(began), Err(NotMoved::Backwards));
        let far = began + TimeDelta::days(36_600);
        assert_eq!(clock.move_to(far), Err(NotMoved::TooFar));
        assert!(clock.now() >= moved);
        // All who have the clock see that it moved.
        let shared = Clock::Sandbox(clock.clone());
        clock.move_to(tomorrow + TimeDelta::days(1)).unwrap();
        assert!(shared.now() >= tomorrow + TimeDelta::days(1));
        assert!(shared.wall_ahead().abs() < TimeDelta::seconds(5));
    }
}
