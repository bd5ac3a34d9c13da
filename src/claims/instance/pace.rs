//! The pace of background work. The work pauses as long as it works, so that claims have at least
//! half of every store.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const REST_MOST: Duration = Duration::from_millis(100);

/// A piece of background work.
pub struct Pace(Instant);

impl Pace {
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Pauses for as long as the work took.
    pub async fn rest(self) {
        sleep(self.0.elapsed().min(REST_MOST)).await;
    }
}
