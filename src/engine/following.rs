//! What follows the record in the background, and rests in proportion to its work.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::chain::Chain;
use crate::engine::instance::Metrics;
use crate::ledger::LedgerError;

/// How often the record is looked at.
const EVERY: Duration = Duration::from_secs(1);
const REST_MOST: Duration = Duration::from_secs(60);
/// How many times as long as its work a follower rests, and how many times while claims keep the
/// instance busy: what it takes from them is at most 1/201 of a core of the instance and of the store.
const RESTS: u32 = 10;
const RESTS_WHILE_BUSY: u32 = 200;
/// Claims keep the instance busy when their batches take this share of the time, or more.
const BUSY_SHARE: f64 = 0.5;
/// A follower that is so far behind rests no longer than an idle one: a load that lasts for hours does
/// not hold it up.
const LAG_MOST: Duration = Duration::from_secs(2 * 60);

/// Does something for all that has positions, in their order.
pub trait RecordFollower {
    /// What it makes, for the log.
    const NAME: &'static str;

    /// Does the next part. Returns whether there may be more.
    fn step(&mut self) -> impl Future<Output = Result<bool, LedgerError>> + Send;

    /// How far it is behind.
    fn lag(&self) -> Duration;
}

/// Follows the record until it is aborted. While the ledger does not answer it tries again.
pub async fn follow<F: RecordFollower>(mut follower: F, metrics: Metrics) {
    let mut is_failing = false;
    let mut claims = ClaimShare::new(metrics);
    loop {
        let began = Instant::now();
        let stepped = follower.step().await;
        if let Err(error) = &stepped
            && !is_failing
        {
            let (name, error) = (F::NAME, Chain(error));
            tracing::warn!(%error, "the {name} cannot go on: it is tried again");
        }
        is_failing = stepped.is_err();
        let ended = Instant::now();
        let (worked, least) = match stepped {
            Ok(true) => (ended - began, Duration::ZERO),
            Ok(false) => (ended - began, EVERY),
            Err(_) => (Duration::ZERO, EVERY),
        };
        // A rest ends when claims do.
        loop {
            let rest = rest_after(worked, claims.share(), follower.lag());
            let left = rest.max(least).saturating_sub(ended.elapsed());
            if left.is_zero() {
                break;
            }
            sleep(left.min(EVERY)).await;
        }
    }
}

/// Which share of the time batches of claims took since it was asked last.
struct ClaimShare {
    metrics: Metrics,
    asked_at: Instant,
    busy: Duration,
}

impl ClaimShare {
    fn new(metrics: Metrics) -> Self {
        Self {
            asked_at: Instant::now(),
            busy: metrics.busy(),
            metrics,
        }
    }

    /// 0 for no claims; above 1 where several batches are under way at once.
    fn share(&mut self) -> f64 {
        let (asked_at, busy) = (Instant::now(), self.metrics.busy());
        let took = busy.saturating_sub(self.busy).as_secs_f64();
        let share = took / (asked_at - self.asked_at).as_secs_f64().max(f64::EPSILON);
        (self.asked_at, self.busy) = (asked_at, busy);
        share
    }
}

/// How long a follower rests that worked for so long, while claims took a share of the time.
fn rest_after(worked: Duration, busy_share: f64, lag: Duration) -> Duration {
    let leaves_claims_the_cores = busy_share >= BUSY_SHARE && lag < LAG_MOST;
    let rests = match leaves_claims_the_cores {
        true => RESTS_WHILE_BUSY,
        false => RESTS,
    };
    (worked * rests).min(REST_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_leaves_the_cores_to_claims_unless_it_is_far_behind() {
        let rest = |share, lag_seconds| {
            let lag = Duration::from_secs(lag_seconds);
            rest_after(Duration::from_millis(10), share, lag).as_millis()
        };
        assert_eq!(rest(0.0, 0), 100);
        assert_eq!(rest(0.9, 0), 2000);
        assert_eq!(rest(0.9, 119), 2000);
        assert_eq!(rest(0.9, 120), 100);
        assert_eq!(
            rest_after(Duration::from_secs(60), 0.0, LAG_MOST),
            REST_MOST
        );
    }
}
