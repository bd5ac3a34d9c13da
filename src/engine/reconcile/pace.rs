//! The pace of work that nobody waits for: it rests as long as it works, so that claims have
//! at least half of every store to themselves.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const REST_MOST: Duration = Duration::from_millis(100);

/// A piece of such work.
pub struct Pace(Instant);

impl Pace {
    /// The work begins.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// The work is done: rests for as long as it took.
    pub async fn rest(self) {
        sleep(self.0.elapsed().min(REST_MOST)).await;
    }
}
