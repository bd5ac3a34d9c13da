//! One consistent view of the entries.

use std::collections::HashMap;

use super::{GrantFilter, LedgerError, postgres, sqlite};
use crate::domain::backtest::Replayed;
use crate::domain::grant::Grant;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::PolicyId;

/// One consistent view of the entries, for an export or a backtest.
pub enum Snapshot {
    /// PostgreSQL's.
    Postgres(postgres::Snapshot),
    /// SQLite's.
    Sqlite(sqlite::Snapshot),
}

impl Snapshot {
    /// As [`super::Ledger::grants`], as of when the snapshot began.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn grants(
        &mut self,
        filter: &GrantFilter,
        limit: u32,
    ) -> Result<Vec<Grant>, LedgerError> {
        match self {
            Self::Postgres(snapshot) => snapshot.grants(filter, limit).await,
            Self::Sqlite(snapshot) => snapshot.grants(filter, limit).await,
        }
    }

    /// A policy's entries with ids in `[from, to)`, in their order, at most `limit`, for a
    /// backtest.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn replayed(
        &mut self,
        policy: PolicyId,
        from: EntryId,
        to: EntryId,
        limit: u32,
    ) -> Result<Vec<Replayed>, LedgerError> {
        match self {
            Self::Postgres(snapshot) => snapshot.replayed(policy, from, to, limit).await,
            Self::Sqlite(snapshot) => snapshot.replayed(policy, from, to, limit).await,
        }
    }

    /// The subjects of accounts; one that was erased is not among them.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn subjects(
        &mut self,
        accounts: &[AccountId],
    ) -> Result<HashMap<AccountId, String>, LedgerError> {
        match self {
            Self::Postgres(snapshot) => snapshot.subjects(accounts).await,
            Self::Sqlite(snapshot) => snapshot.subjects(accounts).await,
        }
    }
}
