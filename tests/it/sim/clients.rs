//! The claims and corrections that clients send, and the answers to them.

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

/// The longest time that a claim may take.
pub const CLAIM_TIME: Duration = Duration::from_secs(2);
/// The length of a hold, in seconds.
const HOLD_SECONDS: i128 = 3;

/// The channel on which a claim's answer arrives.
pub type Reply = Receiver<Result<Outcome, Undecided>>;

/// A request that a client wants to send.
#[derive(Debug, Clone)]
pub enum Wish {
    Claim {
        subject: u8,
        key: Option<u8>,
        is_hold: bool,
        /// Whether the ledger refuses the claim's data.
        is_refused: bool,
    },
    Reversal(Arc<Entry>),
    Confirmation(Arc<Entry>),
}

/// A claim or correction that was sent.
pub struct Sent {
    pub work: Work,
    pub sent_at: Time,
    /// How many transactions had written when it was sent.
    pub sent_after: usize,
    /// The channel for the answer. `None` after the answer, and after a crash of the instance.
    pub reply: Option<Reply>,
    /// Whether the client received a refusal.
    pub is_refused: bool,
}

pub fn account(subject: u8) -> AccountId {
    AccountId(Uuid::from_u128(u128::from(subject) + 1))
}

fn key(key: u8) -> KeyId {
    KeyId(Uuid::from_u128(0xcafe + u128::from(key)))
}

/// Turns a wish into the request to an instance. The nonce connects an entry with its claim.
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
            task: Task::Reverse(grant.clone(), None),
            account: grant.account,
            ..plain
        },
        Wish::Confirmation(grant) => Work {
            task: Task::Confirm(grant.clone(), None),
            account: grant.account,
            ..plain
        },
    }
}
