//! Wakes many tasks that wait for answers at once.
//!
//! Each HTTP worker has a runtime of one thread. A wake of one of its tasks by another thread
//! writes to the system. A lane that answers a batch would write once for each claim. The lane
//! wakes one task of the worker instead, and this task wakes the others on their own thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

thread_local! {
    /// The channel to the task that wakes the other tasks of this thread.
    static WAKING: RefCell<Option<UnboundedSender<Waker>>> = const { RefCell::new(None) };
}

/// Wakes a task through the waking task of its thread.
struct Relayed {
    waker: Waker,
    waking: UnboundedSender<Waker>,
}

impl Wake for Relayed {
    fn wake(self: Arc<Self>) {
        let sent = self.waking.send(self.waker.clone());
        if let Err(closed) = sent {
            closed.0.wake();
        }
    }
}

/// Waits for a future that another thread completes. All tasks of the present thread that wait in
/// this way are woken together.
pub async fn woken_together<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut relayed: Option<(Waker, Waker)> = None;
    poll_fn(move |context| {
        let waker = context.waker();
        if !relayed
            .as_ref()
            .is_some_and(|(own, _)| own.will_wake(waker))
        {
            let through = Relayed {
                waker: waker.clone(),
                waking: waking(),
            };
            relayed = Some((waker.clone(), Arc::new(through).into()));
        }
        let (_, through) = relayed.as_ref().expect("it was just made");
        future.as_mut().poll(&mut Context::from_waker(through))
    })
    .await
}

/// The channel to the waking task of this thread. The task is started at its first use.
fn waking() -> UnboundedSender<Waker> {
    WAKING.with_borrow_mut(|waking| {
        if let Some(waking) = waking
            && !waking.is_closed()
        {
            return waking.clone();
        }
        let (sender, wakers) = unbounded_channel();
        tokio::spawn(wake_all(wakers));
        waking.insert(sender).clone()
    })
}

async fn wake_all(mut wakers: UnboundedReceiver<Waker>) {
    let mut ready = Vec::new();
    while wakers.recv_many(&mut ready, usize::MAX).await > 0 {
        ready.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::sync::oneshot;

    use super::*;

    /// A thread can outlive a runtime: the second runtime has its own waking task.
    #[test]
    fn tasks_are_woken_by_another_thread_in_each_runtime() {
        for _ in 0..2 {
            let runtime = Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (senders, receivers): (Vec<_>, Vec<_>) =
                    (0..100).map(|_| oneshot::channel()).unzip();
                let waiting = receivers.into_iter().map(woken_together).map(tokio::spawn);
                let waiting: Vec<_> = waiting.collect();
                tokio::task::yield_now().await;
                let answering = thread::spawn(|| {
                    for (number, sender) in senders.into_iter().enumerate() {
                        sender.send(number).unwrap();
                    }
                });
                for (number, waiting) in waiting.into_iter().enumerate() {
                    assert_eq!(waiting.await.unwrap(), Ok(number));
                }
                answering.join().unwrap();
            });
        }
    }
}
