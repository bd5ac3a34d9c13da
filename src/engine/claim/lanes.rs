//! The groups that wait for the ledger, and the lanes that take them there in batches.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, Receiver, UnboundedSender};
use tokio::time::{Instant, sleep_until};

use super::append::Appender;
use super::group::Group;
use super::in_flight::InFlight;
use crate::domain::identity::AccountId;

/// How many claims share a transaction at most.
const BATCH_MOST: usize = 512;
/// A batch that takes longer holds nobody up: the next one goes beside it.
const PATIENCE: Duration = Duration::from_millis(20);

/// The groups that wait. An account is in one batch at a time, so that this instance never
/// races itself.
#[derive(Default)]
struct Waiting {
    groups: HashMap<AccountId, Group>,
    /// The accounts with a group that may go now.
    ready: VecDeque<AccountId>,
    under_way: HashSet<AccountId>,
}

/// Tells the dispatcher when a batch has ended, however it ends.
struct Lane {
    accounts: Vec<AccountId>,
    losers: Vec<Group>,
    done: UnboundedSender<(Vec<AccountId>, Vec<Group>)>,
}

impl Lane {
    fn end(mut self, losers: Vec<Group>) {
        self.losers = losers;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let accounts = std::mem::take(&mut self.accounts);
        let losers = std::mem::take(&mut self.losers);
        // Without a dispatcher the process is ending.
        let _ = self.done.send((accounts, losers));
    }
}

/// Takes claims off the queue and appends them, in at most `lanes` batches at once. What comes
/// while a batch is under way goes together in the next one, as long as that ends soon: few wide
/// transactions cost the ledger far less than many narrow ones.
pub async fn append_all(appender: Arc<Appender>, mut queue: Receiver<InFlight>, lanes: usize) {
    let (done, mut ended) = mpsc::unbounded_channel();
    let mut waiting = Waiting::default();
    let mut under_way = 0;
    let mut began = Instant::now();
    let mut arrived = Vec::new();
    loop {
        let may_begin = under_way == 0 || under_way < lanes && began.elapsed() >= PATIENCE;
        if may_begin && !waiting.ready.is_empty() {
            under_way += 1;
            began = Instant::now();
            let groups = waiting.take(BATCH_MOST);
            let appender = appender.clone();
            let lane = Lane {
                accounts: groups.iter().map(|group| group.account).collect(),
                losers: Vec::new(),
                done: done.clone(),
            };
            // Boxed: to spawn a future copies it several times.
            tokio::spawn(Box::pin(async move {
                lane.end(appender.append(groups).await);
            }));
        }
        let is_held_up = under_way < lanes && !waiting.ready.is_empty();
        tokio::select! {
            biased;
            count = queue.recv_many(&mut arrived, BATCH_MOST) => {
                if count == 0 {
                    return;
                }
                for claim in arrived.drain(..) {
                    waiting.add(Group::new(claim));
                }
            }
            Some((accounts, losers)) = ended.recv() => {
                under_way -= 1;
                waiting.release(&accounts);
                for group in losers {
                    waiting.add(group);
                }
            }
            () = sleep_until(began + PATIENCE), if is_held_up => {}
        }
    }
}

impl Waiting {
    fn add(&mut self, group: Group) {
        let account = group.account;
        match self.groups.get_mut(&account) {
            Some(waiting) => {
                waiting.claims.extend(group.claims);
                waiting.losses = waiting.losses.max(group.losses);
                if waiting.plan.is_none() {
                    waiting.plan = group.plan;
                }
            }
            None => {
                self.groups.insert(account, group);
                if !self.under_way.contains(&account) {
                    self.ready.push_back(account);
                }
            }
        }
    }

    fn take(&mut self, most: usize) -> Vec<Group> {
        let mut taken = Vec::new();
        let mut claims = 0;
        while claims < most {
            let Some(account) = self.ready.pop_front() else {
                break;
            };
            if let Some(group) = self.groups.remove(&account) {
                claims += group.claims.len();
                self.under_way.insert(account);
                taken.push(group);
            }
        }
        taken
    }

    fn release(&mut self, accounts: &[AccountId]) {
        for account in accounts {
            self.under_way.remove(account);
            if self.groups.contains_key(account) {
                self.ready.push_back(*account);
            }
        }
    }
}
