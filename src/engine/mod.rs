//! The use cases: claim, read usage, edit a policy or a key, list grants, reconcile. It alone decides the
//! order of writes.

mod access;
mod append;
mod ask;
mod atomic;
mod backtest;
mod batch;
mod changes;
mod claim;
mod compare;
mod corrections;
mod count;
mod cursor;
mod denied;
mod drain;
mod drain_signal;
mod edit;
mod find;
mod findings;
mod grants;
mod group;
mod health;
mod keys;
mod learn;
mod metrics;
mod overrides;
mod pace;
mod pending;
mod places;
mod policies;
mod recent;
mod reconcile;
mod settle;
mod submit;
mod totals;
mod unknown;
mod walk;
mod windows;
mod wrong_keys;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::clock::Clock;
use crate::counter::{CounterError, Counters, RedisAccess};
use crate::domain::policy::PolicyName;
use crate::domain::zones;
use crate::ledger::{Ledger, LedgerError, LedgerOptions, OpenError, READS_MOST, SNAPSHOTS_MOST};
use crate::running::RunningTime;

pub use access::{AdminKeyError, Principal, generate_secret};
pub use atomic::Member;
pub use backtest::Backtested;
pub use changes::ChangeQuery;
pub use claim::{ClaimFailure, Rehearsal, Usage};
pub use corrections::{Adjustment, Correction};
pub use cursor::InvalidCursor;
pub use edit::{EditError, PolicyChange, Precondition};
pub use grants::{GrantPage, GrantQuery};
pub use health::{Health, Trouble};
pub use keys::KeyError;
pub use pending::{Outcome, Undecided};
pub use places::Place;
pub use reconcile::ReconcileFailure;
pub use submit::Admission;
pub use windows::WindowQuery;
pub use wrong_keys::WrongKeyAnswer;

use access::{Access, AdminKey};
use append::Appender;
use ask::Asker;
use count::Counting;
use drain::Drainer;
use drain_signal::DrainSignal;
use health::{Watch, Watcher};
use metrics::Metrics;
use pending::{KeysInProgress, Pending};
use places::Places;
use policies::Policies;
use recent::Recent;
use reconcile::Reconciler;
use settle::SettleQueue;
use wrong_keys::WrongKeys;

/// Transactions of claims at once: one on SQLite, which has one writer.
const POSTGRES_LANES: usize = 2;
const SQLITE_LANES: usize = 1;
/// Edits at once.
const EDITS_MOST: usize = 8;
/// How far a clock is taken to be off the ledger's where nobody looks.
const UNLOOKED_TOLERANCE: TimeDelta = TimeDelta::seconds(10);

/// What an engine is built from.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The ledger's URL.
    pub database_url: String,
    /// The counters' URL; without it the ledger decides alone.
    pub redis_url: Option<String>,
    /// What it takes to use that Redis and its URL does not say.
    pub redis_access: RedisAccess,
    /// An admin key to accept from the start.
    pub admin_key: Option<String>,
    /// The longest that a claim may take.
    pub claim_deadline: Duration,
    /// The longest that anything else may take to be answered.
    pub answer_time: Duration,
    /// The longest that Redis may take to answer.
    pub redis_timeout: Duration,
    /// How many claims may be under way at once.
    pub claims_most: usize,
    /// How far the clock may be off the ledger's; `None` does not look.
    pub clock_tolerance: Option<TimeDelta>,
    /// How often counters are compared with the ledger, and healed; `None` never does it.
    pub reconcile_every: Option<Duration>,
    /// The source of time.
    pub clock: Clock,
}

/// Why an engine could not be built. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The ledger could not be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// The ledger could not be read.
    #[error("the ledger cannot be read: {0}; see that the database is up, and start again")]
    Read(#[source] LedgerError),
    /// The counters cannot be used.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The admin key of the settings cannot be used.
    #[error(transparent)]
    AdminKey(#[from] AdminKeyError),
}

/// A use case's failure that is not the caller's.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The ledger could not be used.
    #[error("the ledger failed")]
    Ledger(#[from] Arc<LedgerError>),
    /// The ledger does not answer, and only it can tell.
    #[error("the ledger does not answer")]
    Silent,
    /// The ledger has no grant with the id, and one that Redis counted may wait for it.
    #[error("a grant with this id may wait for the ledger")]
    MayWait,
    /// The instance is ending, or the work ended abruptly.
    #[error("the work was interrupted")]
    Interrupted,
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(Arc::new(error))
    }
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListFailure {
    /// There never was such a policy.
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    /// The cursor is not this list's.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// Too many exports and backtests are under way.
    #[error("too many exports and backtests are under way")]
    Overloaded,
    /// Not the caller's fault.
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// What callers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// What is read from the ledger.
    Reads,
    /// What admins change.
    Edits,
}

/// Where claims wait.
struct Queues {
    /// For the counters' word; without counters, as `append`.
    ask: mpsc::Sender<Pending>,
    /// For Redis to decide.
    count: mpsc::Sender<Pending>,
    /// For the ledger.
    append: mpsc::Sender<Pending>,
    /// What goes into the counters afterwards.
    settle: SettleQueue,
}

/// The engine: every use case is a method of it.
pub struct Engine {
    runtime: Handle,
    clock: Clock,
    running_time: Arc<RunningTime>,
    ledger: Ledger,
    counters: Option<Counters>,
    counting: Option<Arc<Counting>>,
    metrics: Metrics,
    policies: Arc<Policies>,
    recent: Arc<Recent>,
    access: Arc<Access>,
    wrong_keys: WrongKeys,
    watch: Arc<Watch>,
    /// What runs beside the claims.
    background: Vec<AbortHandle>,
    reconciler: Arc<Reconciler>,
    keys_in_progress: KeysInProgress,
    queues: Queues,
    claims_under_way: Places,
    /// Exports and backtests.
    snapshots: Places,
    /// Answers that are read from the ledger, until they are written.
    reads: Places,
    edits: Places,
    claim_deadline: Duration,
    answer_time: Duration,
}

impl Engine {
    /// Opens the stores, reads the policies and keys, and starts the workers.
    ///
    /// # Errors
    /// [`BuildError`], each with what to do.
    pub async fn build(options: EngineOptions) -> Result<Arc<Self>, BuildError> {
        let EngineOptions { clock, .. } = options;
        // To read the zones takes a while; nobody should wait for it later.
        let zone_rules = zones::rules().to_string();
        tracing::debug!(zone_rules, "the rules of time zones are read");
        let ledger_options = LedgerOptions {
            url: options.database_url,
            claim_timeout: options.claim_deadline * 3 / 4,
            // With a quarter of it for the connection before the answer's time is over: nothing
            // is under way for a caller whose place is free again.
            query_timeout: options.answer_time * 3 / 4,
        };
        let ledger = Ledger::open(&ledger_options, clock.now()).await?;
        let counters = match &options.redis_url {
            Some(url) => {
                let (access, id) = (&options.redis_access, ledger.identity().id);
                Some(Counters::open(url, access, id, options.redis_timeout).await?)
            }
            None => None,
        };
        let admin_key = options.admin_key.as_deref().map(AdminKey::new);
        let access = Access::open(&ledger, admin_key.transpose()?).await;
        let access = access.map_err(BuildError::Read)?;
        let policies = Policies::load(&ledger, access.clone()).await;
        let policies = Arc::new(policies.map_err(BuildError::Read)?);
        let watch = Watch::new();
        let metrics = Metrics::default();
        let running_time = RunningTime::begin();
        let watcher = Watcher {
            watch: watch.clone(),
            running_time: running_time.clone(),
            ledger: ledger.clone(),
            clock: clock.clone(),
            policies: policies.clone(),
            tolerance: options.clock_tolerance,
            instance: Uuid::new_v4(),
            metrics: metrics.clone(),
        };
        watcher.begin().await;
        let mut background = vec![tokio::spawn(watcher.run()).abort_handle()];
        let reconciler = Reconciler::new(
            ledger.clone(),
            counters.clone(),
            clock.clone(),
            watch.clone(),
            metrics.clone(),
        );
        if let Some(every) = options.reconcile_every {
            let now_and_then = reconciler.clone().run(every);
            background.push(tokio::spawn(now_and_then).abort_handle());
        }
        let recent = Arc::new(Recent::default());
        let parts = Parts {
            ledger: &ledger,
            counters: counters.as_ref(),
            clock: &clock,
            policies: &policies,
            recent: &recent,
            watch: &watch,
            metrics: &metrics,
            claims_most: options.claims_most,
            // Each is off the ledger's by the tolerance at most.
            clocks_differ: options.clock_tolerance.unwrap_or(UNLOOKED_TOLERANCE) * 2,
        };
        let (queues, counting) = parts.start_workers(&mut background);
        let engine = Self {
            runtime: Handle::current(),
            clock,
            running_time,
            ledger,
            counters,
            counting,
            metrics,
            policies,
            recent,
            access,
            wrong_keys: WrongKeys::default(),
            watch,
            background,
            reconciler,
            keys_in_progress: KeysInProgress::default(),
            queues,
            claims_under_way: Places::new(options.claims_most),
            snapshots: Places::new(SNAPSHOTS_MOST as usize),
            reads: Places::new(READS_MOST as usize),
            edits: Places::new(EDITS_MOST),
            claim_deadline: options.claim_deadline,
            answer_time: options.answer_time,
        };
        Ok(Arc::new(engine))
    }

    /// Makes an admin key for a ledger that has no key, unless the engine was given one, and
    /// returns its secret, which nobody can read again: call it when nothing else can fail.
    ///
    /// # Errors
    /// [`BuildError::Read`].
    pub async fn add_first_key(&self) -> Result<Option<String>, BuildError> {
        let added = self.access.add_first_key(&self.ledger, self.now()).await;
        added.map_err(BuildError::Read)
    }

    /// Whether there are counters, answering or not.
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// The present instant.
    pub fn now(&self) -> chrono::DateTime<chrono::Utc> {
        self.clock.now()
    }

    /// A place among the reads, or among the edits; `None` when its caller has too many until a
    /// deadline.
    pub async fn place(&self, share: Share, caller: &Arc<str>, deadline: Instant) -> Option<Place> {
        let places = match share {
            Share::Reads => &self.reads,
            Share::Edits => &self.edits,
        };
        places.take(caller, deadline).await
    }

    /// The longest that anything but a claim may take to be answered.
    pub fn answer_time(&self) -> Duration {
        self.answer_time
    }

    /// The time in which the process ran.
    pub fn running_time(&self) -> Arc<RunningTime> {
        self.running_time.clone()
    }

    /// Waits until then at most for the claims under way, and closes the stores. Nothing may
    /// call the engine afterwards.
    pub async fn close(&self, deadline: Instant) {
        if timeout_at(deadline, self.claims_under_way.emptied())
            .await
            .is_err()
        {
            tracing::warn!("claims were still under way at the end of the drain time");
        }
        for task in &self.background {
            task.abort();
        }
        if timeout_at(deadline, self.ledger.close()).await.is_err() {
            tracing::warn!("the ledger's connections did not close in time");
        }
    }

    /// Runs work that ends the same way whether or not anybody still listens: a handler's
    /// future is dropped when its client goes away, and a transaction must not be.
    fn detached<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Failure>> + use<T, W> {
        let work = tracing::Instrument::in_current_span(work);
        let task = self.runtime.spawn(work);
        async move { task.await.map_err(|_| Failure::Interrupted) }
    }

    /// A new random number.
    fn nonce() -> u64 {
        Uuid::new_v4().as_u64_pair().1
    }
}

/// What the workers are made of.
struct Parts<'a> {
    ledger: &'a Ledger,
    counters: Option<&'a Counters>,
    clock: &'a Clock,
    policies: &'a Arc<Policies>,
    recent: &'a Arc<Recent>,
    watch: &'a Arc<Watch>,
    metrics: &'a Metrics,
    claims_most: usize,
    clocks_differ: TimeDelta,
}

impl Parts<'_> {
    /// Starts the workers of a claim's way: ask, count, append, settle, drain. They end when
    /// their queues' senders are gone, but for those that are in the background.
    fn start_workers(&self, background: &mut Vec<AbortHandle>) -> (Queues, Option<Arc<Counting>>) {
        // Each claim is in one queue at most, so that none is ever full.
        let (append, to_append) = mpsc::channel(self.claims_most);
        let (count, to_count) = mpsc::channel(self.claims_most);
        let settle = match self.counters {
            Some(counters) => {
                let (queue, jobs) = SettleQueue::new();
                let settling = settle::settle_all(
                    jobs,
                    counters.clone(),
                    self.ledger.clone(),
                    self.metrics.clone(),
                );
                tokio::spawn(settling);
                queue
            }
            None => SettleQueue::none(),
        };
        let appender = Appender {
            ledger: self.ledger.clone(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            recent: self.recent.clone(),
            settle: settle.clone(),
            watch: self.watch.clone(),
            count: count.downgrade(),
            metrics: self.metrics.clone(),
        };
        let lanes = match self.ledger {
            Ledger::Postgres(_) => POSTGRES_LANES,
            Ledger::Sqlite(_) => SQLITE_LANES,
        };
        tokio::spawn(append::append_all(Arc::new(appender), to_append, lanes));
        let Some(counters) = self.counters else {
            let ask = append.clone();
            let queues = Queues {
                ask,
                count,
                append,
                settle,
            };
            return (queues, None);
        };
        let drain = DrainSignal::default();
        let drainer = Drainer {
            counters: counters.clone(),
            ledger: self.ledger.clone(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            signal: drain.clone(),
            watch: self.watch.clone(),
            metrics: self.metrics.clone(),
        };
        background.push(tokio::spawn(drainer.run()).abort_handle());
        let counting = Arc::new(Counting {
            counters: counters.clone(),
            ledger: self.ledger.clone(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            watch: self.watch.clone(),
            again: count.downgrade(),
            append: append.downgrade(),
            settle: settle.clone(),
            drain: drain.clone(),
            clocks_differ: self.clocks_differ,
            metrics: self.metrics.clone(),
        });
        tokio::spawn(count::count_all(counting.clone(), to_count));
        let (deny, to_deny) = mpsc::channel(self.claims_most);
        let denying = denied::end_all_denied(self.ledger.clone(), append.clone(), to_deny);
        tokio::spawn(denying);
        let (ask, to_ask) = mpsc::channel(self.claims_most);
        let asker = Asker {
            counters: counters.clone(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            deny,
            append: append.clone(),
            count: count.clone(),
            again: ask.downgrade(),
            drain,
            metrics: self.metrics.clone(),
        };
        tokio::spawn(ask::ask_all(Arc::new(asker), to_ask));
        let queues = Queues {
            ask,
            count,
            append,
            settle,
        };
        (queues, Some(counting))
    }
}
