//! A claim under way, and what may become of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::HashSet;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::domain::grant::Entry;
use crate::domain::identity::{EntryId, KeyId};
use crate::domain::policy::{OnLedgerOutage, Policy, PolicyName};
use crate::domain::refusal::Refusal;
use crate::domain::work::{Task, Work};
use crate::engine::Failure;
use crate::engine::instance::Place;
use crate::ledger::LedgerError;

/// What became of a claim or a correction.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Granted, or corrected: the entry is in the ledger.
    Entered(Entry),
    /// The same was done before: its entry.
    Repeated(Entry),
    /// The key stands for another claim.
    KeyReused,
    /// Not granted, or not corrected, under this version of the policy.
    Refused(Arc<Policy>, Refusal),
}

impl Outcome {
    /// What an entry with the key of some work means for it.
    pub fn of_key(work: &Work, entry: Entry) -> Self {
        match work.is_done_by(&entry) {
            true => Self::Repeated(entry),
            false => Self::KeyReused,
        }
    }

    /// Whether some window lacked room.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Refused(_, Refusal::Denied(_) | Refusal::TooMany)
        )
    }
}

/// Why a claim could not be decided exactly. It is safe to retry.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Undecided {
    /// Not within the deadline.
    #[error("not decided within the deadline")]
    Deadline,
    /// More claims are under way than the service takes on.
    #[error("too many claims are under way")]
    Overloaded,
    /// This instance's clock is off the ledger's.
    #[error("the clock is off the ledger's by more than the tolerance")]
    Clock,
    /// This instance is ending.
    #[error("the instance is ending")]
    Ending,
    /// It is denied, unless a grant with its key waits in a queue that cannot be seen.
    #[error("grants that wait for the ledger cannot be seen")]
    Unseen,
    /// The ledger does not answer, and only it can tell whether there is such a policy.
    #[error("the ledger does not answer")]
    Silent,
    /// It corrects a grant that the ledger had, and lacks since a copy took its place.
    #[error("the ledger does not have the grant any more")]
    Lost,
    /// It is refused, unless an entry that was sent for it still arrives at the ledger.
    #[error("an entry that was sent to the ledger got no answer")]
    Sent,
    /// The ledger cannot be used.
    #[error("the ledger cannot decide")]
    Ledger(#[source] Arc<LedgerError>),
}

impl From<Failure> for Undecided {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Ledger(error) => Self::Ledger(error),
            Failure::Silent => Self::Silent,
            Failure::MayWait | Failure::Unseen => Self::Unseen,
            Failure::Interrupted => Self::Ending,
        }
    }
}

/// A claim or correction under way, and who waits for its answer.
pub struct InFlight {
    /// What is to be done.
    pub work: Work,
    /// After this nobody waits any more.
    pub deadline: Instant,
    /// From this instant on Redis may decide it, where the policy's owner chose so, if the
    /// ledger has not.
    pub count_from: Instant,
    /// Whether Redis may decide it at all: not once it could not.
    pub may_be_counted: bool,
    /// Whether a grant with its key may wait in Redis' queue unseen.
    pub may_wait: bool,
    /// The ids of entries for it that may or may not be committed.
    pub sent: Vec<EntryId>,
    /// The id under which Redis was last asked to count it. That may still be done, late.
    pub counted: Option<EntryId>,
    /// What the account's counter said.
    pub asked: CounterView,
    /// Who waits for the answer.
    pub waiter: Waiter,
}

/// What is held for a claim until it has ended.
pub struct Waiter {
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<Outcome, Undecided>>,
    /// Keeps others with the same key out.
    pub turn: Option<KeyTurn>,
    /// Its place among the claims under way.
    pub _place: Place,
}

/// A claim or correction, and its answer.
pub type AnsweredClaim = (InFlight, Result<Outcome, Undecided>);

/// What is known of a claim's account before the ledger is looked at.
#[derive(Debug, Clone, Default)]
pub struct CounterView {
    /// The number that the counter had; `None` without a counter.
    pub seen: Option<u64>,
    /// Whether the account is known to have no counter.
    pub has_no_counter: bool,
    /// Whether this instance knew the last line or took the account to be new, and the claim is no
    /// retry that it knows of.
    pub is_known: bool,
    /// Whether a denial should be followed by a counter that holds all keys.
    pub wants_keys: bool,
}

impl InFlight {
    /// A claim or correction that nothing was done for yet, and that Redis may not decide.
    pub fn new(work: Work, deadline: Instant, waiter: Waiter) -> Self {
        Self {
            work,
            deadline,
            count_from: deadline,
            may_be_counted: false,
            may_wait: false,
            sent: Vec::new(),
            counted: None,
            asked: CounterView::default(),
            waiter,
        }
    }

    /// There is a Redis that may count the claim, which has so much time in all. Redis knows no
    /// holds, and no corrections.
    pub fn let_count(&mut self, claim_time: Duration) {
        self.count_from = self.deadline - claim_time / 2;
        self.may_be_counted = matches!(self.work.task, Task::Claim(None));
        self.may_wait = self.work.policy.rule.may_be_counted();
    }

    /// Answers the claim.
    pub fn end(self, outcome: Result<Outcome, Undecided>) {
        // The turn ends first: the client may use the key again as soon as it has the answer.
        drop(self.waiter.turn);
        // The client may have gone away; the claim ends the same way.
        let _ = self.waiter.answer.send(outcome);
    }

    /// Whether its policy's owner chose that Redis decides it now, should the ledger not.
    pub fn is_for_redis(&self, ledger_is_silent: bool, now: Instant) -> bool {
        self.may_be_counted
            && self.work.policy.rule.on_ledger_outage == OnLedgerOutage::Count
            && (ledger_is_silent || now >= self.count_from)
    }

    /// Whether it comes after the grants of its account that wait in Redis' queue: those that
    /// Redis could decide, and holds, which it cannot.
    pub fn waits_for_queue(&self) -> bool {
        self.may_be_counted || self.work.is_hold()
    }
}

/// The keys of the claims that are being decided on this instance.
#[derive(Debug, Default, Clone)]
pub struct KeysInProgress(Arc<Mutex<HashSet<KeyId>>>);

/// A key's turn, until this is dropped.
#[derive(Debug)]
pub struct KeyTurn {
    key: KeyId,
    keys: KeysInProgress,
}

impl KeysInProgress {
    /// The key's turn; `None` while another claim has it.
    pub fn begin(&self, key: KeyId) -> Option<KeyTurn> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.insert(key).then(|| KeyTurn {
            key,
            keys: self.clone(),
        })
    }
}

impl Drop for KeyTurn {
    fn drop(&mut self) {
        let mut keys = self.keys.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.remove(&self.key);
    }
}

/// Why there is no decision.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClaimFailure {
    /// There is no such policy.
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    /// A claim with the same key is being decided.
    #[error("a claim with the same key is being decided")]
    InProgress,
    /// It could not be decided exactly.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

/// What became of a claim, as a label.
pub fn outcome_of(result: &Result<Outcome, ClaimFailure>) -> &'static str {
    match result {
        Ok(Outcome::Entered(entry)) => match entry.provisional {
            None => "granted",
            Some(_) => "provisional",
        },
        Ok(Outcome::Repeated(_)) => "replayed",
        Ok(Outcome::KeyReused) => "key_reused",
        Ok(Outcome::Refused(_, refusal)) => match refusal {
            Refusal::Archived => "unknown_policy",
            Refusal::Inactive(_) => "inactive",
            Refusal::NeverFits { .. } => "never_fits",
            Refusal::Denied(_) => "denied",
            Refusal::TooMany => "too_many",
            Refusal::NotCorrected(_) => "not_corrected",
        },
        Err(ClaimFailure::UnknownPolicy(_)) => "unknown_policy",
        Err(ClaimFailure::InProgress) => "in_progress",
        Err(ClaimFailure::Undecided(undecided)) => match undecided {
            Undecided::Deadline => "deadline",
            Undecided::Overloaded => "overloaded",
            Undecided::Clock => "clock",
            Undecided::Ending => "ending",
            Undecided::Unseen => "unseen",
            Undecided::Sent => "sent",
            Undecided::Lost | Undecided::Silent | Undecided::Ledger(_) => "failed",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_key_has_one_turn_at_a_time() {
        let keys = KeysInProgress::default();
        let (one, other) = (KeyId(Uuid::from_u128(1)), KeyId(Uuid::from_u128(2)));
        let turn = keys.begin(one);
        assert!(turn.is_some());
        assert!(keys.begin(one).is_none());
        assert!(keys.begin(other).is_some());
        drop(turn);
        assert!(keys.begin(one).is_some());
    }
}
