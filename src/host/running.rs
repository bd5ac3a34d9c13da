//! The time in which the process ran. A process that is stopped, or asleep with its machine, does
//! nothing: data that arrived in that time arrived in time. So a limit on what this process sees,
//! such as the time of a client to send a request, does not count such pauses.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// The pause between two beats of a running process.
const BEAT: Duration = Duration::from_millis(100);
/// More time than this between two beats means that the process was stopped.
const HELD_UP: Duration = Duration::from_millis(750);

/// The time in which the process has run. The beats stop when this value is dropped.
#[derive(Debug)]
pub struct RunningTime {
    began: Instant,
    /// The last beat, in microseconds since the start.
    beat_micros: AtomicU64,
    /// The microseconds in which the process did not run.
    held_up_micros: AtomicU64,
}

impl RunningTime {
    /// Starts to measure on the present runtime.
    pub fn begin() -> Arc<Self> {
        let time = Arc::new(Self {
            began: Instant::now(),
            beat_micros: AtomicU64::new(0),
            held_up_micros: AtomicU64::new(0),
        });
        tokio::spawn(beat(Arc::downgrade(&time)));
        time
    }

    pub fn now(&self) -> Duration {
        let passed = self.passed_micros();
        let gap = passed.saturating_sub(self.beat_micros.load(Ordering::SeqCst));
        let held_up = self.held_up_micros.load(Ordering::SeqCst) + held_up_in(gap);
        Duration::from_micros(passed.saturating_sub(held_up))
    }

    /// The output of a future; `None` if it takes longer than the limit.
    pub async fn timeout<T>(
        self: &Arc<Self>,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut alarm = Alarm::new(self.clone());
        alarm.set(limit);
        let over = std::future::poll_fn(|context| alarm.poll_over(context));
        tokio::select! {
            biased;
            output = future => Some(output),
            () = over => None,
        }
    }

    fn passed_micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The microseconds between two beats in which the process did not run.
fn held_up_in(gap: u64) -> u64 {
    if Duration::from_micros(gap) > HELD_UP {
        gap - BEAT.as_micros() as u64
    } else {
        0
    }
}

async fn beat(time: Weak<RunningTime>) {
    loop {
        sleep(BEAT).await;
        let Some(time) = time.upgrade() else { return };
        let passed = time.passed_micros();
        let before = time.beat_micros.load(Ordering::SeqCst);
        let held_up = held_up_in(passed.saturating_sub(before));
        // Invariant: this order. Between the two lines a pause is subtracted twice, and never
        // counted.
        time.held_up_micros.fetch_add(held_up, Ordering::SeqCst);
        time.beat_micros.store(passed, Ordering::SeqCst);
    }
}

/// An alarm after a span of running time. It can be set many times without a new timer of the
/// runtime.
pub struct Alarm {
    time: Arc<RunningTime>,
    ends_at: Option<Duration>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    pub fn new(time: Arc<RunningTime>) -> Self {
        Self {
            time,
            ends_at: None,
            sleep: None,
        }
    }

    /// Sets the alarm to a span from now on.
    pub fn set(&mut self, span: Duration) {
        self.ends_at = Some(self.time.now() + span);
    }

    /// Sets the alarm unless it is set.
    pub fn set_if_clear(&mut self, span: Duration) {
        if self.ends_at.is_none() {
            self.set(span);
        }
    }

    pub fn clear(&mut self) {
        self.ends_at = None;
    }

    /// Whether the span is over. Wakes the task when it may be over.
    pub fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(ends_at) = self.ends_at else {
            return Poll::Pending;
        };
        loop {
            let left = ends_at.saturating_sub(self.time.now());
            if left.is_zero() {
                return Poll::Ready(());
            }
            let due = Instant::now() + left;
            match &mut self.sleep {
                None => self.sleep = Some(Box::pin(sleep(left))),
                // A timer that ends earlier is set again when it ends.
                Some(sleep) if sleep.is_elapsed() || sleep.deadline() > due => {
                    sleep.as_mut().reset(due);
                }
                Some(_) => {}
            }
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_pause_is_left_out() {
        let at = |passed: u64, beat: u64, held_up: u64| {
            let time = RunningTime {
                began: Instant::now() - Duration::from_micros(passed),
                beat_micros: AtomicU64::new(beat),
                held_up_micros: AtomicU64::new(held_up),
            };
            time.now().as_secs()
        };
        assert_eq!(at(5 * SECOND, 5 * SECOND, 0), 5);
        // The last beat was two seconds before a pause of seven seconds.
        assert_eq!(at(9 * SECOND, 2 * SECOND, 0), 2);
        assert_eq!(at(9 * SECOND, 9 * SECOND, 6 * SECOND), 3);
    }

    #[tokio::test]
    async fn what_takes_too_long_is_given_up() {
        let time = RunningTime::begin();
        let limit = Duration::from_millis(20);
        assert_eq!(
            time.timeout(limit, std::future::pending::<()>()).await,
            None
        );
        assert_eq!(time.timeout(limit, async { 7 }).await, Some(7));
    }

    #[tokio::test]
    async fn an_alarm_can_be_put_off() {
        let time = RunningTime::begin();
        let mut alarm = Alarm::new(time);
        let is_over = |alarm: &mut Alarm| {
            let mut context = Context::from_waker(std::task::Waker::noop());
            alarm.poll_over(&mut context).is_ready()
        };
        assert!(!is_over(&mut alarm));
        alarm.set(Duration::ZERO);
        assert!(is_over(&mut alarm));
        alarm.set(Duration::from_secs(60));
        assert!(!is_over(&mut alarm));
        alarm.clear();
        assert!(!is_over(&mut alarm));
    }
}
