//! The world of a history: instances, clients, stores and open calls. `happen` executes an event.

use std::time::Duration;

use chrono::TimeDelta;
use perdiem::claims::protocol::lane::Lane;
use perdiem::counter::{Counted, QueuedGrant, Settlement};
use perdiem::domain::identity::AccountId;
use perdiem::domain::work::Work;
use perdiem::engine::Outcome;
use perdiem::ledger::{LedgerError, LedgerView};
use tokio::sync::oneshot::error::TryRecvError;

use super::calls::{Call, Request, Response, Waiting};
use super::clients::{BATCH_UNITS_MOST, Batch, Reply, Sent, Wish, account, work};
use super::courses::{Course, policy};
use super::events::Event;
use super::instance::{Around, Instance};
use super::ledger::Ledger;
use super::promises::{Broken, Promises, nonce, room};
use super::redis::Redis;
use super::time::Time;
use super::{SKEWS, Scene};

/// A limit for the events of a history at rest. Every history needs fewer to end its open calls.
const EVENTS_TO_REST: usize = 2000;
/// The time until another server has taken over.
const TAKE_OVER: Duration = Duration::from_millis(10);
/// How long a server is away that is set back.
const SET_BACK: Duration = Duration::from_secs(3);
pub const SUBJECTS: u8 = 2;

pub struct World {
    pub scene: Scene,
    /// The versions of the policy.
    pub course: Course,
    pub time: Time,
    pub ledger: Ledger,
    pub ledger_copy: Option<Ledger>,
    pub redis: Redis,
    pub redis_copy: Option<Redis>,
    pub instances: Vec<Instance>,
    pub calls: Vec<Call>,
    pub sent: Vec<Sent>,
    pub promises: Promises,
    lives: u64,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(scene: Scene, course: Course) -> Self {
        let mut world = Self {
            scene,
            course,
            time: Time::START,
            ledger: Ledger::new(policy(course, 1, scene.counting), scene.planted),
            ledger_copy: None,
            redis: Redis::new(scene.planted),
            redis_copy: None,
            instances: Vec::new(),
            calls: Vec::new(),
            sent: Vec::new(),
            promises: Promises::new(scene.counting, course),
            lives: 0,
        };
        world.promises.version_made(Time(Duration::ZERO));
        for instance in 0..scene.instances {
            let started = world.start(instance);
            world.instances.push(started);
        }
        world
    }

    fn start(&mut self, instance: usize) -> Instance {
        self.lives += 1;
        let around = Around {
            ledger: &self.ledger,
            time: self.time,
            calls: Vec::new(),
        };
        Instance::start(self.lives, skew(instance), self.scene, &around)
    }

    /// An instance takes a step, and its new calls are sent.
    fn at<T>(&mut self, index: usize, step: impl FnOnce(&mut Instance, &mut Around) -> T) -> T {
        let mut around = Around {
            ledger: &self.ledger,
            time: self.time,
            calls: Vec::new(),
        };
        let result = step(&mut self.instances[index], &mut around);
        let sent = around.calls.into_iter().map(|(request, waiting)| Call {
            instance: index,
            what: request.word(),
            request: Some(request),
            response: None,
            waiting: Some(waiting),
            is_of_lost: false,
        });
        self.calls.extend(sent);
        result
    }

    /// Whether something other than Redis may decide counted claims after an event, or Redis
    /// without its earlier counts.
    pub fn mixes(&self, event: &Event) -> bool {
        match event {
            Event::FlushRedis
            | Event::RollBackRedis
            | Event::Breaker(_)
            | Event::Silence(_)
            | Event::RestoreLedger(_)
            | Event::Change
            | Event::Send(
                _,
                Wish::Claim { is_hold: true, .. }
                | Wish::Adjustment(_)
                | Wish::Reset { .. }
                | Wish::Move { .. },
            ) => true,
            Event::Lose(call) | Event::Break(call) | Event::Garble(call) => {
                match &self.calls[*call].waiting {
                    Some(Waiting::Count(counting)) => counting.counted.claim.work.key.is_some(),
                    Some(Waiting::Word(..)) => true,
                    _ => false,
                }
            }
            _ => false,
        }
    }

    /// Executes an event, and checks every promise that the event can break.
    pub fn happen(&mut self, event: &Event) -> Result<(), Broken> {
        // 1. Note whether Redis still decides alone.
        if self.mixes(event) {
            self.promises.counts.mix();
        }
        if self.instances.iter().any(Instance::is_off) {
            self.promises.clock_is_off(self.time);
        }
        // 2. Change the instances, the stores or the time.
        match event {
            Event::Send(instance, wish) => self.send(*instance, wish),
            Event::SendTogether(instance, wishes, is_doomed) => {
                self.send_together(*instance, wishes, *is_doomed);
            }
            Event::Begin(instance, lane) => {
                self.at(*instance, |it, around| it.begin(*lane, around));
            }
            Event::Effect(call) => self.effect(*call, false)?,
            Event::Repeat(call) => self.effect(*call, true)?,
            Event::Drain(instance) => self.at(*instance, |_, around| {
                around.calls.push((Request::Queue, Waiting::Drain));
            }),
            Event::Sweep(instance) => self.at(*instance, |it, around| it.sweep(around)),
            Event::Hear(call) => {
                if self.calls[*call].is_of_lost {
                    // The instance of this call trusts entries that the copy lacks.
                    self.promises.lost(Vec::new(), &accounts(), self.time);
                }
                if let Some(response) = self.calls[*call].response.take() {
                    self.hear(*call, response);
                }
            }
            Event::Lose(call) | Event::Break(call) | Event::Garble(call) => {
                self.note_lag_of(*call);
                let lost = &mut self.calls[*call];
                lost.response = None;
                lost.request.take_if(|_| !matches!(event, Event::Lose(_)));
                let corrupt = LedgerError::Corrupt("a row".to_owned());
                let response = match event {
                    Event::Garble(_) => Response::Failed(corrupt),
                    _ => Response::unavailable(),
                };
                self.hear(*call, response);
            }
            Event::Panic(call) => self.panic(*call),
            Event::Crash(instance) => self.crash(*instance),
            Event::FlushRedis => self.roll_back_redis(Redis::new(self.scene.planted)),
            Event::CopyRedis => self.redis_copy = Some(self.redis.clone()),
            Event::RollBackRedis => self.roll_back_redis(self.redis_copy.clone().expect("a copy")),
            Event::Breaker(instance) => {
                let instance = &mut self.instances[*instance];
                instance.counters_answer = !instance.counters_answer;
                instance.connected_at = self.time;
            }
            Event::Silence(instance) => {
                let is_silent = &mut self.instances[*instance].ledger_is_silent;
                *is_silent = !*is_silent;
            }
            Event::CopyLedger => self.ledger_copy = Some(self.ledger.clone()),
            Event::RestoreLedger(is_another_server) => self.restore(*is_another_server),
            Event::Pass(by, paused) => self.pass(*by, *paused),
            Event::Step(instance, to) => self.instances[*instance].step(*to),
            Event::Change => {
                let version = u32::try_from(self.ledger.policies.len() + 1).expect("few");
                let next = policy(self.course, version, self.scene.counting);
                self.ledger.policies.push(next);
                self.promises.version_made(self.time);
            }
        }
        // 3. Remove the calls that are done, and note which accounts have no room.
        self.calls
            .retain(|call| call.request.is_some() || call.response.is_some());
        self.promises
            .note_rooms(&self.ledger, &self.redis, &accounts(), self.time);
        // 4. Check the answers that clients receive. A lane that panics and an instance that
        //    crashes answer nobody.
        self.hear_answers(matches!(event, Event::Panic(_) | Event::Crash(_)))
    }

    fn send(&mut self, instance: usize, wish: &Wish) {
        let nonce = self.sent.len() as u64;
        let work = work(wish, self.ledger.policies[0].clone().into(), nonce);
        let submitted = work.clone();
        self.promises.counts.sent(&work);
        let reply = self.at(instance, |it, around| it.submit(submitted, around));
        self.note_sent(work, reply, None);
    }

    fn send_together(&mut self, instance: usize, wishes: &[Wish], is_doomed: bool) {
        let first = self.sent.len();
        let policy = self.ledger.policies[0].clone();
        let nonces = first as u64..;
        let works = wishes.iter().zip(nonces);
        let works = works.map(|(wish, nonce)| work(wish, policy.clone().into(), nonce));
        let works: Vec<Work> = works.collect();
        works
            .iter()
            .for_each(|work| self.promises.counts.sent(work));
        let submitted = works.clone();
        let replies = self.at(instance, |it, around| {
            it.submit_together(submitted, is_doomed, around)
        });
        let is_doomed = is_doomed || replies.iter().any(Option::is_none);
        let units = |works: &mut dyn Iterator<Item = &Work>| -> u64 {
            works.map(|work| work.units.get()).sum()
        };
        let all = units(&mut works.iter());
        assert!(all <= BATCH_UNITS_MOST, "{all} units in a batch");
        for (work, reply) in works.iter().zip(replies) {
            let is_own = |other: &&Work| other.account == work.account;
            let batch = Batch {
                first,
                is_doomed,
                units: all,
                own_units: units(&mut works.iter().filter(is_own)),
            };
            self.note_sent(work.clone(), reply, Some(batch));
        }
    }

    fn note_sent(&mut self, work: Work, reply: Option<Reply>, batch: Option<Batch>) {
        self.sent.push(Sent {
            work,
            sent_at: self.time,
            sent_after: self.promises.transactions(),
            reply,
            is_refused: false,
            batch,
        });
    }

    fn hear(&mut self, call: usize, response: Response) {
        let Some(waiting) = self.calls[call].waiting.take() else {
            return;
        };
        let instance = self.calls[call].instance;
        let sent = self.calls.len();
        let accounts = waiting.accounts();
        self.at(instance, |it, around| it.hear(waiting, response, around));
        for account in accounts {
            // An account that is known to have no counter continues without one.
            if !self.calls[sent..].iter().any(|call| call.settles(account)) {
                self.promises.may_lag(account);
            }
        }
    }

    /// A request has its effect at its store. A repeated request will have the effect again later.
    fn effect(&mut self, index: usize, is_repeated: bool) -> Result<(), Broken> {
        let Some(request) = self.calls[index].request.take() else {
            return Ok(());
        };
        let from = self.ledger.entries.len();
        let response = match &request {
            Request::Ask(ask) => Response::Counter(self.redis.ask(ask, self.time.0)),
            Request::Settle(settlement) => {
                self.settle(settlement, None, is_repeated)?;
                Response::Settled
            }
            Request::Look(look) => {
                // The lines are read before the entries.
                let lines = self.ledger.lines(look);
                self.calls[index].request = Some(Request::Entries(look.clone(), lines));
                return Ok(());
            }
            Request::Entries(look, lines) => Response::View(LedgerView {
                lines: lines.lines.clone(),
                fence: lines.fence,
                entries: self.ledger.entries_for(look),
                shared: lines.shared.clone(),
                erased: lines.erased.clone(),
            }),
            Request::Count(count, trusted_from) => {
                self.promises.check_count(count)?;
                self.promises.counts.counted();
                let answer = self.redis.count(count, *trusted_from, self.time.0);
                let is_granted = matches!(answer, Counted::Granted(_) | Counted::Queued(_));
                if is_repeated && !is_granted {
                    self.promises.counts.count_late(count);
                }
                Response::Counted(answer)
            }
            Request::Due(until) => Response::Due(self.ledger.due_lapses(*until)),
            Request::Queue => Response::Queued(self.redis.queue.clone()),
            Request::Record(records) => {
                for (settlement, grants) in records {
                    self.settle(settlement, Some(grants), is_repeated)?;
                }
                Response::Settled
            }
            Request::Pause => Response::Settled,
            Request::Burst(drafts, fence) => {
                let ended = self.ledger.burst(drafts, fence, self.time);
                ended.map_or_else(Response::Failed, Response::Burst)
            }
            Request::Append(drafts) => {
                let ended = self.ledger.append(drafts, self.time);
                ended.map_or_else(Response::Failed, Response::Appended)
            }
        };
        let call = &mut self.calls[index];
        if call.waiting.is_none() {
            // Nobody settles an entry that is committed late.
            let late = self.ledger.entries.iter().skip(from);
            late.for_each(|entry| self.promises.may_lag(entry.account));
        }
        call.request = is_repeated.then_some(request);
        call.response = call.waiting.is_some().then_some(response);
        self.promises
            .check_appended(&self.ledger, from, &self.sent, self.time)
    }

    fn settle(
        &mut self,
        settlement: &Settlement,
        recorded: Option<&Vec<QueuedGrant>>,
        is_repeated: bool,
    ) -> Result<(), Broken> {
        let account = settlement.account;
        let now = self.time.0;
        let before = self.redis.counter(account, now).cloned();
        match recorded {
            Some(grants) => self.redis.record(settlement, grants, now),
            None => self.redis.settle(settlement, now),
        }
        let is_last = !is_repeated && !self.calls.iter().any(|call| call.settles(account));
        let Some(counter) = self.redis.counter(account, now) else {
            return Ok(());
        };
        self.promises
            .check_counter(account, before.as_ref(), counter, &self.ledger, is_last)
    }

    fn panic(&mut self, call: usize) {
        self.note_lag_of(call);
        let instance = self.calls[call].instance;
        let waiting = self.calls[call].waiting.take();
        self.calls[call].response = None;
        if let Some(Waiting::Look(groups, ..) | Waiting::Append(groups, ..)) = waiting {
            self.at(instance, |it, around| it.give_up(groups, around));
        }
    }

    fn crash(&mut self, instance: usize) {
        self.all_may_lag();
        let calls = self.calls.iter_mut();
        for call in calls.filter(|call| call.instance == instance) {
            call.waiting = None;
            call.response = None;
        }
        self.instances[instance] = self.start(instance);
    }

    /// The ledger's connections break, and its copy replaces it. A server that is set back stays
    /// away until no instance uses an earlier line, and its responses are lost. The reason: after
    /// new transactions its fence can equal the fence of the lost ones.
    fn restore(&mut self, is_another_server: bool) {
        self.all_may_lag();
        for call in &mut self.calls {
            call.is_of_lost = true;
            let is_cut = !is_another_server || call.request.is_some();
            if is_cut && !call.is_for_redis() {
                call.request = None;
                call.response = call.waiting.is_some().then(Response::unavailable);
            }
        }
        self.time.0 += if is_another_server {
            TAKE_OVER
        } else {
            SET_BACK
        };
        let copy = self.ledger_copy.clone().expect("a copy");
        let lost = self.ledger.restore(&copy, is_another_server);
        self.promises.lost(lost, &accounts(), self.time);
    }

    /// Time passes. Every instance that is not paused polls.
    fn pass(&mut self, by: Duration, paused: Option<usize>) {
        self.time.0 += by;
        for instance in (0..self.instances.len()).filter(|index| Some(*index) != paused) {
            self.at(instance, |it, around| it.poll(around));
        }
    }

    /// Redis returns to a copy or starts empty. Every connection to it begins now.
    fn roll_back_redis(&mut self, copy: Redis) {
        self.all_may_lag();
        let forgotten = self.redis.roll_back(copy);
        self.promises.counts.redis_forgot(forgotten);
        for instance in &mut self.instances {
            instance.connected_at = self.time;
        }
        for call in &mut self.calls {
            if let Some(Request::Count(..)) = call.request {
                call.request = None;
                call.response = call.waiting.is_some().then(Response::unavailable);
            }
        }
    }

    fn note_lag_of(&mut self, call: usize) {
        let call = &self.calls[call];
        if let Some(Request::Settle(settlement)) = &call.request {
            self.promises.may_lag(settlement.account);
        }
        for account in call.waiting.iter().flat_map(Waiting::accounts) {
            self.promises.may_lag(account);
        }
    }

    fn all_may_lag(&mut self) {
        for account in accounts() {
            self.promises.may_lag(account);
        }
    }

    /// Clients receive the answers of instances.
    fn hear_answers(&mut self, may_be_dropped: bool) -> Result<(), Broken> {
        for index in 0..self.sent.len() {
            let Some(reply) = &mut self.sent[index].reply else {
                continue;
            };
            let answer = match reply.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Closed) if may_be_dropped => None,
                Err(TryRecvError::Closed) => return Err("every claim is answered".to_owned()),
                Err(TryRecvError::Empty) => continue,
            };
            self.sent[index].reply = None;
            if let Some(answer) = answer {
                let claim = &self.sent[index];
                self.promises
                    .check_answer(claim, &answer, &self.ledger, &self.redis, self.time)?;
                self.sent[index].is_refused =
                    matches!(answer, Ok(Outcome::Refused(..) | Outcome::Withheld(..)));
            }
        }
        Ok(())
    }

    /// Whether an instance may begin to drain the queue.
    pub fn may_drain(&self, instance: usize) -> bool {
        let drains = |call: &Call| call.instance == instance && call.drains();
        !self.redis.queue.is_empty() && !self.calls.iter().any(drains)
    }

    /// Whether an instance may look for lapses that are due.
    pub fn may_sweep(&self, instance: usize) -> bool {
        let sweeps = |call: &Call| call.instance == instance && call.sweeps();
        self.ledger.has_open_holds() && !self.calls.iter().any(sweeps)
    }

    /// Ends all open calls without faults, checks the promises of a world at rest, and then decides
    /// one more claim at each instance for each account. Each of these claims must be decided
    /// exactly.
    pub fn come_to_rest(&mut self) -> Result<(), Broken> {
        // 1. Every clock is right again. End all open calls, and check the promises of a world at
        //    rest.
        for instance in 0..self.instances.len() {
            self.happen(&Event::Step(instance, TimeDelta::zero()))?;
        }
        self.settle_down()?;
        self.promises
            .check_rest(&self.ledger, &self.redis, &self.sent, self.time)?;
        // 2. Let time pass until no counter counts as confirmed. Then decide one more claim
        //    everywhere.
        self.happen(&Event::Pass(Duration::from_secs(5), None))?;
        for instance in 0..self.instances.len() {
            for subject in 0..SUBJECTS {
                self.decide_one_more(instance, subject)?;
            }
        }
        Ok(())
    }

    /// Ends all open calls without faults.
    pub fn settle_down(&mut self) -> Result<(), Broken> {
        for _ in 0..EVENTS_TO_REST {
            let Some(event) = self.next_to_rest() else {
                return Ok(());
            };
            self.happen(&event)?;
        }
        Err("every open call ends".to_owned())
    }

    fn next_to_rest(&self) -> Option<Event> {
        if let Some(instance) = (0..self.instances.len()).find(|index| self.may_drain(*index)) {
            return Some(Event::Drain(instance));
        }
        if let Some(call) = self.calls.first() {
            return Some(match call.response {
                Some(_) => Event::Hear(0),
                None => Event::Effect(0),
            });
        }
        let lanes = [
            Lane::Append,
            Lane::Together,
            Lane::Shared,
            Lane::Contend,
            Lane::Look,
        ];
        self.instances
            .iter()
            .enumerate()
            .find_map(|(index, instance)| {
                let lane = lanes.into_iter().find(|lane| instance.waits_for(*lane))?;
                Some(Event::Begin(index, lane))
            })
    }

    fn decide_one_more(&mut self, instance: usize, subject: u8) -> Result<(), Broken> {
        let version = u32::try_from(self.ledger.policies.len()).expect("few");
        let now = self.time.by_clock(skew(instance));
        let entries = &self.ledger.entries;
        let fits = room(self.course, entries, account(subject), version, now) > 0;
        let entries = self.ledger.entries.len();
        let wish = Wish::Claim {
            subject,
            key: None,
            units: 1,
            is_hold: false,
            is_refused: false,
            zone: None,
        };
        self.happen(&Event::Send(instance, wish))?;
        self.settle_down()?;
        let mut new = self.ledger.entries[entries..].iter();
        let own = self.sent.len() as u64 - 1;
        if new.any(|entry| nonce(entry) == own) == fits || self.promises.counts.is_mixed {
            Ok(())
        } else {
            Err(format!(
                "with nothing under way a claim is decided exactly: {fits}"
            ))
        }
    }
}

/// The error of an instance's clock.
fn skew(instance: usize) -> TimeDelta {
    SKEWS[instance]
}

fn accounts() -> Vec<AccountId> {
    (0..SUBJECTS).map(account).collect()
}
