//! The subject of a list: policies, accounts, keys.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Engine, Failure, ListFailure};
use crate::domain::claim::Subject;
use crate::domain::identity::AccountId;
use crate::domain::key::KeyNumber;
use crate::domain::policy::{Policy, PolicyName};
use crate::ledger::LedgerError;

/// Whose key claimed or corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeBy {
    /// The admin key of the settings.
    Settings,
    /// The key with this id.
    Key(Uuid),
}

/// The longest span, in days, in which entries are searched by metadata. Metadata has no index.
pub const METADATA_DAYS_MOST: i64 = 92;

/// Why a filter makes no sense here. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    #[error("a local day needs a policy: name the policy too")]
    DayWithoutPolicy,
    #[error("the record ends at position {0}: write this position or a lower one")]
    PositionToCome(u64),
    #[error("this lies in the future: write the present instant or an earlier one")]
    InstantToCome,
    #[error("name the policy, and a span of at most {METADATA_DAYS_MOST} days: on, or from and to")]
    MetadataWithoutSpan,
    #[error("there is no key with this id")]
    UnknownKey,
    #[error(
        "figures are of whole days: write a date, or the instant at which a local day of the policy begins"
    )]
    WithinADay,
    #[error(
        "this is not after the beginning of the span, so nothing can match: write the day after the last \
         day, or a later instant"
    )]
    EmptySpan,
}

impl Engine {
    /// The policy of a list, archived or not.
    ///
    /// # Errors
    /// [`ListFailure::UnknownPolicy`] and [`ListFailure::Failure`].
    pub(in crate::engine) async fn listed_policy(
        &self,
        name: &PolicyName,
    ) -> Result<Arc<Policy>, ListFailure> {
        let policy = self.known_policy(name, Instant::now()).await?;
        policy.ok_or_else(|| ListFailure::UnknownPolicy(name.clone()))
    }

    /// The policy of a list, or all policies, archived or not. Includes a policy that another
    /// instance made a moment ago.
    ///
    /// # Errors
    /// As [`Engine::listed_policy`].
    pub(in crate::engine) async fn listed_policies(
        &self,
        name: Option<&PolicyName>,
    ) -> Result<Vec<Arc<Policy>>, ListFailure> {
        match name {
            Some(name) => Ok(vec![self.listed_policy(name).await?]),
            None => {
                self.learn_unknown(Instant::now()).await?;
                let policies = self.policies.terms.all(self.clock.now());
                Ok(policies.map_err(|terms| Failure::from(LedgerError::from(terms)))?)
            }
        }
    }

    /// The number that entries store for a key.
    ///
    /// # Errors
    /// [`ListFailure::Misfit`] for an unknown key; [`ListFailure::Failure`].
    pub(in crate::engine) async fn listed_key(&self, by: MadeBy) -> Result<KeyNumber, ListFailure> {
        let MadeBy::Key(id) = by else {
            return Ok(KeyNumber::OF_SETTINGS);
        };
        let number = self.ledger.key_number(id).await?;
        number.ok_or(ListFailure::Misfit("by", Misfit::UnknownKey))
    }

    /// A subject's accounts, under a policy or under all.
    ///
    /// # Errors
    /// As [`Engine::listed_policy`].
    pub(in crate::engine) async fn listed_accounts(
        &self,
        subject: &Subject,
        policy: Option<&PolicyName>,
    ) -> Result<Vec<AccountId>, ListFailure> {
        let mut accounts = Vec::new();
        for policy in self.listed_policies(policy).await? {
            accounts.push(self.account_in_view(&policy.name, subject).await?);
        }
        Ok(accounts)
    }

    /// The account under which views show a subject. For an erased subject: an account that nobody
    /// has.
    ///
    /// # Errors
    /// [`Failure::Ledger`].
    pub(in crate::engine) async fn account_in_view(
        &self,
        policy: &PolicyName,
        subject: &Subject,
    ) -> Result<AccountId, Failure> {
        let account = self.ledger.identity().account(policy, subject);
        let is_hidden = self.ledger.is_hidden(account).await?;
        Ok(if is_hidden {
            AccountId::OF_NOBODY
        } else {
            account
        })
    }
}
