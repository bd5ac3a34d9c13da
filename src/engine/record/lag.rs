//! How far one thing is behind another: the record behind the ledger, the figures behind the record.

use std::time::Duration;

use tokio::time::Instant;

/// Measures the lag without a clock in the ledger: it remembers how far the numbers were at an instant,
/// until all of them are covered. The record covers transactions: what was committed below a number has
/// a position. The figures cover positions.
#[derive(Debug)]
pub struct Lag {
    /// All that there was before this instant is covered.
    complete_at: Instant,
    /// The numbers below this one had begun at an instant, and some may not be covered yet.
    waiting: Option<(Instant, i64)>,
}

impl Lag {
    pub fn new(now: Instant) -> Self {
        Self {
            complete_at: now,
            waiting: None,
        }
    }

    /// Notes that at `now` all numbers were below `begun`, and that all below `covered` are covered.
    pub fn note(&mut self, now: Instant, begun: i64, covered: i64) {
        if begun <= covered {
            self.complete_at = now;
            self.waiting = None;
            return;
        }
        if let Some((at, waiting)) = self.waiting
            && waiting <= covered
        {
            self.complete_at = at;
            self.waiting = None;
        }
        self.waiting.get_or_insert((now, begun));
    }

    /// How long ago something may have come that is not covered yet. It grows also while nothing is
    /// noted.
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
        let mut lag = Lag::new(begin);
        lag.note(at(1), 5, 5);
        assert_eq!(lag.at(at(1)), Duration::ZERO);
        // A transaction is open, and others begin and end behind it.
        lag.note(at(2), 8, 5);
        lag.note(at(4), 20, 5);
        assert_eq!(lag.at(at(4)), Duration::from_secs(3));
        // Nothing is noted: the ledger is away.
        assert_eq!(lag.at(at(9)), Duration::from_secs(8));
        // What had begun at second 2 has its positions; what began later has none.
        lag.note(at(10), 20, 15);
        assert_eq!(lag.at(at(10)), Duration::from_secs(8));
        lag.note(at(11), 30, 30);
        assert_eq!(lag.at(at(11)), Duration::ZERO);
    }
}
