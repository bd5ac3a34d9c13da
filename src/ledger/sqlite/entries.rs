//! The claim path: look, decide elsewhere, append.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{Store, decode_instant, encode_ids};
use crate::domain::claim::{Metadata, Subject, Units};
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
use crate::ledger::{Draft, LedgerError, Look, Seen};

#[derive(sqlx::FromRow)]
pub struct LineRow {
    pub account: Uuid,
    number: i64,
    at: i64,
    policy_version: i64,
    lapses_at: Option<i64>,
    totals: String,
}

impl LineRow {
    pub fn decode(self) -> Result<Line, LedgerError> {
        Ok(Line {
            number: unsigned(self.number)?,
            at: decode_instant(self.at)?,
            policy_version: unsigned(self.policy_version)?,
            lapses_at: self.lapses_at.map(decode_instant).transpose()?,
            totals: decode_totals(&self.totals)?,
        })
    }
}

#[derive(sqlx::FromRow)]
pub struct EntryRow {
    #[sqlx(flatten)]
    line: LineRow,
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

#[derive(sqlx::FromRow)]
struct HoldRow {
    id: Uuid,
    units: i64,
    held_until: i64,
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
    /// See [`crate::ledger::Ledger::look`].
    pub async fn look(&self, look: &Look) -> Result<Seen, LedgerError> {
        let mut connection = self.readers.acquire().await?;
        let mut seen = Seen::default();
        if !look.accounts.is_empty() {
            for row in last_lines(&mut connection, &look.accounts).await? {
                seen.lines.insert(AccountId(row.account), row.decode()?);
            }
        }
        if !look.names_no_entries() {
            for row in entries(&mut connection, look).await? {
                seen.entries.push(row.decode()?);
            }
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
            "SELECT CAST(MIN(
                 TOTAL(added) - COALESCE(MIN(MIN(so_far), 0), 0), 9007199254740991
             ) AS INTEGER) FROM (
                 SELECT added, TOTAL(added) OVER (ORDER BY number) AS so_far FROM (
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
        .fetch_one(&self.readers)
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
        let mut rows: Vec<HoldRow> = lapsed.fetch_all(&self.readers).await?;
        rows.extend(next.fetch_all(&self.readers).await?);
        rows.into_iter().map(HoldRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::append`].
    pub async fn append(&self, drafts: &[Draft]) -> Result<HashSet<AccountId>, LedgerError> {
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let standing = append(&mut transaction, drafts).await?;
        reach("sqlite.inserted");
        transaction.commit().await?;
        Ok(standing)
    }

    /// See [`crate::ledger::Ledger::append_all`].
    pub async fn append_all(&self, drafts: &[Draft]) -> Result<bool, LedgerError> {
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let all = append(&mut transaction, drafts).await?.len() == drafts.len();
        match all {
            true => transaction.commit().await?,
            false => transaction.rollback().await?,
        }
        Ok(all)
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
        .fetch_all(&self.readers)
        .await?;
        Ok(keys.into_iter().map(KeyId).collect())
    }
}

/// Appends the drafts whose last line is the assumed one. Inside the one write transaction nobody
/// else can come between the guard and the entries.
async fn append(
    connection: &mut SqliteConnection,
    drafts: &[Draft],
) -> Result<HashSet<AccountId>, LedgerError> {
    let standing: Vec<Uuid> = sqlx::query_scalar(GUARD)
        .bind(encode_assumptions(drafts))
        .fetch_all(&mut *connection)
        .await?;
    let standing: HashSet<AccountId> = standing.into_iter().map(AccountId).collect();
    let fitting = drafts
        .iter()
        .filter(|draft| standing.contains(&draft.account));
    let rows = encode_rows(fitting);
    sqlx::query(INSERT_ENTRIES)
        .bind(&rows)
        .execute(&mut *connection)
        .await?;
    sqlx::query(INSERT_ACCOUNTS)
        .bind(&rows)
        .execute(connection)
        .await?;
    Ok(standing)
}

pub async fn last_lines(
    connection: &mut SqliteConnection,
    accounts: &[AccountId],
) -> Result<Vec<LineRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT account, number, at, policy_version, lapses_at, totals
         FROM json_each($1) AS wanted CROSS JOIN entries
         WHERE account = unhex(wanted.value) AND number = (
             SELECT MAX(number) FROM entries WHERE account = unhex(wanted.value)
         )",
    )
    .bind(encode_ids(accounts.iter().map(|account| account.0)))
    .fetch_all(connection)
    .await
}

async fn entries(
    connection: &mut SqliteConnection,
    look: &Look,
) -> Result<Vec<EntryRow>, sqlx::Error> {
    sqlx::query_as(concat!(
        "SELECT ",
        entry_columns!(),
        " FROM entries AS e WHERE key IN (SELECT unhex(value) FROM json_each($1))
            OR id IN (SELECT unhex(value) FROM json_each($2))
            OR of_grant IN (SELECT unhex(value) FROM json_each($3))"
    ))
    .bind(encode_ids(look.keys.iter().map(|key| key.0)))
    .bind(encode_ids(look.entries.iter().map(|entry| entry.0)))
    .bind(encode_ids(look.followers_of.iter().map(|grant| grant.0)))
    .fetch_all(connection)
    .await
}

/// The accounts whose last entry is still the assumed one, in all that a decision reads of
/// it, and whose next entry takes neither a key nor the place of another beside a grant.
const GUARD: &str = "
    SELECT unhex(draft.value ->> 0)
    FROM json_each($1) AS draft LEFT JOIN entries AS last
        ON last.account = unhex(draft.value ->> 0) AND last.number = (
            SELECT MAX(number) FROM entries WHERE account = unhex(draft.value ->> 0)
        )
    WHERE COALESCE(last.number, 0) = draft.value ->> 1 AND last.totals IS draft.value ->> 2
        AND last.at IS draft.value ->> 3 AND last.policy_version IS draft.value ->> 4
        AND last.lapses_at IS draft.value ->> 5
        AND NOT EXISTS (SELECT 1 FROM entries WHERE key = unhex(draft.value ->> 6))
        AND NOT EXISTS (
            SELECT 1 FROM entries WHERE of_grant = unhex(draft.value ->> 7)
                AND (kind = 2) = (draft.value ->> 8 = 2)
        )";

/// What a draft assumes: its account; number, totals, instant, policy version and first lapse
/// of the last line; and of its first entry the key, the grant that it names, and the kind.
type Assumption = (
    String,
    u64,
    Option<String>,
    Option<i64>,
    Option<u32>,
    Option<i64>,
    Option<String>,
    Option<String>,
    Option<i16>,
);

fn encode_assumptions(drafts: &[Draft]) -> String {
    let assumptions: Vec<Assumption> = drafts
        .iter()
        .map(|draft| {
            let after = draft.after.as_ref();
            let first = draft.entries.first();
            let key = first.and_then(|entry| entry.key);
            let grant = first.and_then(|entry| of_grant(entry.kind));
            (
                draft.account.0.simple().to_string(),
                after.map_or(0, |line| line.number),
                after.map(|line| encode_totals(&line.totals)),
                after.map(|line| line.at.timestamp_micros()),
                after.map(|line| line.policy_version),
                after.and_then(|line| Some(line.lapses_at?.timestamp_micros())),
                key.map(|key| key.0.simple().to_string()),
                grant.map(|grant| grant.0.simple().to_string()),
                first.map(|entry| encode_kind(entry.kind)),
            )
        })
        .collect();
    serde_json::to_string(&assumptions).expect("texts and numbers are JSON")
}

const INSERT_ENTRIES: &str = "
    INSERT INTO entries (account, number, id, at, kind, policy, policy_version, units, key,
        totals, metadata, provisional, of_grant, held_until, lapses_at, would_deny, made_by,
        reason)
    SELECT unhex(value ->> 'account'), value ->> 'number', unhex(value ->> 'id'),
        value ->> 'at', value ->> 'kind', value ->> 'policy', value ->> 'policy_version',
        value ->> 'units', unhex(value ->> 'key'), value ->> 'totals', value ->> 'metadata',
        value ->> 'provisional', unhex(value ->> 'of_grant'), value ->> 'held_until',
        value ->> 'lapses_at', value ->> 'would_deny', value ->> 'made_by', value ->> 'reason'
    FROM json_each($1)";

const INSERT_ACCOUNTS: &str = "
    INSERT INTO accounts (id, policy, subject)
    SELECT unhex(value ->> 'account'), value ->> 'policy', value ->> 'subject'
    FROM json_each($1) WHERE value ->> 'number' = 1";

/// An entry as one element of the JSON array that the inserts take apart.
#[derive(Serialize)]
struct RowRecord<'a> {
    account: String,
    number: u64,
    id: String,
    at: i64,
    kind: i16,
    policy: i32,
    policy_version: u32,
    units: u64,
    key: Option<String>,
    totals: String,
    metadata: Option<&'a str>,
    provisional: Option<i16>,
    subject: Option<&'a str>,
    of_grant: Option<String>,
    held_until: Option<i64>,
    lapses_at: Option<i64>,
    would_deny: Option<bool>,
    made_by: Option<&'a str>,
    reason: Option<&'a str>,
}

fn encode_rows<'a>(drafts: impl Iterator<Item = &'a Draft>) -> String {
    let rows: Vec<RowRecord<'_>> = drafts
        .flat_map(|draft| draft.entries.iter().map(move |entry| (draft, entry)))
        .map(|(draft, entry)| RowRecord {
            account: draft.account.0.simple().to_string(),
            number: entry.line.number,
            id: entry.id.0.simple().to_string(),
            at: entry.line.at.timestamp_micros(),
            kind: encode_kind(entry.kind),
            policy: draft.policy.0,
            policy_version: entry.line.policy_version,
            units: entry.units.get(),
            key: entry.key.map(|key| key.0.simple().to_string()),
            totals: encode_totals(&entry.line.totals),
            metadata: entry.metadata.as_ref().map(Metadata::as_str),
            provisional: entry.provisional.map(encode_provisional),
            subject: draft.subject.as_ref().map(Subject::as_str),
            of_grant: of_grant(entry.kind).map(|of| of.0.simple().to_string()),
            held_until: entry.held_until().map(|until| until.timestamp_micros()),
            lapses_at: entry.line.lapses_at.map(|at| at.timestamp_micros()),
            would_deny: entry.would_deny.then_some(true),
            made_by: entry.note.as_ref().map(|note| &*note.by),
            reason: entry.note.as_ref().and_then(|note| note.reason.as_deref()),
        })
        .collect();
    serde_json::to_string(&rows).expect("texts and numbers are JSON")
}
