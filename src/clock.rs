//! The one source of time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::identity::to_micros;

/// Tells the time, cut to microseconds, so that every store returns what it got. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's.
    System(SystemClock),
    /// One that stands where it is put.
    Manual(ManualClock),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::System(SystemClock)
    }

    /// The present instant.
    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl SystemClock {
    /// The present instant.
    #[expect(clippy::disallowed_methods, reason = "the one source of time")]
    pub fn now(self) -> DateTime<Utc> {
        to_micros(Utc::now())
    }
}

/// A clock that stands where it is put, for whoever rehearses midnight. Clones share it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that stands at an instant.
    pub fn at(now: DateTime<Utc>) -> Self {
        Self(Arc::new(AtomicI64::new(now.timestamp_micros())))
    }

    /// The instant at which it stands.
    pub fn now(&self) -> DateTime<Utc> {
        let micros = self.0.load(Ordering::SeqCst);
        DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// Puts it at another instant, also an earlier one.
    pub fn set(&self, now: DateTime<Utc>) {
        self.0.store(now.timestamp_micros(), Ordering::SeqCst);
    }

    /// Moves it.
    pub fn advance(&self, by: TimeDelta) {
        let micros = by.num_microseconds().unwrap_or(0);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}
