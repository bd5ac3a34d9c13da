//! The use cases, in eleven rooms. Every use case is a method of `Engine`. Only the engine decides the
//! order of writes.
//!
//! A room imports only from rooms that are named before it: `instance`, what an instance knows;
//! `claim`, the claims' way; `lapses`, holds that end; `counted`, claims that Redis decides alone; `reconcile`; `erasure`;
//! `record`, the one order of all entries and changes; `statistics`, the figures of days; `seal`,
//! the log of leaves; `archive`, its files; `admin`, what admins change and auditors read. `build`
//! opens the stores and starts the workers of all rooms.

mod admin;
mod archive;
mod build;
pub mod claim;
pub mod counted;
mod cursor;
mod erasure;
mod exported;
mod following;
pub mod instance;
pub mod lapses;
mod listed;
mod reconcile;
mod record;
mod seal;
mod statistics;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::clock::Clock;
use crate::counter::{CounterError, Counters, RedisAccess};
use crate::domain::policy::PolicyName;
use crate::domain::seal::note::SealKey;
use crate::ledger::{Ledger, OpenError};
use crate::running::RunningTime;

pub use admin::{
    Adjustment, Backtested, ChangeQuery, Correction, EditError, EditedTerms, GrantPage, GrantQuery,
    KeyError, PolicyChange, Precondition,
};
pub use archive::{
    ArchiveFailure, ArchiveIndex, ArchiveOrder, Archived, CheckedArchive, DroppedArchive,
    archive_ledger, check_archive, compare_archive, drop_archived,
};
pub use claim::{Admission, ClaimFailure, Foretold, Outcome, Rehearsal, Undecided, Usage};
pub use cursor::InvalidCursor;
pub use erasure::SubjectErasure;
pub use exported::{ExportPiece, ExportPieces};
pub use instance::{
    AdminKeyError, Authority, Health, KEY_OF_SETTINGS, Place, Principal, Trouble, WrongKeyAnswer,
    generate_secret, network_of,
};
pub use listed::{MadeBy, Misfit};
pub use reconcile::ReconcileFailure;
pub use record::{
    AsOf, Bound, ClaimQuery, DaySpan, EntryExport, ExplainedClaim, ExplainedGrant, ExportEnd,
    HistoryPage, HistoryQuery, InstantSpan, LimitThen, LimitsThen, LivedWindow, PlacedEntry,
    ReadFailure, RecordedEntry, SharedPage, WindowQuery,
};
pub use seal::{
    ConsistencyProof, DroppedLeaves, GivenSeal, SealFailure, SealPage, SealTarget, Verified,
    VerifyFailure, restart_seals, verify_ledger,
};
pub use statistics::{CheckedFigures, FigureOfDay, FigurePage, FigureQuery};

pub use crate::ledger::{
    Act, ActKind, ChangeKind, Changed, LedgerError, PastChange, ProvisionalScope, Seal, SealOrigin,
    Standing,
};

use claim::{Dispatch, KeysInProgress};
use counted::Counting;
use erasure::Eraser;
use instance::{Access, Denials, Metrics, Places, Policies, Standby, Watch, WrongKeys};
use reconcile::Reconciler;
use record::{HistoryQuestion, ReadRecorder, RecordProgress, SharedReads};
use seal::SealStatus;
use statistics::DenialWriter;

/// Makes a key for the seals of the ledger with a URL. `None` if there can be none.
pub type SealKeyMaker = fn(&str) -> Option<Arc<SealKey>>;

/// What an engine is built from.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    pub database_url: String,
    /// Whether to write nothing, so that the ledger may be a standby. Then there are no claims and no
    /// changes, and the counters, seals and reconciliations of these options are not used.
    pub read_only: bool,
    /// The counters' URL. Without it the ledger decides alone.
    pub redis_url: Option<String>,
    /// The settings for Redis that are not in its URL.
    pub redis_access: RedisAccess,
    /// An admin key that is valid from the start.
    pub admin_key: Option<String>,
    /// The longest time of a claim.
    pub claim_deadline: Duration,
    /// The longest time of any other answer.
    pub answer_time: Duration,
    /// The longest time of an answer of Redis.
    pub redis_timeout: Duration,
    /// The most claims at once.
    pub claims_most: usize,
    /// How far the clock may be off the ledger's clock; `None` for no check.
    pub clock_tolerance: Option<TimeDelta>,
    /// How often to compare and heal the counters; `None` for never.
    pub reconcile_every: Option<Duration>,
    /// How long after the end of a hold its lapse is recorded, if no decision has recorded it; `None`
    /// to leave it to decisions.
    pub record_lapses_after: Option<TimeDelta>,
    /// The key that signs seals; `None` for no seals.
    pub seal_key: Option<Arc<SealKey>>,
    /// Makes a key where there is none, after the ledger was opened.
    pub make_seal_key: Option<SealKeyMaker>,
    pub seal_to: Option<SealTarget>,
    /// Whether reads that show a named subject are acts of the record.
    pub record_reads: bool,
    pub clock: Clock,
}

/// Why an engine could not be built. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The ledger could not be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// The ledger could not be read.
    #[error("the ledger cannot be read: {0}; check that the database is up, and start again")]
    Read(#[source] LedgerError),
    /// The counters cannot be used.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The admin key of the settings cannot be used.
    #[error(transparent)]
    AdminKey(#[from] AdminKeyError),
}

impl BuildError {
    /// The setting that is wrong; `None` if another try can succeed with the same settings.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Ledger(error) => error.setting(),
            Self::Read(_) => None,
            Self::Counter(error) => error.setting(),
            Self::AdminKey(_) => Some(KEY_OF_SETTINGS),
        }
    }
}

/// A failure that is not the caller's fault.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    #[error("the ledger failed")]
    Ledger(#[from] Arc<LedgerError>),
    /// The ledger does not answer, and only the ledger knows.
    #[error("the ledger does not answer")]
    Silent,
    /// The ledger has no grant with this id, but a grant that Redis counted may still wait for the
    /// ledger.
    #[error("a grant with this id may wait for the ledger")]
    MayWait,
    /// The grants that wait for the ledger cannot be read.
    #[error("grants that wait for the ledger cannot be seen")]
    Unseen,
    /// The primary may have this, and the standby does not yet.
    #[error("the standby has not followed its primary so far yet")]
    NotFollowed,
    /// The instance is ending, or the work panicked.
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
    /// There never was a policy with this name.
    #[error("there is no policy {0}")]
    UnknownPolicy(PolicyName),
    /// The policy does not exist or is archived, and this list needs an active one.
    #[error("there is no policy {0}, or it is archived")]
    UnknownOrArchived(PolicyName),
    /// The cursor belongs to another list.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// The filter with this name makes no sense here.
    #[error("{0}: {1}")]
    Misfit(&'static str, Misfit),
    /// Too many exports and backtests run.
    #[error("too many exports and backtests are under way")]
    Overloaded,
    /// The caller has too many reads in progress.
    #[error("too many reads of this caller are under way")]
    NoPlace,
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl From<LedgerError> for ListFailure {
    fn from(error: LedgerError) -> Self {
        Failure::from(error).into()
    }
}

/// Places that callers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Reads of the ledger.
    Reads,
    /// Changes by admins.
    Edits,
    /// Requests that wait for entries.
    Waits,
}

/// The engine. Every use case is one of its methods.
pub struct Engine {
    runtime: Handle,
    clock: Clock,
    running_time: Arc<RunningTime>,
    ledger: Ledger,
    counters: Option<Counters>,
    counting: Option<Arc<Counting>>,
    metrics: Metrics,
    policies: Arc<Policies>,
    access: Arc<Access>,
    wrong_keys: WrongKeys,
    watch: Arc<Watch>,
    /// Of an instance that only reads.
    standby: Option<Arc<Standby>>,
    /// Tasks that run beside the claims.
    background: Vec<AbortHandle>,
    reconciler: Arc<Reconciler>,
    eraser: Arc<Eraser>,
    record: Arc<RecordProgress>,
    history_reads: SharedReads<HistoryQuestion, SharedPage>,
    /// `None` where reads are not recorded.
    read_recorder: Option<Arc<ReadRecorder>>,
    seals: Arc<SealStatus>,
    seal_key: Option<Arc<SealKey>>,
    denials: Arc<Denials>,
    denial_writer: Arc<DenialWriter>,
    keys_in_progress: KeysInProgress,
    dispatch: Arc<Dispatch>,
    claims_under_way: Places,
    /// Exports and backtests.
    snapshots: Places,
    /// Reads, until their answers are written.
    reads: Places,
    edits: Places,
    waits: Places,
    claim_deadline: Duration,
    answer_time: Duration,
}

impl Engine {
    pub const STORE_NAMES: [&str; 2] = Ledger::STORE_NAMES;

    /// Whether the ledger has no keys, and the settings have none.
    pub fn needs_first_key(&self) -> bool {
        self.access.needs_first_key()
    }

    /// Adds an admin key with this secret to a ledger without keys. Returns false if another
    /// instance was first. Nobody can read the secret again, so call this when nothing else can
    /// fail.
    ///
    /// # Errors
    /// [`BuildError::Read`].
    pub async fn add_first_key(&self, secret: &str) -> Result<bool, BuildError> {
        let added = self
            .access
            .add_first_key(&self.ledger, secret, self.now())
            .await;
        added.map_err(BuildError::Read)
    }

    /// Whether this instance writes nothing: no claims, no changes and no seals.
    pub fn is_read_only(&self) -> bool {
        self.standby.is_some()
    }

    /// How old the answers of an instance that only reads are at most; `None` if that is not known, and
    /// at any other instance.
    pub fn lag(&self) -> Option<Duration> {
        self.standby.as_ref()?.lag(Instant::now())
    }

    /// Whether there is a Redis, answering or not.
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// Whether the clock of this instance is off by more than the tolerance: then it decides and
    /// changes nothing.
    pub fn clock_is_off(&self) -> bool {
        self.watch.clock_is_off()
    }

    /// The present instant.
    pub fn now(&self) -> chrono::DateTime<chrono::Utc> {
        self.clock.now()
    }

    /// A place for a read or an edit. `None` if the caller has too many places until the deadline.
    pub async fn place(&self, share: Share, caller: &Arc<str>, deadline: Instant) -> Option<Place> {
        let places = match share {
            Share::Reads => &self.reads,
            Share::Edits => &self.edits,
            Share::Waits => &self.waits,
        };
        places.take(caller, deadline).await
    }

    /// Waits for a place for an export or a backtest, as long as other reads wait for theirs.
    async fn long_place(&self, caller: &Arc<str>) -> Result<Place, ListFailure> {
        let deadline = Instant::now() + self.answer_time;
        let place = self.snapshots.take(caller, deadline).await;
        place.ok_or(ListFailure::Overloaded)
    }

    /// The longest time of any answer that is not a claim's.
    pub fn answer_time(&self) -> Duration {
        self.answer_time
    }

    /// How long the process has run.
    pub fn running_time(&self) -> Arc<RunningTime> {
        self.running_time.clone()
    }

    /// Ends all requests that only wait: the instance is about to end.
    pub fn begin_ending(&self) {
        self.record.end();
    }

    /// Waits for the claims in progress, at most until the deadline, and closes the stores. The
    /// engine must not be called afterwards.
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
        if !self.is_read_only() {
            self.write_last_denials(deadline).await;
        }
        if timeout_at(deadline, self.ledger.close()).await.is_err() {
            tracing::warn!("the ledger's connections did not close in time");
        }
    }

    async fn write_last_denials(&self, deadline: Instant) {
        match timeout_at(deadline, self.denial_writer.write()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => tracing::warn!("the last denials could not be counted"),
        }
    }

    /// Runs work in a task of its own, so that it ends in the same way whether or not somebody
    /// waits. A handler's future is dropped when its client disconnects, and a transaction must not
    /// be.
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
