//! The record: positions for all entries and changes, in one order that never changes; and what
//! auditors read from it.

mod cut;
mod day_span;
mod explanation;
mod export;
mod follower;
mod history;
mod lag;
mod leaves;
mod progress;
mod reader;
mod reads;
mod sharing;
mod standby_follower;
mod windows;
mod zones;

pub use cut::check_cut;
pub use day_span::{Bound, DaySpan, InstantSpan, check_metadata};
pub use explanation::{
    ClaimQuery, ExplainedClaim, ExplainedGrant, LimitThen, LimitsThen, PlacedEntry,
};
pub use export::{EntryExport, ExportEnd};
pub use follower::LedgerFollower;
pub use history::{AsOf, HistoryPage, HistoryQuery, HistoryQuestion, SharedPage};
pub use leaves::{PlacedLeaf, leaves_of};
pub use progress::RecordProgress;
pub use reader::RecordedEntry;
pub use reads::{ReadFailure, ReadRecorder};
pub use sharing::SharedReads;
pub use standby_follower::StandbyFollower;
pub use windows::{LivedWindow, WindowQuery};
