//! Writes denials to the ledger.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use foldhash::{HashMap, HashSet};
use tokio::sync::Mutex;
use tokio::time::sleep;
use uuid::Uuid;

use claims::instance::{Denials, SecondOfDenials};
use domain::local_days::LocalDays;
use domain::policy::{Policy, PolicyId};
use domain::quarters::PolicyQuarter;
use domain::record::RecordPlace;
use domain::statistics::{DenialCount, DeniedOn, FirstDenial, OpenDay};
use host::clock::Clock;
use host::retried::Retried;
use ledger::{Ledger, LedgerError};

/// The pause between two writes.
const EVERY: Duration = Duration::from_secs(5);
/// How many first denials one transaction writes or deletes.
const FIRST_MOST: usize = 1000;
/// How long first denials are kept.
const KEPT: TimeDelta = TimeDelta::days(30);
/// How many days of policies, or quarter hours of them, one run counts. Then a new run begins.
const COUNTS_MOST: usize = 10_000;

/// Writes noted denials. Counts are written as sums since the beginning of a run, so that a second
/// write of the same changes nothing.
pub struct DenialWriter {
    ledger: Ledger,
    clock: Clock,
    denials: Arc<Denials>,
    counted: Mutex<RunOfDenials>,
}

/// Runs of quarter hours end more often than those of days: their rows go after 14 days.
struct RunOfQuarters {
    run: Uuid,
    counts: HashMap<PolicyQuarter, u64>,
    /// Quarter hours whose counts are not written yet.
    changed: HashSet<PolicyQuarter>,
}

struct RunOfDenials {
    run: Uuid,
    /// Denials whose local days are not known yet.
    seconds: Vec<SecondOfDenials>,
    counts: HashMap<DeniedOn, DenialCount>,
    /// Counts that are not written yet, and the ends of their days.
    changed: HashMap<DeniedOn, DateTime<Utc>>,
    first: Vec<FirstDenial>,
    quarters: RunOfQuarters,
}

impl DenialWriter {
    pub fn new(ledger: Ledger, clock: Clock, denials: Arc<Denials>) -> Self {
        let counted = RunOfDenials {
            run: Uuid::new_v4(),
            seconds: Vec::new(),
            counts: HashMap::default(),
            changed: HashMap::default(),
            first: Vec::new(),
            quarters: RunOfQuarters {
                run: Uuid::new_v4(),
                counts: HashMap::default(),
                changed: HashSet::default(),
            },
        };
        Self {
            ledger,
            clock,
            denials,
            counted: Mutex::new(counted),
        }
    }

    /// Writes in a loop until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut retried = Retried::default();
        loop {
            sleep(EVERY).await;
            let written = self.write().await;
            if let Some(error) = retried.first_failure(&written) {
                tracing::warn!(%error, "denials cannot be written: trying again");
            }
        }
    }

    /// Writes what was noted. After a failure it is written the next time.
    pub async fn write(&self) -> Result<(), LedgerError> {
        let mut counted = self.counted.lock().await;
        let counted = &mut *counted;
        self.count(counted).await?;
        loop {
            if counted.first.is_empty() {
                counted.first = self.denials.take_first(FIRST_MOST);
                // Sorted: two instances add them in the same order.
                counted
                    .first
                    .sort_unstable_by_key(|denial| (denial.account, denial.denied_at));
            }
            if counted.changed.is_empty() && counted.first.is_empty() {
                break;
            }
            let changed = counted.changed.keys();
            let changed: Vec<_> = changed.map(|of| (*of, counted.counts[of])).collect();
            let open_days = counted.changed.iter().map(|(of, ends_at)| OpenDay {
                policy: of.policy,
                counted_on: of.date,
                ends_at: *ends_at,
            });
            let open_days: BTreeSet<OpenDay> = open_days.collect();
            let saved = self
                .ledger
                .figures()
                .save_denials(
                    counted.run,
                    &changed,
                    &counted.first,
                    &open_days,
                    self.clock.now(),
                )
                .await;
            saved?;
            counted.changed.clear();
            counted.first.clear();
        }
        if counted.counts.len() > COUNTS_MOST {
            counted.run = Uuid::new_v4();
            counted.counts.clear();
        }
        self.write_quarters(&mut counted.quarters).await?;
        let before = self.clock.now() - KEPT;
        self.ledger
            .figures()
            .forget_denials(before, FIRST_MOST as u32)
            .await
    }

    async fn write_quarters(&self, quarters: &mut RunOfQuarters) -> Result<(), LedgerError> {
        if quarters.changed.is_empty() {
            return Ok(());
        }
        let changed = quarters.changed.iter();
        let changed = changed.map(|of| (*of, quarters.counts[of]));
        let figures = self.ledger.figures();
        figures.save_quarter_denials(quarters.run, changed).await?;
        quarters.changed.clear();
        if quarters.counts.len() > COUNTS_MOST {
            quarters.run = Uuid::new_v4();
            quarters.counts.clear();
        }
        Ok(())
    }

    /// Counts noted denials by local day and by quarter hour.
    async fn count(&self, counted: &mut RunOfDenials) -> Result<(), LedgerError> {
        counted.seconds.extend(self.denials.take_counts());
        let mut versions: HashMap<PolicyId, Vec<Policy>> = HashMap::default();
        for SecondOfDenials { policy, .. } in &counted.seconds {
            if let Entry::Vacant(unknown) = versions.entry(policy.id) {
                unknown.insert(
                    self.ledger
                        .record()
                        .known_versions(&policy.name, RecordPlace::LAST)
                        .await?,
                );
            }
        }
        for of_second in counted.seconds.drain(..) {
            let policy = of_second.policy.id;
            let at = DateTime::from_timestamp(of_second.second, 0).unwrap_or_default();
            let days = LocalDays::of(&versions[&policy]);
            let of = DeniedOn {
                policy,
                date: days.date(at),
            };
            let sum = counted.counts.entry(of).or_default();
            sum.denied += of_second.count.denied;
            sum.not_kept += of_second.count.not_kept;
            counted.changed.insert(of, days.end(of.date));
            let quarter = PolicyQuarter::of(policy, at);
            *counted.quarters.counts.entry(quarter).or_default() += of_second.count.denied;
            counted.quarters.changed.insert(quarter);
        }
        Ok(())
    }
}
