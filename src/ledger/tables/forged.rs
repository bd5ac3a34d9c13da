//! Entries and changes with a place that perdiem never gives. Somebody added them by hand, where no
//! follower finds them.

use uuid::Uuid;

use crate::boxed;
use crate::query::{Texts, query};
use crate::row::StoredRow;
use crate::{AuditTables, LedgerError};

/// Whether an entry or a change has a place before the record, where no follower finds it.
const IS_BEFORE: &str = "SELECT EXISTS (SELECT 1 FROM entries WHERE xact < 0)
    OR EXISTS (SELECT 1 FROM policy_versions WHERE xact < 0)
    OR EXISTS (SELECT 1 FROM key_versions WHERE xact < 0)
    OR EXISTS (SELECT 1 FROM override_versions WHERE xact < 0)
    OR EXISTS (SELECT 1 FROM acts WHERE xact < 0)";

/// The first entry or change whose place no transaction has had. On PostgreSQL: at or above the
/// number of the next transaction. A statement sees no real entry there.
const FORGED: Texts = Texts {
    postgres: "WITH begun AS (
            SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + xact_offset AS xact FROM ledger
        )
        (SELECT id, CAST(0 AS bigint) AS revision, xact FROM entries
            WHERE xact >= (SELECT xact FROM begun) ORDER BY xact LIMIT 1)
        UNION ALL (SELECT NULL, revision, xact FROM policy_versions
            WHERE xact >= (SELECT xact FROM begun) ORDER BY xact LIMIT 1)
        UNION ALL (SELECT NULL, revision, xact FROM key_versions
            WHERE xact >= (SELECT xact FROM begun) ORDER BY xact LIMIT 1)
        UNION ALL (SELECT NULL, revision, xact FROM override_versions
            WHERE xact >= (SELECT xact FROM begun) ORDER BY xact LIMIT 1)
        UNION ALL (SELECT NULL, revision, xact FROM acts
            WHERE xact >= (SELECT xact FROM begun) ORDER BY xact LIMIT 1)
        LIMIT 1",
    // On SQLite entries have consecutive numbers, so those after the newest mark have no gap. A
    // change has the number of the newest entry before it.
    sqlite: "WITH newest AS (SELECT COALESCE(MAX(xact), 0) AS xact FROM entries),
            marked AS (SELECT xact FROM record_marks ORDER BY after DESC LIMIT 1)
        SELECT * FROM (
            SELECT id, 0 AS revision, xact FROM (
                SELECT id, xact, row_number() OVER (ORDER BY xact) AS nth FROM (
                    SELECT id, xact FROM entries WHERE xact > (SELECT xact FROM marked)
                    ORDER BY xact LIMIT 4096
                )
            ) WHERE xact > (SELECT xact FROM marked) + nth ORDER BY xact LIMIT 1
        )
        UNION ALL SELECT NULL, revision, xact FROM policy_versions
            WHERE xact > (SELECT xact FROM newest)
        UNION ALL SELECT NULL, revision, xact FROM key_versions
            WHERE xact > (SELECT xact FROM newest)
        UNION ALL SELECT NULL, revision, xact FROM override_versions
            WHERE xact > (SELECT xact FROM newest)
        UNION ALL SELECT NULL, revision, xact FROM acts WHERE xact > (SELECT xact FROM newest)
        LIMIT 1",
};

impl AuditTables {
    /// Whether an entry or a change has a place before the record. perdiem never gives such a
    /// place.
    #[boxed]
    pub async fn has_leaves_before(&self) -> Result<bool, LedgerError> {
        self.ledger
            .reads()
            .await?
            .lend()
            .one(query(IS_BEFORE))
            .await
    }

    /// An entry or a change whose place no transaction has had, as text for people.
    #[boxed]
    pub async fn forged_place(&self) -> Result<Option<String>, LedgerError> {
        let decode = |row: &StoredRow<'_>| {
            let id: Option<Uuid> = row.get("id")?;
            let revision: u64 = row.get("revision")?;
            let xact: i64 = row.get("xact")?;
            Ok(match id {
                Some(id) => format!("the entry {id} (transaction {xact})"),
                None => format!("the change {revision} (transaction {xact})"),
            })
        };
        let mut held = self.ledger.own().await?;
        held.lend().first(query(FORGED), decode).await
    }
}
