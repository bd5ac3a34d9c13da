//! The claims of one account that go into the ledger together.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::in_flight::{AnsweredClaim, InFlight, Outcome, Undecided};
use crate::domain::account::Unknown;
use crate::domain::drafting::{Decided, Known, draft};
use crate::domain::grant::Line;
use crate::domain::identity::{AccountId, EntryId};
use crate::domain::policy::Policy;
use crate::domain::work::Task;
use crate::engine::instance::{Epoch, is_fresh};
use crate::ledger::{Draft, LedgerView};

/// Claims of one account, under one version of its policy.
pub struct Group {
    /// The account.
    pub account: AccountId,
    /// Those not decided yet.
    pub claims: Vec<InFlight>,
    /// Those decided, on their way into the ledger.
    pub plan: Option<GroupOutcome>,
    /// How often in a row another writer was there first.
    pub losses: u32,
}

/// What is to become of a group's claims once its draft stands in the ledger.
pub struct GroupOutcome {
    /// What it rests on.
    pub basis: Basis,
    /// The entries to append; `None` when there are none.
    pub draft: Option<Draft>,
    /// Those that an entry of the draft answers.
    pub entered: Vec<Entered>,
    /// The others, with their answers, which hold because of the line before or of those
    /// entries.
    pub others: Vec<(InFlight, Outcome)>,
    /// Whether the draft was sent and its outcome is not known. It is sent again as it is while
    /// its terms are fresh. After that its claims are decided again, and keep the ids by which
    /// it is found.
    pub outcome_unknown: bool,
}

/// What a group is decided on.
#[derive(Debug, Clone)]
pub struct Basis {
    /// The account's last line.
    pub after: Option<Line>,
    /// The epoch in which that line became known.
    pub epoch: Epoch,
    /// Every change of a policy that was made before this instant was known.
    pub as_of: Instant,
}

/// A claim or correction that an entry of a draft answers.
pub struct Entered {
    /// It.
    pub claim: InFlight,
    /// The entry's place in the draft.
    pub entry: usize,
    /// Whether the entry is another's, who did the same before.
    pub is_repeat: bool,
}

impl Group {
    /// A group of one claim.
    pub fn new(claim: InFlight) -> Self {
        Self {
            account: claim.work.account,
            claims: vec![claim],
            plan: None,
            losses: 0,
        }
    }

    /// Whether it may be decided on a known line: none of the claims needs the ledger's own word.
    pub fn may_be_known(&self) -> bool {
        let came_on_known_line = |claim: &InFlight| claim.sent.is_empty() && claim.asked.is_known;
        self.plan.is_none() && self.losses == 0 && self.claims.iter().all(came_on_known_line)
    }

    /// What its plan is to append.
    pub fn draft(&self) -> Option<&Draft> {
        self.plan.as_ref()?.draft.as_ref()
    }

    /// Ends the claims that nobody waits for any more, unless their outcome is still open.
    pub fn drop_expired(&mut self, now: Instant) {
        for claim in self.claims.extract_if(.., |claim| claim.deadline <= now) {
            claim.end(Err(Undecided::Deadline));
        }
    }

    /// Whether there is anybody left to answer.
    pub fn is_awaited(&self, now: Instant) -> bool {
        !self.every_claim().all(|claim| claim.deadline <= now)
    }

    /// Those not decided yet, and those of its plan.
    pub fn every_claim(&self) -> impl Iterator<Item = &InFlight> {
        let planned = self.plan.iter().flat_map(GroupOutcome::claims);
        self.claims.iter().chain(planned)
    }

    /// Decides the claims on a basis, one after the other, each on what those before it leave.
    ///
    /// # Errors
    /// [`Unknown`] when something must be learned first; then nothing is decided.
    pub fn decide(
        &mut self,
        policy: &Arc<Policy>,
        basis: Basis,
        known: &Known,
        now: DateTime<Utc>,
    ) -> Result<(), Unknown> {
        let works = self.claims.iter().map(|claim| &claim.work);
        let drafted = draft(self.account, policy, basis.after.clone(), works, known, now)?;
        // Where lapses go first, the claims wait for the next draft.
        let decided = drafted.decided.unwrap_or_default();
        let mut plan = GroupOutcome {
            basis,
            draft: None,
            entered: Vec::new(),
            others: Vec::new(),
            outcome_unknown: false,
        };
        if !drafted.entries.is_empty() {
            let subject = self
                .claims
                .iter()
                .find_map(|claim| claim.work.subject.clone());
            plan.draft = Some(Draft {
                account: self.account,
                policy: policy.id,
                subject,
                after: plan.basis.after.clone(),
                entries: drafted.entries,
            });
        }
        let claims = self.claims.drain(..decided.len());
        for (mut claim, decided) in claims.zip(decided) {
            claim.work.policy = policy.clone();
            let outcome = match decided {
                Decided::Entry(entry) | Decided::Repeated(entry) => {
                    plan.entered.push(Entered {
                        claim,
                        entry,
                        is_repeat: matches!(decided, Decided::Repeated(_)),
                    });
                    continue;
                }
                Decided::Stands(entry) => Outcome::Repeated(*entry),
                Decided::Refused(refusal) => Outcome::Refused(policy.clone(), refusal),
            };
            plan.others.push((claim, outcome));
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Ends the claims that stand in the ledger already, and those whose keys do.
    pub fn answer_repeated(&mut self, seen: &LedgerView) {
        let own = |claim: &InFlight| {
            let mut entries = seen.entries.iter();
            entries.find(|entry| claim.sent.contains(&entry.id))
        };
        for claim in self.claims.extract_if(.., |claim| own(claim).is_some()) {
            if let Some(entry) = own(&claim) {
                let entry = entry.clone();
                claim.end(Ok(Outcome::Entered(entry)));
            }
        }
        let of_key = |claim: &InFlight| {
            let key = claim.work.key?;
            seen.entries.iter().find(|entry| entry.key == Some(key))
        };
        for claim in self.claims.extract_if(.., |claim| of_key(claim).is_some()) {
            if let Some(entry) = of_key(&claim) {
                let outcome = Outcome::of_key(&claim.work, entry.clone());
                claim.end(Ok(outcome));
            }
        }
    }

    /// Takes the plan back: its claims are to be decided anew. Those whose draft may stand in
    /// the ledger keep their entries' ids.
    pub fn dissolve(&mut self) {
        if let Some(mut plan) = self.plan.take() {
            if plan.outcome_unknown {
                plan.remember_ids();
            }
            let others = plan.others.into_iter().map(|(claim, _)| claim);
            let entered = plan.entered.into_iter().map(|entered| entered.claim);
            self.claims.extend(entered.chain(others));
            // The ledger is looked at next.
            let claims = self.claims.iter_mut();
            claims.for_each(|claim| claim.asked.is_known = false);
        }
    }

    /// Takes the plan back if it may not be sent or answered any more: its terms are not fresh, or
    /// its line was forgotten. Returns whether it did.
    pub fn take_back(&mut self, now: Instant, epoch: Epoch) -> bool {
        let may_be_sent = |plan: &GroupOutcome| plan.holds(now) && plan.basis.epoch == epoch;
        let is_late = self.plan.as_ref().is_some_and(|plan| !may_be_sent(plan));
        if is_late {
            self.dissolve();
        }
        is_late
    }

    /// Takes the claims that Redis is to decide, if it is to decide this group's.
    pub fn take_for_redis(&mut self, ledger_is_silent: bool) -> Vec<InFlight> {
        let is_for_redis = |claim: &InFlight| claim.is_for_redis(ledger_is_silent);
        if !self.every_claim().all(is_for_redis) {
            return Vec::new();
        }
        self.dissolve();
        std::mem::take(&mut self.claims)
    }

    /// Takes the plan back unless its draft may stand in the ledger. The ledger is looked at next.
    pub fn dissolve_known(&mut self) {
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.asked.is_known = false);
        if !self.has_unknown_outcome() {
            self.dissolve();
        }
    }

    /// Another writer was there first.
    pub fn lose(&mut self) {
        self.losses += 1;
        self.dissolve_known();
        // That writer may have made a counter.
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.asked.has_no_counter = false);
    }

    /// Whether the group's draft may or may not stand in the ledger.
    pub fn has_unknown_outcome(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.outcome_unknown)
    }

    /// Ends every claim in the same way.
    pub fn end(mut self, undecided: &Undecided) {
        self.dissolve();
        for claim in self.claims {
            claim.end(Err(undecided.clone()));
        }
    }
}

impl GroupOutcome {
    /// Whether it may be sent, or answered: its terms are fresh, and somebody waits for each of
    /// its claims.
    pub fn holds(&self, now: Instant) -> bool {
        is_fresh(self.basis.as_of) && self.claims().all(|claim| now < claim.deadline)
    }

    /// Every claim that it decides.
    pub fn claims(&self) -> impl Iterator<Item = &InFlight> {
        let others = self.others.iter().map(|(claim, _)| claim);
        self.entered
            .iter()
            .map(|entered| &entered.claim)
            .chain(others)
    }

    fn remember_ids(&mut self) {
        let ids: Vec<EntryId> = self.entry_ids().collect();
        // A repeat is no entry of its own.
        let own = self.entered.iter_mut().filter(|entered| !entered.is_repeat);
        own.for_each(|entered| entered.claim.sent.push(ids[entered.entry]));
    }

    /// The ids of the entries to append.
    pub fn entry_ids(&self) -> impl Iterator<Item = EntryId> {
        let draft = self.draft.iter();
        draft.flat_map(|draft| draft.entries.iter().map(|entry| entry.id))
    }

    /// The account's last line once the draft stands.
    pub fn last_line(&self) -> Option<&Line> {
        let appended = self.draft.as_ref().and_then(|draft| draft.entries.last());
        appended
            .map(|entry| &entry.line)
            .or(self.basis.after.as_ref())
    }

    /// Whether its account goes without a counter: none exists that would lag behind, and the next
    /// claim could not be denied anyway. Where Redis may come to decide alone, every account has
    /// one.
    pub fn needs_no_counter(&self) -> bool {
        let is_plain = |claim: &InFlight| {
            matches!(claim.work.task, Task::Claim(_))
                && claim.asked.has_no_counter
                && !claim.work.policy.rule.may_be_counted()
        };
        let has_room = |line: &Line| line.totals.iter().all(|total| total.remaining() > 0);
        !self.others.iter().any(|(_, outcome)| outcome.is_denied())
            && self.claims().all(is_plain)
            && self.last_line().is_some_and(has_room)
    }

    /// Everybody's answer: the draft, if there is one, stands in the ledger, and no other one
    /// after the same line can.
    pub fn answers(self) -> impl Iterator<Item = AnsweredClaim> {
        let is_certain = self.draft.is_some();
        let entries = self.draft.map(|draft| draft.entries).unwrap_or_default();
        let entered = self.entered.into_iter().map(move |entered| {
            let entry = entries[entered.entry].clone();
            let outcome = match entered.is_repeat {
                true => Outcome::Repeated(entry),
                false => Outcome::Entered(entry),
            };
            (entered.claim, Ok(outcome))
        });
        let others = self.others.into_iter().map(move |(claim, outcome)| {
            let is_refused = matches!(outcome, Outcome::Refused(..));
            let is_unseen = outcome.is_denied() && claim.work.key.is_some() && claim.may_wait;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::TimeDelta;
    use tokio::sync::oneshot::{self, Receiver};
    use uuid::Uuid;

    use super::*;
    use crate::domain::account::Refusal;
    use crate::domain::claim::Units;
    use crate::domain::grant::Entry;
    use crate::domain::samples::policy;
    use crate::domain::work::{Task, Work};
    use crate::engine::claim::in_flight::CounterView;
    use crate::engine::instance::Places;

    type Answered = Receiver<Result<Outcome, Undecided>>;

    fn benefit() -> Arc<Policy> {
        Arc::new(policy(1, "UTC", &[(3, "day")]))
    }

    /// A claim without a key: only the ids of its entries tell whether it stands.
    fn claim() -> (InFlight, Answered) {
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now();
        let claim = InFlight {
            work: Work {
                task: Task::Claim(None),
                policy: benefit(),
                account: AccountId(Uuid::from_u128(1)),
                subject: None,
                units: Units::ONE,
                key: None,
                metadata: None,
                note: None,
                nonce: 7,
            },
            deadline,
            count_from: deadline,
            may_be_counted: false,
            may_wait: false,
            sent: Vec::new(),
            counted: None,
            asked: CounterView::default(),
            answer,
            turn: None,
            _place: Places::new(1).try_take(&"shop".into()).unwrap(),
        };
        (claim, answered)
    }

    /// Decides the group's claim at an instant. Returns the entry that is to be appended.
    fn decide(group: &mut Group, micros: i64) -> Entry {
        let now = DateTime::UNIX_EPOCH + TimeDelta::microseconds(micros);
        let basis = Basis {
            after: None,
            epoch: Epoch::default(),
            as_of: Instant::now(),
        };
        group
            .decide(&benefit(), basis, &Known::default(), now)
            .unwrap();
        group.draft().unwrap().entries[0].clone()
    }

    fn outcome_is_unknown(group: &mut Group) {
        group.plan.as_mut().unwrap().outcome_unknown = true;
    }

    #[test]
    fn a_claim_is_known_by_the_id_of_every_draft_that_may_stand() {
        for standing in 0..2 {
            let (claim, mut answered) = claim();
            let mut group = Group::new(claim);
            let entries = [10, 20].map(|micros| {
                let entry = decide(&mut group, micros);
                outcome_is_unknown(&mut group);
                group.dissolve();
                entry
            });
            assert_ne!(entries[0].id, entries[1].id);
            group.answer_repeated(&LedgerView {
                entries: vec![entries[standing].clone()],
                ..LedgerView::default()
            });
            assert!(group.claims.is_empty());
            match answered.try_recv().unwrap().unwrap() {
                Outcome::Entered(entry) => assert_eq!(entry, entries[standing]),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_plan_is_taken_back_with_its_terms_or_a_claim_too_old() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
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
            assert_eq!(group.take_back(Instant::now(), Epoch::default()), is_late);
            assert_eq!(group.plan.is_none(), is_late);
            assert_eq!(group.claims.len(), usize::from(is_late));
        }
    }

    /// Its entry may still arrive, unless another one stands in its place.
    #[test]
    fn a_refusal_is_certain_only_behind_a_new_entry() {
        for is_certain in [false, true] {
            let (mut sent, mut answered) = claim();
            sent.sent.push(EntryId(Uuid::from_u128(1)));
            let mut group = Group::new(sent);
            decide(&mut group, 10);
            let mut plan = group.plan.take().unwrap();
            let claim = plan.entered.pop().unwrap().claim;
            let refused = Outcome::Refused(benefit(), Refusal::Denied(Vec::new()));
            plan.others.push((claim, refused));
            plan.draft.take_if(|_| !is_certain);
            plan.answers().for_each(|(claim, answer)| claim.end(answer));
            let answer = answered.try_recv().unwrap();
            assert_eq!(matches!(answer, Ok(Outcome::Refused(..))), is_certain);
            assert_eq!(matches!(answer, Err(Undecided::Sent)), !is_certain);
        }
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
