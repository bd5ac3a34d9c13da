//! Runs reconciliations: on request, and regularly.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use uuid::Uuid;

use super::compare::{Comparison, Ended};
use super::findings::Findings;
use super::recount::recount_day;
use super::shared::sum_shared_use;
use super::walk::{walk, walk_recent};
use claims::instance::{Failure, Metrics, Watch, new_id};
use counter::Counters;
use domain::identity::AccountId;
use domain::reconciliation::{
    CheckedUpTo, CountersCompared, DIFFERENCES_KEPT, Finished, LedgerChecked, LedgerPart, Started,
};
use host::chain::Chain;
use host::clock::Clock;
use ledger::{Ledger, LedgerError};

/// The longest pause before the instance checks whether a reconciliation is due.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The time in which the reconciliations without a request check the whole ledger.
const WHOLE_IN: TimeDelta = TimeDelta::days(7);

/// What a reconciliation checks of the ledger.
enum LedgerCheck {
    Whole,
    /// What is new since an earlier check, the accounts of its alarms, and one of so many parts.
    Part {
        checked: CheckedUpTo,
        alarmed: Vec<AccountId>,
        parts: u64,
    },
}

impl LedgerCheck {
    fn checks(&self) -> LedgerChecked {
        match self {
            Self::Whole => LedgerChecked::Whole,
            Self::Part { .. } => LedgerChecked::Part,
        }
    }
}

/// One of how many parts is due so long after the part before it.
fn parts_in(passed: TimeDelta) -> u64 {
    let parts = WHOLE_IN.num_seconds() / passed.num_seconds().max(1);
    parts.cast_unsigned()
}

#[derive(Debug, thiserror::Error)]
pub enum ReconcileFailure {
    /// This instance already runs a reconciliation.
    #[error("this instance already runs a reconciliation")]
    InProgress,
    /// Not the fault of the caller.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Compares the counters with the ledger, and checks the ledger itself. Only one reconciliation
/// runs at a time.
pub struct Reconciler {
    ledger: Ledger,
    counters: Option<Counters>,
    clock: Clock,
    watch: Arc<Watch>,
    metrics: Metrics,
    place: Arc<Semaphore>,
}

impl Reconciler {
    pub fn new(
        ledger: Ledger,
        counters: Option<Counters>,
        clock: Clock,
        watch: Arc<Watch>,
        metrics: Metrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            counters,
            clock,
            watch,
            metrics,
            place: Arc::new(Semaphore::new(1)),
        })
    }

    /// Starts a reconciliation, with healing, whenever no instance on this ledger has started one
    /// for this long.
    pub async fn run(self: Arc<Self>, every: Duration) {
        loop {
            // A wrong clock would put a report into the future.
            if !self.watch.clock_is_off()
                && let Err(error) = self.run_if_due(every).await
            {
                tracing::warn!(
                    error = %Chain(&error),
                    "a reconciliation broke off: it is tried again in its next round"
                );
            }
            sleep(every.min(LOOK_EVERY)).await;
        }
    }

    async fn run_if_due(&self, every: Duration) -> Result<(), LedgerError> {
        // 1. Mostly an instance began one not long ago.
        let every = TimeDelta::from_std(every).unwrap_or(TimeDelta::days(36_500));
        let audit = self.ledger.audit();
        let now = self.clock.now();
        if audit.began_since(now - every, now).await? {
            return Ok(());
        }
        // 2. Decide what to check.
        let check = self.next_check(every, now).await?;
        // 3. Begin. Who asks for a reconciliation is not kept out by a mere look.
        let Ok(_place) = self.place.clone().try_acquire_owned() else {
            return Ok(());
        };
        let started = self.start(None, true, check.checks());
        let since = started.started_at - every;
        if audit.begin_reconciliation(&started, Some(since)).await? {
            self.reconcile(&started, check).await?;
        }
        Ok(())
    }

    /// The whole is checked by the first reconciliation of a ledger, after a long time without one, and while
    /// alarms can be anywhere: at a row that cannot be read, or at more accounts than a report lists.
    async fn next_check(
        &self,
        every: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<LedgerCheck, LedgerError> {
        let audit = self.ledger.audit();
        let Some(checked) = audit.checked(now).await? else {
            return Ok(LedgerCheck::Whole);
        };
        let parts = parts_in(every.max(now - checked.at));
        let alarms = audit.alarms(now).await?.map_or(0, |(_, alarms)| alarms);
        let alarmed = audit.alarmed(now).await?;
        let accounts: Vec<AccountId> = alarmed.iter().copied().flatten().collect();
        let are_known = accounts.len() == alarmed.len() && alarms <= DIFFERENCES_KEPT as u64;
        Ok(if parts > 1 && are_known {
            LedgerCheck::Part {
                checked,
                alarmed: accounts,
                parts,
            }
        } else {
            LedgerCheck::Whole
        })
    }

    fn start(&self, requested_by: Option<String>, apply: bool, ledger: LedgerChecked) -> Started {
        let now = self.clock.now();
        Started {
            id: new_id(now),
            started_at: now,
            requested_by,
            apply,
            ledger,
        }
    }

    /// Compares, heals if asked to, and finishes the report.
    async fn reconcile(&self, started: &Started, check: LedgerCheck) -> Result<(), LedgerError> {
        let mut findings = Findings::new(started.id);
        let counters = self.compare(started.apply, &mut findings).await?;
        let checked = self
            .check_ledger(check, started.started_at, &mut findings)
            .await?;
        let random = Uuid::new_v4().as_u64_pair().1;
        let now = started.started_at;
        recount_day(&self.ledger, random, now, &mut findings).await?;
        sum_shared_use(&self.ledger, random, now, &mut findings).await?;
        let finished = Finished {
            finished_at: self.clock.now(),
            counters,
            checked,
            tally: findings.tally,
        };
        self.ledger
            .audit()
            .finish_reconciliation(started.id, &finished, &findings.differences)
            .await?;
        self.metrics.reconciled(&finished.tally);
        self.watch.note_alarms(started.id, finished.tally.alarms);
        tracing::info!(
            reconciliation = %started.id,
            counters = finished.counters.as_str(),
            differences = finished.tally.differences,
            healed = finished.tally.healed,
            alarms = finished.tally.alarms,
            "reconciled"
        );
        Ok(())
    }

    /// Checks the ledger itself. Returns how far the checks came.
    async fn check_ledger(
        &self,
        check: LedgerCheck,
        at: DateTime<Utc>,
        findings: &mut Findings,
    ) -> Result<CheckedUpTo, LedgerError> {
        let ledger = &self.ledger;
        // 1. What has a position now is committed, so the walk sees it.
        let position = ledger.record().mark_to_follow().await?.position;
        let LedgerCheck::Part {
            checked,
            alarmed,
            parts,
        } = check
        else {
            walk(ledger, LedgerPart::WHOLE, findings).await?;
            return Ok(CheckedUpTo {
                at,
                position,
                next: AccountId::FIRST,
            });
        };
        // 2. An alarm stays in the reports until its account is right.
        for account in alarmed {
            walk(ledger, LedgerPart::of(account), findings).await?;
        }
        // 3. The entries that are new, and the next part of the whole.
        walk_recent(ledger, checked.position, findings).await?;
        let part = LedgerPart::one_of(parts, checked.next);
        walk(ledger, part, findings).await?;
        Ok(CheckedUpTo {
            at,
            position,
            next: part.next(),
        })
    }

    async fn compare(
        &self,
        apply: bool,
        findings: &mut Findings,
    ) -> Result<CountersCompared, LedgerError> {
        let Some(counters) = &self.counters else {
            return Ok(CountersCompared::Absent);
        };
        let comparison = Comparison {
            ledger: &self.ledger,
            counters,
            clock: &self.clock,
            apply,
        };
        match comparison.run(findings).await {
            Ok(()) => Ok(CountersCompared::Compared),
            Err(Ended::Counters) => Ok(CountersCompared::Unavailable),
            Err(Ended::Ledger(error)) => Err(error),
        }
    }

    /// Begins a reconciliation that somebody asked for. It runs when the returned value is told to.
    ///
    /// # Errors
    /// [`ReconcileFailure`].
    pub async fn begin(
        self: Arc<Self>,
        apply: bool,
        requested_by: String,
    ) -> Result<BegunReconciliation, ReconcileFailure> {
        let place = self.place.clone().try_acquire_owned();
        let place = place.map_err(|_| ReconcileFailure::InProgress)?;
        let started = self.start(Some(requested_by), apply, LedgerChecked::Whole);
        let begun = self
            .ledger
            .audit()
            .begin_reconciliation(&started, None)
            .await;
        begun.map_err(Failure::from)?;
        Ok(BegunReconciliation {
            reconciler: self,
            started,
            _place: place,
        })
    }
}

/// A reconciliation whose report has no end yet. No other one begins here while it exists.
pub struct BegunReconciliation {
    reconciler: Arc<Reconciler>,
    started: Started,
    _place: OwnedSemaphorePermit,
}

impl BegunReconciliation {
    /// The id of its report.
    pub fn id(&self) -> Uuid {
        self.started.id
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn run(self) -> Result<(), LedgerError> {
        self.reconciler
            .reconcile(&self.started, LedgerCheck::Whole)
            .await
    }
}
