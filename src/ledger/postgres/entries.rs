//! The reading half of the claim path.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::Store;
use super::grants::millisecond;
use crate::domain::claim::{Metadata, Units};
use crate::domain::correction::Hold;
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::key::KeyNumber;
use crate::domain::totals::decode_totals;
use crate::domain::window::Window;
use crate::ledger::fence::{Fence, LedgerPlace};
use crate::ledger::record::{
    decode_flags, decode_kind, decode_note, entry_columns, kind, signed, unsigned, with_details,
};
use crate::ledger::row::row;
use crate::ledger::{LedgerError, LedgerView, Look};

/// The advisory locks of some accounts, held by an open transaction until this is dropped.
pub struct Turn(#[expect(dead_code, reason = "held for its drop")] Transaction<'static, Postgres>);

row! {
    pub struct LineRow {
        pub account: Uuid,
        number: i64,
        at: DateTime<Utc>,
        policy_version: i32,
        lapses_at: Option<DateTime<Utc>>,
        totals: String,
    }
}

impl LineRow {
    pub fn decode(self) -> Result<Line, LedgerError> {
        Ok(Line {
            number: unsigned(self.number)?,
            at: self.at,
            policy_version: unsigned(self.policy_version.into())?,
            lapses_at: self.lapses_at,
            totals: decode_totals(&self.totals)?.into(),
        })
    }
}

row! {
    /// What a server shows, and an account's last line. One row has no line where no account has one.
    struct FencedRow {
        started_at: DateTime<Utc>,
        file: i64,
        horizon: i64,
        has_keys: bool,
        account: Option<Uuid>,
        number: Option<i64>,
        at: Option<DateTime<Utc>>,
        policy_version: Option<i32>,
        lapses_at: Option<DateTime<Utc>>,
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

row! {
    pub struct EntryRow {
        ..line: LineRow,
        id: Uuid,
        kind: i16,
        units: i64,
        key: Option<Uuid>,
        metadata: Option<String>,
        flags: i16,
        claimed_by: Option<i32>,
        of_grant: Option<Uuid>,
        held_until: Option<DateTime<Utc>>,
        made_by: Option<String>,
        reason: Option<String>,
    }
}

impl EntryRow {
    pub fn decode(self) -> Result<Entry, LedgerError> {
        let units = Units::new(self.units.into())
            .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
        let (provisional, would_deny) = decode_flags(self.flags)?;
        let claimed_by = self.claimed_by.map(|number| unsigned(number.into()));
        let held_until = self.held_until;
        Ok(Entry {
            account: AccountId(self.line.account),
            id: EntryId(self.id),
            kind: decode_kind(self.kind, self.of_grant.map(EntryId), held_until)?,
            units,
            key: self.key.map(KeyId),
            metadata: self.metadata.map(Metadata::from_stored),
            provisional,
            would_deny,
            claimed_by: claimed_by.transpose()?.map(KeyNumber),
            note: decode_note(self.made_by, self.reason),
            line: self.line.decode()?,
        })
    }
}

row! {
    struct HoldRow {
        id: Uuid,
        units: i64,
        held_until: DateTime<Utc>,
    }
}

impl HoldRow {
    fn decode(self) -> Result<Hold, LedgerError> {
        Ok(Hold {
            grant: EntryId(self.id),
            units: Units::new(self.units.into())
                .map_err(|error| LedgerError::Corrupt(error.to_string()))?,
            until: self.held_until,
        })
    }
}

/// A query for the holds of an account that nothing up to a line has ended.
macro_rules! open_holds_where {
    ($condition:literal) => {
        concat!(
            "SELECT hold.id, e.units, hold.held_until FROM entry_details AS hold
             JOIN entries AS e ON e.account = hold.account AND e.number = hold.number
             WHERE hold.account = $1 AND hold.number <= $2 AND hold.held_until >= $3 AND ",
            $condition,
            " AND NOT EXISTS (
                 SELECT 1 FROM entry_details WHERE of_grant = hold.id AND number <= $2
             )
             ORDER BY hold.held_until, hold.id LIMIT $5"
        )
    };
}

const LAPSED_HOLDS: &str = open_holds_where!("hold.held_until <= $4");
const NEXT_HOLDS: &str = open_holds_where!("hold.held_until > $4");

/// The running sum of what an account's entries add and give back, raised by what it would have
/// fallen below zero.
const SUM: &str = concat!(
    "SELECT COALESCE(SUM(added) - LEAST(MIN(so_far), 0), 0)::bigint FROM (
         SELECT added, SUM(added) OVER (ORDER BY number) AS so_far FROM (
             SELECT e.number, CASE WHEN e.kind IN (",
    kind!(GRANT),
    ", ",
    kind!(ADJUSTMENT_UP),
    ") THEN e.units ELSE -e.units END AS added
             FROM entries AS e",
    with_details!(),
    "WHERE e.account = $1 AND e.number <= $2 AND e.kind <> ",
    kind!(CONFIRMATION),
    " AND COALESCE(d.of_grant, e.id) >= $3 AND COALESCE(d.of_grant, e.id) < $4
         ) AS steps
     ) AS sums"
);

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

    /// See [`crate::ledger::Ledger::sums`]: one of them.
    pub async fn sum(
        &self,
        account: AccountId,
        number: u64,
        window: Window,
    ) -> Result<u64, LedgerError> {
        let sum = sqlx::query_scalar(SUM)
            .bind(account.0)
            .bind(signed(number))
            .bind(EntryId::first_at(window.start).0)
            .bind(EntryId::first_at(window.end).0);
        let sum: i64 = self
            .in_time(async |connection| sum.fetch_one(connection).await)
            .await?;
        unsigned(sum)
    }

    /// See [`crate::ledger::Ledger::holds`]: the open ones from an instant on, those up to
    /// `at` and those after it, at most `most` of each, in the order of their ends.
    pub async fn holds(
        &self,
        account: AccountId,
        number: u64,
        from: DateTime<Utc>,
        at: DateTime<Utc>,
        most: [u32; 2],
    ) -> Result<Vec<Hold>, LedgerError> {
        let query = |sql, most: u32| {
            sqlx::query_as(sql)
                .bind(account.0)
                .bind(signed(number))
                .bind(from)
                .bind(at)
                .bind(i64::from(most))
        };
        let (lapsed, next) = (query(LAPSED_HOLDS, most[0]), query(NEXT_HOLDS, most[1]));
        let rows: (Vec<HoldRow>, Vec<HoldRow>) = self
            .in_time(async |connection| {
                let lapsed = lapsed.fetch_all(&mut *connection).await?;
                Ok((lapsed, next.fetch_all(connection).await?))
            })
            .await?;
        rows.0
            .into_iter()
            .chain(rows.1)
            .map(HoldRow::decode)
            .collect()
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

    /// See [`crate::ledger::Ledger::keys_of`].
    pub async fn keys_of(
        &self,
        account: AccountId,
        since: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<KeyId>, LedgerError> {
        let keys = sqlx::query_scalar(
            "SELECT key FROM entries WHERE account = $1 AND at >= $2 AND key IS NOT NULL
             ORDER BY number DESC LIMIT $3",
        )
        .bind(account.0)
        .bind(since)
        .bind(i64::from(limit));
        let keys: Vec<Uuid> = self
            .in_time(async |connection| keys.fetch_all(connection).await)
            .await?;
        Ok(keys.into_iter().map(KeyId).collect())
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

pub async fn last_lines(
    connection: &mut PgConnection,
    accounts: &[AccountId],
) -> Result<Vec<LineRow>, sqlx::Error> {
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
