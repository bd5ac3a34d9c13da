//! The part of the past that the last line of an account does not have, and the total that a limit
//! starts with.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::Units;
use super::grant::{Direction, Entry, EntryKind, Line};
use super::identity::EntryId;
use super::limit::total::{GivenBack, LimitState, Total};
use super::window::Window;

/// The part of the entries of an account, up to its last line, that must be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedPast {
    /// The usage of these windows.
    pub windows: Vec<Window>,
    pub since: Option<DateTime<Utc>>,
    /// The totals on the line of this grant.
    pub grant: Option<EntryId>,
}

impl WantedPast {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each part alone.
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

    /// Adds the wishes of another one.
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

/// The part of the past of an account that was read.
#[derive(Debug, Clone, Default)]
pub struct Past {
    sums: Vec<(Window, u64)>,
    tail: Option<Tail>,
    grants: Vec<(EntryId, Arc<[Total]>)>,
}

/// Every entry that moved units after an instant, in order.
#[derive(Debug, Clone)]
struct Tail {
    since: DateTime<Utc>,
    movements: Vec<Movement>,
}

/// The part of an entry that totals need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Movement {
    pub id: EntryId,
    pub kind: EntryKind,
    pub units: Units,
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
    /// The instant in whose windows the units count. An entry that gives units back has the instant
    /// of the grant. The instant of the entry may be later if the entry was appended afterwards.
    pub fn counted_at(&self) -> DateTime<Utc> {
        self.kind.of().unwrap_or(self.id).at()
    }

    /// Changes a total as the entry does. `grant` has the totals of the grant that the entry names.
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
    /// Adds the usage of a window.
    pub fn insert(&mut self, window: Window, units: u64) {
        self.sums.push((window, units));
    }

    /// Adds all entries after an instant, in order.
    pub fn insert_tail(&mut self, since: DateTime<Utc>, movements: Vec<Movement>) {
        self.tail = Some(Tail { since, movements });
    }

    /// Adds the totals of the line of a grant; none if they are not known.
    pub fn insert_grant(&mut self, grant: EntryId, totals: Arc<[Total]>) {
        self.grants.push((grant, totals));
    }

    /// Adds another part of the past.
    pub fn extend(&mut self, other: Self) {
        self.sums.extend(other.sums);
        self.grants.extend(other.grants);
        self.tail = other.tail.or(self.tail.take());
    }

    /// The past after more entries.
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

    /// What is known of the entries, without the totals of grants.
    pub fn without_grants(self) -> Self {
        Self {
            grants: Vec::new(),
            ..self
        }
    }

    /// What is known of grants, without the sums and the entries, which new entries change.
    pub fn grants_alone(self) -> Self {
        Self {
            grants: self.grants,
            ..Self::default()
        }
    }

    /// About how much memory this takes.
    pub fn bytes(&self) -> usize {
        let movements = self.tail.as_ref().map_or(0, |tail| tail.movements.len());
        let totals = self.grants.iter().map(|(_, totals)| totals.len());
        let totals: usize = totals.sum();
        self.sums.len() * size_of::<(Window, u64)>()
            + movements * size_of::<Movement>()
            + self.grants.len() * size_of::<(EntryId, Arc<[Total]>)>()
            + totals * size_of::<Total>()
    }

    /// The usage of a window.
    pub fn sum(&self, window: Window) -> Option<u64> {
        let found = self.sums.iter().find(|(summed, _)| *summed == window);
        found.map(|(_, units)| *units)
    }

    fn tail(&self, since: DateTime<Utc>) -> Option<impl Iterator<Item = &Movement>> {
        let tail = self.tail.as_ref().filter(|tail| tail.since <= since)?;
        Some(tail.movements.iter())
    }

    pub fn grant(&self, grant: EntryId) -> Option<&[Total]> {
        let found = self.grants.iter().find(|(id, _)| *id == grant);
        found.map(|(_, totals)| &**totals)
    }
}

/// Continues a limit from the last line of an account, before any units are taken. `unused` is the
/// limit at an instant with nothing used.
///
/// A limit of the line continues, and so does a calendar window. A window that starts after the
/// line is unused. Everything else that a line before a change does not have comes from the past.
///
/// # Errors
/// The part of the past that must be read.
pub fn go_on_after(
    unused: &mut Total,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<(), WantedPast> {
    // 1. An account without entries has used nothing.
    let Some(last) = last else { return Ok(()) };
    match &mut unused.state {
        // 2. A calendar window: from the line, unused if it starts after the line, or from the
        //    past.
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
        // 3. A limit whose units return over time.
        LimitState::FromFirstClaim(_) | LimitState::Sliding(_) | LimitState::Rate(_) => {
            return_units(unused, last, past, at)
        }
    }
}

/// As [`go_on_after`], for a limit whose units return over time.
fn return_units(
    total: &mut Total,
    last: &Line,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<(), WantedPast> {
    // 1. The last line has the same limit: it continues.
    let same = |before: &&Total| before.is_of_same_limit(total);
    if let Some(before) = last.totals.iter().find(same) {
        total.go_on(before, at);
        return Ok(());
    }
    // 2. Otherwise the limit changed: it is computed from the entries that still count.
    let since = total.forgets_at(at);
    if last.at <= since {
        return Ok(());
    }
    let movements = past.tail(since).ok_or_else(|| WantedPast {
        since: Some(since),
        ..WantedPast::default()
    })?;
    if let LimitState::Rate(bucket) = &mut total.state {
        // The earlier state of the bucket is not known: the bucket is taken as empty.
        bucket.at = since.timestamp_micros();
        bucket.owed = bucket.parts(bucket.burst);
    }
    for movement in movements.filter(|movement| movement.counted_at() > since) {
        movement.apply(total, &[]);
    }
    total.age(at);
    Ok(())
}

/// The next instant at which a total that is computed from the past forgets an entry.
pub fn forgets_next(past: &Past, total: &Total, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let movements = past.tail.iter().flat_map(|tail| &tail.movements);
    let forgotten = movements.filter_map(|movement| {
        let counted_at = movement.counted_at();
        match &total.state {
            LimitState::Calendar(_) => None,
            LimitState::Sliding(log) => log.forgets(counted_at),
            LimitState::FromFirstClaim(_) | LimitState::Rate(_) => {
                counted_at.checked_add_signed(at - total.forgets_at(at))
            }
        }
    });
    forgotten.filter(|forgotten| *forgotten > at).min()
}

/// As [`go_on_after`], and returns the total.
///
/// # Errors
/// The part of the past that must be read.
pub fn total_after(
    mut unused: Total,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<Total, WantedPast> {
    go_on_after(&mut unused, last, past, at)?;
    Ok(unused)
}

/// The total after an entry, from the total before it. The audit replays entries in this way.
///
/// # Errors
/// The part of the past that must be read.
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
