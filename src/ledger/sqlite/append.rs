//! The writing half of the claims' way. SQLite has one writer: what a write transaction reads
//! cannot change before its commit.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Row as _, Sqlite, SqliteConnection};
use uuid::Uuid;

use super::Store;
use crate::batched::{Batched, ROWS_MOST, batched, eight, sixty_four};
use crate::components::leave_out;
use crate::encoding::{claimed_by, encode_flags, encode_kind, has_details, signed};
use crate::fence::{Burst, Fence};
use crate::query::Session;
use crate::shared_use::{self, shares};
use crate::{Draft, LedgerError, new_blinds};
use domain::grant::Entry;
use domain::identity::AccountId;
use domain::line_text::encode_state;
use host::faults::reach;

/// How many values an account's row has.
const ACCOUNT_COLUMNS: usize = 4;

impl Store {
    pub async fn burst(&self, drafts: &[&Draft], fence: &Fence) -> Result<Burst, LedgerError> {
        // 1. The fence must be of this process.
        if !fence.place.is_same_server(&self.place) {
            return Ok(Burst::Behind);
        }
        let rows = rows(drafts);
        let burst = async |connection: &mut SqliteConnection| {
            if let Some(refused_at) = self.refused_at(drafts) {
                return Ok(Burst::Untimely(refused_at));
            }
            // 2. Insert everything, if the file shows the fence.
            match burst(connection, &rows, fence)
                .await
                .map_err(LedgerError::from)
            {
                // If the newest entry is above the horizon and no account got another id, the burst
                // was written. Otherwise nothing was.
                Ok((newest, erasures))
                    if newest > fence.horizon && erasures == fence.place.erasures =>
                {
                    Ok(Burst::Committed(self.fence(newest, fence.place.erasures)))
                }
                Ok(_) => Ok(Burst::Behind),
                // 3. Something is taken: an account that was to be new, a number or a key.
                Err(LedgerError::Conflict) => {
                    sqlx::query("ROLLBACK").execute(&mut *connection).await?;
                    let existing = existing(connection, &rows).await?;
                    Ok(if existing.is_empty() {
                        Burst::Conflict
                    } else {
                        Burst::Exist(existing)
                    })
                }
                // The connection is dropped, and its transaction ends with it.
                Err(error) => Err(error),
            }
        };
        self.writer.run(burst).await
    }

    /// The inner error is the time of this process, if an instant is too far from it; then nothing
    /// was written.
    pub async fn append(
        &self,
        drafts: &[&Draft],
    ) -> Result<Result<HashSet<AccountId>, DateTime<Utc>>, LedgerError> {
        self.write(async |mut transaction| {
            if let Some(refused_at) = self.refused_at(drafts) {
                transaction.rollback().await?;
                return Ok(Err(refused_at));
            }
            let standing = append(&mut transaction, drafts).await?;
            reach("sqlite.inserted");
            transaction.commit().await?;
            Ok(Ok(standing))
        })
        .await
    }

    /// The time of this process, if an instant of the drafts is too far from it. SQLite has no clock
    /// of its own.
    fn refused_at(&self, drafts: &[&Draft]) -> Option<DateTime<Utc>> {
        let bounds = self.bounds.as_ref()?;
        let now = bounds.clock.now();
        let span = bounds.span(drafts);
        let is_refused =
            span.from.is_some_and(|from| now < from) || span.until.is_some_and(|until| now > until);
        is_refused.then_some(now)
    }
}

/// An entry to append.
type Row<'a> = (&'a Draft, &'a Entry);

fn rows<'a>(drafts: &[&'a Draft]) -> Vec<Row<'a>> {
    let rows = |&draft: &&'a Draft| draft.entries.iter().map(move |entry| (draft, entry));
    drafts.iter().flat_map(rows).collect()
}

/// Appends the drafts whose assumed last line is the last line, and for which shared limits have the room that they
/// need; of a component all or none. Nobody can write between these checks and the entries: all are in the one write
/// transaction.
async fn append(
    connection: &mut SqliteConnection,
    drafts: &[&Draft],
) -> Result<HashSet<AccountId>, LedgerError> {
    let refused = refused(connection, drafts).await?;
    let mut fitting = drafts.to_vec();
    leave_out(&mut fitting, |draft| refused.contains(&draft.account.0));
    if shares(&fitting) {
        let session = &mut Session::Sqlite(connection);
        let used = shared_use::lock(session, &fitting).await?;
        let (with_room, used) = shared_use::fitting(&fitting, used);
        shared_use::change(session, &used).await?;
        fitting = with_room;
    }
    insert(connection, &rows(&fitting), None).await?;
    Ok(fitting.iter().map(|draft| draft.account).collect())
}

/// The accounts that the rows would open and that exist already.
async fn existing(
    connection: &mut SqliteConnection,
    rows: &[Row<'_>],
) -> Result<Vec<AccountId>, sqlx::Error> {
    let opened = rows.iter().filter(|(_, entry)| entry.line.number == 1);
    let opened: Vec<Uuid> = opened.map(|(draft, _)| draft.account.0).collect();
    let mut existing = Vec::new();
    for opened in opened.chunks(ROWS_MOST) {
        let query = sqlx::query(EXISTING.of(opened.len()));
        let query = opened
            .iter()
            .fold(query, |query, account| query.bind(account));
        for row in query.fetch_all(&mut *connection).await? {
            existing.push(AccountId(row.try_get(0)?));
        }
    }
    Ok(existing)
}

const EXISTING: Batched = batched!("SELECT id FROM accounts WHERE id IN (", "?", ")");

/// Appends every entry if the file shows the fence. Returns the newest `xact`, and how often
/// accounts have got other ids. A common burst is one query, which the connection's thread runs
/// from `BEGIN` to `COMMIT`.
async fn burst(
    connection: &mut SqliteConnection,
    rows: &[Row<'_>],
    fence: &Fence,
) -> Result<(i64, i64), sqlx::Error> {
    let is_one_query = rows.len() <= ROWS_MOST && !rows.iter().any(|(_, entry)| has_details(entry));
    let ending = if is_one_query {
        bind_rows(sqlx::query(BURST.of(rows.len())), rows, Some(fence))
    } else {
        sqlx::query(BEGIN).execute(&mut *connection).await?;
        insert(connection, rows, Some(fence)).await?;
        sqlx::query(END)
    };
    let newest = ending.fetch_all(connection).await?;
    let newest = newest.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok((newest.try_get(0)?, newest.try_get(1)?))
}

/// Inserts entries, and the rows beside them, if the file shows the fence.
async fn insert(
    connection: &mut SqliteConnection,
    rows: &[Row<'_>],
    fence: Option<&Fence>,
) -> Result<(), sqlx::Error> {
    let entries = rows.iter().map(|(_, entry)| *entry);
    let detailed: Vec<&Entry> = entries.filter(|entry| has_details(entry)).collect();
    for entries in detailed.chunks(ROWS_MOST) {
        let query = bind_fence(sqlx::query(INSERT_DETAILS.of(entries.len())), fence);
        let query = entries.iter().fold(query, bind_details);
        query.execute(&mut *connection).await?;
    }
    for rows in rows.chunks(ROWS_MOST) {
        let query = sqlx::query(INSERT_ROWS.of(rows.len()));
        let query = bind_rows(query, rows, fence);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The accounts of the drafts that do not fit.
async fn refused(
    connection: &mut SqliteConnection,
    drafts: &[&Draft],
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let mut refused = HashSet::new();
    for rows in drafts.chunks(ROWS_MOST) {
        let query = sqlx::query(REFUSED.of(rows.len()));
        let found = rows
            .iter()
            .fold(query, bind_assumption)
            .fetch_all(&mut *connection);
        for row in found.await? {
            refused.insert(row.try_get(0)?);
        }
    }
    Ok(refused)
}

/// The accounts whose last entry is not the assumed one, in everything that a decision reads of it;
/// or whose next entry takes a key, or confirms or ends a grant, that another entry has taken.
const REFUSED: Batched = batched!(
    "WITH draft (account, number, totals, at, policy_version, lapses_at, key, of_grant, kind)
     AS (VALUES ",
    "(?,?,?,?,?,?,?,?,?)",
    concat!(
        ") SELECT draft.account
     FROM draft LEFT JOIN entries AS last ON last.rowid = (
         SELECT rowid FROM entries WHERE account = draft.account ORDER BY number DESC LIMIT 1
     )
     WHERE draft.account IS NOT NULL AND (
         COALESCE(last.number, 0) <> draft.number OR last.totals IS NOT draft.totals
         OR last.at IS NOT draft.at OR last.policy_version IS NOT draft.policy_version
         OR last.lapses_at IS NOT draft.lapses_at
         OR EXISTS (SELECT 1 FROM entries WHERE key = draft.key)
         OR EXISTS (
             SELECT 1 FROM entry_details AS taken
             JOIN entry_kinds AS of_taken ON of_taken.kind = taken.kind
             JOIN entry_kinds AS of_draft ON of_draft.kind = draft.kind
             WHERE taken.of_grant = draft.of_grant AND of_taken.ends_hold AND of_draft.ends_hold
                 AND (of_taken.closes_as IS NULL) = (of_draft.closes_as IS NULL)
         )
     )"
    )
);

/// An `INSERT` of rows under a fence: the newest entry has at least this `xact`, and accounts have
/// got other ids exactly this often. A table without entries has the `xact` 0. Without a fence both
/// values are NULL.
macro_rules! insert {
    ($into:literal, $times:ident, $row:literal) => {
        // OR FAIL: any failure rolls the transaction back anyway, so SQLite need not save each page
        // before the statement.
        concat!(
            "WITH fence (is_shown) AS (
         SELECT COALESCE(COALESCE(MAX(xact), 0) >= ?, true)
             AND COALESCE((SELECT erasures FROM ledger) = ?, true) FROM entries
     )
     INSERT OR FAIL INTO ",
            $into,
            " SELECT * FROM (VALUES ",
            $times!($row),
            ") WHERE column1 IS NOT NULL AND (SELECT is_shown FROM fence)"
        )
    };
}

/// Inserts the accounts that rows open, and then the entries.
macro_rules! insert_rows {
    ($times:ident) => {
        concat!(
            insert!("accounts (id, policy, subject, blind)", $times, "(?,?,?,?)"),
            "; ",
            insert!(
                "entries (account, number, id, at, kind, flags, policy, policy_version, units, key,
                    claimed_by, totals, lapses_at, metadata)",
                $times,
                "(?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
            )
        )
    };
}

macro_rules! insert_details {
    ($times:ident) => {
        insert!(
            "entry_details (account, number, id, kind, of_grant, held_until, made_by, reason,
                per, bundle)",
            $times,
            "(?,?,?,?,?,?,?,?,?,?)"
        )
    };
}

macro_rules! begin {
    () => {
        "BEGIN IMMEDIATE"
    };
}

macro_rules! end {
    () => {
        "SELECT COALESCE(MAX(xact), 0), (SELECT erasures FROM ledger) FROM entries; COMMIT"
    };
}

macro_rules! burst {
    ($times:ident) => {
        concat!(begin!(), "; ", insert_rows!($times), "; ", end!())
    };
}

const INSERT_ROWS: Batched = batched!(insert_rows);
const INSERT_DETAILS: Batched = batched!(insert_details);
const BURST: Batched = batched!(burst);
const BEGIN: &str = begin!();
const END: &str = end!();

type Statement<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

/// Binds what a draft assumes of the last line, and the key, the grant and the kind of its first
/// entry.
fn bind_assumption<'q>(query: Statement<'q>, draft: &&Draft) -> Statement<'q> {
    let after = draft.after.as_ref();
    let first = draft.entries.first();
    query
        .bind(draft.account.0)
        .bind(after.map_or(0, |line| signed(line.number)))
        .bind(after.map(encode_state))
        .bind(after.map(|line| line.at.timestamp_micros()))
        .bind(after.map(|line| line.policy_version))
        .bind(after.and_then(|line| Some(line.lapses_at?.timestamp_micros())))
        .bind(first.and_then(|entry| Some(entry.key?.0)))
        .bind(first.and_then(|entry| Some(entry.kind.of()?.0)))
        .bind(first.map(|entry| encode_kind(entry.kind)))
}

fn bind_fence<'q>(query: Statement<'q>, fence: Option<&Fence>) -> Statement<'q> {
    query
        .bind(fence.map(|fence| fence.horizon))
        .bind(fence.map(|fence| fence.place.erasures))
}

/// Binds the values of [`INSERT_ROWS`]. Unbound values at the end are NULL.
fn bind_rows<'q>(query: Statement<'q>, rows: &[Row<'_>], fence: Option<&Fence>) -> Statement<'q> {
    let opened = rows.iter().filter(|(_, entry)| entry.line.number == 1);
    let blinds = new_blinds(opened.clone().count());
    let unused = Batched::width(rows.len()) - blinds.len();
    let opened = opened.zip(blinds);
    let query = opened.fold(bind_fence(query, fence), |query, ((draft, _), blind)| {
        bind_account(query, draft, blind)
    });
    let query = (0..unused * ACCOUNT_COLUMNS).fold(query, |query, _| query.bind(None::<i64>));
    rows.iter().fold(bind_fence(query, fence), bind_entry)
}

fn bind_entry<'q>(query: Statement<'q>, (draft, entry): &Row<'_>) -> Statement<'q> {
    query
        .bind(draft.account.0)
        .bind(signed(entry.line.number))
        .bind(entry.id.0)
        .bind(entry.line.at.timestamp_micros())
        .bind(encode_kind(entry.kind))
        .bind(encode_flags(entry))
        .bind(draft.policy.0)
        .bind(entry.line.policy_version)
        .bind(signed(entry.units.get()))
        .bind(entry.key.map(|key| key.0))
        .bind(claimed_by(entry))
        .bind(encode_state(&entry.line))
        .bind(entry.line.lapses_at.map(|at| at.timestamp_micros()))
        .bind(entry.metadata.as_ref().map(|json| json.as_str().to_owned()))
}

fn bind_details<'q>(query: Statement<'q>, entry: &&Entry) -> Statement<'q> {
    let note = entry.note.as_ref();
    query
        .bind(entry.account.0)
        .bind(signed(entry.line.number))
        .bind(entry.id.0)
        .bind(encode_kind(entry.kind))
        .bind(entry.kind.of().map(|of| of.0))
        .bind(entry.held_until().map(|until| until.timestamp_micros()))
        .bind(note.map(|note| note.by.to_string()))
        .bind(note.and_then(|note| note.reason.clone()))
        .bind(entry.kind.per().map(|per| per.to_string()))
        .bind(entry.bundle.map(|bundle| bundle.0))
}

fn bind_account<'q>(query: Statement<'q>, draft: &Draft, blind: Uuid) -> Statement<'q> {
    let subject = draft.subject.as_ref();
    query
        .bind(draft.account.0)
        .bind(draft.policy.0)
        .bind(subject.map(|subject| subject.as_str().to_owned()))
        .bind(blind)
}
