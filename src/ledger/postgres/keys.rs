//! API keys: their versions, and the hashes of their secrets.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Store;
use crate::domain::key::{Key, KeyNumber, KeyRule};
use crate::ledger::history::pair;
use crate::ledger::keys::{KeyChange, KeyVersion, SecretHash};
use crate::ledger::record::{decode_names, decode_role, encode_names, signed, unsigned};
use crate::ledger::row::row;
use crate::ledger::{Changed, HistoryFilter, LedgerError, decode_hash};

row! {
    struct KeyRow {
        id: Uuid,
        number: i32,
        secret_hash: Vec<u8>,
        created_at: DateTime<Utc>,
        version: i32,
        name: String,
        role: String,
        policies: Option<String>,
        ends_at: Option<DateTime<Utc>>,
        revoked: bool,
        changed_at: DateTime<Utc>,
        changed_by: String,
        reason: Option<String>,
    }
}

impl KeyRow {
    fn decode(self) -> Result<Key, LedgerError> {
        Ok(Key {
            id: self.id,
            version: unsigned(self.version.into())?,
            rule: KeyRule {
                name: self.name,
                role: decode_role(&self.role)?,
                policies: self.policies.as_deref().map(decode_names).transpose()?,
                ends_at: self.ends_at,
                revoked: self.revoked,
            },
            created_at: self.created_at,
            changed_at: self.changed_at,
            changed_by: self.changed_by,
            reason: self.reason,
        })
    }
}

row! {
    /// A row of a list of changes.
    struct ListedKeyRow {
        ..version: KeyRow,
        listed: i64,
    }
}

macro_rules! version_columns {
    () => {
        "k.id, k.number, k.secret_hash, k.created_at, v.version, v.name, v.role, v.policies, v.ends_at,
            v.revoked, v.changed_at, v.changed_by, v.reason"
    };
}

/// A query for versions of keys.
macro_rules! versions_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            version_columns!(),
            " FROM key_versions AS v JOIN keys AS k ON k.id = v.key WHERE ",
            $condition
        )
    };
}

/// Changes, each with the version that it made and the one before.
const HISTORY: &str = concat!(
    "WITH listed AS (
         SELECT v.key, v.version, v.revision FROM key_versions AS v
         WHERE v.revision < $1 AND ($2::timestamptz IS NULL OR v.changed_at >= $2)
            AND ($3::timestamptz IS NULL OR v.changed_at < $3)
         ORDER BY v.revision DESC LIMIT $4
     )
     SELECT listed.revision AS listed, ",
    version_columns!(),
    " FROM listed
     JOIN key_versions AS v ON v.key = listed.key
        AND v.version IN (listed.version, listed.version - 1)
     JOIN keys AS k ON k.id = v.key
     ORDER BY listed.revision DESC, v.version DESC"
);

impl Store {
    /// See [`crate::ledger::Ledger::add_key`].
    pub async fn add_key(&self, key: &Key, secret_hash: &SecretHash) -> Result<(), LedgerError> {
        let mut transaction = self.edits.begin().await?;
        let revision = next_revision(&mut transaction).await?;
        insert_key(&mut transaction, key, secret_hash, revision).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// See [`crate::ledger::Ledger::add_first_key`].
    pub async fn add_first_key(
        &self,
        key: &Key,
        secret_hash: &SecretHash,
    ) -> Result<bool, LedgerError> {
        let mut transaction = self.edits.begin().await?;
        let revision = next_revision(&mut transaction).await?;
        let there_are_keys: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM keys)")
            .fetch_one(&mut *transaction)
            .await?;
        if there_are_keys {
            transaction.rollback().await?;
            return Ok(false);
        }
        insert_key(&mut transaction, key, secret_hash, revision).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// See [`crate::ledger::Ledger::edit_key`].
    pub async fn edit_key<E: Send>(
        &self,
        id: Uuid,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        decide: impl Fn(Option<&Key>, bool) -> Result<KeyChange, E> + Send + Sync,
    ) -> Result<Result<Key, E>, LedgerError> {
        let mut transaction = self.edits.begin().await?;
        let revision = next_revision(&mut transaction).await?;
        let before = last_version(&mut transaction, id).await?;
        let another_admin_stays: bool = sqlx::query_scalar(
            "SELECT EXISTS (
                 SELECT FROM key_versions AS v
                 WHERE v.key <> $1 AND v.role = 'admin' AND NOT v.revoked AND v.ends_at IS NULL
                 AND v.version = (SELECT MAX(version) FROM key_versions WHERE key = v.key)
             )",
        )
        .bind(id)
        .fetch_one(&mut *transaction)
        .await?;
        let (rule, reason) = match decide(before.as_ref(), another_admin_stays) {
            Err(error) => {
                transaction.rollback().await?;
                return Ok(Err(error));
            }
            Ok(KeyChange::Version { rule, reason }) => (Some(rule), reason),
            Ok(KeyChange::Keep) => (None, None),
        };
        let before = before.ok_or_else(|| LedgerError::Corrupt("no key to change".to_owned()))?;
        let Some(rule) = rule else {
            transaction.rollback().await?;
            return Ok(Ok(before));
        };
        let after = Key {
            version: before.version + 1,
            rule,
            changed_at,
            changed_by: changed_by.to_owned(),
            reason,
            ..before
        };
        insert_version(&mut transaction, &after, revision).await?;
        transaction.commit().await?;
        Ok(Ok(after))
    }

    /// See [`crate::ledger::Ledger::keys_between`].
    pub async fn keys_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<KeyVersion>, LedgerError> {
        let versions = sqlx::query_as(versions_where!(
            "v.revision > $1 AND v.revision <= $2 ORDER BY v.revision"
        ))
        .bind(signed(after))
        .bind(signed(up_to));
        let rows: Vec<KeyRow> = self
            .polled(async |connection| versions.fetch_all(connection).await)
            .await?;
        let decode = |row: KeyRow| {
            let secret_hash = decode_hash(&row.secret_hash)?;
            Ok(KeyVersion {
                number: KeyNumber(unsigned(row.number.into())?),
                secret_hash,
                key: row.decode()?,
            })
        };
        rows.into_iter().map(decode).collect()
    }

    /// See [`crate::ledger::Ledger::changes`].
    pub async fn key_history(
        &self,
        filter: &HistoryFilter,
        limit: u32,
    ) -> Result<Vec<Changed<Key>>, LedgerError> {
        let rows: Vec<ListedKeyRow> = sqlx::query_as(HISTORY)
            .bind(signed(filter.below))
            .bind(filter.from)
            .bind(filter.to)
            .bind(i64::from(limit))
            .fetch_all(&self.reads)
            .await?;
        let decode = |row: ListedKeyRow| Ok((unsigned(row.listed)?, row.version.decode()?));
        pair(rows.into_iter().map(decode))
    }

    /// See [`crate::ledger::Ledger::key`].
    pub async fn key(&self, id: Uuid) -> Result<Option<Key>, LedgerError> {
        let mut connection = self.reads.acquire().await?;
        last_version(&mut connection, id).await
    }

    /// See [`crate::ledger::Ledger::keys`].
    pub async fn keys(&self, before: Uuid, limit: u32) -> Result<Vec<Key>, LedgerError> {
        let rows: Vec<KeyRow> = sqlx::query_as(versions_where!(
            "k.id < $1 AND v.version = (SELECT MAX(version) FROM key_versions WHERE key = v.key)
             ORDER BY k.id DESC LIMIT $2"
        ))
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&self.reads)
        .await?;
        rows.into_iter().map(KeyRow::decode).collect()
    }
}

/// Takes the next revision. The row's lock lets changes through one by one, so that revisions
/// become visible in their order, and what is read afterwards stays so until the commit.
async fn next_revision(connection: &mut PgConnection) -> Result<i64, LedgerError> {
    let revision =
        sqlx::query_scalar("UPDATE ledger SET revision = revision + 1 RETURNING revision");
    Ok(revision.fetch_one(connection).await?)
}

async fn last_version(connection: &mut PgConnection, id: Uuid) -> Result<Option<Key>, LedgerError> {
    let row: Option<KeyRow> =
        sqlx::query_as(versions_where!("k.id = $1 ORDER BY v.version DESC LIMIT 1"))
            .bind(id)
            .fetch_optional(connection)
            .await?;
    row.map(KeyRow::decode).transpose()
}

async fn insert_key(
    connection: &mut PgConnection,
    key: &Key,
    secret_hash: &SecretHash,
    revision: i64,
) -> Result<(), LedgerError> {
    sqlx::query(
        "INSERT INTO keys (id, number, secret_hash, created_at)
         VALUES ($1, (SELECT COALESCE(MAX(number), 0) + 1 FROM keys), $2, $3)",
    )
    .bind(key.id)
    .bind(secret_hash.as_slice())
    .bind(key.created_at)
    .execute(&mut *connection)
    .await?;
    insert_version(connection, key, revision).await
}

async fn insert_version(
    connection: &mut PgConnection,
    key: &Key,
    revision: i64,
) -> Result<(), LedgerError> {
    sqlx::query(
        "INSERT INTO key_versions
             (key, version, revision, name, role, policies, ends_at, revoked, changed_at,
              changed_by, reason)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(key.id)
    .bind(i64::from(key.version))
    .bind(revision)
    .bind(&key.rule.name)
    .bind(key.rule.role.as_str())
    .bind(key.rule.policies.as_deref().map(encode_names))
    .bind(key.rule.ends_at)
    .bind(key.rule.revoked)
    .bind(key.changed_at)
    .bind(&key.changed_by)
    .bind(&key.reason)
    .execute(connection)
    .await?;
    Ok(())
}
