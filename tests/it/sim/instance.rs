//! An instance: the production code of a claim's way, and in place of its dispatch and lanes an
//! executor without async. What a lane awaits is a [`Call`] here: the request is sent, it has its
//! effect at a store, and the response arrives, in three separate events.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::TimeDelta;
use perdiem::counter::{Answer, Ask, SettledKeys, Settlement};
use perdiem::domain::account::{Unknown, instant_after};
use perdiem::domain::correction::Holds;
use perdiem::domain::drafting::Known;
use perdiem::domain::identity::AccountId;
use perdiem::domain::work::{Task, Work};
use perdiem::engine::claim::accounts::Accounts;
use perdiem::engine::claim::group::{Basis, Group};
use perdiem::engine::claim::in_flight::{AnsweredClaim, InFlight, Waiter};
use perdiem::engine::claim::settle::Settling;
use perdiem::engine::claim::way::{self, Lane, Missing, Present, Step, Steps};
use perdiem::engine::claim::{CounterDenial, KeysInProgress};
use perdiem::engine::instance::{Memory, Places, Terms, is_fresh};
use perdiem::ledger::{Burst, Draft, Fence, LedgerError, LedgerView, Look};

use super::clients::{CLAIM_TIME, Reply};
use super::ledger::Ledger;
use super::time::Time;

/// How many claims a lane takes at most.
const BATCH_MOST: usize = 512;
/// How many lapses a draft takes at most: few, so that histories reach the bound.
const LAPSES_MOST: u32 = 2;
/// The nonces of lapses begin here; those of claims are smaller.
pub const LAPSE_NONCES: u64 = 1 << 40;

/// What is sent to a store.
pub enum Request {
    Ask(Ask),
    Look(Look),
    Burst(Vec<Draft>, Fence),
    Append(Vec<Draft>),
    Settle(Settlement),
}

/// What a store answers.
pub enum Response {
    Counter(Answer),
    View(LedgerView),
    /// What became of a burst of these accounts.
    Burst(Burst, HashSet<AccountId>),
    Appended(HashSet<AccountId>),
    Settled,
    Failed(LedgerError),
}

/// What waits for a response.
pub enum Waiting {
    Counter(Box<InFlight>),
    Key(Box<InFlight>, CounterDenial),
    Look(Vec<Group>, Lane),
    /// With the fence of the burst, and what became of the burst.
    Append(Vec<Group>, Option<Fence>, Option<Burst>),
    Settlement(Vec<AnsweredClaim>),
}

/// What a step of an instance reads at once, and the calls that it begins.
pub struct Around<'a> {
    pub ledger: &'a Ledger,
    pub time: Time,
    pub calls: Vec<(Request, Waiting)>,
}

/// An instance.
pub struct Instance {
    /// Whether Redis answers, as far as the instance knows.
    pub counters_answer: bool,
    facts: Facts,
    keys: KeysInProgress,
    places: Places,
    accounts: Accounts,
    nonce: u64,
}

/// What an instance knows.
struct Facts {
    terms: Terms,
    memory: Memory,
    skew: TimeDelta,
    has_counters: bool,
}

impl Facts {
    fn present(&self, time: Time) -> Present<'_> {
        Present {
            terms: &self.terms,
            memory: &self.memory,
            now: time.by_clock(self.skew),
            at: time.at(),
            has_counters: self.has_counters,
        }
    }
}

impl Instance {
    /// The `life`th instance that starts. Its clock is off by `skew`.
    pub fn start(life: u64, skew: TimeDelta, has_counters: bool, around: &Around) -> Self {
        let terms = Terms::new(around.time.at());
        terms.learn(around.ledger.policies.clone());
        Self {
            counters_answer: has_counters,
            facts: Facts {
                terms,
                memory: Memory::default(),
                skew,
                has_counters,
            },
            keys: KeysInProgress::default(),
            places: Places::new(1000),
            accounts: Accounts::default(),
            nonce: LAPSE_NONCES + (life << 20),
        }
    }

    /// Learns the versions of the policy.
    pub fn poll(&self, around: &Around) {
        self.facts.terms.learn(around.ledger.policies.clone());
        self.facts.terms.know_as_of(around.time.at());
    }

    /// Takes on a claim or correction. `None` while its key has another claim's turn.
    pub fn submit(&mut self, mut work: Work, around: &mut Around) -> Option<Reply> {
        let turn = match work.key {
            Some(key) => Some(self.keys.begin(key)?),
            None => None,
        };
        let (answer, reply) = tokio::sync::oneshot::channel();
        let present = self.facts.present(around.time);
        work.policy = present
            .terms
            .of(&work.policy, work.account, None, present.now);
        let deadline = present.at + CLAIM_TIME;
        let place = self.places.try_take(&"client".into()).expect("a place");
        let waiter = Waiter {
            answer,
            turn,
            _place: place,
        };
        let mut claim = InFlight::new(work, deadline, waiter);
        let step = match claim.work.task {
            Task::Claim(_) => way::begin(&mut claim, false, self.counters_answer, &present),
            _ => Step::Join,
        };
        self.go(claim, step, around);
        Some(reply)
    }

    /// Whether groups wait for a lane.
    pub fn waits_for(&self, lane: Lane) -> bool {
        self.accounts.wait_for(lane)
    }

    /// A lane takes the groups that wait for it.
    pub fn begin(&mut self, lane: Lane, around: &mut Around) {
        let mut groups = self.accounts.take(lane, BATCH_MOST);
        if lane == Lane::Append {
            return self.append(groups, around);
        }
        let mut steps = Steps::default();
        let at = around.time.at();
        groups
            .iter_mut()
            .for_each(|group| group.drop_expired(at, &mut steps));
        self.go_all(steps, around);
        look(groups, lane, around);
    }

    /// A response arrives.
    pub fn hear(&mut self, waiting: Waiting, response: Response, around: &mut Around) {
        let present = self.facts.present(around.time);
        match waiting {
            Waiting::Counter(mut claim) => {
                let answer = match response {
                    Response::Counter(answer) => Some(answer),
                    _ => None,
                };
                let step = way::asked(&mut claim, answer, &present);
                self.go(*claim, step, around);
            }
            Waiting::Key(claim, denial) => {
                let view = match response {
                    Response::View(view) => Some(view),
                    _ => None,
                };
                let step = way::probed(&claim, denial, view.as_ref(), present.at);
                self.go(*claim, step, around);
            }
            Waiting::Look(groups, lane) => self.looked(groups, lane, response, around),
            Waiting::Append(groups, fence, burst) => {
                self.append_ended(groups, fence, burst, response, around);
            }
            Waiting::Settlement(corrections) => {
                let ended = corrections.into_iter();
                ended.for_each(|(claim, answer)| claim.end(answer));
            }
        }
    }

    /// A lane panics: its groups are lost.
    pub fn give_up(&mut self, groups: Vec<Group>, around: &Around) {
        let present = self.facts.present(around.time);
        for group in groups {
            self.accounts.give_up(group.account, &present);
        }
    }

    fn looked(
        &mut self,
        mut groups: Vec<Group>,
        lane: Lane,
        response: Response,
        around: &mut Around,
    ) {
        let mut steps = Steps::default();
        match response {
            Response::View(view) => self.decide(&mut groups, &view, around, &mut steps),
            Response::Failed(LedgerError::Corrupt(_)) if groups.len() > 1 => {
                let other = groups.split_off(groups.len() / 2);
                look(groups, lane, around);
                return look(other, lane, around);
            }
            Response::Failed(error @ LedgerError::Corrupt(_)) => {
                let error = Arc::new(error);
                let all = groups.iter_mut();
                all.for_each(|group| group.refuse(&error, &mut steps));
            }
            _ => groups.iter_mut().for_each(Group::look_again),
        }
        if lane == Lane::Contend {
            self.go_all(steps, around);
            return self.append(groups, around);
        }
        self.bring_back(groups, steps, around);
    }

    fn decide(
        &mut self,
        groups: &mut [Group],
        view: &LedgerView,
        around: &Around,
        steps: &mut Steps,
    ) {
        let epoch = self.facts.memory.show(view.fence);
        for key in view.entries.iter().filter_map(|entry| entry.key) {
            self.facts.memory.learn_key(key);
        }
        if !is_fresh(self.facts.terms.as_of(), around.time.at()) {
            self.poll(around);
        }
        for group in groups {
            let present = self.facts.present(around.time);
            group.looked(view, &present, steps);
            if group.plan.is_some() {
                continue;
            }
            self.nonce += 1;
            let last = view.lines.get(&group.account);
            let entries = view.entries.iter();
            let followers = entries.filter(|entry| entry.account == group.account);
            let mut known = Known {
                followers: followers.cloned().collect(),
                lapses_most: LAPSES_MOST,
                ..Known::to_append(self.nonce)
            };
            let basis = Basis {
                after: last.cloned(),
                epoch,
                as_of: present.terms.as_of(),
            };
            while let Err(missing) = group.decide_looked(basis.clone(), &known, &present, steps) {
                match (missing, last) {
                    (Missing::Policy, _) => self.poll(around),
                    (Missing::Ledger(Unknown::Sums(windows)), _) => {
                        let sums = around.ledger.sums(group.account, last, &windows);
                        known.sums.extend(sums);
                    }
                    (Missing::Ledger(Unknown::Holds), Some(line)) => {
                        let (account, at) = (group.account, instant_after(last, present.now));
                        let holds = around.ledger.holds(account, line, at, known.lapses_most);
                        known.holds = Some(holds);
                    }
                    (Missing::Ledger(Unknown::Holds), None) => known.holds = Some(Holds::default()),
                    (Missing::Ledger(Unknown::Policy), _) => panic!("an unknown version"),
                }
            }
        }
    }

    fn append(&mut self, mut groups: Vec<Group>, around: &mut Around) {
        let (epoch, fence) = self.facts.memory.fence();
        let at = around.time.at();
        groups
            .iter_mut()
            .for_each(|group| group.check_draft(epoch, at));
        self.append_drafts(groups, fence, around);
    }

    fn append_drafts(&mut self, groups: Vec<Group>, fence: Option<Fence>, around: &mut Around) {
        let drafts = drafts(&groups);
        if drafts.is_empty() {
            return self.appended(groups, Ok(HashSet::new()), around);
        }
        let request = match fence {
            Some(fence) => Request::Burst(drafts, fence),
            None => Request::Append(drafts),
        };
        around
            .calls
            .push((request, Waiting::Append(groups, fence, None)));
    }

    fn append_ended(
        &mut self,
        mut groups: Vec<Group>,
        fence: Option<Fence>,
        burst: Option<Burst>,
        response: Response,
        around: &mut Around,
    ) {
        let at = around.time.at();
        let result = match response {
            Response::Burst(burst @ Burst::Committed(_), accounts) => {
                self.facts.memory.burst_ended(burst, at);
                Ok(accounts)
            }
            Response::Burst(Burst::Exist(existing), accounts)
                if existing.len() == accounts.len() =>
            {
                Ok(HashSet::new())
            }
            Response::Burst(burst, accounts) => {
                let mut drafts = drafts(&groups);
                drafts.retain(|draft| accounts.contains(&draft.account));
                let next = match (burst, fence) {
                    (Burst::Exist(existing), Some(fence)) => {
                        drafts.retain(|draft| !existing.contains(&draft.account));
                        let waiting = Waiting::Append(groups, Some(fence), None);
                        (Request::Burst(drafts, fence), waiting)
                    }
                    (burst, _) => {
                        let waiting = Waiting::Append(groups, fence, Some(burst));
                        (Request::Append(drafts), waiting)
                    }
                };
                return around.calls.push(next);
            }
            Response::Appended(accounts) => {
                burst
                    .into_iter()
                    .for_each(|burst| self.facts.memory.burst_ended(burst, at));
                Ok(accounts)
            }
            Response::Failed(LedgerError::Refused(_)) if groups.len() > 1 => {
                let other = groups.split_off(groups.len() / 2);
                self.append_drafts(groups, fence, around);
                return self.append_drafts(other, fence, around);
            }
            Response::Failed(error) => Err(Arc::new(error)),
            _ => panic!("not the response to an append"),
        };
        self.appended(groups, result, around);
    }

    fn appended(
        &mut self,
        mut groups: Vec<Group>,
        result: Result<HashSet<AccountId>, Arc<LedgerError>>,
        around: &mut Around,
    ) {
        let mut steps = Steps::default();
        let present = self.facts.present(around.time);
        way::appended(&mut groups, &result, &present, &mut steps);
        self.bring_back(groups, steps, around);
    }

    fn bring_back(&mut self, groups: Vec<Group>, steps: Steps, around: &mut Around) {
        let present = self.facts.present(around.time);
        for group in groups {
            self.accounts.bring_back(group, &present);
        }
        self.go_all(steps, around);
    }

    fn go_all(&mut self, steps: Steps, around: &mut Around) {
        for (claim, step) in steps.claims {
            self.go(claim, step, around);
        }
        for settling in steps.settlements {
            settle(settling, around);
        }
    }

    fn go(&mut self, claim: InFlight, step: Step, around: &mut Around) {
        match step {
            Step::Ask => {
                let ask = Ask {
                    account: claim.work.account,
                    looks_at_queue: false,
                };
                let waiting = Waiting::Counter(Box::new(claim));
                around.calls.push((Request::Ask(ask), waiting));
            }
            Step::Probe(denial) => {
                let look = Look {
                    keys: claim.work.key.into_iter().collect(),
                    ..Look::default()
                };
                let waiting = Waiting::Key(Box::new(claim), denial);
                around.calls.push((Request::Look(look), waiting));
            }
            Step::Join => {
                self.accounts.join(claim, &self.facts.present(around.time));
            }
            Step::End(answer) => claim.end(answer),
            Step::Count | Step::AskLater | Step::CountLater => panic!("nothing is counted"),
        }
    }
}

fn look(groups: Vec<Group>, lane: Lane, around: &mut Around) {
    let mut look = Look::default();
    groups.iter().for_each(|group| group.look_for(&mut look));
    around
        .calls
        .push((Request::Look(look), Waiting::Look(groups, lane)));
}

fn settle(settling: Settling, around: &mut Around) {
    let mut settlement = settling.settlement;
    if settling.wants_keys {
        let keys = around.ledger.keys_of(settlement.account, u64::MAX);
        settlement.keys = SettledKeys::All(keys);
    }
    let waiting = Waiting::Settlement(settling.answers);
    around.calls.push((Request::Settle(settlement), waiting));
}

fn drafts(groups: &[Group]) -> Vec<Draft> {
    groups.iter().filter_map(Group::draft).cloned().collect()
}
