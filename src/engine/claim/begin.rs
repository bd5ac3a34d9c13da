//! Where a claim begins: its policy, and the first queue of its way.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::in_flight::{Outcome, Undecided};
use super::submit::Admission;
use crate::domain::account::{Refusal, Verdict, refuse};
use crate::domain::claim::Claim;
use crate::domain::policy::{Policy, PolicyName};
use crate::domain::work::{Task, Work};
use crate::engine::Engine;

/// Why there is no decision.
#[derive(Debug, Clone, thiserror::Error)]
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

impl Engine {
    /// Decides a claim. It ends the same way whether or not anybody waits for the answer.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn claim(
        &self,
        admission: Admission,
        policy: &PolicyName,
        claim: Claim,
    ) -> Result<Outcome, ClaimFailure> {
        let came = Instant::now();
        let result = self.decide_claim(admission, policy, claim, came).await;
        self.metrics.claim_ended(outcome_of(&result), came);
        result
    }

    async fn decide_claim(
        &self,
        admission: Admission,
        policy: &PolicyName,
        claim: Claim,
        came: Instant,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.policy_of_claim(policy, came).await?;
        let mut work = self.work(policy, claim);
        let now = self.clock.now();
        if work.key.is_none()
            && let Some(refusal) = refuse(&work.policy, work.units, now)
        {
            // Whatever the account holds; and there is no grant to repeat.
            return Ok(Outcome::Refused(work.policy, refusal));
        }
        // Redis knows no holds.
        let may_be_counted = !work.is_hold();
        let counting = self.counting.as_ref().filter(|_| may_be_counted);
        let counts = counting.is_some_and(|counting| counting.decides(&work.policy));
        let counters = self.counters.as_ref();
        let is_known = self.is_granted_on_known_line(&mut work, now);
        let first = match counters.is_some_and(|counters| counters.is_available()) {
            _ if counts => &self.queues.count,
            true if !is_known => &self.queues.ask,
            true | false => &self.queues.append,
        };
        self.submit(admission, work, may_be_counted, is_known, first)
            .await
    }

    /// Whether this instance knows the account's last line, and the claim is granted after it. A
    /// grant that Redis counted may wait before it, unseen: then no line is known.
    fn is_granted_on_known_line(&self, work: &mut Work, now: DateTime<Utc>) -> bool {
        if work.policy.rule.may_be_counted() {
            return false;
        }
        let Some(known) = self.memory.line(work.account, work.key, Instant::now()) else {
            return false;
        };
        let verdict = self.policies.decide_on(&known.line, work, now);
        matches!(verdict, Ok(Verdict::Granted(_) | Verdict::WouldDeny(_)))
    }

    /// What a claim is to do, under the terms that hold now.
    pub(in crate::engine) fn work(&self, policy: Arc<Policy>, claim: Claim) -> Work {
        let identity = self.ledger.identity();
        let account = identity.account(&policy.name, &claim.subject);
        let key = claim.key.as_ref();
        Work {
            task: Task::Claim(claim.hold),
            account,
            subject: Some(claim.subject),
            units: claim.units,
            key: key.map(|key| identity.key(&policy.name, key)),
            metadata: claim.metadata,
            note: None,
            nonce: Self::nonce(),
            policy: self
                .policies
                .terms(&policy, account, None, self.clock.now()),
        }
    }

    /// The policy of a claim or an adjustment that came at an instant. It may be archived: the
    /// retry of a grant is told its grant.
    pub(in crate::engine) async fn policy_of_claim(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Arc<Policy>, ClaimFailure> {
        let policy = self.usable_policy(name, came).await;
        let policy = policy.map_err(Undecided::from)?;
        policy.ok_or_else(|| ClaimFailure::UnknownPolicy(name.clone()))
    }
}

/// What became of a claim, as a label.
pub fn outcome_of(result: &Result<Outcome, ClaimFailure>) -> &'static str {
    match result {
        Ok(Outcome::Entered(entry)) => match entry.provisional {
            None => "granted",
            Some(_) => "provisional",
        },
        Ok(Outcome::Repeated(_)) => "replayed",
        Ok(Outcome::KeyReused) => "key_reused",
        Ok(Outcome::Refused(_, refusal)) => match refusal {
            Refusal::Archived => "unknown_policy",
            Refusal::Inactive(_) => "inactive",
            Refusal::NeverFits { .. } => "never_fits",
            Refusal::Denied(_) => "denied",
            Refusal::TooMany => "too_many",
            Refusal::NotCorrected(_) => "not_corrected",
        },
        Err(ClaimFailure::UnknownPolicy(_)) => "unknown_policy",
        Err(ClaimFailure::InProgress) => "in_progress",
        Err(ClaimFailure::Undecided(undecided)) => match undecided {
            Undecided::Deadline => "deadline",
            Undecided::Overloaded => "overloaded",
            Undecided::Clock => "clock",
            Undecided::Ending => "ending",
            Undecided::Unseen => "unseen",
            Undecided::Sent => "sent",
            Undecided::Silent | Undecided::Ledger(_) => "failed",
        },
    }
}
