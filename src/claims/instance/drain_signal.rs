//! Tells the drainer which queues hold grants, and tells others when the queues are empty.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use counter::Unavailable;
use domain::identity::AccountId;

/// The queues that hold grants, as far as this instance knows.
#[derive(Clone, Default)]
pub struct DrainSignal(pub Arc<Signal>);

/// The state that the drainer and its callers share.
#[derive(Default)]
pub struct Signal {
    buckets: Mutex<HashSet<u8>>,
    /// Notified when grants wait, or a clearance is wanted.
    pub changed: Notify,
    /// Notified when a claim waits for a round.
    pub hurried: Notify,
    clearances: watch::Sender<Clearances>,
}

/// A clearance ends when every grant that waited at its start has left the queues.
#[derive(Default)]
struct Clearances {
    is_wanted: bool,
    begun: u64,
    /// The newest clearance that ended.
    ended: u64,
    /// The newest clearance that Redis did not answer.
    failed: u64,
}

impl DrainSignal {
    /// Notes that grants of an account wait.
    pub fn grants_wait(&self, account: AccountId) {
        self.wake([account.bucket()]);
    }

    /// Starts a drain of the queue of an account at once.
    pub fn hurry(&self, account: AccountId) {
        self.hurry_all([account.bucket()]);
    }

    /// Waits until all grants that wait now have left the queues. All callers that come before the
    /// next clearance starts share that clearance.
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
        if over.ended >= next {
            Ok(())
        } else {
            Err(Unavailable)
        }
    }

    /// Starts a clearance if one is wanted.
    pub fn begin_clearance(&self) -> bool {
        self.0.clearances.send_if_modified(|clearances| {
            clearances.begun += u64::from(clearances.is_wanted);
            std::mem::take(&mut clearances.is_wanted)
        })
    }

    /// Ends the newest clearance.
    pub fn end_clearance(&self, is_done: bool) {
        self.0.clearances.send_modify(|clearances| {
            if is_done {
                clearances.ended = clearances.begun
            } else {
                clearances.failed = clearances.begun
            }
            if clearances.is_wanted {
                self.0.changed.notify_one();
            }
        });
    }

    /// Starts a drain of some queues at once.
    pub fn hurry_all(&self, buckets: impl IntoIterator<Item = u8>) {
        self.wake(buckets);
        self.0.hurried.notify_one();
    }

    /// Notes that some queues hold grants.
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

    /// Takes the queues that were noted since the last call.
    pub fn take(&self) -> Vec<u8> {
        let mut waiting = self
            .0
            .buckets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.drain().collect()
    }
}
