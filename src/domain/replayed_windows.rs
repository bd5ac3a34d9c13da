//! A limit of the calendar in a backtest, whose windows follow the calendar of each account.

use chrono::{DateTime, TimeDelta, Utc};

use super::claim::Units;
use super::window::{Calendar, Division, Window};

/// The usage of one account. A window can begin before one that has passed, so what counted in that is kept
/// for a while.
pub struct OwnWindow {
    /// The window of the last entry that was not denied.
    begun: Option<Window>,
    /// The window of the present entry.
    window: Window,
    changes: Vec<CountedChange>,
}

#[derive(Debug, Clone, Copy)]
struct CountedChange {
    counted_at: DateTime<Utc>,
    change: UseChange,
}

#[derive(Debug, Clone, Copy)]
pub enum UseChange {
    Take(Units),
    Lower(Units),
    Reset,
}

/// More than zones can differ.
const ZONES_DIFFER: TimeDelta = TimeDelta::days(2);
const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

/// The earliest instant of entries that can count at an instant, whatever calendar an account has: no window is
/// longer than one of the policy and the one before it.
pub fn counts_from(calendar: &Calendar, division: Division, at: DateTime<Utc>) -> DateTime<Utc> {
    let early = calendar.window(division, at - ZONES_DIFFER).start;
    calendar.window(division, early - MICROSECOND).start
}

impl OwnWindow {
    /// Goes on at an instant: the window that has begun goes on to its end, and then the calendar says which
    /// one follows.
    pub fn at(before: Option<Self>, at: DateTime<Utc>, next: impl Fn() -> Window) -> Self {
        let begun = before.as_ref().and_then(|own| own.begun);
        Self {
            begun,
            window: begun.filter(|it| it.contains(at)).unwrap_or_else(next),
            changes: before.map(|own| own.changes).unwrap_or_default(),
        }
    }

    /// The present entry was not denied.
    pub fn begin(&mut self) {
        self.begun = Some(self.window);
    }

    pub fn used(&self) -> u64 {
        let mut reset_at = None;
        let mut used: u64 = 0;
        for CountedChange { counted_at, change } in &self.changes {
            if !self.window.contains(*counted_at) || Some(*counted_at) < reset_at {
                continue;
            }
            match change {
                UseChange::Take(units) => used = used.saturating_add(units.get()),
                UseChange::Lower(units) => used = used.saturating_sub(units.get()),
                UseChange::Reset => (reset_at, used) = (Some(*counted_at), 0),
            }
        }
        used
    }

    pub fn note(&mut self, counted_at: DateTime<Utc>, change: UseChange) {
        self.begin();
        self.changes.push(CountedChange { counted_at, change });
    }

    /// Forgets what counts no more at an instant. Returns whether anything is left.
    pub fn forget(&mut self, before: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        self.changes.retain(|noted| before <= noted.counted_at);
        !self.changes.is_empty() || self.begun.is_some_and(|begun| at < begun.end)
    }
}
