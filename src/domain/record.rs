//! The record: one order of all entries and all changes, for auditors.
//!
//! An id tells an entry's instant, not when it was committed. So each entry and each change gets a
//! position, once, behind the newest transaction that is still open: a reader that follows the
//! positions misses nothing and sees nothing twice.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::identity::EntryId;

/// The most positions of one mark: what is read to find one of them. Only a longer run makes a
/// longer mark.
const MARK_MOST: u64 = 256;

/// Where an entry or a change is in the order of the record. The order of places is that of
/// committing, as far as anybody can see it: what was committed before something else began has a
/// lower place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPlace {
    /// The transaction, as the store numbers it.
    pub xact: i64,
    /// The entry's id; the highest one for a change. An id tells nothing of the account, so that an
    /// account's own id can be replaced when its subject is erased.
    pub id: EntryId,
    /// The change's revision; 0 for an entry.
    pub revision: u64,
}

impl RecordPlace {
    /// Before everything.
    pub const FIRST: Self = Self {
        xact: 0,
        id: EntryId(Uuid::nil()),
        revision: 0,
    };

    /// Before all that has the number of a transaction.
    pub const NUMBERED: Self = Self {
        xact: 1,
        ..Self::FIRST
    };

    /// After all that is older than the numbers of transactions.
    pub const OLD_END: Self = Self {
        xact: 0,
        ..Self::LAST
    };

    /// After everything that a store can have.
    pub const LAST: Self = Self {
        xact: i64::MAX,
        id: Self::OF_CHANGES,
        revision: i64::MAX as u64,
    };

    /// The id in the place of a change. No entry has it: the instant would be in the year 10889.
    pub const OF_CHANGES: EntryId = EntryId(Uuid::max());
}

/// Entries and changes that follow each other: `count` of them, up to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRun {
    /// The place of the last of them; or one behind it, and before all others.
    pub end: RecordPlace,
    pub count: u64,
}

/// A run of positions: those above `after` and up to `position`, given at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub after: u64,
    pub position: u64,
    /// The end of its last run.
    pub place: RecordPlace,
    pub recorded_at: DateTime<Utc>,
}

impl Mark {
    /// Before everything.
    pub const FIRST: Self = Self {
        after: 0,
        position: 0,
        place: RecordPlace::FIRST,
        recorded_at: DateTime::UNIX_EPOCH,
    };

    /// The marks that give the next positions to `runs`, which are in their order. Marks never go
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
