//! The health of this instance: whether it may decide, and whether it fits the other instances.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use uuid::Uuid;

use super::clocks::{ClockFindings, ClockTrouble};
use super::metrics::Metrics;
use super::policies::Policies;
use super::standby::StandbyTrouble;
use super::standby_watch::{NoStandby, StandbyWatch};
use super::terms::FRESH;
use super::writes::{WriteProber, WriteTrouble, Writes};
use domain::zones;
use host::chain::Chain;
use host::clock::{Clock, FollowedClock};
use host::running::RunningTime;
use ledger::{Ledger, LedgerError};

/// The pause between two looks at changes of policies and at the clock.
const EVERY: Duration = Duration::from_millis(250);
/// The time after which a ledger that does not answer is silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two checks of that time, and before a look after a failure.
const GLANCE: Duration = Duration::from_millis(100);
/// Every this many looks, the instance reports to the others that it lives.
const REPORT_EVERY: u32 = 20;
/// The age at which rules of time zones are old: releases come several times a year.
const ZONE_RULES_OLD: TimeDelta = TimeDelta::days(180);
/// The time after which an instance without a report is forgotten.
const FORGET_AFTER: TimeDelta = TimeDelta::seconds(30);

/// A problem of the instance. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    #[error("the ledger does not answer: check that the database runs and can be reached")]
    Ledger,
    /// The ledger answers, but takes no entries.
    #[error(transparent)]
    Writes(#[from] WriteTrouble),
    /// The ledger has something that this instance cannot read.
    #[error(
        "{0}: start the version of perdiem that wrote it, and install the same tz database as on \
         the other instances"
    )]
    Unreadable(String),
    /// Nothing is decided, or only the wall clock is off.
    #[error(transparent)]
    Clock(ClockTrouble),
    #[error(transparent)]
    NoStandby(#[from] NoStandby),
    /// Of an instance that only reads.
    #[error(transparent)]
    Standby(#[from] StandbyTrouble),
    /// Redis does not answer. The ledger decides all claims: slower, equally exact.
    #[error("Redis is unavailable: the ledger decides all claims, slower but equally exact")]
    Counters,
    /// Other instances use other rules of time zones.
    #[error(
        "instances on this ledger use different rules of time zones ({0}): install the same tz \
         database on all of them"
    )]
    ZoneRules(String),
    #[error(
        "the rules of time zones are {days} days old (release {rules}), and governments change \
         them at short notice: install a newer tz database or perdiem, or set TZDIR to a folder \
         with a newer tz database, and restart"
    )]
    OldZoneRules {
        /// The release, and the source of the copy.
        rules: String,
        days: i64,
    },
    /// Nothing is sealed, for this reason.
    #[error("the ledger is not sealed: {0}; claims are still decided")]
    Seals(String),
    /// An entry or a change has a place that no transaction has had.
    #[error(
        "{0} has a place in the record that no transaction has had: it was added by hand; copy the \
         database as it is, and run `perdiem verify`; claims are still decided"
    )]
    Forged(String),
    /// The last reconciliation found that the ledger contradicts itself.
    #[error(
        "the ledger contradicts itself in {count} places: entries were changed or lost outside of \
         perdiem; copy the database as it is, and read \
         GET /v1/reconciliations/{reconciliation}"
    )]
    Alarms { reconciliation: Uuid, count: u64 },
}

impl Trouble {
    /// The problem of the machine's rules of time zones, if they are old.
    pub fn of_zone_rules(now: DateTime<Utc>) -> Option<Self> {
        let rules = zones::rules();
        let age = rules.age(now).filter(|age| *age > ZONE_RULES_OLD)?;
        Some(Self::OldZoneRules {
            rules: rules.to_string(),
            days: age.num_days(),
        })
    }
}

#[derive(Debug, Clone)]
pub struct Health {
    pub is_ready: bool,
    /// All problems, including those that do not stop decisions.
    pub troubles: Vec<Trouble>,
    /// The name of the store of the ledger.
    pub ledger: &'static str,
    pub has_counters: bool,
    /// Whether this instance has a key for seals, and may write them.
    pub is_sealing: bool,
    /// Whether this instance only reads.
    pub is_read_only: bool,
    /// How old the answers of an instance that only reads are at most; `None` if that is not known, and
    /// at any other instance.
    pub lag: Option<Duration>,
    /// The rules of time zones: their source and release.
    pub zone_rules: String,
}

/// The last findings of the watcher.
pub struct Watch {
    pub ledger_trouble: ArcSwap<Option<Trouble>>,
    /// The last instant at which the ledger did not answer.
    silent_at: Mutex<Option<Instant>>,
    pub writes: Arc<Writes>,
    pub clocks: ClockFindings,
    pub standbys: StandbyWatch,
    /// The rules of time zones of other instances.
    pub others_rules: ArcSwap<Vec<String>>,
    /// The newest reconciliation, and its number of alarms.
    alarms: ArcSwap<Option<(Uuid, u64)>>,
}

impl Watch {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            ledger_trouble: ArcSwap::default(),
            silent_at: Mutex::default(),
            writes: Arc::default(),
            clocks: ClockFindings::default(),
            standbys: StandbyWatch::default(),
            others_rules: ArcSwap::default(),
            alarms: ArcSwap::default(),
        })
    }

    /// Notes the number of alarms of the newest reconciliation.
    pub fn note_alarms(&self, reconciliation: Uuid, count: u64) {
        self.alarms.store(Arc::new(Some((reconciliation, count))));
    }

    /// The newest reconciliation, and its number of alarms.
    pub fn alarms(&self) -> Option<(Uuid, u64)> {
        **self.alarms.load()
    }

    /// Whether the ledger does not answer. A finding from before a pause of the process does not
    /// count.
    pub fn ledger_is_silent(&self) -> bool {
        self.silent_at().is_some_and(|at| at.elapsed() < FRESH)
    }

    fn silent_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how an append of entries ended.
    pub fn note_write<T>(&self, written: &Result<T, LedgerError>) {
        self.writes.note_append(written);
    }

    /// Whether the clock is off by more than the tolerance.
    pub fn clock_is_off(&self) -> bool {
        self.clocks.is_off()
    }
}

/// Watches the ledger, the clock and the policies in the background.
pub struct Watcher {
    /// The findings.
    pub watch: Arc<Watch>,
    /// The time in which the process ran. While the process was stopped, it did not wait.
    pub running_time: Arc<RunningTime>,
    pub ledger: Ledger,
    /// The clock of the machine, which follows the clock of the ledger.
    pub clock: FollowedClock,
    pub policies: Arc<Policies>,
    /// The largest allowed offset of the clock; `None` to ignore the clock.
    pub tolerance: Option<TimeDelta>,
    /// The id of this instance.
    pub instance: Uuid,
    /// Whether this instance reports to the others that it lives. One that only reads does not.
    pub reports: bool,
    pub metrics: Metrics,
}

impl Watcher {
    /// Looks for the first time. No claim may come before: the clock may be off.
    pub async fn begin(&self) {
        self.look_and_note(0).await;
    }

    /// Looks again and again.
    pub async fn run(self) {
        let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut prober = WriteProber::new(
            self.ledger.clone(),
            Clock::Followed(self.clock.clone()),
            self.instance,
            self.metrics.clone(),
            self.watch.writes.clone(),
        );
        for tick in 1u32.. {
            ticks.tick().await;
            self.look_and_note(tick).await;
            prober.look(self.watch.ledger_is_silent());
        }
    }

    /// Looks until the ledger answers, or is silent.
    async fn look_and_note(&self, tick: u32) {
        let patience = if self.watch.ledger_is_silent() {
            Duration::ZERO
        } else {
            PATIENCE
        };
        let ends_at = self.running_time.now() + patience;
        let is_over = || self.running_time.now() >= ends_at;
        let error = loop {
            match self.look_patiently(tick, is_over).await {
                Ok(()) => break None,
                Err(error @ LedgerError::Corrupt(_)) => break Some(error),
                Err(error) if is_over() => break Some(error),
                // A time limit may have passed, or a connection may have broken, during a pause of
                // the process.
                Err(_) => sleep(GLANCE).await,
            }
        };
        let trouble = error.as_ref().map(|error| match error {
            LedgerError::Corrupt(_) => Trouble::Unreadable(error.to_string()),
            LedgerError::Conflict
            | LedgerError::Unavailable(_)
            | LedgerError::Untimely(_)
            | LedgerError::Refused(_)
            | LedgerError::Unreadable(_)
            | LedgerError::Archived(_) => Trouble::Ledger,
        });
        self.note(trouble, error.map(|error| Chain(&error).to_string()));
    }

    /// Looks, and notes that the ledger is silent while the look takes too long. Invariant: a look
    /// is never cut off; the time limit of the ledger ends it.
    async fn look_patiently(
        &self,
        tick: u32,
        is_over: impl Fn() -> bool,
    ) -> Result<(), LedgerError> {
        let mut look = pin!(self.look(tick));
        loop {
            match timeout(GLANCE, &mut look).await {
                Ok(result) => return result,
                Err(_) if is_over() => self.note(Some(Trouble::Ledger), None),
                Err(_) => {}
            }
        }
    }

    fn note(&self, trouble: Option<Trouble>, cause: Option<String>) {
        let is_silent = trouble == Some(Trouble::Ledger);
        *self.watch.silent_at() = is_silent.then(Instant::now);
        let before = self.watch.ledger_trouble.swap(Arc::new(trouble.clone()));
        match (&*before, trouble) {
            (None, Some(trouble)) => tracing::error!(cause, "{trouble}"),
            (Some(_), None) => tracing::info!("the ledger answers again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    async fn look(&self, tick: u32) -> Result<(), LedgerError> {
        // 1. Changes of policies, overrides and keys are read.
        self.policies.refresh().await?;
        // 2. The clock is compared with the clock of the ledger.
        if let Some(tolerance) = self.tolerance {
            let clocks = &self.watch.clocks;
            let metrics = &self.metrics;
            let checking = clocks.check(&self.clock, &self.ledger, tolerance, metrics);
            checking.await?;
        }
        // 3. Now and then this instance reports itself, and reads the reports of the others.
        if tick.is_multiple_of(REPORT_EVERY) {
            if self.reports {
                self.report().await?;
                // A server that does not tell its standbys is not silent.
                if let Ok(facts) = self.ledger.standbys().await {
                    self.watch.standbys.note(facts);
                }
            }
            let now = self.clock.now();
            if let Some((reconciliation, count)) = self.ledger.audit().alarms(now).await? {
                self.watch.note_alarms(reconciliation, count);
            }
        }
        Ok(())
    }

    async fn report(&self) -> Result<(), LedgerError> {
        let now = self.clock.now();
        let rules = zones::rules().to_string();
        let others = self
            .ledger
            .report_instance(self.instance, &rules, now, now - FORGET_AFTER)
            .await;
        self.watch.writes.note_report(&others);
        match others {
            Ok(others) => self.watch.others_rules.store(Arc::new(others)),
            // A ledger that can be read is not silent.
            Err(error) if error.is_disk_full() || error.is_read_only() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
