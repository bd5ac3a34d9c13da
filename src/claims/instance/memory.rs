//! The last lines and keys that this instance remembers. The instance appended these lines itself.
//! A known line saves a look at the ledger, and its account can go into a burst. So can an account
//! that is taken to be new: nothing is known of the account, and most such accounts were new.
//!
//! Invariant: every line is known under the fence of the server that showed it. If a server does
//! not show that fence, the ledger may have gone back in time: every line is forgotten, and a new
//! epoch starts. A line of an older epoch goes into no burst.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use tokio::time::Instant;

use super::epoch::Epoch;
use super::outlooks::Outlooks;
use domain::grant::{Entry, Line};
use domain::identity::{AccountId, KeyId};
use domain::limit::total::Total;
use ledger::{Burst, Fence};

/// The age at which a line is no longer used: another instance may have appended to the account. A
/// replaced line would make the whole burst fail.
const YOUNG: Duration = Duration::from_secs(3);
/// The time without known lines after a burst that met another writer. If several instances serve
/// the same accounts, most bursts after known lines would fail.
const REST: Duration = Duration::from_secs(1);
/// The limit of the count of accounts that were new, minus those that existed.
const MET: i8 = 64;
/// The number of bytes in a generation; there are two generations. This is room for 80,000 accounts
/// of one limit, each with a key.
const BYTES_MOST: usize = 16 << 20;

/// The last line of an account, as this instance knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedLine {
    /// The last line that this instance appended; `None` if the account is taken to be new.
    pub line: Option<Line>,
    /// The epoch in which the line became known.
    pub epoch: Epoch,
    pub may_have_counter: bool,
}

/// What is known of the account of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recalled {
    /// Nothing that could decide the claim.
    Nothing,
    /// The last line is known, or the account is taken to be new; and the key of the claim is not
    /// known.
    Line,
    /// Another writer also appended, or a claim was refused: a counter may deny the next claim.
    Distrusted,
}

/// The accounts that this instance appended to.
#[derive(Default)]
pub struct Memory {
    remembered: Mutex<Remembered>,
    /// What forecasts know of accounts.
    pub outlooks: Outlooks,
}

/// Two generations. When the younger one is full, the older one is forgotten.
#[derive(Default)]
struct Remembered {
    epoch: Epoch,
    fence: Option<Fence>,
    rests_until: Option<Instant>,
    /// How many accounts were new, minus those that existed, among accounts that were met for the
    /// first time.
    newcomers: i8,
    younger: Generation,
    older: Generation,
}

#[derive(Default)]
struct Generation {
    accounts: HashMap<AccountId, RememberedAccount>,
    keys: HashSet<KeyId>,
    bytes: usize,
}

struct RememberedAccount {
    since: Instant,
    may_have_counter: bool,
    /// `None` if another writer also appends, or if the counters should deny the next claims.
    line: Option<Line>,
}

impl Memory {
    /// What is known of an account, for a claim with or without a key.
    pub fn recall(&self, account: AccountId, key: Option<KeyId>, now: Instant) -> Recalled {
        // 1. After a loss or a refusal the counter is asked.
        let remembered = self.lock();
        let known = remembered.find(account);
        if known.is_some_and(|known| known.line.is_none()) {
            // This holds for any time: a counter costs less than the ledger.
            return Recalled::Distrusted;
        }
        // 2. The line must be young. An unknown account may be taken to be new.
        let is_known = match known {
            Some(known) => known.is_young(now),
            None => remembered.takes_for_new(),
        };
        // 3. A claim with a known key may be a retry: the ledger decides it.
        let may_be_retry = || key.is_some_and(|key| remembered.knows_key(key));
        if is_known && !remembered.rests(now) && !may_be_retry() {
            Recalled::Line
        } else {
            Recalled::Nothing
        }
    }

    /// The last line of an account if it is known, or the fact that the account is taken to be new.
    pub fn line(&self, account: AccountId, now: Instant) -> Option<RememberedLine> {
        let remembered = self.lock();
        if remembered.rests(now) {
            return None;
        }
        let epoch = remembered.epoch;
        match remembered.find(account) {
            None => remembered.takes_for_new().then_some(RememberedLine {
                line: None,
                epoch,
                may_have_counter: false,
            }),
            Some(known) => known
                .line
                .as_ref()
                .filter(|_| known.is_young(now))
                .map(|line| RememberedLine {
                    line: Some(line.clone()),
                    epoch,
                    may_have_counter: known.may_have_counter,
                }),
        }
    }

    /// Remembers entries that were appended to an account after a line of an epoch.
    pub fn learn(
        &self,
        account: AccountId,
        entries: &[Entry],
        epoch: Epoch,
        may_have_counter: bool,
        now: Instant,
    ) {
        // 1. The keys.
        let mut remembered = self.lock();
        for key in entries.iter().filter_map(|entry| entry.key) {
            remembered.remember_key(key);
        }
        // 2. Whether most unknown accounts are new.
        if entries.first().is_some_and(|first| first.line.number == 1) {
            remembered.meet(account, true);
        }
        // 3. The last line, unless the account is distrusted or the epoch is over.
        let before = remembered.account(account, now);
        let is_distrusted = before.is_some_and(|known| known.line.is_none());
        // Another instance may have created a counter since nobody asked for one: the age is kept,
        // so that the counter is asked when the line is not young any more.
        let asked_at = before.filter(|known| !known.may_have_counter && !may_have_counter);
        let since = asked_at.map_or(now, |known| known.since);
        if let Some(last) = entries.last()
            && epoch == remembered.epoch
            && !is_distrusted
        {
            let known = RememberedAccount {
                since,
                may_have_counter,
                line: Some(last.line.clone()),
            };
            remembered.remember(account, known);
        }
    }

    /// Notes that an account exists.
    pub fn note_existing(&self, account: AccountId) {
        self.lock().meet(account, false);
    }

    /// Remembers the key of an entry of the ledger.
    pub fn learn_key(&self, key: KeyId) {
        self.lock().remember_key(key);
    }

    /// Forgets the line of an account for a while: another writer appended, or the counters should
    /// deny the next claims.
    pub fn distrust(&self, account: AccountId, now: Instant) {
        let known = RememberedAccount {
            since: now,
            may_have_counter: true,
            line: None,
        };
        self.lock().remember(account, known);
    }

    /// Takes the result of a burst. `is_behind` tells whether a known line was not the last line of
    /// its account.
    pub fn burst_ended(&self, burst: Burst, is_behind: bool, now: Instant) {
        match burst {
            Burst::Committed(fence) => {
                self.show(Some(fence));
            }
            Burst::Conflict if is_behind => self.lock().rests_until = Some(now + REST),
            Burst::Behind => self.lock().forget(),
            Burst::Conflict | Burst::Exist(_) | Burst::Untimely(_) => {}
        }
    }

    /// Takes the fence of the server that showed some lines. Returns the epoch of those lines.
    pub fn show(&self, shown: Option<Fence>) -> Epoch {
        let mut remembered = self.lock();
        match (&mut remembered.fence, shown) {
            (Some(fence), Some(shown)) if fence.place == shown.place => fence.advance(shown),
            (None, None) => {}
            (_, shown) => {
                remembered.forget();
                remembered.fence = shown;
            }
        }
        remembered.epoch
    }

    /// The present epoch and its fence.
    pub fn fence(&self) -> (Epoch, Option<Fence>) {
        let remembered = self.lock();
        (remembered.epoch, remembered.fence)
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        let remembered = &self.remembered;
        remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    /// Whether an unknown account is taken to be new. A burst detects an account that is not new,
    /// and a burst needs a fence.
    fn takes_for_new(&self) -> bool {
        self.newcomers > 0 && self.fence.is_some()
    }

    /// Counts an account as new or existing. Known accounts do not count.
    fn meet(&mut self, account: AccountId, is_new: bool) {
        if self.find(account).is_none() {
            let step = if is_new { 1 } else { -1 };
            self.newcomers = (self.newcomers + step).clamp(-MET, MET);
        }
    }

    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    fn account(&self, account: AccountId, now: Instant) -> Option<&RememberedAccount> {
        self.find(account).filter(|known| known.is_young(now))
    }

    fn find(&self, account: AccountId) -> Option<&RememberedAccount> {
        let known = self.younger.accounts.get(&account);
        known.or_else(|| self.older.accounts.get(&account))
    }

    fn knows_key(&self, key: KeyId) -> bool {
        self.younger.keys.contains(&key) || self.older.keys.contains(&key)
    }

    fn remember(&mut self, account: AccountId, known: RememberedAccount) {
        let totals = known.line.as_ref().map_or(0, |line| line.totals.len());
        let bytes = size_of::<(AccountId, RememberedAccount)>() + totals * size_of::<Total>();
        let generation = self.with_room();
        if generation.accounts.insert(account, known).is_none() {
            generation.bytes += bytes;
        }
    }

    fn remember_key(&mut self, key: KeyId) {
        let generation = self.with_room();
        if generation.keys.insert(key) {
            generation.bytes += size_of::<KeyId>();
        }
    }

    fn with_room(&mut self) -> &mut Generation {
        if self.younger.bytes >= BYTES_MOST {
            // The maps keep their memory: to let them grow again costs more than everything else
            // here.
            std::mem::swap(&mut self.younger, &mut self.older);
            self.younger.clear();
        }
        &mut self.younger
    }

    fn forget(&mut self) {
        self.epoch = self.epoch.next();
        self.fence = None;
        self.newcomers = 0;
        self.younger.clear();
        self.older.clear();
    }
}

impl RememberedAccount {
    fn is_young(&self, now: Instant) -> bool {
        now.duration_since(self.since) < YOUNG
    }
}

impl Generation {
    fn clear(&mut self) {
        self.accounts.clear();
        self.keys.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use chrono::{DateTime, TimeDelta};
    use domain::claim::Units;
    use domain::grant::EntryKind;
    use domain::identity::EntryId;
    use domain::warning::Levels;
    use ledger::LedgerPlace;
    use uuid::Uuid;

    fn account(number: u128) -> AccountId {
        AccountId(Uuid::from_u128(number))
    }

    fn key(number: u128) -> KeyId {
        KeyId(Uuid::from_u128(number))
    }

    fn entry(number: u64, key: Option<KeyId>) -> Entry {
        Entry {
            account: account(1),
            id: EntryId(Uuid::from_u128(number.into())),
            kind: EntryKind::Grant { held_until: None },
            units: Units::ONE,
            key,
            metadata: None,
            provisional: None,
            would_deny: false,
            crossed: Levels::default(),
            bundle: None,
            is_erased: false,
            claimed_by: None,
            note: None,
            line: Line {
                number,
                at: DateTime::UNIX_EPOCH,
                policy_version: 1,
                lapses_at: None,
                calendar: None,
                top_ups: None,
                totals: Arc::default(),
            },
        }
    }

    fn fence(start: i64, horizon: i64) -> Option<Fence> {
        let started_at = DateTime::UNIX_EPOCH + TimeDelta::seconds(start);
        let place = LedgerPlace {
            started_at,
            file: 1,
            erasures: 0,
        };
        Some(Fence { place, horizon })
    }

    fn learn(memory: &Memory, number: u128, entries: &[Entry], now: Instant) {
        memory.learn(account(number), entries, memory.fence().0, true, now);
    }

    fn number(memory: &Memory, key: Option<KeyId>, now: Instant) -> Option<u64> {
        let is_known = memory.recall(account(1), key, now) == Recalled::Line;
        let known = memory.line(account(1), now).filter(|_| is_known);
        known.map(|known| known.line.map_or(0, |line| line.number))
    }

    #[test]
    fn the_newest_line_is_known_for_a_while() {
        let memory = Memory::default();
        let now = Instant::now();
        assert_eq!(number(&memory, None, now), None);
        learn(&memory, 1, &[entry(1, None), entry(2, None)], now);
        learn(&memory, 1, &[entry(3, None)], now);
        assert_eq!(number(&memory, None, now), Some(3));
        assert_eq!(memory.line(account(2), now), None);
        assert_eq!(number(&memory, None, now + YOUNG), None);
    }

    #[test]
    fn most_accounts_that_were_met_tell_whether_one_is_new() {
        let memory = Memory::default();
        let now = Instant::now();
        let is_taken_for_new = |now| number(&memory, None, now) == Some(0);
        learn(&memory, 2, &[entry(1, None)], now);
        assert!(!is_taken_for_new(now));
        memory.show(fence(1, 1));
        let met = [(3, true), (4, false), (5, false), (6, true), (7, true)];
        for ((other, is_new), expected) in met.into_iter().zip([true, false, false, false, true]) {
            if is_new {
                learn(&memory, other, &[entry(1, None), entry(2, None)], now)
            } else {
                memory.note_existing(account(other));
                learn(&memory, other, &[entry(7, None)], now);
            }
            assert_eq!(is_taken_for_new(now), expected, "{other}");
            // A known account does not count again.
            memory.note_existing(account(other));
            assert_eq!(is_taken_for_new(now), expected, "{other}");
        }
        memory.learn_key(key(1));
        assert_eq!(number(&memory, Some(key(1)), now), None);
        memory.burst_ended(Burst::Conflict, true, now);
        assert!(!is_taken_for_new(now));
        assert!(is_taken_for_new(now + REST));
    }

    #[test]
    fn that_there_is_no_counter_is_not_believed_for_long() {
        let memory = Memory::default();
        let now = Instant::now();
        let half = YOUNG / 2;
        for (step, is_known) in [(0, true), (1, true), (2, false)] {
            let now = now + half * step;
            assert_eq!(number(&memory, None, now).is_some(), is_known && step > 0);
            memory.learn(account(1), &[entry(1, None)], Epoch::default(), false, now);
            assert_eq!(number(&memory, None, now), Some(1));
        }
    }

    #[test]
    fn no_line_is_known_for_a_retry() {
        let memory = Memory::default();
        let now = Instant::now();
        learn(&memory, 1, &[entry(1, Some(key(1)))], now);
        learn(&memory, 1, &[entry(2, None), entry(3, Some(key(3)))], now);
        memory.learn_key(key(4));
        for (asked, known) in [(1, None), (3, None), (4, None), (2, Some(3))] {
            assert_eq!(number(&memory, Some(key(asked)), now), known, "{asked}");
        }
    }

    #[test]
    fn an_account_with_other_writers_is_left_alone_for_a_while() {
        let memory = Memory::default();
        let now = Instant::now();
        learn(&memory, 1, &[entry(1, None)], now);
        memory.distrust(account(1), now);
        learn(&memory, 1, &[entry(3, None)], now);
        assert_eq!(number(&memory, None, now), None);
        assert_eq!(memory.recall(account(1), None, now), Recalled::Distrusted);
        let now = now + YOUNG;
        assert_eq!(memory.recall(account(1), None, now), Recalled::Distrusted);
        learn(&memory, 1, &[entry(4, None)], now);
        assert_eq!(number(&memory, None, now), Some(4));
    }

    #[test]
    fn no_line_is_known_while_the_memory_rests() {
        let memory = Memory::default();
        let now = Instant::now();
        memory.burst_ended(Burst::Conflict, true, now);
        learn(&memory, 1, &[entry(1, None)], now);
        assert_eq!(number(&memory, None, now), None);
        assert_eq!(number(&memory, None, now + REST), Some(1));
    }

    #[test]
    fn nothing_is_known_of_a_server_that_is_behind() {
        let memory = Memory::default();
        let now = Instant::now();
        let epoch = memory.show(fence(1, 10));
        learn(&memory, 1, &[entry(1, None)], now);
        assert_eq!(memory.show(fence(1, 30)), epoch);
        assert_eq!(memory.show(fence(1, 20)), epoch);
        assert_eq!(memory.fence(), (epoch, fence(1, 30)));
        assert_eq!(number(&memory, None, now), Some(1));
        for is_behind in [false, true] {
            let before = memory.fence().0;
            if is_behind {
                memory.burst_ended(Burst::Behind, false, now);
            }
            let epoch = memory.show(fence(2, 5));
            assert_ne!(epoch, before);
            assert_eq!(memory.fence(), (epoch, fence(2, 5)));
            assert_eq!(number(&memory, None, now), None);
            // Entries that were appended after a line of an older epoch.
            memory.learn(account(1), &[entry(2, None)], before, false, now);
            assert_eq!(number(&memory, None, now), None);
            memory.learn(account(1), &[entry(2, None)], epoch, false, now);
            assert_eq!(number(&memory, None, now), Some(2));
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let memory = Memory::default();
        let now = Instant::now();
        learn(&memory, 1, &[entry(1, None)], now);
        let each = size_of::<(AccountId, RememberedAccount)>();
        let accounts = (BYTES_MOST / each) as u128;
        for other in 2..accounts {
            learn(&memory, other, &[entry(1, None)], now);
        }
        assert_eq!(number(&memory, None, now), Some(1));
        for other in accounts..=2 * accounts + 4 {
            learn(&memory, other, &[entry(1, None)], now);
        }
        assert_eq!(number(&memory, None, now), None);
        let remembered = memory.lock();
        let [younger, older] = [&remembered.younger, &remembered.older];
        assert!(younger.bytes + older.bytes <= 2 * (BYTES_MOST + each));
        assert!(younger.accounts.len() + older.accounts.len() >= accounts as usize);
    }
}
