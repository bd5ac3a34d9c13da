//! Changes of policies and overrides: each is a version, and all versions are in one order.

use chrono::{DateTime, Utc};

use super::{Ledger, LedgerError, store};
use crate::domain::claim::Subject;
use crate::domain::identity::AccountId;
use crate::domain::overrides::{Override, OverrideTerms};
use crate::domain::policy::{Policy, PolicyId, PolicyName, Rule};

/// What a change makes of a policy.
#[derive(Debug)]
pub enum Change {
    /// Nothing: it is so already.
    Keep,
    /// A new version.
    Version {
        /// What it says.
        rule: Rule,
        /// Whether it takes no more claims.
        archived: bool,
        /// From when on.
        effective_at: DateTime<Utc>,
        /// Why.
        reason: Option<String>,
    },
}

/// A policy as it stands at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its last version, which may still wait for its time.
    pub newest: Policy,
    /// The version in force.
    pub in_force: Policy,
}

/// What a change makes of an override.
#[derive(Debug)]
pub enum OverrideChange {
    /// Nothing: it is so already.
    Keep,
    /// A new version.
    Version {
        /// What it says; `None` deletes it.
        terms: Option<OverrideTerms>,
        /// Why.
        reason: Option<String>,
    },
}

/// A change of an override that was made, or that was found made already.
#[derive(Debug)]
pub struct EditedOverride {
    /// The version before; `None` for the first one.
    pub before: Option<Override>,
    /// The version now.
    pub after: Override,
}

/// A change of a policy that was made, or that was found made already.
#[derive(Debug)]
pub struct Edited {
    /// The newest version before; `None` for a new policy.
    pub before: Option<Policy>,
    /// How it stands now.
    pub after: Standing,
}

impl Edited {
    /// What a policy is left with that is so already.
    pub(super) fn kept(standing: Standing) -> Self {
        Self {
            before: Some(standing.newest.clone()),
            after: standing,
        }
    }

    /// What a policy becomes by a version that was made at an instant.
    pub(super) fn made(before: Option<Standing>, newest: Policy, at: DateTime<Utc>) -> Self {
        let in_force = match &before {
            Some(before) if !newest.has_effect(at) => before.in_force.clone(),
            Some(_) | None => newest.clone(),
        };
        Self {
            before: before.map(|before| before.newest),
            after: Standing { newest, in_force },
        }
    }
}

impl Ledger {
    /// The number of the last change of a policy, override or key. It grows by each change, and
    /// changes are visible in its order.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn revision(&self) -> Result<u64, LedgerError> {
        store!(self, store => store.revision().await)
    }

    /// The versions of policies that came after a revision and up to another, in order.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn policies_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Policy>, LedgerError> {
        store!(self, store => store.policies_between(after, up_to).await)
    }

    /// A policy, archived or not, as it stands at an instant.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn policy(
        &self,
        name: &PolicyName,
        at: DateTime<Utc>,
    ) -> Result<Option<Standing>, LedgerError> {
        store!(self, store => store.policy(name, at).await)
    }

    /// A policy's versions below `before`, newest first, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn versions(
        &self,
        name: &PolicyName,
        before: u32,
        limit: u32,
    ) -> Result<Vec<Policy>, LedgerError> {
        store!(self, store => store.versions(name, before, limit).await)
    }

    /// Policies that are not archived, by name after `after`, at most `limit`; of all, or
    /// `only` of these.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn policies(
        &self,
        only: Option<&[PolicyName]>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Policy>, LedgerError> {
        store!(self, store => store.policies(only, after, limit).await)
    }

    /// Changes a policy as `decide` says, from how it stands when no other change can come
    /// between. The outer error is the ledger's, the inner one is `decide`'s, and on both
    /// nothing was changed. In a dry run nothing is changed either: what would have been made is
    /// taken back.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn edit_policy<E: Send>(
        &self,
        name: &PolicyName,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        dry_run: bool,
        decide: impl Fn(Option<&Standing>) -> Result<Change, E> + Send + Sync,
    ) -> Result<Result<Edited, E>, LedgerError> {
        store!(self, store => store.edit_policy(name, changed_by, changed_at, dry_run, decide).await)
    }

    /// The last versions, up to a revision, of the overrides that changed after another one, in
    /// the order of their changes.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn overrides_between(
        &self,
        after: u64,
        up_to: u64,
    ) -> Result<Vec<Override>, LedgerError> {
        store!(self, store => store.overrides_between(after, up_to).await)
    }

    /// The last version of an account's override, also one that deletes it.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn override_of(&self, account: AccountId) -> Result<Option<Override>, LedgerError> {
        store!(self, store => store.override_of(account).await)
    }

    /// A policy's overrides that are not deleted, by account after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn overrides(
        &self,
        policy: PolicyId,
        after: AccountId,
        limit: u32,
    ) -> Result<Vec<Override>, LedgerError> {
        store!(self, store => store.overrides(policy, after, limit).await)
    }

    /// Changes a subject's override as `decide` says, which gets the policy's last version and
    /// the override's, when no other change can come between. The outer error is the ledger's,
    /// the inner one is `decide`'s, and on both nothing was changed.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn edit_override<E: Send>(
        &self,
        policy: &PolicyName,
        subject: &Subject,
        changed_by: &str,
        changed_at: DateTime<Utc>,
        decide: impl Fn(Option<&Policy>, Option<&Override>) -> Result<OverrideChange, E> + Send + Sync,
    ) -> Result<Result<EditedOverride, E>, LedgerError> {
        let account = self.identity().account(policy, subject);
        let of = (policy, subject, account);
        store!(self, store => store.edit_override(of, changed_by, changed_at, decide).await)
    }
}
