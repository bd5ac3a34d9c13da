//! How far the record is behind the ledger, and the figures behind the record.

use std::time::Duration;

use tokio::time::Instant;

/// Measures a lag without the ledger's clock. It remembers up to which number work existed at an
/// instant, until all of it is done. For the record the numbers are those of transactions:
/// everything below a covered number has a position. For the figures they are positions.
#[derive(Debug)]
pub struct Lag {
    /// Everything from before this instant is covered.
    complete_at: Instant,
    /// An instant, and a number: the numbers below it existed at the instant, and some may not be
    /// covered yet.
    waiting: Option<(Instant, i64)>,
}

impl Lag {
    pub fn new(now: Instant) -> Self {
        Self {
            complete_at: now,
            waiting: None,
        }
    }

    /// Notes that at `now` all existing numbers are below `begun`, and all numbers below `covered`
    /// are covered.
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

    /// The age of the oldest work that may not be covered. It also grows while nothing is noted.
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
        // One transaction stays open, while others begin and end after it.
        lag.note(at(2), 8, 5);
        lag.note(at(4), 20, 5);
        assert_eq!(lag.at(at(4)), Duration::from_secs(3));
        // Nothing is noted: the ledger does not answer.
        assert_eq!(lag.at(at(9)), Duration::from_secs(8));
        // What existed at second 2 is covered. What came later is not.
        lag.note(at(10), 20, 15);
        assert_eq!(lag.at(at(10)), Duration::from_secs(8));
        lag.note(at(11), 30, 30);
        assert_eq!(lag.at(at(11)), Duration::ZERO);
    }
}
