//! A component: atomic batches that share accounts. They are decided one after the other, and their entries go into
//! the ledger together, or none does.

use super::account_view::{AccountView, Gap, Missing};
use super::group::{Group, GroupStage, Scope};
use super::in_flight::{InFlight, Outcome};
use super::plan::{Basis, Plan};
use super::present::Present;
use domain::drafting::{Decided, Drafting};
use domain::grant::Entry;
use domain::identity::AccountId;
use domain::joint_drafting::JointDrafting;
use domain::work::Work;
use ledger::Draft;

/// What becomes of a claim of a batch. The number is the place of its account.
enum MemberDecision {
    /// The key of the claim has an entry.
    Earlier(Outcome),
    Decided(usize, Decided),
    /// The claim would be granted with this entry, but not its batch.
    Withheld(usize, Entry),
}

impl MemberDecision {
    fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Earlier(Outcome::KeyReused | Outcome::Refused(..))
                | Self::Decided(_, Decided::Refused(_))
        )
    }

    /// The decision in a batch that is not granted.
    fn withheld(self, joint: &JointDrafting) -> Self {
        match self {
            Self::Decided(account, Decided::Entry(entry) | Decided::Repeated(entry)) => {
                Self::Withheld(account, joint.entry(account, entry).clone())
            }
            other => other,
        }
    }
}

impl Group {
    /// The component of one atomic batch. `is_doomed` tells that something besides the claims prevents every grant.
    pub fn of_batch(number: u64, mut claims: Vec<InFlight>, is_doomed: bool) -> Self {
        let members = claims.iter_mut();
        members.for_each(|claim| claim.batch = Some(number));
        let mut accounts: Vec<AccountId> = claims.iter().map(|claim| claim.work.account).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let scope = Scope::Component {
            number,
            accounts,
            is_doomed,
        };
        Self::of(scope, claims)
    }

    /// Whether other batches may join: nothing is decided, and none of the batches is suspected.
    pub fn may_grow(&self) -> bool {
        matches!(self.stage, GroupStage::Open)
            && self.together_most == usize::MAX
            && !self.was_untimely
    }

    /// Takes the batches of another component in.
    pub fn merge(&mut self, other: Self) {
        let Scope::Component { accounts, .. } = &mut self.scope else {
            return;
        };
        for account in other.scope.accounts() {
            if let Err(place) = accounts.binary_search(account) {
                accounts.insert(place, *account);
            }
        }
        self.claims.extend(other.claims);
        self.losses = self.losses.max(other.losses);
    }

    /// Decides the first claims, batch by batch. A batch with a claim that is refused takes nothing: the next one is
    /// decided as if it had not come.
    pub(super) fn decide_batches(
        &mut self,
        together: usize,
        basis: Basis,
        views: &[AccountView],
        seen: &[Entry],
        present: &Present,
    ) -> Result<Plan, Vec<Gap>> {
        let is_doomed = self.scope.is_doomed();
        let claims = &self.claims[..together];
        // 1. A claim whose key has an entry keeps its outcome. The accounts of the others are opened.
        let earlier = claims
            .iter()
            .map(|claim| Outcome::of_earlier(&claim.work, seen, present.now));
        let earlier: Vec<Option<Outcome>> = earlier.collect();
        let new = claims
            .iter()
            .zip(&earlier)
            .filter(|(_, earlier)| earlier.is_none());
        let mut firsts: Vec<&Work> = new.map(|(claim, _)| &claim.work).collect();
        firsts.sort_by_key(|work| work.account);
        firsts.dedup_by_key(|work| work.account);
        let view_of = |work: &&Work| {
            let place = views.binary_search_by_key(&work.account, |view| view.account);
            &views[place.expect("each account has a view")]
        };
        let opened: Vec<&AccountView> = firsts.iter().map(view_of).collect();
        let terms = opened.iter().zip(&firsts);
        let policies = all(terms.map(|(view, first)| view.terms(&first.policy, present)))?;
        let draft = |place: usize, entries| {
            let first: &Work = firsts[place];
            opened[place].draft(&policies[place], first.subject.clone(), entries)
        };
        // 2. The lapses that are due come first. If many are due in an account, the plan has only these, and the
        //    claims wait for the next plan.
        let begun = opened.iter().zip(&policies);
        let draftings = all(begun.map(|(view, policy)| view.begin(policy, present)))?;
        let mut plan = Plan::new(basis);
        if draftings.iter().any(Drafting::has_more_lapses) {
            let many = draftings.into_iter().enumerate();
            for (place, drafting) in many.filter(|(_, drafting)| drafting.has_more_lapses()) {
                let lapses = drafting.into_lapses();
                let mut draft = draft(place, lapses.entries);
                draft.shared = lapses.shared;
                plan.drafts.push(draft);
            }
            join(&mut plan.drafts);
            return Ok(plan);
        }
        // 3. Each batch is decided on what the batches before it leave.
        let mut joint = JointDrafting::after_lapses(draftings);
        let mut decisions: Vec<MemberDecision> = Vec::with_capacity(together);
        let mut gaps = Vec::new();
        let mut earlier = earlier.into_iter();
        for batch in claims.chunk_by(InFlight::is_joined) {
            let first = decisions.len();
            for (claim, earlier) in batch.iter().zip(&mut earlier) {
                if let Some(outcome) = earlier {
                    decisions.push(MemberDecision::Earlier(outcome));
                    continue;
                }
                let account = opened.binary_search_by_key(&claim.work.account, |it| it.account);
                let account = account.expect("the account of each new claim is opened");
                match joint.decide(account, &claim.work) {
                    Ok(decided) => decisions.push(MemberDecision::Decided(account, decided)),
                    Err(unknown) => gaps.push(opened[account].gap(Missing::Ledger(unknown))),
                }
            }
            if is_doomed || decisions[first..].iter().any(MemberDecision::is_refused) {
                let members = decisions.split_off(first).into_iter();
                decisions.extend(members.map(|decision| decision.withheld(&joint)));
                joint.take_back();
            } else {
                joint.keep();
            }
        }
        if !gaps.is_empty() {
            gaps.sort_by_key(|gap| gap.account);
            gaps.dedup_by_key(|gap| gap.account);
            return Err(gaps);
        }
        // 4. The drafts. Lapses are appended also if no batch is granted: a refusal may depend on them. A doomed batch
        //    only shows what would be.
        let (mut entries, mut shared) = joint.into_entries();
        if is_doomed {
            entries.iter_mut().for_each(Vec::clear);
            shared.clear();
        }
        let drafts = entries.into_iter().enumerate();
        plan.drafts
            .extend(drafts.map(|(place, entries)| draft(place, entries)));
        if let Some(draft) = plan
            .drafts
            .iter_mut()
            .find(|draft| !draft.entries.is_empty())
        {
            draft.shared = shared;
        }
        join(&mut plan.drafts);
        // 5. Every decided claim moves from the group into the plan.
        for (mut claim, decision) in self.claims.drain(..together).zip(decisions) {
            match decision {
                MemberDecision::Earlier(outcome) => plan.others.push((claim, outcome)),
                MemberDecision::Decided(account, decided) => {
                    plan.take_in(claim, account, decided, &policies[account]);
                }
                MemberDecision::Withheld(account, entry) => {
                    let policy = policies[account].clone();
                    claim.work.policy = policy.clone();
                    plan.others.push((claim, Outcome::Withheld(policy, entry)));
                }
            }
        }
        Ok(plan)
    }
}

/// Lets the ledger append drafts all or none.
fn join(drafts: &mut [Draft]) {
    let mut with_entries = drafts.iter().filter(|draft| !draft.entries.is_empty());
    let Some(component) = with_entries.next().map(|draft| draft.account) else {
        return;
    };
    for draft in drafts {
        draft.component = component;
    }
}

/// All values, or all gaps.
fn all<T>(found: impl Iterator<Item = Result<T, Gap>>) -> Result<Vec<T>, Vec<Gap>> {
    let mut all = Vec::new();
    let mut gaps = Vec::new();
    for found in found {
        match found {
            Ok(value) => all.push(value),
            Err(gap) => gaps.push(gap),
        }
    }
    if gaps.is_empty() { Ok(all) } else { Err(gaps) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::in_flight::AnsweredClaim;
    use crate::protocol::samples::{account, at, claim_of, decide, look};
    use crate::protocol::step::{Step, Steps};
    use crate::protocol::way::after_append;
    use domain::claim::Units;
    use ledger::LedgerError;

    /// A batch of claims of these accounts, each of so many units. The limit is 3.
    fn batch(number: u64, claims: &[(u128, i128)], is_doomed: bool) -> Group {
        let claims = claims.iter().map(|(number, units)| {
            let (mut claim, _answered) = claim_of(account(*number));
            claim.work.units = Units::new(*units).unwrap();
            claim
        });
        Group::of_batch(number, claims.collect(), is_doomed)
    }

    fn component(batches: &[&[(u128, i128)]]) -> Group {
        let mut numbered = (1..).zip(batches);
        let (number, first) = numbered.next().unwrap();
        let mut component = batch(number, first, false);
        numbered.for_each(|(number, claims)| component.merge(batch(number, claims, false)));
        component
    }

    /// The account, the number and the units used of each entry.
    fn in_short(entries: &[Entry]) -> Vec<(AccountId, u64, u64)> {
        let short = |it: &Entry| (it.account, it.line.number, it.line.totals[0].used());
        entries.iter().map(short).collect()
    }

    /// The batch and the answer of each claim, sorted.
    fn answers(answered: impl IntoIterator<Item = AnsweredClaim>) -> Vec<(u64, &'static str)> {
        let in_a_word = |(claim, answer): AnsweredClaim| {
            let word = match answer {
                Ok(Outcome::Entered(_)) => "entered",
                Ok(Outcome::Refused(..)) => "refused",
                Ok(Outcome::Withheld(..)) => "withheld",
                _ => "other",
            };
            (claim.batch.unwrap(), word)
        };
        let mut answers: Vec<_> = answered.into_iter().map(in_a_word).collect();
        answers.sort_unstable();
        answers
    }

    fn fail(component: &mut Group, error: LedgerError) -> Steps {
        let mut steps = Steps::default();
        let result = Err(Arc::new(error));
        let groups = std::slice::from_mut(component);
        at(0, |present| {
            after_append(groups, &result, present, &mut steps)
        });
        steps
    }

    #[test]
    fn a_batch_is_known_by_the_id_of_any_of_its_entries() {
        let mut batch = batch(1, &[(2, 1), (1, 1)], false);
        let entries = decide(&mut batch, 10);
        assert_eq!(entries.len(), 2);
        batch.send_unknown();
        let steps = look(&mut batch, vec![entries[1].clone()]);
        let told = steps.claims.iter().map(|(claim, step)| match step {
            Step::End(Ok(Outcome::Entered(entry))) => entry.account == claim.work.account,
            _ => false,
        });
        assert_eq!(told.collect::<Vec<_>>(), [true, true]);
    }

    #[test]
    fn a_batch_with_a_refused_claim_appends_nothing() {
        for (units, is_doomed) in [(4, false), (1, true)] {
            let mut batch = batch(1, &[(2, units), (1, 1)], is_doomed);
            assert!(decide(&mut batch, 10).is_empty());
            let answers = answers(batch.take_plan().unwrap().answers());
            let refused = answers.iter().filter(|(_, answer)| *answer == "refused");
            assert_eq!(refused.count(), usize::from(!is_doomed));
        }
    }

    #[test]
    fn batches_that_share_an_account_are_granted_one_after_the_other() {
        let mut component = component(&[&[(1, 1), (9, 1)], &[(9, 2), (2, 1)]]);
        let entries = decide(&mut component, 10);
        let [one, two, shared] = [1, 2, 9].map(account);
        let entered = [(one, 1, 1), (two, 1, 1), (shared, 1, 1), (shared, 2, 3)];
        assert_eq!(in_short(&entries), entered);
        assert!(component.drafts().all(|draft| draft.component == one));
        let plan = component.take_plan().unwrap();
        assert_eq!(
            answers(plan.answers()),
            [
                (1, "entered"),
                (1, "entered"),
                (2, "entered"),
                (2, "entered")
            ]
        );
    }

    #[test]
    fn a_refused_batch_leaves_no_trace_between_two_others() {
        let batches: [&[_]; 3] = [
            &[(1, 1), (9, 1)],
            &[(2, 1), (9, 2), (3, 4)],
            &[(9, 2), (2, 3)],
        ];
        let mut component = component(&batches);
        let entries = decide(&mut component, 10);
        let [one, two, shared] = [1, 2, 9].map(account);
        let entered = [(one, 1, 1), (two, 1, 3), (shared, 1, 1), (shared, 2, 3)];
        assert_eq!(in_short(&entries), entered);
        let plan = component.take_plan().unwrap();
        assert_eq!(
            answers(plan.answers()),
            [
                (1, "entered"),
                (1, "entered"),
                (2, "refused"),
                (2, "withheld"),
                (2, "withheld"),
                (3, "entered"),
                (3, "entered"),
            ]
        );
    }

    #[test]
    fn a_component_loses_and_is_decided_again_as_a_whole() {
        let mut component = component(&[&[(1, 1), (9, 1)], &[(9, 4)], &[(9, 1), (2, 1)]]);
        decide(&mut component, 10);
        let mut steps = Steps::default();
        // All accounts but one are committed: nothing is.
        let result = Ok([1, 2].map(account).into());
        let groups = std::slice::from_mut(&mut component);
        let losses = at(0, |present| {
            after_append(groups, &result, present, &mut steps)
        });
        assert_eq!(losses, 1);
        assert!(steps.claims.is_empty());
        let batches = component.claims.iter().map(|claim| claim.batch.unwrap());
        assert_eq!(batches.collect::<Vec<_>>(), [1, 1, 2, 3, 3]);
        assert_eq!(decide(&mut component, 20).len(), 4);
    }

    #[test]
    fn a_component_is_halved_until_the_bad_batch_is_alone() {
        let batches: [&[_]; 4] = [
            &[(1, 1), (9, 1)],
            &[(2, 1), (3, 1)],
            &[(4, 1), (9, 1)],
            &[(9, 1)],
        ];
        let mut component = component(&batches);
        let bad = account(2);
        let mut told = Vec::new();
        while component.lane().is_some() {
            let is_bad = decide(&mut component, 10)
                .iter()
                .any(|it| it.account == bad);
            let steps = if is_bad {
                fail(&mut component, LedgerError::Refused("bad".into()))
            } else {
                let accounts = component.drafts().map(|draft| draft.account);
                let result = Ok(accounts.collect());
                let mut steps = Steps::default();
                let groups = std::slice::from_mut(&mut component);
                at(0, |present| {
                    after_append(groups, &result, present, &mut steps)
                });
                steps
            };
            told.extend(steps.claims.into_iter().map(|(claim, step)| match step {
                Step::End(answer) => (claim, answer),
                _ => panic!("not an answer"),
            }));
        }
        assert_eq!(
            answers(told),
            [
                (1, "entered"),
                (1, "entered"),
                (2, "other"),
                (2, "other"),
                (3, "entered"),
                (3, "entered"),
                (4, "entered"),
            ]
        );
    }

    /// An entry of a refused batch may stand in accounts in which the component appends nothing.
    #[test]
    fn a_refusal_is_certain_only_behind_a_new_entry_of_the_account() {
        let mut component = component(&[&[(1, 4), (9, 1)], &[(9, 1), (2, 1)]]);
        for claim in &mut component.claims[..2] {
            claim
                .sent
                .push(domain::identity::EntryId(uuid::Uuid::from_u128(1)));
        }
        decide(&mut component, 10);
        let plan = component.take_plan().unwrap();
        let answered: Vec<_> = plan.answers().collect();
        let answer = |number| {
            let mut answered = answered.iter();
            let is_it = |(claim, _): &&AnsweredClaim| {
                claim.batch == Some(1) && claim.work.account == account(number)
            };
            &answered.find(is_it).unwrap().1
        };
        assert!(matches!(answer(1), Err(crate::protocol::Undecided::Sent)));
        assert!(matches!(answer(9), Ok(Outcome::Withheld(..))));
    }
}
