//! Followers: background work along the record. A follower goes on while more than a batch waits. While
//! claims come it computes at most a part of the time, and what it waits for does not count.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use claims::instance::Places;
use host::clock::thread_cpu_time;
use host::retried::Retried;
use ledger::LedgerError;

/// The pause between two looks at the record.
const EVERY: Duration = Duration::from_millis(500);
/// How many times as long as it computes a follower rests while claims come. So it takes at most a quarter of a
/// core of the instance from them.
const RESTS: u32 = 3;
/// How long a follower rests for each row that it changed. A row costs the store about 10 µs, so it takes about a tenth
/// of a core of the store.
const ROW_RESTS: Duration = Duration::from_micros(100);
/// The longest rest for rows. A step that waited so long finds more entries for each row.
const ROWS_REST_MOST: Duration = Duration::from_secs(5);

/// What a follower did in a step.
#[derive(Debug, Default)]
pub struct Stepped {
    /// More than a batch may wait.
    pub is_more: bool,
    /// How many rows it changed in many places of the tables. Rows that it added in order cost little, and do not
    /// count.
    pub rows: usize,
}

/// Work that is done for every position, in order.
pub trait RecordFollower {
    /// The name of its product, for the log.
    const NAME: &'static str;

    /// Does the next batch.
    fn step(&mut self) -> impl Future<Output = Result<Stepped, LedgerError>> + Send;
}

/// Follows the record until the task is aborted. If the ledger does not answer, it tries again. Claims take their
/// places from `claims`.
pub async fn follow<F: RecordFollower>(mut follower: F, claims: Places) {
    let mut retried = Retried::default();
    let mut claims_before = claims.ever_taken();
    loop {
        let (stepped, computed) = computing(follower.step()).await;
        if let Some(error) = retried.first_failure(&stepped) {
            let name = F::NAME;
            tracing::warn!(%error, "the {name} cannot go on: trying again");
        }
        let stepped = stepped.unwrap_or_default();
        let claims_now = claims.ever_taken();
        sleep(rest(&stepped, computed, claims_now - claims_before)).await;
        claims_before = claims_now;
    }
}

/// How long a follower rests after a step in which it computed, if so many claims came since the rest before.
fn rest(stepped: &Stepped, computed: Duration, claims: u64) -> Duration {
    let least = if stepped.is_more {
        Duration::ZERO
    } else {
        EVERY
    };
    if claims == 0 {
        return least;
    }
    let rows = u32::try_from(stepped.rows).unwrap_or(u32::MAX);
    let of_rows = ROW_RESTS.saturating_mul(rows).min(ROWS_REST_MOST);
    least.max(computed * RESTS).max(of_rows)
}

/// The output of a future, and how long its polls computed.
async fn computing<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let mut future = pin!(future);
    let mut computed = Duration::ZERO;
    let output = poll_fn(|context| {
        let before = thread_cpu_time();
        let polled = future.as_mut().poll(context);
        computed += thread_cpu_time().saturating_sub(before);
        polled
    })
    .await;
    (output, computed)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
    use tokio::time::timeout;

    use super::*;

    /// Waits for a slow database in each batch.
    struct SlowLedger {
        batches: u32,
        done: UnboundedSender<()>,
    }

    impl RecordFollower for SlowLedger {
        const NAME: &'static str = "a test";

        async fn step(&mut self) -> Result<Stepped, LedgerError> {
            sleep(Duration::from_millis(50)).await;
            self.batches -= 1;
            if self.batches == 0 {
                let _ = self.done.send(());
            }
            Ok(Stepped {
                is_more: self.batches > 0,
                rows: 0,
            })
        }
    }

    #[tokio::test]
    async fn a_follower_does_not_rest_because_the_ledger_is_slow() {
        let (done, mut is_done) = unbounded_channel();
        let ledger = SlowLedger { batches: 10, done };
        let following = tokio::spawn(follow(ledger, Places::new(1)));
        // The batches wait for half a second. With a rest of ten times as long: six seconds.
        let ended = timeout(Duration::from_secs(4), is_done.recv()).await;
        assert_eq!(ended, Ok(Some(())));
        following.abort();
    }

    #[test]
    fn a_follower_rests_from_computing_only_while_claims_come() {
        let second = Duration::from_secs(1);
        let after = |is_more| Stepped { is_more, rows: 0 };
        assert_eq!(rest(&after(true), second, 1), 3 * second);
        assert_eq!(rest(&after(true), second, 0), Duration::ZERO);
        assert_eq!(rest(&after(false), second, 0), EVERY);
        assert_eq!(rest(&after(false), Duration::ZERO, 7), EVERY);
    }

    #[test]
    fn a_follower_rests_from_rows_only_while_claims_come_and_never_long() {
        let second = Duration::from_secs(1);
        let after = |rows| Stepped {
            is_more: true,
            rows,
        };
        assert_eq!(rest(&after(10_000), Duration::ZERO, 1), second);
        assert_eq!(rest(&after(10_000), Duration::ZERO, 0), Duration::ZERO);
        assert_eq!(rest(&after(10_000), second, 1), 3 * second);
        assert_eq!(rest(&after(usize::MAX), second, 1), 5 * second);
    }

    #[tokio::test]
    async fn what_a_follower_computes_is_measured() {
        let long = Duration::from_millis(20);
        let (_, waited) = computing(sleep(2 * long)).await;
        assert!(waited < long, "{waited:?}");
        let ((), computed) = computing(async {
            let began = thread_cpu_time();
            while thread_cpu_time() - began < long {}
        })
        .await;
        assert!(computed >= long, "{computed:?}");
    }
}
