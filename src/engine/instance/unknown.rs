//! What this instance does not know. Another instance may have made it a moment ago, so the
//! ledger is asked before anyone is told that there is no such policy or key.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::access::Recognition;
use crate::domain::policy::{Policy, PolicyName};
use crate::engine::{Engine, Failure, Principal};
use crate::ledger::LedgerError;

/// How soon the ledger is read again after a failure.
pub const READ_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Engine {
    /// The version of a policy that is in force, archived or not, for a request that came at
    /// an instant; `None` where the ledger has no such policy.
    ///
    /// # Errors
    /// [`Failure`] where the ledger did not tell before the deadline.
    pub(in crate::engine) async fn known_policy(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Option<Arc<Policy>>, Failure> {
        self.find_policy(name, came, |_| true).await
    }

    /// As [`Engine::known_policy`], for a request that an archived policy refuses: the policy may
    /// have been revived.
    ///
    /// # Errors
    /// [`Failure`] where the ledger did not tell before the deadline.
    pub(in crate::engine) async fn usable_policy(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Option<Arc<Policy>>, Failure> {
        self.find_policy(name, came, |policy| !policy.archived)
            .await
    }

    /// A claim comes along here: nothing waits where memory has the policy.
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

    /// Learns all that was committed before a request came, or fails at the claim's deadline.
    ///
    /// # Errors
    /// [`Failure`].
    pub(in crate::engine) async fn learn_unknown(&self, came: Instant) -> Result<(), Failure> {
        if self.watch.ledger_is_silent() {
            return Err(Failure::Silent);
        }
        let (policies, ledger) = (self.policies.clone(), self.ledger.clone());
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

    /// Whose secret it is, if that key is valid now.
    ///
    /// # Errors
    /// [`Failure`] where only the ledger can tell, and does not.
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
            // Keys are read first: a policy that cannot be read keeps nobody out.
            Recognition::Valid(principal) => Ok(Some(principal)),
            Recognition::Wrong | Recognition::Unknown => learned.map(|()| None),
        }
    }

    /// Sees to it that a key that was revoked a second ago is known to be, also at an instance
    /// that was held up. While the ledger does not answer, what is known stands.
    async fn know_keys(&self) {
        if self.policies.are_fresh() || self.watch.ledger_is_silent() {
            return;
        }
        let (policies, ledger) = (self.policies.clone(), self.ledger.clone());
        let watch = self.watch.clone();
        // Reads until all is fresh, or the ledger found silent: one failure, perhaps of a
        // connection that broke while the process was held up, is no silence.
        let freshen = async move {
            let is_silent = || watch.ledger_is_silent();
            while !policies.are_fresh() && !is_silent() {
                match policies.freshen(&ledger, is_silent).await {
                    Ok(()) | Err(LedgerError::Corrupt(_)) => return,
                    Err(_) => sleep(READ_AGAIN_AFTER).await,
                }
            }
        };
        // Whoever polls says what is wrong with the ledger, and claims find out by themselves.
        drop(self.detached(freshen).await);
    }
}
