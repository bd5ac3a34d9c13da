//! The callers of requests: their keys, wrong keys, and how much each of them may do at once.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::Instance;
use super::access::{Access, Principal, Recognition};
use super::failure::Failure;
use super::places::{Place, Places};
use super::unknown::READ_AGAIN_AFTER;
use super::wrong_keys::{WrongKeyAnswer, WrongKeys};
use ledger::LedgerError;

/// Places that callers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Reads of the ledger.
    Reads,
    /// Changes by admins.
    Edits,
    /// Requests that wait for entries.
    Waits,
}

/// Who may call, and how much at once.
pub struct Callers {
    pub instance: Arc<Instance>,
    pub access: Arc<Access>,
    pub wrong_keys: WrongKeys,
    /// Reads, until their answers are written.
    pub reads: Places,
    pub edits: Places,
    pub waits: Places,
    /// Exports and backtests.
    pub snapshots: Places,
}

impl Callers {
    /// A place for a read or an edit. `None` if the caller has too many places until the deadline.
    pub async fn place(&self, share: Share, caller: &Arc<str>, deadline: Instant) -> Option<Place> {
        let places = match share {
            Share::Reads => &self.reads,
            Share::Edits => &self.edits,
            Share::Waits => &self.waits,
        };
        places.take(caller, deadline).await
    }

    /// Waits for a place for an export or a backtest, as long as other reads wait for theirs.
    pub async fn long_place(&self, caller: &Arc<str>) -> Option<Place> {
        let deadline = Instant::now() + self.instance.answer_time;
        self.snapshots.take(caller, deadline).await
    }

    /// Whether the ledger has no keys, and the settings have none.
    pub fn needs_first_key(&self) -> bool {
        self.access.needs_first_key()
    }

    /// Adds an admin key with this secret to a ledger without keys. Returns false if another
    /// instance was first. Nobody can read the secret again, so call this when nothing else can
    /// fail.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn add_first_key(&self, secret: &str) -> Result<bool, LedgerError> {
        let now = self.instance.clock.now();
        self.access.add_first_key(secret, now).await
    }

    /// Notes a wrong key from an address, and returns when to answer. Requests without an address
    /// share one.
    pub fn wrong_key(&self, address: Option<IpAddr>) -> WrongKeyAnswer {
        self.instance.metrics.wrong_key();
        self.wrong_keys.note(address)
    }

    /// The owner of a secret, if its key is valid now.
    ///
    /// # Errors
    /// [`Failure`] if only the ledger can tell, and the ledger does not answer.
    pub async fn authenticate(&self, secret: &str) -> Result<Option<Principal>, Failure> {
        self.know_keys().await;
        match self.access.authenticate(secret, self.instance.clock.now()) {
            Recognition::Valid(principal) => return Ok(Some(principal)),
            Recognition::Wrong => return Ok(None),
            Recognition::Unknown => {}
        }
        let learned = self.instance.learn_unknown(Instant::now()).await;
        match self.access.authenticate(secret, self.instance.clock.now()) {
            // Keys are read before policies: a policy that cannot be read locks nobody out.
            Recognition::Valid(principal) => Ok(Some(principal)),
            Recognition::Wrong | Recognition::Unknown => learned.map(|()| None),
        }
    }

    /// The owner of a secret, if this instance knows without the ledger that its key is valid now.
    pub fn known(&self, secret: &str) -> Option<Principal> {
        if !self.instance.policies.are_fresh() {
            return None;
        }
        match self.access.authenticate(secret, self.instance.clock.now()) {
            Recognition::Valid(principal) => Some(principal),
            Recognition::Wrong | Recognition::Unknown => None,
        }
    }

    /// The principal of a browser that signed in, if its key is valid now.
    pub async fn signed_in(&self, text: &str) -> Option<Principal> {
        let secret = self.access.sign_ins.open(text, self.instance.clock.now())?;
        self.authenticate(&secret).await.ok()?
    }

    /// Makes sure that this instance knows keys that were revoked a second ago, even after a pause
    /// of the process. While the ledger does not answer, the known keys stay valid.
    pub(super) async fn know_keys(&self) {
        if self.instance.policies.are_fresh() || self.instance.watch.ledger_is_silent() {
            return;
        }
        let policies = self.instance.policies.clone();
        let watch = self.instance.watch.clone();
        // Reads until everything is fresh, or the ledger is found silent. One failure does not mean
        // silence: a connection may have broken during a pause of the process.
        let freshen = async move {
            let is_silent = || watch.ledger_is_silent();
            while !policies.are_fresh() && !is_silent() {
                match policies.freshen(is_silent).await {
                    Ok(()) | Err(LedgerError::Corrupt(_)) => return,
                    Err(_) => sleep(READ_AGAIN_AFTER).await,
                }
            }
        };
        // The watcher reports problems of the ledger, and claims find them by themselves.
        drop(self.instance.detached(freshen).await);
    }
}
