//! The last day on which a key was used, in memory.

use std::sync::atomic::{AtomicI32, Ordering};

use chrono::{DateTime, Datelike, NaiveDate, Utc};

/// The last day on which this instance saw a key used, and the last one that it wrote to the ledger. Each day of UTC
/// has its number in the common era; 0 is none of them.
#[derive(Debug, Default)]
pub struct LastUse {
    used_on: AtomicI32,
    written_on: AtomicI32,
}

impl LastUse {
    /// Notes a use. Each claim comes here: all but the first one of a day only load a number.
    pub fn note(&self, now: DateTime<Utc>) {
        let today = now.date_naive().num_days_from_ce();
        if self.used_on.load(Ordering::Relaxed) != today {
            self.used_on.store(today, Ordering::Relaxed);
        }
    }

    /// The last day of a use, unless it is written.
    pub fn unwritten(&self) -> Option<NaiveDate> {
        let used_on = self.used_on.load(Ordering::Relaxed);
        if used_on == self.written_on.load(Ordering::Relaxed) {
            return None;
        }
        NaiveDate::from_num_days_from_ce_opt(used_on)
    }

    pub fn note_written(&self, used_on: NaiveDate) {
        self.written_on
            .store(used_on.num_days_from_ce(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_once() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let last_use = LastUse::default();
        assert_eq!(last_use.unwritten(), None);
        last_use.note(at("2026-11-21T00:00:00Z"));
        let first = last_use.unwritten().unwrap();
        assert_eq!(first.to_string(), "2026-11-21");
        last_use.note_written(first);
        last_use.note(at("2026-11-21T23:59:59.999999Z"));
        assert_eq!(last_use.unwritten(), None);
        last_use.note(at("2026-11-22T00:00:00Z"));
        // What was written meanwhile is not the new day.
        last_use.note_written(first);
        assert_eq!(last_use.unwritten(), first.succ_opt());
    }
}
