//! Atomic batches: all claims of a batch are granted in one transaction of the ledger, or none is.
//! The claims go the way of a group, in which other batches with the same accounts may be too. What they are
//! granted is a bundle.

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, timeout_at};

use crate::Claims;
use crate::foretell::Foretold;
use crate::instance::nonce;
use crate::protocol::{ClaimFailure, Outcome, Undecided, outcome_of};
use crate::submit::Reply;
use domain::claim::Claim;
use domain::identity::BundleId;
use domain::policy::PolicyName;
use domain::work::{Bundle, Work};

/// The outcome of a claim of an atomic batch, with what is foretold.
pub type ForetoldMember = Result<Foretold, ClaimFailure>;

impl Claims {
    /// Decides claims together: all are granted, or none is. `has_key` tells that the batch has a key: then it is one
    /// claim, and only a batch of the same claims repeats it. `is_doomed` tells that something outside of the claims
    /// prevents every grant: then nothing is granted, and the outcomes say what would be. The batch ends in the same way whether or not the client still waits.
    ///
    /// # Errors
    /// [`Undecided`]: no claim is granted, unless a transaction with an unknown outcome is
    /// committed. A retry with the same keys tells.
    pub async fn claim_together(
        self: &Arc<Self>,
        caller: &Arc<str>,
        claims: Vec<(PolicyName, Claim)>,
        has_key: bool,
        is_doomed: bool,
    ) -> Result<Vec<ForetoldMember>, Undecided> {
        let came = Instant::now();
        let count = claims.len();
        let decided = self.decide_together(caller, claims, has_key, is_doomed, came);
        let decided = decided.await;
        let undecided = decided.as_ref().err().cloned();
        let undecided = undecided.map(|why| Err(ClaimFailure::from(why)));
        let failed = undecided.iter().cycle().take(count);
        for member in decided.iter().flatten().chain(failed) {
            let outcome = member.as_ref().map(|foretold| &foretold.outcome);
            self.instance.metrics.claim_ended(outcome_of(outcome), came);
        }
        decided
    }

    async fn decide_together(
        self: &Arc<Self>,
        caller: &Arc<str>,
        claims: Vec<(PolicyName, Claim)>,
        has_key: bool,
        is_doomed: bool,
        came: Instant,
    ) -> Result<Vec<ForetoldMember>, Undecided> {
        // 1. The batch needs a right clock, and one place for each claim.
        if self.instance.watch.clock_is_off() {
            return Err(Undecided::Clock);
        }
        let deadline = came + self.instance.claim_time;
        let places = self.under_way.try_take_many(caller, claims.len());
        let mut places = places.ok_or(Undecided::Overloaded)?;
        // 2. Each claim needs its policy, and the turn of its key. A claim without one of them
        //    dooms the batch.
        let mut works = Vec::with_capacity(claims.len());
        for (policy, claim) in claims {
            let policy = self.policy_of_claim(&policy, came).await;
            works.push(policy.map(|policy| self.work(policy, claim)));
        }
        // Without a policy that is known, it is not known whether this is a retry.
        let is_undecided = |work: &Result<_, _>| matches!(work, Err(ClaimFailure::Undecided(_)));
        let bundle = self.bundle_of(&works, has_key && !works.iter().any(is_undecided));
        let mut batch = Vec::with_capacity(works.len());
        let take_on = |work: Result<Work, ClaimFailure>| {
            let bundle = Some(bundle);
            let work = Work { bundle, ..work? };
            let place = places.split_off();
            let (claim, answer) = self.take_on(work.clone(), deadline, place)?;
            batch.push(claim);
            Ok((work, answer))
        };
        let members: Vec<_> = works.into_iter().map(take_on).collect();
        let is_doomed = is_doomed || members.iter().any(Result::is_err);
        // 3. The claims come after the grants that Redis counted. Then they go together.
        if let Some(counting) = &self.counting {
            let recorded = counting.wait_for_recorded(&mut batch);
            let recorded = timeout_at(deadline, recorded).await;
            recorded.map_err(|_| Undecided::Deadline)?;
        }
        self.dispatch.go_together(batch, is_doomed);
        // 4. The client waits until the deadline.
        let answers = members.into_iter().map(async |member| {
            let (work, answer): (Work, Reply) = match member {
                Ok(taken_on) => taken_on,
                Err(failure) => return Ok(Err(failure)),
            };
            let outcome = answer.await.unwrap_or(Err(Undecided::Ending));
            outcome.map(|outcome| Ok((work, outcome)))
        });
        let answers = timeout_at(deadline, try_join_all(answers)).await;
        let answers = answers.map_err(|_| Undecided::Deadline)??;
        Ok(self.foretell_members(answers, deadline).await)
    }

    /// The bundle that claims make. With a key its id tells whether a retry has the same claims.
    fn bundle_of(&self, works: &[Result<Work, ClaimFailure>], has_key: bool) -> Bundle {
        let tag = if has_key {
            let claims = works.iter().flatten().flat_map(Work::identifying_bytes);
            let claims: Vec<u8> = claims.collect();
            self.ledger.identity().bundle_tag(&claims)
        } else {
            nonce()
        };
        Bundle {
            id: BundleId::new(self.instance.clock.now(), tag),
            has_key,
        }
    }

    /// Adds to the members of a batch what is known of the time to come.
    async fn foretell_members(
        self: &Arc<Self>,
        members: Vec<Result<(Work, Outcome), ClaimFailure>>,
        deadline: Instant,
    ) -> Vec<ForetoldMember> {
        let is_entered = |member: &Result<_, _>| matches!(member, Ok((_, Outcome::Entered(_))));
        // The line of a denial may have entries of a batch that was refused.
        let is_committed = members.iter().any(is_entered);
        let foretell = async |member| {
            let (work, outcome): (Work, Outcome) = member?;
            let policy = &work.policy;
            let account = work.account;
            let units = work.units;
            let asked = work.asked();
            let foretold = self.foretell(policy, account, asked, outcome, is_committed, deadline);
            let foretold = foretold.await;
            self.note_denial(account, units, &foretold.outcome);
            Ok(foretold)
        };
        join_all(members.into_iter().map(foretell)).await
    }
}
