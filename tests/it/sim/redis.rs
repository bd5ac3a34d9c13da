//! A Redis that keeps the contract of `src/counter/lua/` and `src/counter/lib.rs`. It has a map of
//! counters, a map of waiting units, and a queue. All accounts are in one bucket. `scripts`
//! compares it with a real Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use perdiem::counter::{
    Answer, Ask, Count, Counted, Counter, LedgerWord, QueuedGrant, SettledKeys, Settlement,
};
use perdiem::domain::grant::Line;
use perdiem::domain::identity::{AccountId, EntryId, KeyId};
use perdiem::domain::limit::per::Per;
use perdiem::domain::limit::total::{Total, with_used};

use super::Planted;

/// A Redis. A clone is the state to which a roll-back returns.
#[derive(Clone)]
pub struct Redis {
    counters: BTreeMap<AccountId, StoredCounter>,
    waiting: BTreeMap<AccountId, StoredWaiting>,
    /// The grants that wait for the ledger, in order.
    pub queue: Vec<QueuedGrant>,
    /// How many grants were ever queued. A place is never used twice.
    places: u64,
    planted: Planted,
}

#[derive(Clone)]
pub struct StoredCounter {
    /// The line that was settled.
    pub line: Line,
    /// Whether `keys` contains every key that the account must remember as of the line.
    pub has_all_keys: bool,
    /// Some or all of the account's keys.
    pub keys: BTreeSet<KeyId>,
    confirmed_at: DateTime<Utc>,
    expires_at: Duration,
}

/// The grants of an account that wait for the ledger.
#[derive(Clone, Default, PartialEq)]
struct StoredWaiting {
    /// When the ledger answered that it has no entry of the account.
    new_at: Option<DateTime<Utc>>,
    /// The places of the waiting grants, by the claims' ids and keys.
    places: BTreeMap<EntryId, String>,
    places_of_keys: BTreeMap<KeyId, String>,
    /// The waiting units, by window.
    units: BTreeMap<(Per, DateTime<Utc>), i64>,
}

/// The most units that may be used in a window.
const UNITS_MAX: u64 = (1 << 53) - 1;
/// How long an account without entries is treated as new.
const NEW_FOR: TimeDelta = TimeDelta::seconds(3);

impl Redis {
    /// An empty Redis.
    pub fn new(planted: Planted) -> Self {
        Self {
            counters: BTreeMap::new(),
            waiting: BTreeMap::new(),
            queue: Vec::new(),
            places: 0,
            planted,
        }
    }

    /// Returns to a copy. All later state is lost. Returns the queued grants that the copy lacks.
    pub fn roll_back(&mut self, copy: Self) -> Vec<QueuedGrant> {
        let places = self.places;
        let mut before = std::mem::replace(self, copy).queue;
        self.places = places;
        before.retain(|queued| !self.queue.contains(queued));
        before
    }

    pub fn counter(&self, account: AccountId, now: Duration) -> Option<&StoredCounter> {
        let counter = self.counters.get(&account)?;
        (now < counter.expires_at).then_some(counter)
    }

    /// Answers an ask.
    pub fn ask(&self, ask: &Ask, now: Duration) -> Answer {
        let mut account = ask.account;
        if self.planted == Planted::OtherCounter {
            let others = self.counters.keys();
            account = others
                .copied()
                .find(|other| *other != account)
                .unwrap_or(account);
        }
        let counter = self.counter(account, now);
        Answer {
            counter: counter.map(|counter| Counter {
                line: counter.line.clone(),
                confirmed_at: counter.confirmed_at,
                holds_all_keys: counter.has_all_keys,
            }),
            grants_wait: ask.looks_at_queue && !self.queue.is_empty() && self.has_waiting(account),
        }
    }

    /// Settles a counter.
    pub fn settle(&mut self, settlement: &Settlement, now: Duration) {
        let current = self.counter(settlement.account, now).cloned();
        if settlement.only_existing && current.is_none() {
            return;
        }
        let line = &settlement.line;
        let seen = settlement.seen;
        let (is_all, after, keys) = match &settlement.keys {
            SettledKeys::All(keys) => (true, None, &keys[..]),
            SettledKeys::After(after, keys) => (false, Some(after), &keys[..]),
            SettledKeys::Unknown => (false, None, &[][..]),
        };
        if let Some(current) = &current
            && Some(&current.line) != after
            && current.line.number > line.number
            && Some(current.line.number) != seen
            && self.planted != Planted::OlderLineWins
        {
            return;
        }
        let goes_on = |current: &StoredCounter| {
            !is_all
                && current.has_all_keys
                && (Some(&current.line) == after || current.line == *line)
        };
        let kept = current.filter(goes_on);
        let has_all_keys = is_all || kept.is_some();
        let mut all = kept.map(|kept| kept.keys).unwrap_or_default();
        if has_all_keys {
            all.extend(keys);
        }
        let counter = StoredCounter {
            line: line.clone(),
            has_all_keys,
            keys: all,
            confirmed_at: settlement.confirmed_at.trunc_subsecs(3),
            expires_at: now + settlement.ttl,
        };
        self.counters.insert(settlement.account, counter);
    }

    fn has_waiting(&self, account: AccountId) -> bool {
        let waiting = self.waiting.get(&account);
        waiting.is_some_and(|waiting| *waiting != StoredWaiting::default())
    }

    /// Whether the queue is empty and no account has waiting units.
    pub fn is_drained(&self) -> bool {
        let mut units = self.waiting.values().flat_map(|it| it.units.values());
        self.queue.is_empty() && units.all(|units| *units == 0)
    }

    /// Counts a claim. A counter's keys are trusted if the ledger confirmed the counter after an
    /// instant.
    pub fn count(&mut self, count: &Count, trusted_from: DateTime<Utc>, now: Duration) -> Counted {
        let account = count.account;
        let grant = count.grant.as_ref().expect("a claim");
        let waits = self
            .waiting
            .get(&account)
            .filter(|_| !self.queue.is_empty());
        let waits = waits.cloned().unwrap_or_default();
        let of_key = grant.key.and_then(|key| waits.places_of_keys.get(&key));
        for place in waits.places.get(&grant.entry).into_iter().chain(of_key) {
            let found = self.queue.iter().find(|queued| queued.place == *place);
            if let Some(queued) = found.filter(|_| self.planted != Planted::ForgetsIds) {
                return Counted::Queued(queued.clone());
            }
        }
        let current = self.counter(account, now);
        let ask = Counted::AskLedger(current.map(|current| current.line.number));
        let Some((basis, may_be_known)) = basis(current, &waits, count, trusted_from) else {
            return ask;
        };
        let units = grant.units.get().cast_signed();
        let mut used = Vec::new();
        let mut is_denied = false;
        let mut is_certain = false;
        for total in &count.totals {
            let Some(before) = used_before(&basis, total, count.ledger) else {
                return ask;
            };
            let waiting = waits.units_in(total);
            let max = if count.observes { UNITS_MAX } else { total.max };
            let room = max.cast_signed() - before.cast_signed();
            is_certain |= units > room;
            is_denied |= units > room - waiting;
            used.push(before.saturating_add_signed(waiting));
        }
        let is_silent = count.ledger == LedgerWord::Silent;
        if is_denied && is_silent && may_be_known {
            return ask;
        }
        let is_of_line = !matches!(basis, Basis::Told);
        let confirmed_at = current.filter(|_| is_of_line).map(|it| it.confirmed_at);
        let waits_first = !is_certain && !is_silent && self.planted != Planted::DeniesAtOnce;
        if !is_denied {
            self.grant(count, &waits, used)
        } else if waits_first {
            Counted::Waits(used, confirmed_at)
        } else {
            Counted::Denied(used, confirmed_at)
        }
    }

    fn grant(&mut self, count: &Count, waits: &StoredWaiting, mut used: Vec<u64>) -> Counted {
        let grant = count.grant.as_ref().expect("a claim");
        used.iter_mut().for_each(|used| *used += grant.units.get());
        self.places += 1;
        let place = format!("{}-0", self.places);
        let own = self.waiting.entry(count.account).or_default();
        own.places.insert(grant.entry, place.clone());
        own.places_of_keys
            .extend(grant.key.map(|key| (key, place.clone())));
        if count.ledger == LedgerWord::Line(0) {
            own.new_at = Some(count.now);
        }
        for total in &count.totals {
            let units = waits.units_in(total) + grant.units.get().cast_signed();
            own.units.insert(window(total), units);
        }
        self.queue.push(QueuedGrant {
            place,
            grant: grant.clone(),
            totals: with_used(count.totals.clone(), used.clone()),
        });
        Counted::Granted(used)
    }

    /// Removes grants from the queue that the ledger has, and settles their account.
    pub fn record(&mut self, settlement: &Settlement, grants: &[QueuedGrant], now: Duration) {
        for recorded in grants {
            let place = self.queue.iter().position(|it| it.place == recorded.place);
            let is_queued = place.map(|place| self.queue.remove(place)).is_some();
            if !is_queued && self.planted != Planted::LowersTwice {
                continue;
            }
            let own = self.waiting.entry(settlement.account).or_default();
            own.new_at = None;
            own.places.remove(&recorded.grant.entry);
            recorded
                .grant
                .key
                .iter()
                .for_each(|key| drop(own.places_of_keys.remove(key)));
            for total in &recorded.totals {
                *own.units.entry(window(total)).or_default() -=
                    recorded.grant.units.get().cast_signed();
            }
            if self.planted != Planted::LowersTwice {
                own.units.retain(|_, units| *units > 0);
            }
        }
        if self.planted != Planted::RecordsApart {
            self.settle(settlement, now);
        }
    }
}

/// The source of the usage from which a claim is counted.
enum Basis<'a> {
    /// The ledger's answer.
    Told,
    /// A counter's line; zero without a line.
    Line(Option<&'a Line>),
}

/// Returns the source from which a claim is counted, and whether the ledger may know its key.
/// Returns `None` when the ledger must be asked.
fn basis<'a>(
    current: Option<&'a StoredCounter>,
    waits: &StoredWaiting,
    count: &Count,
    trusted_from: DateTime<Utc>,
) -> Option<(Basis<'a>, bool)> {
    let key = count.grant.as_ref().and_then(|grant| grant.key);
    let has_key = |it: &StoredCounter| key.is_some_and(|key| it.keys.contains(&key));
    let trusts = |it: &StoredCounter| it.has_all_keys && it.confirmed_at > trusted_from;
    let may_be_known = key.is_some() && !current.is_some_and(trusts);
    let is_new = |told: DateTime<Utc>| told > trusted_from && (count.now - told).abs() <= NEW_FOR;
    let is_behind = |number| current.is_some_and(|current| current.line.number > number);
    if current.is_some_and(has_key) {
        return None;
    }
    let basis = match (count.ledger, current) {
        (LedgerWord::Line(number), _) if is_behind(number) => return None,
        (LedgerWord::Line(_), _) => Basis::Told,
        (LedgerWord::Silent, _) => Basis::Line(current.map(|current| &current.line)),
        (LedgerWord::NotAsked, None) if waits.new_at.is_some_and(is_new) => Basis::Told,
        (LedgerWord::NotAsked, None) => return None,
        (LedgerWord::NotAsked, Some(StoredCounter { line, .. })) => {
            let is_newer = line.policy_version > count.policy_version;
            if may_be_known || is_newer || line.lapses_at.is_some_and(|at| at <= count.now) {
                return None;
            }
            Basis::Line(Some(line))
        }
    };
    Some((basis, may_be_known))
}

/// The units used in a window without the waiting units. `None` when the ledger must be asked.
fn used_before(basis: &Basis, total: &Total, word: LedgerWord) -> Option<u64> {
    let Basis::Line(line) = basis else {
        return Some(total.used());
    };
    let is_same = |it: &&Total| (it.per(), it.window()) == (total.per(), total.window());
    match line.and_then(|line| line.totals.iter().find(is_same)) {
        Some(found) => Some(found.used()),
        None if word == LedgerWord::Silent => Some(0),
        None => line
            .is_some_and(|line| line.at < window(total).1)
            .then_some(0),
    }
}

impl StoredWaiting {
    fn units_in(&self, total: &Total) -> i64 {
        self.units.get(&window(total)).copied().unwrap_or_default()
    }
}

/// Redis counts only in windows of the calendar.
fn window(total: &Total) -> (Per, DateTime<Utc>) {
    let window = total.window().expect("a window");
    (total.per(), window.start)
}
