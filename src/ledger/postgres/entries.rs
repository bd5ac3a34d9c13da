//! The reading half of the claim path.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::Store;
use crate::domain::identity::AccountId;
use crate::ledger::entry_rows::{EntryRow, LineRow, entry_columns, millisecond};
use crate::ledger::fence::{Fence, LedgerPlace};
use crate::ledger::row::row;
use crate::ledger::values::Stamp;
use crate::ledger::{LedgerError, LedgerView, Look};

/// The advisory locks of some accounts, held by an open transaction until this is dropped.
pub struct Turn(#[expect(dead_code, reason = "held for its drop")] Transaction<'static, Postgres>);

row! {
    /// What a server shows, and an account's last line. One row has no line where no account has one.
    struct FencedRow {
        started_at: DateTime<Utc>,
        file: i64,
        horizon: i64,
        has_keys: bool,
        account: Option<Uuid>,
        number: Option<i64>,
        at: Option<Stamp>,
        policy_version: Option<i32>,
        lapses_at: Option<Stamp>,
        totals: Option<String>,
    }
}

impl FencedRow {
    fn fence(&self) -> Fence {
        Fence {
            place: LedgerPlace {
                started_at: self.started_at,
                file: self.file,
            },
            horizon: self.horizon,
        }
    }

    fn line(self) -> Option<LineRow> {
        Some(LineRow {
            account: self.account?,
            number: self.number?,
            at: self.at?,
            policy_version: self.policy_version?,
            lapses_at: self.lapses_at,
            totals: self.totals?,
        })
    }
}

impl Store {
    /// See [`crate::ledger::Ledger::look`].
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let ((fence, lines), entries) = self
            .in_time(async |connection| {
                let (fence, lines, names_entries) = match look.accounts.as_slice() {
                    [] => (None, Vec::new(), !look.names_no_entries()),
                    _ if self.shows_fence => fenced_lines(connection, look).await?,
                    accounts => {
                        let lines = last_lines(connection, accounts).await?;
                        (None, lines, !look.names_no_entries())
                    }
                };
                let entries = match names_entries {
                    true => entries(connection, look).await?,
                    false => Vec::new(),
                };
                Ok(((fence, lines), entries))
            })
            .await?;
        let mut seen = LedgerView {
            fence,
            ..LedgerView::default()
        };
        for row in lines {
            seen.lines.insert(AccountId(row.account), row.decode()?);
        }
        for row in entries {
            seen.entries.push(row.decode()?);
        }
        Ok(seen)
    }

    /// See [`crate::ledger::Ledger::turn`].
    pub async fn turn(&self, accounts: &[AccountId]) -> Result<Turn, LedgerError> {
        let mut locks: Vec<i64> = accounts
            .iter()
            .map(|account| account.0.as_u64_pair().0.cast_signed())
            .collect();
        locks.sort_unstable();
        let mut transaction = self.turns.begin().await?;
        for lock in locks {
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(lock)
                .execute(&mut *transaction)
                .await?;
        }
        Ok(Turn(transaction))
    }
}

/// Reads last lines, and the fence of the server that tells them, in one statement: every line
/// that it sees was committed before the horizon. Returns too whether there may be entries to read:
/// mostly no entry has any of the keys.
async fn fenced_lines(
    connection: &mut PgConnection,
    look: &Look,
) -> Result<(Option<Fence>, Vec<LineRow>, bool), sqlx::Error> {
    let accounts: Vec<Uuid> = look.accounts.iter().map(|account| account.0).collect();
    let keys: Vec<Uuid> = look.keys.iter().map(|key| key.0).collect();
    let rows: Vec<FencedRow> = sqlx::query_as(
        "WITH server AS MATERIALIZED (
             SELECT pg_postmaster_start_time() AS started_at,
                 hashtextextended(pg_relation_filepath('entries'), 0) AS file,
                 pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS horizon,
                 EXISTS (
                     SELECT FROM UNNEST($2::uuid[]) AS wanted (key) CROSS JOIN LATERAL (
                         SELECT FROM entries WHERE entries.key = wanted.key LIMIT 1
                     ) AS found
                 ) AS has_keys
         )
         SELECT * FROM server LEFT JOIN (
             SELECT last.* FROM UNNEST($1::uuid[]) AS wanted (account)
             CROSS JOIN LATERAL (
                 SELECT account, number, at, policy_version, lapses_at, totals FROM entries
                 WHERE entries.account = wanted.account ORDER BY number DESC LIMIT 1
             ) AS last
         ) AS lines ON true",
    )
    .bind(accounts)
    .bind(keys)
    .fetch_all(connection)
    .await?;
    let fence = rows.first().map(FencedRow::fence);
    let has_keys = rows.first().is_some_and(|row| row.has_keys);
    let names_others = !look.entries.is_empty() || !look.followers_of.is_empty();
    let lines = rows.into_iter().filter_map(FencedRow::line).collect();
    Ok((fence, lines, has_keys || names_others))
}

pub async fn last_lines<T>(
    connection: &mut PgConnection,
    accounts: &[AccountId],
) -> Result<Vec<T>, sqlx::Error>
where
    T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let accounts: Vec<Uuid> = accounts.iter().map(|account| account.0).collect();
    sqlx::query_as(
        "SELECT wanted.account, last.number, last.at, last.policy_version, last.lapses_at,
             last.totals
         FROM UNNEST($1::uuid[]) AS wanted (account)
         CROSS JOIN LATERAL (
             SELECT number, at, policy_version, lapses_at, totals FROM entries
             WHERE entries.account = wanted.account ORDER BY number DESC LIMIT 1
         ) AS last",
    )
    .bind(accounts)
    .fetch_all(connection)
    .await
}

/// Reads entries by their keys, their ids, and the grants that they follow (two follow one at most), each
/// by an index of its own. A plan for `= ANY`, made while
/// the ledger is nearly empty, reads the whole ledger afterwards, until PostgreSQL analyzes it.
async fn entries(connection: &mut PgConnection, look: &Look) -> Result<Vec<EntryRow>, sqlx::Error> {
    let keys: Vec<Uuid> = look.keys.iter().map(|key| key.0).collect();
    let ids: Vec<Uuid> = look.entries.iter().map(|entry| entry.0).collect();
    let of: Vec<Uuid> = look.followers_of.iter().map(|grant| grant.0).collect();
    let mut rows: Vec<EntryRow> = sqlx::query_as(concat!(
        "SELECT ",
        entry_columns!(),
        " FROM (
             SELECT found.* FROM UNNEST($1::uuid[]) AS wanted (key) CROSS JOIN LATERAL (
                 SELECT * FROM entries WHERE entries.key = wanted.key LIMIT 1
             ) AS found
             UNION ALL
             SELECT found.* FROM UNNEST(
                 $2::uuid[] || ARRAY(
                     SELECT found.id FROM UNNEST($3::uuid[]) AS wanted (of_grant)
                     CROSS JOIN LATERAL (
                         SELECT id FROM entry_details
                         WHERE entry_details.of_grant = wanted.of_grant LIMIT 2
                     ) AS found
                 )
             ) AS wanted (id) CROSS JOIN LATERAL (
                 SELECT * FROM entries WHERE ",
        millisecond!("entries.id"),
        " = ",
        millisecond!("wanted.id"),
        " AND entries.id = wanted.id LIMIT 1
             ) AS found
         ) AS e LEFT JOIN LATERAL (
             SELECT * FROM entry_details
             WHERE entry_details.account = e.account AND entry_details.number = e.number LIMIT 1
         ) AS d ON true"
    ))
    .bind(keys)
    .bind(ids)
    .bind(of)
    .fetch_all(connection)
    .await?;
    // One can be found by its key and by its id.
    rows.sort_unstable_by_key(|row| row.id);
    rows.dedup_by_key(|row| row.id);
    Ok(rows)
}
