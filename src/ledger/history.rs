//! The history of changes: each version of a policy, override or key beside the one before it.

use chrono::{DateTime, Utc};

use super::{Ledger, LedgerError, store};
use crate::domain::key::Key;
use crate::domain::overrides::Override;
use crate::domain::policy::{Policy, PolicyId, PolicyName};

/// Which changes to list.
#[derive(Debug, Clone, Copy)]
pub struct HistoryFilter {
    /// Those of a policy and its overrides; without it, all, also those of keys.
    pub policy: Option<PolicyId>,
    /// Those made at this instant or later.
    pub from: Option<DateTime<Utc>>,
    /// Those made before this instant.
    pub to: Option<DateTime<Utc>>,
    /// Those with a lower revision.
    pub below: u64,
}

/// A version that a change made, and the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed<T> {
    /// The number of the change in the ledger's order of changes.
    pub revision: u64,
    /// The version before; `None` for the first one.
    pub before: Option<T>,
    /// The version that it made.
    pub after: T,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PastChange {
    /// Of a policy.
    Policy(Changed<Policy>),
    /// Of an override of a policy.
    Override(Changed<(PolicyName, Override)>),
    /// Of a key.
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
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn changes(
        &self,
        mut filter: HistoryFilter,
        limit: u32,
    ) -> Result<Vec<PastChange>, LedgerError> {
        // All changes up to this one are visible: none appears among them later, so that the
        // three lists belong together.
        let newest = self.revision().await?;
        filter.below = filter.below.min(newest.saturating_add(1));
        let policies = store!(self, store => store.policy_history(&filter, limit).await?);
        let overrides = store!(self, store => store.override_history(&filter, limit).await?);
        let keys = match filter.policy {
            Some(_) => Vec::new(),
            None => store!(self, store => store.key_history(&filter, limit).await?),
        };
        let policies = policies.into_iter().map(PastChange::Policy);
        let overrides = overrides.into_iter().map(PastChange::Override);
        let keys = keys.into_iter().map(PastChange::Key);
        let mut changes: Vec<PastChange> = policies.chain(overrides).chain(keys).collect();
        changes.sort_unstable_by_key(|change| std::cmp::Reverse(change.revision()));
        changes.truncate(limit as usize);
        Ok(changes)
    }
}

/// Puts versions beside those before them. They come with the revisions that they were listed
/// for: each one's own version first, the one before it, if there is one, next.
pub(super) fn pair<T>(
    listed: impl Iterator<Item = Result<(u64, T), LedgerError>>,
) -> Result<Vec<Changed<T>>, LedgerError> {
    let mut changes: Vec<Changed<T>> = Vec::new();
    for listed in listed {
        let (revision, version) = listed?;
        match changes.last_mut() {
            Some(last) if last.revision == revision => last.before = Some(version),
            _ => changes.push(Changed {
                revision,
                before: None,
                after: version,
            }),
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_beside_those_before_them() {
        let changed = |revision, before, after| Changed {
            revision,
            before,
            after,
        };
        let listed = [(9, "b3"), (9, "b2"), (7, "a1"), (4, "b2"), (4, "b1")];
        let changes = pair(listed.into_iter().map(Ok));
        assert_eq!(
            changes.unwrap(),
            [
                changed(9, Some("b2"), "b3"),
                changed(7, None, "a1"),
                changed(4, Some("b1"), "b2"),
            ]
        );
    }
}
