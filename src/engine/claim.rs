//! A claim's way, and an account's usage.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::pending::{Asked, Outcome, Pending, Undecided, send};
use super::totals::{last_line, totals};
use super::{Engine, Failure};
use crate::domain::account::{Refusal, Sums, Verdict, decide, instant_after, refuse};
use crate::domain::claim::{Claim, Subject, Units};
use crate::domain::grant::Total;
use crate::domain::identity::AccountId;
use crate::domain::overrides::OverrideTerms;
use crate::domain::policy::{Policy, PolicyName};
use crate::faults::reach;
use crate::ledger::{LedgerError, Look};

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub enum ClaimFailure {
    /// There is no such policy.
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    /// A claim with the same key is being decided.
    #[error("a claim with the same key is being decided")]
    InProgress,
    /// It could not be decided exactly.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

/// An account's limits, as they are now.
#[derive(Debug)]
pub struct Usage {
    /// The policy that counts.
    pub policy: Arc<Policy>,
    /// One total a limit.
    pub totals: Vec<Total>,
    /// The subject's override, if one holds.
    pub override_terms: Option<Arc<OverrideTerms>>,
}

impl Engine {
    /// Decides a claim. It ends the same way whether or not anybody waits for the answer.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn claim(&self, policy: &PolicyName, claim: Claim) -> Result<Outcome, ClaimFailure> {
        let came = Instant::now();
        let result = self.decide_claim(policy, claim).await;
        self.metrics.claim_ended(&result, came);
        result
    }

    async fn decide_claim(
        &self,
        policy: &PolicyName,
        claim: Claim,
    ) -> Result<Outcome, ClaimFailure> {
        let now = self.clock.now();
        let policy = self.known_policy(policy, now)?;
        let identity = self.ledger.identity();
        let account = identity.account(&policy.name, &claim.subject);
        let policy = self.policies.terms(&policy, account, None, now);
        if claim.key.is_none()
            && let Some(refusal) = refuse(&policy, claim.units, now)
        {
            // Whatever the account holds; and there is no grant to repeat.
            return Ok(Outcome::Refused(policy, refusal));
        }
        if self.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        let under_way = self.claims_under_way.clone();
        let place = under_way
            .try_acquire_owned()
            .map_err(|_| Undecided::Overloaded)?;
        let key = claim
            .key
            .as_ref()
            .map(|key| identity.key(&policy.name, key));
        let turn = match key {
            None => None,
            Some(key) => Some(
                self.keys_in_progress
                    .begin(key)
                    .ok_or(ClaimFailure::InProgress)?,
            ),
        };
        let now = Instant::now();
        let deadline = now + self.claim_deadline;
        let counts = self
            .counting
            .as_ref()
            .is_some_and(|counting| counting.decides(&policy));
        let may_wait = self.counting.is_some() && policy.rule.may_be_counted();
        let (answer, answered) = oneshot::channel();
        let pending = Pending {
            account,
            policy,
            subject: claim.subject,
            units: claim.units,
            key,
            metadata: claim.metadata,
            nonce: Self::nonce(),
            deadline,
            count_from: now + self.claim_deadline / 2,
            may_be_counted: self.counting.is_some(),
            may_wait,
            sent: None,
            asked: Asked::default(),
            answer,
            turn,
            _place: place,
        };
        let has_counters = self
            .counters
            .as_ref()
            .is_some_and(|counters| counters.is_available());
        let queue = match (counts, has_counters) {
            (true, _) => &self.queues.count,
            (false, true) => &self.queues.ask,
            (false, false) => &self.queues.append,
        };
        reach("claim.received");
        send(queue, pending);
        match timeout_at(deadline, answered).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Err(_) => Err(Undecided::Deadline.into()),
        }
    }

    /// Says what would become of a claim, and changes nothing.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn try_claim(
        self: &Arc<Self>,
        policy: &PolicyName,
        claim: Claim,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.known_policy(policy, self.clock.now())?;
        if self.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        let engine = self.clone();
        let work = async move { engine.rehearse(policy, claim).await };
        let deadline = Instant::now() + self.claim_deadline;
        let result = timeout_at(deadline, self.detached(work)).await;
        match result {
            Err(_) => Err(Undecided::Deadline.into()),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Ok(Ok(Err(error))) => Err(Undecided::Ledger(Arc::new(error)).into()),
            Ok(Ok(Ok(outcome))) => Ok(outcome),
        }
    }

    /// An account's totals where Redis decides its policy's claims just now.
    async fn counted(
        &self,
        policy: &Policy,
        account: AccountId,
        now: DateTime<Utc>,
    ) -> Result<Option<Vec<Total>>, LedgerError> {
        match &self.counting {
            Some(counting) if counting.decides(policy) => counting.look(policy, account, now).await,
            Some(_) | None => Ok(None),
        }
    }

    fn known_policy(
        &self,
        name: &PolicyName,
        now: DateTime<Utc>,
    ) -> Result<Arc<Policy>, ClaimFailure> {
        let policy = self.policies.get(name, now);
        policy.ok_or_else(|| ClaimFailure::UnknownPolicy(name.clone()))
    }

    async fn rehearse(&self, policy: Arc<Policy>, claim: Claim) -> Result<Outcome, LedgerError> {
        let identity = self.ledger.identity();
        let account = identity.account(&policy.name, &claim.subject);
        let key = claim
            .key
            .as_ref()
            .map(|key| identity.key(&policy.name, key));
        let now = self.clock.now();
        let policy = self.policies.terms(&policy, account, None, now);
        let counted = self.counted(&policy, account, now).await?;
        if key.is_some() {
            let look = Look {
                keys: key.into_iter().collect(),
                ..Look::default()
            };
            if let Some(entry) = self.ledger.look(&look).await?.entries.pop() {
                let metadata = claim.metadata.as_ref();
                return Ok(Outcome::of_repeated(entry, account, claim.units, metadata));
            }
        }
        if let Some(mut totals) = counted {
            let fits = totals.iter().all(|total| total.fits(claim.units));
            return Ok(match refuse(&policy, claim.units, now) {
                Some(refusal) => Outcome::Refused(policy, refusal),
                None if !fits => Outcome::Refused(policy, Refusal::Denied(totals)),
                None => {
                    totals.iter_mut().for_each(|total| total.take(claim.units));
                    Outcome::WouldGrant(policy, totals)
                }
            });
        }
        self.rehearse_on_ledger(policy, account, claim.units).await
    }

    async fn rehearse_on_ledger(
        &self,
        policy: Arc<Policy>,
        account: AccountId,
        units: Units,
    ) -> Result<Outcome, LedgerError> {
        let last = last_line(&self.ledger, account).await?;
        let last = last.as_ref();
        let now = self.clock.now();
        let mut sums = Sums::default();
        loop {
            let policy = self.policies.terms(&policy, account, last, now);
            match decide(&policy, units, last, &sums, now) {
                Verdict::Granted(line) => return Ok(Outcome::WouldGrant(policy, line.totals)),
                Verdict::Refused(refusal) => return Ok(Outcome::Refused(policy, refusal)),
                Verdict::OutdatedPolicy => {
                    let version = last.map_or(0, |line| line.policy_version);
                    let learning = self.policies.catch_up(&policy, version, &self.ledger);
                    learning.await?;
                }
                Verdict::NeedsSums(windows) => {
                    sums = self.ledger.sums(account, last, &windows).await?
                }
            }
        }
    }

    /// A subject's limits as they are now; `None` where there is no such policy, or it is
    /// archived.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn usage(
        self: &Arc<Self>,
        policy: &PolicyName,
        subject: &Subject,
    ) -> Result<Option<Usage>, Failure> {
        let policy = self.policies.get(policy, self.clock.now());
        let Some(policy) = policy.filter(|policy| !policy.archived) else {
            return Ok(None);
        };
        let account = self.ledger.identity().account(&policy.name, subject);
        let engine = self.clone();
        let work = async move {
            let policies = &engine.policies;
            let now = engine.clock.now();
            let terms = policies.terms(&policy, account, None, now);
            if let Some(totals) = engine.counted(&terms, account, now).await? {
                return Ok(Some(Usage {
                    policy: terms,
                    totals,
                    override_terms: policies.override_of(account, now),
                }));
            }
            let last = last_line(&engine.ledger, account).await?;
            let last = last.as_ref();
            let now = engine.clock.now();
            let at = instant_after(last, now);
            let terms = policies.terms(&policy, account, last, now);
            let totals = totals(&engine.ledger, &terms, account, last, at).await?;
            Ok(Some(Usage {
                policy: terms,
                totals,
                override_terms: policies.override_of(account, at),
            }))
        };
        self.detached(work).await?
    }
}
