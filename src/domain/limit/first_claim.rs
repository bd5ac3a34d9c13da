//! `from_first_claim`: all units return once `per` has passed since the window's first grant.

use chrono::{DateTime, Utc};

use super::per::Elapsed;
use crate::domain::window::Window;

/// The window of a limit from the first claim. The first grant at or after its end opens the next
/// one. It stays open when all units were given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedWindow {
    pub per: Elapsed,
    /// When it was opened; `None` while none is open.
    pub opened: Option<DateTime<Utc>>,
    /// The units used in it.
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

    /// The window as of an instant that is not before the last one.
    pub fn age(&mut self, at: DateTime<Utc>) {
        if self.window().is_some_and(|window| window.end <= at) {
            *self = Self::closed(self.per);
        }
    }

    /// Adds units that count at an instant, as of another that is not before it.
    pub fn add(&mut self, units: u64, counted_at: DateTime<Utc>, at: DateTime<Utc>) {
        if self.opened.is_none() && at < counted_at + self.per.delta() {
            self.opened = Some(counted_at);
        }
        if self.counts(counted_at) {
            self.used = self.used.saturating_add(units);
        }
    }

    /// Takes off units that counted at an instant.
    pub fn take_off(&mut self, units: u64, counted_at: DateTime<Utc>) {
        if self.counts(counted_at) {
            self.used = self.used.saturating_sub(units);
        }
    }

    /// Whether what counts at an instant counts in the open window.
    pub fn counts(&self, counted_at: DateTime<Utc>) -> bool {
        let window = self.window();
        window.is_some_and(|window| window.contains(counted_at))
    }
}
