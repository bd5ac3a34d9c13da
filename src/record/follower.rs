//! The record follower: it follows the ledger and gives positions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::progress::RecordProgress;
use claims::instance::Watch;
use domain::record::Mark;
use host::clock::Clock;
use host::retried::Retried;
use ledger::{Horizon, Ledger, LedgerError};

/// The pause between two looks at the ledger.
const EVERY: Duration = Duration::from_millis(500);
/// How many runs of entries or changes get their positions in one transaction.
const STEP: u32 = 4096;

/// Gives positions to committed entries and changes. Each instance runs a follower.
///
/// Invariant: the order of positions never changes. Marks are added by compare and set, so that two
/// followers cannot give two orders. A follower that sees another one at work leaves the work to
/// it.
#[derive(Clone)]
pub struct LedgerFollower {
    pub ledger: Ledger,
    pub clock: Clock,
    /// Whether the clock is right: it stamps the positions.
    pub watch: Arc<Watch>,
    pub progress: Arc<RecordProgress>,
}

impl LedgerFollower {
    /// Follows the ledger until the task is aborted. If the ledger does not answer, it tries again.
    pub async fn run(self) {
        let mut last = None;
        let mut retried = Retried::default();
        loop {
            if self.watch.clock_is_off() {
                sleep(EVERY).await;
                continue;
            }
            let stepped = self.step(&mut last).await;
            if let Some(error) = retried.first_failure(&stepped) {
                tracing::warn!(%error, "the record cannot go on: trying again");
            }
            sleep(EVERY).await;
        }
    }

    /// Gives positions to everything that is committed. `last` is the last mark as this follower
    /// saw it.
    async fn step(&self, last: &mut Option<Mark>) -> Result<(), LedgerError> {
        // 1. Read the last mark.
        let found = self.ledger.record().mark_to_follow().await?;
        // 2. Read the horizon. Read it before the entries: a later read sees everything below the
        //    horizon.
        let now = Instant::now();
        let horizon = self.ledger.record().horizon().await?;
        // 3. A mark is always below a horizon, and horizons never fall. Otherwise the server lost
        //    transactions.
        if horizon.ended <= found.place.xact {
            let mark = found.place.xact;
            let ended = horizon.ended;
            return Err(LedgerError::Corrupt(format!(
                "there is a mark at transaction {mark}, but the server has ended only \
                 transactions below {ended}: stop all instances, and start them again"
            )));
        }
        // 4. If the last mark is not the one that this follower saw, another one is at work. Leave
        //    the work to it this time.
        let another_is_at_work = last.is_some_and(|last| last != found);
        *last = Some(found);
        let covered = if another_is_at_work {
            found.place.xact
        } else {
            self.go_on(last, found, horizon).await?
        };
        // 5. Note the progress, for requests that wait and for the metrics.
        let newest = last.map_or(0, |mark| mark.position);
        self.progress.note(newest, now, horizon, covered);
        Ok(())
    }

    /// Adds marks after `mark` up to the horizon, and keeps the last one in `last`. Returns the
    /// number of the transaction below which everything has its position.
    async fn go_on(
        &self,
        last: &mut Option<Mark>,
        mut mark: Mark,
        horizon: Horizon,
    ) -> Result<i64, LedgerError> {
        loop {
            // 1. Read the next runs, and make marks of them. No runs: everything below the horizon
            //    has a position.
            let runs = self
                .ledger
                .record()
                .runs_to_follow(mark.place, horizon, STEP)
                .await?;
            let marks = mark.next(&runs, self.clock.now());
            let Some(newest) = marks.last() else {
                return Ok(horizon.ended);
            };
            // 2. Add the marks. Another follower may have been faster.
            if !self.ledger.record().add_marks(&marks).await? {
                return Ok(mark.place.xact);
            }
            mark = *newest;
            *last = Some(mark);
            if runs.len() < STEP as usize {
                return Ok(horizon.ended);
            }
        }
    }
}
