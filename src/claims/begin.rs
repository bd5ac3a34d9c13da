//! The start of a claim: its policy and its work.

use std::sync::Arc;

use tokio::time::Instant;

use crate::Claims;
use crate::foretell::Foretold;
use crate::instance::nonce;
use crate::protocol::present::Present;
use crate::protocol::way::begin;
use crate::protocol::{ClaimFailure, InFlight, Outcome, Undecided, outcome_of};
use crate::submit::Admission;
use domain::claim::{Claim, Units};
use domain::identity::AccountId;
use domain::policy::{Policy, PolicyName};
use domain::refusal::Refusal;
use domain::work::{Task, Work};

impl Claims {
    /// Decides a claim. The claim ends in the same way whether or not the client still waits.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn claim(
        self: &Arc<Self>,
        admission: Admission,
        policy: &PolicyName,
        claim: Claim,
    ) -> Result<Foretold, ClaimFailure> {
        let came = Instant::now();
        let result = self.decide_claim(admission, policy, claim, came).await;
        let outcome = result.as_ref().map(|foretold| &foretold.outcome);
        self.instance.metrics.claim_ended(outcome_of(outcome), came);
        result
    }

    async fn decide_claim(
        self: &Arc<Self>,
        admission: Admission,
        policy: &PolicyName,
        claim: Claim,
        came: Instant,
    ) -> Result<Foretold, ClaimFailure> {
        let policy = self.policy_of_claim(policy, came).await?;
        let work = self.work(policy, claim);
        let counting = self.counting.as_ref();
        let counts = counting.is_some_and(|counting| counting.decides(&work.policy));
        let counters_answer = counting.is_some_and(|counting| counting.counters.is_available());
        let first_step = |claim: &mut InFlight, present: &Present| {
            let redis_decides = counts && claim.leaves_from.is_some();
            begin(claim, redis_decides, counters_answer, present)
        };
        let policy = work.policy.clone();
        let account = work.account;
        let units = work.units;
        let asked = work.asked();
        let deadline = admission.deadline;
        let outcome = self.submit(admission, work, first_step).await?;
        let foretelling = self.foretell(&policy, account, asked, outcome, true, deadline);
        let foretold = foretelling.await;
        self.note_denial(account, units, &foretold.outcome);
        Ok(foretold)
    }

    /// Adds a denial to the statistics.
    pub(super) fn note_denial(&self, account: AccountId, units: Units, outcome: &Outcome) {
        let Outcome::Refused(policy, refusal) = outcome else {
            return;
        };
        let now = self.instance.clock.now();
        match refusal {
            Refusal::Denied(denied) if denied.has_own_room() => {
                self.denials.note_without_window(policy, now);
            }
            Refusal::Denied(denied) => {
                self.denials.note(policy, account, units, denied, now);
            }
            Refusal::Blocked(_) => self.denials.note_without_window(policy, now),
            _ => {}
        }
    }

    /// The work of a claim, under the present terms.
    pub(crate) fn work(&self, policy: Arc<Policy>, claim: Claim) -> Work {
        let identity = self.ledger.identity();
        let account = identity.account(&policy.name, &claim.subject);
        let key = claim.key.as_ref();
        Work {
            task: Task::Claim(claim.hold),
            account,
            subject: Some(claim.subject),
            units: claim.units,
            key: key.map(|key| identity.key(&policy.name, key)),
            bundle: None,
            calendar: claim.calendar,
            metadata: claim.metadata,
            claimed_by: claim.claimed_by,
            note: None,
            nonce: nonce(),
            policy: self.instance.policies.terms.of(
                &policy,
                account,
                None,
                self.instance.clock.now(),
            ),
        }
    }

    /// The policy of a claim or an adjustment that came at an instant. The policy may be archived:
    /// the retry of an old grant gets its grant.
    pub(crate) async fn policy_of_claim(
        &self,
        name: &PolicyName,
        came: Instant,
    ) -> Result<Arc<Policy>, ClaimFailure> {
        let policy = self.instance.usable_policy(name, came).await;
        let policy = policy.map_err(Undecided::from)?;
        policy.ok_or_else(|| ClaimFailure::UnknownPolicy(name.clone()))
    }
}
