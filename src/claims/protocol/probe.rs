//! Searches the ledger for the keys of claims that counters deny.

use std::sync::Arc;

use tokio::sync::mpsc::Receiver;

use super::batch::in_batches;
use super::dispatch::{Denied, Dispatch};
use super::in_flight::InFlight;
use super::step::Step;
use super::way::after_probe;
use ledger::{ClaimTables, Look};

const WORKERS: u32 = 2;
const BATCH_MOST: usize = 256;

/// Takes denied claims off their queue and searches the ledger for their keys. The separate queue
/// makes wide batches and delays no other claim.
pub async fn probe_all(dispatch: Arc<Dispatch>, ledger: ClaimTables, queue: Receiver<Denied>) {
    in_batches(queue, WORKERS, BATCH_MOST, move |denied| {
        let dispatch = dispatch.clone();
        let ledger = ledger.clone();
        async move {
            for (claim, step) in probe(&dispatch, &ledger, denied).await {
                dispatch.go(claim, step);
            }
        }
    })
    .await;
}

/// The next step of claims that their counters deny. Claims without a key are not searched for.
pub async fn probe(
    dispatch: &Dispatch,
    ledger: &ClaimTables,
    denied: Vec<Denied>,
) -> Vec<(InFlight, Step)> {
    let keys = denied.iter().filter_map(|denied| denied.claim.work.key);
    let look = Look {
        keys: keys.collect(),
        ..Look::default()
    };
    let seen = ledger.look(&look).await.ok();
    let present = dispatch.present();
    let next = |Denied { claim, denial }| {
        let step = after_probe(&claim, denial, seen.as_ref(), &present);
        (claim, step)
    };
    denied.into_iter().map(next).collect()
}
