//! A claim's way, step by step. Nothing here waits, sends, or reads a clock: each function says what
//! happens next, and the dispatch and its lanes do it and report back. The simulator drives the
//! same functions.
//!
//! 1. A claim *begins*: it joins its account's group. Where the account's counter may deny it, the
//!    counter is *asked* first.
//! 2. A counter may deny it. Where it has a key, the ledger is *probed* for the key first.
//! 3. The claims of an account form a *group*. A group whose last line this instance knows, or whose
//!    account it takes to be new, is decided at once. For the others a lane *looks* at the ledger; then
//!    they are decided.
//! 4. A lane *appends* what the groups were granted, in one transaction. What was committed is
//!    answered. A group that lost to another writer, or whose account is not new, looks at the ledger;
//!    after two losses it *contends*: it waits for its turn.
//! 5. Where Redis decides alone, the claim is *counted* (`engine/counted`).

use std::collections::HashSet;
use std::sync::Arc;

use chrono::TimeDelta;
use tokio::time::Instant;

use super::group::{Basis, CounterNeed, Group, GroupOutcome, corrected};
use super::in_flight::{CounterView, InFlight, Outcome, Undecided};
use super::present::Present;
use super::settle::Settling;
use crate::counter::Answer;
use crate::domain::account::{Unknown, Verdict, refuse};
use crate::domain::drafting::Known;
use crate::domain::grant::Entry;
use crate::domain::identity::AccountId;
use crate::domain::refusal::Refusal;
use crate::engine::instance::{Epoch, Recalled, is_fresh};
use crate::ledger::{LedgerError, LedgerView};

/// A counter may deny for so long after the ledger confirmed it.
pub const CONFIRMED: TimeDelta = TimeDelta::seconds(3);
/// A group that lost so often to other writers waits for its turn.
pub const LOSSES_BEFORE_TURN: u32 = 2;

/// What happens next to a claim.
#[derive(Debug)]
pub enum Step {
    /// Its counter is asked.
    Ask,
    /// Its counter denies it: the ledger is asked for its key.
    Probe(CounterDenial),
    /// It joins its account's group.
    Join,
    /// Redis decides it.
    Count,
    /// Grants of its account wait for the ledger and go first. Its counter is asked again after a
    /// moment.
    AskLater,
    /// As [`Step::AskLater`]; then Redis decides it.
    CountLater,
    /// It is answered.
    End(Result<Outcome, Undecided>),
}

/// Where a group waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// For a look at the ledger.
    Look,
    /// For a look and an append in its turn.
    Contend,
    /// For its entries to be appended.
    Append,
}

impl Lane {
    /// The lane that this one takes turns with.
    pub fn beside(self) -> Option<Self> {
        match self {
            Self::Look => Some(Self::Append),
            Self::Append => Some(Self::Look),
            Self::Contend => None,
        }
    }
}

/// A counter's denial.
#[derive(Debug)]
pub struct CounterDenial {
    /// What lacks room.
    pub refusal: Refusal,
    /// Every change of a policy that was made before this instant was known to it.
    pub as_of: Instant,
}

/// What follows from a group's step.
#[derive(Default)]
pub struct Steps {
    /// Claims that go on alone.
    pub claims: Vec<(InFlight, Step)>,
    /// What becomes of counters.
    pub settlements: Vec<Settling>,
}

/// What must be learned before a group can be decided.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// The version of the policy that its last line was decided under.
    Policy,
    /// What the ledger can tell.
    Ledger(Unknown),
}

/// A claim begins. `redis_decides` tells whether Redis decides its policy's claims at present.
pub fn begin(
    claim: &mut InFlight,
    redis_decides: bool,
    counters_answer: bool,
    present: &Present,
) -> Step {
    let work = &claim.work;
    if work.key.is_none()
        && let Some(refusal) = refuse(&work.policy, work.units, present.now)
    {
        // Whatever the account holds. There is no grant to repeat.
        return Step::End(Ok(Outcome::Refused(work.policy.clone(), refusal)));
    }
    if redis_decides {
        return Step::Count;
    }
    let recalled = present.memory.recall(work.account, work.key, present.at);
    // A grant that Redis counted may wait before a known line, unseen.
    let may_be_counted = present.terms.may_be_counted(work.policy.id);
    let may_be_denied = may_be_counted || recalled == Recalled::Distrusted;
    claim.asked.is_known = !may_be_denied && recalled == Recalled::Line;
    match counters_answer && may_be_denied {
        true => Step::Ask,
        false => Step::Join,
    }
}

/// A claim's counter was asked; `None` where the counters do not answer. The ledger has the last
/// word on everything but a denial.
pub fn asked(claim: &mut InFlight, answer: Option<Answer>, present: &Present) -> Step {
    let Some(answer) = answer else {
        return Step::Join;
    };
    claim.may_wait = answer.grants_wait;
    if answer.grants_wait && claim.waits_for_queue() {
        return wait_for_ledger(claim, present.at);
    }
    let has_key = claim.work.key.is_some();
    let Some(counter) = answer.counter else {
        claim.asked = CounterView {
            has_no_counter: true,
            wants_keys: has_key,
            ..CounterView::default()
        };
        return Step::Join;
    };
    let as_of = present.terms.as_of();
    let verdict = present
        .terms
        .decide_on(&counter.line, &mut claim.work, present.now);
    claim.asked = CounterView {
        seen: Some(counter.line.number),
        wants_keys: has_key && !counter.holds_all_keys,
        ..CounterView::default()
    };
    let Ok(Verdict::Refused(refusal @ Refusal::Denied(_))) = verdict else {
        return Step::Join;
    };
    let is_confirmed = (present.now - counter.confirmed_at).abs() <= CONFIRMED;
    if !is_confirmed || !is_fresh(as_of, present.at) {
        return Step::Join;
    }
    match has_key {
        // The key may have a grant that the counter does not tell.
        true => Step::Probe(CounterDenial { refusal, as_of }),
        false => Step::End(Ok(Outcome::Refused(claim.work.policy.clone(), refusal))),
    }
}

/// Grants of the account that Redis decided are on their way into the ledger: the claim comes after
/// them. If that takes too long, Redis decides this one too, if it can.
fn wait_for_ledger(claim: &InFlight, at: Instant) -> Step {
    match claim.may_be_counted && (claim.count_from..claim.deadline).contains(&at) {
        true => Step::Count,
        false => Step::AskLater,
    }
}

/// The ledger was asked for a denied claim's key; `None` where it did not answer. After the
/// counter's line there may have been room again, so an entry with the key counts more.
pub fn probed(
    claim: &InFlight,
    denial: CounterDenial,
    seen: Option<&LedgerView>,
    at: Instant,
) -> Step {
    let Some(seen) = seen else {
        return Step::Join;
    };
    let mut entries = seen.entries.iter();
    match entries.find(|entry| entry.key == claim.work.key) {
        Some(entry) => Step::End(Ok(Outcome::of_key(&claim.work, entry.clone()))),
        None if is_fresh(denial.as_of, at) => {
            let policy = claim.work.policy.clone();
            Step::End(Ok(Outcome::Refused(policy, denial.refusal)))
        }
        None => Step::Join,
    }
}

/// A transaction ended that was to append the groups' drafts. Returns how many groups lost to
/// another writer.
pub fn appended(
    groups: &mut [Group],
    result: &Result<HashSet<AccountId>, Arc<LedgerError>>,
    present: &Present,
    steps: &mut Steps,
) -> usize {
    let mut losses = 0;
    for group in groups.iter_mut().filter(|group| group.draft().is_some()) {
        let is_committed = match result {
            Ok(committed) => committed.contains(&group.account),
            Err(error) => match **error {
                LedgerError::Conflict => false,
                LedgerError::Unavailable(_) => {
                    group.send_unknown();
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
        if is_committed {
            group.finish(present, steps);
        } else {
            losses += usize::from(group.lose(present));
        }
    }
    losses
}

/// Whether a draft that comes after an account's last line, as far as known, is not committed.
pub fn lost_known_line(groups: &[Group], committed: &HashSet<AccountId>) -> bool {
    let mut drafts = groups.iter().filter_map(Group::draft);
    drafts.any(|draft| draft.after.is_some() && !committed.contains(&draft.account))
}

impl Group {
    /// The lane that a group waits for; `None` where nobody is left to answer.
    pub fn lane(&self) -> Option<Lane> {
        match &self.plan {
            Some(_) if !self.must_look => Some(Lane::Append),
            None if self.claims.is_empty() => None,
            _ if self.losses >= LOSSES_BEFORE_TURN => Some(Lane::Contend),
            _ => Some(Lane::Look),
        }
    }

    /// Decides a group whose last line is known, if all of its claims are granted. A refusal needs
    /// the ledger's own word.
    pub fn decide_on_known_line(&mut self, present: &Present) {
        let as_of = present.terms.as_of();
        if !self.may_be_known() || !is_fresh(as_of, present.at) {
            return;
        }
        let Some(known) = present.memory.line(self.account, present.at) else {
            return;
        };
        let keys = self.claims.iter().map(|claim| claim.work.key);
        if known.line.is_none() && keys.skip(1).any(|key| key.is_some()) {
            // A key behind an entry that the ledger leaves out would undo a whole transaction.
            return;
        }
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.asked.has_no_counter = !known.may_have_counter);
        let basis = Basis {
            after: known.line,
            epoch: known.epoch,
            seen_at: present.now,
            as_of,
        };
        let decided = self.decide_after(basis, &Known::default(), present);
        let refuses = |plan: &GroupOutcome| !plan.others.is_empty();
        if decided.is_err() || self.plan.as_ref().is_some_and(refuses) {
            // The counters can deny the next ones.
            present.memory.distrust(self.account, present.at);
            self.dissolve();
        }
    }

    /// The ledger was looked at. Answers the claims that it has entries of, and takes back a draft
    /// that may not be sent again.
    pub fn looked(&mut self, seen: &LedgerView, present: &Present, steps: &mut Steps) {
        self.must_look = false;
        let last = seen.lines.get(&self.account);
        if last.is_some() {
            present.memory.note_existing(self.account);
        }
        if let Some(plan) = &mut self.plan {
            if plan.is_among(&seen.entries) {
                self.finish(present, steps);
            } else if !plan.may_be_committed(seen, last) || !plan.holds(present.at) {
                // Of it and what is decided now the ledger takes one at most: both go on from the
                // same line.
                plan.outcome_unknown = plan.may_be_committed(seen, last);
                self.dissolve();
                self.drop_expired(present.at, steps);
            }
        }
        if self.plan.is_none() {
            self.end_corrections_of_lost(seen, steps);
            self.answer_repeated(seen, steps);
        }
    }

    /// Decides the claims on a basis. A plan that appends nothing is answered at once.
    ///
    /// # Errors
    /// [`Missing`]; then nothing is decided.
    pub fn decide_looked(
        &mut self,
        basis: Basis,
        known: &Known,
        present: &Present,
        steps: &mut Steps,
    ) -> Result<(), Missing> {
        if basis.after.is_none() {
            let claims = self.claims.iter_mut();
            claims.for_each(|claim| claim.asked.has_no_counter = claim.asked.seen.is_none());
        }
        self.decide_after(basis, known, present)?;
        if self.plan.is_some() && self.draft().is_none() {
            self.finish(present, steps);
        }
        Ok(())
    }

    fn decide_after(
        &mut self,
        basis: Basis,
        known: &Known,
        present: &Present,
    ) -> Result<(), Missing> {
        let Some(claim) = self.claims.first() else {
            return Ok(());
        };
        let (own, after) = (&claim.work.policy, basis.after.as_ref());
        let policy = present.terms.after(own, self.account, after, present.now);
        let policy = policy.ok_or(Missing::Policy)?;
        let decided = self.decide(&policy, basis, known, present.now);
        decided.map_err(Missing::Ledger)
    }

    /// Whether its draft may be sent: the terms that it was decided by are fresh, and its line is of
    /// this epoch. Otherwise its claims are decided again.
    pub fn check_draft(&mut self, epoch: Epoch, now: Instant) {
        let may_be_sent = |plan: &GroupOutcome| plan.holds(now) && plan.basis.epoch == epoch;
        if !self.plan.as_ref().is_some_and(may_be_sent) {
            self.dissolve();
        }
    }

    /// Its draft is committed: everybody is answered, and its account's counter settled.
    pub fn finish(&mut self, present: &Present, steps: &mut Steps) {
        let Some(plan) = self.plan.take() else {
            return;
        };
        self.losses = 0;
        let counts = present.terms.may_be_counted(plan.policy);
        let own_need = plan.counter_need();
        let recalled = present.memory.recall(self.account, None, present.at);
        // A counter that is being made lags unless what comes after it is settled too.
        let need = match counts || recalled == Recalled::Distrusted {
            true => CounterNeed::Wanted,
            false => own_need,
        };
        let may_have_counter = need != CounterNeed::Absent;
        let memory = present.memory;
        if let Some(draft) = &plan.draft {
            let (entries, epoch) = (&draft.entries, plan.basis.epoch);
            memory.learn(self.account, entries, epoch, may_have_counter, present.at);
        }
        if own_need == CounterNeed::Wanted && !counts {
            // The account has a counter from now on.
            memory.distrust(self.account, present.at);
        }
        let end = |(claim, answer)| (claim, Step::End(answer));
        if may_have_counter && present.has_counters {
            let (answered, settling) =
                Settling::of_plan(plan, self.account, need, counts, present.now);
            steps.claims.extend(answered.into_iter().map(end));
            steps.settlements.extend(settling);
        } else {
            steps.claims.extend(plan.answers().map(end));
        }
    }

    /// Another writer was first, or the account is not new. Returns whether another writer was first.
    fn lose(&mut self, present: &Present) -> bool {
        let plan = self.plan.as_ref();
        let was_taken_for_new = plan.is_some_and(|plan| {
            plan.basis.after.is_none() && plan.claims().all(|claim| claim.asked.is_known)
        });
        if !was_taken_for_new {
            present.memory.distrust(self.account, present.at);
            self.losses += 1;
        }
        self.look_again();
        // That writer may have made a counter.
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.asked.has_no_counter = false);
        !was_taken_for_new
    }

    /// The ledger did not say whether it took the draft.
    pub fn send_unknown(&mut self) {
        if let Some(plan) = &mut self.plan {
            plan.outcome_unknown = true;
        }
        self.look_again();
    }

    /// The ledger could not be looked at, or not appended to: the next thing is a look.
    pub fn look_again(&mut self) {
        self.must_look = true;
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.asked.is_known = false);
        if !self.has_unknown_outcome() {
            self.dissolve();
        }
    }

    /// The ledger refuses the data of one of the claims that were decided together. The first half
    /// of them is tried alone; a single one is answered.
    pub fn refuse(&mut self, error: &Arc<LedgerError>, steps: &mut Steps) {
        self.dissolve();
        self.must_look = true;
        let tried = self.claims.len().min(self.together_most);
        self.together_most = (tried / 2).max(1);
        if tried <= 1 && !self.claims.is_empty() {
            let undecided = Undecided::Ledger(error.clone());
            let claim = self.claims.remove(0);
            steps.claims.push((claim, Step::End(Err(undecided))));
            self.together_most = usize::MAX;
        }
    }

    /// Hands over the claims that Redis is to decide, if it is to decide all of the group's.
    pub fn leave_to_redis(&mut self, ledger_is_silent: bool, at: Instant, steps: &mut Steps) {
        let is_for_redis = |claim: &InFlight| claim.is_for_redis(ledger_is_silent, at);
        if self.every_claim().all(is_for_redis) {
            self.dissolve();
            let claims = self.claims.drain(..).map(|claim| (claim, Step::Count));
            steps.claims.extend(claims);
        }
    }

    /// Ends the claims that nobody waits for any more, unless their outcome is still open.
    pub fn drop_expired(&mut self, at: Instant, steps: &mut Steps) {
        if self.every_claim().all(|claim| claim.deadline <= at) {
            self.dissolve();
        }
        let expired = self.claims.extract_if(.., |claim| claim.deadline <= at);
        let end = |claim| (claim, Step::End(Err(Undecided::Deadline)));
        steps.claims.extend(expired.map(end));
    }

    /// Ends the corrections of grants that the ledger lacks, since a copy took its place, or that another
    /// account has, since their subject was erased.
    fn end_corrections_of_lost(&mut self, seen: &LedgerView, steps: &mut Steps) {
        let is_lost = |claim: &mut InFlight| {
            let account = claim.work.account;
            let is_it = |grant| move |it: &Entry| it.id == grant && it.account == account;
            corrected(claim).is_some_and(|grant| !seen.entries.iter().any(is_it(grant)))
        };
        let end = |claim| (claim, Step::End(Err(Undecided::Lost)));
        let lost = self.claims.extract_if(.., is_lost).map(end);
        steps.claims.extend(lost);
    }

    /// Ends the claims that have entries in the ledger already, and those whose keys do.
    fn answer_repeated(&mut self, seen: &LedgerView, steps: &mut Steps) {
        let found = |claim: &InFlight| {
            let own = |entry: &&Entry| claim.sent.contains(&entry.id);
            if let Some(entry) = seen.entries.iter().find(own) {
                return Some(Outcome::Entered(entry.clone()));
            }
            let key = claim.work.key?;
            let entry = seen.entries.iter().find(|entry| entry.key == Some(key))?;
            Some(Outcome::of_key(&claim.work, entry.clone()))
        };
        let claims = std::mem::take(&mut self.claims);
        for claim in claims {
            match found(&claim) {
                Some(outcome) => steps.claims.push((claim, Step::End(Ok(outcome)))),
                None => self.claims.push(claim),
            }
        }
    }
}
