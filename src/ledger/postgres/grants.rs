//! Lists of grants.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::Store;
use super::entries::EntryRow;
use crate::domain::grant::{Entry, Followers, Grant, GrantState};
use crate::domain::identity::{AccountId, EntryId};
use crate::ledger::record::{
    decode_follower, decode_note, entry_columns, flag, kind, signed, with_details,
};
use crate::ledger::row::row;
use crate::ledger::{GrantFilter, GrantScope, LedgerError, decode_grant};

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

/// The quarter of a second of an id, by which a policy's entries are indexed.
macro_rules! quarter {
    ($id:expr) => {
        concat!("substring(uuid_send(", $id, "), 1, 5)")
    };
}

/// The millisecond of an id, by which all entries are indexed.
macro_rules! millisecond {
    ($id:expr) => {
        concat!("substring(uuid_send(", $id, "), 1, 6)")
    };
}
pub(super) use {millisecond, quarter};

/// A query for grants: columns and joins around a choice of entries `g`.
macro_rules! grants_where {
    ($($choice:expr),*) => {
        concat!(
            "SELECT ",
            entry_columns!(),
            ", p.name AS policy, a.subject,
                c.id AS confirmation, ce.at AS confirmed_at, c.made_by AS confirmed_by,
                x.id AS closing, x.kind AS closing_kind, xe.at AS closed_at,
                x.made_by AS closed_by, x.reason AS closing_reason
             FROM (SELECT g.* FROM ",
            $($choice,)*
            ") AS e",
            with_details!(),
            "JOIN policies AS p ON p.id = e.policy
             JOIN accounts AS a ON a.id = e.account
             LEFT JOIN entry_details AS c ON c.of_grant = e.id AND c.kind = ",
            kind!(CONFIRMATION),
            " LEFT JOIN entries AS ce ON ce.account = c.account AND ce.number = c.number
             LEFT JOIN entry_details AS x ON x.of_grant = e.id AND x.kind IN (",
            kind!(REVERSAL),
            ", ",
            kind!(LAPSE),
            ") LEFT JOIN entries AS xe ON xe.account = x.account AND xe.number = x.number
             ORDER BY e.id DESC"
        )
    };
}

const ONE: &str = grants_where!(
    "entries AS g WHERE ",
    millisecond!("id"),
    " = ",
    millisecond!("$1::uuid"),
    " AND id = $1 AND kind = ",
    kind!(GRANT)
);

/// When the hold `g` lapses; NULL for other grants.
macro_rules! held_until {
    () => {
        "(SELECT held_until FROM entry_details WHERE account = g.account AND number = g.number)"
    };
}

/// An entry that names the grant `g` and has one of some kinds; NULL without one. PostgreSQL
/// would read the whole table once for an EXISTS inside a CASE; what has a LIMIT it looks up by
/// its index.
macro_rules! follower {
    ($first:ident $(, $other:ident)*) => {
        concat!(
            "(SELECT id FROM entry_details WHERE of_grant = g.id AND kind IN (",
            kind!($first),
            $(", ", kind!($other),)*
            ") LIMIT 1)"
        )
    };
}

/// A choice of grants, as an index serves it, among those with ids from $1 up to $2: those in
/// the state $4 at the instant $5, with the flags $6; at most $3.
macro_rules! listed_where {
    ($choice:expr, $order:expr) => {
        grants_where!(
            $choice,
            " AND g.kind = ",
            kind!(GRANT),
            " AND g.id >= $1 AND g.id < $2 AND g.flags & $6::smallint = $6 AND CASE $4::text
                  WHEN 'held' THEN ",
            held_until!(),
            " > $5::timestamptz AND ",
            follower!(CONFIRMATION, REVERSAL, LAPSE),
            " IS NULL
                  WHEN 'granted' THEN (",
            held_until!(),
            " IS NULL OR ",
            follower!(CONFIRMATION),
            " IS NOT NULL) AND ",
            follower!(REVERSAL, LAPSE),
            " IS NULL
                  WHEN 'reversed' THEN ",
            follower!(REVERSAL),
            " IS NOT NULL
                  WHEN 'lapsed' THEN ",
            follower!(LAPSE),
            " IS NOT NULL OR ",
            held_until!(),
            " <= $5::timestamptz AND ",
            follower!(CONFIRMATION, REVERSAL, LAPSE),
            " IS NULL
                  ELSE true END
              ORDER BY ",
            $order,
            " DESC LIMIT $3"
        )
    };
}

/// The grants with a flag.
macro_rules! flagged {
    ($flag:ident) => {
        listed_where!(
            concat!("entries AS g WHERE (g.flags & ", flag!($flag), ") <> 0"),
            "g.id"
        )
    };
}

const ALL: &str = listed_where!(
    concat!(
        "entries AS g WHERE ",
        millisecond!("g.id"),
        " BETWEEN ",
        millisecond!("$1::uuid"),
        " AND ",
        millisecond!("$2::uuid")
    ),
    concat!(millisecond!("g.id"), " DESC, g.id")
);
const PROVISIONAL: &str = flagged!(PROVISIONAL);
const WOULD_DENY: &str = flagged!(WOULD_DENY);
const OF_POLICY: &str = listed_where!(
    concat!(
        "entries AS g WHERE g.policy = $7 AND ",
        quarter!("g.id"),
        " BETWEEN ",
        quarter!("$1::uuid"),
        " AND ",
        quarter!("$2::uuid")
    ),
    concat!("g.policy DESC, ", quarter!("g.id"), " DESC, g.id")
);
const HOLDS: &str = listed_where!(
    "entry_details AS hold
     JOIN entries AS g ON g.account = hold.account AND g.number = hold.number
     WHERE hold.held_until IS NOT NULL AND hold.id >= $1 AND hold.id < $2
        AND ($7::integer IS NULL OR g.policy = $7)",
    "hold.id"
);
const REVERSED: &str = listed_where!(
    concat!(
        "entry_details AS r CROSS JOIN LATERAL (
            SELECT * FROM entries WHERE ",
        millisecond!("id"),
        " = ",
        millisecond!("r.of_grant"),
        " AND id = r.of_grant LIMIT 1
         ) AS g WHERE r.kind = ",
        kind!(REVERSAL),
        " AND r.of_grant >= $1 AND r.of_grant < $2 AND ($7::integer IS NULL OR g.policy = $7)"
    ),
    "r.of_grant"
);
const OF_ACCOUNTS: &str = listed_where!("entries AS g WHERE g.account = ANY($7)", "g.id");
const OF_KEYS: &str = listed_where!("entries AS g WHERE g.key = ANY($7)", "g.id");

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
            " FROM entries AS e",
            with_details!(),
            "WHERE e.account = $1 AND e.number < $2 ORDER BY e.number DESC LIMIT $3"
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
            Some(kind!(CONFIRMATION)),
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
            .bind(filter.flags())
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
