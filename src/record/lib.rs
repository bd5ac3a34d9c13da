//! The record: positions for all entries and changes, in one order that never changes; and what
//! auditors read from it.
//!
//! Beside it are the figures of days (`statistics`), the log of leaves (`seal`), its files (`archive`),
//! comparisons with what was counted (`reconcile`), and what somebody asks of these (`audit`).

pub mod archive;
pub mod audit;
pub mod reconcile;
pub mod seal;
pub mod statistics;

mod backtest;
mod changes;
pub mod cursor;
mod cut;
mod day_span;
mod entries;
mod explanation;
mod export;
mod exported;
mod follower;
pub mod following;
mod grants;
mod history;
mod lag;
mod leaves;
mod listed;
mod near;
mod progress;
mod reader;
mod reads;
mod sharing;
mod standby_follower;
mod subjects;
mod windows;
mod zones;

use std::sync::Arc;

pub use backtest::Backtested;
pub use changes::ChangeQuery;
pub use cursor::InvalidCursor;
pub use day_span::{Bound, DaySpan, InstantSpan, check_metadata};
pub use explanation::{
    ClaimQuery, ExplainedClaim, ExplainedGrant, LimitThen, LimitsThen, PlacedEntry,
};
pub use export::{EntryExport, ExportEnd};
pub use exported::{ExportPiece, ExportPieces};
pub use follower::LedgerFollower;
pub use grants::{GrantPage, GrantQuery};
pub use history::{AsOf, HistoryPage, HistoryQuery, HistoryQuestion, SharedPage};
pub use leaves::{PlacedLeaf, leaves_of};
pub use listed::{ListFailure, MadeBy, Misfit};
pub use near::{NearQuery, NearSubject, PartOfLimit};
pub use progress::RecordProgress;
pub use reader::RecordedEntry;
pub use reads::{ReadFailure, ReadRecorder};
pub use sharing::SharedReads;
pub use standby_follower::StandbyFollower;
pub use subjects::{KnownSubject, SubjectQuery};
pub use windows::{LivedWindow, WindowQuery};

use claims::Claims;
use claims::instance::{Callers, Instance};
use ledger::Ledger;

/// What auditors read: entries, grants, changes, exports, explanations, figures, backtests.
pub struct Record {
    pub instance: Arc<Instance>,
    pub ledger: Ledger,
    pub callers: Arc<Callers>,
    pub claims: Arc<Claims>,
    pub progress: Arc<RecordProgress>,
    pub history_reads: SharedReads<HistoryQuestion, SharedPage>,
    /// `None` where reads are not recorded.
    pub read_recorder: Option<Arc<ReadRecorder>>,
    /// Whether entries are sealed soon after they are recorded.
    pub seals: bool,
}
