//! Dry runs and the usage of an account. Nothing is appended.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep, timeout_at};

use super::in_flight::{ClaimFailure, Outcome, Undecided};
use super::learn::once_known;
use super::submit::Admission;
use super::totals::{last_line, totals};
use crate::domain::account::{Verdict, instant_after, refuse};
use crate::domain::claim::{Claim, Subject, Units};
use crate::domain::drafting::Drafting;
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::limit::total::Total;
use crate::domain::overrides::OverrideTerms;
use crate::domain::policy::{Mode, Policy, PolicyName};
use crate::domain::refusal::Refusal;
use crate::engine::instance::READ_AGAIN_AFTER;
use crate::engine::{Engine, Failure};
use crate::ledger::{LedgerError, Look};

/// The present limits of an account.
#[derive(Debug)]
pub struct Usage {
    pub policy: Arc<Policy>,
    /// One total for each limit.
    pub totals: Vec<Total>,
    /// The active override of the subject.
    pub override_terms: Option<Arc<OverrideTerms>>,
}

/// The outcome that a claim would have.
#[derive(Debug)]
pub enum Rehearsal {
    /// The claim would be granted.
    WouldGrant {
        /// The totals after the claim.
        totals: Arc<[Total]>,
        /// Whether the claim would be granted only because the policy observes.
        would_deny: bool,
    },
    /// The claim has an outcome already, or would be refused.
    Ended(Outcome),
}

impl Engine {
    /// Says what the outcome of a claim would be, and changes nothing.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn try_claim(
        self: &Arc<Self>,
        admission: Admission,
        policy: &PolicyName,
        claim: Claim,
    ) -> Result<Rehearsal, ClaimFailure> {
        let came = Instant::now();
        let policy = self.policy_of_claim(policy, came).await?;
        if self.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        let engine = self.clone();
        let deadline = admission.deadline;
        let work = async move {
            let _admission = admission;
            loop {
                match engine.rehearse(policy.clone(), claim.clone()).await {
                    // A connection may break while the ledger does not answer.
                    Err(LedgerError::Unavailable(_)) if Instant::now() < deadline => {
                        sleep(READ_AGAIN_AFTER).await;
                    }
                    result => return result,
                }
            }
        };
        let result = timeout_at(deadline, self.detached(work)).await;
        match result {
            Err(_) => Err(Undecided::Deadline.into()),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Ok(Ok(Err(error))) => Err(Undecided::Ledger(Arc::new(error)).into()),
            Ok(Ok(Ok(outcome))) => Ok(outcome),
        }
    }

    /// The totals of an account if Redis decides the claims of its policy at present.
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

    async fn rehearse(&self, policy: Arc<Policy>, claim: Claim) -> Result<Rehearsal, LedgerError> {
        let work = self.work(policy, claim);
        let (policy, account, units) = (work.policy.clone(), work.account, work.units);
        if work.key.is_some() {
            let look = Look {
                keys: work.key.into_iter().collect(),
                ..Look::default()
            };
            if let Some(entry) = self.ledger.look(&look).await?.entries.pop() {
                return Ok(Rehearsal::Ended(Outcome::of_key(&work, entry)));
            }
        }
        let now = self.clock.now();
        if let Some(totals) = self.counted(&policy, account, now).await? {
            return Ok(match rehearse_counted(&policy, units, totals, now) {
                Ok((totals, would_deny)) => Rehearsal::WouldGrant { totals, would_deny },
                Err(refusal) => Rehearsal::Ended(Outcome::Refused(policy, refusal)),
            });
        }
        self.rehearse_on_ledger(policy, account, units).await
    }

    async fn rehearse_on_ledger(
        &self,
        policy: Arc<Policy>,
        account: AccountId,
        units: Units,
    ) -> Result<Rehearsal, LedgerError> {
        let last = last_line(&self.ledger, account).await?;
        // The terms are read after the look, which may have taken long.
        self.policies.freshen(&self.ledger, || false).await?;
        let now = self.clock.now();
        let (policies, after) = (&self.policies, last.as_ref());
        let policy = policies.terms_after(&policy, account, after, now, &self.ledger);
        let policy = policy.await?;
        let verdict = once_known(&self.ledger, account, last.as_ref(), now, |known| {
            Drafting::begin(account, &policy, last.clone(), known, now)?.rehearse(units)
        });
        Ok(match verdict.await? {
            Verdict::Granted(Line { totals, .. }) => Rehearsal::WouldGrant {
                totals,
                would_deny: false,
            },
            Verdict::WouldDeny(Line { totals, .. }) => Rehearsal::WouldGrant {
                totals,
                would_deny: true,
            },
            Verdict::Refused(refusal) => Rehearsal::Ended(Outcome::Refused(policy, refusal)),
        })
    }

    /// The present limits of a subject; `None` if the policy does not exist or is archived.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn usage(
        self: &Arc<Self>,
        policy: &PolicyName,
        subject: &Subject,
    ) -> Result<Option<Usage>, Failure> {
        let policy = self.usable_policy(policy, Instant::now()).await?;
        let Some(policy) = policy.filter(|policy| !policy.archived) else {
            return Ok(None);
        };
        // Redis has the totals of counted policies, even while the ledger does not answer.
        let is_counted = self.policies.terms.may_be_counted(policy.id);
        let account = match is_counted && self.watch.ledger_is_silent() {
            true => self.ledger.identity().account(&policy.name, subject),
            false => self.account_in_view(&policy.name, subject).await?,
        };
        let engine = self.clone();
        let work = async move {
            let policies = &engine.policies;
            let now = engine.clock.now();
            let terms = policies.terms.of(&policy, account, None, now);
            if let Some(totals) = engine.counted(&terms, account, now).await? {
                return Ok(Some(Usage {
                    policy: terms,
                    totals,
                    override_terms: policies.terms.override_of(account, now),
                }));
            }
            let last = last_line(&engine.ledger, account).await?;
            let now = engine.clock.now();
            let after = last.as_ref();
            let terms = policies.terms_after(&policy, account, after, now, &engine.ledger);
            let terms = terms.await?;
            let at = instant_after(after, now);
            let totals = totals(&engine.ledger, &terms, account, last, now).await?;
            Ok(Some(Usage {
                policy: terms,
                totals,
                override_terms: policies.terms.override_of(account, at),
            }))
        };
        self.detached(work).await?
    }
}

/// The outcome of a claim that Redis decides on these totals: the totals after the claim, and
/// whether the claim would be granted only because the policy observes.
fn rehearse_counted(
    policy: &Policy,
    units: Units,
    mut totals: Vec<Total>,
    now: DateTime<Utc>,
) -> Result<(Arc<[Total]>, bool), Refusal> {
    if let Some(refusal) = refuse(policy, units, now) {
        return Err(refusal);
    }
    let fits = policy.blocked.is_none() && totals.iter().all(|total| total.fits(units));
    if !fits && policy.rule.mode == Mode::Enforce {
        return Err(Refusal::Denied(totals));
    }
    for total in &mut totals {
        total.take(units, now, now)?;
    }
    Ok((totals.into(), !fits))
}
