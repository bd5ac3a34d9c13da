//! The dispatch owns every queue of a claim's way. Each step of `way` names a queue or an answer;
//! this is the one place that does what a step says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashSet;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};

use super::accounts::Accounts;
use super::group::Group;
use super::in_flight::{InFlight, Undecided};
use super::present::Present;
use super::settle::SettleQueue;
use super::way::{CounterDenial, Lane, Step, Steps};
use crate::chain::Chain;
use crate::clock::Clock;
use crate::domain::identity::AccountId;
use crate::engine::instance::{DrainSignal, Memory, Terms};

/// How many claims share a transaction at most.
const BATCH_MOST: usize = 512;
/// How long a claim waits before it looks again whether older grants still wait.
const DRAIN_PAUSE: Duration = Duration::from_millis(10);

/// Every queue of a claim's way.
pub struct Dispatch {
    /// The source of time.
    pub clock: Clock,
    /// What claims are decided by.
    pub terms: Arc<Terms>,
    /// The last lines that are known.
    pub memory: Memory,
    /// What goes into the counters afterwards.
    pub settle: SettleQueue,
    /// Who brings into the ledger what waits in Redis.
    pub drain: DrainSignal,
    /// For the counters' word.
    pub ask: Sender<InFlight>,
    /// For the ledger's word on a key.
    pub probe: Sender<Denied>,
    /// For Redis to decide.
    pub count: Sender<InFlight>,
    /// For the ledger.
    pub groups: Groups,
}

/// A claim that its counter denies.
pub struct Denied {
    pub claim: InFlight,
    /// What the counter says.
    pub denial: CounterDenial,
}

impl From<Denied> for InFlight {
    fn from(denied: Denied) -> Self {
        denied.claim
    }
}

/// The groups that wait for the ledger, and its lanes.
#[derive(Default)]
pub struct Groups {
    waiting: Mutex<Waiting>,
    look: Notify,
    contend: Notify,
    append: Notify,
}

#[derive(Default)]
struct Waiting {
    accounts: Accounts,
    /// The lanes that have a batch since a moment ago.
    busy: Vec<Lane>,
    /// The lanes that wait for groups, once for each that is free.
    free: Vec<Lane>,
    /// Of looks and appends, what went last.
    last: Option<Lane>,
}

/// Groups that a lane has. Whatever becomes of the lane, their accounts come back.
pub struct Taken {
    /// The groups that the lane works on.
    pub groups: Vec<Group>,
    accounts: HashSet<AccountId>,
    lane: Lane,
    is_busy: bool,
    dispatch: Arc<Dispatch>,
}

impl Dispatch {
    /// What is known at present.
    pub fn present(&self) -> Present<'_> {
        Present {
            terms: &self.terms,
            memory: &self.memory,
            now: self.clock.now(),
            at: Instant::now(),
            has_counters: self.settle.exists(),
        }
    }

    /// Does what is next for a claim.
    pub fn go(&self, claim: InFlight, step: Step) {
        match step {
            Step::Ask => send(&self.ask, claim),
            Step::Probe(denial) => send(&self.probe, Denied { claim, denial }),
            Step::Count => send(&self.count, claim),
            Step::AskLater => self.go_later(claim, self.ask.clone()),
            Step::CountLater => self.go_later(claim, self.count.clone()),
            Step::End(result) => {
                if let Err(Undecided::Ledger(error)) = &result {
                    tracing::error!(error = %Chain(error), "the ledger refuses a claim");
                }
                claim.end(result);
            }
            Step::Join => {
                let present = self.present();
                let mut waiting = self.groups.lock();
                let lane = waiting.accounts.join(claim, &present);
                self.groups.tell(&waiting, lane);
            }
        }
    }

    /// Does what follows from a group's step.
    pub fn go_all(&self, steps: Steps) {
        for (claim, step) in steps.claims {
            self.go(claim, step);
        }
        for settling in steps.settlements {
            self.settle.send(settling);
        }
    }

    /// Has the grants of a claim's account drained at once, and sends the claim to a queue when
    /// that may have been done.
    fn go_later(&self, claim: InFlight, queue: Sender<InFlight>) {
        if Instant::now() >= claim.deadline {
            return claim.end(Err(Undecided::Deadline));
        }
        self.drain.hurry(claim.work.account);
        tokio::spawn(async move {
            sleep(DRAIN_PAUSE).await;
            send(&queue, claim);
        });
    }

    /// How many claims wait for the ledger, or behind a group that a lane has.
    pub fn claims_waiting(&self) -> usize {
        self.groups.lock().accounts.waiting()
    }

    /// The next groups of a lane, as soon as some wait and it is the lane's turn.
    pub async fn next(self: &Arc<Self>, lane: Lane) -> Taken {
        loop {
            if let Some(taken) = self.try_next(lane) {
                return taken;
            }
            self.groups.lock().free.push(lane);
            self.groups.told(lane).notified().await;
            self.groups.lock().is_not_free(lane);
        }
    }

    /// As [`Dispatch::next`], if the lane may begin now.
    pub fn try_next(self: &Arc<Self>, lane: Lane) -> Option<Taken> {
        let mut waiting = self.groups.lock();
        if !waiting.may_begin(lane) {
            return None;
        }
        waiting.busy.push(lane);
        waiting.last = Some(lane)
            .filter(|lane| lane.beside().is_some())
            .or(waiting.last);
        let groups = waiting.accounts.take(lane, BATCH_MOST);
        Some(Taken {
            accounts: groups.iter().map(|group| group.account).collect(),
            groups,
            lane,
            is_busy: true,
            dispatch: self.clone(),
        })
    }
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, lane: Lane) -> &Notify {
        match lane {
            Lane::Look => &self.look,
            Lane::Contend => &self.contend,
            Lane::Append => &self.append,
        }
    }

    /// Tells a lane that it may begin, if it may. A busy lane looks by itself.
    fn tell(&self, waiting: &Waiting, lane: Option<Lane>) {
        if let Some(lane) = lane
            && waiting.may_begin(lane)
        {
            self.told(lane).notify_one();
        }
    }
}

impl Waiting {
    /// Whether a lane's next batch may go. Looks and appends take turns. What comes meanwhile goes
    /// together in the next batch: few wide statements cost the ledger far less than many narrow
    /// ones.
    fn may_begin(&self, lane: Lane) -> bool {
        if self.busy.contains(&lane) || !self.accounts.wait_for(lane) {
            return false;
        }
        let Some(beside) = lane.beside() else {
            return true;
        };
        let beside_waits = self.accounts.wait_for(beside) && self.free.contains(&beside);
        let had_its_turn = self.last == Some(lane) && beside_waits;
        !had_its_turn && !self.busy.contains(&beside)
    }

    fn is_not_free(&mut self, lane: Lane) {
        if let Some(place) = self.free.iter().position(|free| *free == lane) {
            self.free.swap_remove(place);
        }
    }
}

impl Taken {
    /// The batch has ended, or holds others up: the lane's next one may go.
    pub fn is_over(&mut self) {
        if !std::mem::take(&mut self.is_busy) {
            return;
        }
        let groups = &self.dispatch.groups;
        let mut waiting = groups.lock();
        waiting.busy.retain(|lane| *lane != self.lane);
        groups.tell(&waiting, self.lane.beside());
    }

    /// The batch holds others up: another one goes beside it.
    pub fn is_slow(&mut self) {
        self.is_over();
        let groups = &self.dispatch.groups;
        groups.tell(&groups.lock(), Some(self.lane));
    }

    /// Brings the groups back, and does what follows from their steps.
    pub fn bring_back(mut self, steps: Steps) {
        self.is_over();
        let dispatch = self.dispatch.clone();
        let present = dispatch.present();
        for group in self.groups.drain(..) {
            let account = group.account;
            // A lock each: claims that begin do not wait for the whole batch.
            let mut waiting = dispatch.groups.lock();
            waiting.accounts.bring_back(group, &present);
            self.accounts.remove(&account);
        }
        let waiting = dispatch.groups.lock();
        for lane in [Lane::Look, Lane::Append, Lane::Contend] {
            dispatch.groups.tell(&waiting, Some(lane));
        }
        drop(waiting);
        dispatch.go_all(steps);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.is_over();
        let groups = &self.dispatch.groups;
        for account in self.accounts.drain() {
            let present = self.dispatch.present();
            let mut waiting = groups.lock();
            let lane = waiting.accounts.give_up(account, &present);
            groups.tell(&waiting, lane);
        }
    }
}

/// Sends a claim on. A queue has room for every claim under way; it is closed only when the instance
/// is ending.
fn send<T: Into<InFlight>>(queue: &Sender<T>, claim: T) {
    if let Err(error) = queue.try_send(claim) {
        error.into_inner().into().end(Err(Undecided::Ending));
    }
}
