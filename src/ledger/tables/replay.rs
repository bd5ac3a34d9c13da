//! How far a standby has followed its primary.

use chrono::{DateTime, Utc};

use crate::boxed;
use crate::query::{Texts, query};
use crate::row::StoredRow;
use crate::{Ledger, LedgerError};

/// What a server says about the replay of its primary's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayReading {
    /// Whether the server only follows a primary.
    pub is_standby: bool,
    /// Whether the server is connected to its primary.
    pub is_receiving: bool,
    /// Whether everything is replayed that was received.
    pub has_replayed_all: bool,
    /// When the last replayed transaction was committed, by the clock of the primary.
    pub replayed_to: Option<DateTime<Utc>>,
    /// The server's clock.
    pub now: DateTime<Utc>,
}

/// Every user may read these. The last replayed place is read first: what comes between the two reads
/// counts as not replayed. A ledger on SQLite has no standby.
const REPLAY: Texts = Texts {
    postgres: "SELECT pg_is_in_recovery() AS is_standby,
            EXISTS (SELECT FROM pg_stat_wal_receiver) AS is_receiving,
            COALESCE(pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn(), false)
                AS has_replayed_all,
            pg_last_xact_replay_timestamp() AS replayed_to, clock_timestamp() AS now",
    sqlite: "SELECT 0 AS is_standby, 0 AS is_receiving, 0 AS has_replayed_all,
            NULL AS replayed_to, 0 AS now",
};

fn decode(row: &StoredRow<'_>) -> Result<ReplayReading, LedgerError> {
    Ok(ReplayReading {
        is_standby: row.get("is_standby")?,
        is_receiving: row.get("is_receiving")?,
        has_replayed_all: row.get("has_replayed_all")?,
        replayed_to: row.get("replayed_to")?,
        now: row.get("now")?,
    })
}

impl Ledger {
    /// Asks how far the server has followed its primary.
    #[boxed]
    pub async fn read_replay(&self) -> Result<ReplayReading, LedgerError> {
        let reading = self
            .polled(async |mut session| session.first(query(REPLAY), decode).await)
            .await?;
        Ok(reading.ok_or(sqlx::Error::RowNotFound)?)
    }
}
