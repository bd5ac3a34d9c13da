//! The reading half of the claim path.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, SqliteConnection};
use uuid::Uuid;

use super::{Store, decode_instant};
use crate::domain::claim::{Metadata, Units};
use crate::domain::correction::Hold;
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId, KeyId};
use crate::domain::key::KeyNumber;
use crate::domain::totals::decode_totals;
use crate::domain::window::Window;
use crate::ledger::batched::{Batched, ROWS_MOST, batched};
use crate::ledger::record::{
    decode_flags, decode_kind, decode_note, entry_columns, kind, signed, unsigned, with_details,
};
use crate::ledger::row::row;
use crate::ledger::{LedgerError, LedgerView, Look};

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
    /// An account's last line, and the position of its entry in the file.
    pub struct LastRow {
        ..line: LineRow,
        position: i64,
    }
}

impl LastRow {
    pub fn line(self) -> LineRow {
        self.line
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
        held_until: Option<i64>,
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
        let held_until = self.held_until.map(decode_instant).transpose()?;
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
    "SELECT COALESCE(SUM(added) - MIN(MIN(so_far), 0), 0) FROM (
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
    /// See [`crate::ledger::Ledger::look`]. On the writer's connection, whose cache of pages each
    /// commit keeps up to date; those of the readers it empties.
    pub async fn look(&self, look: &Look) -> Result<LedgerView, LedgerError> {
        let (lines, entries) = self
            .writer
            .run(async |connection| {
                let lines = last_lines(connection, &look.accounts).await?;
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
        for line in lines.into_iter().map(LastRow::line) {
            seen.lines.insert(AccountId(line.account), line.decode()?);
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
        let sum: i64 = sqlx::query_scalar(SUM)
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

pub async fn last_lines(
    connection: &mut SqliteConnection,
    accounts: &[AccountId],
) -> Result<Vec<LastRow>, sqlx::Error> {
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
