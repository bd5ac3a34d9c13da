//! What an account's last line does not tell, and the total that a limit begins with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::Units;
use super::grant::{Direction, Entry, EntryKind, Line};
use super::identity::EntryId;
use super::limit::total::{GivenBack, LimitState, Total};
use super::window::Window;

/// What must be read of an account's entries up to its last line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedPast {
    /// The units used in these windows.
    pub windows: Vec<Window>,
    /// The entries after this instant.
    pub since: Option<DateTime<Utc>>,
    /// The totals of this grant's line.
    pub grant: Option<EntryId>,
}

impl WantedPast {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each part of it by itself.
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let windows = self.windows.into_iter().map(|window| Self {
            windows: vec![window],
            ..Self::default()
        });
        let since = self.since.map(|since| Self {
            since: Some(since),
            ..Self::default()
        });
        let grant = self.grant.map(|grant| Self {
            grant: Some(grant),
            ..Self::default()
        });
        windows.chain(since).chain(grant)
    }

    /// Wants what another wants too.
    pub fn add(&mut self, other: Self) {
        for window in other.windows {
            if !self.windows.contains(&window) {
                self.windows.push(window);
            }
        }
        self.since = self.since.into_iter().chain(other.since).min();
        self.grant = self.grant.or(other.grant);
    }
}

/// What was read of an account's entries.
#[derive(Debug, Clone, Default)]
pub struct Past {
    sums: Vec<(Window, u64)>,
    tail: Option<Tail>,
    grants: Vec<(EntryId, Arc<[Total]>)>,
}

/// All that moved units after an instant, in the order of the entries.
#[derive(Debug, Clone)]
struct Tail {
    since: DateTime<Utc>,
    movements: Vec<Movement>,
}

/// An entry, without what only its readers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Movement {
    pub id: EntryId,
    pub kind: EntryKind,
    pub units: Units,
    /// The entry's instant.
    pub at: DateTime<Utc>,
}

impl From<&Entry> for Movement {
    fn from(entry: &Entry) -> Self {
        Self {
            id: entry.id,
            kind: entry.kind,
            units: entry.units,
            at: entry.line.at,
        }
    }
}

impl Movement {
    /// The instant at which its units count: for what gives units back, the grant's. The entry's
    /// own may be later where the entry was appended afterwards.
    pub fn counted_at(&self) -> DateTime<Utc> {
        self.kind.of().unwrap_or(self.id).at()
    }

    /// The total after it. `grant` has the totals of the grant that it names.
    fn apply(&self, total: &mut Total, grant: &[Total]) {
        let (units, counted_at) = (self.units.get(), self.counted_at());
        total.age(self.at);
        match self.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => {
                total.add(units, counted_at, self.at);
            }
            EntryKind::Adjustment(Direction::Down) => total.lower(units, counted_at, self.at),
            EntryKind::Confirmation { .. } => {}
            EntryKind::Reversal { .. } | EntryKind::Lapse { .. } => {
                let given = GivenBack {
                    units: self.units,
                    granted_at: counted_at,
                    totals: grant,
                };
                total.give_back(given, self.at);
            }
        }
    }
}

impl Past {
    /// Notes the units used in a window.
    pub fn insert(&mut self, window: Window, units: u64) {
        self.sums.push((window, units));
    }

    /// Notes all entries after an instant, in their order.
    pub fn insert_tail(&mut self, since: DateTime<Utc>, movements: Vec<Movement>) {
        self.tail = Some(Tail { since, movements });
    }

    /// Notes the totals of a grant's line; none where they cannot be told.
    pub fn insert_grant(&mut self, grant: EntryId, totals: Arc<[Total]>) {
        self.grants.push((grant, totals));
    }

    /// Takes over what was read besides.
    pub fn extend(&mut self, other: Self) {
        self.sums.extend(other.sums);
        self.grants.extend(other.grants);
        self.tail = other.tail.or(self.tail.take());
    }

    /// The past after some more entries.
    pub fn after(mut self, entries: &[Entry]) -> Self {
        for (window, units) in &mut self.sums {
            for entry in entries {
                *units = entry.used_after(*window, *units);
            }
        }
        if let Some(tail) = &mut self.tail {
            tail.movements.extend(entries.iter().map(Movement::from));
        }
        for entry in entries {
            let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
            if is_grant && entry.line.totals.iter().any(Total::asks_for_grant) {
                self.insert_grant(entry.id, entry.line.totals.clone());
            }
        }
        self
    }

    /// The units used in a window.
    pub fn sum(&self, window: Window) -> Option<u64> {
        let found = self.sums.iter().find(|(summed, _)| *summed == window);
        found.map(|(_, units)| *units)
    }

    fn tail(&self, since: DateTime<Utc>) -> Option<impl Iterator<Item = &Movement>> {
        let tail = self.tail.as_ref().filter(|tail| tail.since <= since)?;
        Some(tail.movements.iter())
    }

    /// The totals of a grant's line.
    pub fn grant(&self, grant: EntryId) -> Option<&[Total]> {
        let found = self.grants.iter().find(|(id, _)| *id == grant);
        found.map(|(_, totals)| &**totals)
    }
}

/// Goes on from what an account's last line told of a limit, before anything else is taken. `unused` is
/// the limit without anything used at an instant.
///
/// A limit that the line tells goes on, and so does a window of the calendar. A window that begins
/// after the line is unused. What else a line of before a change does not tell, comes from the past.
///
/// # Errors
/// What must be read.
pub fn go_on_after(
    unused: &mut Total,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<(), WantedPast> {
    let Some(last) = last else { return Ok(()) };
    match &mut unused.state {
        LimitState::Calendar(calendar) => {
            let window = calendar.window;
            let mut told = last.totals.iter().filter_map(Total::window_use);
            calendar.used = match told.find(|told| told.window == window) {
                Some(told) => told.used,
                None if window.start > last.at => 0,
                None => past.sum(window).ok_or_else(|| WantedPast {
                    windows: vec![window],
                    ..WantedPast::default()
                })?,
            };
            Ok(())
        }
        LimitState::FromFirstClaim(_) | LimitState::Sliding(_) | LimitState::Rate(_) => {
            return_units(unused, last, past, at)
        }
    }
}

/// The same for a limit whose units return when time has passed.
fn return_units(
    total: &mut Total,
    last: &Line,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<(), WantedPast> {
    let same = |before: &&Total| before.is_of_same_limit(total);
    if let Some(before) = last.totals.iter().find(same) {
        total.go_on(before, at);
        return Ok(());
    }
    let since = total.forgets_at(at);
    if last.at <= since {
        return Ok(());
    }
    let movements = past.tail(since).ok_or_else(|| WantedPast {
        since: Some(since),
        ..WantedPast::default()
    })?;
    if let LimitState::Rate(bucket) = &mut total.state {
        // How full it was is not known: it is taken as empty.
        bucket.at = since.timestamp_micros();
        bucket.owed = bucket.parts(bucket.burst);
    }
    for movement in movements.filter(|movement| movement.counted_at() > since) {
        movement.apply(total, &[]);
    }
    total.age(at);
    Ok(())
}

/// As [`go_on_after`], and the total.
///
/// # Errors
/// What must be read.
pub fn total_after(
    mut unused: Total,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<Total, WantedPast> {
    go_on_after(&mut unused, last, past, at)?;
    Ok(unused)
}

/// The total after an entry, from the one before it: what the audit replays.
///
/// # Errors
/// What must be read.
pub fn total_with(mut before: Total, entry: &Entry, past: &Past) -> Result<Total, WantedPast> {
    let grant = match entry.kind {
        EntryKind::Reversal { of } | EntryKind::Lapse { of } if before.asks_for_grant() => {
            past.grant(of).ok_or_else(|| WantedPast {
                grant: Some(of),
                ..WantedPast::default()
            })?
        }
        _ => &[],
    };
    Movement::from(entry).apply(&mut before, grant);
    Ok(before)
}
