//! The authority of a request that lasts: a poll, an export, an answer that its client reads slowly.
//! A key that is valid when a request begins can be revoked, end or be changed before the request
//! ends.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::access::Principal;
use super::callers::Callers;

/// The pause between two comparisons of a key's end with the clock.
const EVERY: Duration = Duration::from_millis(250);

/// A key, as it was when its request came.
#[derive(Clone)]
pub struct Authority {
    callers: Arc<Callers>,
    principal: Principal,
}

impl Authority {
    pub fn new(callers: &Arc<Callers>, principal: Principal) -> Self {
        Self {
            callers: callers.clone(),
            principal,
        }
    }

    /// Whether the key still has the rights that it had when the request came, as far as this
    /// instance knows.
    pub fn holds(&self) -> bool {
        let now = self.callers.instance.clock.now();
        self.callers.access.still_has(&self.principal, now)
    }

    /// As [`Authority::holds`], when this instance knows of all keys that were revoked a second
    /// ago, even after a pause of the process.
    pub async fn holds_now(&self) -> bool {
        self.callers.know_keys().await;
        self.holds()
    }

    /// Waits until the key is revoked, ends, or has other rights.
    pub async fn lost(&self) {
        let mut changes = self.callers.access.changes();
        while self.holds() {
            let has_end = self.callers.access.has_end(&self.principal);
            let end = async {
                if has_end {
                    sleep(EVERY).await
                } else {
                    pending().await
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = end => {}
            }
        }
    }

    /// The result of some work; `None` if the key loses its rights before the work ends.
    pub async fn until_lost<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let done = tokio::select! {
            done = work => done,
            () = self.lost() => return None,
        };
        self.holds_now().await.then_some(done)
    }
}
