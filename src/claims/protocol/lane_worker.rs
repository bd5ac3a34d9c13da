//! The tools of the lanes of the ledger.

use std::sync::Arc;

use super::dispatch::Dispatch;
use super::group::Group;
use crate::instance::{Metrics, Policies, Watch};
use ledger::ClaimTables;

#[derive(Clone)]
pub struct LaneWorker {
    pub dispatch: Arc<Dispatch>,
    pub ledger: ClaimTables,
    pub policies: Arc<Policies>,
    pub watch: Arc<Watch>,
    pub metrics: Metrics,
}

/// Splits a batch into two halves.
pub fn halves(mut groups: Vec<Group>) -> [Vec<Group>; 2] {
    let other = groups.split_off(groups.len() / 2);
    [groups, other]
}
