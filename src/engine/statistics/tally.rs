//! The tally: it makes the figures of entries, along the record.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::NaiveDate;
use tokio::task::yield_now;

use super::subjects::{SubjectMemory, UnknownDay};
use crate::domain::grant::EntryKind;
use crate::domain::local_days::LocalDays;
use crate::domain::policy::{Policy, PolicyId};
use crate::domain::record::Mark;
use crate::domain::statistics::{FigureDay, FigureSums, OpenDay, SubjectDay, TalliedEntry};
use crate::ledger::{Ledger, LedgerError};

/// How many marks are processed at once.
pub const MARKS_MOST: u32 = 32;
/// For how many accounts earlier entries are read at once.
const ACCOUNTS_MOST: usize = 1024;
/// After this many entries other tasks get the thread.
const YIELD_EVERY: usize = 256;

/// Makes figures. It remembers the subjects of the entries that it had.
pub struct FigureTally {
    ledger: Ledger,
    subjects: SubjectMemory,
}

impl FigureTally {
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            subjects: SubjectMemory::default(),
        }
    }

    /// Makes room for the next step.
    pub fn begin_step(&mut self) {
        self.subjects.begin_step();
    }

    /// Forgets the subjects: the next marks do not follow the last ones, or these were not added.
    pub fn clear(&mut self) {
        self.subjects.clear();
    }

    /// The figures of the entries that got positions by these marks, and the days that have them.
    /// The marks follow the mark `before`. Entries that were recorded on the local day `kept_to` or
    /// before are in figures that are kept.
    pub async fn figures(
        &mut self,
        before: Mark,
        marks: &[Mark],
        last: &Mark,
        kept_to: Option<NaiveDate>,
    ) -> Result<(FigureSums, BTreeSet<OpenDay>), LedgerError> {
        let mut figures = FigureSums::default();
        let mut open_days = BTreeSet::new();
        // 1. Read the entries.
        let entries = self
            .ledger
            .tallied_entries(before.place, last.place)
            .await?;
        // 2. Read the versions of their policies, which have the local days.
        let policies: BTreeSet<PolicyId> = entries.iter().map(|entry| entry.policy).collect();
        let policies: Vec<PolicyId> = policies.into_iter().collect();
        let mut versions: HashMap<PolicyId, Vec<Policy>> = HashMap::new();
        for version in self.ledger.versions_to_follow(&policies).await? {
            versions.entry(version.id).or_default().push(version);
        }
        let days: HashMap<PolicyId, LocalDays<'_>> = versions
            .iter()
            .map(|(policy, versions)| (*policy, LocalDays::of(versions)))
            .collect();
        // 3. Read what is not known about the subjects' days.
        self.learn_subjects(&entries, &days).await?;
        // 4. Add each entry to the figures of its day.
        for (index, entry) in entries.iter().enumerate() {
            if index % YIELD_EVERY == 0 {
                yield_now().await;
            }
            let days = &days[&entry.policy];
            let mark = marks.partition_point(|mark| mark.place < entry.place);
            let recorded_at = marks
                .get(mark)
                .map_or(last.recorded_at, |mark| mark.recorded_at);
            let day = FigureDay {
                policy: entry.policy,
                counted_on: days.date(entry.counted_at),
                recorded_on: days.date(recorded_at),
            };
            // This entry is in figures that are kept when the others are made again.
            if kept_to.is_some_and(|kept_to| day.recorded_on <= kept_to) {
                continue;
            }
            open_days.insert(OpenDay {
                policy: day.policy,
                counted_on: day.counted_on,
                ends_at: days.end(day.counted_on),
            });
            match entry.kind {
                EntryKind::Grant { .. } => {
                    let subject = self.subjects.of(entry.account, day.counted_on);
                    figures.add(day, entry, subject);
                }
                _ => figures.add(day, entry, &mut SubjectDay::default()),
            }
        }
        Ok((figures, open_days))
    }

    /// Reads the days of subjects that are not in memory, for the subjects with a grant among the
    /// entries.
    async fn learn_subjects(
        &mut self,
        entries: &[TalliedEntry],
        days: &HashMap<PolicyId, LocalDays<'_>>,
    ) -> Result<(), LedgerError> {
        let mut met = HashSet::new();
        let mut unknown = Vec::new();
        for entry in entries {
            let (account, number) = (entry.account, entry.number);
            let days = &days[&entry.policy];
            let date = days.date(entry.counted_at);
            let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
            if !is_grant || !met.insert((account, date)) || self.subjects.knows(account, date) {
                continue;
            }
            // If the entry before was appended before this day, no earlier entry counts on the day.
            if entry
                .before_at
                .is_some_and(|before| before >= days.start(date))
            {
                unknown.push(UnknownDay {
                    account,
                    date,
                    days,
                    number,
                });
            }
        }
        for unknown in unknown.chunks(ACCOUNTS_MOST) {
            self.subjects.read(&self.ledger, unknown.to_vec()).await?;
        }
        Ok(())
    }
}
