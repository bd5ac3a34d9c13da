//! The reading half of the claims' way.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::Store;
use crate::batched::{Batched, ROWS_MOST, batched};
use crate::entry_rows::decode_view;
use crate::query::Session;
use crate::row::StoredRow;
use crate::shared_use;
use crate::{LedgerError, LedgerView, Look};
use domain::identity::AccountId;

impl Store {
    /// Uses the writer's connection: its page cache stays valid over commits. Commits empty the
    /// caches of the readers.
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let (lines, entries, erasures, shared) = self
            .writer
            .run(async |connection| {
                let lines = last_lines(connection, &look.accounts).await?;
                let entries = entries(connection, look).await?;
                let erasures = match lines.first() {
                    Some(line) => line.try_get("erasures")?,
                    None => {
                        sqlx::query_scalar(ERASURES)
                            .fetch_one(&mut *connection)
                            .await?
                    }
                };
                let shared = shared_use::of_look(&mut Session::Sqlite(connection), look).await?;
                Ok::<_, LedgerError>((lines, entries, erasures, shared))
            })
            .await?;
        // The horizon is the highest `xact` of the lines. A file that has this entry has all of
        // them.
        let mut horizon = 0;
        for row in &lines {
            horizon = horizon.max(row.try_get("xact")?);
        }
        let lines = lines.iter().map(StoredRow::Sqlite);
        let entries = entries.iter().map(StoredRow::Sqlite);
        decode_view(Some(self.fence(horizon, erasures)), lines, entries, shared)
    }
}

pub async fn last_lines(
    connection: &mut SqliteConnection,
    accounts: &[AccountId],
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let accounts = accounts.iter().map(|account| account.0);
    of_ids(connection, &LAST_LINES, accounts.collect()).await
}

/// The entries that have one of the keys or ids, or follow one of the grants. The followers of grants
/// that are found by their keys come too.
async fn entries(
    connection: &mut SqliteConnection,
    look: &Look,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let keys = look.keys.iter().map(|key| key.0);
    let ids = look.entries.iter().map(|entry| entry.0);
    let mut grants: Vec<Uuid> = look.followers_of.iter().map(|grant| grant.0).collect();
    let mut rows = of_ids(connection, &WITH_KEYS, keys.collect()).await?;
    for row in &rows {
        grants.push(row.try_get("id")?);
    }
    rows.extend(of_ids(connection, &WITH_IDS, ids.collect()).await?);
    rows.extend(of_ids(connection, &FOLLOWERS, grants).await?);
    Ok(rows)
}

/// The rows that a query finds for ids.
async fn of_ids(
    connection: &mut SqliteConnection,
    query: &Batched,
    ids: Vec<Uuid>,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let mut found = Vec::new();
    for ids in ids.chunks(ROWS_MOST) {
        let query = sqlx::query(query.of(ids.len()));
        let query = ids.iter().fold(query, |query, id| query.bind(id));
        found.append(&mut query.fetch_all(&mut *connection).await?);
    }
    Ok(found)
}

const ERASURES: &str = "SELECT erasures FROM ledger";

const LAST_LINES: Batched = batched!(
    "WITH wanted (account) AS (VALUES ",
    "(?)",
    ") SELECT last.account, last.number, at, policy_version, lapses_at, totals, xact,
         (SELECT erasures FROM ledger) AS erasures
     FROM wanted CROSS JOIN entries AS last ON last.rowid = (
         SELECT rowid FROM entries WHERE account = wanted.account ORDER BY number DESC LIMIT 1
     )"
);

const WITH_KEYS: Batched = batched!(
    "WITH wanted (id) AS (VALUES ",
    "(?)",
    ") SELECT e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind, e.units,
         e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by, d.reason, d.per,
         d.bundle
     FROM wanted
     CROSS JOIN entries AS e
     LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
     WHERE e.key = wanted.id"
);
const WITH_IDS: Batched = batched!(
    "WITH wanted (id) AS (VALUES ",
    "(?)",
    ") SELECT e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind, e.units,
         e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by, d.reason, d.per,
         d.bundle
     FROM wanted
     CROSS JOIN entries AS e
     LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
     WHERE e.id = wanted.id"
);
const FOLLOWERS: Batched = batched!(
    "WITH wanted (id) AS (VALUES ",
    "(?)",
    ") SELECT e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind, e.units,
         e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by, d.reason, d.per,
         d.bundle
     FROM wanted
     CROSS JOIN entry_details AS d
     CROSS JOIN entries AS e ON e.account = d.account AND e.number = d.number
     WHERE d.of_grant = wanted.id"
);
