//! A policy's entries, as a backtest reads them.

use std::collections::HashMap;

use uuid::Uuid;

use super::Snapshot;
use super::grants::quarter;
use crate::domain::backtest::Replayed;
use crate::domain::claim::Units;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::PolicyId;
use crate::ledger::LedgerError;
use crate::ledger::record::{decode_kind, kind, with_details};
use crate::ledger::row::row;

row! {
    struct ReplayedRow {
        account: Uuid,
        id: Uuid,
        kind: i16,
        of_grant: Option<Uuid>,
        units: i64,
        is_given_back: bool,
    }
}

impl ReplayedRow {
    fn decode(self) -> Result<Replayed, LedgerError> {
        let units = Units::new(self.units.into())
            .map_err(|error| LedgerError::Corrupt(error.to_string()))?;
        Ok(Replayed {
            account: AccountId(self.account),
            id: EntryId(self.id),
            kind: decode_kind(self.kind, self.of_grant.map(EntryId), None)?,
            units,
            is_given_back: self.is_given_back,
        })
    }
}

/// PostgreSQL would answer EXISTS with a hash of all reversals, made again for each page.
const REPLAYED: &str = concat!(
    "SELECT e.account, e.id, e.kind, d.of_grant, e.units, e.kind = ",
    kind!(GRANT),
    " AND (
         SELECT id FROM entry_details WHERE of_grant = e.id AND kind IN (",
    kind!(REVERSAL),
    ", ",
    kind!(LAPSE),
    ") LIMIT 1
     ) IS NOT NULL AS is_given_back
     FROM (
         SELECT * FROM entries WHERE policy = $1 AND id >= $2 AND id < $3 AND ",
    quarter!("id"),
    " BETWEEN ",
    quarter!("$2::uuid"),
    " AND ",
    quarter!("$3::uuid"),
    " ORDER BY policy, ",
    quarter!("id"),
    ", id LIMIT $4
     ) AS e",
    with_details!(),
    "ORDER BY e.id"
);

impl Snapshot {
    /// See [`crate::ledger::Snapshot::replayed`].
    pub async fn replayed(
        &mut self,
        policy: PolicyId,
        from: EntryId,
        to: EntryId,
        limit: u32,
    ) -> Result<Vec<Replayed>, LedgerError> {
        let rows: Vec<ReplayedRow> = sqlx::query_as(REPLAYED)
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
