//! How far the record and the figures are, as this instance knows.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::lag::Lag;
use ledger::Horizon;

/// The progress of the followers, for requests that wait for entries, and for the metrics.
pub struct RecordProgress {
    newest: watch::Sender<Newest>,
    lag: Mutex<Lag>,
    figures_lag: Mutex<Lag>,
}

#[derive(Default)]
struct Newest {
    position: u64,
    /// When the position was noted here.
    noted_at: Option<Instant>,
    /// The instance ends: nobody may wait any more.
    is_ending: bool,
}

impl RecordProgress {
    pub fn new(now: Instant) -> Self {
        Self {
            newest: watch::Sender::default(),
            lag: Mutex::new(Lag::new(now)),
            figures_lag: Mutex::new(Lag::new(now)),
        }
    }

    /// Notes the newest position, and that everything of transactions below `covered` has a
    /// position.
    pub fn note(&self, position: u64, now: Instant, horizon: Horizon, covered: i64) {
        held(&self.lag).note(now, horizon.begun, covered);
        self.newest.send_if_modified(|newest| {
            let is_new = newest.position != position;
            if is_new {
                newest.position = position;
                newest.noted_at = Some(Instant::now());
            }
            is_new
        });
    }

    /// The age of the oldest commit that may not have a position yet.
    pub fn lag_at(&self, now: Instant) -> Duration {
        held(&self.lag).at(now)
    }

    /// Notes that the figures have the entries up to a position.
    pub fn note_figures(&self, position: u64, now: Instant) {
        let newest = self.newest.borrow().position;
        let mut lag = held(&self.figures_lag);
        lag.note(now, newest.cast_signed(), position.cast_signed());
    }

    /// The age of the oldest position that may not be in the figures yet.
    pub fn figures_lag_at(&self, now: Instant) -> Duration {
        held(&self.figures_lag).at(now)
    }

    /// Waits until there is a position above this one. Returns the instant at which the newest
    /// position was noted, the same for all who wait; `None` at the deadline, and when the instance
    /// ends.
    pub async fn above(&self, position: u64, deadline: Instant) -> Option<Instant> {
        let mut newest = self.newest.subscribe();
        let above = newest.wait_for(|newest| newest.is_ending || newest.position > position);
        let newest = timeout_at(deadline, above).await.ok()?.ok()?;
        newest.noted_at.filter(|_| !newest.is_ending)
    }

    /// Ends all waits.
    pub fn end(&self) {
        self.newest.send_modify(|newest| newest.is_ending = true);
    }
}

fn held(lag: &Mutex<Lag>) -> MutexGuard<'_, Lag> {
    lag.lock().unwrap_or_else(PoisonError::into_inner)
}
