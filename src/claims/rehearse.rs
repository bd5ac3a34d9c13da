//! Dry runs and the usage of an account. Nothing is appended.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, timeout_at};

use crate::Claims;
use crate::foretell::Foretold;
use crate::instance::Failure;
use crate::protocol::{AccountNow, ClaimFailure, Outcome, Undecided, held, last_line};
use crate::submit::{Admission, in_flight};
use domain::account::{instant_after, line_of};
use domain::claim::{Claim, Subject};
use domain::exceptions::Exceptions;
use domain::forecast::Forecast;
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::own_calendar::OwnCalendar;
use domain::policy::{Policy, PolicyName};
use domain::shared::{SharedKey, SharedTotal};
use domain::top_up::TopUps;
use domain::work::Work;
use ledger::{LedgerError, Look};

/// The present limits of an account.
#[derive(Debug)]
pub struct Usage {
    pub policy: Arc<Policy>,
    /// One total for each limit.
    pub totals: Vec<Total>,
    /// What is foretold for the limits.
    pub forecast: Forecast,
    /// The active exceptions of the subject.
    pub exceptions: Exceptions,
    /// The zone and the anchor of the subject. `None` if the policy's own calendar divides time.
    pub calendar: Option<Arc<OwnCalendar>>,
    /// The units that the subject has beside its windows.
    pub top_ups: TopUps,
    /// Whether the subject has entries, or grants that wait for the ledger.
    pub has_entries: bool,
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
    Ended(Box<Foretold>),
}

impl Claims {
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
        if self.instance.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        let claims = self.clone();
        let deadline = admission.deadline;
        let rehearsing = self.instance.detached(async move {
            let work = claims.work(policy, claim);
            let counted = match &claims.counting {
                Some(counting) => counting.rehearse(&work, deadline).await?,
                None => None,
            };
            let outcome = match counted {
                Some(outcome) => outcome,
                None => claims.rehearse_on_ledger(&work, admission).await?,
            };
            claims.foretell_rehearsed(work, outcome).await
        });
        match timeout_at(deadline, rehearsing).await {
            Err(_) => Err(Undecided::Deadline.into()),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Ok(Ok(rehearsal)) => Ok(rehearsal?),
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
            Some(counting) => counting.look(policy, account, now).await,
            None => Ok(None),
        }
    }

    /// The outcome that a claim would have on the ledger: it goes the way of a batch that is granted
    /// in no case. It takes no turn of its key: a claim with the key need not wait for it.
    async fn rehearse_on_ledger(
        &self,
        work: &Work,
        admission: Admission,
    ) -> Result<Outcome, Undecided> {
        let Admission { place, deadline } = admission;
        let (claim, reply) = in_flight(work.clone(), deadline, place, None);
        self.dispatch.go_together(vec![claim], true);
        reply.await.unwrap_or(Err(Undecided::Ending))
    }

    /// Adds what is known of the time to come.
    async fn foretell_rehearsed(
        self: &Arc<Self>,
        work: Work,
        outcome: Outcome,
    ) -> Result<Rehearsal, Undecided> {
        let asked = work.asked();
        let (policy, outcome) = match outcome {
            Outcome::Withheld(policy, entry) => {
                let line = entry.line.clone();
                let forecast = self.foretell_grant(policy, &work, line).await;
                return Ok(Rehearsal::WouldGrant {
                    totals: entry.line.totals,
                    would_deny: entry.would_deny,
                    forecast: forecast.map_err(|error| Undecided::Ledger(Arc::new(error)))?,
                });
            }
            Outcome::Refused(policy, refusal) => {
                (policy.clone(), Outcome::Refused(policy, refusal))
            }
            outcome => (work.policy, outcome),
        };
        // The line of a denial may have lapses that no entry tells.
        let deadline = self.claim_deadline();
        let account = work.account;
        let foretelling = self.foretell(&policy, account, asked, outcome, false, deadline);
        Ok(Rehearsal::Ended(Box::new(foretelling.await)))
    }

    /// The limits that all subjects of a policy share, with their present usage; `None` if the policy does not exist
    /// or is archived.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn total(
        self: &Arc<Self>,
        policy: &PolicyName,
    ) -> Result<Option<(Arc<Policy>, Vec<SharedTotal>)>, Failure> {
        let policy = self.instance.usable_policy(policy, Instant::now()).await?;
        let Some(policy) = policy.filter(|policy| !policy.archived) else {
            return Ok(None);
        };
        let claims = self.clone();
        let work = async move {
            let now = claims.instance.clock.now();
            let wanted = policy.shared_totals(|_| 0, now).into_iter();
            let look = Look {
                shared: wanted.map(|total| total.key).collect(),
                ..Look::default()
            };
            let seen = claims.ledger.look(&look).await?;
            let used = |key: &SharedKey| seen.shared.get(key).copied().unwrap_or(0);
            let totals = policy.shared_totals(used, now);
            Ok((policy, totals))
        };
        let found: Result<_, LedgerError> = self.instance.detached(work).await?;
        Ok(Some(found?))
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
        let policy = self.instance.usable_policy(policy, Instant::now()).await?;
        let Some(policy) = policy.filter(|policy| !policy.archived) else {
            return Ok(None);
        };
        // Redis has the totals of counted policies, even while the ledger does not answer.
        let is_counted = self.instance.policies.terms.may_be_counted(policy.id);
        let account = if is_counted && self.instance.watch.ledger_is_silent() {
            self.ledger.identity().account(&policy.name, subject)
        } else {
            self.instance.account_in_view(&policy.name, subject).await?
        };
        let claims = self.clone();
        let work = async move {
            let policies = &claims.instance.policies;
            let now = claims.instance.clock.now();
            let terms = policies.terms.of(&policy, account, None, now);
            if let Some(totals) = claims.counted(&terms, account, now).await? {
                let has_used = totals.iter().any(|total| total.used() > 0);
                let is_silent = claims.instance.watch.ledger_is_silent();
                let has_entries =
                    has_used || !is_silent && last_line(&claims.ledger, account).await?.is_some();
                let last = Some(line_of(terms.version, &totals, now));
                let forecast = claims.foretell_totals(&terms, account, last, &totals, now);
                return Ok(Some(Usage {
                    forecast: forecast.await,
                    policy: terms,
                    has_entries,
                    totals,
                    calendar: None,
                    top_ups: TopUps::default(),
                    exceptions: policies.terms.exceptions(account, now),
                }));
            }
            let last = last_line(&claims.ledger, account).await?;
            let now = claims.instance.clock.now();
            let after = last.as_ref();
            let terms = policies.terms_after(&policy, account, after, now);
            let terms = terms.await?;
            let at = instant_after(after, now);
            let held = held(&claims.ledger, &terms, account, last.clone(), now);
            let AccountNow { totals, top_ups } = held.await?;
            let has_entries = last.is_some();
            let is_own = terms.rule.calendar_owner.lets_subjects_own();
            let own = after.and_then(|line| line.calendar.clone());
            let calendar = is_own.then(|| own.unwrap_or_default());
            let forecast = claims.foretell_totals(&terms, account, last, &totals, now);
            Ok(Some(Usage {
                forecast: forecast.await,
                policy: terms,
                totals,
                has_entries,
                calendar,
                top_ups,
                exceptions: policies.terms.exceptions(account, at),
            }))
        };
        self.instance.detached(work).await?
    }
}
