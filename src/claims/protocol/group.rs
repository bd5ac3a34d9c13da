//! Claims that go into the ledger together: those of one account, or those of a component of atomic batches.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::account_view::{AccountDecision, AccountView, Gap};
use super::in_flight::InFlight;
use super::plan::{Basis, Plan};
use super::present::Present;
use domain::account_facts::AccountFacts;
use domain::drafting::Decided;
use domain::grant::Entry;
use domain::identity::AccountId;
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
    /// Atomic batches that share accounts.
    Component {
        /// The number of its first batch.
        number: u64,
        /// The accounts of the claims, each once, in their order.
        accounts: Vec<AccountId>,
        /// Whether something besides the claims prevents every grant. Then the component has one batch.
        is_doomed: bool,
    },
}

/// What a group is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupName {
    Account(AccountId),
    /// The number of a component.
    Component(u64),
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
            Self::Component { accounts, .. } => accounts,
        }
    }

    /// Whether something besides the claims prevents every grant.
    pub fn is_doomed(&self) -> bool {
        matches!(
            self,
            Self::Component {
                is_doomed: true,
                ..
            }
        )
    }

    pub fn is_component(&self) -> bool {
        matches!(self, Self::Component { .. })
    }
}

impl Group {
    /// The group of an account, with its first claim.
    pub fn new(claim: InFlight) -> Self {
        Self::of(Scope::Account(claim.work.account), vec![claim])
    }

    pub fn of(scope: Scope, claims: Vec<InFlight>) -> Self {
        Self {
            scope,
            claims,
            stage: GroupStage::Open,
            losses: 0,
            together_most: usize::MAX,
            was_untimely: false,
        }
    }

    pub fn name(&self) -> GroupName {
        match self.scope {
            Scope::Account(account) => GroupName::Account(account),
            Scope::Component { number, .. } => GroupName::Component(number),
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
        let planned = self.plan().into_iter().flat_map(Plan::claims);
        let claims = &self.claims[..self.looked_at()];
        if self.together_most == usize::MAX {
            look.accounts.extend(self.scope.accounts());
        } else {
            let accounts = claims.iter().chain(planned.clone());
            let accounts: BTreeSet<AccountId> = accounts.map(|claim| claim.work.account).collect();
            look.accounts.extend(accounts);
        }
        for claim in claims.iter().chain(planned) {
            look.keys.extend(claim.work.key);
            look.entries.extend(&claim.sent);
            look.entries.extend(claim.work.grant());
            look.followers_of.extend(claim.work.corrects());
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

    /// How many of the first claims a look is for. If the data of an account cannot be read, the batches without it
    /// are not to blame.
    pub fn looked_at(&self) -> usize {
        if self.scope.is_component() {
            self.together()
        } else {
            self.claims.len()
        }
    }

    /// How many of the first claims are decided together. An atomic batch is never cut.
    pub fn together(&self) -> usize {
        let mut together = 0;
        for joined in self.claims.chunk_by(InFlight::is_joined) {
            if together > 0 && together + joined.len() > self.together_most {
                break;
            }
            together += joined.len();
        }
        together
    }

    /// Decides the claims, one after the other. Each claim is decided on the totals that the claims
    /// before it leave. `views` has the accounts in the order of the scope, and `seen` the entries that
    /// the ledger showed.
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
        let together = self.together();
        let Some(first) = self.claims.first() else {
            return Ok(());
        };
        let plan = match (&self.scope, views) {
            (Scope::Account(_), [view]) => {
                let works = self.claims[..together].iter().map(|claim| &claim.work);
                let decision = view.decide(&first.work.policy, works, present);
                let AccountDecision {
                    policy,
                    draft,
                    decided,
                } = decision.map_err(|gap| vec![gap])?;
                let mut plan = Plan::new(basis);
                // If many holds lapse, the plan has only their lapses, and the claims wait for the next plan.
                let decided = decided.unwrap_or_default();
                for (claim, decided) in self.claims.drain(..decided.len()).zip(decided) {
                    plan.take_in(claim, 0, decided, &policy);
                }
                plan.drafts.push(draft);
                plan
            }
            _ => self.decide_batches(together, basis, views, seen, present)?,
        };
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
        let works = std::iter::once(&claim.work);
        let Ok(decision) = view.decide(&claim.work.policy, works, present) else {
            return Some(claim);
        };
        // 3. A grant joins the draft. Any other outcome needs a look at the ledger.
        if !matches!(decision.decided.as_deref(), Some([Decided::Entry(0)])) {
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
        if self.scope.is_component() {
            // The claims of a batch stay together.
            self.claims.sort_by_key(|claim| claim.batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::identity::EntryId;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::instance::Epoch;
    use crate::protocol::in_flight::{Outcome, Undecided};
    use crate::protocol::samples::{benefit, claim, decide, look};
    use crate::protocol::step::Step;
    use domain::refusal::Refusal;

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
