//! Lists of grants.

use sqlx::{Sqlite, SqliteConnection, Transaction};

use super::entries::EntryRow;
use super::{Store, encode_ids};
use crate::domain::grant::Grant;
use crate::domain::identity::EntryId;
use crate::ledger::{GrantFilter, GrantScope, LedgerError, ProvisionalScope, decode_grant};

/// A read transaction: in WAL mode it sees what stood when it began to read.
pub struct Snapshot(pub(super) Transaction<'static, Sqlite>);

#[derive(sqlx::FromRow)]
struct GrantRow {
    #[sqlx(flatten)]
    entry: EntryRow,
    policy: String,
    subject: Option<String>,
}

/// A query for grants: columns and joins around a choice of entries. Each scope has the
/// choice that its index serves.
macro_rules! grants_where {
    ($choice:literal) => {
        concat!(
            "SELECT e.account, e.number, e.at, e.policy_version, e.totals, e.id, e.kind,
                e.units, e.key, e.metadata, e.provisional, p.name AS policy, a.subject
             FROM (",
            $choice,
            ") AS e
             JOIN policies AS p ON p.id = e.policy
             JOIN accounts AS a ON a.id = e.account
             ORDER BY e.id DESC"
        )
    };
}

const ONE: &str = grants_where!("SELECT * FROM entries WHERE id = $1 AND kind = 1");

const ALL: &str = grants_where!(
    "SELECT * FROM entries WHERE kind = 1 AND id >= $1 AND id < $2 ORDER BY id DESC LIMIT $3"
);

const ALL_PROVISIONAL: &str = grants_where!(
    "SELECT * FROM entries WHERE kind = 1 AND id >= $1 AND id < $2
        AND provisional IS NOT NULL AND provisional >= $4
     ORDER BY id DESC LIMIT $3"
);

const OF_POLICY: &str = grants_where!(
    "SELECT * FROM entries WHERE kind = 1 AND id >= $1 AND id < $2 AND policy = $4
        AND ($5 IS NULL OR provisional >= $5)
     ORDER BY policy DESC, id DESC LIMIT $3"
);

const OF_ACCOUNTS: &str = grants_where!(
    "SELECT * FROM entries WHERE kind = 1 AND id >= $1 AND id < $2 AND account IN (SELECT unhex(value) FROM json_each($4))
        AND ($5 IS NULL OR provisional >= $5)
     ORDER BY id DESC LIMIT $3"
);

const OF_KEYS: &str = grants_where!(
    "SELECT * FROM entries WHERE kind = 1 AND id >= $1 AND id < $2 AND key IN (SELECT unhex(value) FROM json_each($4))
        AND ($5 IS NULL OR provisional >= $5)
     ORDER BY id DESC LIMIT $3"
);

impl Store {
    /// See [`crate::ledger::Ledger::grant`].
    pub async fn grant(&self, id: EntryId) -> Result<Option<Grant>, LedgerError> {
        let row: Option<GrantRow> = sqlx::query_as(ONE)
            .bind(id.0)
            .fetch_optional(&self.readers)
            .await?;
        row.map(GrantRow::decode).transpose()
    }

    /// See [`crate::ledger::Ledger::grants`].
    pub async fn grants(
        &self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<Vec<Grant>, LedgerError> {
        let mut connection = self.readers.acquire().await?;
        grants(&mut connection, filter, limit).await
    }

    /// See [`crate::ledger::Ledger::snapshot`].
    pub async fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        let mut transaction = self.readers.begin().await?;
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
        decode_grant(self.entry.decode()?, &self.policy, self.subject)
    }
}

async fn grants(
    connection: &mut SqliteConnection,
    filter: &GrantFilter,
    limit: u32,
) -> Result<Vec<Grant>, LedgerError> {
    let sql = match filter.scope {
        GrantScope::All if filter.provisional.is_some() => ALL_PROVISIONAL,
        GrantScope::All => ALL,
        GrantScope::Policy(_) => OF_POLICY,
        GrantScope::Accounts(_) => OF_ACCOUNTS,
        GrantScope::Keys(_) => OF_KEYS,
    };
    let query = sqlx::query_as(sql)
        .bind(filter.from.0)
        .bind(filter.to.0)
        .bind(i64::from(limit));
    let least = filter.provisional.map(ProvisionalScope::least);
    let query = match &filter.scope {
        GrantScope::All => match least {
            Some(least) => query.bind(least),
            None => query,
        },
        GrantScope::Policy(policy) => query.bind(policy.0).bind(least),
        GrantScope::Accounts(accounts) => {
            let accounts = encode_ids(accounts.iter().map(|id| id.0));
            query.bind(accounts).bind(least)
        }
        GrantScope::Keys(keys) => {
            let keys = encode_ids(keys.iter().map(|id| id.0));
            query.bind(keys).bind(least)
        }
    };
    let rows: Vec<GrantRow> = query.fetch_all(connection).await?;
    rows.into_iter().map(GrantRow::decode).collect()
}
