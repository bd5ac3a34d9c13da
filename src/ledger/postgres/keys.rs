//! API keys: hashes of their secrets.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Store;
use crate::ledger::{KeyRecord, LedgerError, decode_hash};

#[derive(sqlx::FromRow)]
struct KeyRow {
    id: Uuid,
    name: String,
    role: String,
    secret_hash: Vec<u8>,
    created_at: DateTime<Utc>,
}

impl Store {
    /// See [`crate::ledger::Ledger::keys`].
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, LedgerError> {
        let rows: Vec<KeyRow> =
            sqlx::query_as("SELECT id, name, role, secret_hash, created_at FROM keys ORDER BY id")
                .fetch_all(&self.queries)
                .await?;
        rows.into_iter()
            .map(|row| {
                Ok(KeyRecord {
                    id: row.id,
                    name: row.name,
                    role: row.role,
                    secret_hash: decode_hash(&row.secret_hash)?,
                    created_at: row.created_at,
                })
            })
            .collect()
    }

    /// See [`crate::ledger::Ledger::add_first_key`].
    pub async fn add_first_key(&self, key: &KeyRecord) -> Result<bool, LedgerError> {
        let mut transaction = self.queries.begin().await?;
        sqlx::query("LOCK TABLE keys IN EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await?;
        let added = sqlx::query(
            "INSERT INTO keys (id, name, role, secret_hash, created_at)
             SELECT $1, $2, $3, $4, $5 WHERE NOT EXISTS (SELECT FROM keys)",
        )
        .bind(key.id)
        .bind(&key.name)
        .bind(&key.role)
        .bind(key.secret_hash.as_slice())
        .bind(key.created_at)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(added.rows_affected() > 0)
    }
}
