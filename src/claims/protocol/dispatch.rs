//! The dispatch owns every queue of the way of a claim. Each step of `way` names a queue or an
//! answer; only this file does what a step says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashSet;
use tokio::sync::Notify;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::accounts::Accounts;
use super::group::{Group, GroupName};
use super::in_flight::{InFlight, Undecided};
use super::lane::Lane;
use super::present::Present;
use super::settle::SettleQueue;
use super::step::{CounterDenial, LeaveReason, Step, Steps};
use crate::instance::{Memory, Terms};
use host::chain::Chain;
use host::clock::Clock;

/// The largest number of claims in one transaction.
const BATCH_MOST: usize = 512;

pub struct Dispatch {
    pub clock: Clock,
    /// The policies and overrides that decide claims.
    pub terms: Arc<Terms>,
    /// The last lines that this instance knows.
    pub memory: Memory,
    /// The queue of settlements.
    pub settle: SettleQueue,
    /// Claims whose counters are asked.
    pub ask: Sender<InFlight>,
    /// Denied claims whose keys are searched in the ledger.
    pub probe: Sender<Denied>,
    /// Claims that leave for Redis.
    pub leave: Sender<Leaving>,
    /// Claims that the ledger decides.
    pub groups: Groups,
}

pub struct Denied {
    pub claim: InFlight,
    /// The denial by the counter.
    pub denial: CounterDenial,
}

impl From<Denied> for InFlight {
    fn from(denied: Denied) -> Self {
        denied.claim
    }
}

/// A claim that leaves for Redis.
pub struct Leaving {
    pub claim: InFlight,
    pub reason: LeaveReason,
}

impl From<Leaving> for InFlight {
    fn from(leaving: Leaving) -> Self {
        leaving.claim
    }
}

/// The groups that wait for the ledger, and the lanes.
#[derive(Default)]
pub struct Groups {
    waiting: Mutex<Waiting>,
    look: Notify,
    contend: Notify,
    append: Notify,
    together: Notify,
    shared: Notify,
}

#[derive(Default)]
struct Waiting {
    accounts: Accounts,
    /// The lanes that recently took a batch.
    busy: Vec<Lane>,
    /// The lanes that wait for groups; a lane with two free workers is listed twice.
    free: Vec<Lane>,
    /// The lane that went last: look or append.
    last: Option<Lane>,
}

/// The groups that a lane works on. Invariant: even if the lane panics, the accounts of these groups
/// are free again (`Drop`).
pub struct LaneBatch {
    pub groups: Vec<Group>,
    /// The groups that later claims of their accounts wait for.
    names: HashSet<GroupName>,
    lane: Lane,
    is_busy: bool,
    dispatch: Arc<Dispatch>,
}

impl Dispatch {
    /// What this instance knows now.
    pub fn present(&self) -> Present<'_> {
        Present {
            terms: &self.terms,
            memory: &self.memory,
            now: self.clock.now(),
            at: Instant::now(),
            has_counters: self.settle.exists(),
        }
    }

    /// Does the next step of a claim.
    pub fn go(&self, claim: InFlight, step: Step) {
        match step {
            Step::Ask => send(&self.ask, claim),
            Step::Probe(denial) => send(&self.probe, Denied { claim, denial }),
            Step::Leave(reason) => send(&self.leave, Leaving { claim, reason }),
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
                self.groups.wake(&waiting, lane);
            }
        }
    }

    /// Lets an atomic batch wait for the ledger. `is_doomed` tells that something besides the claims
    /// prevents every grant.
    pub fn go_together(&self, claims: Vec<InFlight>, is_doomed: bool) {
        let mut waiting = self.groups.lock();
        let lane = waiting.accounts.join_batch(claims, is_doomed);
        self.groups.wake(&waiting, lane);
    }

    /// Does what follows from a step of a group.
    pub fn go_all(&self, steps: Steps) {
        for (claim, step) in steps.claims {
            self.go(claim, step);
        }
        for settling in steps.settlements {
            self.settle.send(settling);
        }
    }

    /// How many claims wait for the ledger, or for a group that a lane works on.
    pub fn claims_waiting(&self) -> usize {
        self.groups.lock().accounts.waiting()
    }

    /// Waits until groups wait for the lane and the lane may start, and returns them.
    pub async fn next(self: &Arc<Self>, lane: Lane) -> LaneBatch {
        loop {
            if let Some(batch) = self.try_next(lane) {
                return batch;
            }
            self.groups.lock().free.push(lane);
            self.groups.bell(lane).notified().await;
            self.groups.lock().leave(lane);
        }
    }

    /// As [`Dispatch::next`], but returns `None` if the lane may not start now.
    pub fn try_next(self: &Arc<Self>, lane: Lane) -> Option<LaneBatch> {
        let mut waiting = self.groups.lock();
        if !waiting.may_begin(lane) {
            return None;
        }
        waiting.busy.push(lane);
        waiting.last = Some(lane)
            .filter(|lane| lane.beside().is_some())
            .or(waiting.last);
        let groups = waiting.accounts.take(lane, BATCH_MOST);
        Some(LaneBatch {
            names: groups.iter().map(Group::name).collect(),
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

    fn bell(&self, lane: Lane) -> &Notify {
        match lane {
            Lane::Look => &self.look,
            Lane::Contend => &self.contend,
            Lane::Append => &self.append,
            Lane::Together => &self.together,
            Lane::Shared => &self.shared,
        }
    }

    /// Wakes a lane if the lane may start. A busy lane checks by itself when it ends.
    fn wake(&self, waiting: &Waiting, lane: Option<Lane>) {
        if let Some(lane) = lane
            && waiting.may_begin(lane)
        {
            self.bell(lane).notify_one();
        }
    }
}

impl Waiting {
    /// Whether the next batch of a lane may start. Looks and appends take turns. Claims that arrive
    /// meanwhile go together into the next batch: a few wide statements cost the ledger far less
    /// than many narrow ones.
    fn may_begin(&self, lane: Lane) -> bool {
        // 1. The lane must be idle and have groups.
        if self.busy.contains(&lane) || !self.accounts.wait_for(lane) {
            return false;
        }
        // 2. The lanes for contended accounts and for batches take no turns.
        let Some(beside) = lane.beside() else {
            return true;
        };
        // 3. The other lane goes first if this lane went last and the other lane is ready.
        let beside_waits = self.accounts.wait_for(beside) && self.free.contains(&beside);
        let had_its_turn = self.last == Some(lane) && beside_waits;
        !had_its_turn && !self.busy.contains(&beside)
    }

    fn leave(&mut self, lane: Lane) {
        if let Some(place) = self.free.iter().position(|free| *free == lane) {
            self.free.swap_remove(place);
        }
    }
}

impl LaneBatch {
    /// Lets the next batch of the lane start: the work on this one is done.
    pub fn end(&mut self) {
        if !std::mem::take(&mut self.is_busy) {
            return;
        }
        let groups = &self.dispatch.groups;
        let mut waiting = groups.lock();
        waiting.busy.retain(|lane| *lane != self.lane);
        groups.wake(&waiting, self.lane.beside());
    }

    /// Lets the next batch of the lane start beside this one, which takes long.
    pub fn let_next_begin(&mut self) {
        self.end();
        let groups = &self.dispatch.groups;
        groups.wake(&groups.lock(), Some(self.lane));
    }

    /// Gives the groups back, and does what follows from their steps.
    pub fn give_back(mut self, steps: Steps) {
        self.end();
        let dispatch = self.dispatch.clone();
        let present = dispatch.present();
        for group in self.groups.drain(..) {
            let name = group.name();
            // One lock for each group: new claims do not wait for the whole batch.
            let mut waiting = dispatch.groups.lock();
            waiting.accounts.give_back(group, &present);
            self.names.remove(&name);
        }
        let waiting = dispatch.groups.lock();
        for lane in Lane::ALL {
            dispatch.groups.wake(&waiting, Some(lane));
        }
        drop(waiting);
        dispatch.go_all(steps);
    }
}

impl Drop for LaneBatch {
    fn drop(&mut self) {
        self.end();
        let groups = &self.dispatch.groups;
        for name in self.names.drain() {
            let present = self.dispatch.present();
            let mut waiting = groups.lock();
            let lane = waiting.accounts.give_up(name, &present);
            groups.wake(&waiting, lane);
        }
    }
}

/// Sends a claim to a queue. A queue has room for every claim in progress. A queue is closed only
/// when the instance stops.
fn send<T: Into<InFlight>>(queue: &Sender<T>, claim: T) {
    if let Err(error) = queue.try_send(claim) {
        error.into_inner().into().end(Err(Undecided::Ending));
    }
}
