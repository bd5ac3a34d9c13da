//! The writing half of the claim path: bursts, and the guarded statement.

use std::borrow::Borrow;
use std::collections::HashSet;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::QueryScalar;
use sqlx::{Connection, FromRow, PgConnection, Postgres};
use uuid::Uuid;

use super::Store;
use crate::domain::claim::{Metadata, Subject};
use crate::domain::grant::{Entry, EntryKind, Line, Note};
use crate::domain::identity::AccountId;
use crate::domain::totals::encode_totals;
use crate::ledger::fence::{Burst, Fence};
use crate::ledger::record::{claimed_by, encode_flags, encode_kind, kind, of_grant, signed};
use crate::ledger::{Draft, LedgerError};

impl Store {
    /// See [`crate::ledger::Ledger::burst`]. One statement, so one transaction and one round trip.
    pub async fn burst(
        &self,
        drafts: &[impl Borrow<Draft>],
        fence: &Fence,
    ) -> Result<Burst, LedgerError> {
        let rows = Row::all(drafts);
        self.claims
            .run(async |connection| {
                match burst(&rows, fence, connection)
                    .await
                    .map_err(LedgerError::from)
                {
                    Ok(Some(horizon)) => Ok(Burst::Committed(Fence { horizon, ..*fence })),
                    Ok(None) => Ok(Burst::Behind),
                    // The connection is as good as before.
                    Err(LedgerError::Conflict) => Ok(Burst::Conflict),
                    Err(error) => Err(error),
                }
            })
            .await
    }

    /// See [`crate::ledger::Ledger::append`]. One statement, so one transaction.
    pub async fn append(
        &self,
        drafts: &[impl Borrow<Draft>],
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let rows = Row::all(drafts);
        let appended = self
            .in_time(async |connection| append(&rows, connection).await)
            .await?;
        Ok(appended.into_iter().map(AccountId).collect())
    }

    /// See [`crate::ledger::Ledger::append_all`].
    pub async fn append_all(&self, drafts: &[Draft]) -> Result<bool, LedgerError> {
        let rows = Row::all(drafts);
        self.in_time(async |connection| {
            let mut transaction = connection.begin().await?;
            let appended = append(&rows, &mut transaction).await?;
            let all = appended.len() == drafts.len();
            match all {
                true => transaction.commit().await?,
                false => transaction.rollback().await?,
            }
            Ok(all)
        })
        .await
    }
}

/// The columns of every entry that have other values than those of a plain grant, of $1 to $10;
/// beside them is the subject, of $11.
macro_rules! common_columns {
    () => {
        "account, number, id, at, policy, policy_version, units, key, claimed_by, totals"
    };
}

macro_rules! common_types {
    () => {
        "$1::uuid[], $2::bigint[], $3::uuid[], $4::timestamptz[], $5::integer[], $6::integer[],
            $7::bigint[], $8::uuid[], $9::integer[], $10::text[], $11::text[]"
    };
}

/// The other columns of an entry, of $12 to $15.
macro_rules! further_columns {
    () => {
        "kind, flags, lapses_at, metadata"
    };
}

/// The columns of its details, of $16 to $19.
macro_rules! detail_columns {
    () => {
        "of_grant, held_until, made_by, reason"
    };
}

macro_rules! further_types {
    () => {
        "$12::smallint[], $13::smallint[], $14::timestamptz[], $15::text[],
            $16::uuid[], $17::timestamptz[], $18::text[], $19::text[]"
    };
}

/// An `INSERT` of the details of rows of `input`.
macro_rules! insert_details {
    ($condition:expr) => {
        concat!(
            "INSERT INTO entry_details (account, number, id, kind, ",
            detail_columns!(),
            ")
        SELECT account, number, id, kind, ",
            detail_columns!(),
            " FROM input
        WHERE (of_grant IS NOT NULL OR held_until IS NOT NULL OR made_by IS NOT NULL)",
            $condition
        )
    };
}

/// Appends every entry if the server shows the fence, and returns the horizon of a server that
/// has the entries. The unique index on account and number is the guard: the line before each
/// account's first entry is known to be committed.
macro_rules! burst_statement {
    (
        $types:expr, $columns:expr, $further:expr, $details:expr,
        $start:literal, $file:literal, $horizon:literal
    ) => {
        concat!(
            "
    WITH fence AS MATERIALIZED (
        SELECT true AS shown WHERE pg_postmaster_start_time() = ",
            $start,
            " AND hashtextextended(pg_relation_filepath('entries'), 0) = ",
            $file,
            " AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint >= ",
            $horizon,
            "
    ), input AS (
        SELECT input.* FROM fence CROSS JOIN UNNEST(
            ",
            $types,
            "
        ) AS input (",
            $columns,
            ")
    ), opened AS (
        INSERT INTO accounts (id, policy, subject)
        SELECT account, policy, subject FROM input WHERE number = 1
    ), ",
            $details,
            "entered AS (
        INSERT INTO entries (",
            common_columns!(),
            ", ",
            further_columns!(),
            ")
        SELECT ",
            common_columns!(),
            ", ",
            $further,
            " FROM input
    )
    SELECT pg_current_xact_id()::text::bigint + 1 FROM fence"
        )
    };
}

/// Of plain grants. To name no other column takes a twentieth to a tenth off PostgreSQL's time.
const BURST_OF_PLAIN_GRANTS: &str = burst_statement!(
    common_types!(),
    concat!(common_columns!(), ", subject"),
    concat!(kind!(GRANT), ", 0, NULL, NULL"),
    "",
    "$12",
    "$13",
    "$14"
);
const BURST: &str = burst_statement!(
    concat!(common_types!(), ", ", further_types!()),
    concat!(
        common_columns!(),
        ", subject, ",
        further_columns!(),
        ", ",
        detail_columns!()
    ),
    further_columns!(),
    concat!("detailed AS (", insert_details!(""), "), "),
    "$20",
    "$21",
    "$22"
);

/// Appends each account's entries if its last entry is the assumed one in all that a decision
/// reads of it. Entries that meet another writer's are left out with the rest of their account's,
/// and so are those whose first one confirms or ends what is confirmed or ended. But a key or a
/// grant that is taken behind an account's first entry undoes the whole statement.
///
/// The first entry of an account decides: the unique index makes a concurrent writer of the
/// same number wait for this one or this one for it. With the first in place no other writer can
/// have the numbers after it, so the rest goes in with it. An account's entry 1 needs no look at
/// the entry before.
const GUARDED: &str = concat!(
    "
    WITH input AS (
        SELECT * FROM UNNEST(
            ",
    common_types!(),
    ", ",
    further_types!(),
    ", $20::boolean[], $21::text[], $22::timestamptz[], $23::integer[], $24::timestamptz[]
        ) AS input (",
    common_columns!(),
    ", subject, ",
    further_columns!(),
    ", ",
    detail_columns!(),
    ", is_first, assumed, assumed_at, assumed_version, assumed_lapses)
    ), guarded AS (
        SELECT input.*
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
            AND (input.of_grant IS NULL OR (
                SELECT id FROM entry_details AS taken
                WHERE taken.of_grant = input.of_grant
                    AND (taken.kind = ",
    kind!(CONFIRMATION),
    ") = (input.kind = ",
    kind!(CONFIRMATION),
    ") LIMIT 1
            ) IS NULL)
    ), firsts AS (
        INSERT INTO entries (",
    common_columns!(),
    ", ",
    further_columns!(),
    ")
        SELECT ",
    common_columns!(),
    ", ",
    further_columns!(),
    " FROM guarded
        ON CONFLICT DO NOTHING
        RETURNING account
    ), rest AS (
        INSERT INTO entries (",
    common_columns!(),
    ", ",
    further_columns!(),
    ")
        SELECT ",
    common_columns!(),
    ", ",
    further_columns!(),
    " FROM input
        WHERE NOT is_first AND account IN (SELECT account FROM firsts)
    ), detailed AS (
        ",
    insert_details!(" AND account IN (SELECT account FROM firsts)"),
    "
    ), opened AS (
        INSERT INTO accounts (id, policy, subject)
        SELECT account, policy, subject FROM input
        WHERE number = 1 AND account IN (SELECT account FROM firsts)
    )
    SELECT account FROM firsts"
);

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

    /// Whether the common columns tell all of it.
    fn is_plain_grant(&self) -> bool {
        let entry = self.entry;
        entry.kind == (EntryKind::Grant { held_until: None })
            && entry.provisional.is_none()
            && !entry.would_deny
            && entry.line.lapses_at.is_none()
            && entry.metadata.is_none()
            && entry.note.is_none()
    }

    fn flags(&self) -> i16 {
        encode_flags(self.entry.provisional, self.entry.would_deny)
    }
}

type Statement<'q, T> = QueryScalar<'q, Postgres, T, PgArguments>;

fn column<'r, 'a, T>(rows: &'r [Row<'a>], of: impl Fn(&'r Row<'a>) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// A statement with the values of $1 to $11.
fn with_common<'q, T>(statement: &'static str, rows: &'q [Row<'_>]) -> Statement<'q, T>
where
    (T,): for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_scalar(statement)
        .bind(column(rows, |row| row.draft.account.0))
        .bind(column(rows, |row| signed(row.entry.line.number)))
        .bind(column(rows, |row| row.entry.id.0))
        .bind(column(rows, |row| row.entry.line.at))
        .bind(column(rows, |row| row.draft.policy.0))
        .bind(column(rows, |row| version(&row.entry.line)))
        .bind(column(rows, |row| signed(row.entry.units.get())))
        .bind(column(rows, |row| row.entry.key.map(|key| key.0)))
        .bind(column(rows, |row| claimed_by(row.entry)))
        .bind(column(rows, |row| encode_totals(&row.entry.line.totals)))
        .bind(column(rows, Row::subject))
}

/// The statement with the values of $12 to $19 too.
fn with_further<'q, T>(statement: Statement<'q, T>, rows: &'q [Row<'_>]) -> Statement<'q, T> {
    statement
        .bind(column(rows, |row| encode_kind(row.entry.kind)))
        .bind(column(rows, Row::flags))
        .bind(column(rows, |row| row.entry.line.lapses_at))
        .bind(column(rows, |row| {
            row.entry.metadata.as_ref().map(Metadata::as_str)
        }))
        .bind(column(rows, |row| of_grant(row.entry.kind).map(|of| of.0)))
        .bind(column(rows, |row| row.entry.held_until()))
        .bind(column(rows, |row| row.note().map(|note| &*note.by)))
        .bind(column(rows, |row| {
            row.note().and_then(|note| note.reason.as_deref())
        }))
}

/// Runs a burst. `None` where the server does not show the fence.
async fn burst(
    rows: &[Row<'_>],
    fence: &Fence,
    connection: &mut PgConnection,
) -> Result<Option<i64>, sqlx::Error> {
    let statement = match rows.iter().all(Row::is_plain_grant) {
        true => with_common(BURST_OF_PLAIN_GRANTS, rows),
        false => with_further(with_common(BURST, rows), rows),
    };
    statement
        .bind(fence.place.started_at)
        .bind(fence.place.file)
        .bind(fence.horizon)
        .fetch_optional(connection)
        .await
}

/// Runs [`GUARDED`]. Returns the accounts whose entries went in.
async fn append(rows: &[Row<'_>], connection: &mut PgConnection) -> Result<Vec<Uuid>, sqlx::Error> {
    with_further(with_common(GUARDED, rows), rows)
        .bind(column(rows, |row| row.is_first))
        .bind(column(rows, |row| {
            row.assumed().map(|line| encode_totals(&line.totals))
        }))
        .bind(column(rows, |row| row.assumed().map(|line| line.at)))
        .bind(column(rows, |row| row.assumed().map(version)))
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
