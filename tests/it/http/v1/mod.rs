//! The resources of `/v1`: one file for each file of `src/http/v1`.

mod approvals;
mod backtests;
mod batches;
mod bundles;
mod calendars;
mod changes;
mod claims;
mod corrections;
mod entry_exports;
mod explanation;
pub mod exports;
mod grants;
mod history;
pub mod keys;
mod limits;
mod overrides;
mod policies;
mod resets;
mod sandbox;
pub mod statistics;
mod subjects;
mod top_ups;
mod warnings;
mod windows;
mod zones;
