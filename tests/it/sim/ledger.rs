//! A ledger that keeps the contract of `src/ledger/postgres/append.rs` and `entries.rs`. Its store
//! is a list of entries.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::account::{Unknown, instant_after};
use perdiem::domain::account_facts::AccountFacts;
use perdiem::domain::claim::Units;
use perdiem::domain::correction::{Hold, Holds};
use perdiem::domain::grant::{Direction, Entry, EntryKind, Line};
use perdiem::domain::identity::{AccountId, EntryId, KeyId};
use perdiem::domain::past::{Movement, Past, WantedPast, WindowSum};
use perdiem::domain::policy::Policy;
use perdiem::domain::schedule::StoredVersion;
use perdiem::domain::shared::{SharedUse, after};
use perdiem::ledger::{Burst, Draft, Fence, LedgerError, LedgerPlace, LedgerView, Look, Untimely};

use super::Planted;
use super::time::Time;

/// The number of open holds that are read after those that have lapsed.
const HOLDS_AHEAD: usize = 64;
/// How far an instant may be ahead of the time of the ledger.
pub const TOLERANCE: TimeDelta = TimeDelta::seconds(10);
/// Metadata that the ledger refuses.
pub const REFUSED_METADATA: &str = "refused";

/// A ledger. A clone is a copy from which the ledger can be restored.
#[derive(Clone)]
pub struct Ledger {
    /// The entries of every account, in the order of their commits.
    pub entries: Vec<Entry>,
    /// The versions of the policy, the newest one last.
    pub policies: Vec<Policy>,
    /// The usage of the limits that all subjects share.
    shared: SharedUse,
    place: LedgerPlace,
    /// The number of the next transaction that writes.
    next_transaction: i64,
    planted: Planted,
}

impl Ledger {
    /// A ledger without entries.
    pub fn new(policy: Policy, planted: Planted) -> Self {
        let place = LedgerPlace {
            started_at: DateTime::UNIX_EPOCH,
            file: 1,
            erasures: 0,
        };
        Self {
            entries: Vec::new(),
            policies: vec![policy],
            shared: SharedUse::new(),
            place,
            next_transaction: 1,
            planted,
        }
    }

    /// The versions in the form that an instance reads.
    pub fn versions(&self) -> Vec<StoredVersion> {
        let policies = self.policies.iter().cloned();
        policies.map(|policy| Ok(Arc::new(policy))).collect()
    }

    /// Replaces the ledger by an older copy of itself. Returns the lost entries. A copy can lack
    /// entries, but it has every version of the policy.
    pub fn restore(&mut self, copy: &Self, is_another_server: bool) -> Vec<Entry> {
        if is_another_server {
            self.place.started_at += TimeDelta::seconds(1);
        }
        self.next_transaction = copy.next_transaction;
        self.shared = copy.shared.clone();
        let old = std::mem::replace(&mut self.entries, copy.entries.clone());
        let is_lost = |entry: &Entry| !self.entries.contains(entry);
        old.into_iter().filter(is_lost).collect()
    }

    /// An account's entries, up to a number.
    pub fn entries_of(&self, account: AccountId, up_to: u64) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.iter();
        entries.filter(move |entry| entry.account == account && entry.line.number <= up_to)
    }

    pub fn last(&self, account: AccountId) -> Option<&Line> {
        let lines = self.entries_of(account, u64::MAX).map(|entry| &entry.line);
        lines.max_by_key(|line| line.number)
    }

    /// The first half of a look: the last lines.
    pub fn lines(&self, look: &Look) -> LedgerView {
        let lines = look.accounts.iter();
        let lines = lines.filter_map(|account| Some((*account, self.last(*account)?.clone())));
        LedgerView {
            lines: lines.collect(),
            fence: (!look.accounts.is_empty()).then(|| self.fence()),
            entries: Vec::new(),
            shared: self.shared.clone().into(),
            // Nothing is erased here.
            erased: HashSet::new(),
        }
    }

    /// The second half of a look: the entries.
    pub fn entries_for(&self, look: &Look) -> Vec<Entry> {
        let has_key = |entry: &Entry| {
            let key = entry.key.filter(|_| self.knows_key_of(entry));
            key.is_some_and(|key| look.keys.contains(&key))
        };
        let of_keys = self.entries.iter().filter(|entry| has_key(entry));
        let mut grants: Vec<EntryId> = of_keys.map(|entry| entry.id).collect();
        grants.extend(&look.followers_of);
        let forgets = |entry: &Entry| self.planted == Planted::ForgetsParts && is_part(entry);
        let is_wanted = |entry: &&Entry| {
            has_key(entry)
                || look.entries.contains(&entry.id)
                || names(entry.kind).is_some_and(|of| grants.contains(&of)) && !forgets(entry)
        };
        self.entries.iter().filter(is_wanted).cloned().collect()
    }

    /// Returns the wanted part of an account's entries up to a line. The units used in a window are
    /// a running sum, which never falls below zero.
    fn past(&self, account: AccountId, last: Option<&Line>, wanted: &WantedPast) -> Past {
        let mut past = Past::default();
        let up_to = last.map_or(0, |line| line.number);
        if let Some(since) = wanted.since {
            let entries = self.entries_of(account, up_to);
            let tail = entries
                .filter(|entry| entry.line.at > since && self.planted != Planted::ForgetsTail);
            past.insert_tail(since, tail.map(Movement::from).collect());
        }
        for window in &wanted.windows {
            let mut sum = 0;
            let mut lowest = 0;
            let counted = self.entries_of(account, up_to).filter(|entry| {
                self.planted != Planted::ForgetsAdjustments || !is_adjustment(entry)
            });
            let counted_at = |entry: &Entry| names(entry.kind).unwrap_or(entry.id).at();
            let inside = counted.filter(|entry| window.window.contains(counted_at(entry)));
            let inside: Vec<&Entry> = inside.collect();
            let mut resets = inside.iter().rev();
            let reset = resets.find(|entry| entry.kind.resets(window.per));
            let reset = reset.filter(|_| self.planted != Planted::ForgetsResets);
            let reset_at = reset.map(|entry| entry.line.at);
            for entry in inside {
                if reset_at <= Some(counted_at(entry)) {
                    let has_all = self.planted == Planted::SumsTopUps;
                    sum += if has_all {
                        entry.units_added()
                    } else {
                        added(entry)
                    };
                    lowest = lowest.min(sum);
                }
            }
            let used = u64::try_from(sum - lowest).expect("no negative sum");
            past.insert(*window, WindowSum { used, reset_at });
        }
        past
    }

    /// Whether a hold is no longer open because of an entry.
    fn ends_hold(&self, entry: &Entry, hold: EntryId) -> bool {
        let ended = match entry.kind {
            EntryKind::Confirmation { of } | EntryKind::Reversal { of } => Some(of),
            EntryKind::Lapse { of } => (self.planted != Planted::LapsesTwice).then_some(of),
            EntryKind::Grant { .. }
            | EntryKind::PartialReversal { .. }
            | EntryKind::Adjustment(_)
            | EntryKind::Reset { .. }
            | EntryKind::Calendar
            | EntryKind::TopUp
            | EntryKind::TopUpReversal { .. } => None,
        };
        ended == Some(hold)
    }

    /// The units of a hold that no entry of its account up to a number gave back.
    fn units_left(&self, hold: &Entry, up_to: u64) -> Units {
        let parts = self.entries_of(hold.account, up_to);
        let parts = parts.filter(|part| part.kind == EntryKind::PartialReversal { of: hold.id });
        let returned = match self.planted {
            Planted::LapsesWhole => 0,
            _ => parts.map(|part| part.units.get()).sum(),
        };
        hold.units.less(returned).expect("a unit is left")
    }

    /// The open holds after an account's entries up to a line.
    fn holds(&self, account: AccountId, last: &Line, at: DateTime<Utc>, lapsed_most: u32) -> Holds {
        let Some(from) = last.lapses_at else {
            return Holds::default();
        };
        let is_open = |entry: &&Entry| {
            let mut followers = self.entries_of(account, last.number);
            entry.held_until().is_some_and(|until| until >= from)
                && !followers.any(|other| self.ends_hold(other, entry.id))
        };
        let open = self.entries_of(account, last.number).filter(is_open);
        let mut open: Vec<Hold> = open
            .filter_map(|entry| {
                Some(Hold {
                    grant: entry.id,
                    units: self.units_left(entry, last.number),
                    granted: entry.units,
                    top_ups: entry.line.top_ups.clone(),
                    until: entry.held_until()?,
                    version: entry.line.policy_version,
                })
            })
            .collect();
        open.sort_by_key(|hold| (hold.until, hold.grant));
        let next = open.split_off(open.partition_point(|hold| hold.until <= at));
        open.truncate(lapsed_most as usize);
        open.extend(next.into_iter().take(HOLDS_AHEAD));
        Holds::at(at, open, lapsed_most as usize, HOLDS_AHEAD)
    }

    /// The accounts with open holds that ended by an instant.
    pub fn due_lapses(&self, until: DateTime<Utc>) -> Vec<AccountId> {
        let is_due = |hold: &&Entry| hold.held_until().is_some_and(|end| end <= until);
        let accounts = self.open_holds().filter(is_due).map(|hold| hold.account);
        accounts.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub fn has_open_holds(&self) -> bool {
        self.open_holds().next().is_some()
    }

    fn open_holds(&self) -> impl Iterator<Item = &Entry> {
        let is_open = |hold: &&Entry| {
            let mut others = self.entries.iter();
            hold.held_until().is_some() && !others.any(|it| self.ends_hold(it, hold.id))
        };
        self.entries.iter().filter(is_open)
    }

    /// Answers the question that the rule asked.
    pub fn tell(
        &self,
        known: &mut AccountFacts,
        unknown: Unknown,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
    ) {
        match (unknown, last) {
            (Unknown::Past(wanted), _) => known.past.extend(self.past(account, last, &wanted)),
            (Unknown::Holds, Some(line)) => {
                let at = instant_after(last, now);
                known.holds = Some(self.holds(account, line, at, known.lapses_most));
            }
            (Unknown::Holds, None) => known.holds = Some(Holds::default()),
            (Unknown::Policy, _) => panic!("an unknown version"),
        }
    }

    /// The keys of an account's entries.
    pub fn keys_of(&self, account: AccountId, up_to: u64) -> Vec<KeyId> {
        let entries = self.entries_of(account, up_to);
        entries.filter_map(|entry| entry.key).collect()
    }

    /// Appends every entry or none. Refuses the burst when the fence differs, or when an account
    /// that the burst opens exists.
    pub fn burst(
        &mut self,
        drafts: &[Draft],
        fence: &Fence,
        time: Time,
    ) -> Result<Burst, LedgerError> {
        let shown = self.fence();
        let is_shown = shown.place == fence.place && shown.horizon >= fence.horizon;
        if !is_shown && self.planted != Planted::NoFence {
            return Ok(Burst::Behind);
        }
        self.check_time(drafts, time)?;
        self.next_transaction += 1;
        let exists = |draft: &&Draft| draft.after.is_none() && self.last(draft.account).is_some();
        let existing: Vec<_> = drafts.iter().filter(exists).map(|it| it.account).collect();
        if !existing.is_empty() && self.planted != Planted::OpensTwice {
            return Ok(Burst::Exist(existing));
        }
        check_data(drafts)?;
        let shares = drafts.iter().any(|draft| !draft.shared.is_empty());
        assert!(!shares, "a burst does not look for room in shared limits");
        let mut entries = self.entries.clone();
        for entry in drafts.iter().flat_map(|draft| &draft.entries) {
            if self.takes_key_of(&entries, entry) || self.takes_number_of(&entries, entry) {
                return Ok(Burst::Conflict);
            }
            entries.push(entry.clone());
        }
        self.entries = entries;
        let place = fence.place;
        let horizon = self.next_transaction;
        Ok(Burst::Committed(Fence { place, horizon }))
    }

    /// Appends each draft whose assumed last line is the account's last line. A draft without the room that it
    /// needs in a shared limit, and one whose first key is taken, is left out, and with it its component. When a
    /// later key of a draft is taken, the whole statement is undone.
    pub fn append(
        &mut self,
        drafts: &[Draft],
        time: Time,
    ) -> Result<HashSet<AccountId>, LedgerError> {
        self.check_time(drafts, time)?;
        self.next_transaction += 1;
        check_data(drafts)?;
        let mut entries = self.entries.clone();
        let mut shared = self.shared.clone();
        let mut accounts = HashSet::new();
        let is_guarded = self.planted != Planted::NoGuard;
        let splits = self.planted == Planted::SplitsBatches;
        for component in drafts.chunk_by(|one, other| !splits && one.component == other.component) {
            let fits = |draft: &Draft| {
                let is_next = !is_guarded || self.last(draft.account) == draft.after.as_ref();
                is_next && !self.takes_key_of(&entries, &draft.entries[0])
            };
            if !component.iter().all(fits) {
                continue;
            }
            match self.share(&shared, component) {
                Some(after) => shared = after,
                None => continue,
            }
            accounts.extend(component.iter().map(|draft| draft.account));
            entries.extend(component.iter().map(|draft| draft.entries[0].clone()));
        }
        for draft in drafts
            .iter()
            .filter(|draft| accounts.contains(&draft.account))
        {
            for entry in &draft.entries[1..] {
                if self.takes_key_of(&entries, entry) {
                    return Err(LedgerError::Conflict);
                }
                entries.push(entry.clone());
            }
        }
        // The order of a statement's entries is that in which its drafts took room.
        let appended = drafts
            .iter()
            .filter(|draft| accounts.contains(&draft.account));
        self.entries
            .extend(appended.flat_map(|draft| draft.entries.clone()));
        self.shared = shared;
        Ok(accounts)
    }

    /// The usage of shared limits after a component; `None` if there is not the room that it needs.
    fn share(&self, shared: &SharedUse, component: &[Draft]) -> Option<SharedUse> {
        let changes = component.iter().flat_map(|draft| &draft.shared);
        if self.planted != Planted::NoRoomInAll {
            return after(shared, changes);
        }
        let mut shared = shared.clone();
        for change in changes {
            *shared.entry(change.key).or_insert(0) += change.units;
        }
        Some(shared)
    }

    /// Refuses an instant that is too far ahead of the time of the ledger.
    fn check_time(&self, drafts: &[Draft], time: Time) -> Result<(), LedgerError> {
        let entries = drafts.iter().flat_map(|draft| &draft.entries);
        let latest = entries.map(|entry| entry.line.at).max();
        let now = time.by_clock(TimeDelta::zero());
        match latest.map(|at| at - now).filter(|off| *off > TOLERANCE) {
            Some(off) if self.planted != Planted::NoTimeBounds => {
                Err(LedgerError::Untimely(Untimely::Clock(off)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn fence(&self) -> Fence {
        Fence {
            place: self.place,
            horizon: self.next_transaction,
        }
    }

    fn takes_key_of(&self, entries: &[Entry], new: &Entry) -> bool {
        let is_taken =
            |entry: &Entry| new.key.is_some() && entry.key == new.key && self.knows_key_of(entry);
        self.planted != Planted::NoUniqueKey && entries.iter().any(is_taken)
    }

    /// Whether the ledger finds an entry by its key.
    fn knows_key_of(&self, entry: &Entry) -> bool {
        match self.planted {
            Planted::PartsTwice => !is_part(entry),
            Planted::AdjustsTwice => !is_adjustment(entry),
            _ => true,
        }
    }

    fn takes_number_of(&self, entries: &[Entry], new: &Entry) -> bool {
        let is_taken =
            |entry: &Entry| (entry.account, entry.line.number) == (new.account, new.line.number);
        let opens_twice = self.planted == Planted::OpensTwice && new.line.number == 1;
        self.planted != Planted::NoGuard && !opens_twice && entries.iter().any(is_taken)
    }
}

fn check_data(drafts: &[Draft]) -> Result<(), LedgerError> {
    let is_refused = |entry: &Entry| {
        let metadata = entry.metadata.as_ref();
        metadata.is_some_and(|metadata| metadata.as_str() == REFUSED_METADATA)
    };
    if drafts
        .iter()
        .flat_map(|draft| &draft.entries)
        .any(is_refused)
    {
        Err(LedgerError::Refused("metadata".into()))
    } else {
        Ok(())
    }
}

fn is_part(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::PartialReversal { .. })
}

fn is_adjustment(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Adjustment(_))
}

/// The grant that an entry names.
pub fn names(kind: EntryKind) -> Option<EntryId> {
    kind.of()
}

/// The units that an entry adds to the windows in which it counts.
fn added(entry: &Entry) -> i64 {
    let units = i64::try_from(entry.own_units()).expect("few units");
    match entry.kind {
        EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => units,
        EntryKind::Confirmation { .. }
        | EntryKind::Reset { .. }
        | EntryKind::Calendar
        | EntryKind::TopUp
        | EntryKind::TopUpReversal { .. } => 0,
        EntryKind::Reversal { .. }
        | EntryKind::PartialReversal { .. }
        | EntryKind::Lapse { .. }
        | EntryKind::Adjustment(Direction::Down) => -units,
    }
}
