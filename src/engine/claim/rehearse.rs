//! Dry runs and the usage of an account. Nothing is appended.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep, timeout_at};

use super::foretell::Foretold;
use super::in_flight::{ClaimFailure, Outcome, Undecided};
use super::learn::once_known;
use super::submit::Admission;
use super::totals::{last_line, totals};
use crate::domain::account::{Verdict, instant_after, line_of, refuse};
use crate::domain::claim::{Claim, Subject, Units};
use crate::domain::drafting::Drafting;
use crate::domain::forecast::Forecast;
use crate::domain::identity::AccountId;
use crate::domain::limit::total::Total;
use crate::domain::overrides::OverrideTerms;
use crate::domain::policy::{Mode, Policy, PolicyName};
use crate::domain::refusal::{DeniedClaim, Refusal};
use crate::domain::work::Work;
use crate::engine::instance::READ_AGAIN_AFTER;
use crate::engine::{Engine, Failure};
use crate::ledger::{LedgerError, Look};

/// The present limits of an account.
#[derive(Debug)]
pub struct Usage {
    pub policy: Arc<Policy>,
    /// One total for each limit.
    pub totals: Vec<Total>,
    /// What is foretold for the limits.
    pub forecast: Forecast,
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
        /// What is foretold for the limits after the claim.
        forecast: Forecast,
    },
    /// The claim has an outcome already, or would be refused.
    Ended(Foretold),
}

/// What the rule says to a claim that is not made.
enum Rehearsed {
    Verdict(Arc<Policy>, Verdict),
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
            let work = engine.work(policy, claim);
            loop {
                match engine.rehearse(&work).await {
                    // A connection may break while the ledger does not answer.
                    Err(LedgerError::Unavailable(_)) if Instant::now() < deadline => {
                        sleep(READ_AGAIN_AFTER).await;
                    }
                    Ok(rehearsed) => return engine.foretell_rehearsed(work, rehearsed).await,
                    Err(error) => return Err(error),
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

    async fn rehearse(&self, work: &Work) -> Result<Rehearsed, LedgerError> {
        if work.key.is_some() {
            let look = Look {
                keys: work.key.into_iter().collect(),
                ..Look::default()
            };
            let seen = self.ledger.look(&look).await?.entries;
            if let Some(entry) = seen.iter().find(|entry| entry.key == work.key) {
                let outcome = Outcome::of_key(work, entry, &seen, self.clock.now());
                return Ok(Rehearsed::Ended(outcome));
            }
        }
        let policy = &work.policy;
        let account = work.account;
        let now = self.clock.now();
        if let Some(totals) = self.counted(policy, account, now).await? {
            let verdict = rehearse_counted(policy, work.units, totals, now);
            return Ok(Rehearsed::Verdict(policy.clone(), verdict));
        }
        self.rehearse_on_ledger(work).await
    }

    async fn rehearse_on_ledger(&self, work: &Work) -> Result<Rehearsed, LedgerError> {
        let account = work.account;
        let units = work.units;
        let last = last_line(&self.ledger, account).await?;
        // The terms are read after the look, which may have taken long.
        self.policies.freshen(&self.ledger, || false).await?;
        let now = self.clock.now();
        let policies = &self.policies;
        let after = last.as_ref();
        let policy = policies.terms_after(&work.policy, account, after, now, &self.ledger);
        let policy = policy.await?;
        let verdict = once_known(&self.ledger, account, last.as_ref(), now, |known| {
            Drafting::begin(account, &policy, last.clone(), known, now)?.rehearse(units)
        });
        let verdict = verdict.await?;
        Ok(Rehearsed::Verdict(policy, verdict))
    }

    /// Adds what is known of the time to come.
    async fn foretell_rehearsed(
        self: &Arc<Self>,
        work: Work,
        rehearsed: Rehearsed,
    ) -> Result<Rehearsal, LedgerError> {
        let account = work.account;
        let units = work.units;
        let (policy, outcome) = match rehearsed {
            Rehearsed::Ended(outcome) => (work.policy, outcome),
            Rehearsed::Verdict(policy, Verdict::Refused(refusal)) => {
                (policy.clone(), Outcome::Refused(policy, refusal))
            }
            Rehearsed::Verdict(
                policy,
                ref verdict @ (Verdict::Granted(ref line) | Verdict::WouldDeny(ref line)),
            ) => {
                return Ok(Rehearsal::WouldGrant {
                    totals: line.totals.clone(),
                    would_deny: matches!(verdict, Verdict::WouldDeny(_)),
                    forecast: self.foretell_grant(policy, &work, line.clone()).await?,
                });
            }
        };
        // The line of a denial may have lapses that no entry tells.
        let deadline = self.claim_deadline();
        let foretelling = self.foretell(&policy, account, units, outcome, false, deadline);
        Ok(Rehearsal::Ended(foretelling.await))
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
        let account = if is_counted && self.watch.ledger_is_silent() {
            self.ledger.identity().account(&policy.name, subject)
        } else {
            self.account_in_view(&policy.name, subject).await?
        };
        let engine = self.clone();
        let work = async move {
            let policies = &engine.policies;
            let now = engine.clock.now();
            let terms = policies.terms.of(&policy, account, None, now);
            if let Some(totals) = engine.counted(&terms, account, now).await? {
                let last = Some(line_of(terms.version, &totals, now));
                let forecast = engine.foretell_totals(&terms, account, last, now);
                return Ok(Some(Usage {
                    forecast: forecast.await,
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
            let totals = totals(&engine.ledger, &terms, account, last.clone(), now).await?;
            let forecast = engine.foretell_totals(&terms, account, last, now);
            Ok(Some(Usage {
                forecast: forecast.await,
                policy: terms,
                totals,
                override_terms: policies.terms.override_of(account, at),
            }))
        };
        self.detached(work).await?
    }
}

/// The verdict on a claim that Redis decides on these totals. The ledger does not have its line.
fn rehearse_counted(
    policy: &Policy,
    units: Units,
    mut totals: Vec<Total>,
    now: DateTime<Utc>,
) -> Verdict {
    if let Some(refusal) = refuse(policy, units, now) {
        return Verdict::Refused(refusal);
    }
    let fits = policy.blocked.is_none() && totals.iter().all(|total| total.fits(units));
    if !fits && policy.rule.mode == Mode::Enforce {
        let last = Some(line_of(policy.version, &totals, now));
        return Verdict::Refused(Refusal::Denied(DeniedClaim { totals, last }));
    }
    let mut taken = totals.iter_mut();
    if taken.any(|total| total.take(units, now, now).is_err()) {
        return Verdict::Refused(Refusal::TooMany);
    }
    let line = line_of(policy.version, &totals, now);
    if fits {
        Verdict::Granted(line)
    } else {
        Verdict::WouldDeny(line)
    }
}
