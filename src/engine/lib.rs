//! An instance, put together of its parts. `building` opens the stores and starts the workers. `report`
//! says how the instance is.
//!
//! The use cases are methods of handles: [`Claims`], [`Record`], [`Audit`], [`Admin`], and [`Callers`].
//! Each handle has the parts of an instance that its use cases need, and no others. The faces import
//! all of them from here.

mod building;
mod report;

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use counter::{CounterError, Counters, RedisAccess};
use domain::four_eyes::FourEyes;
use domain::seal::note::SealKey;
use host::clock::Clock;
use host::running::RunningTime;
use ledger::{Ledger, OpenError};

pub use admin::{
    Admin, EditError, EditedTerms, Editor, KeyError, PolicyChange, Precondition, Proposal,
    ProposedChange, SubjectErasure, WaitingChange,
};
pub use claims::instance::{
    ATTEMPT_FOR, AdminKey, AdminKeyError, Authority, Callers, ClockTrouble, Failure, Health,
    Instance, KEY_OF_SETTINGS, OwnKey, Place, Principal, SIGNED_IN_FOR, Share, Trouble,
    WrongKeyAnswer, generate_secret, network_of, new_id, proof,
};
pub use claims::{
    AdminEntry, Admission, BundleCorrected, ByHand, ClaimFailure, Claims, Correction, Foretold,
    Outcome, Rehearsal, Undecided, Usage,
};
pub use record::archive::{
    ArchiveFailure, ArchiveOrder, Archived, DroppedArchive, archive_ledger, compare_archive,
    drop_archived,
};
pub use record::audit::{Audit, ConsistencyProof, SealFailure, SealPage};
pub use record::reconcile::ReconcileFailure;
pub use record::seal::{
    DroppedLeaves, GivenSeal, SealTarget, Verified, VerifyFailure, restart_seals, verify_ledger,
};
pub use record::statistics::{
    CheckedFigures, DenialQuery, FigureOfDay, FigurePage, FigureQuery, QuarterPage, QuarterQuery,
};
pub use record::{
    AsOf, Backtested, Bound, ChangeQuery, ClaimQuery, DaySpan, EntryExport, ExplainedClaim,
    ExplainedGrant, ExportEnd, ExportPiece, ExportPieces, GrantPage, GrantQuery, HistoryPage,
    HistoryQuery, InstantSpan, InvalidCursor, KnownSubject, LimitThen, LimitsThen, ListFailure,
    LivedWindow, MadeBy, Misfit, NearQuery, NearSubject, PartOfLimit, PlacedEntry, ReadFailure,
    Record, RecordedEntry, SharedPage, SubjectQuery, WindowQuery,
};

pub use ledger::{
    Act, ActKind, ChangeKind, Changed, EditedPolicy, KeyReplacement, LedgerError, PastChange,
    ProvisionalScope, Seal, SealOrigin, Standing,
};

use claims::instance::KeyUseWriter;
use record::seal::SealStatus;
use record::statistics::{BusiestPolicies, DenialWriter};

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
    /// How many policies the metrics name at most.
    pub policy_metrics: u32,
    /// The policies whose changes wait for a second admin.
    pub four_eyes: FourEyes,
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

/// An instance at work: its handles, by capability.
pub struct Engine {
    pub instance: Arc<Instance>,
    pub callers: Arc<Callers>,
    pub claims: Arc<Claims>,
    pub record: Arc<Record>,
    pub audit: Arc<Audit>,
    pub admin: Arc<Admin>,
    ledger: Ledger,
    counters: Option<Counters>,
    seals: Arc<SealStatus>,
    /// `None` if the metrics name no policies.
    busiest: Option<BusiestPolicies>,
    running_time: Arc<RunningTime>,
    denial_writer: Arc<DenialWriter>,
    key_use_writer: Arc<KeyUseWriter>,
    /// Tasks that run beside the claims.
    background: Vec<AbortHandle>,
}

impl Engine {
    pub const STORE_NAMES: [&str; 2] = Ledger::STORE_NAMES;

    /// How long the process has run.
    pub fn running_time(&self) -> Arc<RunningTime> {
        self.running_time.clone()
    }

    /// Ends all requests that only wait: the instance is about to end.
    pub fn begin_ending(&self) {
        self.record.progress.end();
    }

    /// Waits for the claims in progress, at most until the deadline, and closes the stores. The
    /// engine must not be called afterwards.
    pub async fn close(&self, deadline: Instant) {
        if timeout_at(deadline, self.claims.under_way.emptied())
            .await
            .is_err()
        {
            tracing::warn!("claims were still under way at the end of the drain time");
        }
        for task in &self.background {
            task.abort();
        }
        if !self.instance.is_read_only() {
            self.write_last_denials(deadline).await;
            self.write_last_key_uses(deadline).await;
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

    async fn write_last_key_uses(&self, deadline: Instant) {
        match timeout_at(deadline, self.key_use_writer.write()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => tracing::warn!("the last uses of keys could not be written"),
        }
    }
}
