//! Writes the days on which keys were used to the ledger.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::access::Access;
use super::health::Watch;
use host::retried::Retried;
use ledger::{AdminTables, LedgerError};

/// The pause between two writes. An instance that is lost takes the uses of this time with it.
const EVERY: Duration = Duration::from_secs(1);

/// Writes the days on which keys were used.
pub struct KeyUseWriter {
    pub access: Arc<Access>,
    pub ledger: AdminTables,
    pub watch: Arc<Watch>,
}

impl KeyUseWriter {
    /// Writes in a loop until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut retried = Retried::default();
        loop {
            sleep(EVERY).await;
            let written = self.write().await;
            if let Some(error) = retried.first_failure(&written) {
                tracing::warn!(%error, "the last uses of keys cannot be written: trying again");
            }
        }
    }

    /// Writes what was noted. After a failure it is written the next time.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn write(&self) -> Result<(), LedgerError> {
        // A day that is wrong would stay.
        if self.watch.clock_is_off() {
            return Ok(());
        }
        let unwritten = self.access.unwritten_uses();
        if unwritten.is_empty() {
            return Ok(());
        }
        let uses = unwritten.iter().map(|(of_key, _)| *of_key).collect();
        self.ledger.add_key_uses(uses).await?;
        for (of_key, last_use) in unwritten {
            last_use.note_written(of_key.used_on);
        }
        Ok(())
    }
}
