//! The follower of the ledger, which gives positions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::progress::RecordProgress;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::domain::record::Mark;
use crate::ledger::{Horizon, Ledger, LedgerError};

/// How often the ledger is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// How many runs get their positions in one transaction.
const STEP: u32 = 4096;

/// Gives positions to what was committed. Each instance runs one. Marks are added by compare and
/// set, so that followers cannot give two orders; one that sees another at work leaves it to it.
#[derive(Clone)]
pub struct LedgerFollower {
    pub ledger: Ledger,
    pub clock: Clock,
    pub progress: Arc<RecordProgress>,
}

impl LedgerFollower {
    /// Follows the ledger until it is aborted. While the ledger does not answer it tries again.
    pub async fn run(self) {
        let mut last = None;
        let mut is_failing = false;
        loop {
            let stepped = self.step(&mut last).await;
            if let Err(error) = &stepped
                && !is_failing
            {
                tracing::warn!(
                    error = %Chain(error),
                    "the record cannot go on: it is tried again"
                );
            }
            is_failing = stepped.is_err();
            sleep(EVERY).await;
        }
    }

    /// Gives positions to all that was committed. `last` is the mark that was the last one before.
    async fn step(&self, last: &mut Option<Mark>) -> Result<(), LedgerError> {
        let found = self.ledger.mark_to_follow().await?;
        // The horizon comes before the places: what is read afterwards has everything below it.
        let now = Instant::now();
        let horizon = self.ledger.horizon().await?;
        // The mark was made below a horizon, and horizons never fall.
        if horizon.ended <= found.place.xact {
            let (mark, ended) = (found.place.xact, horizon.ended);
            return Err(LedgerError::Corrupt(format!(
                "a mark at transaction {mark}, where the server has ended those below {ended}: end \
                 all instances, and start them again"
            )));
        }
        let another_is_at_work = last.is_some_and(|last| last != found);
        *last = Some(found);
        let covered = match another_is_at_work {
            true => found.place.xact,
            false => self.go_on(last, found, horizon).await?,
        };
        let newest = last.map_or(0, |mark| mark.position);
        self.progress.note(newest, now, horizon, covered);
        Ok(())
    }

    /// Adds marks from `mark` on up to the horizon, and notes the last one. Returns the number of
    /// the transaction below which everything has its position.
    async fn go_on(
        &self,
        last: &mut Option<Mark>,
        mut mark: Mark,
        horizon: Horizon,
    ) -> Result<i64, LedgerError> {
        loop {
            let runs = self.ledger.runs_to_follow(mark.place, horizon, STEP);
            let marks = mark.next(&runs.await?, self.clock.now());
            let Some(newest) = marks.last() else {
                return Ok(horizon.ended);
            };
            if !self.ledger.add_marks(&marks).await? {
                return Ok(mark.place.xact);
            }
            mark = *newest;
            *last = Some(mark);
        }
    }
}
