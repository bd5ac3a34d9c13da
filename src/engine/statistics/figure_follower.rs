//! The figure follower: it follows the record and makes the figures.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDate;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::subjects::{SubjectMemory, UnknownDay};
use crate::domain::grant::EntryKind;
use crate::domain::local_days::LocalDays;
use crate::domain::policy::{Policy, PolicyId};
use crate::domain::record::Mark;
use crate::domain::statistics::{FigureDay, FigureSums, OpenDay, SubjectDay, TalliedEntry};
use crate::engine::following::RecordFollower;
use crate::engine::record::RecordProgress;
use crate::ledger::{FiguresMark, Ledger, LedgerError};

/// How long an instance waits after it saw another one at work.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many marks are processed at once.
const MARKS_MOST: u32 = 32;
/// For how many accounts earlier entries are read at once.
const ACCOUNTS_MOST: usize = 1024;
/// After this many entries other tasks get the thread.
const YIELD_EVERY: usize = 256;

/// Makes the figures of recorded entries. Each instance runs a follower. A follower that sees
/// another one at work leaves the work to it.
pub struct FigureFollower {
    ledger: Ledger,
    progress: Arc<RecordProgress>,
    /// The position up to which the figures are made, as last seen.
    seen: Option<u64>,
    /// When another instance was last seen at work.
    another_at: Option<Instant>,
    subjects: SubjectMemory,
}

impl RecordFollower for FigureFollower {
    const NAME: &'static str = "statistics";

    async fn step(&mut self) -> Result<bool, LedgerError> {
        let stepped = self.make_next().await;
        if stepped.is_err() {
            // The memory of subjects has entries that are not in the figures. Forget it.
            self.subjects.clear();
        }
        stepped
    }
}

impl FigureFollower {
    pub fn new(ledger: Ledger, progress: Arc<RecordProgress>) -> Self {
        Self {
            ledger,
            progress,
            seen: None,
            another_at: None,
            subjects: SubjectMemory::default(),
        }
    }

    /// Makes the figures of the next marks. Returns whether there may be more.
    async fn make_next(&mut self) -> Result<bool, LedgerError> {
        // 1. Read the position up to which the figures are made. If it has moved, another instance
        //    is at work: leave the work to it for some time.
        let FiguresMark { position, kept_to } = self.ledger.figures_to_follow().await?;
        let now = Instant::now();
        self.progress.note_figures(position, now);
        let seen = self.seen.replace(position);
        if seen != Some(position) {
            self.subjects.clear();
            // The position moves back only if somebody has the figures made again.
            self.another_at = seen.filter(|seen| *seen < position).map(|_| now);
            return Ok(false);
        }
        if self.another_at.is_some_and(|at| now < at + PATIENCE) {
            return Ok(false);
        }
        // 2. Read the next marks.
        self.subjects.begin_step();
        let marks = self
            .ledger
            .marks_to_follow(position, MARKS_MOST + 1)
            .await?;
        // The first mark is the one that ends at the position.
        let (before, marks) = match marks.split_first() {
            Some((first, others)) if first.position == position => (*first, others),
            _ => (Mark::FIRST, &marks[..]),
        };
        let marks = &marks[..marks.len().min(MARKS_MOST as usize)];
        let Some(last) = marks.last() else {
            return Ok(false);
        };
        // 3. Make the figures of their entries.
        let (figures, open_days) = self.figures(before, marks, last, kept_to).await?;
        // 4. Add the figures, if the position is still the same. Invariant: each position is in the
        //    figures exactly once.
        let added = self.ledger.add_figures(
            position,
            last.position,
            &figures,
            &open_days,
            last.recorded_at,
        );
        if !added.await? {
            self.subjects.clear();
            self.another_at = Some(now);
            return Ok(false);
        }
        self.seen = Some(last.position);
        self.progress.note_figures(last.position, Instant::now());
        Ok(marks.len() == MARKS_MOST as usize)
    }

    /// The figures of the entries that got positions by these marks, and the days that have them.
    /// The marks follow the mark `before`. Entries that were recorded on the local day `kept_to` or
    /// before are in figures that are kept.
    async fn figures(
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
