//! Claims that go into the ledger together: those of one account, or an atomic batch.

use chrono::{DateTime, Utc};

use super::account_view::{AccountDecision, AccountView, Gap};
use super::in_flight::{InFlight, Outcome};
use super::plan::{Basis, Plan};
use super::present::Present;
use domain::account_facts::AccountFacts;
use domain::drafting::Decided;
use domain::grant::Entry;
use domain::identity::{AccountId, EntryId};
use ledger::{Draft, Look};

/// Claims that are decided together. The claims of an account are decided under one version of its
/// policy. Invariant: a group has at most one plan, and the claims of the plan come before the
/// others.
pub struct Group {
    pub scope: Scope,
    /// The claims that are not decided yet, oldest first.
    pub claims: Vec<InFlight>,
    pub stage: GroupStage,
    /// How many times in a row another writer was first.
    pub losses: u32,
    /// The largest number of claims that are decided together.
    pub together_most: usize,
    /// Whether the ledger refused the instant of the last draft.
    pub was_untimely: bool,
}

/// The accounts of a group, and what its claims have to do with each other.
pub enum Scope {
    /// The claims of one account. Each has its own answer.
    Account(AccountId),
    /// An atomic batch: all of its claims are granted, or none.
    Batch {
        /// The accounts of the claims, each once, in their order.
        accounts: Vec<AccountId>,
        /// Whether something besides the claims prevents every grant.
        is_doomed: bool,
    },
}

/// How far a group is.
pub enum GroupStage {
    /// Nothing is decided.
    Open,
    /// The claims of the plan are decided, and its drafts may be sent. They were not sent before.
    Decided(Plan),
    /// The drafts were sent and the outcome is not known: the ledger is read for them.
    Unanswered(Plan),
    /// The outcome of the drafts is not known, and the ledger does not have them yet: they are sent
    /// again without a change.
    SentAgain(Plan),
}

impl Scope {
    pub fn accounts(&self) -> &[AccountId] {
        match self {
            Self::Account(account) => std::slice::from_ref(account),
            Self::Batch { accounts, .. } => accounts,
        }
    }

    pub fn is_batch(&self) -> bool {
        matches!(self, Self::Batch { .. })
    }
}

impl Group {
    /// The group of an account, with its first claim.
    pub fn new(claim: InFlight) -> Self {
        Self::of(Scope::Account(claim.work.account), vec![claim])
    }

    /// An atomic batch. `is_doomed` tells that something besides the claims prevents every grant.
    pub fn of_batch(claims: Vec<InFlight>, is_doomed: bool) -> Self {
        let mut accounts: Vec<AccountId> = claims.iter().map(|claim| claim.work.account).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let scope = Scope::Batch {
            accounts,
            is_doomed,
        };
        Self::of(scope, claims)
    }

    fn of(scope: Scope, claims: Vec<InFlight>) -> Self {
        Self {
            scope,
            claims,
            stage: GroupStage::Open,
            losses: 0,
            together_most: usize::MAX,
            was_untimely: false,
        }
    }

    /// The account of the claims; `None` for an atomic batch.
    pub fn account(&self) -> Option<AccountId> {
        match self.scope {
            Scope::Account(account) => Some(account),
            Scope::Batch { .. } => None,
        }
    }

    /// Whether the group may be decided on a known line: no claim needs a look at the ledger.
    pub fn may_be_known(&self) -> bool {
        let came_on_known_line =
            |claim: &InFlight| claim.sent.is_empty() && claim.hints.has_known_line;
        matches!(self.stage, GroupStage::Open)
            && self.losses == 0
            && self.claims.iter().all(came_on_known_line)
    }

    pub fn plan(&self) -> Option<&Plan> {
        match &self.stage {
            GroupStage::Open => None,
            GroupStage::Decided(plan)
            | GroupStage::Unanswered(plan)
            | GroupStage::SentAgain(plan) => Some(plan),
        }
    }

    /// Takes the plan out of the group.
    pub fn take_plan(&mut self) -> Option<Plan> {
        match std::mem::replace(&mut self.stage, GroupStage::Open) {
            GroupStage::Open => None,
            GroupStage::Decided(plan)
            | GroupStage::Unanswered(plan)
            | GroupStage::SentAgain(plan) => Some(plan),
        }
    }

    /// Whether the drafts were sent and their outcome is not known.
    pub fn has_unknown_outcome(&self) -> bool {
        matches!(
            self.stage,
            GroupStage::Unanswered(_) | GroupStage::SentAgain(_)
        )
    }

    /// The drafts that may be sent now.
    pub fn drafts(&self) -> impl Iterator<Item = &Draft> {
        let plan = match &self.stage {
            GroupStage::Decided(plan) | GroupStage::SentAgain(plan) => Some(plan),
            GroupStage::Open | GroupStage::Unanswered(_) => None,
        };
        plan.into_iter().flat_map(Plan::drafts)
    }

    /// All claims: those not decided yet, and those of the plan.
    pub fn every_claim(&self) -> impl Iterator<Item = &InFlight> {
        let planned = self.plan().into_iter().flat_map(Plan::claims);
        self.claims.iter().chain(planned)
    }

    /// Adds what the group needs to a look at the ledger.
    pub fn look_for(&self, look: &mut Look, now: DateTime<Utc>) {
        look.accounts.extend(self.scope.accounts());
        for claim in self.every_claim() {
            look.keys.extend(claim.work.key);
            look.entries.extend(&claim.sent);
            look.entries.extend(corrected(claim));
            look.followers_of.extend(corrected(claim));
            let policy = &claim.work.policy;
            let shared = policy.shared_totals(|_| 0, now);
            look.shared
                .extend(shared.into_iter().map(|total| total.key));
        }
        let sent = self.plan().into_iter().flat_map(Plan::entry_ids);
        look.entries.extend(sent);
        let drafts = self.plan().into_iter().flat_map(|plan| &plan.drafts);
        let changes = drafts.flat_map(|draft| &draft.shared);
        look.shared.extend(changes.map(|change| change.key));
    }

    /// Decides the claims of each account, one after the other. Each claim is decided on the totals
    /// that the claims before it leave. `views` has the accounts in the order of the scope, and
    /// `seen` the entries that the ledger showed.
    ///
    /// # Errors
    /// A [`Gap`] of each account that lacks a fact: nothing is decided.
    pub fn decide(
        &mut self,
        basis: Basis,
        views: &[AccountView],
        seen: &[Entry],
        present: &Present,
    ) -> Result<(), Vec<Gap>> {
        if self.claims.is_empty() {
            return Ok(());
        }
        // 1. The claims of each account are decided. A claim of a batch whose key has an entry keeps
        //    its outcome.
        let together = self.claims.len().min(self.together_most);
        let claims = &self.claims[..together];
        let is_batch = self.scope.is_batch();
        let earlier = |claim: &InFlight| {
            let outcome = is_batch.then(|| Outcome::of_earlier(&claim.work, seen, present.now));
            outcome.flatten()
        };
        let mut gaps = Vec::new();
        let mut decisions = Vec::with_capacity(views.len());
        let mut changes = Vec::new();
        for view in views {
            let is_new =
                |claim: &&InFlight| claim.work.account == view.account && earlier(claim).is_none();
            let works = claims.iter().filter(is_new).map(|claim| &claim.work);
            match view.decide(works, &changes, present) {
                Ok(Some(decision)) => {
                    changes.extend_from_slice(&decision.draft.shared);
                    decisions.push(decision);
                }
                Ok(None) => {}
                Err(gap) => gaps.push(gap),
            }
        }
        if !gaps.is_empty() {
            return Err(gaps);
        }
        // 2. If many holds of an account lapse, the plan has only their lapses, and the claims wait
        //    for the next plan.
        let mut plan = Plan::new(basis);
        if decisions.iter().any(|it| it.decided.is_none()) {
            decisions.retain(|it| it.decided.is_none());
            plan.drafts.extend(decisions.into_iter().map(|it| it.draft));
            self.stage = GroupStage::Decided(plan);
            return Ok(());
        }
        // 3. Every decided claim moves from the group into the plan.
        for claim in self.claims.drain(..together) {
            if let Some(outcome) = earlier(&claim) {
                plan.others.push((claim, outcome));
                continue;
            }
            let mut accounts = decisions.iter().map(|it| it.draft.account);
            let place = accounts.position(|account| account == claim.work.account);
            let place = place.expect("the account of each claim is decided");
            let AccountDecision {
                policy, decided, ..
            } = &mut decisions[place];
            let next = decided.as_mut().and_then(Iterator::next);
            plan.take_in(claim, place, next.expect("each claim is decided"), policy);
        }
        plan.drafts.extend(decisions.into_iter().map(|it| it.draft));
        // 4. A batch with a claim that is refused appends nothing.
        if let Scope::Batch { is_doomed, .. } = self.scope
            && (is_doomed || plan.is_refused())
        {
            plan.withhold();
        }
        self.stage = GroupStage::Decided(plan);
        Ok(())
    }

    /// Adds a claim that comes after the draft was decided, if the claim is granted after the
    /// draft. Otherwise returns the claim.
    pub fn extend(&mut self, mut claim: InFlight, present: &Present) -> Option<InFlight> {
        // 1. A claim joins only a draft that was not sent and is not being halved.
        let GroupStage::Decided(plan) = &mut self.stage else {
            return Some(claim);
        };
        let [draft] = &mut plan.drafts[..] else {
            return Some(claim);
        };
        // The ledger leaves out entry 1 if the account is not new. An entry with a key after a
        // missing entry would undo the whole transaction.
        let may_follow = claim.work.key.is_none() || draft.after.is_some();
        let may_extend = self.claims.is_empty()
            && may_follow
            && self.together_most == usize::MAX
            && claim.hints.has_known_line
            && claim.sent.is_empty();
        let Some(last) = draft.entries.last().filter(|_| may_extend) else {
            return Some(claim);
        };
        // 2. The claim is decided on the last entry of the draft.
        let view = AccountView {
            account: draft.account,
            after: Some(last.line.clone()),
            facts: AccountFacts::default(),
        };
        let Ok(Some(decision)) = view.decide(std::iter::once(&claim.work), &[], present) else {
            return Some(claim);
        };
        // 3. A grant joins the draft. Any other outcome needs a look at the ledger.
        let decided = decision.decided.unwrap_or_default();
        if !matches!(decided.as_slice(), [Decided::Entry(0)]) {
            return Some(claim);
        }
        let entry = draft.entries.len();
        draft.entries.extend(decision.draft.entries);
        draft.shared.extend(decision.draft.shared);
        let first = plan.entered.first();
        claim.hints.has_no_counter = first.is_some_and(|first| first.claim.hints.has_no_counter);
        plan.take_in(claim, 0, Decided::Entry(entry), &decision.policy);
        None
    }

    /// Drops the plan. Its claims are decided again, before claims that came later. If the drafts
    /// may be committed, their claims remember the ids of their entries.
    pub fn dissolve(&mut self) {
        let has_unknown_outcome = self.has_unknown_outcome();
        let Some(mut plan) = self.take_plan() else {
            return;
        };
        if has_unknown_outcome {
            plan.remember_ids();
        }
        let planned = plan.into_claims().map(|mut claim| {
            // The ledger is read next. What was known of the account may be wrong.
            claim.hints.has_known_line = false;
            claim.hints.has_no_counter = false;
            claim
        });
        self.claims.splice(..0, planned);
    }
}

/// The grant that a correction names; `None` for a claim.
pub fn corrected(claim: &InFlight) -> Option<EntryId> {
    claim.work.grant().map(|grant| grant.id)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use chrono::{DateTime, TimeDelta};
    use tokio::sync::oneshot::{self, Receiver};
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::instance::{Epoch, Memory, Places, Terms};
    use crate::protocol::in_flight::{Undecided, Waiter};
    use crate::protocol::way::{Step, Steps};
    use domain::claim::Units;
    use domain::grant::Entry;
    use domain::policy::Policy;
    use domain::refusal::Refusal;
    use domain::samples::{policy, work};
    use domain::work::Task;
    use ledger::LedgerView;

    type Answered = Receiver<Result<Outcome, Undecided>>;

    fn benefit() -> Arc<Policy> {
        Arc::new(policy(1, "UTC", &[(3, "day")]))
    }

    fn account(number: u128) -> AccountId {
        AccountId(Uuid::from_u128(number))
    }

    /// A claim without a key: only the ids of its entries tell whether its grant is committed.
    fn claim_of(account: AccountId) -> (InFlight, Answered) {
        let (answer, answered) = oneshot::channel();
        let work = work(Task::Claim(None), benefit(), account);
        let waiter = Waiter {
            answer,
            turn: None,
            _place: Places::new(1).try_take(&"shop".into()).unwrap(),
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        (InFlight::new(work, deadline, waiter), answered)
    }

    fn claim() -> (InFlight, Answered) {
        claim_of(account(1))
    }

    /// Takes a step at an instant, with what an instance knows that has just started.
    fn at<T>(micros: i64, step: impl FnOnce(&Present) -> T) -> T {
        let at = Instant::now();
        let terms = Terms::new(at);
        let memory = Memory::default();
        step(&Present {
            terms: &terms,
            memory: &memory,
            now: DateTime::UNIX_EPOCH + TimeDelta::microseconds(micros),
            at,
            has_counters: false,
        })
    }

    /// Decides the claims of new accounts at an instant. Returns the entries to append.
    fn decide(group: &mut Group, micros: i64) -> Vec<Entry> {
        at(micros, |present| {
            let basis = Basis {
                epoch: Epoch::default(),
                seen_at: present.now,
                as_of: present.at,
            };
            let view = |account: &AccountId| AccountView {
                account: *account,
                after: None,
                facts: AccountFacts::default(),
            };
            let views: Vec<_> = group.scope.accounts().iter().map(view).collect();
            group.decide(basis, &views, &[], present).unwrap();
        });
        let entries = group.drafts().flat_map(|draft| &draft.entries);
        entries.cloned().collect()
    }

    /// Looks at a ledger that holds some entries. Returns the next steps.
    fn look(group: &mut Group, entries: Vec<Entry>) -> Steps {
        let seen = LedgerView {
            entries,
            ..LedgerView::default()
        };
        let mut steps = Steps::default();
        at(0, |present| group.after_look(&seen, present, &mut steps));
        steps
    }

    #[test]
    fn a_claim_is_known_by_the_id_of_every_draft_that_may_stand() {
        for standing in 0..2 {
            let (claim, _answered) = claim();
            let mut group = Group::new(claim);
            let entries = [10, 20].map(|micros| {
                let entry = decide(&mut group, micros).remove(0);
                group.send_unknown();
                group.dissolve();
                entry
            });
            assert_ne!(entries[0].id, entries[1].id);
            let steps = look(&mut group, vec![entries[standing].clone()]);
            assert!(group.claims.is_empty());
            match &steps.claims[..] {
                [(_, Step::End(Ok(Outcome::Entered(entry))))] => {
                    assert_eq!(*entry, entries[standing]);
                }
                _ => panic!("{} steps", steps.claims.len()),
            }
        }
    }

    #[test]
    fn a_batch_is_known_by_the_id_of_any_of_its_entries() {
        let (claims, _answered): (Vec<_>, Vec<_>) =
            [2, 1].map(account).map(claim_of).into_iter().unzip();
        let mut group = Group::of_batch(claims, false);
        let entries = decide(&mut group, 10);
        assert_eq!(entries.len(), 2);
        group.send_unknown();
        let steps = look(&mut group, vec![entries[1].clone()]);
        let told = steps.claims.iter().map(|(claim, step)| match step {
            Step::End(Ok(Outcome::Entered(entry))) => entry.account == claim.work.account,
            _ => false,
        });
        assert_eq!(told.collect::<Vec<_>>(), [true, true]);
    }

    #[test]
    fn a_batch_with_a_refused_claim_appends_nothing() {
        for (units, is_doomed) in [(4, false), (1, true)] {
            let (mut claims, _answered): (Vec<_>, Vec<_>) =
                [2, 1].map(account).map(claim_of).into_iter().unzip();
            claims[0].work.units = Units::new(units).unwrap();
            let mut group = Group::of_batch(claims, is_doomed);
            assert!(decide(&mut group, 10).is_empty());
            let plan = group.take_plan().unwrap();
            let refused = plan
                .answers()
                .filter(|(_, answer)| matches!(answer, Ok(Outcome::Refused(..))));
            assert_eq!(refused.count(), usize::from(!is_doomed));
        }
    }

    #[test]
    fn a_plan_is_taken_back_with_its_terms_or_a_claim_too_old() {
        let second = Duration::from_secs(1);
        let minute = Duration::from_secs(60);
        for (age, left, is_late) in [
            (Duration::ZERO, minute, false),
            (second, minute, true),
            (Duration::ZERO, Duration::ZERO, true),
        ] {
            let (mut claim, _answered) = claim();
            claim.deadline = Instant::now() + left;
            let mut group = Group::new(claim);
            decide(&mut group, 10);
            let mut plan = group.take_plan().unwrap();
            plan.basis.as_of -= age;
            group.stage = GroupStage::Decided(plan);
            group.check_drafts(Epoch::default(), Instant::now());
            assert_eq!(group.plan().is_none(), is_late);
            assert_eq!(group.claims.len(), usize::from(is_late));
        }
    }

    /// The entry of the claim may still arrive, unless another entry has its number.
    #[test]
    fn a_refusal_is_certain_only_behind_a_new_entry() {
        for is_certain in [false, true] {
            let (mut sent, mut answered) = claim();
            sent.sent.push(EntryId(Uuid::from_u128(1)));
            let mut group = Group::new(sent);
            decide(&mut group, 10);
            let mut plan = group.take_plan().unwrap();
            let claim = plan.entered.pop().unwrap().claim;
            let refused = Outcome::Refused(benefit(), Refusal::TooMany);
            plan.others.push((claim, refused));
            if !is_certain {
                plan.drafts.clear();
            }
            plan.answers().for_each(|(claim, answer)| claim.end(answer));
            let answer = answered.try_recv().unwrap();
            assert_eq!(matches!(answer, Ok(Outcome::Refused(..))), is_certain);
            assert_eq!(matches!(answer, Err(Undecided::Sent)), !is_certain);
        }
    }

    #[test]
    fn what_was_known_of_an_account_goes_with_the_draft() {
        let (mut claim, _answered) = claim();
        claim.hints.has_known_line = true;
        claim.hints.has_no_counter = true;
        let mut group = Group::new(claim);
        decide(&mut group, 10);
        group.send_unknown();
        group.dissolve();
        let hints = &group.claims[0].hints;
        assert!(!hints.has_known_line && !hints.has_no_counter);
    }

    #[test]
    fn a_draft_that_was_not_sent_leaves_no_id() {
        let (claim, _answered) = claim();
        let mut group = Group::new(claim);
        decide(&mut group, 10);
        group.dissolve();
        assert_eq!(group.claims[0].sent, []);
    }
}
