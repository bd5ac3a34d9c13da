//! Followers: background work along the record. A follower rests in proportion to its work.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::chain::Chain;
use crate::engine::instance::Metrics;
use crate::ledger::LedgerError;

/// The pause between two looks at the record.
const EVERY: Duration = Duration::from_secs(1);
const REST_MOST: Duration = Duration::from_secs(60);
/// How many times as long as its work a follower rests. The second number is for times when claims
/// keep the instance busy: a follower then takes at most 1/201 of a core of the instance and of the
/// store.
const RESTS: u32 = 10;
const RESTS_WHILE_BUSY: u32 = 200;
/// Claims keep the instance busy if their batches take at least this share of the time.
const BUSY_SHARE: f64 = 0.5;
/// A follower that is this far behind rests as on an idle instance. So a load of many hours does
/// not delay it without limit.
const LAG_MOST: Duration = Duration::from_secs(2 * 60);

/// Work that is done for every position, in order.
pub trait RecordFollower {
    /// The name of its product, for the log.
    const NAME: &'static str;

    /// Does the next part. Returns whether there may be more.
    fn step(&mut self) -> impl Future<Output = Result<bool, LedgerError>> + Send;

    /// How far the follower is behind.
    fn lag(&self) -> Duration;
}

/// Follows the record until the task is aborted. If the ledger does not answer, it tries again.
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
            tracing::warn!(%error, "the {name} cannot go on: trying again");
        }
        is_failing = stepped.is_err();
        let ended = Instant::now();
        let (worked, least) = match stepped {
            Ok(true) => (ended - began, Duration::ZERO),
            Ok(false) => (ended - began, EVERY),
            Err(_) => (Duration::ZERO, EVERY),
        };
        // The rest ends early when the claims end.
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

/// Measures the share of the time that batches of claims took since the last question.
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

    /// 0 without claims; above 1 if several batches run at once.
    fn share(&mut self) -> f64 {
        let (asked_at, busy) = (Instant::now(), self.metrics.busy());
        let took = busy.saturating_sub(self.busy).as_secs_f64();
        let share = took / (asked_at - self.asked_at).as_secs_f64().max(f64::EPSILON);
        (self.asked_at, self.busy) = (asked_at, busy);
        share
    }
}

/// How long a follower rests after this much work, with this share of claims.
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
