//! What an instance knows at a step of the way of a claim.

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::instance::{Memory, Terms};

#[derive(Clone, Copy)]
pub struct Present<'a> {
    pub terms: &'a Terms,
    pub memory: &'a Memory,
    /// The present instant by the clock of this instance.
    pub now: DateTime<Utc>,
    /// The same instant, for deadlines.
    pub at: Instant,
    pub has_counters: bool,
}
