//! What is to be done to an account: a claim, or a correction.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::{HoldTime, Metadata, Subject, Units};
use super::grant::{Direction, Entry, EntryKind, Line, Note};
use super::identity::{AccountId, EntryId, KeyId};
use super::key::KeyNumber;
use super::policy::Policy;

/// What is to be done to an account.
#[derive(Debug, Clone)]
pub enum Task {
    /// To take units; for a hold, until it lapses.
    Claim(Option<HoldTime>),
    /// To give a grant's units back.
    Reverse(Arc<Entry>),
    /// To confirm a hold.
    Confirm(Arc<Entry>),
    /// To enter units by hand, which count at an instant; at the entry's own when none is given.
    Adjust(Direction, Option<DateTime<Utc>>),
}

/// What tells a claim or correction from others.
#[derive(Debug, Clone)]
pub struct Work {
    /// What is to be done.
    pub task: Task,
    /// The policy, in a version that was in force lately.
    pub policy: Arc<Policy>,
    /// The account.
    pub account: AccountId,
    /// The subject behind the account; not known for the corrections of a grant.
    pub subject: Option<Subject>,
    /// How many units.
    pub units: Units,
    /// The id of its `Idempotency-Key`.
    pub key: Option<KeyId>,
    /// What to keep beside the grant.
    pub metadata: Option<Metadata>,
    /// The key that claims or corrects.
    pub claimed_by: KeyNumber,
    /// Who corrects something, and why.
    pub note: Option<Note>,
    /// What tells its entry's id from other accounts' of the same instant.
    pub nonce: u64,
}

impl Task {
    fn is_done_by(&self, entry: &Entry) -> bool {
        match (self, entry.kind) {
            (Self::Claim(hold), EntryKind::Grant { held_until }) => {
                hold.map(HoldTime::get) == held_until.map(|until| until - entry.line.at)
            }
            (Self::Adjust(direction, counted_at), EntryKind::Adjustment(done)) => {
                *direction == done && counted_at.unwrap_or(entry.line.at) == entry.counted_at()
            }
            (Self::Reverse(grant), EntryKind::Reversal { of })
            | (Self::Confirm(grant), EntryKind::Confirmation { of }) => grant.id == of,
            _ => false,
        }
    }
}

impl Work {
    /// Whether it is a claim that lapses unless it is confirmed.
    pub fn is_hold(&self) -> bool {
        matches!(self.task, Task::Claim(Some(_)))
    }

    /// The entry that does it.
    pub fn entry(&self, line: Line) -> Entry {
        let (counted_at, kind) = match &self.task {
            Task::Claim(hold) => {
                let held_until = hold.map(|hold| line.at + hold.get());
                (line.at, EntryKind::Grant { held_until })
            }
            Task::Reverse(grant) => (line.at, EntryKind::Reversal { of: grant.id }),
            Task::Confirm(grant) => (line.at, EntryKind::Confirmation { of: grant.id }),
            Task::Adjust(direction, counted_at) => (
                counted_at.unwrap_or(line.at),
                EntryKind::Adjustment(*direction),
            ),
        };
        Entry {
            account: self.account,
            id: EntryId::new(counted_at, line.number, self.nonce),
            kind,
            units: self.units,
            key: self.key,
            metadata: self.metadata.clone(),
            provisional: None,
            would_deny: false,
            is_erased: false,
            claimed_by: Some(self.claimed_by),
            note: self.note.clone(),
            line,
        }
    }

    /// Whether an entry with its key does it, and not something else.
    pub fn is_done_by(&self, entry: &Entry) -> bool {
        entry.account == self.account
            && entry.units == self.units
            && (entry.metadata == self.metadata || entry.is_erased)
            && self.task.is_done_by(entry)
    }
}
