//! The last lines that this instance appended lately. One is a good guess at its account's last
//! line still, which saves the question to the counter or to the ledger: the ledger's guard checks
//! it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::grant::{Entry, Line};
use crate::domain::identity::{AccountId, KeyId};

/// After this, another instance may well have gone on.
const YOUNG: Duration = Duration::from_secs(3);
/// How many accounts a generation holds; there are two.
const ACCOUNTS_MOST: usize = 8192;
/// How many keys of an account are remembered. The retry of an older one costs a second look.
const KEYS_MOST: usize = 8;

/// The accounts that this instance appended to.
#[derive(Default)]
pub struct Recent(Mutex<Generations>);

/// The older generation is forgotten when the younger one is full.
#[derive(Default)]
struct Generations {
    younger: HashMap<AccountId, Memory>,
    older: HashMap<AccountId, Memory>,
}

struct Memory {
    since: Instant,
    /// `None` where a guess was of no use, and the next one would hardly be.
    line: Option<Line>,
    keys: Vec<KeyId>,
}

impl Recent {
    /// An account's last line, if it is known and no retry of `key` is likely.
    pub fn line(&self, account: AccountId, key: Option<KeyId>, now: Instant) -> Option<Line> {
        let generations = self.lock();
        let memory = generations.get(account, now)?;
        let is_retry = key.is_some_and(|key| memory.keys.contains(&key));
        memory.line.clone().filter(|_| !is_retry)
    }

    /// Learns entries that were appended to an account.
    pub fn learn(&self, account: AccountId, entries: &[Entry], now: Instant) {
        let Some(last) = entries.last() else {
            return;
        };
        let mut generations = self.lock();
        let before = generations.get(account, now);
        if before.is_some_and(|memory| memory.line.is_none()) {
            return;
        }
        let keys = entries.iter().rev().filter_map(|entry| entry.key);
        let older = before.map_or(&[][..], |memory| &memory.keys);
        let keys = keys.chain(older.iter().copied()).take(KEYS_MOST).collect();
        generations.remember(
            account,
            Memory {
                since: now,
                line: Some(last.line.clone()),
                keys,
            },
        );
    }

    /// No more guesses at an account for a while: another writer was quicker, or its claims are
    /// for the counters to deny.
    pub fn distrust(&self, account: AccountId, now: Instant) {
        self.lock().remember(
            account,
            Memory {
                since: now,
                line: None,
                keys: Vec::new(),
            },
        );
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&self, account: AccountId, now: Instant) -> Option<&Memory> {
        let memory = self.younger.get(&account);
        let memory = memory.or_else(|| self.older.get(&account))?;
        (now.duration_since(memory.since) < YOUNG).then_some(memory)
    }

    fn remember(&mut self, account: AccountId, memory: Memory) {
        if self.younger.len() >= ACCOUNTS_MOST {
            // To keep the memory: to grow anew took most of what it costs to remember.
            std::mem::swap(&mut self.younger, &mut self.older);
            self.younger.clear();
        }
        self.younger.insert(account, memory);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::claim::Units;
    use crate::domain::grant::EntryKind;
    use crate::domain::identity::EntryId;
    use chrono::DateTime;
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
            note: None,
            line: Line {
                number,
                at: DateTime::UNIX_EPOCH,
                policy_version: 1,
                lapses_at: None,
                totals: Arc::default(),
            },
        }
    }

    fn number(recent: &Recent, key: Option<KeyId>, now: Instant) -> Option<u64> {
        recent.line(account(1), key, now).map(|line| line.number)
    }

    #[test]
    fn the_newest_line_is_known_for_a_while() {
        let (recent, now) = (Recent::default(), Instant::now());
        assert_eq!(number(&recent, None, now), None);
        recent.learn(account(1), &[entry(1, None), entry(2, None)], now);
        recent.learn(account(1), &[entry(3, None)], now);
        assert_eq!(number(&recent, None, now), Some(3));
        assert_eq!(recent.line(account(2), None, now), None);
        let now = now + YOUNG;
        assert_eq!(number(&recent, None, now), None);
    }

    #[test]
    fn a_retry_is_no_guess() {
        let (recent, now) = (Recent::default(), Instant::now());
        recent.learn(account(1), &[entry(1, Some(key(1)))], now);
        recent.learn(account(1), &[entry(2, None), entry(3, Some(key(3)))], now);
        for (asked, known) in [(1, None), (3, None), (2, Some(3))] {
            assert_eq!(number(&recent, Some(key(asked)), now), known, "{asked}");
        }
    }

    #[test]
    fn an_account_with_other_writers_is_left_alone_for_a_while() {
        let (recent, now) = (Recent::default(), Instant::now());
        recent.learn(account(1), &[entry(1, None)], now);
        recent.distrust(account(1), now);
        recent.learn(account(1), &[entry(3, None)], now);
        assert_eq!(number(&recent, None, now), None);
        let now = now + YOUNG;
        recent.learn(account(1), &[entry(4, None)], now);
        assert_eq!(number(&recent, None, now), Some(4));
    }

    #[test]
    fn it_holds_so_many() {
        let (recent, now) = (Recent::default(), Instant::now());
        recent.learn(account(1), &[entry(1, None)], now);
        for other in 2..(2 * ACCOUNTS_MOST as u128) {
            recent.learn(account(other), &[entry(1, None)], now);
        }
        assert_eq!(number(&recent, None, now), Some(1));
        recent.learn(account(0), &[entry(1, None)], now);
        recent.learn(account(u128::MAX), &[entry(1, None)], now);
        assert_eq!(number(&recent, None, now), None);
        let generations = recent.lock();
        assert!(generations.younger.len() + generations.older.len() <= 2 * ACCOUNTS_MOST);
    }
}
