//! Work for an account: a claim or a correction.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::account::UnitsAsked;
use super::claim::{HoldTime, Metadata, Subject, Units};
use super::grant::{Direction, Entry, EntryKind, Line, Note};
use super::identity::{AccountId, BundleId, EntryId, KeyId};
use super::key::KeyNumber;
use super::limit::per::Per;
use super::own_calendar::OwnCalendar;
use super::policy::Policy;
use super::warning::Levels;

#[derive(Debug, Clone)]
pub enum Task {
    /// Take units; for a hold, with its time.
    Claim(Option<HoldTime>),
    /// Give units of a grant back: these, or all that are left.
    Reverse(Arc<Entry>, Option<Units>),
    /// Confirm a hold: these units stay used, or all that are left.
    Confirm(Arc<Entry>, Option<Units>),
    /// Enter units by hand. They count at the instant, or at the instant of the entry if there is
    /// none.
    Adjust(Direction, Option<DateTime<Utc>>),
    /// Begin a limit again, or all limits.
    Reset(Option<Per>),
    /// Give the subject units beside its windows until this instant.
    TopUp(DateTime<Utc>),
    /// Take back what is left of a top-up.
    EndTopUp(EntryId),
    /// Move the calendar of the account: [`Work::calendar`] is what it has of its own from now on.
    MoveCalendar,
}

/// The bundle that a claim belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bundle {
    pub id: BundleId,
    /// Whether the bundle has an `Idempotency-Key`: then it is one claim, and a retry has all of its claims.
    pub has_key: bool,
}

/// A claim or correction.
#[derive(Debug, Clone)]
pub struct Work {
    pub task: Task,
    /// A recent version of the policy.
    pub policy: Arc<Policy>,
    pub account: AccountId,
    /// The subject of the account; not known for the correction of a grant.
    pub subject: Option<Subject>,
    pub units: Units,
    /// The keyed hash of the `Idempotency-Key`.
    pub key: Option<KeyId>,
    /// The bundle of the claim; `None` for a claim alone, and for a correction.
    pub bundle: Option<Bundle>,
    /// The zone and the anchor of the account from here on; `None` leaves them as they are.
    pub calendar: Option<Arc<OwnCalendar>>,
    /// The metadata to store with the grant.
    pub metadata: Option<Metadata>,
    /// The key that claims or corrects.
    pub claimed_by: KeyNumber,
    /// The author of a correction, and the reason.
    pub note: Option<Note>,
    /// The random part of the id of the entry. It differs between accounts.
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
            (Self::Reset(per), EntryKind::Reset { per: done }) => *per == done,
            (Self::MoveCalendar, EntryKind::Calendar) => true,
            (Self::TopUp(ends_at), EntryKind::TopUp) => entry
                .top_up()
                .is_some_and(|given| given.ends_at == *ends_at),
            (Self::EndTopUp(top_up), EntryKind::TopUpReversal { of }) => *top_up == of,
            (
                Self::Reverse(grant, units),
                EntryKind::Reversal { of } | EntryKind::PartialReversal { of },
            ) => grant.id == of && units.is_none_or(|units| units == entry.units),
            (Self::Confirm(grant, units), EntryKind::Confirmation { of }) => {
                grant.id == of && units.is_none_or(|units| units == entry.units)
            }
            _ => false,
        }
    }
}

impl Work {
    /// Whether this is a claim for a hold.
    pub fn is_hold(&self) -> bool {
        matches!(self.task, Task::Claim(Some(_)))
    }

    /// The grant that this work corrects.
    pub fn grant(&self) -> Option<EntryId> {
        match &self.task {
            Task::Reverse(grant, _) | Task::Confirm(grant, _) => Some(grant.id),
            Task::Claim(_)
            | Task::Adjust(..)
            | Task::Reset(_)
            | Task::MoveCalendar
            | Task::TopUp(_)
            | Task::EndTopUp(_) => None,
        }
    }

    /// The grant that this work corrects, or the top-up that it takes back.
    pub fn corrects(&self) -> Option<EntryId> {
        match self.task {
            Task::EndTopUp(top_up) => Some(top_up),
            _ => self.grant(),
        }
    }

    /// The entry of this work, on a line.
    pub fn entry(&self, line: Line) -> Entry {
        let (counted_at, kind) = match &self.task {
            Task::Claim(hold) => {
                let held_until = hold.map(|hold| line.at + hold.get());
                (line.at, EntryKind::Grant { held_until })
            }
            Task::Reverse(grant, _) => (line.at, EntryKind::Reversal { of: grant.id }),
            Task::Confirm(grant, _) => (line.at, EntryKind::Confirmation { of: grant.id }),
            Task::Adjust(direction, counted_at) => (
                counted_at.unwrap_or(line.at),
                EntryKind::Adjustment(*direction),
            ),
            Task::Reset(per) => (line.at, EntryKind::Reset { per: *per }),
            Task::MoveCalendar => (line.at, EntryKind::Calendar),
            Task::TopUp(_) => (line.at, EntryKind::TopUp),
            Task::EndTopUp(top_up) => (line.at, EntryKind::TopUpReversal { of: *top_up }),
        };
        Entry {
            account: self.account,
            id: EntryId::new(counted_at, line.number, self.nonce),
            kind,
            units: self.units,
            key: self.key,
            bundle: self.bundle.map(|bundle| bundle.id),
            metadata: self.metadata.clone(),
            provisional: None,
            would_deny: false,
            crossed: Levels::default(),
            is_erased: false,
            claimed_by: Some(self.claimed_by),
            note: self.note.clone(),
            line,
        }
    }

    /// What tells this claim from another one: its key, its account, its units and the time of its hold.
    pub fn identifying_bytes(&self) -> Vec<u8> {
        let hold = match self.task {
            Task::Claim(hold) => hold.map_or(0, |hold| hold.get().num_seconds()),
            _ => 0,
        };
        let key = self.key.map_or_else(Uuid::nil, |key| key.0);
        let ids = [key, self.account.0].map(Uuid::into_bytes).concat();
        let numbers = [self.units.get(), hold.cast_unsigned()].map(u64::to_le_bytes);
        [ids, numbers.concat()].concat()
    }

    fn has_calendar_of(&self, line: &Line) -> bool {
        let asked = self.calendar.as_deref().zip(line.calendar.as_deref());
        asked.is_some_and(|(asked, own)| own.has(asked))
    }

    /// What a claim asks for.
    pub fn asked(&self) -> UnitsAsked {
        UnitsAsked {
            units: self.units,
            calendar: self.calendar.clone(),
        }
    }

    /// Whether an entry with the same key does the same, and nothing else. A claim is the same with another
    /// calendar: its grant counts in the one that the subject had then.
    pub fn is_done_by(&self, entry: &Entry) -> bool {
        let keyed = self.bundle.filter(|bundle| bundle.has_key);
        let is_of = |bundle: Bundle| entry.bundle.is_some_and(|of| of.has_tag_of(bundle.id));
        keyed.is_none_or(is_of)
            && entry.account == self.account
            && (entry.units == self.units || self.corrects().is_some())
            && (entry.metadata == self.metadata || entry.is_erased)
            && self.task.is_done_by(entry)
            && (entry.kind != EntryKind::Calendar || self.has_calendar_of(&entry.line))
    }
}
