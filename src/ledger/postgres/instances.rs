//! The instances that share the ledger, and its clock.

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::Store;
use crate::ledger::LedgerError;

impl Store {
    /// See [`crate::ledger::Ledger::clock_offset`].
    pub async fn clock_offset(&self, now: DateTime<Utc>) -> Result<TimeDelta, LedgerError> {
        let clock = sqlx::query_scalar("SELECT clock_timestamp()");
        let theirs: DateTime<Utc> = self
            .polled(async |connection| clock.fetch_one(connection).await)
            .await?;
        Ok(now - theirs)
    }

    /// See [`crate::ledger::Ledger::report_instance`].
    pub async fn report_instance(
        &self,
        id: Uuid,
        zone_rules: &str,
        now: DateTime<Utc>,
        forget: DateTime<Utc>,
    ) -> Result<Vec<String>, LedgerError> {
        self.polled(async |connection| {
            sqlx::query("DELETE FROM instances WHERE seen_at < $1")
                .bind(forget)
                .execute(&mut *connection)
                .await?;
            sqlx::query(
                "INSERT INTO instances (id, zone_rules, seen_at) VALUES ($1, $2, $3)
                 ON CONFLICT (id) DO UPDATE SET seen_at = EXCLUDED.seen_at",
            )
            .bind(id)
            .bind(zone_rules)
            .bind(now)
            .execute(&mut *connection)
            .await?;
            sqlx::query_scalar("SELECT zone_rules FROM instances WHERE id <> $1")
                .bind(id)
                .fetch_all(connection)
                .await
        })
        .await
    }
}
