//! The record: one order of all entries and changes, for auditors.
//!
//! An id has the instant of an entry, not the time of its commit. So each entry and each change
//! gets a position, once, as soon as no older transaction is still open. Invariant: a reader that
//! follows the positions misses nothing and sees nothing twice.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::identity::EntryId;

/// The largest number of positions in a mark. A reader reads this many rows to find one position.
/// Only a longer run makes a longer mark.
const MARK_MOST: u64 = 64;

/// The place of an entry or a change in the record. Places are in the order of commits, as far as
/// anyone can see it: if something was committed before something else started, it has the lower
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPlace {
    /// The number of the transaction in the store.
    pub xact: i64,
    /// The id of the entry; the highest id for a change. The id does not depend on the account, so
    /// the id of an account can be replaced when its subject is erased.
    pub id: EntryId,
    /// The revision of the change; 0 for an entry.
    pub revision: u64,
}

impl RecordPlace {
    pub const FIRST: Self = Self {
        xact: 0,
        id: EntryId(Uuid::nil()),
        revision: 0,
    };

    /// After every place that a store can have.
    pub const LAST: Self = Self {
        xact: i64::MAX,
        id: Self::OF_CHANGES,
        revision: i64::MAX as u64,
    };

    /// The id in the place of a change. No entry has it: its instant would be in the year 10889.
    pub const OF_CHANGES: EntryId = EntryId(Uuid::max());
}

/// Entries and changes that follow each other: `count` of them, up to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRun {
    /// The place of the last one; or a place after it and before all others.
    pub end: RecordPlace,
    pub count: u64,
}

/// A run of positions above `after` and up to `position`, given at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub after: u64,
    pub position: u64,
    /// The end of the last run.
    pub place: RecordPlace,
    pub recorded_at: DateTime<Utc>,
}

impl Mark {
    pub const FIRST: Self = Self {
        after: 0,
        position: 0,
        place: RecordPlace::FIRST,
        recorded_at: DateTime::UNIX_EPOCH,
    };

    /// The later one of two marks.
    pub fn later(self, other: Self) -> Self {
        if self.position < other.position {
            other
        } else {
            self
        }
    }

    /// The marks that give the next positions to `runs`, in their order. Invariant: marks never go
    /// back in time, whatever the clock says.
    pub fn next(self, runs: &[RecordRun], now: DateTime<Utc>) -> Vec<Self> {
        let mut marks: Vec<Self> = Vec::new();
        let mut position = self.position;
        for run in runs {
            let after = position;
            position += run.count;
            match marks.last_mut() {
                Some(mark) if position - mark.after <= MARK_MOST => {
                    mark.position = position;
                    mark.place = run.end;
                }
                _ => marks.push(Self {
                    after,
                    position,
                    place: run.end,
                    recorded_at: self.recorded_at.max(now),
                }),
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;

    fn run(xact: i64, count: u64) -> RecordRun {
        let end = RecordPlace {
            xact,
            ..RecordPlace::FIRST
        };
        RecordRun { end, count }
    }

    proptest! {
        #[test]
        fn marks_give_each_run_its_positions(
            steps in prop::collection::vec(prop::collection::vec(1u64..400, 0..9), 0..6),
        ) {
            let mut last = Mark::FIRST;
            let mut ends = vec![0];
            for step in steps {
                let begin = ends.len() as i64;
                let runs: Vec<RecordRun> =
                    (begin..).zip(&step).map(|(xact, count)| run(xact, *count)).collect();
                for count in step {
                    ends.push(ends[ends.len() - 1] + count);
                }
                for mark in last.next(&runs, DateTime::UNIX_EPOCH) {
                    prop_assert_eq!(mark.after, last.position);
                    prop_assert_eq!(mark.position, ends[usize::try_from(mark.place.xact).unwrap()]);
                    let is_one_run = mark.place.xact - last.place.xact == 1;
                    prop_assert!(is_one_run || mark.position - mark.after <= 256);
                    last = mark;
                }
            }
            prop_assert_eq!(last.position, ends[ends.len() - 1]);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_older_mark() {
        let late = DateTime::UNIX_EPOCH + TimeDelta::hours(1);
        let first = Mark::FIRST.next(&[run(1, 1)], late)[0];
        let second = first.next(&[run(2, 1)], DateTime::UNIX_EPOCH)[0];
        assert_eq!(second.recorded_at, late);
    }
}
