//! The lines of the ledger: entries, and the totals that each of them carries.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::{Metadata, Units};
use super::identity::{AccountId, EntryId, KeyId};
use super::key::KeyNumber;
use super::limit::total::Total;
use super::policy::PolicyName;
use super::window::Window;

/// The part of an account's last entry that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The entry's number.
    pub number: u64,
    /// The entry's instant.
    pub at: DateTime<Utc>,
    /// The version of the policy that it was decided under.
    pub policy_version: u32,
    /// No open hold of the account lapses before this instant; `None` when it has none.
    pub lapses_at: Option<DateTime<Utc>>,
    /// One total a limit, in the policy's order. Shared, since a line is handed on often.
    pub totals: Arc<[Total]>,
}

impl Line {
    /// Whether some hold may have lapsed by an instant without an entry that says so.
    pub fn may_have_lapses(&self, at: DateTime<Utc>) -> bool {
        self.lapses_at.is_some_and(|lapses_at| lapses_at <= at)
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Units were granted.
    Grant {
        /// For a hold: from this instant on it has lapsed, unless it was confirmed.
        held_until: Option<DateTime<Utc>>,
    },
    /// A hold was confirmed: its units stay taken.
    Confirmation {
        /// The hold.
        of: EntryId,
    },
    /// A grant's units were given back.
    Reversal {
        /// The grant.
        of: EntryId,
    },
    /// A hold was not confirmed in time: its units were given back.
    Lapse {
        /// The hold.
        of: EntryId,
    },
    /// Units were entered by hand.
    Adjustment(Direction),
}

impl EntryKind {
    pub fn word(self) -> KindWord {
        match self {
            Self::Grant { .. } => KindWord::Grant,
            Self::Confirmation { .. } => KindWord::Confirmation,
            Self::Reversal { .. } => KindWord::Reversal,
            Self::Lapse { .. } => KindWord::Lapse,
            Self::Adjustment(_) => KindWord::Adjustment,
        }
    }

    /// The grant that an entry of this kind names.
    pub fn of(self) -> Option<EntryId> {
        match self {
            Self::Confirmation { of } | Self::Reversal { of } | Self::Lapse { of } => Some(of),
            Self::Grant { .. } | Self::Adjustment(_) => None,
        }
    }
}

/// What auditors call an entry's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindWord {
    Grant,
    Confirmation,
    Reversal,
    Lapse,
    /// Up or down.
    Adjustment,
}

impl KindWord {
    pub const ALL: [Self; 5] = [
        Self::Grant,
        Self::Confirmation,
        Self::Reversal,
        Self::Lapse,
        Self::Adjustment,
    ];

    /// Its name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Confirmation => "confirmation",
            Self::Reversal => "reversal",
            Self::Lapse => "lapse",
            Self::Adjustment => "adjustment",
        }
    }
}

/// Which way an adjustment moves what is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// More is used.
    Up,
    /// Less is used.
    Down,
}

/// How a grant that Redis alone decided stood in its windows when it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisional {
    /// There was room for it.
    Within,
    /// It went over a limit.
    Over,
}

/// Who made an entry that corrects something, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The id of whoever's key it was.
    pub by: Arc<str>,
    /// Why; a confirmation needs no reason.
    pub reason: Option<String>,
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
    /// Of a grant under a policy that only observes: whether it would have been denied.
    pub would_deny: bool,
    /// Whether its texts were erased: what it has no metadata of is not known.
    pub is_erased: bool,
    /// The key that claimed or corrected; `None` for a lapse, and for entries of older ledgers.
    pub claimed_by: Option<KeyNumber>,
    /// Who corrected something, and why.
    pub note: Option<Note>,
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

/// The entries that name a grant: at most one of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followers {
    /// Its confirmation, if it is a hold that was confirmed.
    pub confirmation: Option<Follower>,
    /// Its reversal or lapse.
    pub closing: Option<Follower>,
}

/// An entry that names a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    /// Its id.
    pub id: EntryId,
    /// What it is.
    pub kind: EntryKind,
    /// When it was appended.
    pub at: DateTime<Utc>,
    /// Who made it, and why; nobody makes a lapse.
    pub note: Option<Note>,
}

impl Followers {
    /// Those of a grant among some entries.
    pub fn among<'a>(grant: EntryId, entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut followers = Self::default();
        for entry in entries {
            let (place, of) = match entry.kind {
                EntryKind::Confirmation { of } => (&mut followers.confirmation, of),
                EntryKind::Reversal { of } | EntryKind::Lapse { of } => {
                    (&mut followers.closing, of)
                }
                EntryKind::Grant { .. } | EntryKind::Adjustment(_) => continue,
            };
            if of == grant {
                *place = Some(Follower {
                    id: entry.id,
                    kind: entry.kind,
                    at: entry.line.at,
                    note: entry.note.clone(),
                });
            }
        }
        followers
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
    /// What came of it.
    pub followers: Followers,
}

impl Grant {
    /// What became of the grant by an instant. A hold lapses by itself: the entry that says so
    /// comes with the account's next decision.
    pub fn state(&self, now: DateTime<Utc>) -> GrantState {
        let Followers {
            confirmation,
            closing,
        } = &self.followers;
        match (
            closing.as_ref().map(|closing| closing.kind),
            self.entry.held_until(),
        ) {
            (Some(EntryKind::Lapse { .. }), _) => GrantState::Lapsed,
            (Some(_), _) => GrantState::Reversed,
            (None, Some(until)) if confirmation.is_none() => match now < until {
                true => GrantState::Held,
                false => GrantState::Lapsed,
            },
            (None, _) => GrantState::Granted,
        }
    }
}

impl Entry {
    /// The instant in whose windows its units count: for what gives units back, the grant's.
    /// The line's instant may be later where the entry was appended afterwards.
    pub fn counted_at(&self) -> DateTime<Utc> {
        self.kind.of().unwrap_or(self.id).at()
    }

    /// Whether it has its number: a grant that Redis alone decided gets one when the ledger
    /// takes it.
    pub fn is_recorded(&self) -> bool {
        self.line.number > 0
    }

    /// For a hold: when it lapses unless it is confirmed.
    pub fn held_until(&self) -> Option<DateTime<Utc>> {
        match self.kind {
            EntryKind::Grant { held_until } => held_until,
            _ => None,
        }
    }

    /// What it adds to the units used: below zero where it gives back.
    pub fn units_added(&self) -> i64 {
        let units = self.units.get().cast_signed();
        match self.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => units,
            EntryKind::Confirmation { .. } => 0,
            EntryKind::Reversal { .. }
            | EntryKind::Lapse { .. }
            | EntryKind::Adjustment(Direction::Down) => -units,
        }
    }

    /// What is used in a window after the entry, when `used` was before it.
    pub fn used_after(&self, window: Window, used: u64) -> u64 {
        if !window.contains(self.counted_at()) {
            return used;
        }
        used.saturating_add_signed(self.units_added())
    }
}
