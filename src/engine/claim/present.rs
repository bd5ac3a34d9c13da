//! What an instance knows when a step of a claim's way is taken.

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::engine::instance::{Memory, Terms};

#[derive(Clone, Copy)]
pub struct Present<'a> {
    /// The policies and overrides.
    pub terms: &'a Terms,
    /// The last lines.
    pub memory: &'a Memory,
    /// The instant by this instance's clock.
    pub now: DateTime<Utc>,
    /// The same instant, for deadlines.
    pub at: Instant,
    /// Whether there are counters.
    pub has_counters: bool,
}
