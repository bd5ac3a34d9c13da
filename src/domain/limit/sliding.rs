//! `sliding`: each unit returns when `per` has passed since it was taken.

use chrono::{DateTime, Utc};

use super::shape::PAIRS_MOST;
use crate::elapsed::Elapsed;

/// Units that were taken at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenUnits {
    /// In microseconds since 1970. With a step, a multiple of the step.
    pub at: i64,
    /// One or more.
    pub units: u64,
}

/// The log of a sliding limit: the units that were taken less than `per` ago.
///
/// Invariant: the log never has fewer units than were taken. If the log has more than [`PAIRS_MOST`]
/// pairs, the two oldest pairs merge at the later instant. This happens only while more than `max` is
/// used: the policy observes, an admin entered units, or `max` was lowered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingLog {
    pub per: Elapsed,
    pub step: Option<Elapsed>,
    /// The oldest pair is first. No two pairs have the same instant.
    pub pairs: Vec<TakenUnits>,
}

impl SlidingLog {
    pub fn empty(per: Elapsed, step: Option<Elapsed>) -> Self {
        Self {
            per,
            step,
            pairs: Vec::new(),
        }
    }

    pub fn used(&self) -> u64 {
        let units = self.pairs.iter().map(|pair| pair.units);
        units.fold(0, u64::saturating_add)
    }

    /// Brings the log to a later instant: units that have returned leave the log.
    pub fn age(&mut self, at: DateTime<Utc>) {
        let gone = self
            .pairs
            .partition_point(|pair| !self.counts_of(pair.at, at));
        self.pairs.drain(..gone);
    }

    /// Tells whether units of `counted_at` still count at `at`.
    pub fn counts(&self, counted_at: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        self.counts_of(self.cell(counted_at), at)
    }

    fn counts_of(&self, cell: i64, at: DateTime<Utc>) -> bool {
        at.timestamp_micros() < cell.saturating_add(self.per.micros())
    }

    /// Adds units that count at `counted_at`. `at` is the present instant, not before `counted_at`.
    pub fn add(&mut self, units: u64, counted_at: DateTime<Utc>, at: DateTime<Utc>) {
        if !self.counts(counted_at, at) {
            return;
        }
        let cell = self.cell(counted_at);
        let place = self.pairs.partition_point(|pair| pair.at < cell);
        match self.pairs.get_mut(place).filter(|pair| pair.at == cell) {
            Some(pair) => pair.units = pair.units.saturating_add(units),
            None => self.pairs.insert(place, TakenUnits { at: cell, units }),
        }
        if self.pairs.len() > PAIRS_MOST {
            let oldest = self.pairs.remove(0);
            self.pairs[0].units = self.pairs[0].units.saturating_add(oldest.units);
        }
    }

    /// Gives back the units of a grant: only the pair of the grant's own instant gets lower. Nothing is
    /// given back if that pair has gone: its units have returned, were taken off, or were merged into a
    /// later pair.
    pub fn give_back(&mut self, units: u64, granted_at: DateTime<Utc>) {
        let cell = self.cell(granted_at);
        let place = self.pairs.binary_search_by_key(&cell, |pair| pair.at);
        if let Ok(place) = place {
            let pair = &mut self.pairs[place];
            pair.units = pair.units.saturating_sub(units);
            if pair.units == 0 {
                self.pairs.remove(place);
            }
        }
    }

    /// The pairs at or before an instant.
    fn until(&self, counted_at: DateTime<Utc>) -> usize {
        let cell = self.cell(counted_at);
        self.pairs.partition_point(|pair| pair.at <= cell)
    }

    /// The units that were taken at or before an instant, and count.
    pub fn used_until(&self, counted_at: DateTime<Utc>) -> u64 {
        let pairs = self.pairs[..self.until(counted_at)].iter();
        pairs.fold(0, |used, pair| used.saturating_add(pair.units))
    }

    /// Takes off units that were taken at or before an instant. The oldest pair comes first.
    pub fn take_off(&mut self, mut units: u64, counted_at: DateTime<Utc>) {
        let until = self.until(counted_at);
        for pair in &mut self.pairs[..until] {
            let off = units.min(pair.units);
            pair.units -= off;
            units -= off;
        }
        self.pairs.retain(|pair| pair.units > 0);
    }

    /// The instant from which on at most `most` units are used, if nothing more is taken. `None`: this is
    /// so already.
    pub fn falls_to(&self, most: u64) -> Option<i64> {
        let mut used = self.used();
        let mut falls_at = None;
        for pair in &self.pairs {
            if used <= most {
                break;
            }
            used = used.saturating_sub(pair.units);
            falls_at = Some(self.returns_at(pair));
        }
        falls_at
    }

    /// The instant at which the last unit returns.
    pub fn resets_at(&self) -> Option<i64> {
        self.pairs.last().map(|pair| self.returns_at(pair))
    }

    fn returns_at(&self, pair: &TakenUnits) -> i64 {
        pair.at.saturating_add(self.per.micros())
    }

    /// Rounds an instant up to the step.
    fn cell(&self, at: DateTime<Utc>) -> i64 {
        let micros = at.timestamp_micros();
        let Some(step) = self.step.map(Elapsed::micros) else {
            return micros;
        };
        match micros.rem_euclid(step) {
            0 => micros,
            over => micros.saturating_add(step - over),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_full_log_merges_the_oldest_pairs_and_tells_no_less() {
        let per = Elapsed::from_seconds(3600).unwrap();
        let mut log = SlidingLog::empty(per, None);
        let seconds = PAIRS_MOST as i64 + 10;
        for second in 0..seconds {
            log.add(1, at(second), at(second));
        }
        assert_eq!(
            (log.pairs.len(), log.used()),
            (PAIRS_MOST, seconds.unsigned_abs())
        );
        // Eleven units return with the latest of them.
        assert_eq!(
            log.falls_to(log.used() - 1),
            Some((at(10) + per.delta()).timestamp_micros())
        );
        // Nobody knows any more to which grant the merged units belong: a reversal leaves them.
        log.give_back(1, at(3));
        assert_eq!(log.used(), seconds.unsigned_abs());
        log.age(at(10) + per.delta());
        assert_eq!(log.used(), seconds.unsigned_abs() - 11);
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    /// A log of 60 s with these units at these seconds.
    fn log_of(step: Option<u64>, units: &[(i64, u64)]) -> SlidingLog {
        let of = |seconds| Elapsed::from_seconds(seconds).unwrap();
        let mut log = SlidingLog::empty(of(60), step.map(of));
        for (second, units) in units {
            log.add(*units, at(*second), at(*second));
        }
        log
    }

    #[test]
    fn what_is_taken_off_was_taken_by_then() {
        let mut log = log_of(None, &[(5, 3), (7, 2)]);
        for (until, used) in [(4, 0), (5, 3), (6, 3), (7, 5), (9, 5)] {
            assert_eq!(log.used_until(at(until)), used);
        }
        log.take_off(4, at(4));
        assert_eq!(log, log_of(None, &[(5, 3), (7, 2)]));
        log.take_off(4, at(6));
        assert_eq!(log, log_of(None, &[(7, 2)]));
        // The oldest units go first.
        let mut log = log_of(None, &[(5, 3), (7, 2)]);
        log.take_off(4, at(7));
        assert_eq!(log, log_of(None, &[(7, 1)]));
        // The units of one step are one pair.
        let mut log = log_of(Some(10), &[(5, 3), (7, 2), (11, 4)]);
        log.take_off(9, at(3));
        assert_eq!(log, log_of(Some(10), &[(11, 4)]));
    }

    #[test]
    fn a_reversal_lowers_only_the_pair_of_its_grant() {
        let mut log = log_of(None, &[(5, 3), (7, 2)]);
        log.take_off(3, at(6));
        log.give_back(3, at(5));
        assert_eq!(log, log_of(None, &[(7, 2)]));
        // A reversal in parts leaves the same as a whole one.
        for parts in [&[3][..], &[1, 2], &[1, 1, 1]] {
            let mut log = log_of(None, &[(5, 3), (7, 2)]);
            log.take_off(1, at(5));
            parts.iter().for_each(|units| log.give_back(*units, at(5)));
            assert_eq!(log, log_of(None, &[(7, 2)]), "{parts:?}");
        }
    }
}
