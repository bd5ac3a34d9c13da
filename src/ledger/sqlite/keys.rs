//! API keys: hashes of their secrets.

use uuid::Uuid;

use super::{Store, decode_instant};
use crate::ledger::{KeyRecord, LedgerError, decode_hash};

#[derive(sqlx::FromRow)]
struct KeyRow {
    id: Uuid,
    name: String,
    role: String,
    secret_hash: Vec<u8>,
    created_at: i64,
}

impl Store {
    /// See [`crate::ledger::Ledger::keys`].
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, LedgerError> {
        let rows: Vec<KeyRow> =
            sqlx::query_as("SELECT id, name, role, secret_hash, created_at FROM keys ORDER BY id")
                .fetch_all(&self.readers)
                .await?;
        rows.into_iter()
            .map(|row| {
                Ok(KeyRecord {
                    id: row.id,
                    name: row.name,
                    role: row.role,
                    secret_hash: decode_hash(&row.secret_hash)?,
                    created_at: decode_instant(row.created_at)?,
                })
            })
            .collect()
    }

    /// See [`crate::ledger::Ledger::add_first_key`].
    pub async fn add_first_key(&self, key: &KeyRecord) -> Result<bool, LedgerError> {
        let added = sqlx::query(
            "INSERT INTO keys (id, name, role, secret_hash, created_at)
             SELECT $1, $2, $3, $4, $5 WHERE NOT EXISTS (SELECT 1 FROM keys)",
        )
        .bind(key.id)
        .bind(&key.name)
        .bind(&key.role)
        .bind(key.secret_hash.as_slice())
        .bind(key.created_at.timestamp_micros())
        .execute(&self.writer)
        .await?;
        Ok(added.rows_affected() > 0)
    }
}
