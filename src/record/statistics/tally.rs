//! The tally: it makes the figures of entries, along the record.

use std::collections::BTreeSet;

use chrono::NaiveDate;
use foldhash::HashMap;
use tokio::task::yield_now;

use super::subjects::SubjectMemory;
use domain::grant::EntryKind;
use domain::local_days::{KnownDays, LocalDays};
use domain::policy::{Policy, PolicyId};
use domain::record::Mark;
use domain::statistics::{FigureDay, OpenDay, SubjectDay};
use ledger::{Ledger, LedgerError, TalliedFigures};

/// About how many positions are read at once.
pub const POSITIONS_MOST: u64 = 8192;
/// After this many entries other tasks get the thread.
const YIELD_EVERY: usize = 256;

/// Makes figures. It remembers the subjects of the entries that it had.
pub struct FigureTally {
    ledger: Ledger,
    /// `None` where the numbers of subjects are not wanted: they are wrong then.
    subjects: Option<SubjectMemory>,
}

impl FigureTally {
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            subjects: Some(SubjectMemory::default()),
        }
    }

    /// A tally that does not look at earlier entries of its subjects.
    pub fn without_subjects(ledger: Ledger) -> Self {
        Self {
            ledger,
            subjects: None,
        }
    }

    /// Makes room for the next entries.
    fn make_room(&mut self) {
        self.subjects.iter_mut().for_each(SubjectMemory::make_room);
    }

    /// Forgets the subjects: the next marks do not follow the last ones, or these were not added.
    pub fn clear(&mut self) {
        self.subjects.iter_mut().for_each(SubjectMemory::clear);
    }

    /// The figures of the entries that got positions by these marks. The marks follow the mark
    /// `before`. Entries that were recorded on the local day `kept_to` or before are in figures that
    /// are kept.
    pub async fn figures(
        &mut self,
        before: Mark,
        marks: &[Mark],
        last: &Mark,
        kept_to: Option<NaiveDate>,
    ) -> Result<TalliedFigures, LedgerError> {
        let mut figures = TalliedFigures::default();
        self.make_room();
        // 1. Read the entries.
        let entries = self
            .ledger
            .figures()
            .tallied_entries(before.place, last.place)
            .await?;
        // 2. Read the versions of their policies, which have the local days.
        let policies: BTreeSet<PolicyId> = entries.iter().map(|entry| entry.policy).collect();
        let policies: Vec<PolicyId> = policies.into_iter().collect();
        let mut versions: HashMap<PolicyId, Vec<Policy>> = HashMap::default();
        for version in self.ledger.record().versions_to_follow(&policies).await? {
            versions.entry(version.id).or_default().push(version);
        }
        let mut days: HashMap<PolicyId, KnownDays<'_>> = versions
            .iter()
            .map(|(policy, versions)| (*policy, KnownDays::of(LocalDays::of(versions))))
            .collect();
        // 3. Read what is not known about the subjects' days.
        if let Some(subjects) = &mut self.subjects {
            subjects.learn(&self.ledger, &entries, &mut days).await?;
        }
        // 4. Add each entry to the figures of its day and of its quarter hour.
        for (index, entry) in entries.iter().enumerate() {
            if index % YIELD_EVERY == 0 {
                yield_now().await;
            }
            let of_none = || KnownDays::of(LocalDays::of(&[]));
            let days = days.entry(entry.policy).or_insert_with(of_none);
            let mark = marks.partition_point(|mark| mark.place < entry.place);
            let recorded_at = marks
                .get(mark)
                .map_or(last.recorded_at, |mark| mark.recorded_at);
            let counted = days.day(entry.counted_at);
            let day = FigureDay {
                policy: entry.policy,
                counted_on: counted.date,
                recorded_on: days.day(recorded_at).date,
            };
            // This entry is in figures that are kept when the others are made again.
            if kept_to.is_some_and(|kept_to| day.recorded_on <= kept_to) {
                continue;
            }
            figures.open_days.insert(OpenDay {
                policy: day.policy,
                counted_on: day.counted_on,
                ends_at: counted.end,
            });
            let mut nobody = SubjectDay::default();
            let subject = match (&entry.kind, &mut self.subjects) {
                (EntryKind::Grant { .. }, Some(subjects)) => {
                    subjects.of(entry.account, day.counted_on)
                }
                _ => &mut nobody,
            };
            figures.days.add(day, entry, subject);
            figures.quarters.add(entry);
        }
        Ok(figures)
    }
}
