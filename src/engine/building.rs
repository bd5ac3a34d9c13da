//! How an engine is built: it opens the stores, reads the policies and keys, and starts the workers
//! of all parts.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{BuildError, Engine, EngineOptions};
use admin::{Admin, Eraser, Proposals};
use claims::Claims;
use claims::counted::{Counting, Drainer, ask_ledger_all, count_again_all, count_all};
use claims::instance::{
    Access, AdminKey, Callers, Denials, DrainSignal, Instance, KeyUseWriter, Memory, Metrics,
    Places, Policies, Standby, Watch, Watcher, WrongKeys,
};
use claims::lapses::LapseSweep;
use claims::protocol::{
    Dispatch, Groups, KeysInProgress, LaneWorker, SettleQueue, ask_all, probe_all, settle_all,
};
use counter::Counters;
use domain::zones;
use host::clock::{Clock, FollowedClock};
use host::running::RunningTime;
use host::zone_rules;
use ledger::{Ledger, LedgerOptions, READS_MOST, SNAPSHOTS_MOST, TimeBounds};
use record::audit::Audit;
use record::following::follow;
use record::reconcile::Reconciler;
use record::seal::{SealPusher, SealStatus, Sealer};
use record::statistics::{BusiestPolicies, DayCloser, DenialWriter, FigureFollower};
use record::{LedgerFollower, ReadRecorder, Record, RecordProgress, SharedReads, StandbyFollower};

/// The number of claims' transactions at once. SQLite has one writer, so one there.
const POSTGRES_LANES: usize = 2;
const SQLITE_LANES: usize = 1;
/// The number of edits at once.
const EDITS_MOST: usize = 8;
/// The number of requests that wait for entries at once. One caller alone gets half of them. A wait
/// costs a connection, and no read.
const WAITS_MOST: usize = 16_384;
/// The assumed error of clocks, if clocks are not checked.
const UNLOOKED_TOLERANCE: TimeDelta = TimeDelta::seconds(10);

impl Engine {
    /// Opens the stores, reads the policies and keys, and starts the workers.
    ///
    /// # Errors
    /// [`BuildError`], each with what to do.
    pub fn build(options: EngineOptions) -> BoxFuture<'static, Result<Arc<Self>, BuildError>> {
        // The box keeps the code of all workers in this crate.
        Box::pin(Self::built(options))
    }

    async fn built(mut options: EngineOptions) -> Result<Arc<Self>, BuildError> {
        // Reading the zones takes some time; do it before the first request.
        zone_rules::install();
        let rules = zones::rules().to_string();
        tracing::debug!(zone_rules = rules, "the rules of time zones were read");
        let own_clock = FollowedClock::new(options.clock.clone());
        let clock = Clock::Followed(own_clock.clone());
        let (ledger, counters) = open_stores(&options, &clock).await?;
        let admin_key = options.admin_key.as_deref().map(AdminKey::new);
        let access = Access::open(ledger.admin(), admin_key.transpose()?).await;
        let access = access.map_err(BuildError::Read)?;
        let policies = Policies::load(ledger.admin(), access.clone()).await;
        let policies = Arc::new(policies.map_err(BuildError::Read)?);
        let watch = Watch::new();
        let metrics = Metrics::default();
        let running_time = RunningTime::begin();
        let watcher = Watcher {
            watch: watch.clone(),
            running_time: running_time.clone(),
            ledger: ledger.clone(),
            clock: own_clock,
            policies: policies.clone(),
            tolerance: options.clock_tolerance,
            instance: Uuid::new_v4(),
            reports: !options.read_only,
            metrics: metrics.clone(),
        };
        watcher.begin().await;
        let mut background = Background {
            tasks: vec![spawn_boxed(watcher.run())],
            may_write: !options.read_only,
        };
        let under_way = Places::new(options.claims_most);
        let parts = WorkerParts {
            ledger: &ledger,
            counters: counters.as_ref(),
            clock: &clock,
            policies: &policies,
            watch: &watch,
            metrics: &metrics,
            claims_most: options.claims_most,
            under_way: &under_way,
            // Each clock is off the ledger's by at most the tolerance.
            clocks_differ: options.clock_tolerance.unwrap_or(UNLOOKED_TOLERANCE) * 2,
            claim_time: options.claim_deadline,
        };
        let progress = parts.start_following(&mut background);
        let read_recorder = options
            .record_reads
            .then(|| parts.start_recording_reads(&mut background));
        let standby = if options.read_only {
            Some(parts.follow_standby(&progress, &mut background).await?)
        } else {
            None
        };
        if let (None, Some(make)) = (&options.seal_key, options.make_seal_key) {
            options.seal_key = make(&options.database_url);
        }
        let seals = parts.start_sealing(&options, &mut background);
        let denials = Arc::new(Denials::default());
        let denial_writer = parts.start_counting_days(denials.clone(), &progress, &mut background);
        let key_use_writer = parts.start_writing_key_uses(&access, &mut background);
        let reconciler = parts.start_reconciling(options.reconcile_every, &mut background);
        let eraser = parts.start_erasing(&mut background);
        let (dispatch, counting) = parts.start_workers(&mut background);
        parts.start_recording_lapses(options.record_lapses_after, &dispatch, &mut background);
        let instance = Arc::new(Instance {
            runtime: Handle::current(),
            clock,
            ledger: ledger.admin(),
            policies,
            watch,
            standby,
            metrics,
            has_counters: counters.is_some(),
            claim_time: options.claim_deadline,
            answer_time: options.answer_time,
        });
        let callers = Arc::new(Callers {
            instance: instance.clone(),
            access,
            wrong_keys: WrongKeys::default(),
            reads: Places::new(READS_MOST as usize),
            edits: Places::new(EDITS_MOST),
            waits: Places::new(WAITS_MOST),
            snapshots: Places::new(SNAPSHOTS_MOST as usize),
        });
        let drain = counting.as_ref().map(|counting| counting.drain.clone());
        let claims = Arc::new(Claims {
            instance: instance.clone(),
            ledger: ledger.claims(),
            dispatch,
            counting,
            denials,
            keys_in_progress: KeysInProgress::default(),
            under_way,
        });
        let record = Arc::new(Record {
            instance: instance.clone(),
            ledger: ledger.clone(),
            callers: callers.clone(),
            claims: claims.clone(),
            progress,
            history_reads: SharedReads::default(),
            read_recorder,
            seals: options.seal_key.is_some(),
        });
        let audit = Arc::new(Audit {
            instance: instance.clone(),
            ledger: ledger.clone(),
            seal_key: options.seal_key,
            reconciler,
        });
        let admin = Arc::new(Admin {
            instance: instance.clone(),
            ledger: ledger.admin(),
            eraser,
            proposals: Proposals::new(options.four_eyes, ledger.identity(), callers.access.clone()),
            drain,
        });
        let busiest = (options.policy_metrics > 0).then(|| BusiestPolicies {
            instance: instance.clone(),
            figures: ledger.figures(),
            most: options.policy_metrics,
            last: Mutex::default(),
        });
        let engine = Self {
            instance,
            callers,
            claims,
            record,
            audit,
            admin,
            ledger,
            counters,
            seals,
            busiest,
            running_time,
            denial_writer,
            key_use_writer,
            background: background.tasks,
        };
        Ok(Arc::new(engine))
    }
}

/// Opens the ledger, and the counters if there is a Redis.
async fn open_stores(
    options: &EngineOptions,
    clock: &Clock,
) -> Result<(Ledger, Option<Counters>), BuildError> {
    let ledger_options = LedgerOptions {
        url: options.database_url.clone(),
        claim_timeout: options.claim_deadline * 3 / 4,
        // A connection is waited for a quarter of the query timeout. Both together stay below the
        // answer time, so that no work is left of a caller whose place is free again.
        query_timeout: options.answer_time * 3 / 4,
    };
    let now = options.clock.now();
    let ledger = if options.read_only {
        Ledger::open_to_read(&ledger_options, now).await?
    } else {
        Ledger::open(&ledger_options, now).await?
    };
    let ledger = match options.clock_tolerance {
        None => ledger,
        Some(tolerance) => ledger.within(TimeBounds {
            tolerance,
            // A decision waits less than this for its statement.
            delay: TimeDelta::from_std(options.claim_deadline).unwrap_or(TimeDelta::days(1)),
            clock: clock.clone(),
        }),
    };
    let counters = match &options.redis_url {
        Some(url) if !options.read_only => {
            let access = &options.redis_access;
            let id = ledger.identity().id;
            Some(Counters::open(url, access, id, options.redis_timeout).await?)
        }
        Some(_) | None => None,
    };
    Ok((ledger, counters))
}

/// The tasks that run beside the requests.
struct Background {
    tasks: Vec<AbortHandle>,
    /// An instance that only reads starts no worker that writes.
    may_write: bool,
}

impl Background {
    /// Starts a worker that may write, unless the instance only reads.
    fn start(&mut self, worker: impl Future<Output = ()> + Send + 'static) {
        if self.may_write {
            self.tasks.push(spawn_boxed(worker));
        }
    }

    /// As [`Background::start`]. A panic is a bug: the worker loses its batch, and a new one starts.
    fn keep_running<F>(&mut self, worker: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(async move {
            loop {
                let mut running = JoinSet::new();
                running.spawn(worker().boxed());
                running.join_next().await;
            }
        });
    }
}

/// Boxed, because otherwise the compiler would make all that a task needs again for each worker.
fn spawn_boxed(worker: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(worker.boxed()).abort_handle()
}

/// The parts that workers are made of.
struct WorkerParts<'a> {
    ledger: &'a Ledger,
    counters: Option<&'a Counters>,
    clock: &'a Clock,
    policies: &'a Arc<Policies>,
    watch: &'a Arc<Watch>,
    metrics: &'a Metrics,
    claims_most: usize,
    under_way: &'a Places,
    clocks_differ: TimeDelta,
    claim_time: Duration,
}

impl WorkerParts<'_> {
    fn start_following(&self, background: &mut Background) -> Arc<RecordProgress> {
        let progress = Arc::new(RecordProgress::new(Instant::now()));
        let follower = LedgerFollower {
            ledger: self.ledger.clone(),
            clock: self.clock.clone(),
            watch: self.watch.clone(),
            progress: progress.clone(),
        };
        background.keep_running(move || follower.clone().run());
        progress
    }

    fn start_recording_reads(&self, background: &mut Background) -> Arc<ReadRecorder> {
        let ledger = self.ledger.clone();
        let clock = self.clock.clone();
        let recorder = Arc::new(ReadRecorder::new(ledger, clock, self.metrics.clone()));
        let recording = recorder.clone();
        background.keep_running(move || recording.clone().run());
        recorder
    }

    /// Follows a standby, once it has said how far it is behind.
    async fn follow_standby(
        &self,
        progress: &Arc<RecordProgress>,
        background: &mut Background,
    ) -> Result<Arc<Standby>, BuildError> {
        let standby = Arc::new(Standby::default());
        let follower = StandbyFollower {
            ledger: self.ledger.clone(),
            standby: standby.clone(),
            progress: progress.clone(),
        };
        follower.look().await.map_err(BuildError::Read)?;
        background.tasks.push(spawn_boxed(follower.run()));
        Ok(standby)
    }

    fn start_sealing(
        &self,
        options: &EngineOptions,
        background: &mut Background,
    ) -> Arc<SealStatus> {
        let status = Arc::new(SealStatus::default());
        let Some(key) = options.seal_key.clone() else {
            return status;
        };
        let ledger = self.ledger.clone();
        let clock = self.clock.clone();
        let pusher = options.seal_to.clone().map(|target| {
            let pusher = SealPusher::new(target, clock.clone(), status.clone());
            let pushing = pusher.clone();
            background.keep_running(move || pushing.clone().run());
            pusher
        });
        let found = status.clone();
        let under_way = self.under_way.clone();
        let sealing = move || {
            let ledger = ledger.clone();
            let clock = clock.clone();
            let key = key.clone();
            let sealer = Sealer::new(ledger, clock, key, status.clone(), pusher.clone());
            follow(sealer, under_way.clone())
        };
        background.keep_running(sealing);
        found
    }

    fn start_counting_days(
        &self,
        denials: Arc<Denials>,
        progress: &Arc<RecordProgress>,
        background: &mut Background,
    ) -> Arc<DenialWriter> {
        let ledger = self.ledger.clone();
        let progress = progress.clone();
        let under_way = self.under_way.clone();
        let following = move || {
            let follower = FigureFollower::new(ledger.clone(), progress.clone());
            follow(follower, under_way.clone())
        };
        background.keep_running(following);
        let closer = DayCloser {
            ledger: self.ledger.clone(),
            clock: self.clock.clone(),
            watch: self.watch.clone(),
        };
        background.keep_running(move || closer.clone().run());
        let writer = DenialWriter::new(self.ledger.clone(), self.clock.clone(), denials);
        let writer = Arc::new(writer);
        let writing = writer.clone();
        background.keep_running(move || writing.clone().run());
        writer
    }

    fn start_writing_key_uses(
        &self,
        access: &Arc<Access>,
        background: &mut Background,
    ) -> Arc<KeyUseWriter> {
        let writer = Arc::new(KeyUseWriter {
            access: access.clone(),
            ledger: self.ledger.admin(),
            watch: self.watch.clone(),
        });
        let writing = writer.clone();
        background.keep_running(move || writing.clone().run());
        writer
    }

    fn start_reconciling(
        &self,
        every: Option<Duration>,
        background: &mut Background,
    ) -> Arc<Reconciler> {
        let reconciler = Reconciler::new(
            self.ledger.clone(),
            self.counters.cloned(),
            self.clock.clone(),
            self.watch.clone(),
            self.metrics.clone(),
        );
        if let Some(every) = every {
            let now_and_then = reconciler.clone().run(every);
            background.start(now_and_then);
        }
        reconciler
    }

    fn start_erasing(&self, background: &mut Background) -> Arc<Eraser> {
        let eraser = Arc::new(Eraser {
            ledger: self.ledger.clone(),
            counters: self.counters.cloned(),
            clock: self.clock.clone(),
            watch: self.watch.clone(),
            policies: self.policies.clone(),
            margin: self.clocks_differ
                + TimeDelta::from_std(self.claim_time).unwrap_or(TimeDelta::days(1)),
        });
        let erasing = eraser.clone();
        background.keep_running(move || erasing.clone().run());
        eraser
    }

    fn start_recording_lapses(
        &self,
        after: Option<TimeDelta>,
        dispatch: &Arc<Dispatch>,
        background: &mut Background,
    ) {
        let Some(after) = after else { return };
        let sweep = Arc::new(LapseSweep {
            ledger: self.ledger.claims(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            watch: self.watch.clone(),
            settle: dispatch.settle.clone(),
            metrics: self.metrics.clone(),
            after,
        });
        background.keep_running(move || sweep.clone().run());
    }

    /// Starts the workers of the claims' way: ask, probe, look, append, settle, count, drain.
    fn start_workers(&self, background: &mut Background) -> (Arc<Dispatch>, Option<Arc<Counting>>) {
        // Each claim is in at most one queue, so no queue is ever full.
        let (ask, to_ask) = mpsc::channel(self.claims_most);
        let (probe, to_probe) = mpsc::channel(self.claims_most);
        let (leave, to_count) = mpsc::channel(self.claims_most);
        let dispatch = Arc::new(Dispatch {
            clock: self.clock.clone(),
            terms: self.policies.terms.clone(),
            memory: Memory::default(),
            settle: self.start_settling(),
            ask,
            probe,
            leave,
            groups: Groups::default(),
        });
        self.start_lanes(&dispatch, background);
        let Some(counters) = self.counters else {
            return (dispatch, None);
        };
        let drain = DrainSignal::default();
        self.start_draining(counters, &drain, background);
        let (unsure, to_ask_about) = mpsc::channel(self.claims_most);
        let (again, to_count_again) = mpsc::channel(self.claims_most);
        let counting = Arc::new(Counting {
            unsure,
            again,
            counters: counters.clone(),
            ledger: self.ledger.claims(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            watch: self.watch.clone(),
            dispatch: dispatch.clone(),
            drain,
            clocks_differ: self.clocks_differ,
            claim_time: self.claim_time,
            metrics: self.metrics.clone(),
        });
        let metrics = self.metrics.clone();
        let asking = ask_all(dispatch.clone(), counters.clone(), metrics, to_ask);
        let probing = probe_all(dispatch.clone(), self.ledger.claims(), to_probe);
        let counting_all = count_all(counting.clone(), to_count);
        let asking_ledger = ask_ledger_all(counting.clone(), to_ask_about);
        background.start(asking);
        background.start(probing);
        background.start(counting_all);
        background.start(count_again_all(counting.clone(), to_count_again));
        background.start(asking_ledger);
        (dispatch, Some(counting))
    }

    fn start_settling(&self) -> SettleQueue {
        match self.counters {
            Some(counters) => {
                let (queue, jobs) = SettleQueue::new();
                let settling = settle_all(
                    jobs,
                    counters.clone(),
                    self.ledger.claims(),
                    self.metrics.clone(),
                );
                spawn_boxed(settling);
                queue
            }
            None => SettleQueue::none(),
        }
    }

    fn start_lanes(&self, dispatch: &Arc<Dispatch>, background: &mut Background) {
        let lanes = LaneWorker {
            dispatch: dispatch.clone(),
            ledger: self.ledger.claims(),
            policies: self.policies.clone(),
            watch: self.watch.clone(),
            metrics: self.metrics.clone(),
        };
        let beside = match self.ledger {
            Ledger::Postgres(_) => POSTGRES_LANES,
            Ledger::Sqlite(_) => SQLITE_LANES,
        };
        for _ in 0..beside {
            let looking = lanes.clone();
            let appending = lanes.clone();
            let together = lanes.clone();
            let shared = lanes.clone();
            background.keep_running(move || looking.clone().run_looks());
            background.keep_running(move || appending.clone().run_appends());
            background.keep_running(move || together.clone().run_together());
            background.keep_running(move || shared.clone().run_shared());
        }
        background.keep_running(move || lanes.clone().run_contended());
    }

    fn start_draining(
        &self,
        counters: &Counters,
        drain: &DrainSignal,
        background: &mut Background,
    ) {
        let drainer = Drainer {
            counters: counters.clone(),
            ledger: self.ledger.claims(),
            clock: self.clock.clone(),
            policies: self.policies.clone(),
            signal: drain.clone(),
            watch: self.watch.clone(),
            metrics: self.metrics.clone(),
        };
        background.start(drainer.run());
    }
}
