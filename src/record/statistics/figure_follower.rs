//! The figure follower: it follows the record and makes the figures.

use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDate;
use tokio::time::Instant;

use super::tally::{FigureTally, POSITIONS_MOST};
use crate::RecordProgress;
use crate::following::{RecordFollower, Stepped};
use domain::record::Mark;
use ledger::{Ledger, LedgerError, TalliedFigures};

/// How long an instance waits after it saw another one at work.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of how many batches of entries the figures are added at once. Entries of a policy change the same rows, so more
/// entries at once need fewer changes for each. A step stays much shorter than [`PATIENCE`].
const BATCHES_MOST: usize = 16;

/// Makes the figures of recorded entries. Each instance runs a follower. A follower that sees
/// another one at work leaves the work to it.
pub struct FigureFollower {
    ledger: Ledger,
    progress: Arc<RecordProgress>,
    /// The position up to which the figures are made, as last seen.
    seen: Option<u64>,
    /// When another instance was last seen at work.
    another_at: Option<Instant>,
    tally: FigureTally,
}

impl RecordFollower for FigureFollower {
    const NAME: &'static str = "statistics";

    async fn step(&mut self) -> Result<Stepped, LedgerError> {
        let stepped = self.make_next().await;
        if stepped.is_err() {
            // The memory of subjects has entries that are not in the figures. Forget it.
            self.tally.clear();
        }
        stepped
    }
}

impl FigureFollower {
    pub fn new(ledger: Ledger, progress: Arc<RecordProgress>) -> Self {
        Self {
            tally: FigureTally::new(ledger.clone()),
            ledger,
            progress,
            seen: None,
            another_at: None,
        }
    }

    /// Makes the figures of the next marks.
    async fn make_next(&mut self) -> Result<Stepped, LedgerError> {
        // 1. Read the position up to which the figures are made. If it has moved, another instance
        //    is at work: leave the work to it for some time.
        let mark = self.ledger.figures().figures_to_follow().await?;
        let position = mark.position;
        let now = Instant::now();
        self.progress.note_figures(position, now);
        let seen = self.seen.replace(position);
        if seen != Some(position) {
            self.tally.clear();
            // The position moves back only if somebody has the figures made again.
            self.another_at = seen.filter(|seen| *seen < position).map(|_| now);
            return Ok(Stepped::default());
        }
        if self.another_at.is_some_and(|at| now < at + PATIENCE) {
            return Ok(Stepped::default());
        }
        // 2. Make the figures of the next entries.
        let mut figures = TalliedFigures::default();
        let mut last = None;
        let mut is_more = false;
        for _ in 0..BATCHES_MOST {
            let from = last.map_or(position, |last: Mark| last.position);
            let Some((batch, to)) = self.tally_after(from, mark.kept_to).await? else {
                break;
            };
            figures.extend(batch);
            last = Some(to);
            is_more = to.position >= from + POSITIONS_MOST;
            if !is_more {
                break;
            }
        }
        let Some(last) = last else {
            return Ok(Stepped::default());
        };
        // 3. Add the figures, if the position is still the same. Invariant: each position is in the
        //    figures exactly once.
        let added = self
            .ledger
            .figures()
            .add_figures(position, last.position, &figures, last.recorded_at)
            .await;
        if !added? {
            self.tally.clear();
            self.another_at = Some(now);
            return Ok(Stepped::default());
        }
        self.seen = Some(last.position);
        self.progress.note_figures(last.position, Instant::now());
        Ok(Stepped {
            is_more,
            rows: figures.rows(),
        })
    }

    /// The figures of a batch of entries after a position, and the mark that ends it. `None` if there are no entries.
    async fn tally_after(
        &mut self,
        position: u64,
        kept_to: Option<NaiveDate>,
    ) -> Result<Option<(TalliedFigures, Mark)>, LedgerError> {
        let marks = self
            .ledger
            .record()
            .marks_to_follow(position..position + POSITIONS_MOST + 1)
            .await?;
        // The first mark is the one that ends at the position.
        let (before, marks) = match marks.split_first() {
            Some((first, others)) if first.position == position => (*first, others),
            _ => (Mark::FIRST, &marks[..]),
        };
        let Some(last) = marks.last() else {
            return Ok(None);
        };
        let figures = self.tally.figures(before, marks, last, kept_to).await?;
        Ok(Some((figures, *last)))
    }
}
