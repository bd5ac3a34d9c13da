//! The claims, corrections and resets that clients send, and the answers to them.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use perdiem::domain::claim::{HoldTime, Metadata, Subject, Units};
use perdiem::domain::grant::{Direction, Entry};
use perdiem::domain::identity::{AccountId, KeyId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::limit::per::Per;
use perdiem::domain::own_calendar::OwnCalendar;
use perdiem::domain::policy::Policy;
use perdiem::domain::work::{Task, Work};
use perdiem::domain::zone::Zone;
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

/// The most units that a client claims.
pub const UNITS_MOST: u64 = 2;
/// The largest number of units of a batch.
pub const BATCH_UNITS_MOST: u64 = 8;

/// A request that a client wants to send.
#[derive(Debug, Clone)]
pub enum Wish {
    Claim {
        subject: u8,
        key: Option<u8>,
        units: u64,
        is_hold: bool,
        /// Whether the ledger refuses the claim's data.
        is_refused: bool,
        /// What the claim tells of [`ZONES`].
        zone: Option<usize>,
    },
    /// Give back all units that are left.
    Reversal(Arc<Entry>),
    /// Give back so many units, with a key.
    Part(Arc<Entry>, u64, u8),
    /// Confirm a hold: so many units, or all that are left.
    Confirmation(Arc<Entry>, Option<u64>),
    Adjustment(Adjustment),
    Reset {
        subject: u8,
        /// `None`: all limits.
        per: Option<Per>,
        key: Option<u8>,
    },
    /// Move the calendar of a subject to one of [`ZONES`].
    Move {
        subject: u8,
        zone: usize,
        key: Option<u8>,
    },
    TopUp {
        subject: u8,
        units: u64,
        /// How long after the start of the history it ends.
        ends_after: TimeDelta,
        key: Option<u8>,
    },
    /// Take back what is left of a top-up.
    EndTopUp(Arc<Entry>),
}

/// The zones of subjects, with their hours ahead of UTC.
pub const ZONES: [(&str, i64); 3] = [("UTC", 0), ("+14:00", 14), ("-12:00", -12)];

fn calendar(zone: usize) -> Arc<OwnCalendar> {
    Arc::new(OwnCalendar {
        zone: Some(Zone::parse(ZONES[zone].0).expect("a zone")),
        anchor: None,
    })
}

/// Units that an admin enters by hand.
#[derive(Debug, Clone, Copy)]
pub struct Adjustment {
    pub subject: u8,
    pub direction: Direction,
    pub units: u64,
    /// Whether they count before the history began, and not now.
    pub is_past: bool,
    pub key: Option<u8>,
}

/// How long before the start of a history past adjustments count: by every clock in the past.
const PAST: TimeDelta = TimeDelta::seconds(2);

/// An atomic batch.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// The number of its first claim.
    pub first: usize,
    /// Whether something besides its claims prevents every grant.
    pub is_doomed: bool,
    /// The units of all its claims, and of those for the same subject.
    pub units: u64,
    pub own_units: u64,
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
    /// The atomic batch that the claim is part of.
    pub batch: Option<Batch>,
}

pub fn account(subject: u8) -> AccountId {
    AccountId(Uuid::from_u128(u128::from(subject) + 1))
}

fn subject(subject: u8) -> Subject {
    Subject::new(&format!("subject-{subject}")).expect("a subject")
}

fn key(key: u8) -> KeyId {
    KeyId(Uuid::from_u128(0xcafe + u128::from(key)))
}

fn units(units: u64) -> Units {
    Units::new(units.into()).expect("units")
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
        bundle: None,
        calendar: None,
        metadata: None,
        note: None,
        nonce,
    };
    match wish {
        Wish::Claim {
            subject,
            key: name,
            units: claimed,
            is_hold,
            is_refused,
            zone,
        } => Work {
            calendar: zone.map(calendar),
            task: Task::Claim(is_hold.then(|| HoldTime::new(HOLD_SECONDS).expect("a time"))),
            account: account(*subject),
            subject: Some(self::subject(*subject)),
            units: units(*claimed),
            key: name.map(key),
            metadata: is_refused.then(|| Metadata::from_stored(REFUSED_METADATA.to_owned())),
            ..plain
        },
        Wish::Reversal(grant) => Work {
            task: Task::Reverse(grant.clone(), None),
            account: grant.account,
            units: grant.units,
            ..plain
        },
        Wish::Part(grant, returned, name) => Work {
            task: Task::Reverse(grant.clone(), Some(units(*returned))),
            account: grant.account,
            units: grant.units,
            key: Some(key(*name)),
            ..plain
        },
        Wish::Adjustment(adjustment) => {
            let counted_at = Time::START.by_clock(-PAST);
            let counted_at = adjustment.is_past.then_some(counted_at);
            Work {
                task: Task::Adjust(adjustment.direction, counted_at),
                account: account(adjustment.subject),
                subject: Some(subject(adjustment.subject)),
                units: units(adjustment.units),
                key: adjustment.key.map(key),
                ..plain
            }
        }
        Wish::Reset {
            subject,
            per,
            key: name,
        } => Work {
            task: Task::Reset(*per),
            account: account(*subject),
            subject: Some(self::subject(*subject)),
            key: name.map(key),
            ..plain
        },
        Wish::Move {
            subject,
            zone,
            key: name,
        } => Work {
            task: Task::MoveCalendar,
            account: account(*subject),
            subject: Some(self::subject(*subject)),
            calendar: Some(calendar(*zone)),
            key: name.map(key),
            ..plain
        },
        Wish::TopUp {
            subject,
            units: given,
            ends_after,
            key: name,
        } => Work {
            task: Task::TopUp(Time::START.by_clock(*ends_after)),
            account: account(*subject),
            subject: Some(self::subject(*subject)),
            units: units(*given),
            key: name.map(key),
            ..plain
        },
        Wish::EndTopUp(top_up) => Work {
            task: Task::EndTopUp(top_up.id),
            account: top_up.account,
            ..plain
        },
        Wish::Confirmation(grant, settled) => Work {
            task: Task::Confirm(grant.clone(), settled.map(units)),
            account: grant.account,
            units: grant.units,
            ..plain
        },
    }
}
