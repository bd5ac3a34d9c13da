//! A limit that all subjects of a policy share, as its rule has it.

use super::fault::Fault;
use super::limit::draft::{LimitDraft, check_shared};
use super::limit::per::Per;
use super::limit::shape::{Limit, Shape};

/// A limit that all subjects of a policy share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedLimit {
    /// 1 … 2^53 − 1.
    pub max: u64,
    /// Of the calendar, or without an end.
    pub shape: Shape,
    /// The first of the versions that have the limit without a break. The units of grants that earlier
    /// versions decided do not count. 0 in a draft.
    pub since: u32,
}

impl SharedLimit {
    /// As a limit of a subject would be.
    pub fn limit(&self) -> Limit {
        Limit::new(self.max, self.shape)
    }

    pub fn per(&self) -> Per {
        self.shape.per()
    }
}

/// Checks the shared limits of a draft.
pub fn check_total(drafts: &[LimitDraft], faults: &mut Vec<Fault>) -> Vec<SharedLimit> {
    let limits = check_shared(drafts, faults).into_iter();
    let shared = |limit: Limit| SharedLimit {
        max: limit.max,
        shape: limit.shape,
        since: 0,
    };
    limits.map(shared).collect()
}
