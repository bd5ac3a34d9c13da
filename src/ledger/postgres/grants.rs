//! Lists of grants.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::Store;
use super::entries::EntryRow;
use crate::domain::grant::{Entry, Followers, Grant, GrantState};
use crate::domain::identity::{AccountId, EntryId};
use crate::ledger::record::{decode_follower, decode_note, entry_columns, signed};
use crate::ledger::row::row;
use crate::ledger::{GrantFilter, GrantScope, LedgerError, ProvisionalScope, decode_grant};

/// A repeatable-read transaction.
pub struct Snapshot(pub(super) Transaction<'static, Postgres>);

row! {
    struct GrantRow {
        ..entry: EntryRow,
        policy: String,
        subject: Option<String>,
        confirmation: Option<Uuid>,
        confirmed_at: Option<DateTime<Utc>>,
        confirmed_by: Option<String>,
        closing: Option<Uuid>,
        closing_kind: Option<i16>,
        closed_at: Option<DateTime<Utc>>,
        closed_by: Option<String>,
        closing_reason: Option<String>,
    }
}

/// A query for grants: columns and joins around a choice of entries `g`.
macro_rules! grants_where {
    ($($choice:expr),*) => {
        concat!(
            "SELECT ",
            entry_columns!(),
            ", p.name AS policy, a.subject,
                c.id AS confirmation, c.at AS confirmed_at, c.made_by AS confirmed_by,
                x.id AS closing, x.kind AS closing_kind, x.at AS closed_at,
                x.made_by AS closed_by, x.reason AS closing_reason
             FROM (SELECT g.* FROM ",
            $($choice,)*
            ") AS e
             JOIN policies AS p ON p.id = e.policy
             JOIN accounts AS a ON a.id = e.account
             LEFT JOIN entries AS c ON c.of_grant = e.id AND c.kind = 2
             LEFT JOIN entries AS x ON x.of_grant = e.id AND x.kind IN (3, 4)
             ORDER BY e.id DESC"
        )
    };
}

const ONE: &str = grants_where!("entries AS g WHERE id = $1 AND kind = 1");

/// A choice of grants, as an index serves it, among those with ids from $1 up to $2: those in
/// the state $4 at the instant $5, provisional from $6 on, and that would have been denied
/// where $7 says so; at most $3. PostgreSQL would read the whole table once for an EXISTS
/// inside a CASE; what has a LIMIT it looks up by its index.
macro_rules! listed_where {
    ($choice:literal, $order:literal) => {
        grants_where!(
            $choice,
            " AND g.kind = 1 AND g.id >= $1 AND g.id < $2
              AND ($6::smallint IS NULL OR g.provisional >= $6)
              AND (NOT $7::boolean OR g.would_deny)
              AND CASE $4::text
                  WHEN 'held' THEN g.held_until > $5::timestamptz AND (
                      SELECT id FROM entries WHERE of_grant = g.id LIMIT 1) IS NULL
                  WHEN 'granted' THEN (g.held_until IS NULL OR (
                          SELECT id FROM entries WHERE of_grant = g.id AND kind = 2 LIMIT 1) IS NOT NULL)
                      AND (
                          SELECT id FROM entries WHERE of_grant = g.id AND kind IN (3, 4) LIMIT 1) IS NULL
                  WHEN 'reversed' THEN (
                          SELECT id FROM entries WHERE of_grant = g.id AND kind = 3 LIMIT 1) IS NOT NULL
                  WHEN 'lapsed' THEN (
                          SELECT id FROM entries WHERE of_grant = g.id AND kind = 4 LIMIT 1) IS NOT NULL
                      OR g.held_until <= $5::timestamptz AND (
                          SELECT id FROM entries WHERE of_grant = g.id LIMIT 1) IS NULL
                  ELSE true END
              ORDER BY ",
            $order,
            " DESC LIMIT $3"
        )
    };
}

const ALL: &str = listed_where!("entries AS g WHERE true", "g.id");
const PROVISIONAL: &str = listed_where!("entries AS g WHERE g.provisional IS NOT NULL", "g.id");
const WOULD_DENY: &str = listed_where!("entries AS g WHERE g.would_deny", "g.id");
const OF_POLICY: &str = listed_where!("entries AS g WHERE g.policy = $8", "g.policy DESC, g.id");
const HOLDS: &str = listed_where!(
    "entries AS g WHERE g.held_until IS NOT NULL AND ($8::integer IS NULL OR g.policy = $8)",
    "g.id"
);
const REVERSED: &str = listed_where!(
    "entries AS r JOIN entries AS g ON g.id = r.of_grant
     WHERE r.kind = 3 AND r.of_grant >= $1 AND r.of_grant < $2
        AND ($8::integer IS NULL OR g.policy = $8)",
    "r.of_grant"
);
const OF_ACCOUNTS: &str = listed_where!("entries AS g WHERE g.account = ANY($8)", "g.id");
const OF_KEYS: &str = listed_where!("entries AS g WHERE g.key = ANY($8)", "g.id");

impl Store {
    /// See [`crate::ledger::Ledger::grant`].
    pub async fn grant(&self, id: EntryId) -> Result<Option<Grant>, LedgerError> {
        let one = sqlx::query_as(ONE).bind(id.0);
        let row: Option<GrantRow> = self
            .in_time(async |connection| one.fetch_optional(connection).await)
            .await?;
        row.map(GrantRow::decode).transpose()
    }

    /// See [`crate::ledger::Ledger::grants`].
    pub async fn grants(
        &self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<Vec<Grant>, LedgerError> {
        let mut connection = self.reads.acquire().await?;
        grants(&mut connection, filter, limit).await
    }

    /// See [`crate::ledger::Ledger::entries`].
    pub async fn entries(
        &self,
        account: AccountId,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        let rows: Vec<EntryRow> = sqlx::query_as(concat!(
            "SELECT ",
            entry_columns!(),
            " FROM entries AS e WHERE account = $1 AND number < $2 ORDER BY number DESC LIMIT $3"
        ))
        .bind(account.0)
        .bind(signed(before))
        .bind(i64::from(limit))
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter().map(EntryRow::decode).collect()
    }

    /// See [`crate::ledger::Ledger::snapshot`].
    pub async fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let mut transaction = self.snapshots.begin_with(begin).await?;
        // The view is that of the first read, not that of BEGIN.
        sqlx::query("SELECT id FROM ledger")
            .execute(&mut *transaction)
            .await?;
        Ok(Snapshot(transaction))
    }
}

impl Snapshot {
    /// See [`crate::ledger::Snapshot::grants`].
    pub async fn grants(
        &mut self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<Vec<Grant>, LedgerError> {
        grants(&mut self.0, filter, limit).await
    }
}

impl GrantRow {
    fn decode(self) -> Result<Grant, LedgerError> {
        let entry = self.entry.decode()?;
        let confirmation = decode_follower(
            entry.id,
            self.confirmation,
            Some(2),
            self.confirmed_at,
            decode_note(self.confirmed_by, None),
        )?;
        let closing = decode_follower(
            entry.id,
            self.closing,
            self.closing_kind,
            self.closed_at,
            decode_note(self.closed_by, self.closing_reason),
        )?;
        let followers = Followers {
            confirmation,
            closing,
        };
        decode_grant(entry, &self.policy, self.subject, followers)
    }
}

async fn grants(
    connection: &mut PgConnection,
    filter: &GrantFilter,
    limit: u32,
) -> Result<Vec<Grant>, LedgerError> {
    let policy = match filter.scope {
        GrantScope::Policy(policy) => Some(policy.0),
        GrantScope::All | GrantScope::Accounts(_) | GrantScope::Keys(_) => None,
    };
    let query = |sql| {
        sqlx::query_as(sql)
            .bind(filter.from.0)
            .bind(filter.to.0)
            .bind(i64::from(limit))
            .bind(filter.state.map(GrantState::as_str))
            .bind(filter.now)
            .bind(filter.provisional.map(ProvisionalScope::least))
            .bind(filter.would_deny)
    };
    // Holds and reversals are few among grants.
    let query = match (&filter.scope, filter.state) {
        (GrantScope::Accounts(accounts), _) => {
            query(OF_ACCOUNTS).bind(accounts.iter().map(|id| id.0).collect::<Vec<Uuid>>())
        }
        (GrantScope::Keys(keys), _) => {
            query(OF_KEYS).bind(keys.iter().map(|id| id.0).collect::<Vec<Uuid>>())
        }
        (_, Some(GrantState::Held | GrantState::Lapsed)) => query(HOLDS).bind(policy),
        (_, Some(GrantState::Reversed)) => query(REVERSED).bind(policy),
        (GrantScope::Policy(_), Some(GrantState::Granted) | None) => query(OF_POLICY).bind(policy),
        (GrantScope::All, _) if filter.provisional.is_some() => query(PROVISIONAL),
        (GrantScope::All, _) if filter.would_deny => query(WOULD_DENY),
        (GrantScope::All, Some(GrantState::Granted) | None) => query(ALL),
    };
    let rows: Vec<GrantRow> = query.fetch_all(connection).await?;
    rows.into_iter().map(GrantRow::decode).collect()
}
