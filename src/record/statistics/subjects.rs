//! What is known of subjects' grants on a local day.

use chrono::{DateTime, NaiveDate, Utc};
use foldhash::{HashMap, HashSet};

use domain::grant::EntryKind;
use domain::identity::AccountId;
use domain::local_days::{KnownDays, LocalDay};
use domain::policy::PolicyId;
use domain::statistics::{SubjectDay, TalliedEntry};
use ledger::{Ledger, LedgerError};

/// The size of each of two halves of the memory. What is used is in the younger half.
const HALF: usize = 32_768;
/// How many entries of an account are read at once.
const ENTRIES_MOST: u32 = 64;
/// For how many accounts earlier entries are read at once.
const ACCOUNTS_MOST: usize = 1024;

type SubjectDays = HashMap<(AccountId, NaiveDate), SubjectDay>;

/// Remembers the newest days of subjects, and reads others.
#[derive(Debug, Default)]
pub struct SubjectMemory {
    young: SubjectDays,
    old: SubjectDays,
}

/// A subject's day that is not in memory. The grants before an entry in the record are to be read.
#[derive(Clone, Copy)]
struct UnknownDay {
    account: AccountId,
    day: LocalDay,
    /// The number of the entry.
    number: u64,
}

impl SubjectMemory {
    /// Forgets everything: another instance was at work, or the figures were not added.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Makes room: forgets what was not used since the last time but one.
    pub fn make_room(&mut self) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
    }

    /// Whether a subject's day is remembered.
    fn knows(&mut self, account: AccountId, date: NaiveDate) -> bool {
        let key = (account, date);
        if let Some(known) = self.old.remove(&key) {
            self.young.insert(key, known);
        }
        self.young.contains_key(&key)
    }

    /// Reads the days of subjects that are not in memory, for the subjects with a grant among the
    /// entries.
    pub async fn learn(
        &mut self,
        ledger: &Ledger,
        entries: &[TalliedEntry],
        days: &mut HashMap<PolicyId, KnownDays<'_>>,
    ) -> Result<(), LedgerError> {
        let mut met = HashSet::default();
        let mut unknown = Vec::new();
        for entry in entries {
            let account = entry.account;
            let number = entry.number;
            let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
            let days = days.get_mut(&entry.policy).filter(|_| is_grant);
            let Some(day) = days.map(|days| days.day(entry.counted_at)) else {
                continue;
            };
            if !met.insert((account, day.date)) || self.knows(account, day.date) {
                continue;
            }
            // Before the first entry of an account there is nothing to read.
            if number > 1 {
                unknown.push(UnknownDay {
                    account,
                    day,
                    number,
                });
            }
        }
        for unknown in unknown.chunks(ACCOUNTS_MOST) {
            self.read(ledger, unknown.to_vec()).await?;
        }
        Ok(())
    }

    /// What is known of a subject's day. A new day has no grants.
    pub fn of(&mut self, account: AccountId, date: NaiveDate) -> &mut SubjectDay {
        self.young.entry((account, date)).or_default()
    }

    /// Reads the grants on subjects' days that come before an entry of each. Reads an account's
    /// entries backwards for as long as they may count on the day: no entry counts after the
    /// instant at which it was appended.
    async fn read(
        &mut self,
        ledger: &Ledger,
        mut unknown: Vec<UnknownDay>,
    ) -> Result<(), LedgerError> {
        while !unknown.is_empty() {
            let since = unknown.iter().map(|unknown| unknown.day.start).min();
            let since = since.unwrap_or(DateTime::<Utc>::MIN_UTC);
            let numbers = unknown.iter().map(|day| (day.account, day.number));
            let numbers: Vec<(AccountId, u64)> = numbers.collect();
            let earlier = ledger
                .figures()
                .earlier_entries(&numbers, since, ENTRIES_MOST)
                .await?;
            let mut found: HashMap<AccountId, Vec<_>> = HashMap::default();
            for entry in earlier {
                found.entry(entry.account).or_default().push(entry);
            }
            unknown.retain_mut(|unknown| {
                let day = unknown.day;
                let entries = found
                    .get(&unknown.account)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                // The entries may have been read for another day of the account.
                let asked = unknown.number.saturating_sub(ENTRIES_MOST.into())..unknown.number;
                let entries = entries.iter().filter(|entry| asked.contains(&entry.number));
                let known = self.of(unknown.account, day.date);
                let mut count = 0;
                let mut last = None;
                for entry in entries {
                    if let Some((counted_at, is_at_limit)) = entry.grant
                        && day.contains(counted_at)
                    {
                        known.note(is_at_limit);
                    }
                    (count, last) = (count + 1, Some(entry));
                }
                let Some(last) = last.filter(|last| count >= ENTRIES_MOST && last.at >= day.start)
                else {
                    return false;
                };
                unknown.number = last.number;
                !(known.has_grant && known.was_at_limit)
            });
        }
        Ok(())
    }
}
