//! The history of changes: each version of a policy, override or key beside the one before it.

use std::cmp::Reverse;

use super::versions::{Changed, HistoryFilter};
use crate::domain::key::Key;
use crate::domain::overrides::Override;
use crate::domain::policy::{Policy, PolicyName};
use crate::ledger::{Ledger, LedgerError};

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PastChange {
    Policy(Changed<Policy>),
    Override(Changed<(PolicyName, Override)>),
    Key(Changed<Key>),
}

impl PastChange {
    /// The number of the change in the ledger's order of changes.
    pub fn revision(&self) -> u64 {
        match self {
            Self::Policy(changed) => changed.revision,
            Self::Override(changed) => changed.revision,
            Self::Key(changed) => changed.revision,
        }
    }
}

impl Ledger {
    /// The changes of policies, overrides and keys, newest first, at most `limit`.
    pub async fn changes(
        &self,
        mut filter: HistoryFilter,
        limit: u32,
    ) -> Result<Vec<PastChange>, LedgerError> {
        // All changes up to this one are visible: none appears among them later, so that the
        // three lists belong together.
        let newest = self.revision().await?;
        filter.below = filter.below.min(newest.saturating_add(1));
        let policies = self.policy_history(&filter, limit).await?.into_iter();
        let overrides = self.override_history(&filter, limit).await?.into_iter();
        let keys = match filter.policy {
            // A key is of no policy.
            Some(_) => Vec::new(),
            None => self.key_history(&filter, limit).await?,
        };
        let mut changes: Vec<PastChange> = policies
            .map(PastChange::Policy)
            .chain(overrides.map(PastChange::Override))
            .chain(keys.into_iter().map(PastChange::Key))
            .collect();
        changes.sort_unstable_by_key(|change| Reverse(change.revision()));
        changes.truncate(limit as usize);
        Ok(changes)
    }
}
