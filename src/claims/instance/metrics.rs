//! The metrics, in the text format of Prometheus. Labels are bounded: no label has a subject or a key, and
//! one has the names of a few policies, where a setting asks for them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use chrono::TimeDelta;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use domain::grant::{Entry, Provisional};
use domain::reconciliation::Tally;
use ledger::PolicyDay;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

/// A timed step of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Counters are asked.
    Ask,
    Count,
    /// The ledger is read.
    Look,
    /// The ledger appends a batch.
    Append,
    Settle,
    /// The ledger records the grants that Redis decided.
    Record,
}

impl Stage {
    fn label(self) -> ByStage {
        let stage = match self {
            Self::Ask => "ask",
            Self::Count => "count",
            Self::Look => "look",
            Self::Append => "append",
            Self::Settle => "settle",
            Self::Record => "record",
        };
        ByStage { stage }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStage {
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLevel {
    percent: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStanding {
    standing: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPolicy {
    policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPolicyAndOutcome {
    policy: String,
    outcome: &'static str,
}

/// The metrics of one instance. A clone is cheap.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    claims: Family<ByOutcome, Counter>,
    claim_seconds: Histogram,
    stage_seconds: Family<ByStage, Histogram>,
    stage_failures: Family<ByStage, Counter>,
    batch_items: Family<ByStage, Histogram>,
    conflicts: Counter,
    bursts_fallen_back: Counter,
    recorded: Family<ByStanding, Counter>,
    crossed: Family<ByLevel, Counter>,
    pub claims_under_way: Gauge,
    pub requests_waiting: Gauge,
    waiting: Family<ByStage, Gauge>,
    pub counters_available: Gauge,
    pub ledger_answers: Gauge,
    pub ledger_waits_for_standby: Gauge,
    pub synchronous_standbys: Gauge<f64, AtomicU64>,
    clock_offset: Gauge<f64, AtomicU64>,
    wall_clock_offset: Gauge<f64, AtomicU64>,
    untimely: Counter,
    pub zone_rules_age: Gauge,
    provisional_queue: Gauge,
    reconciliations: Counter,
    drift: Gauge,
    pub ledger_alarms: Gauge,
    pub record_lag: Gauge<f64, AtomicU64>,
    pub figures_lag: Gauge<f64, AtomicU64>,
    lapses: Counter,
    lapses_lag: Gauge<f64, AtomicU64>,
    pub seal_lag: Gauge<f64, AtomicU64>,
    pub seal_push_failures: Gauge,
    pub standby_lag: Gauge<f64, AtomicU64>,
    wrong_keys: Counter,
    unknown_reads: Counter,
    reads_recorded: Counter,
    reads_refused: Counter,
    pub unreadable_policies: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            claims: Family::default(),
            claim_seconds: seconds(),
            stage_seconds: Family::new_with_constructor(seconds),
            stage_failures: Family::default(),
            batch_items: Family::new_with_constructor(items),
            conflicts: Counter::default(),
            bursts_fallen_back: Counter::default(),
            recorded: Family::default(),
            crossed: Family::default(),
            claims_under_way: Gauge::default(),
            requests_waiting: Gauge::default(),
            waiting: Family::default(),
            counters_available: Gauge::default(),
            ledger_answers: Gauge::default(),
            ledger_waits_for_standby: Gauge::default(),
            synchronous_standbys: Gauge::default(),
            clock_offset: Gauge::default(),
            wall_clock_offset: Gauge::default(),
            untimely: Counter::default(),
            zone_rules_age: Gauge::default(),
            provisional_queue: Gauge::default(),
            reconciliations: Counter::default(),
            drift: Gauge::default(),
            ledger_alarms: Gauge::default(),
            record_lag: Gauge::default(),
            figures_lag: Gauge::default(),
            lapses: Counter::default(),
            lapses_lag: Gauge::default(),
            seal_lag: Gauge::default(),
            seal_push_failures: Gauge::default(),
            standby_lag: Gauge::default(),
            wrong_keys: Counter::default(),
            unknown_reads: Counter::default(),
            reads_recorded: Counter::default(),
            reads_refused: Counter::default(),
            unreadable_policies: Gauge::default(),
        };
        metrics.registry = Arc::new(metrics.register());
        metrics
    }
}

/// From 100 µs to 6.5 s; each bucket is twice as large as the one before.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 17))
}

fn items() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 11))
}

impl Metrics {
    fn register(&self) -> Registry {
        let mut registry = Registry::with_prefix("perdiem");
        self.register_way(&mut registry);
        self.register_state(&mut registry);
        registry
    }

    /// The metrics of the way of claims.
    fn register_way(&self, registry: &mut Registry) {
        registry.register("claims", "Claims by outcome", self.claims.clone());
        registry.register(
            "crossed",
            "Entries that brought a limit to a level of use in percent, where the policy watches it",
            self.crossed.clone(),
        );
        registry.register_with_unit(
            "claim",
            "Time from the arrival of a claim to its decision",
            Unit::Seconds,
            self.claim_seconds.clone(),
        );
        registry.register_with_unit(
            "stage",
            "Time of a batch in a stage",
            Unit::Seconds,
            self.stage_seconds.clone(),
        );
        registry.register(
            "stage_failures",
            "Batches that failed in a stage and were tried again or elsewhere",
            self.stage_failures.clone(),
        );
        registry.register(
            "batch_items",
            "Claims, settlements or grants in a batch",
            self.batch_items.clone(),
        );
        registry.register(
            "conflicts",
            "Accounts of a batch that lost to another instance",
            self.conflicts.clone(),
        );
        registry.register(
            "bursts_fallen_back",
            "Batches that met another writer and were appended under guard, or met a ledger that \
             went back in time and were decided again",
            self.bursts_fallen_back.clone(),
        );
        registry.register(
            "claims_under_way",
            "Claims that are not decided yet",
            self.claims_under_way.clone(),
        );
        registry.register(
            "requests_waiting",
            "Requests that wait for an entry",
            self.requests_waiting.clone(),
        );
        registry.register(
            "waiting",
            "Claims, or settlements, that wait for a stage",
            self.waiting.clone(),
        );
    }

    /// The metrics of the stores, the clock, the queues of counted grants and the callers.
    fn register_state(&self, registry: &mut Registry) {
        registry.register(
            "recorded",
            "Grants that Redis decided and the ledger recorded, by standing",
            self.recorded.clone(),
        );
        registry.register(
            "counters_available",
            "1 while Redis is available, 0 while the breaker is open or there is no Redis",
            self.counters_available.clone(),
        );
        registry.register(
            "ledger_answers",
            "1 while the ledger answers, 0 while it does not",
            self.ledger_answers.clone(),
        );
        registry.register(
            "ledger_waits_for_standby",
            "1 while commits of the ledger wait for a synchronous standby, 0 while they do not",
            self.ledger_waits_for_standby.clone(),
        );
        registry.register(
            "synchronous_standbys",
            "Synchronous standbys that are connected to the ledger's server; NaN if that is not known",
            self.synchronous_standbys.clone(),
        );
        registry.register_with_unit(
            "clock_offset",
            "How far the clock is ahead of the ledger's clock, at the last look",
            Unit::Seconds,
            self.clock_offset.clone(),
        );
        registry.register_with_unit(
            "wall_clock_offset",
            "How far the machine's wall clock is ahead of the clock of this instance, at the last look",
            Unit::Seconds,
            self.wall_clock_offset.clone(),
        );
        registry.register(
            "untimely_drafts",
            "Drafts that the ledger refused because their instants were too far from its clock",
            self.untimely.clone(),
        );
        registry.register_with_unit(
            "zone_rules_age",
            "Age of the release of the rules of time zones",
            Unit::Seconds,
            self.zone_rules_age.clone(),
        );
        registry.register(
            "provisional_queue",
            "Grants that Redis decided and that wait for the ledger, at the last count",
            self.provisional_queue.clone(),
        );
        registry.register(
            "reconciliations",
            "Reconciliations that this instance finished",
            self.reconciliations.clone(),
        );
        registry.register(
            "drift",
            "Counters that differed from the ledger in this instance's last reconciliation",
            self.drift.clone(),
        );
        registry.register(
            "ledger_alarms",
            "Places where the newest reconciliation found that the ledger contradicts itself",
            self.ledger_alarms.clone(),
        );
        registry.register(
            "unreadable_policies",
            "Policies whose claims this instance cannot decide, since it cannot read their terms",
            self.unreadable_policies.clone(),
        );
        registry.register_with_unit(
            "record_lag",
            "Age of the oldest commit that may have no position in the record yet",
            Unit::Seconds,
            self.record_lag.clone(),
        );
        registry.register_with_unit(
            "figures_lag",
            "Age of the oldest position that may not be in the statistics yet",
            Unit::Seconds,
            self.figures_lag.clone(),
        );
        registry.register(
            "lapses_recorded",
            "Lapses that this instance recorded because no decision of their accounts did",
            self.lapses.clone(),
        );
        registry.register_with_unit(
            "lapses_lag",
            "Age of the oldest end of a hold whose lapse is due and not recorded; 0 if there is none",
            Unit::Seconds,
            self.lapses_lag.clone(),
        );
        registry.register_with_unit(
            "seal_lag",
            "Age of the oldest position that is not sealed; 0 if nothing waits for a seal",
            Unit::Seconds,
            self.seal_lag.clone(),
        );
        registry.register(
            "seal_push_failures",
            "Pushes of a seal to PERDIEM_SEAL_TO that failed",
            self.seal_push_failures.clone(),
        );
        registry.register_with_unit(
            "standby_lag",
            "How old the answers of an instance that only reads are at most; NaN if that is not known, \
             0 at any other instance",
            Unit::Seconds,
            self.standby_lag.clone(),
        );
        registry.register(
            "wrong_keys",
            "Requests with an invalid key",
            self.wrong_keys.clone(),
        );
        registry.register(
            "unknown_reads",
            "Reads of the ledger for policies and keys that this instance did not know",
            self.unknown_reads.clone(),
        );
        registry.register(
            "reads_recorded",
            "Acts of reads that this instance added to the record",
            self.reads_recorded.clone(),
        );
        registry.register(
            "reads_refused",
            "Reads that were not answered because too many were to be recorded in a second",
            self.reads_refused.clone(),
        );
    }

    /// Notes the outcome of a claim that came at an instant.
    pub fn claim_ended(&self, outcome: &'static str, came: Instant) {
        self.claims.get_or_create(&ByOutcome { outcome }).inc();
        self.claim_seconds.observe(came.elapsed().as_secs_f64());
    }

    /// How many claims ended undecided, because the ledger did not answer them in time or at all.
    pub fn undecided_claims(&self) -> u64 {
        let count = |outcome| {
            let counter = self.claims.get(&ByOutcome { outcome });
            counter.map_or(0, |counter| counter.get())
        };
        count("deadline") + count("failed")
    }

    /// Runs a stage for a batch and notes its time.
    pub async fn timed<T, E>(
        &self,
        stage: Stage,
        items: usize,
        work: Pin<&mut impl Future<Output = Result<T, E>>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = work.await;
        self.note(stage, items, began.elapsed());
        if result.is_err() {
            self.stage_failures.get_or_create(&stage.label()).inc();
        }
        result
    }

    fn note(&self, stage: Stage, items: usize, time: Duration) {
        let stage = stage.label();
        let seconds = self.stage_seconds.get_or_create(&stage);
        seconds.observe(time.as_secs_f64());
        // Two families are never locked at the same time.
        drop(seconds);
        self.batch_items.get_or_create(&stage).observe(items as f64);
    }

    /// Notes accounts that lost to another instance.
    pub fn conflicts(&self, accounts: usize) {
        self.conflicts.inc_by(accounts as u64);
    }

    /// Notes a batch whose burst was refused.
    pub fn burst_fell_back(&self) {
        self.bursts_fallen_back.inc();
    }

    /// Notes the levels of use that committed entries reached.
    pub fn crossed(&self, entries: &[Entry]) {
        for percent in entries.iter().flat_map(|entry| entry.crossed.percents()) {
            self.crossed.get_or_create(&ByLevel { percent }).inc();
        }
    }

    /// Notes a counted grant that the ledger recorded.
    pub fn recorded(&self, provisional: Provisional) {
        self.note_standing(match provisional {
            Provisional::Within => "within",
            Provisional::Over => "over",
        });
    }

    /// Notes a counted grant that the ledger already had.
    pub fn repeated(&self) {
        self.note_standing("repeated");
    }

    /// Notes a counted grant that the ledger cannot record.
    pub fn set_aside(&self) {
        self.note_standing("set_aside");
    }

    fn note_standing(&self, standing: &'static str) {
        self.recorded.get_or_create(&ByStanding { standing }).inc();
    }

    /// Notes how many grants wait for the ledger.
    pub fn provisional_queue(&self, length: u64) {
        self.provisional_queue.set(length.cast_signed());
    }

    /// Notes the result of a reconciliation.
    pub fn reconciled(&self, tally: &Tally) {
        self.reconciliations.inc();
        let drift = tally.differences - tally.alarms;
        self.drift.set(drift.cast_signed());
    }

    /// Notes a request with an invalid key.
    pub fn wrong_key(&self) {
        self.wrong_keys.inc();
    }

    /// Notes acts of reads that were added.
    pub fn reads_recorded(&self, acts: usize) {
        self.reads_recorded.inc_by(acts as u64);
    }

    /// Notes a read that was refused.
    pub fn read_refused(&self) {
        self.reads_refused.inc();
    }

    /// Notes a read of the ledger for something unknown.
    pub fn unknown_read(&self) {
        self.unknown_reads.inc();
    }

    /// Notes how far the clock is ahead of the ledger's clock.
    /// The ledger refused the instants of a draft.
    pub fn untimely(&self) {
        self.untimely.inc();
    }

    /// Notes lapses that were recorded without a decision.
    pub fn lapses_recorded(&self, lapses: usize) {
        self.lapses.inc_by(lapses as u64);
    }

    /// Notes the age of the oldest lapse that is due.
    pub fn lapses_lag(&self, age: TimeDelta) {
        self.lapses_lag.set(age.as_seconds_f64());
    }

    pub fn wall_clock_offset(&self, seconds: f64) {
        self.wall_clock_offset.set(seconds);
    }

    pub fn clock_offset(&self, seconds: f64) {
        self.clock_offset.set(seconds);
    }

    /// All metrics, in the text format of OpenMetrics 1.0, with the figures of some days of policies.
    pub fn text(&self, days: &[PolicyDay]) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &of_policies(days)))
            .and_then(|()| encode_eof(&mut text))
            .expect("a text takes everything");
        text
    }

    /// Of an instance that only reads: others do this work, and Prometheus takes the least lag of all.
    pub fn leave_lags_to_others(&self) {
        for lag in [
            &self.record_lag,
            &self.figures_lag,
            &self.lapses_lag,
            &self.seal_lag,
        ] {
            lag.set(f64::NAN);
        }
    }

    pub fn waiting(&self, stage: Stage, items: usize) {
        let gauge = self.waiting.get_or_create(&stage.label());
        gauge.set(items.cast_signed() as i64);
    }
}

/// The metrics of policies. They are made for each answer, because a policy that is no longer shown must leave
/// nothing behind.
fn of_policies(days: &[PolicyDay]) -> Registry {
    let mut registry = Registry::with_prefix("perdiem");
    if days.is_empty() {
        return registry;
    }
    let units = Family::<ByPolicy, Gauge>::default();
    let claims = Family::<ByPolicyAndOutcome, Gauge>::default();
    for day in days {
        let policy = day.policy_name.to_string();
        let figures = &day.figures;
        for (outcome, number) in [
            ("granted", figures.grants),
            ("denied", figures.denied_claims),
        ] {
            let policy = policy.clone();
            let gauge = claims.get_or_create(&ByPolicyAndOutcome { policy, outcome });
            gauge.set(number.cast_signed());
        }
        let gauge = units.get_or_create(&ByPolicy { policy });
        gauge.set(figures.units.cast_signed());
    }
    registry.register(
        "policy_units",
        "Units granted on the present local day of a policy",
        units,
    );
    registry.register(
        "policy_claims",
        "Claims of the present local day of a policy, by outcome",
        claims,
    );
    registry
}
