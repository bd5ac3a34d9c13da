//! Waits for conditions.

use std::time::{Duration, Instant};

/// Waits until a condition is true, with a deadline.
pub async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
