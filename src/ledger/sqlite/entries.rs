//! The reading half of the claim path.

use std::collections::HashSet;

use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, SqliteConnection};
use uuid::Uuid;

use super::Store;
use crate::domain::identity::AccountId;
use crate::ledger::batched::{Batched, ROWS_MOST, batched};
use crate::ledger::entry_rows::{EntryRow, LineRow, entry_columns, with_details};
use crate::ledger::row::row;
use crate::ledger::{LedgerError, LedgerView, Look};

row! {
    /// An account's last line, and the position of its entry in the file.
    struct LastRow {
        ..line: LineRow,
        position: i64,
    }
}

impl Store {
    /// See [`crate::ledger::Ledger::look`]. On the writer's connection, whose cache of pages each
    /// commit keeps up to date; those of the readers it empties.
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let (lines, entries) = self
            .writer
            .run(async |connection| {
                let lines: Vec<LastRow> = last_lines(connection, &look.accounts).await?;
                let entries = entries(connection, look).await?;
                Ok::<_, sqlx::Error>((lines, entries))
            })
            .await?;
        // A file that has the entry at this position has them all.
        let horizon = lines.iter().map(|row| row.position).max();
        let mut seen = LedgerView {
            fence: Some(self.fence(horizon.unwrap_or(0))),
            ..LedgerView::default()
        };
        for LastRow { line, .. } in lines {
            seen.lines.insert(AccountId(line.account), line.decode()?);
        }
        for row in entries {
            seen.entries.push(row.decode()?);
        }
        Ok(seen)
    }
}

pub async fn last_lines<T>(
    connection: &mut SqliteConnection,
    accounts: &[AccountId],
) -> Result<Vec<T>, sqlx::Error>
where
    T: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    let accounts: Vec<Uuid> = accounts.iter().map(|account| account.0).collect();
    of_ids(connection, &LAST_LINES, &accounts).await
}

/// The entries that bear one of the keys or ids, or follow one of the grants, each once.
async fn entries(
    connection: &mut SqliteConnection,
    look: &Look,
) -> Result<Vec<EntryRow>, sqlx::Error> {
    let keys: Vec<Uuid> = look.keys.iter().map(|key| key.0).collect();
    let ids: Vec<Uuid> = look.entries.iter().map(|entry| entry.0).collect();
    let grants: Vec<Uuid> = look.followers_of.iter().map(|grant| grant.0).collect();
    let mut rows: Vec<EntryRow> = of_ids(connection, &WITH_KEYS, &keys).await?;
    rows.extend(of_ids(connection, &WITH_IDS, &ids).await?);
    rows.extend(of_ids(connection, &FOLLOWERS, &grants).await?);
    let mut seen = HashSet::new();
    rows.retain(|row| seen.insert(row.id));
    Ok(rows)
}

/// The rows that a query tells of ids.
async fn of_ids<Row>(
    connection: &mut SqliteConnection,
    query: &Batched,
    ids: &[Uuid],
) -> Result<Vec<Row>, sqlx::Error>
where
    Row: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    let mut found = Vec::new();
    for ids in ids.chunks(ROWS_MOST) {
        let mut query = sqlx::query_as(query.of(ids.len()));
        for id in ids {
            query = query.bind(id);
        }
        found.append(&mut query.fetch_all(&mut *connection).await?);
    }
    Ok(found)
}

const LAST_LINES: Batched = batched!(
    "WITH wanted (account) AS (VALUES ",
    "(?)",
    ") SELECT last.account, last.number, at, policy_version, lapses_at, totals, position
     FROM wanted CROSS JOIN entries AS last ON last.rowid = (
         SELECT rowid FROM entries WHERE account = wanted.account ORDER BY number DESC LIMIT 1
     )"
);

/// A query for the entries of which a column is one of some ids.
macro_rules! entries_with {
    ($column:literal) => {
        entries_with!(
            "CROSS JOIN entries AS e",
            with_details!(),
            "WHERE e.",
            $column
        )
    };
    ($($joined:expr),+) => {
        batched!(
            "WITH wanted (id) AS (VALUES ",
            "(?)",
            concat!(
                ") SELECT ",
                entry_columns!(),
                " FROM wanted ",
                $($joined,)+
                " = wanted.id"
            )
        )
    };
}

const WITH_KEYS: Batched = entries_with!("key");
const WITH_IDS: Batched = entries_with!("id");
const FOLLOWERS: Batched = entries_with!(
    "CROSS JOIN entry_details AS d
     CROSS JOIN entries AS e ON e.account = d.account AND e.number = d.number WHERE d.",
    "of_grant"
);
