//! The resources, one a file.

pub mod backtests;
pub mod batches;
pub mod changes;
pub mod claims;
pub mod corrections;
pub mod entries;
pub mod exports;
pub mod grants;
pub mod keys;
pub mod overrides;
pub mod policies;
pub mod reconciliations;
pub mod windows;
