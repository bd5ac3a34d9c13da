//! The resources, each in its own file.

pub mod approvals;
pub mod backtests;
pub mod batches;
pub mod blocks;
pub mod changes;
pub mod claims;
pub mod corrections;
pub mod denials;
pub mod entries;
pub mod entry_exports;
pub mod erasures;
pub mod explanation;
pub mod exports;
pub mod grants;
pub mod history;
pub mod keys;
mod manifests;
pub mod overrides;
pub mod pauses;
pub mod policies;
pub mod reconciliations;
pub mod resets;
pub mod sandbox;
pub mod seals;
pub mod statistics;
pub mod subjects;
pub mod windows;
