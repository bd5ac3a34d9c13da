//! How the drainer learns which queues hold grants, and others that those have left them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use crate::counter::Unavailable;
use crate::domain::identity::AccountId;

/// Which queues hold grants, as far as is known here.
#[derive(Clone, Default)]
pub struct DrainSignal(pub Arc<Signal>);

/// What the drainer waits for.
#[derive(Default)]
pub struct Signal {
    buckets: Mutex<HashSet<u8>>,
    /// Told when grants wait, or a clearance is wanted.
    pub changed: Notify,
    /// Told when a claim waits for a round.
    pub hurried: Notify,
    clearances: watch::Sender<Clearances>,
}

/// Each clearance ends when all has left the queues that waited in them when it began.
#[derive(Default)]
struct Clearances {
    is_wanted: bool,
    begun: u64,
    /// The newest one that ended.
    ended: u64,
    /// The newest one that Redis did not answer in.
    failed: u64,
}

impl DrainSignal {
    /// Tells that grants of an account wait.
    pub fn grants_wait(&self, account: AccountId) {
        self.wake([account.bucket()]);
    }

    /// Has the grants of an account drained at once.
    pub fn hurry(&self, account: AccountId) {
        self.hurry_all([account.bucket()]);
    }

    /// Waits until all has left the queues that waits in them now. All who come before the next
    /// clearance begins wait for the same one.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn cleared(&self) -> Result<(), Unavailable> {
        let mut next = 0;
        self.0.clearances.send_modify(|clearances| {
            clearances.is_wanted = true;
            next = clearances.begun + 1;
        });
        self.0.changed.notify_one();
        let mut clearances = self.0.clearances.subscribe();
        let is_over = |clearances: &Clearances| clearances.ended.max(clearances.failed) >= next;
        let over = clearances
            .wait_for(is_over)
            .await
            .map_err(|_| Unavailable)?;
        match over.ended >= next {
            true => Ok(()),
            false => Err(Unavailable),
        }
    }

    /// Begins a clearance, if one is wanted.
    pub fn begin_clearance(&self) -> bool {
        self.0.clearances.send_if_modified(|clearances| {
            clearances.begun += u64::from(clearances.is_wanted);
            std::mem::take(&mut clearances.is_wanted)
        })
    }

    /// Ends the clearance that began last.
    pub fn end_clearance(&self, is_done: bool) {
        self.0.clearances.send_modify(|clearances| {
            match is_done {
                true => clearances.ended = clearances.begun,
                false => clearances.failed = clearances.begun,
            }
            if clearances.is_wanted {
                self.0.changed.notify_one();
            }
        });
    }

    /// Has some queues drained at once.
    pub fn hurry_all(&self, buckets: impl IntoIterator<Item = u8>) {
        self.wake(buckets);
        self.0.hurried.notify_one();
    }

    /// Tells that some queues hold grants.
    pub fn wake(&self, buckets: impl IntoIterator<Item = u8>) {
        let mut waiting = self
            .0
            .buckets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.extend(buckets);
        drop(waiting);
        self.0.changed.notify_one();
    }

    /// The queues that hold grants, as far as was told since the last time.
    pub fn take(&self) -> Vec<u8> {
        let mut waiting = self
            .0
            .buckets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.drain().collect()
    }
}
