//! What forecasts know of accounts: the open holds, and the part of the past that a scheduled version
//! needs. So repeated denials of an account do not read the ledger again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::HashMap;
use tokio::time::Instant;

use super::epoch::Epoch;
use domain::correction::{Hold, HoldChange};
use domain::forecast::Foreknown;
use domain::grant::{Entry, Line};
use domain::identity::AccountId;
use domain::limit::total::Total;

/// How long a last line that only a forecast needs is used: another instance may append meanwhile.
const YOUNG: Duration = Duration::from_secs(1);
/// The number of bytes in a generation; there are two generations.
const BYTES_MOST: usize = 4 << 20;

/// What a forecast of an account follows from.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The last line of the account; `None` for an account without entries.
    pub last: Option<Line>,
    pub known: Arc<Foreknown>,
}

/// Two generations. When the younger one is full, the older one is forgotten.
#[derive(Default)]
pub struct Outlooks(Mutex<OutlookGenerations>);

#[derive(Default)]
struct OutlookGenerations {
    younger: OutlookGeneration,
    older: OutlookGeneration,
}

#[derive(Default)]
struct OutlookGeneration {
    accounts: HashMap<AccountId, DatedOutlook>,
    bytes: usize,
}

#[derive(Clone)]
struct DatedOutlook {
    outlook: Outlook,
    epoch: Epoch,
    since: Instant,
}

impl Outlook {
    fn number(&self) -> u64 {
        self.last.as_ref().map_or(0, |line| line.number)
    }

    fn bytes(&self) -> usize {
        let holds = self.known.holds.as_ref();
        let holds = holds.map_or(0, |holds| holds.holds.len());
        let totals = self.last.as_ref().map_or(0, |line| line.totals.len());
        size_of::<(AccountId, DatedOutlook)>()
            + self.known.past.bytes()
            + holds * size_of::<Hold>()
            + totals * size_of::<Total>()
    }
}

impl Outlooks {
    /// What is known of an account after this line.
    pub fn after(&self, account: AccountId, last: Option<&Line>, epoch: Epoch) -> Arc<Foreknown> {
        let number = last.map_or(0, |line| line.number);
        let generations = self.lock();
        let found = generations.find(account);
        let found = found.filter(|dated| dated.epoch == epoch && dated.outlook.number() == number);
        found.map_or_else(Arc::default, |dated| dated.outlook.known.clone())
    }

    /// What is known of an account, if this was learned just now.
    pub fn recent(&self, account: AccountId, epoch: Epoch, now: Instant) -> Option<Outlook> {
        let generations = self.lock();
        let dated = generations.find(account)?;
        let is_young = now.duration_since(dated.since) < YOUNG;
        (dated.epoch == epoch && is_young).then(|| dated.outlook.clone())
    }

    pub fn learn(&self, account: AccountId, outlook: Outlook, epoch: Epoch, now: Instant) {
        let dated = DatedOutlook {
            outlook,
            epoch,
            since: now,
        };
        self.lock().remember(account, dated);
    }

    /// Takes the entries that this instance appended to an account after a line.
    pub fn follow(
        &self,
        account: AccountId,
        after: Option<&Line>,
        entries: &[Entry],
        epoch: Epoch,
        now: Instant,
    ) {
        // 1. Without open holds nothing need be known.
        let Some(last) = entries.last().map(|entry| &entry.line) else {
            return;
        };
        let number = after.map_or(0, |line| line.number);
        let mut generations = self.lock();
        let before = generations.forget(account);
        if last.lapses_at.is_none() {
            return;
        }
        // 2. The open holds before the entries: none, or those that are known.
        let before =
            before.filter(|dated| dated.epoch == epoch && dated.outlook.number() == number);
        let mut known = match (after.and_then(|line| line.lapses_at), before) {
            (None, _) => Foreknown::default(),
            (Some(_), Some(dated)) if dated.outlook.known.holds.is_some() => {
                let known = Arc::unwrap_or_clone(dated.outlook.known);
                Foreknown {
                    holds: known.holds,
                    ..Foreknown::default()
                }
            }
            (Some(_), _) => return,
        };
        // 3. The entries open and close holds.
        for change in entries.iter().filter_map(HoldChange::by) {
            known.change(change);
        }
        let outlook = Outlook {
            last: Some(last.clone()),
            known: Arc::new(known),
        };
        let dated = DatedOutlook {
            outlook,
            epoch,
            since: now,
        };
        generations.remember(account, dated);
    }

    fn lock(&self) -> MutexGuard<'_, OutlookGenerations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutlookGenerations {
    fn find(&self, account: AccountId) -> Option<&DatedOutlook> {
        let found = self.younger.accounts.get(&account);
        found.or_else(|| self.older.accounts.get(&account))
    }

    fn forget(&mut self, account: AccountId) -> Option<DatedOutlook> {
        let forgotten = [&mut self.younger, &mut self.older].map(|generation| {
            let dated = generation.accounts.remove(&account)?;
            generation.bytes = generation.bytes.saturating_sub(dated.outlook.bytes());
            Some(dated)
        });
        forgotten.into_iter().flatten().next()
    }

    fn remember(&mut self, account: AccountId, dated: DatedOutlook) {
        self.forget(account);
        if self.younger.bytes >= BYTES_MOST {
            std::mem::swap(&mut self.younger, &mut self.older);
            self.younger = OutlookGeneration::default();
        }
        self.younger.bytes += dated.outlook.bytes();
        self.younger.accounts.insert(account, dated);
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};
    use uuid::Uuid;

    use super::*;
    use domain::account_facts::AccountFacts;
    use domain::claim::{HoldTime, Units};
    use domain::drafting::draft;
    use domain::samples;
    use domain::work::{Task, Work};

    fn account(number: u128) -> AccountId {
        AccountId(Uuid::from_u128(number))
    }

    /// Appends the entries of some work after the last of some entries.
    fn append(outlooks: &Outlooks, before: &[Entry], tasks: Vec<Task>) -> Vec<Entry> {
        let policy = Arc::new(samples::policy(1, "UTC", &[(9, "day")]));
        let works: Vec<Work> = tasks
            .into_iter()
            .map(|task| samples::work(task, policy.clone(), account(1)))
            .collect();
        let last = before.last().map(|entry| entry.line.clone());
        let known = AccountFacts::to_append(1);
        let noon: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().unwrap();
        let now = noon + TimeDelta::seconds(before.len() as i64);
        let drafted = draft(account(1), &policy, last.clone(), works.iter(), &known, now);
        let entries = drafted.unwrap().entries;
        let epoch = Epoch::default();
        let now = Instant::now();
        outlooks.follow(account(1), last.as_ref(), &entries, epoch, now);
        entries
    }

    /// The grants whose holds are known to be open after the last of some entries.
    fn open(outlooks: &Outlooks, entries: &[Entry]) -> Option<Vec<Entry>> {
        let last = entries.last().map(|entry| &entry.line);
        let known = outlooks.after(account(1), last, Epoch::default());
        let holds = &known.holds.as_ref()?.holds;
        let entry = |hold: &Hold| entries.iter().find(|entry| entry.id == hold.grant);
        holds.iter().map(|hold| entry(hold).cloned()).collect()
    }

    fn hold(seconds: i128) -> Task {
        Task::Claim(Some(HoldTime::new(seconds).unwrap()))
    }

    #[test]
    fn the_holds_that_this_instance_opens_and_closes_are_known() {
        let outlooks = Outlooks::default();
        let mut entries = append(&outlooks, &[], vec![Task::Claim(None), hold(60), hold(30)]);
        let held = [entries[2].clone(), entries[1].clone()];
        assert_eq!(open(&outlooks, &entries), Some(held.to_vec()));
        let closed = Task::Confirm(Arc::new(held[1].clone()), None);
        entries.extend(append(&outlooks, &entries, vec![closed]));
        assert_eq!(open(&outlooks, &entries), Some(held[..1].to_vec()));
        // Nothing is known after a line that this instance did not append, or of another epoch.
        assert_eq!(open(&outlooks, &entries[..2]), None);
        // Without open holds nothing need be known.
        append(&outlooks, &[], vec![Task::Claim(None)]);
        assert!(outlooks.lock().find(account(1)).is_none());
    }

    #[test]
    fn a_last_line_is_used_for_a_second() {
        let outlooks = Outlooks::default();
        let now = Instant::now();
        let outlook = Outlook {
            last: None,
            known: Arc::default(),
        };
        outlooks.learn(account(1), outlook, Epoch::default(), now);
        let recent = |now| outlooks.recent(account(1), Epoch::default(), now).is_some();
        assert!(recent(now));
        assert!(!recent(now + YOUNG));
        assert!(outlooks.recent(account(2), Epoch::default(), now).is_none());
        // Entries of this instance end it at once.
        append(&outlooks, &[], vec![Task::Claim(None)]);
        assert!(!recent(now));
    }

    #[test]
    fn the_memory_is_bounded() {
        let outlooks = Outlooks::default();
        let now = Instant::now();
        let mut known = Foreknown::default();
        for seconds in 0..200 {
            let hold = Hold {
                grant: domain::identity::EntryId(Uuid::from_u128(seconds)),
                units: Units::ONE,
                granted: Units::ONE,
                top_ups: None,
                until: DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds as i64),
                version: 1,
            };
            known.change(HoldChange::Opens(hold));
        }
        let known = Arc::new(known);
        for number in 0..2000 {
            let outlook = Outlook {
                last: None,
                known: known.clone(),
            };
            outlooks.learn(account(number), outlook, Epoch::default(), now);
        }
        let generations = outlooks.lock();
        let bytes = generations.younger.bytes + generations.older.bytes;
        assert!(bytes < 3 * BYTES_MOST, "{bytes}");
        assert!(generations.find(account(1999)).is_some());
        assert!(generations.find(account(0)).is_none());
    }
}
