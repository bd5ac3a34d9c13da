//! What this instance knows of itself: whether it may decide, and whether it fits the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::TimeDelta;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use uuid::Uuid;

use super::Engine;
use super::policies::Policies;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::domain::zones;
use crate::ledger::{Ledger, LedgerError};

/// How often changes of policies, and the clock, are looked for.
const EVERY: Duration = Duration::from_millis(250);
/// A ledger that does not answer within this time is said not to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Every so many of those times the instance tells the others that it lives.
const REPORT_EVERY: u32 = 20;
/// An instance that said nothing for so long is gone.
const FORGET_AFTER: TimeDelta = TimeDelta::seconds(30);

/// What is wrong. The text tells the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The ledger does not answer.
    #[error("the ledger does not answer: see that the database is up and can be reached")]
    Ledger,
    /// The clock is off; nothing is decided.
    #[error(
        "this machine's clock is off the ledger's by {} s, more than the tolerance: set it right \
         (NTP), or change PERDIEM_CLOCK_TOLERANCE_SECONDS; until then no claim is decided",
        .0.num_seconds()
    )]
    Clock(TimeDelta),
    /// Redis does not answer; the ledger decides alone. Slower, and as exact.
    #[error("Redis does not serve: the ledger decides alone, slower and as exact")]
    Counters,
    /// Other instances use other rules of time zones.
    #[error(
        "instances on this ledger use different rules of time zones ({0}): give all of them the \
         same tz database"
    )]
    ZoneRules(String),
}

/// How an instance is.
#[derive(Debug, Clone)]
pub struct Health {
    /// Whether it decides claims.
    pub is_ready: bool,
    /// What is wrong, also where it can do without.
    pub troubles: Vec<Trouble>,
    /// The store of the ledger.
    pub ledger: &'static str,
    /// Whether there are counters.
    pub has_counters: bool,
    /// The rules of time zones: their source and version.
    pub zone_rules: String,
}

/// Looks after what changes outside of claims, in the background.
pub struct Watch {
    ledger_answers: AtomicBool,
    clock_offset: ArcSwap<Option<TimeDelta>>,
    others_rules: ArcSwap<Vec<String>>,
    task: std::sync::OnceLock<AbortHandle>,
}

impl Watch {
    /// Begins to look. Without a `tolerance` the clock is not looked at.
    pub fn start(
        ledger: Ledger,
        clock: Clock,
        policies: Arc<Policies>,
        tolerance: Option<TimeDelta>,
    ) -> Arc<Self> {
        let watch = Arc::new(Self {
            ledger_answers: AtomicBool::new(true),
            clock_offset: ArcSwap::default(),
            others_rules: ArcSwap::default(),
            task: std::sync::OnceLock::new(),
        });
        let watcher = watch.clone();
        let task = tokio::spawn(async move {
            let instance = Uuid::new_v4();
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for tick in 0u32.. {
                ticks.tick().await;
                let look = watcher.look(&ledger, &clock, &policies, tolerance, tick, instance);
                let looked = timeout(PATIENCE, look).await;
                let answers = matches!(looked, Ok(Ok(())));
                let answered = watcher.ledger_answers.swap(answers, Ordering::Relaxed);
                match looked {
                    Ok(Ok(())) if !answered => tracing::info!("the ledger answers again"),
                    Err(_) if answered => {
                        tracing::error!("the ledger does not answer within {PATIENCE:?}");
                    }
                    Ok(Err(error)) if answered => {
                        tracing::error!(error = %Chain(&error), "the ledger does not answer");
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        });
        // Set once, here.
        let _ = watch.task.set(task.abort_handle());
        watch
    }

    async fn look(
        &self,
        ledger: &Ledger,
        clock: &Clock,
        policies: &Policies,
        tolerance: Option<TimeDelta>,
        tick: u32,
        instance: Uuid,
    ) -> Result<(), LedgerError> {
        policies.refresh(ledger).await?;
        if let Some(tolerance) = tolerance {
            let before = clock.now();
            let offset = ledger.clock_offset(before).await?;
            // The ledger looked at its clock at some time during the call.
            let call = clock.now() - before;
            let offset = if offset < TimeDelta::zero() {
                (offset + call).min(TimeDelta::zero())
            } else {
                offset
            };
            let off = Some(offset).filter(|offset| offset.abs() > tolerance);
            self.clock_offset.store(Arc::new(off));
        }
        if tick.is_multiple_of(REPORT_EVERY) {
            let now = clock.now();
            let rules = zones::rules().to_string();
            let others = ledger
                .report_instance(instance, &rules, now, now - FORGET_AFTER)
                .await?;
            self.others_rules.store(Arc::new(others));
        }
        Ok(())
    }

    /// Whether the clock is off by more than the tolerance.
    pub fn clock_is_off(&self) -> bool {
        self.clock_offset.load().is_some()
    }

    /// Ends it.
    pub fn stop(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Engine {
    /// How this instance is.
    pub fn health(&self) -> Health {
        let mut troubles = Vec::new();
        if !self.watch.ledger_answers.load(Ordering::Relaxed) {
            troubles.push(Trouble::Ledger);
        }
        if let Some(offset) = **self.watch.clock_offset.load() {
            troubles.push(Trouble::Clock(offset));
        }
        let is_ready = troubles.is_empty();
        if self
            .counters
            .as_ref()
            .is_some_and(|counters| !counters.is_available())
        {
            troubles.push(Trouble::Counters);
        }
        let own_rules = zones::rules().to_string();
        let others = self.watch.others_rules.load();
        let mut rules: Vec<&str> = others
            .iter()
            .map(String::as_str)
            .chain([own_rules.as_str()])
            .collect();
        rules.sort_unstable();
        rules.dedup();
        if rules.len() > 1 {
            troubles.push(Trouble::ZoneRules(rules.join(", ")));
        }
        Health {
            is_ready,
            troubles,
            ledger: self.ledger.store_name(),
            has_counters: self.counters.is_some(),
            zone_rules: own_rules,
        }
    }
}
