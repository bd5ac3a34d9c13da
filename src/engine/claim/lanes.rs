//! What the lanes of the ledger work with.

use std::sync::Arc;

use super::dispatch::Dispatch;
use super::group::Group;
use crate::engine::instance::{Metrics, Policies, Watch};
use crate::ledger::Ledger;

#[derive(Clone)]
pub struct Lanes {
    /// Where groups wait.
    pub dispatch: Arc<Dispatch>,
    /// Where groups are looked up and appended.
    pub ledger: Ledger,
    /// What claims are decided by is kept fresh.
    pub policies: Arc<Policies>,
    /// Whether the ledger answers.
    pub watch: Arc<Watch>,
    /// What is measured.
    pub metrics: Metrics,
}

/// Two halves of a batch.
pub fn halves(mut groups: Vec<Group>) -> [Vec<Group>; 2] {
    let other = groups.split_off(groups.len() / 2);
    [groups, other]
}
