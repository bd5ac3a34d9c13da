//! Clocks that differ, jump, and pass midnight. The test controls the clocks: the instances run in
//! this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::host::clock::{Clock, ManualClock};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::setup::Setup;
use super::trial::Trial;
use crate::support::app::{Ground, Stack, instant};
use crate::support::servers::Redis;

/// Shortly before midnight in GMT+8, and before the end of a month in GMT+9.
const EVENING: &str = "2026-11-30T15:59:30Z";

/// A clock that runs, and can be set forward and back.
struct Watch {
    clock: ManualClock,
    offset_seconds: Arc<AtomicI64>,
    hand: AbortHandle,
}

impl Watch {
    /// A clock that starts at `time` and runs.
    fn start(time: impl Fn() -> DateTime<Utc> + Send + 'static) -> Self {
        let clock = ManualClock::at(time());
        let offset_seconds = Arc::new(AtomicI64::new(0));
        let of_hand = clock.clone();
        let offset = offset_seconds.clone();
        let hand = tokio::spawn(async move {
            loop {
                let offset = TimeDelta::seconds(offset.load(Ordering::SeqCst));
                of_hand.set(time() + offset);
                sleep(Duration::from_millis(5)).await;
            }
        });
        Self {
            clock,
            offset_seconds,
            hand: hand.abort_handle(),
        }
    }

    /// Sets how many seconds the clock is ahead.
    fn put(&self, seconds: i64) {
        self.offset_seconds.store(seconds, Ordering::SeqCst);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hand.abort();
    }
}

struct Place {
    redis: Redis,
    ground: Ground,
}

impl Place {
    fn new() -> Self {
        let redis = Redis::start();
        let mut ground = Ground::new(Stack::Postgres);
        ground.redis_url = Some(redis.url());
        Self { redis, ground }
    }

    /// Begins a trial with one instance for each watch.
    async fn begin(
        &self,
        name: &'static str,
        watches: &[Watch; 2],
        tolerance: Option<TimeDelta>,
    ) -> Trial {
        let setup = Setup::plain(self.ground.database_url.clone(), self.redis.url());
        Trial::begin_with(name, setup, &self.ground, |number, options| {
            options.clock = Clock::Manual(watches[number].clock.clone());
            options.clock_tolerance = tolerance;
            options.claim_deadline = Duration::from_secs(2);
            options.redis_timeout = Duration::from_millis(100);
        })
        .await
    }
}

/// A time that runs from an instant, twice as fast as real time.
fn hurried(from: &str) -> impl Fn() -> DateTime<Utc> + Send + 'static {
    let from = instant(from);
    let began = Instant::now();
    move || from + TimeDelta::milliseconds(2 * began.elapsed().as_millis() as i64)
}

/// Midnight passes, first at one instance and five seconds later at the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn midnight_under_load_on_clocks_that_differ() {
    let place = Place::new();
    let watches = [
        Watch::start(hurried(EVENING)),
        Watch::start(hurried(EVENING)),
    ];
    watches[1].put(-5);
    let name = "midnight_under_load_on_clocks_that_differ";
    let trial = place.begin(name, &watches, None).await;
    let midnight = instant("2026-11-30T16:00:00Z");
    for (watch, what) in watches
        .iter()
        .zip(["midnight at one", "midnight at the other"])
    {
        trial.until(what, || watch.clock.now() >= midnight).await;
        trial.mark(what);
    }
    trial.everybody_grants(60).await;
    trial.end().await;
}

/// The time of this machine.
fn real_time() -> impl Fn() -> DateTime<Utc> + Send + 'static {
    let clock = Clock::system();
    move || clock.now()
}

/// One clock jumps forward by an hour, and back. Its instance decides nothing during that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_jumps_an_hour() {
    let place = Place::new();
    let watches = [Watch::start(real_time()), Watch::start(real_time())];
    let tolerance = Some(TimeDelta::seconds(10));
    let mut trial = place
        .begin("a_clock_jumps_an_hour", &watches, tolerance)
        .await;
    for seconds in [3600, -3600] {
        watches[0].put(seconds);
        trial.mark("a clock jumps");
        trial.instance_grants(1, 30).await;
        trial.pause(500, 1000).await;
        watches[0].put(0);
        trial.mark("it is right again");
        trial.everybody_grants(30).await;
    }
    trial.end().await;
}

/// The same without the check of the clocks. Every grant still counts, once, in the window of its
/// entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_jumps_an_hour_and_nobody_looks() {
    let place = Place::new();
    let watches = [
        Watch::start(hurried(EVENING)),
        Watch::start(hurried(EVENING)),
    ];
    let name = "a_clock_jumps_an_hour_and_nobody_looks";
    let mut trial = place.begin(name, &watches, None).await;
    for seconds in [3600, 0, -3600, 0] {
        watches[0].put(seconds);
        trial.mark("a clock jumps");
        trial.everybody_grants(30).await;
        trial.pause(0, 500).await;
    }
    trial.end().await;
}
