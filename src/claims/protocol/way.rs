//! The way of a claim, step by step. Nothing here waits, sends, or reads a clock: each function
//! says what happens next, and the dispatch and its lanes do it and report back. The simulator
//! drives the same functions.
//!
//! 1. A claim *begins*: it joins the group of its account. If the counter of the account may deny
//!    the claim, the counter is *asked* first.
//! 2. The counter may deny the claim. Where Redis may count and the claim has a key, the ledger is
//!    *probed* for the key first. Elsewhere a claim with a key does not ask the counter.
//! 3. The claims of an account form a *group*. If this instance knows the last line of the account,
//!    or takes the account to be new, the group is decided at once. For every other group a lane
//!    *looks* at the ledger; then the group is decided.
//! 4. A lane *appends* the drafts of many groups in one transaction. Claims are answered after the
//!    commit. A group that lost to another writer, or whose account is not new, looks at the
//!    ledger. After two losses the group *contends*: it waits for its turn.
//!    Atomic batches that share accounts are one group, a component, and components have a lane of their
//!    own. Drafts that change a limit that all subjects share go together in others, which lock its usage.
//! 5. Where Redis decides alone, the claim *leaves* for Redis (`counted`).

use std::collections::HashSet;
use std::sync::Arc;

use chrono::TimeDelta;
use tokio::time::Instant;

use super::account_view::{AccountView, Gap};
use super::finish::{finish_account, finish_batches};
use super::group::{Group, GroupStage, Scope};
use super::in_flight::{Hints, InFlight, Outcome, Undecided};
use super::lane::Lane;
use super::plan::{Basis, Plan};
use super::present::Present;
use super::step::{CounterDenial, LeaveReason, Step, Steps};
use crate::instance::{Epoch, Recalled, is_fresh};
use counter::Answer;
use domain::account::{Verdict, refuse};
use domain::account_facts::AccountFacts;
use domain::grant::Entry;
use domain::identity::AccountId;
use domain::refusal::Refusal;
use ledger::{LedgerError, LedgerView, Untimely};

/// A counter may deny claims for this long after the ledger confirmed the counter.
pub const CONFIRMED: TimeDelta = TimeDelta::seconds(3);
/// A group that lost this often to other writers waits for its turn.
pub const LOSSES_BEFORE_TURN: u32 = 2;

/// Starts a claim. `redis_decides` tells whether Redis decides the claims of the policy at present.
pub fn begin(
    claim: &mut InFlight,
    redis_decides: bool,
    counters_answer: bool,
    present: &Present,
) -> Step {
    // 1. Some claims are refused whatever the account holds. A claim without a key ends here: it
    //    has no earlier grant to repeat.
    let work = &claim.work;
    if work.key.is_none()
        && let Some(refusal) = refuse(&work.policy, &work.asked(), u64::MAX, present.now)
    {
        return Step::End(Ok(Outcome::Refused(work.policy.clone(), refusal)));
    }
    // 2. Redis decides the claims of some policies alone.
    if redis_decides {
        return Step::Leave(LeaveReason::RedisDecides);
    }
    // 3. The memory may know the last line of the account.
    let recalled = present.memory.recall(work.account, work.key, present.at);
    // A grant that Redis counted may be missing in a known line: it still waits for the ledger.
    let may_be_counted = present.terms.may_be_counted(work.policy.id);
    let may_be_denied = may_be_counted || recalled == Recalled::Distrusted;
    // The ledger alone knows what all subjects have used: the claim begins with a look.
    let is_shared = !work.policy.rule.shared.is_empty();
    claim.hints.has_known_line = !may_be_denied && !is_shared && recalled == Recalled::Line;
    // 4. The counter is asked only if its denial may end the claim. A claim with a key is denied only
    //    after a look at the ledger, which tells as much as the counter.
    let is_searched = work.key.is_some() && !may_be_counted;
    if counters_answer && may_be_denied && !is_searched {
        Step::Ask
    } else {
        Step::Join
    }
}

/// Takes the answer of the counter of a claim; `None` if the counters do not answer. Only a denial
/// can end the claim here. The ledger decides everything else.
pub fn after_ask(claim: &mut InFlight, answer: Option<Answer>, present: &Present) -> Step {
    // 1. Without an answer the ledger decides.
    let Some(answer) = answer else {
        return Step::Join;
    };
    // 2. Older grants of the account wait in the queue of Redis: the claim comes after them.
    claim.grants_may_wait = answer.grants_wait;
    if answer.grants_wait && claim.waits_for_queue() {
        return Step::Leave(LeaveReason::GrantsWait);
    }
    // 3. Without a counter the ledger decides.
    let has_key = claim.work.key.is_some();
    let Some(counter) = answer.counter else {
        claim.hints = Hints {
            has_no_counter: true,
            wants_keys: has_key,
            ..Hints::default()
        };
        return Step::Join;
    };
    // 4. The rule decides the claim on the line of the counter. Only a denial can end the claim
    //    here.
    let as_of = present.terms.as_of();
    let verdict = present
        .terms
        .decide_on(&counter.line, &mut claim.work, present.now);
    claim.hints = Hints {
        counter: Some(counter.line.number),
        wants_keys: has_key && !counter.holds_all_keys,
        ..Hints::default()
    };
    let Ok(Verdict::Refused(refusal @ Refusal::Denied(_))) = verdict else {
        return Step::Join;
    };
    claim.hints.is_denied = true;
    // 5. A denial is valid only if the ledger confirmed the counter recently, and the terms are
    //    fresh.
    let is_confirmed = (present.now - counter.confirmed_at).abs() <= CONFIRMED;
    if !is_confirmed || !is_fresh(as_of, present.at) {
        return Step::Join;
    }
    if has_key {
        // 6. The key may have a grant that the counter does not know.
        Step::Probe(CounterDenial { refusal, as_of })
    } else {
        Step::End(Ok(Outcome::Refused(claim.work.policy.clone(), refusal)))
    }
}

/// Takes the result of a search of the ledger for the key of a denied claim; `None` if the ledger
/// did not answer. An entry with the key wins over the denial: the account may have had room again
/// after the line of the counter.
pub fn after_probe(
    claim: &InFlight,
    denial: CounterDenial,
    seen: Option<&LedgerView>,
    present: &Present,
) -> Step {
    let Some(seen) = seen else {
        return Step::Join;
    };
    match Outcome::of_earlier(&claim.work, &seen.entries, present.now) {
        Some(outcome) => Step::End(Ok(outcome)),
        None if is_fresh(denial.as_of, present.at) => {
            let policy = claim.work.policy.clone();
            Step::End(Ok(Outcome::Refused(policy, denial.refusal)))
        }
        None => Step::Join,
    }
}

/// Takes the result of the transaction that was to append the drafts of some groups. Returns how
/// many groups lost to another writer.
pub fn after_append(
    groups: &mut [Group],
    result: &Result<HashSet<AccountId>, Arc<LedgerError>>,
    present: &Present,
    steps: &mut Steps,
) -> usize {
    let mut losses = 0;
    let has_drafts = |group: &&mut Group| group.drafts().next().is_some();
    for group in groups.iter_mut().filter(has_drafts) {
        let is_committed = match result {
            Ok(committed) => group.drafts().all(|it| committed.contains(&it.account)),
            Err(error) => match **error {
                LedgerError::Conflict => false,
                LedgerError::Unavailable(_) => {
                    group.send_unknown();
                    continue;
                }
                LedgerError::Untimely(why) => {
                    group.refuse_instant(why, steps);
                    continue;
                }
                LedgerError::Refused(_)
                | LedgerError::Corrupt(_)
                | LedgerError::Unreadable(_)
                | LedgerError::Archived(_) => {
                    group.refuse(error, steps);
                    continue;
                }
            },
        };
        if is_committed && let Some(plan) = group.take_plan() {
            group.finish(plan, present, steps);
        } else {
            losses += usize::from(group.lose(present));
        }
    }
    losses
}

/// Whether a draft that follows a known last line is not committed. Batches always look first.
pub fn lost_known_line(groups: &[Group], committed: &HashSet<AccountId>) -> bool {
    let groups = groups.iter().filter(|group| !group.scope.is_component());
    let mut drafts = groups.flat_map(Group::drafts);
    drafts.any(|draft| draft.after.is_some() && !committed.contains(&draft.account))
}

impl Group {
    /// The lane that the group waits for; `None` if the group has no claims left.
    pub fn lane(&self) -> Option<Lane> {
        match self.stage {
            GroupStage::Decided(ref plan) | GroupStage::SentAgain(ref plan) => {
                Some(match self.scope {
                    Scope::Account(_) if plan.shares() => Lane::Shared,
                    Scope::Account(_) => Lane::Append,
                    Scope::Component { .. } => Lane::Together,
                })
            }
            GroupStage::Open if self.claims.is_empty() => None,
            _ if self.losses >= LOSSES_BEFORE_TURN => Some(Lane::Contend),
            GroupStage::Open | GroupStage::Unanswered(_) => Some(Lane::Look),
        }
    }

    /// Decides the group on the last line that this instance knows, if every claim is granted. Only
    /// the ledger can refuse: the known line may be old.
    pub fn decide_on_known_line(&mut self, present: &Present) {
        let Scope::Account(account) = self.scope else {
            return;
        };
        let as_of = present.terms.as_of();
        // 1. Every claim must have come on a known line, and the terms must be fresh.
        if !self.may_be_known() || !is_fresh(as_of, present.at) {
            return;
        }
        // 2. The memory must know the last line, or take the account to be new.
        let Some(known) = present.memory.line(account, present.at) else {
            return;
        };
        let keys = self.claims.iter().map(|claim| claim.work.key);
        if known.line.is_none() && keys.skip(1).any(|key| key.is_some()) {
            // 3. The ledger leaves out entry 1 if the account is not new. An entry with a key after
            //    a missing entry would undo the whole transaction, so only the first claim may have
            //    a key.
            return;
        }
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.hints.has_no_counter = !known.may_have_counter);
        // 4. The claims are decided on that line.
        let basis = Basis {
            epoch: known.epoch,
            seen_at: present.now,
            as_of,
        };
        let view = AccountView {
            account,
            after: known.line,
            facts: AccountFacts::default(),
        };
        let decided = self.decide(basis, &[view], &[], present);
        // 5. If a claim is refused, or information is missing, the plan is dropped: the ledger is
        //    read instead.
        let refuses = |plan: &Plan| !plan.others.is_empty();
        if decided.is_err() || self.plan().is_some_and(refuses) {
            // From now on the counters are asked. They can deny the next claims.
            present.memory.distrust(account, present.at);
            self.dissolve();
        }
    }

    /// Takes what the ledger showed. Answers the claims that have entries in the ledger, and drops
    /// drafts that must not be sent again.
    pub fn after_look(&mut self, seen: &LedgerView, present: &Present, steps: &mut Steps) {
        // 1. An account exists if it has a line. A batch tells nothing about newcomers: it may be a
        //    dry run.
        if let Scope::Account(account) = self.scope
            && seen.lines.contains_key(&account)
        {
            present.memory.note_existing(account);
        }
        // 2. The group may have sent drafts that got no answer. The claims of a plan that was not
        //    sent are decided again.
        if let GroupStage::Decided(_) = self.stage {
            self.dissolve();
        }
        if let Some(plan) = self.take_plan() {
            let may_be_committed = plan.may_be_committed(seen);
            if plan.is_among(&seen.entries) {
                // 2a. The drafts are committed: their claims are answered.
                self.finish(plan, present, steps);
            } else if may_be_committed && plan.holds(present.at) && plan.has_room(seen) {
                // 2b. The same drafts are sent again.
                self.stage = GroupStage::SentAgain(plan);
                return;
            } else {
                // 2c. The drafts must not be sent again. Their claims are decided again. Invariant:
                //     the ledger takes at most one of the old drafts and the new ones, since both
                //     follow the same lines.
                self.stage = if may_be_committed {
                    GroupStage::Unanswered(plan)
                } else {
                    GroupStage::Decided(plan)
                };
                self.dissolve();
                self.drop_expired(present.at, steps);
            }
        }
        // 3. Claims that the ledger already answers end here. The others are decided next.
        self.end_corrections_of_lost(seen, steps);
        self.answer_repeated(seen, present, steps);
    }

    /// Decides the claims on what a look showed. If the decision appends nothing, the claims are
    /// answered at once.
    ///
    /// # Errors
    /// A [`Gap`] of each account that lacks a fact: nothing is decided.
    pub fn decide_on_look(
        &mut self,
        basis: Basis,
        views: &[AccountView],
        seen: &LedgerView,
        present: &Present,
        steps: &mut Steps,
    ) -> Result<(), Vec<Gap>> {
        let is_new = |account| {
            let place = views.binary_search_by_key(&account, |view| view.account);
            place.is_ok_and(|place| views[place].after.is_none())
        };
        for claim in &mut self.claims {
            if is_new(claim.work.account) {
                claim.hints.has_no_counter = claim.hints.counter.is_none();
            }
        }
        self.decide(basis, views, &seen.entries, present)?;
        if self.drafts().next().is_none()
            && let Some(plan) = self.take_plan()
        {
            self.finish(plan, present, steps);
        }
        Ok(())
    }

    /// Drops the plan unless its drafts may be sent: its terms must be fresh, and its last lines must
    /// be of this epoch. The claims of a dropped plan are decided again.
    pub fn check_drafts(&mut self, epoch: Epoch, now: Instant) {
        let may_be_sent = |plan: &Plan| plan.holds(now) && plan.basis.epoch == epoch;
        if !self.plan().is_some_and(may_be_sent) {
            self.dissolve();
        }
    }

    /// Answers every claim of a committed plan, and settles the counters of the accounts.
    fn finish(&mut self, plan: Plan, present: &Present, steps: &mut Steps) {
        self.losses = 0;
        self.was_untimely = false;
        match self.scope {
            Scope::Account(account) => finish_account(account, plan, present, steps),
            Scope::Component { .. } => finish_batches(plan, present, steps),
        }
    }

    /// Notes that the drafts were not committed: another writer was first, or an account is not new.
    /// Returns whether another writer was first.
    fn lose(&mut self, present: &Present) -> bool {
        let was_taken_for_new = self.drafts().all(|draft| draft.after.is_none())
            && self
                .plan()
                .is_some_and(|plan| plan.claims().all(|claim| claim.hints.has_known_line));
        if !was_taken_for_new {
            for draft in self.drafts() {
                present.memory.distrust(draft.account, present.at);
            }
            self.losses += 1;
        }
        self.look_again();
        // The other writer may have created a counter.
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.hints.has_no_counter = false);
        !was_taken_for_new
    }

    /// Notes that the ledger did not say whether the drafts are committed.
    pub fn send_unknown(&mut self) {
        if let Some(plan) = self.take_plan() {
            self.stage = GroupStage::Unanswered(plan);
        }
        self.look_again();
    }

    /// Makes a look at the ledger the next step, after a look or an append failed.
    pub fn look_again(&mut self) {
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.hints.has_known_line = false);
        if !self.has_unknown_outcome() {
            self.dissolve();
        } else if let Some(plan) = self.take_plan() {
            self.stage = GroupStage::Unanswered(plan);
        }
    }

    /// Takes a refusal of the ledger: the data of one of the claims that were decided together is
    /// bad. The first half of these claims is tried alone. A single claim is answered, and so are all
    /// claims of a single batch.
    pub fn refuse(&mut self, error: &Arc<LedgerError>, steps: &mut Steps) {
        self.dissolve();
        self.look_again();
        let end = |claim| (claim, Step::End(Err(Undecided::Ledger(error.clone()))));
        steps.claims.extend(self.suspect().into_iter().map(end));
    }

    /// Lets the first half of the claims that were decided together be tried alone. If only one is
    /// left, or one batch, it is returned.
    fn suspect(&mut self) -> Vec<InFlight> {
        let tried = self.together();
        let joined = self.claims[..tried].chunk_by(InFlight::is_joined);
        if joined.count() > 1 {
            self.together_most = tried / 2;
            return Vec::new();
        }
        self.together_most = usize::MAX;
        self.claims.drain(..tried).collect()
    }

    /// Takes a refusal of the ledger: an instant of the draft is too far from its clock. The process
    /// may have been paused after the decision, so the claims are decided again, once. After that the
    /// clock is off, and the claims are answered. No instant helps an account whose last line is in
    /// the future, but batches without it. The same draft is not sent again: it would be refused again.
    pub fn refuse_instant(&mut self, why: Untimely, steps: &mut Steps) {
        let is_again = std::mem::replace(&mut self.was_untimely, true);
        let is_of_clock = matches!(why, Untimely::Clock(_));
        self.dissolve();
        self.look_again();
        if !is_again && is_of_clock {
            return;
        }
        self.was_untimely = false;
        let refused = if self.scope.is_component() && !is_of_clock {
            self.suspect()
        } else {
            std::mem::take(&mut self.claims)
        };
        let end = |claim| (claim, Step::End(Err(why.into())));
        steps.claims.extend(refused.into_iter().map(end));
    }

    /// Lets the claims of the group leave for Redis, if all of them may leave.
    pub fn leave(&mut self, ledger_is_silent: bool, at: Instant, steps: &mut Steps) {
        let may_leave = |claim: &InFlight| claim.may_leave(ledger_is_silent, at);
        if self.every_claim().all(may_leave) {
            self.dissolve();
            let leave = |claim| (claim, Step::Leave(LeaveReason::RedisDecides));
            steps.claims.extend(self.claims.drain(..).map(leave));
        }
    }

    /// Ends the claims that passed their deadline, unless their draft may still be committed.
    pub fn drop_expired(&mut self, at: Instant, steps: &mut Steps) {
        if self.every_claim().all(|claim| claim.deadline <= at) {
            self.dissolve();
        }
        let expired = self.claims.extract_if(.., |claim| claim.deadline <= at);
        let end = |claim| (claim, Step::End(Err(Undecided::Deadline)));
        steps.claims.extend(expired.map(end));
    }

    /// Ends corrections of grants that their account lacks: the ledger was replaced by a copy
    /// without the grant, or the subject was erased and another account has the grant. The others are looked at
    /// later.
    fn end_corrections_of_lost(&mut self, seen: &LedgerView, steps: &mut Steps) {
        let is_lost = |claim: &InFlight| {
            let account = claim.work.account;
            let is_it = |grant| move |it: &Entry| it.id == grant && it.account == account;
            let grant = claim.work.grant();
            grant.is_some_and(|grant| !seen.entries.iter().any(is_it(grant)))
        };
        let looked_at = self.looked_at();
        // A batch ends as a whole.
        let of_batches = self.claims[..looked_at].iter();
        let of_batches = of_batches.filter(|claim| is_lost(claim));
        let batches: Vec<u64> = of_batches.filter_map(|claim| claim.batch).collect();
        let ends = |claim: &mut InFlight| match claim.batch {
            None => is_lost(claim),
            Some(batch) => batches.contains(&batch),
        };
        let end = |claim| (claim, Step::End(Err(Undecided::Lost)));
        let lost = self.claims.extract_if(..looked_at, ends).map(end);
        steps.claims.extend(lost);
    }

    /// Ends the claims whose entries, or whose keys, the ledger already has. A batch is answered as a
    /// whole: an entry of one of its claims tells that all of them are committed.
    fn answer_repeated(&mut self, seen: &LedgerView, present: &Present, steps: &mut Steps) {
        let entries = &seen.entries;
        let own = |claim: &InFlight| {
            let entry = entries.iter().find(|entry| claim.sent.contains(&entry.id));
            entry.cloned().map(Outcome::Entered)
        };
        let committed = self.claims.iter().filter(|claim| own(claim).is_some());
        let committed: Vec<Option<u64>> = committed.map(|claim| claim.batch).collect();
        for claim in std::mem::take(&mut self.claims) {
            if claim.batch.is_some() && !committed.contains(&claim.batch) {
                self.claims.push(claim);
                continue;
            }
            let earlier = || Outcome::of_earlier(&claim.work, entries, present.now);
            match own(&claim).or_else(earlier) {
                Some(outcome) => steps.claims.push((claim, Step::End(Ok(outcome)))),
                None => self.claims.push(claim),
            }
        }
    }
}
