//! A Redis by its contract: what `src/counter/lua/line.lua` and `src/counter/mod.rs` promise, on a
//! map of counters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use perdiem::counter::{Answer, Ask, Counter, SettledKeys, Settlement};
use perdiem::domain::grant::Line;
use perdiem::domain::identity::{AccountId, KeyId};

use super::Planted;

/// A Redis. A clone is what a roll-back brings back.
#[derive(Clone)]
pub struct Redis {
    counters: BTreeMap<AccountId, StoredCounter>,
    planted: Planted,
}

/// An account's counter.
#[derive(Clone)]
pub struct StoredCounter {
    /// The line that was settled.
    pub line: Line,
    /// Whether `keys` are all that the account must remember as of the line.
    pub has_all_keys: bool,
    /// Some of the account's keys, or all of them.
    pub keys: BTreeSet<KeyId>,
    confirmed_at: DateTime<Utc>,
    expires_at: Duration,
}

impl Redis {
    /// A Redis without counters.
    pub fn new(planted: Planted) -> Self {
        let counters = BTreeMap::new();
        Self { counters, planted }
    }

    /// Every counter is lost.
    pub fn flush(&mut self) {
        self.counters.clear();
    }

    /// An account's counter.
    pub fn counter(&self, account: AccountId, now: Duration) -> Option<&StoredCounter> {
        let counter = self.counters.get(&account)?;
        (now < counter.expires_at).then_some(counter)
    }

    /// The answer to an ask.
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
            grants_wait: false,
        }
    }

    /// Settles a counter.
    pub fn settle(&mut self, settlement: &Settlement, now: Duration) {
        let current = self.counter(settlement.account, now).cloned();
        if settlement.only_existing && current.is_none() {
            return;
        }
        let (line, seen) = (&settlement.line, settlement.seen);
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
}
