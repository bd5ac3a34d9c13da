//! A claim in progress, and its possible outcomes.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, SecondsFormat, Utc};
use foldhash::HashSet;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::instance::{Failure, Place};
use domain::grant::{Entry, Followers};
use domain::identity::{EntryId, KeyId};
use domain::policy::{OnLedgerOutage, Policy, PolicyName};
use domain::refusal::Refusal;
use domain::work::Work;
use ledger::{LedgerError, Untimely};

/// The outcome of a claim or correction.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The claim is granted or the correction is made: the entry is committed.
    Entered(Entry),
    /// The same was done before: the entry of then.
    Repeated(Entry),
    /// The key belongs to another claim.
    KeyReused,
    /// The claim is not granted, or the correction is not made, under this version of the policy.
    Refused(Arc<Policy>, Refusal),
    /// The claim would be granted with this entry under this version of the policy, but something
    /// besides the claim keeps it from being granted.
    Withheld(Arc<Policy>, Entry),
}

impl Outcome {
    /// The outcome of work whose key already has an entry. `seen` has the entries that name it.
    pub fn of_key(work: &Work, entry: &Entry, seen: &[Entry], now: DateTime<Utc>) -> Self {
        if !work.is_done_by(entry) {
            return Self::KeyReused;
        }
        match Followers::among(entry.id, seen).end_of(entry, now) {
            None => Self::Repeated(entry.clone()),
            Some(end) => Self::Refused(work.policy.clone(), Refusal::Ended(end)),
        }
    }

    /// The outcome of work whose key has one of these entries; `None` if none has it.
    pub fn of_earlier(work: &Work, seen: &[Entry], now: DateTime<Utc>) -> Option<Self> {
        let key = work.key?;
        let entry = seen.iter().find(|entry| entry.key == Some(key))?;
        Some(Self::of_key(work, entry, seen, now))
    }

    /// Whether a window had no room.
    pub fn has_no_room(&self) -> bool {
        match self {
            Self::Refused(_, Refusal::Denied(denied)) => !denied.has_own_room(),
            Self::Refused(_, Refusal::TooMany) => true,
            _ => false,
        }
    }

    /// Whether the claim is denied: a window had no room, or the subject is blocked.
    pub fn is_denied(&self) -> bool {
        let is_denied =
            |refusal: &Refusal| matches!(refusal, Refusal::Denied(_) | Refusal::Blocked(_));
        self.has_no_room() || matches!(self, Self::Refused(_, refusal) if is_denied(refusal))
    }
}

/// Why a claim has no exact decision. The client can safely retry.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Undecided {
    #[error("the claim was not decided before its deadline")]
    Deadline,
    /// Too many claims are in progress.
    #[error("too many claims are in progress")]
    Overloaded,
    /// The clock of this instance differs too much from the clock of the ledger.
    #[error("the clock of this instance is off by more than the tolerance")]
    Clock,
    /// The last entry of the subject is in the future.
    #[error(
        "the last entry of this subject is at {}, in the future, and no entry can be earlier: \
         nothing is decided for this subject before then",
        .0.to_rfc3339_opts(SecondsFormat::AutoSi, true)
    )]
    Ahead(DateTime<Utc>),
    /// This instance stops.
    #[error("the instance is stopping")]
    Ending,
    /// The claim would be denied, but a grant with its key may wait in a queue that cannot be read.
    #[error("grants that wait for the ledger cannot be read")]
    Unseen,
    /// The ledger does not answer, and only the ledger can tell whether the policy exists.
    #[error("the ledger does not answer")]
    Silent,
    /// The ledger no longer has the grant to correct: a copy of the ledger took its place.
    #[error("the ledger no longer has the grant")]
    Lost,
    /// The claim would be refused, but an entry that was sent for it may still be committed.
    #[error("the ledger did not say whether it has the entry of the claim")]
    Sent,
    /// The ledger gave an error.
    #[error("the ledger cannot decide")]
    Ledger(#[source] Arc<LedgerError>),
}

impl From<Failure> for Undecided {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Ledger(error) => Self::Ledger(error),
            Failure::Silent | Failure::NotFollowed => Self::Silent,
            Failure::MayWait | Failure::Unseen => Self::Unseen,
            Failure::Interrupted => Self::Ending,
        }
    }
}

impl From<Untimely> for Undecided {
    fn from(why: Untimely) -> Self {
        match why {
            Untimely::Clock(_) => Self::Clock,
            Untimely::LastLine(at) => Self::Ahead(at),
        }
    }
}

/// A claim or correction in progress, and the client that waits for its answer.
pub struct InFlight {
    pub work: Work,
    /// After this instant no client waits.
    pub deadline: Instant,
    /// From this instant on the claim may leave for Redis (`counted`), if the ledger has not
    /// decided it and the owner of its policy chose so. `None` if Redis must not decide it, or could
    /// not.
    pub leaves_from: Option<Instant>,
    /// Whether a grant with the same key may wait unseen in the queue of Redis.
    pub grants_may_wait: bool,
    /// The ids of entries for this claim that may or may not be committed.
    pub sent: Vec<EntryId>,
    pub hints: Hints,
    /// The atomic batch of the claim: its claims are granted all or none.
    pub batch: Option<u64>,
    /// The client that waits for the answer.
    pub waiter: Waiter,
}

/// The resources of a claim until it ends.
pub struct Waiter {
    /// The channel for the answer.
    pub answer: oneshot::Sender<Result<Outcome, Undecided>>,
    /// Keeps out other claims with the same key.
    pub turn: Option<KeyTurn>,
    /// The place of the claim among the claims in progress.
    pub _place: Place,
}

pub type AnsweredClaim = (InFlight, Result<Outcome, Undecided>);

/// What is known of the account of a claim before the ledger is read. None of it decides anything.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// The number of the last line that the counter had; `None` without a counter.
    pub counter: Option<u64>,
    /// Whether the counter denied the claim, and had to be confirmed.
    pub is_denied: bool,
    /// Whether the account is known to have no counter.
    pub has_no_counter: bool,
    /// Whether this instance knew the last line, or took the account to be new, and knows no
    /// earlier claim with the same key.
    pub has_known_line: bool,
    /// Whether a denial should be followed by a settlement with all keys.
    pub wants_keys: bool,
}

impl InFlight {
    /// A new claim or correction that Redis must not decide.
    pub fn new(work: Work, deadline: Instant, waiter: Waiter) -> Self {
        Self {
            work,
            deadline,
            leaves_from: None,
            grants_may_wait: false,
            sent: Vec::new(),
            hints: Hints::default(),
            batch: None,
            waiter,
        }
    }

    /// Sends the answer of the claim.
    pub fn end(self, outcome: Result<Outcome, Undecided>) {
        // The turn of the key ends first: the client may use the key again as soon as it has the
        // answer.
        drop(self.waiter.turn);
        // The client may be gone; the claim ends in the same way.
        let _ = self.waiter.answer.send(outcome);
    }

    /// Whether two claims are granted both or none.
    pub fn is_joined(&self, other: &Self) -> bool {
        self.batch.is_some() && self.batch == other.batch
    }

    /// Whether the claim may leave for Redis now, because the ledger does not decide it.
    pub fn may_leave(&self, ledger_is_silent: bool, now: Instant) -> bool {
        self.work.policy.rule.on_ledger_outage == OnLedgerOutage::Count
            && self
                .leaves_from
                .is_some_and(|from| ledger_is_silent || now >= from)
    }

    /// Whether the claim comes after the grants of its account in the queue of Redis: a claim that
    /// Redis could decide, and a hold, which Redis cannot decide.
    pub fn waits_for_queue(&self) -> bool {
        self.leaves_from.is_some() || self.work.is_hold()
    }
}

/// The keys of the claims that this instance is deciding.
#[derive(Debug, Default, Clone)]
pub struct KeysInProgress(Arc<Mutex<HashSet<KeyId>>>);

/// The turn of a key. The turn ends when this value is dropped.
#[derive(Debug)]
pub struct KeyTurn {
    key: KeyId,
    keys: KeysInProgress,
}

impl KeysInProgress {
    /// Starts the turn of a key; `None` while another claim has the turn.
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

/// Why a claim has no decision.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClaimFailure {
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    #[error("a claim with the same key is being decided")]
    InProgress,
    /// The claim could not be decided exactly.
    #[error(transparent)]
    Undecided(#[from] Undecided),
}

/// The outcome of a claim as the label of a metric.
pub fn outcome_of(result: Result<&Outcome, &ClaimFailure>) -> &'static str {
    match result {
        Ok(Outcome::Entered(entry)) => match entry.provisional {
            None => "granted",
            Some(_) => "provisional",
        },
        Ok(Outcome::Repeated(_)) => "replayed",
        Ok(Outcome::KeyReused) => "key_reused",
        Ok(Outcome::Withheld(..)) => "withheld",
        Ok(Outcome::Refused(_, refusal)) => match refusal {
            Refusal::Archived => "unknown_policy",
            Refusal::Inactive(_) => "inactive",
            Refusal::NeverFits { .. } => "never_fits",
            Refusal::NoOwnCalendar => "no_own_calendar",
            Refusal::Denied(_) => "denied",
            Refusal::Blocked(_) => "blocked",
            Refusal::TooMany => "too_many",
            Refusal::Ended(_) => "ended",
            Refusal::NotCorrected(_) => "not_corrected",
        },
        Err(ClaimFailure::UnknownPolicy(_)) => "unknown_policy",
        Err(ClaimFailure::InProgress) => "in_progress",
        Err(ClaimFailure::Undecided(undecided)) => match undecided {
            Undecided::Deadline => "deadline",
            Undecided::Overloaded => "overloaded",
            Undecided::Clock | Undecided::Ahead(_) => "clock",
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
        let one = KeyId(Uuid::from_u128(1));
        let other = KeyId(Uuid::from_u128(2));
        let turn = keys.begin(one);
        assert!(turn.is_some());
        assert!(keys.begin(one).is_none());
        assert!(keys.begin(other).is_some());
        drop(turn);
        assert!(keys.begin(one).is_some());
    }
}
