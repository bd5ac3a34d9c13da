//! Unknown policies and keys. Another instance may have created them a moment ago, so the ledger is
//! read before a client hears that a policy or key does not exist.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::access::Recognition;
use crate::domain::policy::{Policy, PolicyName};
use crate::engine::{Engine, Failure, Principal};
use crate::ledger::LedgerError;

/// The pause before the ledger is read again after a failure.
pub const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Engine {
    /// The active version of a policy, archived or not, for a request that came at an instant;
    /// `None` if the ledger has no such policy.
    ///
    /// # Errors
    /// [`Failure`] if the ledger did not answer before the deadline.
    pub(in crate::engine) async fn known_policy(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Option<Arc<Policy>>, Failure> {
        self.find_policy(name, came, |_| true).await
    }

    /// As [`Engine::known_policy`], for a request that an archived policy refuses: the policy may
    /// have been revived meanwhile.
    ///
    /// # Errors
    /// [`Failure`] if the ledger did not answer before the deadline.
    pub(in crate::engine) async fn usable_policy(
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
    pub(in crate::engine) async fn learn_unknown(&self, came: Instant) -> Result<(), Failure> {
        if self.watch.ledger_is_silent() {
            return Err(Failure::Silent);
        }
        let policies = self.policies.clone();
        let ledger = self.ledger.clone();
        let metrics = self.metrics.clone();
        let work = async move {
            let note = || metrics.unknown_read();
            policies.learn_all_before(came, &ledger, note).await
        };
        let deadline = came + self.claim_deadline;
        match timeout_at(deadline, self.detached(work)).await {
            Ok(read) => Ok(read??),
            Err(_) => Err(Failure::Silent),
        }
    }

    /// The owner of a secret, if its key is valid now.
    ///
    /// # Errors
    /// [`Failure`] if only the ledger can tell, and the ledger does not answer.
    pub async fn authenticate(&self, secret: &str) -> Result<Option<Principal>, Failure> {
        let came = Instant::now();
        self.know_keys().await;
        match self.access.authenticate(secret, self.clock.now()) {
            Recognition::Valid(principal) => return Ok(Some(principal)),
            Recognition::Wrong => return Ok(None),
            Recognition::Unknown => {}
        }
        let learned = self.learn_unknown(came).await;
        match self.access.authenticate(secret, self.clock.now()) {
            // Keys are read before policies: a policy that cannot be read locks nobody out.
            Recognition::Valid(principal) => Ok(Some(principal)),
            Recognition::Wrong | Recognition::Unknown => learned.map(|()| None),
        }
    }

    /// Makes sure that this instance knows keys that were revoked a second ago, even after a pause
    /// of the process. While the ledger does not answer, the known keys stay valid.
    pub(super) async fn know_keys(&self) {
        if self.policies.are_fresh() || self.watch.ledger_is_silent() {
            return;
        }
        let policies = self.policies.clone();
        let ledger = self.ledger.clone();
        let watch = self.watch.clone();
        // Reads until everything is fresh, or the ledger is found silent. One failure does not mean
        // silence: a connection may have broken during a pause of the process.
        let freshen = async move {
            let is_silent = || watch.ledger_is_silent();
            while !policies.are_fresh() && !is_silent() {
                match policies.freshen(&ledger, is_silent).await {
                    Ok(()) | Err(LedgerError::Corrupt(_)) => return,
                    Err(_) => sleep(READ_AGAIN_AFTER).await,
                }
            }
        };
        // The watcher reports problems of the ledger, and claims find them by themselves.
        drop(self.detached(freshen).await);
    }
}
