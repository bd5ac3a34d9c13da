//! The claims of one account that go into the ledger together.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::in_flight::{AnsweredClaim, InFlight, Outcome, Undecided};
use super::present::Present;
use crate::domain::account::Unknown;
use crate::domain::drafting::{self, AccountFacts, Decided, Drafted};
use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::{Policy, PolicyId};
use crate::domain::work::Task;
use crate::engine::instance::{Epoch, is_fresh};
use crate::ledger::{Draft, LedgerView, Look};

/// Claims of one account. Claims that are decided together are decided under one version of the
/// policy. Invariant: a group has at most one plan, and the claims of the plan come before the
/// others.
pub struct Group {
    pub account: AccountId,
    /// The claims that are not decided yet, oldest first.
    pub claims: Vec<InFlight>,
    /// The claims that are decided, and the draft that must be committed before their answers.
    pub plan: Option<GroupOutcome>,
    /// Whether the ledger must be read before the next step.
    pub must_look: bool,
    /// How many times in a row another writer was first.
    pub losses: u32,
    /// The largest number of claims that are decided together.
    pub together_most: usize,
    /// Whether the ledger refused the instant of the last draft.
    pub was_untimely: bool,
}

/// The outcome of a group's claims, valid once the draft is committed.
pub struct GroupOutcome {
    pub policy: PolicyId,
    /// The basis of the decision.
    pub basis: Basis,
    /// The entries to append; `None` if there are none.
    pub draft: Option<Draft>,
    /// The claims that an entry of the draft answers.
    pub entered: Vec<Entered>,
    /// The other claims and their answers. These answers follow from the last line or from the
    /// entries of the draft.
    pub others: Vec<(InFlight, Outcome)>,
    /// Whether the draft was sent and its outcome is not known. The draft is sent again without a
    /// change while its terms are fresh. Later its claims are decided again, and each claim
    /// remembers the ids of its possible entries.
    pub outcome_unknown: bool,
}

/// The facts that a group is decided on.
#[derive(Debug, Clone)]
pub struct Basis {
    /// The last line of the account.
    pub after: Option<Line>,
    /// The epoch in which the line became known.
    pub epoch: Epoch,
    /// The ledger was read after this instant. Entries that were appended since may be missing.
    pub seen_at: DateTime<Utc>,
    /// Every change of a policy that was made before this instant was known.
    pub as_of: Instant,
}

/// A claim or correction that an entry of a draft answers.
pub struct Entered {
    pub claim: InFlight,
    /// The index of the entry in the draft.
    pub entry: usize,
    /// Whether the entry belongs to an earlier claim that did the same.
    pub is_repeat: bool,
}

/// What an account needs from its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterNeed {
    /// No counter. None exists, and none could deny the next claim.
    Absent,
    /// If a counter exists, the counter must not lag. No counter could deny the next claim.
    Kept,
    /// A counter must exist.
    Wanted,
}

impl Group {
    pub fn new(claim: InFlight) -> Self {
        Self {
            account: claim.work.account,
            claims: vec![claim],
            plan: None,
            must_look: false,
            losses: 0,
            together_most: usize::MAX,
            was_untimely: false,
        }
    }

    /// Whether the group may be decided on a known line: no claim needs a look at the ledger.
    pub fn may_be_known(&self) -> bool {
        let came_on_known_line =
            |claim: &InFlight| claim.sent.is_empty() && claim.hints.has_known_line;
        self.plan.is_none()
            && !self.must_look
            && self.losses == 0
            && self.claims.iter().all(came_on_known_line)
    }

    /// The entries to append.
    pub fn draft(&self) -> Option<&Draft> {
        self.plan.as_ref()?.draft.as_ref()
    }

    /// All claims: those not decided yet, and those of the plan.
    pub fn every_claim(&self) -> impl Iterator<Item = &InFlight> {
        let planned = self.plan.iter().flat_map(GroupOutcome::claims);
        self.claims.iter().chain(planned)
    }

    /// Adds what the group needs to a look at the ledger.
    pub fn look_for(&self, look: &mut Look) {
        look.accounts.push(self.account);
        for claim in self.every_claim() {
            look.keys.extend(claim.work.key);
            look.entries.extend(&claim.sent);
            look.entries.extend(corrected(claim));
            look.followers_of.extend(corrected(claim));
        }
        let sent = self.plan.iter().flat_map(GroupOutcome::entry_ids);
        look.entries.extend(sent);
    }

    /// Decides the claims on a basis, one after the other. Each claim is decided on the totals that
    /// the claims before it leave.
    ///
    /// # Errors
    /// [`Unknown`] if information is missing: nothing is decided.
    pub fn decide(
        &mut self,
        policy: &Arc<Policy>,
        basis: Basis,
        known: &AccountFacts,
        now: DateTime<Utc>,
    ) -> Result<(), Unknown> {
        // 1. The rule decides the claims and drafts the entries.
        let together = self.claims.iter().take(self.together_most);
        let works = together.map(|claim| &claim.work);
        let drafted =
            drafting::draft(self.account, policy, basis.after.clone(), works, known, now)?;
        // 2. If many holds lapse, the draft has only lapses, and the claims wait for the next
        //    draft.
        let decided = drafted.decided.unwrap_or_default();
        let mut plan = GroupOutcome {
            policy: policy.id,
            basis,
            draft: None,
            entered: Vec::new(),
            others: Vec::new(),
            outcome_unknown: false,
        };
        // 3. New entries make a draft that follows the last line.
        if !drafted.entries.is_empty() {
            let mut claims = self.claims.iter();
            plan.draft = Some(Draft {
                account: self.account,
                policy: policy.id,
                subject: claims.find_map(|claim| claim.work.subject.clone()),
                after: plan.basis.after.clone(),
                entries: drafted.entries,
            });
        }
        // 4. Every decided claim moves from the group into the plan.
        let claims = self.claims.drain(..decided.len());
        for (claim, decided) in claims.zip(decided) {
            plan.take_in(claim, decided, policy);
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Adds a claim that comes after the draft was decided, if the claim is granted after the
    /// draft. Otherwise returns the claim.
    pub fn extend(&mut self, mut claim: InFlight, present: &Present) -> Option<InFlight> {
        // 1. Some drafts must not grow: one whose outcome is unknown, or one that is being halved.
        let has_known_line = |plan: &GroupOutcome| plan.basis.after.is_some();
        // The ledger leaves out entry 1 if the account is not new. An entry with a key after a
        // missing entry would undo the whole transaction.
        let may_follow = claim.work.key.is_none() || self.plan.as_ref().is_some_and(has_known_line);
        let may_extend = self.claims.is_empty()
            && may_follow
            && self.together_most == usize::MAX
            && !self.has_unknown_outcome()
            && claim.hints.has_known_line
            && claim.sent.is_empty();
        let Some(plan) = self.plan.as_mut().filter(|_| may_extend) else {
            return Some(claim);
        };
        let Some(draft) = &mut plan.draft else {
            return Some(claim);
        };
        // 2. The claim is decided on the last entry of the draft.
        let last = draft.entries.last().map(|entry| &entry.line);
        let own = &claim.work.policy;
        let terms = present.terms;
        let policy = terms.of(own, self.account, last, present.now);
        let works = std::iter::once(&claim.work);
        let known = AccountFacts::default();
        // 3. A grant joins the draft. Any other outcome needs a look at the ledger.
        match drafting::draft(
            self.account,
            &policy,
            last.cloned(),
            works,
            &known,
            present.now,
        ) {
            Ok(Drafted {
                decided: Some(decided),
                entries,
            }) if matches!(decided[..], [Decided::Entry(0)]) => {
                let entry = draft.entries.len();
                draft.entries.extend(entries);
                let first = plan.entered.first();
                claim.hints.has_no_counter =
                    first.is_some_and(|first| first.claim.hints.has_no_counter);
                plan.take_in(claim, Decided::Entry(entry), &policy);
                None
            }
            Ok(_) | Err(_) => Some(claim),
        }
    }

    /// Drops the plan. Its claims are decided again, before claims that came later. If the draft
    /// may be committed, its claims remember the ids of their entries.
    pub fn dissolve(&mut self) {
        if let Some(mut plan) = self.plan.take() {
            if plan.outcome_unknown {
                plan.remember_ids();
            }
            let entered = plan.entered.into_iter().map(|entered| entered.claim);
            let others = plan.others.into_iter().map(|(claim, _)| claim);
            let planned = entered.chain(others).map(|mut claim| {
                // The ledger is read next. What was known of the account may be wrong.
                claim.hints.has_known_line = false;
                claim.hints.has_no_counter = false;
                claim
            });
            self.claims.splice(..0, planned);
        }
    }

    /// Whether the draft was sent and its outcome is not known.
    pub fn has_unknown_outcome(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.outcome_unknown)
    }
}

impl GroupOutcome {
    /// Adds a decided claim.
    fn take_in(&mut self, mut claim: InFlight, decided: Decided, policy: &Arc<Policy>) {
        claim.work.policy = policy.clone();
        let outcome = match decided {
            Decided::Entry(entry) | Decided::Repeated(entry) => {
                return self.entered.push(Entered {
                    claim,
                    entry,
                    is_repeat: matches!(decided, Decided::Repeated(_)),
                });
            }
            Decided::Stands(entry) => Outcome::Repeated(*entry),
            Decided::Refused(refusal) => Outcome::Refused(policy.clone(), refusal),
        };
        self.others.push((claim, outcome));
    }

    /// Whether the draft may be sent, or the claims answered: the terms are fresh, and every claim
    /// still has time.
    pub fn holds(&self, now: Instant) -> bool {
        is_fresh(self.basis.as_of, now) && self.claims().all(|claim| now < claim.deadline)
    }

    /// Whether the draft is committed: one of its entries is among these entries.
    pub fn is_among(&self, entries: &[Entry]) -> bool {
        self.outcome_unknown
            && self
                .entry_ids()
                .any(|id| entries.iter().any(|entry| entry.id == id))
    }

    /// Whether a draft that was not found may still be committed: the last line of the account is
    /// still the line before the draft, and none of its keys has another entry.
    pub fn may_be_committed(&self, seen: &LedgerView, last: Option<&Line>) -> bool {
        let number = |line: Option<&Line>| line.map_or(0, |line| line.number);
        let is_taken = |entry: &Entry| {
            let mut entered = self.entered.iter();
            entry.key.is_some() && entered.any(|entered| entered.claim.work.key == entry.key)
        };
        self.outcome_unknown
            && !seen.entries.iter().any(is_taken)
            && number(self.basis.after.as_ref()) == number(last)
    }

    pub fn claims(&self) -> impl Iterator<Item = &InFlight> {
        let others = self.others.iter().map(|(claim, _)| claim);
        self.entered
            .iter()
            .map(|entered| &entered.claim)
            .chain(others)
    }

    fn remember_ids(&mut self) {
        let ids: Vec<EntryId> = self.entry_ids().collect();
        // A repeated claim has no entry of its own.
        let own = self.entered.iter_mut().filter(|entered| !entered.is_repeat);
        own.for_each(|entered| entered.claim.sent.push(ids[entered.entry]));
    }

    /// The ids of the entries to append.
    pub fn entry_ids(&self) -> impl Iterator<Item = EntryId> {
        let draft = self.draft.iter();
        draft.flat_map(|draft| draft.entries.iter().map(|entry| entry.id))
    }

    /// The last line of the account once the draft is committed.
    pub fn last_line(&self) -> Option<&Line> {
        let appended = self.draft.as_ref().and_then(|draft| draft.entries.last());
        appended
            .map(|entry| &entry.line)
            .or(self.basis.after.as_ref())
    }

    /// What the account needs from its counter. After a denial the next claim may be denied too.
    /// After a correction a claim may be granted that the counter would deny.
    pub fn counter_need(&self) -> CounterNeed {
        let is_plain = |claim: &InFlight| matches!(claim.work.task, Task::Claim(_));
        let allows = !self.others.iter().any(|(_, outcome)| outcome.has_no_room())
            && self.claims().all(is_plain);
        let mut claims = self.claims().peekable();
        // A draft of lapses alone has no claims: nothing tells whether a counter exists.
        let has_claims = claims.peek().is_some();
        if !allows {
            CounterNeed::Wanted
        } else if has_claims && claims.all(|claim| claim.hints.has_no_counter) {
            CounterNeed::Absent
        } else {
            CounterNeed::Kept
        }
    }

    /// The answers of all claims. The draft, if there is one, must be committed; then no other
    /// draft that follows the same line can be.
    pub fn answers(self) -> impl Iterator<Item = AnsweredClaim> {
        let is_certain = self.draft.is_some();
        let entries = self.draft.map(|draft| draft.entries).unwrap_or_default();
        let entered = self.entered.into_iter().map(move |entered| {
            let entry = entries[entered.entry].clone();
            let outcome = if entered.is_repeat {
                Outcome::Repeated(entry)
            } else {
                Outcome::Entered(entry)
            };
            (entered.claim, Ok(outcome))
        });
        let others = self.others.into_iter().map(move |(claim, outcome)| {
            let is_refused = matches!(outcome, Outcome::Refused(..));
            let is_unseen =
                outcome.is_denied() && claim.work.key.is_some() && claim.grants_may_wait;
            let answer = match outcome {
                _ if is_refused && !is_certain && !claim.sent.is_empty() => Err(Undecided::Sent),
                _ if is_unseen => Err(Undecided::Unseen),
                outcome => Ok(outcome),
            };
            (claim, answer)
        });
        entered.chain(others)
    }
}

/// The grant that a correction names; `None` for a claim.
pub fn corrected(claim: &InFlight) -> Option<EntryId> {
    claim.work.grant().map(|grant| grant.id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::TimeDelta;
    use tokio::sync::oneshot::{self, Receiver};
    use uuid::Uuid;

    use super::*;
    use crate::domain::grant::Entry;
    use crate::domain::refusal::Refusal;
    use crate::domain::samples::{policy, work};
    use crate::domain::work::Task;
    use crate::engine::claim::in_flight::Waiter;
    use crate::engine::claim::way::{Step, Steps};
    use crate::engine::instance::{Memory, Places, Terms};

    type Answered = Receiver<Result<Outcome, Undecided>>;

    fn benefit() -> Arc<Policy> {
        Arc::new(policy(1, "UTC", &[(3, "day")]))
    }

    /// A claim without a key: only the ids of its entries tell whether its grant is committed.
    fn claim() -> (InFlight, Answered) {
        let (answer, answered) = oneshot::channel();
        let account = AccountId(Uuid::from_u128(1));
        let work = work(Task::Claim(None), benefit(), account);
        let waiter = Waiter {
            answer,
            turn: None,
            _place: Places::new(1).try_take(&"shop".into()).unwrap(),
        };
        let claim = InFlight::new(work, Instant::now(), waiter);
        (claim, answered)
    }

    /// Decides the claim of the group at an instant. Returns the entry to append.
    fn decide(group: &mut Group, micros: i64) -> Entry {
        let now = DateTime::UNIX_EPOCH + TimeDelta::microseconds(micros);
        let basis = Basis {
            after: None,
            epoch: Epoch::default(),
            seen_at: now,
            as_of: Instant::now(),
        };
        group
            .decide(&benefit(), basis, &AccountFacts::default(), now)
            .unwrap();
        group.draft().unwrap().entries[0].clone()
    }

    /// Looks at a ledger that holds some entries. Returns the next steps.
    fn look(group: &mut Group, entries: Vec<Entry>) -> Steps {
        let at = Instant::now();
        let terms = Terms::new(at);
        let memory = Memory::default();
        let present = Present {
            terms: &terms,
            memory: &memory,
            now: DateTime::UNIX_EPOCH,
            at,
            has_counters: false,
        };
        let seen = LedgerView {
            entries,
            ..LedgerView::default()
        };
        let mut steps = Steps::default();
        group.after_look(&seen, &present, &mut steps);
        steps
    }

    #[test]
    fn a_claim_is_known_by_the_id_of_every_draft_that_may_stand() {
        for standing in 0..2 {
            let (claim, _answered) = claim();
            let mut group = Group::new(claim);
            let entries = [10, 20].map(|micros| {
                let entry = decide(&mut group, micros);
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
            claim.deadline += left;
            let mut group = Group::new(claim);
            decide(&mut group, 10);
            group.plan.as_mut().unwrap().basis.as_of -= age;
            group.check_draft(Epoch::default(), Instant::now());
            assert_eq!(group.plan.is_none(), is_late);
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
            let mut plan = group.plan.take().unwrap();
            let claim = plan.entered.pop().unwrap().claim;
            let refused = Outcome::Refused(benefit(), Refusal::TooMany);
            plan.others.push((claim, refused));
            plan.draft.take_if(|_| !is_certain);
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
