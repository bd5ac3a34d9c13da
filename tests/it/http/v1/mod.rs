//! The resources of `/v1`: one file for each file of `src/http/v1`.

mod backtests;
mod batches;
mod changes;
mod claims;
mod corrections;
pub mod exports;
mod grants;
pub mod keys;
mod overrides;
mod policies;
mod windows;
