//! The part of the past that the last line of an account does not have, and the total that a limit
//! starts with.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::claim::Units;
use super::grant::{Direction, Entry, EntryKind, Line};
use super::identity::EntryId;
use super::limit::rate::{AfterGrant, BucketChange};
use super::limit::total::{GivenBack, LimitState, Total};
use super::window::Window;

/// The part of the entries of an account, up to its last line, that must be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedPast {
    /// The usage of these windows.
    pub windows: Vec<Window>,
    /// Every entry that moved units after this instant.
    pub since: Option<DateTime<Utc>>,
}

impl WantedPast {
    fn since(instant: DateTime<Utc>) -> Self {
        Self {
            since: Some(instant),
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each part alone.
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let windows = self.windows.into_iter().map(|window| Self {
            windows: vec![window],
            ..Self::default()
        });
        windows.chain(self.since.map(Self::since))
    }

    /// Adds the wishes of another one.
    pub fn add(&mut self, other: Self) {
        for window in other.windows {
            if !self.windows.contains(&window) {
                self.windows.push(window);
            }
        }
        self.since = self.since.into_iter().chain(other.since).min();
    }
}

/// The part of the past of an account that was read.
#[derive(Debug, Clone, Default)]
pub struct Past {
    sums: Vec<(Window, u64)>,
    tail: Option<Tail>,
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
    pub number: u64,
    pub id: EntryId,
    pub kind: EntryKind,
    pub units: Units,
    pub at: DateTime<Utc>,
}

impl From<&Entry> for Movement {
    fn from(entry: &Entry) -> Self {
        Self {
            number: entry.line.number,
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

    /// Changes a total as the entry does. `after` has what happened after the grant that the entry
    /// names.
    fn apply(&self, total: &mut Total, after: Option<&AfterGrant>) {
        let (units, counted_at) = (self.units.get(), self.counted_at());
        total.age(self.at);
        match self.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => {
                total.add(units, counted_at, self.at);
            }
            EntryKind::Adjustment(Direction::Down) => total.lower(units, counted_at, self.at),
            EntryKind::Confirmation { .. } => {}
            EntryKind::Reversal { .. }
            | EntryKind::PartialReversal { .. }
            | EntryKind::Lapse { .. } => {
                let given = GivenBack {
                    units: self.units,
                    granted_at: counted_at,
                    after,
                };
                total.give_back(given, self.at);
            }
        }
    }

    /// The usage after the entry, if it was `used` before and the units count.
    fn used_after(used: u64, movement: &Self) -> u64 {
        let units = movement.units.get();
        match movement.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => {
                used.saturating_add(units)
            }
            EntryKind::Confirmation { .. } => used,
            EntryKind::Reversal { .. }
            | EntryKind::PartialReversal { .. }
            | EntryKind::Lapse { .. }
            | EntryKind::Adjustment(Direction::Down) => used.saturating_sub(units),
        }
    }

    /// The grant whose units the entry gives back.
    fn gives_back(&self) -> Option<EntryId> {
        match self.kind {
            EntryKind::Reversal { of }
            | EntryKind::PartialReversal { of }
            | EntryKind::Lapse { of } => Some(of),
            EntryKind::Grant { .. } | EntryKind::Confirmation { .. } | EntryKind::Adjustment(_) => {
                None
            }
        }
    }
}

/// The changes that some entries made: what was given back of a grant was never taken.
fn net_changes(movements: &[Movement]) -> Vec<BucketChange> {
    let mut given_back: HashMap<EntryId, u64> = HashMap::new();
    for movement in movements {
        if let Some(grant) = movement.gives_back() {
            *given_back.entry(grant).or_default() += movement.units.get();
        }
    }
    let change = |movement: &Movement| {
        let takes = match movement.kind {
            EntryKind::Grant { .. } | EntryKind::Adjustment(Direction::Up) => true,
            EntryKind::Adjustment(Direction::Down) => false,
            EntryKind::Confirmation { .. }
            | EntryKind::Reversal { .. }
            | EntryKind::PartialReversal { .. }
            | EntryKind::Lapse { .. } => return None,
        };
        let given_back = given_back.get(&movement.id).copied().unwrap_or_default();
        Some(BucketChange {
            at: movement.at,
            counted_at: movement.counted_at(),
            units: movement.units.get().saturating_sub(given_back),
            takes,
        })
    };
    movements.iter().filter_map(change).collect()
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

    /// Adds another part of the past.
    pub fn extend(&mut self, other: Self) {
        self.sums.extend(other.sums);
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
        self
    }

    /// About how much memory this takes.
    pub fn bytes(&self) -> usize {
        let movements = self.tail.as_ref().map_or(0, |tail| tail.movements.len());
        self.sums.len() * size_of::<(Window, u64)>() + movements * size_of::<Movement>()
    }

    /// The usage of a window.
    pub fn sum(&self, window: Window) -> Option<u64> {
        let found = self.sums.iter().find(|(summed, _)| *summed == window);
        found.map(|(_, units)| *units)
    }

    /// Every entry that moved units after an instant, in order.
    ///
    /// # Errors
    /// The part of the past that must be read.
    fn tail(&self, since: DateTime<Utc>) -> Result<&[Movement], WantedPast> {
        let tail = self.tail.as_ref().filter(|tail| tail.since <= since);
        let tail = tail.ok_or_else(|| WantedPast::since(since))?;
        let earlier = tail
            .movements
            .partition_point(|movement| movement.at <= since);
        Ok(&tail.movements[earlier..])
    }

    /// What happened after a grant; `None` if the account does not have the grant.
    ///
    /// # Errors
    /// The part of the past that must be read.
    pub fn after_grant(&self, grant: EntryId) -> Result<Option<AfterGrant>, WantedPast> {
        let tail = self.tail(grant.at() - MICROSECOND)?;
        let Some(place) = tail.iter().position(|movement| movement.id == grant) else {
            return Ok(None);
        };
        let mut changes = net_changes(&tail[place..]);
        Ok(Some(AfterGrant {
            line: tail[place].number,
            grant: changes.remove(0),
            changes,
        }))
    }
}

const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

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
    // 2. Otherwise the limit is new. It begins with what still counted at the last line: so its
    //    instants stay the same until the next line.
    if total.forgets_at(at) < last.at {
        let since = total.forgets_at(last.at);
        let movements = past.tail(since)?.iter();
        let counting: Vec<Movement> = movements
            .filter(|movement| movement.counted_at() > since)
            .copied()
            .collect();
        begin(total, since, last.at, &counting);
        total.age(at);
    }
    Ok(())
}

/// Begins a limit at the last line, which does not have it, with all entries that count after
/// `since`.
fn begin(total: &mut Total, since: DateTime<Utc>, last_at: DateTime<Utc>, movements: &[Movement]) {
    let changes = net_changes(movements);
    match &mut total.state {
        // 1. The earlier state of a bucket is not known: the bucket is taken as empty. At the last
        //    line it is empty at worst, also if more than its burst was used under other limits.
        LimitState::Rate(bucket) => {
            bucket.at = since.timestamp_micros();
            bucket.owed = bucket.parts(bucket.burst);
            for change in &changes {
                bucket.change(total.max, change);
            }
            bucket.age(total.max, last_at);
            bucket.owed = bucket.owed.min(bucket.parts(bucket.burst));
        }
        // 2. The start of a window is not known: the window ends as late as it can.
        LimitState::FromFirstClaim(opened) => {
            let takes = changes.iter().filter(|change| change.takes);
            opened.opened = takes.map(|change| change.counted_at).max();
            opened.used = movements.iter().fold(0, Movement::used_after);
        }
        // 3. Nothing else of a sliding limit counts.
        LimitState::Calendar(_) | LimitState::Sliding(_) => {
            movements
                .iter()
                .for_each(|movement| movement.apply(total, None));
        }
    }
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
    let movement = Movement::from(entry);
    let grant = movement.gives_back();
    let asks = |grant: &EntryId| before.asks_for_changes(grant.at(), entry.line.at);
    let after = match grant.filter(asks) {
        Some(grant) => past.after_grant(grant)?,
        None => None,
    };
    movement.apply(&mut before, after.as_ref());
    Ok(before)
}
