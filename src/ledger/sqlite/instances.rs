//! The instances that share the ledger, and its clock.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{Store, decode_instant};
use crate::ledger::LedgerError;

impl Store {
    /// See [`crate::ledger::Ledger::clock_offset`].
    pub async fn clock_offset(&self, now: DateTime<Utc>) -> Result<TimeDelta, LedgerError> {
        let newest: Option<i64> =
            sqlx::query_scalar("SELECT at FROM entries ORDER BY id DESC LIMIT 1")
                .fetch_optional(&self.own)
                .await?;
        let behind = match newest {
            Some(micros) => now - decode_instant(micros)?,
            None => TimeDelta::zero(),
        };
        Ok(behind.min(TimeDelta::zero()))
    }

    /// See [`crate::ledger::Ledger::report_instance`].
    pub async fn report_instance(
        &self,
        id: Uuid,
        zone_rules: &str,
        now: DateTime<Utc>,
        forget: DateTime<Utc>,
    ) -> Result<Vec<String>, LedgerError> {
        self.writer
            .run(async |connection| {
                sqlx::query("DELETE FROM instances WHERE seen_at < $1")
                    .bind(forget.timestamp_micros())
                    .execute(&mut *connection)
                    .await?;
                sqlx::query(
                    "INSERT INTO instances (id, zone_rules, seen_at) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE SET seen_at = EXCLUDED.seen_at",
                )
                .bind(id)
                .bind(zone_rules)
                .bind(now.timestamp_micros())
                .execute(connection)
                .await?;
                Ok::<_, sqlx::Error>(())
            })
            .await?;
        let others = sqlx::query_scalar("SELECT zone_rules FROM instances WHERE id <> $1")
            .bind(id)
            .fetch_all(&self.own)
            .await?;
        Ok(others)
    }
}
