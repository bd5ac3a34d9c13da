//! The subject of a list: policies, accounts, keys.

use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use crate::Record;
use crate::cursor::InvalidCursor;
use claims::instance::{Failure, Place};
use domain::claim::Subject;
use domain::identity::AccountId;
use domain::key::KeyNumber;
use domain::policy::{Policy, PolicyName};
use ledger::LedgerError;

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
    #[error("the policy has no such limit: write one that it has, such as day")]
    NoSuchLimit,
    #[error(
        "no version of the policy has such windows of the calendar: write one that it has, or minute, hour, day, \
         week, month, quarter or year"
    )]
    NoSuchWindows,
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

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListFailure {
    /// There never was a policy with this name.
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    /// The policy does not exist or is archived, and this list needs an active one.
    #[error("there is no policy {0}, or it is archived")]
    UnknownOrArchived(PolicyName),
    /// The cursor belongs to another list.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// The filter with this name makes no sense here.
    #[error("{0}: {1}")]
    Misfit(&'static str, Misfit),
    /// Too many exports and backtests run.
    #[error("too many exports and backtests are under way")]
    Overloaded,
    /// The caller has too many reads in progress.
    #[error("too many reads of this caller are under way")]
    NoPlace,
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl From<LedgerError> for ListFailure {
    fn from(error: LedgerError) -> Self {
        Failure::from(error).into()
    }
}

impl Record {
    /// A place for an export or a backtest.
    ///
    /// # Errors
    /// [`ListFailure::Overloaded`].
    pub(crate) async fn long_place(&self, caller: &Arc<str>) -> Result<Place, ListFailure> {
        let place = self.callers.long_place(caller).await;
        place.ok_or(ListFailure::Overloaded)
    }

    /// The policy of a list, archived or not.
    ///
    /// # Errors
    /// [`ListFailure::UnknownPolicy`] and [`ListFailure::Failure`].
    pub(crate) async fn listed_policy(
        &self,
        name: &PolicyName,
    ) -> Result<Arc<Policy>, ListFailure> {
        let policy = self.instance.known_policy(name, Instant::now()).await?;
        policy.ok_or_else(|| ListFailure::UnknownPolicy(name.clone()))
    }

    /// The policy of a list, or all policies, archived or not. Includes a policy that another
    /// instance made a moment ago.
    ///
    /// # Errors
    /// As [`Record::listed_policy`].
    pub(crate) async fn listed_policies(
        &self,
        name: Option<&PolicyName>,
    ) -> Result<Vec<Arc<Policy>>, ListFailure> {
        match name {
            Some(name) => Ok(vec![self.listed_policy(name).await?]),
            None => {
                self.instance.learn_unknown(Instant::now()).await?;
                let policies = self.instance.policies.terms.all(self.instance.clock.now());
                Ok(policies.map_err(|terms| Failure::from(LedgerError::from(terms)))?)
            }
        }
    }

    /// The number that entries store for a key.
    ///
    /// # Errors
    /// [`ListFailure::Misfit`] for an unknown key; [`ListFailure::Failure`].
    pub(crate) async fn listed_key(&self, by: MadeBy) -> Result<KeyNumber, ListFailure> {
        let MadeBy::Key(id) = by else {
            return Ok(KeyNumber::OF_SETTINGS);
        };
        let number = self.ledger.admin().key_number(id).await?;
        number.ok_or(ListFailure::Misfit("by", Misfit::UnknownKey))
    }

    /// A subject's accounts, under a policy or under all.
    ///
    /// # Errors
    /// As [`Record::listed_policy`].
    pub(crate) async fn listed_accounts(
        &self,
        subject: &Subject,
        policy: Option<&PolicyName>,
    ) -> Result<Vec<AccountId>, ListFailure> {
        let policies = self.listed_policies(policy).await?;
        let names = policies.iter().map(|policy| &policy.name);
        Ok(self.instance.accounts_in_view(names, subject).await?)
    }
}
