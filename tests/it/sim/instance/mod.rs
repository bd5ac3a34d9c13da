//! An instance of a history. It runs the production code of a claim. An executor without async
//! replaces the dispatch and the lanes. Each `await` of a lane is a [`Call`] here, in three
//! separate events: the request is sent, the request has its effect at a store, and the response
//! arrives.

mod counting;
mod sweeping;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use chrono::TimeDelta;
use perdiem::claims::counted::decision::{let_leave, redis_decides};
use perdiem::claims::instance::{Memory, Places, Terms, is_fresh};
use perdiem::claims::protocol::KeysInProgress;
use perdiem::claims::protocol::account_view::Missing;
use perdiem::claims::protocol::accounts::Accounts;
use perdiem::claims::protocol::group::{Group, GroupStage};
use perdiem::claims::protocol::in_flight::{InFlight, Waiter};
use perdiem::claims::protocol::lane::Lane;
use perdiem::claims::protocol::plan::Plan;
use perdiem::claims::protocol::present::Present;
use perdiem::claims::protocol::round::{LookRound, Seen};
use perdiem::claims::protocol::settle::Settling;
use perdiem::claims::protocol::step::{Step, Steps};
use perdiem::claims::protocol::way;
use perdiem::counter::{Ask, SettledKeys};
use perdiem::domain::account_facts::AccountFacts;
use perdiem::domain::identity::AccountId;
use perdiem::domain::work::{Task, Work};
use perdiem::engine::Outcome;
use perdiem::ledger::{Burst, Draft, Fence, LedgerError, LedgerView, Look};

use super::calls::{Request, Response, Waiting};
use super::clients::{CLAIM_TIME, Reply};
use super::ledger::Ledger;
use super::time::Time;
use super::{Planted, Scene};

/// The most claims that a lane takes at once.
const BATCH_MOST: usize = 512;
/// The most lapses that a draft takes. The number is small, so that histories reach it.
const LAPSES_MOST: u32 = 2;
/// The smallest nonce of a lapse. The nonces of claims are smaller.
pub const LAPSE_NONCES: u64 = 1 << 40;

/// The state that a step of an instance can read, and the calls that the step begins.
pub struct Around<'a> {
    pub ledger: &'a Ledger,
    pub time: Time,
    pub calls: Vec<(Request, Waiting)>,
}

pub struct Instance {
    /// Whether Redis answers, as far as the instance knows.
    pub counters_answer: bool,
    /// When the instance's connection to Redis began.
    pub connected_at: Time,
    /// Whether the instance treats the ledger as silent.
    pub ledger_is_silent: bool,
    planted: Planted,
    facts: Facts,
    keys: KeysInProgress,
    places: Places,
    accounts: Accounts,
    nonce: u64,
    /// The most batches that it appended as one component.
    pub batches_most: usize,
}

/// The facts that an instance knows.
struct Facts {
    terms: Terms,
    memory: Memory,
    skew: TimeDelta,
    /// How far the clock is off besides.
    off: TimeDelta,
    has_counters: bool,
}

impl Facts {
    fn present(&self, time: Time) -> Present<'_> {
        Present {
            terms: &self.terms,
            memory: &self.memory,
            now: time.by_clock(self.skew + self.off),
            at: time.at(),
            has_counters: self.has_counters,
        }
    }
}

impl Instance {
    /// Starts the `life`th instance. `skew` is the error of its clock.
    pub fn start(life: u64, skew: TimeDelta, scene: Scene, around: &Around) -> Self {
        let has_counters = scene.has_counters;
        let terms = Terms::new(around.time.at());
        terms.learn(&around.ledger.versions());
        Self {
            counters_answer: has_counters,
            connected_at: around.time,
            ledger_is_silent: false,
            planted: scene.planted,
            facts: Facts {
                terms,
                memory: Memory::default(),
                skew,
                off: TimeDelta::zero(),
                has_counters,
            },
            keys: KeysInProgress::default(),
            places: Places::new(1000),
            accounts: Accounts::default(),
            nonce: LAPSE_NONCES + (life << 20),
            batches_most: 0,
        }
    }

    /// The clock steps to this time ahead of the right one. The instance does not notice it.
    pub fn step(&mut self, to: TimeDelta) {
        self.facts.off = to;
    }

    pub fn is_off(&self) -> bool {
        self.facts.off != TimeDelta::zero()
    }

    /// Reads the versions of the policy.
    pub fn poll(&self, around: &Around) {
        self.facts.terms.learn(&around.ledger.versions());
        self.facts.terms.know_as_of(around.time.at());
    }

    /// Accepts a claim or correction. Returns `None` while another claim with the same key is being
    /// decided.
    pub fn submit(&mut self, work: Work, around: &mut Around) -> Option<Reply> {
        let (mut claim, reply) = self.take_on(work, around)?;
        let present = self.facts.present(around.time);
        if present.has_counters {
            let_leave(&mut claim, CLAIM_TIME);
        }
        let counts = self.counters_answer
            && claim.leaves_from.is_some()
            && redis_decides(&claim.work.policy.rule, self.ledger_is_silent);
        let step = match claim.work.task {
            Task::Claim(_) => way::begin(&mut claim, counts, self.counters_answer, &present),
            _ => Step::Join,
        };
        self.go(claim, step, around);
        Some(reply)
    }

    /// Accepts an atomic batch. A claim whose key is being decided gets no reply, and dooms the
    /// batch.
    pub fn submit_together(
        &mut self,
        works: Vec<Work>,
        is_doomed: bool,
        around: &Around,
    ) -> Vec<Option<Reply>> {
        let taken_on = works
            .into_iter()
            .map(|work| self.take_on(work, around).unzip());
        let (claims, replies): (Vec<_>, Vec<_>) = taken_on.unzip();
        let is_doomed = is_doomed || claims.iter().any(Option::is_none);
        let claims = claims.into_iter().flatten().collect();
        self.accounts.join_batch(claims, is_doomed);
        replies
    }

    fn take_on(&self, mut work: Work, around: &Around) -> Option<(InFlight, Reply)> {
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
        Some((InFlight::new(work, deadline, waiter), reply))
    }

    /// Whether groups wait for a lane.
    pub fn waits_for(&self, lane: Lane) -> bool {
        self.accounts.wait_for(lane)
    }

    /// A lane takes the groups that wait for it.
    pub fn begin(&mut self, lane: Lane, around: &mut Around) {
        let mut groups = self.accounts.take(lane, BATCH_MOST);
        if matches!(lane, Lane::Append | Lane::Together | Lane::Shared) {
            return self.append(groups, around);
        }
        let mut steps = Steps::default();
        let at = around.time.at();
        for group in &mut groups {
            group.drop_expired(at, &mut steps);
            group.leave(self.ledger_is_silent, at, &mut steps);
        }
        let (groups, empty) = groups
            .into_iter()
            .partition(|it: &Group| it.lane().is_some());
        self.give_back(empty, steps, around);
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
                let step = way::after_ask(&mut claim, answer, &present);
                self.go(*claim, step, around);
            }
            Waiting::Key(claim, denial) => {
                let step = way::after_probe(&claim, denial, response.view().as_ref(), &present);
                self.go(*claim, step, around);
            }
            Waiting::CountedKey(counted, denial) => {
                let view = response.view();
                match way::after_probe(&counted.claim, denial, view.as_ref(), &present) {
                    // Redis counts the claim after the ledger was asked.
                    Step::Join => self.ask_ledger(*counted, 0, around),
                    step => self.go(counted.claim, step, around),
                }
            }
            Waiting::Look(groups, lane, asked_at) => {
                self.looked(groups, (lane, asked_at), response, around);
            }
            Waiting::Append(groups, fence, burst) => {
                self.append_ended(groups, fence, burst, response, around);
            }
            Waiting::Settlement(corrections) => {
                let ended = corrections.into_iter();
                ended.for_each(|(claim, answer)| claim.end(answer));
            }
            Waiting::CountAgain(counted) => self.count(*counted, around),
            Waiting::GoBack(claim) => self.go(*claim, Step::Ask, around),
            Waiting::Record(recorded) => self.recorded(recorded, response, around),
            Waiting::Count(counting) => {
                let answer = match response {
                    Response::Counted(answer) => Some(answer),
                    _ => None,
                };
                self.counted(*counting, answer, around);
            }
            Waiting::Word(claim, asks) => {
                self.told(*claim, asks, response.view().as_ref(), around);
            }
            Waiting::Drain => {
                if let Response::Queued(queued) = response
                    && !queued.is_empty()
                {
                    self.drain(queued, around);
                }
            }
            Waiting::Queue(accounts) => {
                if let Some(view) = response.view() {
                    self.record(accounts, view, around);
                }
            }
            Waiting::Sweep(now) => {
                if let Response::Due(accounts) = response {
                    Self::found_due(accounts, now, around);
                }
            }
            Waiting::Lapses(accounts, now) => {
                if let Some(seen) = response.view() {
                    self.record_lapses(accounts, &seen, now, around);
                }
            }
            Waiting::Lapsed(drafts, now) => self.lapses_recorded(&drafts, response, now, around),
            Waiting::Drained => {}
        }
    }

    /// A lane panics. Its groups are lost.
    pub fn give_up(&mut self, groups: Vec<Group>, around: &Around) {
        let present = self.facts.present(around.time);
        for name in groups.iter().map(Group::name) {
            self.accounts.give_up(name, &present);
        }
    }

    fn looked(
        &mut self,
        mut groups: Vec<Group>,
        (lane, asked_at): (Lane, Time),
        response: Response,
        around: &mut Around,
    ) {
        let mut steps = Steps::default();
        match response {
            Response::View(view) => self.decide(&mut groups, &view, asked_at, around, &mut steps),
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
        self.give_back(groups, steps, around);
    }

    fn decide(
        &mut self,
        groups: &mut [Group],
        view: &LedgerView,
        asked_at: Time,
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
        let seen = Seen {
            ledger: view,
            epoch,
            at: asked_at.by_clock(self.facts.skew),
        };
        let nonces = Cell::new(self.nonce);
        for group in groups {
            let present = self.facts.present(around.time);
            let facts = || {
                // A sweep takes the next one in the same way: no two lapses have one id.
                nonces.set(nonces.get() + 1);
                AccountFacts {
                    lapses_most: LAPSES_MOST,
                    ..AccountFacts::to_append(nonces.get())
                }
            };
            let Some(mut round) = LookRound::begin(group, &seen, present, facts, steps) else {
                continue;
            };
            while let Err(gaps) = round.decide(steps) {
                let now = round.now();
                for (view, missing, _) in round.to_learn(gaps) {
                    match missing {
                        Missing::Policy => self.poll(around),
                        Missing::Ledger(unknown) => {
                            let last = view.after.as_ref();
                            let facts = &mut view.facts;
                            around.ledger.tell(facts, unknown, view.account, last, now);
                        }
                    }
                }
            }
            if self.planted == Planted::KeepsRefused {
                keep_refused(group);
            }
        }
        self.nonce = nonces.get();
    }

    fn append(&mut self, mut groups: Vec<Group>, around: &mut Around) {
        let (epoch, fence) = self.facts.memory.fence();
        let at = around.time.at();
        groups
            .iter_mut()
            .for_each(|group| group.check_drafts(epoch, at));
        let batches = groups.iter().filter_map(|group| batches_in(group.plan()?));
        self.batches_most = batches.chain([self.batches_most]).max().unwrap_or_default();
        let kind = |group: &Group| {
            let shares = group.plan().is_some_and(Plan::shares);
            (group.scope.is_component(), shares)
        };
        while let Some(last) = groups.last().map(kind) {
            let of_kind = groups.extract_if(.., |group| kind(group) == last);
            self.append_drafts(of_kind.collect(), fence, around);
        }
    }

    fn append_drafts(&mut self, groups: Vec<Group>, fence: Option<Fence>, around: &mut Around) {
        let drafts = drafts(&groups);
        if drafts.is_empty() {
            return self.appended(groups, Ok(HashSet::new()), around);
        }
        let shares = drafts.iter().any(|draft| !draft.shared.is_empty());
        let request = match fence.filter(|_| !shares) {
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
            Response::Burst(burst @ Burst::Committed(_)) => {
                self.facts.memory.burst_ended(burst, false, at);
                Ok(drafts(&groups).iter().map(|draft| draft.account).collect())
            }
            Response::Burst(burst @ Burst::Behind) => {
                self.facts.memory.burst_ended(burst, false, at);
                Ok(HashSet::new())
            }
            Response::Burst(burst) => {
                let request = Request::Append(drafts(&groups));
                let waiting = Waiting::Append(groups, fence, Some(burst));
                return around.calls.push((request, waiting));
            }
            Response::Appended(accounts) => {
                let is_behind = way::lost_known_line(&groups, &accounts);
                burst
                    .into_iter()
                    .for_each(|burst| self.facts.memory.burst_ended(burst, is_behind, at));
                Ok(accounts)
            }
            Response::Failed(LedgerError::Refused(_) | LedgerError::Untimely(_))
                if groups.len() > 1 =>
            {
                let other = groups.split_off(groups.len() / 2);
                self.append_drafts(groups, fence, around);
                return self.append_drafts(other, fence, around);
            }
            // With this fault, a batch without an answer is taken for one that lost.
            Response::Failed(LedgerError::Unavailable(_))
                if self.planted == Planted::ForgetsBatches && groups[0].scope.is_component() =>
            {
                Ok(HashSet::new())
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
        way::after_append(&mut groups, &result, &present, &mut steps);
        self.give_back(groups, steps, around);
    }

    fn give_back(&mut self, groups: Vec<Group>, steps: Steps, around: &mut Around) {
        let present = self.facts.present(around.time);
        for group in groups {
            self.accounts.give_back(group, &present);
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
                    looks_at_queue: self.facts.terms.may_be_counted(claim.work.policy.id),
                };
                let waiting = Waiting::Counter(Box::new(claim));
                around.calls.push((Request::Ask(ask), waiting));
            }
            Step::Probe(denial) => {
                let look = look_for_key(&claim);
                let waiting = Waiting::Key(Box::new(claim), denial);
                around.calls.push((Request::Look(look), waiting));
            }
            Step::Join => {
                self.accounts.join(claim, &self.facts.present(around.time));
            }
            Step::End(answer) => claim.end(answer),
            Step::Leave(reason) => self.leave(claim, reason, around),
        }
    }
}

fn look(groups: Vec<Group>, lane: Lane, around: &mut Around) {
    let mut look = Look::default();
    let now = around.time.by_clock(TimeDelta::zero());
    groups
        .iter()
        .for_each(|group| group.look_for(&mut look, now));
    around.calls.push((
        Request::Look(look),
        Waiting::Look(groups, lane, around.time),
    ));
}

fn look_for_key(claim: &InFlight) -> Look {
    Look {
        keys: claim.work.key.into_iter().collect(),
        ..Look::default()
    }
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

/// The number of batches of which a plan appends entries; `None` for the plan of an account.
fn batches_in(plan: &Plan) -> Option<usize> {
    let entered = plan.entered.iter().map(|entered| entered.claim.batch);
    let batches: Option<HashSet<u64>> = entered.collect();
    Some(batches?.len())
}

/// Appends what the refused batches of a component would take, as if its drafts had not gone back.
fn keep_refused(group: &mut Group) {
    let GroupStage::Decided(plan) = &mut group.stage else {
        return;
    };
    for (_, outcome) in &plan.others {
        let Outcome::Withheld(_, entry) = outcome else {
            continue;
        };
        let mut drafts = plan.drafts.iter_mut();
        let draft = drafts.find(|draft| draft.account == entry.account);
        let draft = draft.expect("the draft of the account");
        let last = draft.entries.last().map(|entry| &entry.line);
        let last = last.or(draft.after.as_ref());
        if last.map_or(0, |line| line.number) + 1 == entry.line.number {
            draft.entries.push(entry.clone());
        }
    }
}

fn drafts(groups: &[Group]) -> Vec<Draft> {
    groups.iter().flat_map(Group::drafts).cloned().collect()
}
