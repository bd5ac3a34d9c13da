//! What follows the record in the background, and rests in proportion to its work.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::chain::Chain;
use crate::ledger::LedgerError;

/// How often the record is looked at.
const EVERY: Duration = Duration::from_secs(1);
const REST_MOST: Duration = Duration::from_secs(60);

/// Does something for all that has positions, in their order.
pub trait RecordFollower {
    /// What it makes, for the log.
    const NAME: &'static str;
    /// How many times as long as its work it rests, so that claims have the cores.
    const RESTS: u32;

    /// Does the next part. Returns whether there may be more.
    fn step(&mut self) -> impl Future<Output = Result<bool, LedgerError>> + Send;
}

/// Follows the record until it is aborted. While the ledger does not answer it tries again.
pub async fn follow<F: RecordFollower>(mut follower: F) {
    let mut is_failing = false;
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
        let rest = (began.elapsed() * F::RESTS).min(REST_MOST);
        sleep(match stepped {
            Ok(true) => rest,
            Ok(false) => rest.max(EVERY),
            Err(_) => EVERY,
        })
        .await;
    }
}
