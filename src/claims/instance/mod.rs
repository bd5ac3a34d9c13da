//! The knowledge of an instance: recent policies and keys, the state of the ledger and the clock,
//! the last lines that the instance appended, the queues that hold grants, the requests in progress
//! of each caller, wrong keys, denials, and metrics. All of it is lost with the process. Other
//! parts read it here; this part imports nothing from them.

mod access;
mod authority;
mod callers;
mod clocks;
mod denials;
mod drain_signal;
mod epoch;
mod failure;
mod health;
mod key_uses;
mod last_use;
mod memory;
mod metrics;
mod outlooks;
mod pace;
mod places;
mod policies;
mod sealed_texts;
mod sign_ins;
mod standby;
mod standby_watch;
mod terms;
mod unknown;
mod writes;
mod wrong_keys;

pub use access::{
    Access, AdminKey, AdminKeyError, KEY_OF_SETTINGS, OwnKey, PERDIEM, Principal, SEED_LENGTH,
    first_version, generate_secret, hash, new_id, proof, secret_of,
};
pub use authority::Authority;
pub use callers::{Callers, Share};
pub use clocks::ClockTrouble;
pub use denials::{Denials, SecondOfDenials};
pub use drain_signal::DrainSignal;
pub use epoch::Epoch;
pub use failure::Failure;
pub use health::{Health, Trouble, Watch, Watcher};
pub use key_uses::KeyUseWriter;
pub use memory::{Memory, Recalled};
pub use metrics::{Metrics, Stage};
pub use outlooks::Outlook;
pub use pace::Pace;
pub use places::{Place, Places};
pub use policies::Policies;
pub use sealed_texts::SealedTexts;
pub use sign_ins::{ATTEMPT_FOR, SIGNED_IN_FOR};
pub use standby::{Standby, StandbyTrouble};
pub use terms::{ChangedTerms, Terms, is_fresh};
pub use unknown::READ_AGAIN_AFTER;
pub use wrong_keys::{WrongKeyAnswer, WrongKeys, network_of};

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use host::clock::{Clock, SandboxClock};
use ledger::AdminTables;

/// An instance, as every use case sees it.
pub struct Instance {
    pub runtime: Handle,
    pub clock: Clock,
    pub ledger: AdminTables,
    pub policies: Arc<Policies>,
    pub watch: Arc<Watch>,
    /// Of an instance that only reads.
    pub standby: Option<Arc<Standby>>,
    pub metrics: Metrics,
    /// Whether there is a Redis, answering or not.
    pub has_counters: bool,
    /// The longest time of a claim.
    pub claim_time: Duration,
    /// The longest time of any other answer.
    pub answer_time: Duration,
}

impl Instance {
    /// The present instant.
    pub fn now(&self) -> chrono::DateTime<chrono::Utc> {
        self.clock.now()
    }

    /// Whether the clock of this instance is off by more than the tolerance: then it decides and
    /// changes nothing.
    pub fn clock_is_off(&self) -> bool {
        self.watch.clock_is_off()
    }

    /// The clock that a developer moves; `None` outside of a sandbox.
    pub fn sandbox_clock(&self) -> Option<&SandboxClock> {
        self.clock.sandbox()
    }

    /// Whether this instance writes nothing: no claims, no changes and no seals.
    pub fn is_read_only(&self) -> bool {
        self.standby.is_some()
    }

    /// How old the answers of an instance that only reads are at most; `None` if that is not known, and
    /// at any other instance.
    pub fn lag(&self) -> Option<Duration> {
        self.standby.as_ref()?.lag(Instant::now())
    }

    /// Runs work in a task of its own, so that it ends in the same way whether or not somebody
    /// waits. A handler's future is dropped when its client disconnects, and a transaction must not
    /// be.
    pub fn detached<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Failure>> + use<T, W> {
        // Both are boxed: otherwise the compiler would make all that a task and a channel need again for each kind of
        // work.
        let (teller, told) = oneshot::channel::<Box<dyn Any + Send>>();
        let task = async move {
            // Nobody may wait any more.
            let _ = teller.send(Box::new(work.await));
        };
        self.runtime.spawn(task.boxed().in_current_span());
        async move {
            let told = told.await.ok().and_then(|told| told.downcast().ok());
            told.map(|told| *told).ok_or(Failure::Interrupted)
        }
    }
}

/// A new random number.
pub fn nonce() -> u64 {
    Uuid::new_v4().as_u64_pair().1
}
