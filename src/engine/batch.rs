//! Batches of whatever waits.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;

/// Takes items off a queue and works on them, as many at a time as wait (at most `most`), in
/// at most `lanes` batches at once. Nothing waits for a batch to fill: what is there goes when
/// a lane is free. Ends when the queue's senders are gone and it is empty, after the last
/// batch.
pub async fn in_batches<T, F>(
    mut queue: Receiver<T>,
    lanes: u32,
    most: usize,
    work: impl Fn(Vec<T>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let free = Arc::new(Semaphore::new(lanes as usize));
    loop {
        let Ok(lane) = free.clone().acquire_owned().await else {
            return;
        };
        let mut batch = Vec::new();
        if queue.recv_many(&mut batch, most).await == 0 {
            break;
        }
        let work = work(batch);
        tokio::spawn(async move {
            work.await;
            drop(lane);
        });
    }
    // Every lane is free once the last batch has ended.
    let _ = free.acquire_many(lanes).await;
}
