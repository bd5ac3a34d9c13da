//! Two sealers that start at the same time, one of which waits at each of its awaits in turn while
//! the other one works.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chrono::DateTime;
use tempfile::TempDir;
use tokio::time::timeout;

use super::pushing::{SealPusher, SealTarget};
use super::sealer::Sealer;
use super::status::SealStatus;
use super::verifier::{GivenSeal, verify_ledger};
use crate::following::RecordFollower;
use domain::record::Mark;
use domain::seal::note::SealKey;
use host::clock::Clock;
use ledger::{Act, ActKind, Ledger, LedgerOptions};

/// A future that is not woken for so long waits for a lock.
const LOCKED: Duration = Duration::from_millis(250);

/// How often a sealer is stopped at all of its awaits. An answer that is there at once is no await, so
/// one round may miss some.
const ROUNDS: u32 = 3;
/// A round ends when so many steps in a row were over before they waited as often as they should.
const OVER: u32 = 2;

struct Desk {
    ledger: Ledger,
    folder: TempDir,
}

impl Desk {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let options = LedgerOptions {
            url: format!("sqlite:{}", folder.path().join("perdiem.db").display()),
            claim_timeout: Duration::from_secs(30),
            query_timeout: Duration::from_secs(30),
        };
        let ledger = Ledger::open(&options, DateTime::UNIX_EPOCH).await.unwrap();
        Self { ledger, folder }
    }

    /// A sealer that knows nothing, as after a start, and its findings.
    fn sealer(&self) -> (Sealer, Arc<SealStatus>) {
        let clock = Clock::system();
        let status = Arc::<SealStatus>::default();
        let target = SealTarget::Folder(self.folder.path().to_owned());
        let pusher = SealPusher::new(target, clock.clone(), status.clone());
        let key = Arc::new(SealKey::new("perdiem", [7; 32]).unwrap());
        let ledger = self.ledger.clone();
        let sealer = Sealer::new(ledger, clock, key, status.clone(), Some(pusher));
        (sealer, status)
    }

    /// Records acts, each with its own mark.
    async fn record(&self, acts: usize) {
        for _ in 0..acts {
            let act = Act {
                revision: 0,
                kind: ActKind::Export,
                about: "{}".to_owned(),
                at: DateTime::UNIX_EPOCH,
                by: "a test".to_owned(),
                reason: None,
            };
            self.ledger.record().add_act(&act).await.unwrap();
            let last = self.ledger.record().mark_to_follow().await.unwrap();
            let horizon = self.ledger.record().horizon().await.unwrap();
            let runs = self
                .ledger
                .record()
                .runs_to_follow(last.place, horizon, 1)
                .await;
            let marks: Vec<Mark> = last.next(&runs.unwrap(), Clock::system().now());
            assert!(self.ledger.record().add_marks(&marks).await.unwrap());
        }
    }

    async fn is_well(&self, when: &str) {
        let given = GivenSeal {
            key: None,
            seal: None,
        };
        let verified = verify_ledger(&self.ledger, &given, |_, _| ()).await;
        verified.unwrap_or_else(|error| panic!("{when}: {error}"));
    }
}

/// Polls a future until it is done, or until it has waited so many times.
async fn wait_at<F: Future>(mut future: Pin<&mut F>, awaits: usize) -> Option<F::Output> {
    let mut waited = 0;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if waited == awaits => Poll::Ready(None),
        Poll::Pending => {
            waited += 1;
            Poll::Pending
        }
    })
    .await
}

/// Runs a future to its end; `None` if it waits for a lock.
async fn unless_locked<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    loop {
        let mut polls = 0;
        let counted = poll_fn(|context| {
            polls += 1;
            future.as_mut().poll(context)
        });
        match timeout(LOCKED, counted).await {
            Ok(done) => return Some(done),
            // It was polled when the time began and when it was over, and not between.
            Err(_) if polls <= 2 => return None,
            Err(_) => {}
        }
    }
}

#[tokio::test]
async fn a_sealer_may_wait_anywhere_while_another_one_seals() {
    for _ in 0..ROUNDS {
        let desk = Desk::new().await;
        desk.record(3).await;
        stop_at_each_await(&desk).await;
    }
}

async fn stop_at_each_await(desk: &Desk) {
    // How often a step was over before it had waited so many times. How often a step waits differs a
    // little.
    let mut over = 0;
    let mut awaits = 0;
    while over < OVER {
        // 1. One sealer waits, after so many awaits.
        desk.record(2).await;
        let (mut one, status) = desk.sealer();
        let mut step = pin!(one.step());
        let ended = wait_at(step.as_mut(), awaits).await;
        // 2. Meanwhile more is recorded, and the other one begins the log, or seals all of it.
        let (mut other, other_status) = desk.sealer();
        let sealing = async {
            desk.record(2).await;
            while other.step().await.unwrap().is_more {}
        };
        let mut sealing = pin!(sealing);
        // 3. The first one goes on. If the other one waits for its lock, both go on.
        match ended {
            Some(stepped) => {
                stepped.unwrap();
                sealing.await;
                over += 1;
            }
            None => {
                match unless_locked(sealing.as_mut()).await {
                    Some(()) => drop(step.await.unwrap()),
                    None => drop(tokio::join!(step, sealing).0.unwrap()),
                }
                over = 0;
            }
        }
        let when = format!("after {awaits} awaits");
        desk.is_well(&when).await;
        for status in [status, other_status] {
            assert_eq!(status.troubles().next(), None, "{when}");
        }
        awaits += 1;
    }
    assert!(awaits > 10, "only {awaits} awaits");
}
