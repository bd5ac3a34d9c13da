//! The single time of a history, and the clocks that show it.

use std::sync::LazyLock;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// The base of all deadlines. Histories add to it and never read a clock.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// An instant of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl Time {
    /// The instant at which a history begins: five seconds before midnight in UTC.
    pub const START: Self = Self(Duration::from_secs(60));

    /// The instant as a deadline.
    pub fn at(self) -> Instant {
        *BASE + self.0
    }

    /// The instant on a clock with the error `skew`.
    pub fn by_clock(self, skew: TimeDelta) -> DateTime<Utc> {
        let start = DateTime::from_timestamp(1_795_219_200 - 65, 0).expect("2026-11-20T23:58:55Z");
        start + TimeDelta::from_std(self.0).expect("a short time") + skew
    }

    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}
