//! Unknown policies and keys. Another instance may have created them a moment ago, so the ledger is
//! read before a client hears that a policy or key does not exist.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Instance;
use super::failure::Failure;
use domain::claim::Subject;
use domain::identity::AccountId;
use domain::policy::{Policy, PolicyName};
use ledger::LedgerError;

/// The pause before the ledger is read again after a failure.
pub const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Instance {
    /// The active version of a policy, archived or not, for a request that came at an instant;
    /// `None` if the ledger has no such policy.
    ///
    /// # Errors
    /// [`Failure`] if the ledger did not answer before the deadline.
    pub async fn known_policy(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Option<Arc<Policy>>, Failure> {
        self.find_policy(name, came, |_| true).await
    }

    /// As [`Instance::known_policy`], for a request that an archived policy refuses: the policy may
    /// have been revived meanwhile.
    ///
    /// # Errors
    /// [`Failure`] if the ledger did not answer before the deadline.
    pub async fn usable_policy(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Option<Arc<Policy>>, Failure> {
        self.find_policy(name, came, |policy| !policy.archived)
            .await
    }

    /// Every claim comes through here: nothing waits if the memory has the policy.
    async fn find_policy(
        &self,
        name: &PolicyName,
        came: Instant,
        is_enough: fn(&Policy) -> bool,
    ) -> Result<Option<Arc<Policy>>, Failure> {
        let policy = self.known_here(name)?;
        if policy.as_deref().is_some_and(is_enough) {
            return Ok(policy);
        }
        self.learn_unknown(came).await?;
        self.known_here(name)
    }

    fn known_here(&self, name: &PolicyName) -> Result<Option<Arc<Policy>>, Failure> {
        let policy = self.policies.terms.get(name, self.clock.now());
        policy.map_err(|terms| LedgerError::from(terms).into())
    }

    /// Reads everything that was committed before a request came. Fails at the deadline of the
    /// claim.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn learn_unknown(&self, came: Instant) -> Result<(), Failure> {
        if self.watch.ledger_is_silent() {
            return Err(Failure::Silent);
        }
        let policies = self.policies.clone();
        let metrics = self.metrics.clone();
        let work = async move {
            let note = || metrics.unknown_read();
            policies.learn_all_before(came, note).await
        };
        let deadline = came + self.claim_time;
        match timeout_at(deadline, self.detached(work)).await {
            Ok(read) => Ok(read??),
            Err(_) => Err(Failure::Silent),
        }
    }

    /// The policies that are not archived, of those that a caller is confined to. Includes a policy that another
    /// instance made a moment ago.
    ///
    /// # Errors
    /// As [`Instance::learn_unknown`].
    pub async fn policies_in_use(
        &self,
        confined_to: Option<&[PolicyName]>,
    ) -> Result<Vec<Arc<Policy>>, Failure> {
        self.learn_unknown(Instant::now()).await?;
        let is_allowed = |name: &PolicyName| confined_to.is_none_or(|names| names.contains(name));
        let mut policies = self.policies.terms.readable(self.now());
        policies.retain(|policy| is_allowed(&policy.name) && !policy.archived);
        Ok(policies)
    }

    /// The account under which views show a subject. For an erased subject: an account that nobody
    /// has.
    ///
    /// # Errors
    /// [`Failure::Ledger`].
    pub async fn account_in_view(
        &self,
        policy: &PolicyName,
        subject: &Subject,
    ) -> Result<AccountId, Failure> {
        let accounts = self.accounts_in_view([policy], subject).await?;
        Ok(accounts[0])
    }

    /// As [`Instance::account_in_view`], under several policies, in their order.
    ///
    /// # Errors
    /// [`Failure::Ledger`].
    pub async fn accounts_in_view(
        &self,
        policies: impl IntoIterator<Item = &PolicyName>,
        subject: &Subject,
    ) -> Result<Vec<AccountId>, Failure> {
        let identity = self.ledger.identity();
        let accounts = policies.into_iter();
        let accounts = accounts.map(|policy| identity.account(policy, subject));
        let mut accounts: Vec<AccountId> = accounts.collect();
        let hidden = self.ledger.hidden(&accounts).await?;
        for account in accounts.iter_mut().filter(|it| hidden.contains(it)) {
            *account = AccountId::OF_NOBODY;
        }
        Ok(accounts)
    }
}
