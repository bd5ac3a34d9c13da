//! The follower of a standby. It writes nothing: it looks how far the standby has followed its
//! primary, and which position of the record is the newest one there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::progress::RecordProgress;
use claims::instance::Standby;
use ledger::{Horizon, Ledger, LedgerError};

/// The pause between two looks.
const EVERY: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub struct StandbyFollower {
    pub ledger: Ledger,
    pub standby: Arc<Standby>,
    pub progress: Arc<RecordProgress>,
}

impl StandbyFollower {
    /// Looks until the task is aborted. If the standby does not answer, the watcher tells of it.
    pub async fn run(self) {
        loop {
            let _ = self.look().await;
            sleep(EVERY).await;
        }
    }

    /// Looks once.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn look(&self) -> Result<(), LedgerError> {
        // Read before the newest position: everything is here that was committed before that.
        let now = Instant::now();
        self.standby.note(self.ledger.read_replay().await?, now);
        let newest = self.ledger.record().mark_to_follow().await?;
        // The instances on the primary give positions and tell how far behind they are.
        let covered = Horizon::above(newest.place.xact);
        self.progress
            .note(newest.position, now, covered, covered.begun);
        self.progress.note_figures(newest.position, now);
        Ok(())
    }
}
