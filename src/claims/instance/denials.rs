//! Counts denials, and keeps the first denial of each window until it is written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use foldhash::{HashMap, HashSet};

use domain::claim::Units;
use domain::identity::AccountId;
use domain::limit::per::Per;
use domain::policy::{Policy, PolicyId};
use domain::refusal::DeniedClaim;
use domain::statistics::{DenialCount, FirstDenial, denied_at};

/// The largest number of first denials that are kept in one second.
const FIRST_MOST: usize = 100;
/// The largest number of first denials that wait to be written.
const WAITING_MOST: usize = 10_000;
/// The number of windows that are remembered as already denied.
const KNOWN_MOST: usize = 65_536;

/// Denials that are not written yet, by policy and by second since 1970. The local day is found
/// later: it takes longer than a denial may take.
#[derive(Debug, Default)]
pub struct Denials(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    counts: HashMap<(PolicyId, i64), SecondOfDenials>,
    first: Vec<FirstDenial>,
    /// The windows of accounts whose first denial was kept.
    known: HashSet<(AccountId, Per, DateTime<Utc>)>,
    /// A second, and the number of first denials that were kept in it.
    kept: (i64, usize),
}

/// The denials of a policy in one second.
#[derive(Debug, Clone)]
pub struct SecondOfDenials {
    pub policy: Arc<Policy>,
    /// The seconds since 1970.
    pub second: i64,
    pub count: DenialCount,
}

impl Denials {
    /// Notes a denial that was answered with these totals.
    pub fn note(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        units: Units,
        denied: &DeniedClaim,
        now: DateTime<Utc>,
    ) {
        let totals = &denied.totals;
        // 1. A denial belongs to its second and to a limit without room.
        let denied_at = denied_at(totals, now);
        let second = denied_at.timestamp();
        let Some((full, _)) = denied.lacking().next() else {
            return;
        };
        let mut noted = self.noted();
        let noted = &mut *noted;
        // 2. Every denial is counted.
        let count = count_denial(&mut noted.counts, policy, second);
        // 3. The first denial of a window is kept, if there is room.
        let (per, window) = full.denied_in(denied_at);
        let window = (account, per, window.start);
        if noted.known.contains(&window) {
            return;
        }
        if noted.kept.0 != second {
            noted.kept = (second, 0);
        }
        if noted.kept.1 >= FIRST_MOST || noted.first.len() >= WAITING_MOST {
            count.not_kept += 1;
            return;
        }
        noted.kept.1 += 1;
        if noted.known.len() >= KNOWN_MOST {
            noted.known.clear();
        }
        noted.known.insert(window);
        let denial = FirstDenial::of(policy, account, units, denied, now);
        noted.first.extend(denial);
    }

    /// Notes the denial of a blocked subject, or by a limit that all subjects share. It belongs to no window of
    /// the subject, so only its number is kept.
    pub fn note_without_window(&self, policy: &Arc<Policy>, now: DateTime<Utc>) {
        let mut noted = self.noted();
        count_denial(&mut noted.counts, policy, now.timestamp());
    }

    /// Takes the counts.
    pub fn take_counts(&self) -> Vec<SecondOfDenials> {
        let counts = std::mem::take(&mut self.noted().counts);
        counts.into_values().collect()
    }

    /// Takes the oldest first denials, at most `limit`.
    pub fn take_first(&self, limit: usize) -> Vec<FirstDenial> {
        let mut noted = self.noted();
        let count = noted.first.len().min(limit);
        noted.first.drain(..count).collect()
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a denial in its second.
fn count_denial<'a>(
    counts: &'a mut HashMap<(PolicyId, i64), SecondOfDenials>,
    policy: &Arc<Policy>,
    second: i64,
) -> &'a mut DenialCount {
    let of_second = counts.entry((policy.id, second));
    let of_second = of_second.or_insert_with(|| SecondOfDenials {
        policy: policy.clone(),
        second,
        count: DenialCount::default(),
    });
    of_second.count.denied += 1;
    &mut of_second.count
}
