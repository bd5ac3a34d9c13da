//! The end of a plan whose drafts are committed: what the memory learns, the answers, and the settlements of counters.

use super::in_flight::{AnsweredClaim, InFlight};
use super::plan::{CounterNeed, Plan};
use super::present::Present;
use super::settle::Settling;
use super::step::{Step, Steps};
use crate::instance::Recalled;
use domain::identity::AccountId;

/// Answers the claims of an account, whose draft is committed, and settles its counter.
pub fn finish_account(account: AccountId, plan: Plan, present: &Present, steps: &mut Steps) {
    let Some(draft) = plan.drafts.first() else {
        return;
    };
    // 1. Does the account need a counter?
    let counts = present.terms.may_be_counted(draft.policy);
    let own_need = plan.counter_need();
    let recalled = present.memory.recall(account, None, present.at);
    // While a counter is being created, every later line must reach it: otherwise it lags.
    let need = if counts || recalled == Recalled::Distrusted {
        CounterNeed::Wanted
    } else {
        own_need
    };
    let may_have_counter = need != CounterNeed::Absent;
    // 2. The memory learns the new last line.
    let memory = present.memory;
    let entries = &draft.entries;
    if !entries.is_empty() {
        let epoch = plan.basis.epoch;
        memory.learn(account, entries, epoch, may_have_counter, present.at);
        let after = draft.after.as_ref();
        let outlooks = &memory.outlooks;
        outlooks.follow(account, after, entries, epoch, present.at);
    }
    if own_need == CounterNeed::Wanted && !counts {
        // The account has a counter from now on: it is asked before the next claim.
        memory.distrust(account, present.at);
    }
    // 3. The claims are answered. A correction is answered after its settlement.
    if may_have_counter && present.has_counters {
        let (answered, settling) = Settling::of_plan(plan, need, counts, present.now);
        steps.claims.extend(answered.into_iter().map(end));
        steps.settlements.extend(settling);
    } else {
        steps.claims.extend(plan.answers().map(end));
    }
}

/// Answers the claims of batches, and settles the counters of their accounts. Other claims of these
/// accounts may be under way, so the memory learns no line. A correction is answered after the settlement of its
/// account.
pub fn finish_batches(plan: Plan, present: &Present, steps: &mut Steps) {
    let mut settlements = Vec::new();
    for draft in plan.drafts() {
        present.memory.distrust(draft.account, present.at);
        let counts = present.terms.may_be_counted(draft.policy);
        if present.has_counters {
            settlements.extend(Settling::of_draft(draft, counts, present.now));
        }
    }
    for answered in plan.answers() {
        let work = &answered.0.work;
        let is_of = |it: &&mut Settling| it.settlement.account == work.account;
        let corrects = work.corrects().is_some();
        let settling = corrects.then(|| settlements.iter_mut().find(is_of));
        match settling.flatten() {
            Some(settling) => settling.answers.push(answered),
            None => steps.claims.push(end(answered)),
        }
    }
    steps.settlements.extend(settlements);
}

fn end((claim, answer): AnsweredClaim) -> (InFlight, Step) {
    (claim, Step::End(answer))
}
