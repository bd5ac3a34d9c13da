//! Waits for conditions.

use std::time::{Duration, Instant};

/// Waits until a condition is true, with a deadline.
pub async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    eventually_within(Duration::from_secs(30), what, is_so).await;
}

/// As [`eventually`], for what may take longer.
pub async fn eventually_within<F: Future<Output = bool>>(
    most: Duration,
    what: &str,
    is_so: impl Fn() -> F,
) {
    let deadline = Instant::now() + most;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
