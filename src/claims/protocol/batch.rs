//! Batches of the items that wait in a queue.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;

/// Takes items off a queue and works on them in batches: all items that wait, at most `most`, in
/// `lanes` batches at once. No batch waits to become full. The function returns when the senders of
/// the queue are gone, the queue is empty, and the last batch has ended. If a lane panics (a bug),
/// its batch is lost and a new lane starts.
pub async fn in_batches<T, F>(
    queue: Receiver<T>,
    lanes: u32,
    most: usize,
    work: impl Fn(Vec<T>) -> F + Clone + Send + 'static,
) where
    T: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let queue = Arc::new(Mutex::new(queue));
    let lane = || {
        let queue = queue.clone();
        let work = work.clone();
        async move {
            loop {
                let mut batch = Vec::new();
                if queue.lock().await.recv_many(&mut batch, most).await == 0 {
                    return;
                }
                work(batch).await;
            }
        }
    };
    let mut running = JoinSet::new();
    for _ in 0..lanes {
        running.spawn(lane());
    }
    while let Some(ended) = running.join_next().await {
        if ended.is_err() {
            running.spawn(lane());
        }
    }
}
