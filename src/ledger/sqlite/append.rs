//! The writing half of the claim path. SQLite has one writer: what was looked at inside its
//! transaction holds until the commit.

use std::borrow::Borrow;
use std::collections::HashSet;

use sqlx::sqlite::SqliteArguments;
use sqlx::{Row, Sqlite, SqliteConnection};
use uuid::Uuid;

use super::Store;
use crate::domain::grant::Entry;
use crate::domain::identity::AccountId;
use crate::domain::totals::encode_totals;
use crate::faults::reach;
use crate::ledger::batched::{Batched, ROWS_MOST, batched};
use crate::ledger::record::{
    claimed_by, encode_flags, encode_kind, has_details, kind, of_grant, signed,
};
use crate::ledger::{Draft, LedgerError, new_blind};

impl Store {
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
    let detailed: Vec<&Entry> = entries
        .iter()
        .map(|(_, entry)| *entry)
        .filter(|entry| has_details(entry))
        .collect();
    insert(connection, &INSERT_DETAILS, &detailed, bind_details).await?;
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

/// The accounts whose last entry is no longer the assumed one, in all that a decision reads of
/// it, or whose next entry takes a key or the place of another beside a grant.
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
             SELECT 1 FROM entry_details WHERE of_grant = draft.of_grant
                 AND (kind = ",
        kind!(CONFIRMATION),
        ") = (draft.kind = ",
        kind!(CONFIRMATION),
        ")
         )
     )"
    )
);

// OR FAIL: whatever fails takes its transaction back, so that SQLite need not keep what each
// page was before the statement.
const INSERT_ENTRIES: Batched = batched!(
    "INSERT OR FAIL INTO entries (account, number, id, at, kind, flags, policy, policy_version,
         units, key, claimed_by, totals, lapses_at, metadata)
     SELECT * FROM (VALUES ",
    "(?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    ") WHERE column1 IS NOT NULL"
);

const INSERT_DETAILS: Batched = batched!(
    "INSERT OR FAIL INTO entry_details (account, number, id, kind, of_grant, held_until, made_by,
         reason)
     SELECT * FROM (VALUES ",
    "(?,?,?,?,?,?,?,?)",
    ") WHERE column1 IS NOT NULL"
);

const INSERT_ACCOUNTS: Batched = batched!(
    "INSERT OR FAIL INTO accounts (id, policy, subject, blind) SELECT * FROM (VALUES ",
    "(?,?,?,?)",
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
    query
        .bind(draft.account.0)
        .bind(signed(entry.line.number))
        .bind(entry.id.0)
        .bind(entry.line.at.timestamp_micros())
        .bind(encode_kind(entry.kind))
        .bind(encode_flags(entry.provisional, entry.would_deny))
        .bind(draft.policy.0)
        .bind(entry.line.policy_version)
        .bind(signed(entry.units.get()))
        .bind(entry.key.map(|key| key.0))
        .bind(claimed_by(entry))
        .bind(encode_totals(&entry.line.totals))
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
        .bind(of_grant(entry.kind).map(|of| of.0))
        .bind(entry.held_until().map(|until| until.timestamp_micros()))
        .bind(note.map(|note| note.by.to_string()))
        .bind(note.and_then(|note| note.reason.clone()))
}

fn bind_account<'q>(query: Statement<'q>, draft: &&Draft) -> Statement<'q> {
    let subject = draft.subject.as_ref();
    query
        .bind(draft.account.0)
        .bind(draft.policy.0)
        .bind(subject.map(|subject| subject.as_str().to_owned()))
        .bind(new_blind())
}
