//! Runs reconciliations: on request, and regularly.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use uuid::Uuid;

use super::compare::{Comparison, Ended};
use super::findings::Findings;
use super::recount::recount_day;
use super::walk::walk;
use claims::instance::{Failure, Metrics, Watch, new_id};
use counter::Counters;
use domain::reconciliation::{CountersCompared, Finished, Started};
use host::chain::Chain;
use host::clock::Clock;
use ledger::{Ledger, LedgerError};

/// The longest pause before the instance checks whether a reconciliation is due.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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
            if let Ok(place) = self.place.clone().try_acquire_owned() {
                let started = self.start(None, true);
                if let Err(error) = self.run_if_due(&started, every).await {
                    tracing::warn!(
                        error = %Chain(&error),
                        "a reconciliation broke off: it is tried again in its next round"
                    );
                }
                drop(place);
            }
            sleep(every.min(LOOK_EVERY)).await;
        }
    }

    async fn run_if_due(&self, started: &Started, every: Duration) -> Result<(), LedgerError> {
        let every = TimeDelta::from_std(every).unwrap_or(TimeDelta::days(36_500));
        let since = started.started_at - every;
        if self
            .ledger
            .audit()
            .begin_reconciliation(started, Some(since))
            .await?
        {
            self.reconcile(started).await
        } else {
            Ok(())
        }
    }

    fn start(&self, requested_by: Option<String>, apply: bool) -> Started {
        let now = self.clock.now();
        Started {
            id: new_id(now),
            started_at: now,
            requested_by,
            apply,
        }
    }

    /// Compares, heals if asked to, and finishes the report.
    async fn reconcile(&self, started: &Started) -> Result<(), LedgerError> {
        let mut findings = Findings::new(started.id);
        let counters = self.compare(started.apply, &mut findings).await?;
        walk(&self.ledger, &mut findings).await?;
        let random = Uuid::new_v4().as_u64_pair().1;
        recount_day(&self.ledger, random, &mut findings).await?;
        let finished = Finished {
            finished_at: self.clock.now(),
            counters,
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
        let started = self.start(Some(requested_by), apply);
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
        self.reconciler.reconcile(&self.started).await
    }
}
