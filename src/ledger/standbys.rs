//! The standbys of a primary: whether its commits wait for one.

use sqlx::PgPool;

use crate::boxed;
use crate::query::query;
use crate::row::StoredRow;
use crate::{Ledger, LedgerError};

const READ: &str = "SELECT current_setting('synchronous_standby_names') AS names, count(*) AS connected,
         count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous, count(sync_state) AS visible
     FROM pg_stat_replication";

/// The standbys of a primary, as far as the user may see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbyFacts {
    /// The setting `synchronous_standby_names`. Commits wait unless it is empty.
    pub names: String,
    pub connected: i64,
    pub synchronous: i64,
    /// Those of which the user may see the state.
    pub visible: i64,
}

impl StandbyFacts {
    pub(crate) async fn of(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let (names, connected, synchronous, visible) = sqlx::query_as(READ).fetch_one(pool).await?;
        Ok(Self {
            names,
            connected,
            synchronous,
            visible,
        })
    }

    /// The number of synchronous standbys; `None` if the user may not see them.
    pub fn known_synchronous(&self) -> Option<i64> {
        (self.visible == self.connected).then_some(self.synchronous)
    }
}

impl Ledger {
    /// The standbys of the ledger's server; `None` on SQLite, which has no server.
    #[boxed]
    pub async fn standbys(&self) -> Result<Option<StandbyFacts>, LedgerError> {
        if matches!(self, Self::Sqlite(_)) {
            return Ok(None);
        }
        let decode = |row: &StoredRow<'_>| {
            Ok(StandbyFacts {
                names: row.get("names")?,
                connected: row.get("connected")?,
                synchronous: row.get("synchronous")?,
                visible: row.get("visible")?,
            })
        };
        let found: Vec<StandbyFacts> = self
            .polled(async |mut session| session.all(query(READ), decode).await)
            .await?;
        Ok(found.into_iter().next())
    }
}
