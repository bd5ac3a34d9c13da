//! The claim path: look, decide elsewhere, append.

use std::borrow::Borrow;
use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::Store;
use crate::domain::claim::{Metadata, Subject, Units};
use crate::domain::correction::Hold;
use crate::domain::grant::{Entry, Line, Note};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::totals::{decode_totals, encode_totals};
use crate::domain::window::Window;
use crate::ledger::record::{
    decode_kind, decode_note, decode_provisional, encode_kind, encode_provisional, entry_columns,
    of_grant, signed, unsigned,
};
use crate::ledger::row::row;
use crate::ledger::{Draft, LedgerError, Look, Seen};

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
    pub struct EntryRow {
        ..line: LineRow,
        id: Uuid,
        kind: i16,
        units: i64,
        key: Option<Uuid>,
        metadata: Option<String>,
        provisional: Option<i16>,
        of_grant: Option<Uuid>,
        held_until: Option<DateTime<Utc>>,
        would_deny: Option<bool>,
        made_by: Option<String>,
        reason: Option<String>,
    }
}

impl EntryRow {
    pub fn decode(self) -> Result<Entry, LedgerError> {
        let units = Units::new(self.units.into())
            .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
        let held_until = self.held_until;
        Ok(Entry {
            account: AccountId(self.line.account),
            id: EntryId(self.id),
            kind: decode_kind(self.kind, self.of_grant.map(EntryId), held_until)?,
            units,
            key: self.key.map(KeyId),
            metadata: self.metadata.map(Metadata::from_stored),
            provisional: self.provisional.map(decode_provisional).transpose()?,
            would_deny: self.would_deny.unwrap_or_default(),
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
            "SELECT id, units, held_until FROM entries AS hold
             WHERE account = $1 AND number <= $2 AND held_until >= $3 AND ",
            $condition,
            " AND NOT EXISTS (
                 SELECT 1 FROM entries WHERE of_grant = hold.id AND number <= $2
             )
             ORDER BY held_until, id LIMIT $5"
        )
    };
}

const LAPSED_HOLDS: &str = open_holds_where!("held_until <= $4");
const NEXT_HOLDS: &str = open_holds_where!("held_until > $4");

impl Store {
    /// See [`crate::ledger::Ledger::look`].
    pub async fn look(&self, look: &Look) -> Result<Seen, LedgerError> {
        let (lines, entries) = self
            .in_time(async |connection| {
                let lines = match look.accounts.is_empty() {
                    true => Vec::new(),
                    false => last_lines(connection, &look.accounts).await?,
                };
                let entries = match look.names_no_entries() {
                    true => Vec::new(),
                    false => entries(connection, look).await?,
                };
                Ok((lines, entries))
            })
            .await?;
        let mut seen = Seen::default();
        for row in lines {
            seen.lines.insert(AccountId(row.account), row.decode()?);
        }
        for row in entries {
            seen.entries.push(row.decode()?);
        }
        Ok(seen)
    }

    /// See [`crate::ledger::Ledger::sums`]: one of them. The running sum, raised by what it would
    /// have fallen below zero.
    pub async fn sum(
        &self,
        account: AccountId,
        number: u64,
        window: Window,
    ) -> Result<u64, LedgerError> {
        let sum = sqlx::query_scalar(
            "SELECT COALESCE(SUM(added) - LEAST(MIN(so_far), 0), 0)::bigint FROM (
                 SELECT added, SUM(added) OVER (ORDER BY number) AS so_far FROM (
                     SELECT number, CASE WHEN kind IN (1, 5) THEN units ELSE -units END AS added
                     FROM entries WHERE account = $1 AND number <= $2 AND kind <> 2
                        AND COALESCE(of_grant, id) >= $3 AND COALESCE(of_grant, id) < $4
                 ) AS steps
             ) AS sums",
        )
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

    /// See [`crate::ledger::Ledger::append`]. One statement, so one transaction.
    pub async fn append(
        &self,
        drafts: &[impl Borrow<Draft>],
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let rows = Row::all(drafts);
        let appended = self
            .in_time(
                async |connection| match append(APPEND, &rows, &mut *connection).await {
                    Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                        append(APPEND_BESIDE_OTHERS, &rows, connection).await
                    }
                    appended => appended,
                },
            )
            .await?;
        Ok(appended.into_iter().map(AccountId).collect())
    }

    /// See [`crate::ledger::Ledger::append_all`].
    pub async fn append_all(&self, drafts: &[Draft]) -> Result<bool, LedgerError> {
        let rows = Row::all(drafts);
        self.in_time(async |connection| {
            let mut transaction = connection.begin().await?;
            let appended = append(APPEND_BESIDE_OTHERS, &rows, &mut transaction).await?;
            let all = appended.len() == drafts.len();
            match all {
                true => transaction.commit().await?,
                false => transaction.rollback().await?,
            }
            Ok(all)
        })
        .await
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

async fn entries(connection: &mut PgConnection, look: &Look) -> Result<Vec<EntryRow>, sqlx::Error> {
    let keys: Vec<Uuid> = look.keys.iter().map(|key| key.0).collect();
    let ids: Vec<Uuid> = look.entries.iter().map(|entry| entry.0).collect();
    let of: Vec<Uuid> = look.followers_of.iter().map(|grant| grant.0).collect();
    if ids.is_empty() && of.is_empty() {
        return sqlx::query_as(concat!(
            "SELECT ",
            entry_columns!(),
            " FROM entries AS e WHERE key = ANY($1)"
        ))
        .bind(keys)
        .fetch_all(connection)
        .await;
    }
    sqlx::query_as(concat!(
        "SELECT ",
        entry_columns!(),
        " FROM entries AS e WHERE key = ANY($1) OR id = ANY($2) OR of_grant = ANY($3)"
    ))
    .bind(keys)
    .bind(ids)
    .bind(of)
    .fetch_all(connection)
    .await
}

/// Appends each account's entries if its last entry is still the assumed one, in all that a
/// decision reads of it: a counter may have told it wrong in any part.
///
/// The first entry of an account decides: the unique index makes a concurrent writer of the
/// same number wait for this one or this one for it. With the first in place no other writer can
/// have the numbers after it, so the rest goes in with it. An account's entry 1 needs no look at
/// the entry before.
macro_rules! append_statement {
    ($on_conflict:literal) => {
        concat!(
            "
    WITH input AS (
        SELECT * FROM UNNEST(
            $1::uuid[], $2::bigint[], $3::uuid[], $4::timestamptz[], $5::smallint[],
            $6::integer[], $7::integer[], $8::bigint[], $9::uuid[], $10::text[],
            $11::text[], $12::smallint[], $13::boolean[], $14::text[], $15::timestamptz[],
            $16::integer[], $17::text[], $18::uuid[], $19::timestamptz[], $20::timestamptz[],
            $21::boolean[], $22::text[], $23::text[], $24::timestamptz[]
        ) AS input (account, number, id, at, kind, policy, policy_version, units, key, totals,
            metadata, provisional, is_first, assumed, assumed_at, assumed_version, subject,
            of_grant, held_until, lapses_at, would_deny, made_by, reason, assumed_lapses)
    ), firsts AS (
        INSERT INTO entries (account, number, id, at, kind, policy, policy_version, units, key,
            totals, metadata, provisional, of_grant, held_until, lapses_at, would_deny, made_by,
            reason)
        SELECT account, input.number, id, input.at, kind, policy, input.policy_version, units,
            key, input.totals, metadata, provisional, of_grant, held_until, input.lapses_at,
            would_deny, made_by, reason
        FROM input LEFT JOIN LATERAL (
            SELECT number, at, policy_version, lapses_at, totals FROM entries
            WHERE entries.account = input.account AND input.number > 1
            ORDER BY number DESC LIMIT 1
        ) AS last ON true
        WHERE is_first AND COALESCE(last.number, 0) = input.number - 1
            AND last.totals IS NOT DISTINCT FROM input.assumed
            AND last.at IS NOT DISTINCT FROM input.assumed_at
            AND last.policy_version IS NOT DISTINCT FROM input.assumed_version
            AND last.lapses_at IS NOT DISTINCT FROM input.assumed_lapses
        ",
            $on_conflict,
            "
        RETURNING account
    ), rest AS (
        INSERT INTO entries (account, number, id, at, kind, policy, policy_version, units, key,
            totals, metadata, provisional, of_grant, held_until, lapses_at, would_deny, made_by,
            reason)
        SELECT account, number, id, at, kind, policy, policy_version, units, key, totals,
            metadata, provisional, of_grant, held_until, lapses_at, would_deny, made_by, reason
        FROM input WHERE NOT is_first AND account IN (SELECT account FROM firsts)
    ), opened AS (
        INSERT INTO accounts (id, policy, subject)
        SELECT account, policy, subject
        FROM input WHERE number = 1 AND account IN (SELECT account FROM firsts)
    )
    SELECT account FROM firsts"
        )
    };
}

/// Whoever meets another writer fails, and all of the statement with it.
const APPEND: &str = append_statement!("");

/// Whoever meets another writer inserts nothing, and the others go in. Only a key that is taken
/// can break an account's later entries, and that undoes the whole statement. The check costs
/// each entry a sixth of its time, so this is for those who met somebody.
const APPEND_BESIDE_OTHERS: &str = append_statement!("ON CONFLICT DO NOTHING");

/// An entry of a draft, as a row to insert.
struct Row<'a> {
    draft: &'a Draft,
    entry: &'a Entry,
    is_first: bool,
}

impl<'a> Row<'a> {
    /// Sorted by account, so that two batches cannot deadlock.
    fn all(drafts: &'a [impl Borrow<Draft>]) -> Vec<Self> {
        let mut sorted: Vec<&Draft> = drafts.iter().map(Borrow::borrow).collect();
        sorted.sort_unstable_by_key(|draft| draft.account);
        let rows = |draft: &'a Draft| {
            let entries = draft.entries.iter().enumerate();
            entries.map(move |(index, entry)| Row {
                draft,
                entry,
                is_first: index == 0,
            })
        };
        sorted.into_iter().flat_map(rows).collect()
    }

    /// The line that must stand before it: the others of its draft follow the first.
    fn assumed(&self) -> Option<&'a Line> {
        self.draft.after.as_ref().filter(|_| self.is_first)
    }

    /// What opens its account, if it does.
    fn subject(&self) -> Option<&'a str> {
        let opens = self.entry.line.number == 1;
        let subject = self.draft.subject.as_ref().filter(|_| opens);
        subject.map(Subject::as_str)
    }

    fn note(&self) -> Option<&'a Note> {
        self.entry.note.as_ref()
    }
}

/// Runs [`APPEND`] or [`APPEND_BESIDE_OTHERS`]. Returns the accounts whose entries went in.
async fn append(
    statement: &'static str,
    rows: &[Row<'_>],
    connection: &mut PgConnection,
) -> Result<Vec<Uuid>, sqlx::Error> {
    fn column<'r, 'a, T>(rows: &'r [Row<'a>], of: impl Fn(&'r Row<'a>) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    fn totals(line: &Line) -> String {
        encode_totals(&line.totals)
    }
    sqlx::query_scalar(statement)
        .bind(column(rows, |row| row.draft.account.0))
        .bind(column(rows, |row| signed(row.entry.line.number)))
        .bind(column(rows, |row| row.entry.id.0))
        .bind(column(rows, |row| row.entry.line.at))
        .bind(column(rows, |row| encode_kind(row.entry.kind)))
        .bind(column(rows, |row| row.draft.policy.0))
        .bind(column(rows, |row| version(&row.entry.line)))
        .bind(column(rows, |row| signed(row.entry.units.get())))
        .bind(column(rows, |row| row.entry.key.map(|key| key.0)))
        .bind(column(rows, |row| totals(&row.entry.line)))
        .bind(column(rows, |row| {
            row.entry.metadata.as_ref().map(Metadata::as_str)
        }))
        .bind(column(rows, |row| {
            row.entry.provisional.map(encode_provisional)
        }))
        .bind(column(rows, |row| row.is_first))
        .bind(column(rows, |row| row.assumed().map(totals)))
        .bind(column(rows, |row| row.assumed().map(|line| line.at)))
        .bind(column(rows, |row| row.assumed().map(version)))
        .bind(column(rows, Row::subject))
        .bind(column(rows, |row| of_grant(row.entry.kind).map(|of| of.0)))
        .bind(column(rows, |row| row.entry.held_until()))
        .bind(column(rows, |row| row.entry.line.lapses_at))
        .bind(column(rows, |row| row.entry.would_deny.then_some(true)))
        .bind(column(rows, |row| row.note().map(|note| &*note.by)))
        .bind(column(rows, |row| {
            row.note().and_then(|note| note.reason.as_deref())
        }))
        .bind(column(rows, |row| {
            row.assumed().and_then(|line| line.lapses_at)
        }))
        .fetch_all(connection)
        .await
}

/// The version of the policy that a line was decided under, as a column holds it.
fn version(line: &Line) -> i32 {
    line.policy_version.cast_signed()
}
