//! Where a claim begins: its policy, and what it is to do.

use std::sync::Arc;

use tokio::time::Instant;

use super::in_flight::{InFlight, Outcome, Undecided};
use super::submit::Admission;
use super::way::{Present, begin};
use crate::domain::account::Refusal;
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
        let work = self.work(policy, claim);
        let counting = self.counting.as_ref();
        let counts = counting.is_some_and(|counting| counting.decides(&work.policy));
        let counters = self.counters.as_ref();
        let counters_answer = counters.is_some_and(|counters| counters.is_available());
        let begin = |claim: &mut InFlight, present: &Present| {
            let redis_decides = counts && claim.may_be_counted;
            begin(claim, redis_decides, counters_answer, present)
        };
        self.submit(admission, work, begin).await
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
            claimed_by: claim.claimed_by,
            note: None,
            nonce: Self::nonce(),
            policy: self
                .policies
                .terms
                .of(&policy, account, None, self.clock.now()),
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
            Undecided::Lost | Undecided::Silent | Undecided::Ledger(_) => "failed",
        },
    }
}
