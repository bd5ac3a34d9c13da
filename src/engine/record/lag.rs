//! How far the record is behind the ledger.

use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::Horizon;

/// Measures the lag without a clock in the ledger: it remembers which transactions had begun at an
/// instant, until all of them have positions.
#[derive(Debug)]
pub struct Lag {
    /// All that was committed before this instant has a position.
    complete_at: Instant,
    /// The transactions below a number had begun at an instant, and some may have no position yet.
    waiting: Option<(Instant, i64)>,
}

impl Lag {
    pub fn new(now: Instant) -> Self {
        Self {
            complete_at: now,
            waiting: None,
        }
    }

    /// Notes that at `now` the server showed a horizon, and that all transactions below `covered` have
    /// positions.
    pub fn note(&mut self, now: Instant, horizon: Horizon, covered: i64) {
        if horizon.begun <= covered {
            self.complete_at = now;
            self.waiting = None;
            return;
        }
        if let Some((at, begun)) = self.waiting
            && begun <= covered
        {
            self.complete_at = at;
            self.waiting = None;
        }
        self.waiting.get_or_insert((now, horizon.begun));
    }

    /// How long ago something may have been committed that has no position yet. It grows also while
    /// nothing is noted.
    pub fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.complete_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_until_all_that_had_begun_has_positions() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let seen = |ended, begun| Horizon { ended, begun };
        let mut lag = Lag::new(begin);
        lag.note(at(1), seen(5, 5), 5);
        assert_eq!(lag.at(at(1)), Duration::ZERO);
        // A transaction is open, and others begin and end behind it.
        lag.note(at(2), seen(5, 8), 5);
        lag.note(at(4), seen(5, 20), 5);
        assert_eq!(lag.at(at(4)), Duration::from_secs(3));
        // Nothing is noted: the ledger is away.
        assert_eq!(lag.at(at(9)), Duration::from_secs(8));
        // What had begun at second 2 has its positions; what began later has none.
        lag.note(at(10), seen(15, 20), 15);
        assert_eq!(lag.at(at(10)), Duration::from_secs(8));
        lag.note(at(11), seen(30, 30), 30);
        assert_eq!(lag.at(at(11)), Duration::ZERO);
    }
}
