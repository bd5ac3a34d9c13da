//! The entries of the ledger, and the totals on their lines.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::{Metadata, Units};
use super::identity::{AccountId, BundleId, EntryId, KeyId};
use super::key::KeyNumber;
use super::kind::Follows;
pub use super::kind::{Direction, EntryKind, KindWord};
use super::limit::total::Total;
use super::own_calendar::OwnCalendar;
use super::policy::PolicyName;
use super::top_up::{Returned, TopUp, TopUps};
use super::warning::Levels;

/// The part of the last entry of an account that a decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub number: u64,
    pub at: DateTime<Utc>,
    /// The version of the policy that decided the entry.
    pub policy_version: u32,
    /// No open hold of the account lapses before this instant; `None` if the account has no open
    /// hold.
    pub lapses_at: Option<DateTime<Utc>>,
    /// The zone and the anchor that the account has of its own.
    pub calendar: Option<Arc<OwnCalendar>>,
    /// The top-ups of the account, and what its entry moved of them.
    pub top_ups: Option<Arc<TopUps>>,
    /// One total for each limit, in the order of the policy. Shared, since lines are copied often.
    pub totals: Arc<[Total]>,
}

impl Line {
    /// Whether a hold may have lapsed by an instant without an entry for its lapse.
    pub fn may_have_lapses(&self, at: DateTime<Utc>) -> bool {
        self.lapses_at.is_some_and(|lapses_at| lapses_at <= at)
    }

    /// The top-ups of the account at an instant that is not before the line.
    pub fn top_ups_at(&self, at: DateTime<Utc>) -> TopUps {
        let before = self.top_ups.as_deref();
        before.map(|top_ups| top_ups.at(at)).unwrap_or_default()
    }

    /// The units of its entry that came from top-ups, or returned to them.
    pub fn topped_up_units(&self) -> u64 {
        self.top_ups.as_ref().map_or(0, |top_ups| top_ups.aside)
    }
}

/// Whether a provisional grant fitted into its windows when it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisional {
    /// The windows had room.
    Within,
    /// The grant went over a limit.
    Over,
}

/// The author of a correction, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The id of the author's key.
    pub by: Arc<str>,
    /// The reason; optional for a confirmation.
    pub reason: Option<String>,
}

/// An entry: a line of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub account: AccountId,
    /// The id of the entry. Clients see the id of a grant.
    pub id: EntryId,
    pub kind: EntryKind,
    pub units: Units,
    /// The keyed hash of the `Idempotency-Key`.
    pub key: Option<KeyId>,
    /// The bundle of a grant: the claims that were granted together.
    pub bundle: Option<BundleId>,
    /// The metadata that the caller sent.
    pub metadata: Option<Metadata>,
    /// For a provisional grant: Redis decided it, and it was recorded later.
    pub provisional: Option<Provisional>,
    /// Whether a policy that only observes would have denied the grant.
    pub would_deny: bool,
    /// The levels of use that the entry reached.
    pub crossed: Levels,
    /// Whether the texts were erased: then missing metadata does not mean that there was none.
    pub is_erased: bool,
    /// The key that claimed or corrected; `None` for a lapse.
    pub claimed_by: Option<KeyNumber>,
    /// The author of a correction, and the reason.
    pub note: Option<Note>,
    /// The number, instant, policy version and totals.
    pub line: Line,
}

/// The state of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantState {
    /// A hold: its units are used until it is confirmed or lapses.
    Held,
    /// The units are used.
    Granted,
    /// The units were given back.
    Reversed,
    /// The hold was not confirmed in time.
    Lapsed,
}

impl GrantState {
    /// All states, in the order of the life of a grant.
    pub const ALL: [Self; 4] = [Self::Held, Self::Granted, Self::Reversed, Self::Lapsed];

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Granted => "granted",
            Self::Reversed => "reversed",
            Self::Lapsed => "lapsed",
        }
    }
}

/// How a grant ended: its units were given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantEnd {
    /// It was reversed at this instant.
    Reversed(DateTime<Utc>),
    /// Its hold lapsed at this instant.
    Lapsed(DateTime<Utc>),
}

/// The entries that name a grant: at most one confirmation, and at most one that closes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followers {
    /// The units that partial reversals gave back.
    pub returned: u64,
    /// How many partial reversals there are.
    pub parts: u32,
    /// The confirmation of a hold.
    pub confirmation: Option<Follower>,
    /// The last reversal, or the lapse: no units are left.
    pub closing: Option<Follower>,
}

/// An entry that names a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    pub id: EntryId,
    pub kind: EntryKind,
    /// Of a confirmation: the units that stay used. Of a reversal or lapse: the units given back.
    pub units: Units,
    pub at: DateTime<Utc>,
    /// The author and the reason; a lapse has neither.
    pub note: Option<Note>,
}

impl Followers {
    /// The followers of a grant among some entries.
    pub fn among<'a>(grant: EntryId, entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut followers = Self::default();
        for entry in entries
            .into_iter()
            .filter(|entry| entry.kind.of() == Some(grant))
        {
            let place = match entry.kind.facts().follows {
                Follows::EndsHold => &mut followers.confirmation,
                Follows::Reverses | Follows::Lapses | Follows::EndsTopUp => &mut followers.closing,
                Follows::GoesOn if entry.kind.gives_back().is_some() => {
                    followers.returned += entry.units.get();
                    followers.parts += 1;
                    continue;
                }
                Follows::GoesOn | Follows::NoGrant => continue,
            };
            *place = Some(Follower {
                id: entry.id,
                kind: entry.kind,
                units: entry.units,
                at: entry.line.at,
                note: entry.note.clone(),
            });
        }
        followers
    }

    /// The instant at which the hold of a grant lapsed, if its lapse is recorded. It is the end of the
    /// hold: the line of a lapse can be later.
    pub fn lapsed_at(&self, grant: &Entry) -> Option<DateTime<Utc>> {
        let closing = self.closing.as_ref()?;
        let is_lapse = closing.kind.facts().follows == Follows::Lapses;
        is_lapse.then(|| grant.held_until().unwrap_or(closing.at))
    }

    /// Units of a grant that are given back next.
    pub fn returning(&self, grant: &Entry, units: Units) -> Returned {
        let top_ups = grant.line.top_ups.as_deref();
        Returned::new(grant.id, top_ups, self.returned, units)
    }

    /// The units of a grant that were not given back, if no entry closes it.
    pub fn left(&self, grant: &Entry) -> Option<Units> {
        grant.units.less(self.returned)
    }

    /// How a grant ended; `None` while it is in force. A hold ends at its own instant, whether or not
    /// its lapse is recorded.
    pub fn end_of(&self, grant: &Entry, now: DateTime<Utc>) -> Option<GrantEnd> {
        let confirmed = self.confirmation.as_ref();
        let until = grant.held_until().filter(|_| confirmed.is_none());
        match (self.lapsed_at(grant), &self.closing) {
            (Some(at), _) => Some(GrantEnd::Lapsed(at)),
            (None, Some(closing)) => Some(GrantEnd::Reversed(closing.at)),
            (None, None) => until.filter(|until| *until <= now).map(GrantEnd::Lapsed),
        }
    }
}

/// A grant as an auditor sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub entry: Entry,
    pub policy: PolicyName,
    /// The subject; `None` if it was erased.
    pub subject: Option<String>,
    pub followers: Followers,
}

impl Grant {
    /// The state of the grant at an instant.
    pub fn state(&self, now: DateTime<Utc>) -> GrantState {
        let is_confirmed = self.followers.confirmation.is_some();
        match self.followers.end_of(&self.entry, now) {
            Some(GrantEnd::Lapsed(_)) => GrantState::Lapsed,
            Some(GrantEnd::Reversed(_)) => GrantState::Reversed,
            None if self.entry.held_until().is_some() && !is_confirmed => GrantState::Held,
            None => GrantState::Granted,
        }
    }
}

impl Entry {
    /// The instant in whose windows the units count. An entry that gives units back has the instant
    /// of the grant. The instant of the line may be later if the entry was appended afterwards.
    pub fn counted_at(&self) -> DateTime<Utc> {
        self.kind.of().unwrap_or(self.id).at()
    }

    /// Whether the ledger has the entry. A provisional grant gets its number when it is recorded.
    pub fn is_recorded(&self) -> bool {
        self.line.number > 0
    }

    /// The end of a hold: it lapses at this instant unless it is confirmed.
    pub fn held_until(&self) -> Option<DateTime<Utc>> {
        match self.kind {
            EntryKind::Grant { held_until } => held_until,
            _ => None,
        }
    }

    /// The units that the entry adds to what was handed out; negative if it gives units back.
    pub fn units_added(&self) -> i64 {
        i64::from(self.kind.facts().effect.sign()) * self.units.get().cast_signed()
    }

    /// The units of the entry that count in windows. The others came from top-ups, or returned to them.
    pub fn own_units(&self) -> u64 {
        self.units.get().saturating_sub(self.topped_up_units())
    }

    /// The units of the entry that came from top-ups, or returned to them.
    pub fn topped_up_units(&self) -> u64 {
        self.line.topped_up_units()
    }

    /// The units that the entry adds to the usage of windows; negative if it gives units back.
    pub fn own_units_added(&self) -> i64 {
        i64::from(self.kind.facts().effect.sign()) * self.own_units().cast_signed()
    }

    /// Puts the top-up of this entry on its line.
    pub fn add_top_up(&mut self, ends_at: DateTime<Utc>) {
        let mut top_ups = self.line.top_ups_at(self.line.at);
        top_ups.add(TopUp::new(self.id, self.units, ends_at));
        self.line.top_ups = top_ups.on_line();
    }

    /// What a top-up has left on its own line.
    pub fn top_up(&self) -> Option<&TopUp> {
        let mut top_ups = self.line.top_ups.iter().flat_map(|it| &it.each);
        top_ups.find(|top_up| top_up.id == self.id)
    }
}
