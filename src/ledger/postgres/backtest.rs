//! A policy's entries, as a backtest reads them.

use std::collections::HashMap;

use uuid::Uuid;

use super::Snapshot;
use crate::domain::backtest::Replayed;
use crate::domain::claim::Units;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::PolicyId;
use crate::ledger::LedgerError;

#[derive(sqlx::FromRow)]
struct ReplayedRow {
    account: Uuid,
    id: Uuid,
    units: i64,
}

impl ReplayedRow {
    fn decode(self) -> Result<Replayed, LedgerError> {
        let units = Units::new(self.units.into())
            .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
        Ok(Replayed {
            account: AccountId(self.account),
            id: EntryId(self.id),
            units,
        })
    }
}

impl Snapshot {
    /// See [`crate::ledger::Snapshot::replayed`].
    pub async fn replayed(
        &mut self,
        policy: PolicyId,
        from: EntryId,
        to: EntryId,
        limit: u32,
    ) -> Result<Vec<Replayed>, LedgerError> {
        let rows: Vec<ReplayedRow> = sqlx::query_as(
            "SELECT account, id, units FROM entries
             WHERE policy = $1 AND id >= $2 AND id < $3 AND kind = 1
             ORDER BY policy, id LIMIT $4",
        )
        .bind(policy.0)
        .bind(from.0)
        .bind(to.0)
        .bind(i64::from(limit))
        .fetch_all(&mut *self.0)
        .await?;
        rows.into_iter().map(ReplayedRow::decode).collect()
    }

    /// See [`crate::ledger::Snapshot::subjects`].
    pub async fn subjects(
        &mut self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, String>, LedgerError> {
        let accounts: Vec<Uuid> = accounts.iter().map(|account| account.0).collect();
        let rows: Vec<(Uuid, String)> = sqlx::query_as(
            "SELECT id, subject FROM accounts
             WHERE id = ANY($1) AND subject IS NOT NULL",
        )
        .bind(accounts)
        .fetch_all(&mut *self.0)
        .await?;
        let subject = |(id, subject)| (AccountId(id), subject);
        Ok(rows.into_iter().map(subject).collect())
    }
}
