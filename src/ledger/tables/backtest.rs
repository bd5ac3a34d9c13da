//! A policy's entries, for a backtest.

use std::collections::HashMap;

use super::grants::{postgres_quarter, sqlite_quarter};
use crate::domain::backtest::Replayed;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::PolicyId;
use crate::ledger::LedgerError;
use crate::ledger::access::Snapshot;
use crate::ledger::encoding::{decode_kind, grant_kind};
use crate::ledger::entry_rows::with_details;
use crate::ledger::query::{Texts, any_id, query};
use crate::ledger::row::StoredRow;

fn decode(row: &StoredRow<'_>) -> Result<Replayed, LedgerError> {
    Ok(Replayed {
        account: row.get("account")?,
        id: row.get("id")?,
        kind: decode_kind(row.get("kind")?, row.get("of_grant")?, None)?,
        units: row.get("units")?,
        is_given_back: row.get("is_given_back")?,
    })
}

/// A subquery with LIMIT: for EXISTS, PostgreSQL would hash all reversals again for each page.
macro_rules! replayed {
    ($quarter:ident) => {
        concat!(
            "SELECT e.account, e.id, e.kind, d.of_grant, e.units, e.kind = ",
            grant_kind!(),
            " AND (
                 SELECT id FROM entry_details WHERE of_grant = e.id
                     AND kind IN (SELECT kind FROM entry_kinds WHERE sign < 0) LIMIT 1
             ) IS NOT NULL AS is_given_back
             FROM (
                 SELECT * FROM entries WHERE policy = $1 AND id >= $2 AND id < $3 AND ",
            $quarter!("id"),
            " BETWEEN ",
            $quarter!("$2"),
            " AND ",
            $quarter!("$3"),
            " ORDER BY policy, ",
            $quarter!("id"),
            ", id LIMIT $4
             ) AS e",
            with_details!(),
            "ORDER BY e.id"
        )
    };
}

const REPLAYED: Texts = Texts {
    postgres: replayed!(postgres_quarter),
    sqlite: replayed!(sqlite_quarter),
};

macro_rules! subjects {
    ($of_these:expr) => {
        concat!(
            "SELECT id, subject FROM accounts WHERE id",
            $of_these,
            " AND subject IS NOT NULL"
        )
    };
}

const SUBJECTS: Texts = any_id!(subjects, "$1");

impl Snapshot {
    /// A policy's entries with ids in `[from, to)`, in order, at most `limit`.
    pub async fn replayed(
        &mut self,
        policy: PolicyId,
        from: EntryId,
        to: EntryId,
        limit: u32,
    ) -> Result<Vec<Replayed>, LedgerError> {
        let entries = query(REPLAYED).bind(policy).bind(from).bind(to).bind(limit);
        self.0.lend().all(entries, decode).await
    }

    /// The subjects of accounts. An erased subject is left out.
    pub async fn subjects(
        &mut self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, String>, LedgerError> {
        let subject = |row: &StoredRow<'_>| Ok((row.get("id")?, row.get("subject")?));
        let subjects = query(SUBJECTS).bind(accounts);
        let subjects = self.0.lend().all(subjects, subject).await?;
        Ok(subjects.into_iter().collect())
    }
}
