//! What clients send, and what they were told.

use std::sync::Arc;
use std::time::Duration;

use perdiem::domain::claim::{HoldTime, Metadata, Subject, Units};
use perdiem::domain::grant::Entry;
use perdiem::domain::identity::{AccountId, KeyId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::policy::Policy;
use perdiem::domain::work::{Task, Work};
use perdiem::engine::{Outcome, Undecided};
use tokio::sync::oneshot::Receiver;
use uuid::Uuid;

use super::ledger::REFUSED_METADATA;
use super::time::Time;

/// The longest that a claim may take.
pub const CLAIM_TIME: Duration = Duration::from_secs(2);
/// For so many seconds units are held.
const HOLD_SECONDS: i128 = 3;

/// Where a claim's answer arrives.
pub type Reply = Receiver<Result<Outcome, Undecided>>;

/// What a client wants.
#[derive(Debug, Clone)]
pub enum Wish {
    Claim {
        subject: u8,
        key: Option<u8>,
        is_hold: bool,
        /// Whether the ledger refuses its data.
        is_refused: bool,
    },
    Reversal(Arc<Entry>),
    Confirmation(Arc<Entry>),
}

/// A claim or correction that was sent.
pub struct Sent {
    pub work: Work,
    pub sent_at: Time,
    /// How many transactions had written by then.
    pub sent_after: usize,
    /// Where the answer arrives; `None` once it has, or the instance crashed.
    pub reply: Option<Reply>,
    /// Whether its client was told that it is refused.
    pub is_refused: bool,
}

pub fn account(subject: u8) -> AccountId {
    AccountId(Uuid::from_u128(u128::from(subject) + 1))
}

fn key(key: u8) -> KeyId {
    KeyId(Uuid::from_u128(0xcafe + u128::from(key)))
}

/// What a wish asks of an instance. The nonce tells which claim an entry is of.
pub fn work(wish: &Wish, policy: Arc<Policy>, nonce: u64) -> Work {
    let plain = Work {
        claimed_by: KeyNumber::OF_SETTINGS,
        task: Task::Claim(None),
        policy,
        account: account(0),
        subject: None,
        units: Units::ONE,
        key: None,
        metadata: None,
        note: None,
        nonce,
    };
    match wish {
        Wish::Claim {
            subject,
            key: name,
            is_hold,
            is_refused,
        } => Work {
            task: Task::Claim(is_hold.then(|| HoldTime::new(HOLD_SECONDS).expect("a time"))),
            account: account(*subject),
            subject: Some(Subject::new(&format!("subject-{subject}")).expect("a subject")),
            key: name.map(key),
            metadata: is_refused.then(|| Metadata::from_stored(REFUSED_METADATA.to_owned())),
            ..plain
        },
        Wish::Reversal(grant) => Work {
            task: Task::Reverse(grant.clone()),
            account: grant.account,
            ..plain
        },
        Wish::Confirmation(grant) => Work {
            task: Task::Confirm(grant.clone()),
            account: grant.account,
            ..plain
        },
    }
}
