//! The claim path: look, decide elsewhere, append.

use std::borrow::Borrow;
use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{FromRow, Row, Sqlite, SqliteConnection};
use uuid::Uuid;

use super::{Store, decode_instant};
use crate::domain::claim::{Metadata, Units};
use crate::domain::correction::Hold;
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::totals::{decode_totals, encode_totals};
use crate::domain::window::Window;
use crate::faults::reach;
use crate::ledger::record::{
    decode_kind, decode_note, decode_provisional, encode_kind, encode_provisional, entry_columns,
    of_grant, signed, unsigned,
};
use crate::ledger::row::row;
use crate::ledger::{Draft, LedgerError, Look, Seen};

row! {
    pub struct LineRow {
        pub account: Uuid,
        number: i64,
        at: i64,
        policy_version: i64,
        lapses_at: Option<i64>,
        totals: String,
    }
}

impl LineRow {
    pub fn decode(self) -> Result<Line, LedgerError> {
        Ok(Line {
            number: unsigned(self.number)?,
            at: decode_instant(self.at)?,
            policy_version: unsigned(self.policy_version)?,
            lapses_at: self.lapses_at.map(decode_instant).transpose()?,
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
        held_until: Option<i64>,
        would_deny: Option<bool>,
        made_by: Option<String>,
        reason: Option<String>,
    }
}

impl EntryRow {
    pub fn decode(self) -> Result<Entry, LedgerError> {
        let units = Units::new(self.units.into())
            .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
        let held_until = self.held_until.map(decode_instant).transpose()?;
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
        held_until: i64,
    }
}

impl HoldRow {
    fn decode(self) -> Result<Hold, LedgerError> {
        Ok(Hold {
            grant: EntryId(self.id),
            units: Units::new(self.units.into())
                .map_err(|error| LedgerError::Corrupt(error.to_string()))?,
            until: decode_instant(self.held_until)?,
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
    /// See [`crate::ledger::Ledger::look`]. On the writer's connection, whose cache of pages each
    /// commit keeps up to date; those of the readers it empties.
    pub async fn look(&self, look: &Look) -> Result<Seen, LedgerError> {
        let (lines, entries) = self
            .writer
            .run(async |connection| {
                let lines = last_lines(connection, &look.accounts).await?;
                let entries = entries(connection, look).await?;
                Ok::<_, sqlx::Error>((lines, entries))
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
        let sum: i64 = sqlx::query_scalar(
            "SELECT COALESCE(SUM(added) - MIN(MIN(so_far), 0), 0) FROM (
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
        .bind(EntryId::first_at(window.end).0)
        .fetch_one(&self.own)
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
                .bind(from.timestamp_micros())
                .bind(at.timestamp_micros())
                .bind(i64::from(most))
        };
        let (lapsed, next) = (query(LAPSED_HOLDS, most[0]), query(NEXT_HOLDS, most[1]));
        let mut rows: Vec<HoldRow> = lapsed.fetch_all(&self.own).await?;
        rows.extend(next.fetch_all(&self.own).await?);
        rows.into_iter().map(HoldRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::append`].
    pub async fn append(
        &self,
        drafts: &[impl Borrow<Draft>],
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let drafts: Vec<&Draft> = drafts.iter().map(Borrow::borrow).collect();
        self.write(async |mut transaction| {
            let standing = append(&mut transaction, &drafts).await?;
            reach("sqlite.inserted");
            transaction.commit().await?;
            Ok(standing)
        })
        .await
    }

    /// See [`crate::ledger::Ledger::append_all`].
    pub async fn append_all(&self, drafts: &[Draft]) -> Result<bool, LedgerError> {
        let drafts: Vec<&Draft> = drafts.iter().collect();
        self.write(async |mut transaction| {
            let all = append(&mut transaction, &drafts).await?.len() == drafts.len();
            match all {
                true => transaction.commit().await?,
                false => transaction.rollback().await?,
            }
            Ok(all)
        })
        .await
    }

    /// See [`crate::ledger::Ledger::keys_of`].
    pub async fn keys_of(
        &self,
        account: AccountId,
        since: DateTime<Utc>,
        limit: u32,
    ) -> Result<Vec<KeyId>, LedgerError> {
        let keys: Vec<Uuid> = sqlx::query_scalar(
            "SELECT key FROM entries WHERE account = $1 AND at >= $2 AND key IS NOT NULL
             ORDER BY number DESC LIMIT $3",
        )
        .bind(account.0)
        .bind(since.timestamp_micros())
        .bind(limit)
        .fetch_all(&self.own)
        .await?;
        Ok(keys.into_iter().map(KeyId).collect())
    }
}

/// Appends the drafts whose last line is the assumed one. Inside the one write transaction nobody
/// else can come between the guard and the entries.
async fn append(
    connection: &mut SqliteConnection,
    drafts: &[&Draft],
) -> Result<HashSet<AccountId>, LedgerError> {
    let refused = refused(connection, drafts).await?;
    let fitting = drafts
        .iter()
        .filter(|draft| !refused.contains(&draft.account.0));
    let standing = fitting.clone().map(|draft| draft.account).collect();
    let entries: Vec<(&Draft, &Entry)> = fitting
        .flat_map(|draft| draft.entries.iter().map(|entry| (*draft, entry)))
        .collect();
    insert(connection, &INSERT_ENTRIES, &entries, bind_entry).await?;
    let opened: Vec<&Draft> = entries
        .iter()
        .filter(|(_, entry)| entry.line.number == 1)
        .map(|(draft, _)| *draft)
        .collect();
    insert(connection, &INSERT_ACCOUNTS, &opened, bind_account).await?;
    Ok(standing)
}

async fn insert<Row>(
    connection: &mut SqliteConnection,
    statement: &Batched,
    rows: &[Row],
    bind: for<'q> fn(Statement<'q>, &Row) -> Statement<'q>,
) -> Result<(), sqlx::Error> {
    for rows in rows.chunks(ROWS_MOST) {
        let query = sqlx::query(statement.of(rows.len()));
        rows.iter()
            .fold(query, bind)
            .execute(&mut *connection)
            .await?;
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

pub async fn last_lines(
    connection: &mut SqliteConnection,
    accounts: &[AccountId],
) -> Result<Vec<LineRow>, sqlx::Error> {
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

/// A statement on rows of values, in the two widths that it is prepared for. Rows that are not
/// bound are NULL, and each statement leaves them out.
struct Batched {
    few: &'static str,
    many: &'static str,
}

const ROWS_FEW: usize = 8;
const ROWS_MOST: usize = 64;

impl Batched {
    /// The statement for so many rows, at most [`ROWS_MOST`].
    fn of(&self, rows: usize) -> &'static str {
        match rows <= ROWS_FEW {
            true => self.few,
            false => self.many,
        }
    }
}

macro_rules! eight {
    ($row:expr) => {
        concat!(
            $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row, ",", $row
        )
    };
}

macro_rules! batched {
    ($before:expr, $row:literal, $after:expr) => {
        Batched {
            few: concat!($before, eight!($row), $after),
            many: concat!($before, eight!(eight!($row)), $after),
        }
    };
}

const LAST_LINES: Batched = batched!(
    "WITH wanted (account) AS (VALUES ",
    "(?)",
    ") SELECT last.account, last.number, at, policy_version, lapses_at, totals
     FROM wanted CROSS JOIN entries AS last ON last.rowid = (
         SELECT rowid FROM entries WHERE account = wanted.account ORDER BY number DESC LIMIT 1
     )"
);

/// A query for the entries of which a column is one of some ids.
macro_rules! entries_with {
    ($column:literal) => {
        batched!(
            "WITH wanted (id) AS (VALUES ",
            "(?)",
            concat!(
                ") SELECT ",
                entry_columns!(),
                " FROM wanted CROSS JOIN entries AS e WHERE e.",
                $column,
                " = wanted.id"
            )
        )
    };
}

const WITH_KEYS: Batched = entries_with!("key");
const WITH_IDS: Batched = entries_with!("id");
const FOLLOWERS: Batched = entries_with!("of_grant");

/// The accounts whose last entry is no longer the assumed one, in all that a decision reads of
/// it, or whose next entry takes a key or the place of another beside a grant.
const REFUSED: Batched = batched!(
    "WITH draft (account, number, totals, at, policy_version, lapses_at, key, of_grant, kind)
     AS (VALUES ",
    "(?,?,?,?,?,?,?,?,?)",
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
             SELECT 1 FROM entries WHERE of_grant = draft.of_grant
                 AND (kind = 2) = (draft.kind = 2)
         )
     )"
);

// OR FAIL: whatever fails takes its transaction back, so that SQLite need not keep what each
// page was before the statement.
const INSERT_ENTRIES: Batched = batched!(
    "INSERT OR FAIL INTO entries (account, number, id, at, kind, policy, policy_version, units,
         key, totals, metadata, provisional, of_grant, held_until, lapses_at, would_deny, made_by,
         reason)
     SELECT * FROM (VALUES ",
    "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    ") WHERE column1 IS NOT NULL"
);

const INSERT_ACCOUNTS: Batched = batched!(
    "INSERT OR FAIL INTO accounts (id, policy, subject) SELECT * FROM (VALUES ",
    "(?,?,?)",
    ") WHERE column1 IS NOT NULL"
);

type Statement<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

/// What a draft assumes of the last line; and of its first entry the key, the grant that it
/// names, and the kind.
fn bind_assumption<'q>(query: Statement<'q>, draft: &&Draft) -> Statement<'q> {
    let after = draft.after.as_ref();
    let first = draft.entries.first();
    query
        .bind(draft.account.0)
        .bind(after.map_or(0, |line| signed(line.number)))
        .bind(after.map(|line| encode_totals(&line.totals)))
        .bind(after.map(|line| line.at.timestamp_micros()))
        .bind(after.map(|line| line.policy_version))
        .bind(after.and_then(|line| Some(line.lapses_at?.timestamp_micros())))
        .bind(first.and_then(|entry| Some(entry.key?.0)))
        .bind(first.and_then(|entry| Some(of_grant(entry.kind)?.0)))
        .bind(first.map(|entry| encode_kind(entry.kind)))
}

fn bind_entry<'q>(query: Statement<'q>, (draft, entry): &(&Draft, &Entry)) -> Statement<'q> {
    let note = entry.note.as_ref();
    query
        .bind(draft.account.0)
        .bind(signed(entry.line.number))
        .bind(entry.id.0)
        .bind(entry.line.at.timestamp_micros())
        .bind(encode_kind(entry.kind))
        .bind(draft.policy.0)
        .bind(entry.line.policy_version)
        .bind(signed(entry.units.get()))
        .bind(entry.key.map(|key| key.0))
        .bind(encode_totals(&entry.line.totals))
        .bind(entry.metadata.as_ref().map(|json| json.as_str().to_owned()))
        .bind(entry.provisional.map(encode_provisional))
        .bind(of_grant(entry.kind).map(|of| of.0))
        .bind(entry.held_until().map(|until| until.timestamp_micros()))
        .bind(entry.line.lapses_at.map(|at| at.timestamp_micros()))
        .bind(entry.would_deny.then_some(true))
        .bind(note.map(|note| note.by.to_string()))
        .bind(note.and_then(|note| note.reason.clone()))
}

fn bind_account<'q>(query: Statement<'q>, draft: &&Draft) -> Statement<'q> {
    query.bind(draft.account.0).bind(draft.policy.0).bind(
        draft
            .subject
            .as_ref()
            .map(|subject| subject.as_str().to_owned()),
    )
}
