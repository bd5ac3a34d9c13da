//! The lines of the ledger: entries, and the totals that each of them carries.

use chrono::{DateTime, Utc};

use super::claim::{Metadata, UNITS_MAX, Units};
use super::identity::{AccountId, EntryId, KeyId};
use super::policy::PolicyName;
use super::window::{Per, Window};

/// What a limit's window held after an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// Which limit.
    pub per: Per,
    /// The limit's `max` that was in force.
    pub max: u64,
    /// The units used in the window, with the entry's own.
    pub used: u64,
    /// The window.
    pub window: Window,
}

impl Total {
    /// What is left of the limit; 0 when a lowered `max` lies below what is used.
    pub fn remaining(&self) -> u64 {
        self.max.saturating_sub(self.used)
    }

    /// Whether so many more units fit.
    pub fn fits(&self, units: Units) -> bool {
        units.get() <= self.remaining()
    }

    /// Takes units, whether or not they fit. What is used stays a number that JSON holds.
    pub fn take(&mut self, units: Units) {
        self.used = self.used.saturating_add(units.get()).min(UNITS_MAX);
    }
}

/// The part of an account's last entry that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The entry's number.
    pub number: u64,
    /// The entry's instant.
    pub at: DateTime<Utc>,
    /// The version of the policy that it was decided under.
    pub policy_version: u32,
    /// One total a limit, in the policy's order.
    pub totals: Vec<Total>,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Units were granted.
    Grant,
}

/// How a grant that Redis alone decided stood in its windows when it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisional {
    /// There was room for it.
    Within,
    /// It went over a limit.
    Over,
}

/// A line of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The account.
    pub account: AccountId,
    /// The entry's id; a grant's is what clients see.
    pub id: EntryId,
    /// What it is.
    pub kind: EntryKind,
    /// How many units.
    pub units: Units,
    /// The id of its `Idempotency-Key`.
    pub key: Option<KeyId>,
    /// What the caller wants to find beside it.
    pub metadata: Option<Metadata>,
    /// For a grant that Redis alone decided; such a grant was appended afterwards.
    pub provisional: Option<Provisional>,
    /// Its number, instant, policy version and totals.
    pub line: Line,
}

/// What became of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantState {
    /// Its units are taken until they are confirmed.
    Held,
    /// Its units are taken.
    Granted,
    /// Its units were given back.
    Reversed,
    /// A hold that was not confirmed in time.
    Lapsed,
}

impl GrantState {
    /// Every state, in the order of a grant's life.
    pub const ALL: [Self; 4] = [Self::Held, Self::Granted, Self::Reversed, Self::Lapsed];

    /// Its name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Granted => "granted",
            Self::Reversed => "reversed",
            Self::Lapsed => "lapsed",
        }
    }
}

/// A grant as an auditor sees it: its entry and what the ledger knows around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The entry.
    pub entry: Entry,
    /// Its policy.
    pub policy: PolicyName,
    /// The subject's text; `None` once it was erased.
    pub subject: Option<String>,
}

impl Entry {
    /// When its units were granted: inside the windows that they count in. The line's instant
    /// may be later where the entry was appended afterwards.
    pub fn granted_at(&self) -> DateTime<Utc> {
        match self.provisional {
            None => self.line.at,
            Some(_) => self.id.at(),
        }
    }

    /// What became of the grant.
    pub fn state(&self) -> GrantState {
        match self.kind {
            EntryKind::Grant => GrantState::Granted,
        }
    }
}
