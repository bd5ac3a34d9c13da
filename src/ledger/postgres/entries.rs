//! The reading half of the claims' way.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row, Transaction};
use uuid::Uuid;

use super::Store;
use crate::entry_rows::decode_view;
use crate::fence::{Fence, LedgerPlace};
use crate::query::Session;
use crate::row::StoredRow;
use crate::sessions::{SessionPool, answered};
use crate::shared_use;
use crate::{LedgerError, LedgerView, Look};
use domain::identity::{AccountId, KeyId};

impl Store {
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let has_fence = self.shows_fence && !look.accounts.is_empty();
        let names_others = !look.entries.is_empty() || !look.followers_of.is_empty();
        let (lines, entries, shared) = self
            .claims
            .run(async |connection| {
                // 1. Read the last lines, with the fence in the same statement.
                let lines = if has_fence {
                    fenced_lines(connection, look).await?
                } else if look.accounts.is_empty() {
                    Vec::new()
                } else {
                    last_lines(connection, &look.accounts).await?
                };
                // 2. Read the entries, if there are any to find. Mostly no entry has any of the
                //    keys, and the first statement has looked.
                let finds_keys = match lines.first().filter(|_| has_fence) {
                    Some(row) => row.try_get("has_keys")?,
                    None => !look.keys.is_empty(),
                };
                let entries = if finds_keys || names_others {
                    let keys = if finds_keys { &look.keys[..] } else { &[] };
                    entries(connection, keys, look).await?
                } else {
                    Vec::new()
                };
                let mut session = Session::Postgres(connection, Duration::MAX);
                let shared = shared_use::of_look(&mut session, look).await?;
                Ok::<_, LedgerError>((lines, entries, shared))
            })
            .await?;
        let fence = lines.first().filter(|_| has_fence).map(fence);
        let lines = lines.iter().map(StoredRow::Postgres);
        let entries = entries.iter().map(StoredRow::Postgres);
        decode_view(fence.transpose()?, lines, entries, shared)
    }

    /// The advisory locks of some accounts. The transaction holds them.
    pub async fn turn(
        &self,
        accounts: &[AccountId],
    ) -> Result<Transaction<'static, Postgres>, LedgerError> {
        let mut locks: Vec<i64> = accounts
            .iter()
            .map(|account| account.0.as_u64_pair().0.cast_signed())
            .collect();
        locks.sort_unstable();
        let SessionPool { sessions, patience } = &self.turns;
        let mut transaction = answered(*patience, sessions.begin()).await?;
        for lock in locks {
            let locking = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(lock);
            answered(*patience, locking.execute(&mut *transaction)).await?;
        }
        Ok(transaction)
    }
}

/// Reads last lines and the fence in one statement. Invariant: every line that the statement sees
/// was committed before the fence's horizon, and belongs to the fence's number of erasures. If no
/// account has a line, there is one row without a line.
async fn fenced_lines(
    connection: &mut PgConnection,
    look: &Look,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let accounts: Vec<Uuid> = look.accounts.iter().map(|account| account.0).collect();
    let keys: Vec<Uuid> = look.keys.iter().map(|key| key.0).collect();
    sqlx::query(
        "WITH server AS MATERIALIZED (
             SELECT pg_postmaster_start_time() AS started_at,
                 hashtextextended(pg_relation_filepath('entries'), 0) AS file,
                 pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS horizon,
                 (SELECT erasures FROM ledger) AS erasures,
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
    .await
}

fn fence(row: &PgRow) -> Result<Fence, sqlx::Error> {
    Ok(Fence {
        place: LedgerPlace {
            started_at: row.try_get("started_at")?,
            file: row.try_get("file")?,
            erasures: row.try_get("erasures")?,
        },
        horizon: row.try_get("horizon")?,
    })
}

pub async fn last_lines(
    connection: &mut PgConnection,
    accounts: &[AccountId],
) -> Result<Vec<PgRow>, sqlx::Error> {
    let accounts: Vec<Uuid> = accounts.iter().map(|account| account.0).collect();
    sqlx::query(
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

/// Reads entries by their keys, by their ids, and by the grants that they follow (at most 103 follow
/// one: see `PARTS_MOST`). The followers of grants that are found by their keys come too. Each uses an
/// index of its own. A plan for `= ANY` that is made while the ledger is nearly empty would later read
/// the whole ledger, until PostgreSQL analyzes the table.
async fn entries(
    connection: &mut PgConnection,
    keys: &[KeyId],
    look: &Look,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let keys: Vec<Uuid> = keys.iter().map(|key| key.0).collect();
    let ids: Vec<Uuid> = look.entries.iter().map(|entry| entry.0).collect();
    let of: Vec<Uuid> = look.followers_of.iter().map(|grant| grant.0).collect();
    sqlx::query(
        "WITH of_keys AS MATERIALIZED (
             SELECT found.* FROM UNNEST($1::uuid[]) AS wanted (key) CROSS JOIN LATERAL (
                 SELECT * FROM entries WHERE entries.key = wanted.key LIMIT 1
             ) AS found
         )
         SELECT e.account, e.number, e.at, e.policy_version, e.lapses_at, e.totals, e.id, e.kind, e.units,
             e.key, e.metadata, e.flags, e.claimed_by, d.of_grant, d.held_until, d.made_by, d.reason, d.per,
             d.bundle
         FROM (
             SELECT * FROM of_keys
             UNION ALL
             SELECT found.* FROM UNNEST(
                 $2::uuid[] || ARRAY(
                     SELECT found.id
                     FROM UNNEST($3::uuid[] || ARRAY(SELECT id FROM of_keys)) AS wanted (of_grant)
                     CROSS JOIN LATERAL (
                         SELECT id FROM entry_details
                         WHERE entry_details.of_grant = wanted.of_grant LIMIT 104
                     ) AS found
                 )
             ) AS wanted (id) CROSS JOIN LATERAL (
                 SELECT * FROM entries
                 WHERE substring(uuid_send(entries.id), 1, 6) = substring(uuid_send(wanted.id), 1, 6)
                     AND entries.id = wanted.id LIMIT 1
             ) AS found
         ) AS e LEFT JOIN LATERAL (
             SELECT * FROM entry_details
             WHERE entry_details.account = e.account AND entry_details.number = e.number LIMIT 1
         ) AS d ON true",
    )
    .bind(keys)
    .bind(ids)
    .bind(of)
    .fetch_all(connection)
    .await
}
