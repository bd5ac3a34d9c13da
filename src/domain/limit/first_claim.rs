//! `from_first_claim`: all units return once `per` has passed since the window's first grant.

use chrono::{DateTime, Utc};

use crate::elapsed::Elapsed;
use crate::window::Window;

/// The window of a limit from the first claim. The first grant at or after the end of the window opens
/// the next window. The window stays open if all units are given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedWindow {
    pub per: Elapsed,
    /// The instant of the first grant. `None`: no window is open.
    pub opened: Option<DateTime<Utc>>,
    pub used: u64,
}

impl OpenedWindow {
    pub fn closed(per: Elapsed) -> Self {
        Self {
            per,
            opened: None,
            used: 0,
        }
    }

    pub fn window(&self) -> Option<Window> {
        self.opened.map(|start| Window {
            start,
            end: start + self.per.delta(),
        })
    }

    /// Brings the window to a later instant: a window that has ended is closed.
    pub fn age(&mut self, at: DateTime<Utc>) {
        if self.window().is_some_and(|window| window.end <= at) {
            *self = Self::closed(self.per);
        }
    }

    /// Adds units that count at `counted_at`. `at` is the present instant, not before `counted_at`.
    pub fn add(&mut self, units: u64, counted_at: DateTime<Utc>, at: DateTime<Utc>) {
        if self.opened.is_none() && at < counted_at + self.per.delta() {
            self.opened = Some(counted_at);
        }
        if self.counts(counted_at) {
            self.used = self.used.saturating_add(units);
        }
    }

    /// Takes off units that counted at `counted_at`.
    pub fn take_off(&mut self, units: u64, counted_at: DateTime<Utc>) {
        if self.counts(counted_at) {
            self.used = self.used.saturating_sub(units);
        }
    }

    /// Tells whether units of this instant count in the open window.
    pub fn counts(&self, counted_at: DateTime<Utc>) -> bool {
        let window = self.window();
        window.is_some_and(|window| window.contains(counted_at))
    }
}
