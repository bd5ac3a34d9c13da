//! Asks counters about many claims at once.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc::Receiver;

use super::batch::in_batches;
use super::dispatch::Dispatch;
use super::in_flight::InFlight;
use super::way::after_ask;
use crate::instance::{Metrics, Stage};
use counter::{Ask, Counters};
use host::faults::reach;

const WORKERS: u32 = 2;
const BATCH_MOST: usize = 128;

/// Takes claims off their queue and asks their counters.
pub async fn ask_all(
    dispatch: Arc<Dispatch>,
    counters: Counters,
    metrics: Metrics,
    queue: Receiver<InFlight>,
) {
    in_batches(queue, WORKERS, BATCH_MOST, move |claims| {
        let dispatch = dispatch.clone();
        let counters = counters.clone();
        let metrics = metrics.clone();
        async move { ask(&dispatch, &counters, &metrics, claims).await }
    })
    .await;
}

async fn ask(dispatch: &Dispatch, counters: &Counters, metrics: &Metrics, claims: Vec<InFlight>) {
    let ask = |claim: &InFlight| Ask {
        account: claim.work.account,
        looks_at_queue: dispatch.terms.may_be_counted(claim.work.policy.id),
    };
    let asks: Vec<Ask> = claims.iter().map(ask).collect();
    reach("ask.begun");
    let asking = pin!(counters.ask(&asks));
    let answers = metrics.timed(Stage::Ask, asks.len(), asking).await;
    reach("ask.answered");
    let answers = answers.into_iter().flatten().map(Some);
    let answers = answers.chain(std::iter::repeat_with(|| None));
    let present = dispatch.present();
    for (mut claim, answer) in claims.into_iter().zip(answers) {
        let step = after_ask(&mut claim, answer, &present);
        dispatch.go(claim, step);
    }
}
