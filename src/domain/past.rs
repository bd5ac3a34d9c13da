//! The part of the past that the last line of an account does not have, and the total that a limit
//! starts with.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::grant::{Entry, EntryKind, Line};
use super::identity::EntryId;
use super::kind::Effect;
use super::limit::per::Per;
use super::limit::rate::{AfterGrant, Afterwards, BucketChange};
use super::limit::total::{GivenBack, LimitState, Total};
use super::window::Window;

/// A calendar window of a limit. What counted in it before the last reset of the limit does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitWindow {
    pub per: Per,
    pub window: Window,
}

/// The usage of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowSum {
    pub used: u64,
    /// The last reset inside the window.
    pub reset_at: Option<DateTime<Utc>>,
}

impl From<u64> for WindowSum {
    /// The usage of a window without a reset.
    fn from(used: u64) -> Self {
        Self {
            used,
            reset_at: None,
        }
    }
}

impl WindowSum {
    /// The usage of a window after an entry.
    fn after(self, window: LimitWindow, entry: &Entry) -> Self {
        let counted_at = entry.counted_at();
        if !window.window.contains(counted_at) || Some(counted_at) < self.reset_at {
            return self;
        }
        if entry.kind.resets(window.per) {
            return Self {
                used: 0,
                reset_at: Some(counted_at),
            };
        }
        Self {
            used: self.used.saturating_add_signed(entry.own_units_added()),
            ..self
        }
    }
}

/// The part of the entries of an account, up to its last line, that must be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedPast {
    /// The usage of these windows.
    pub windows: Vec<LimitWindow>,
    /// Every entry that changed the usage after this instant.
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
    sums: Vec<(LimitWindow, WindowSum)>,
    tail: Option<Tail>,
}

/// Every entry that changed the usage after an instant, in order.
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
    /// Those that count in windows.
    pub units: u64,
    pub at: DateTime<Utc>,
}

impl From<&Entry> for Movement {
    fn from(entry: &Entry) -> Self {
        Self {
            number: entry.line.number,
            id: entry.id,
            kind: entry.kind,
            units: entry.own_units(),
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

    /// Changes a total as the entry does. `grant` has what happened after the grant that the entry
    /// names, and `after` what happened after the instant at which the units count.
    fn apply(&self, total: &mut Total, grant: Option<&AfterGrant>, after: &Afterwards) {
        let units = self.units;
        let counted_at = self.counted_at();
        total.age(self.at);
        // A claim whose units all come from top-ups opens no window.
        if units == 0 {
            return;
        }
        match self.kind.facts().effect {
            Effect::Adds => total.add(units, counted_at, self.at),
            Effect::TakesOff => total.lower(units, counted_at, self.at, after),
            Effect::GivesBack => {
                let given = GivenBack {
                    units,
                    granted_at: counted_at,
                    after: grant,
                };
                total.give_back(given, self.at);
            }
            Effect::BeginsAgain if self.kind.resets(total.per()) => total.reset(self.at),
            Effect::BeginsAgain | Effect::Nothing => {}
        }
    }

    fn moves_units(&self) -> bool {
        self.units > 0 && self.kind.facts().effect.sign() != 0
    }

    fn is_down(&self) -> bool {
        self.kind.facts().effect == Effect::TakesOff
    }
}

/// The changes that some entries made, with their ids: what was given back of a grant was never taken.
fn net_changes(movements: &[Movement]) -> Vec<(EntryId, BucketChange)> {
    let mut given_back: HashMap<EntryId, u64> = HashMap::new();
    for movement in movements {
        if let Some(grant) = movement.kind.gives_back() {
            *given_back.entry(grant).or_default() += movement.units;
        }
    }
    let moves = movements.iter().filter(|movement| movement.moves_units());
    let change = |movement: &Movement| {
        let takes = match movement.kind.facts().effect {
            Effect::Adds => true,
            Effect::TakesOff => false,
            Effect::GivesBack | Effect::BeginsAgain | Effect::Nothing => return None,
        };
        let given_back = given_back.get(&movement.id).copied().unwrap_or_default();
        let counted_at = movement.counted_at();
        let change = BucketChange {
            at: if takes { movement.at } else { counted_at },
            counted_at,
            units: movement.units.saturating_sub(given_back),
            takes,
        };
        Some((movement.id, change))
    };
    moves.filter_map(change).collect()
}

/// The net changes of a bucket, in the order of their instants: what an adjustment took off was
/// taken off at its own instant.
fn bucket_changes(movements: &[Movement]) -> Vec<(EntryId, BucketChange)> {
    let mut changes = net_changes(movements);
    changes.sort_by_key(|(_, change)| change.at);
    changes
}

impl Past {
    /// Adds the usage of a window.
    pub fn insert(&mut self, window: LimitWindow, sum: WindowSum) {
        self.sums.push((window, sum));
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
        for (window, sum) in &mut self.sums {
            for entry in entries {
                *sum = sum.after(*window, entry);
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
        self.sums.len() * size_of::<(LimitWindow, WindowSum)>() + movements * size_of::<Movement>()
    }

    /// The usage of a window.
    pub fn sum(&self, window: LimitWindow) -> Option<WindowSum> {
        let found = self.sums.iter().find(|(summed, _)| *summed == window);
        found.map(|(_, sum)| *sum)
    }

    /// Every entry that changed the usage after an instant, in order.
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
        let Some(own) = tail.iter().find(|movement| movement.id == grant) else {
            return Ok(None);
        };
        let changes = bucket_changes(tail);
        let from_grant = changes.iter().skip_while(|(id, _)| *id != grant);
        let mut from_grant = from_grant.map(|(_, change)| *change);
        Ok(from_grant.next().map(|grant| AfterGrant {
            grant,
            after: Afterwards {
                line: own.number,
                changes: from_grant.collect(),
            },
        }))
    }

    /// What happened after the instant at which an adjustment down counts, if one of the totals after
    /// the `last` line asks for it. `at` is the present instant.
    ///
    /// # Errors
    /// The part of the past that must be read.
    pub fn after_adjustment(
        &self,
        totals: &[Total],
        counted_at: DateTime<Utc>,
        last: Option<&Line>,
        at: DateTime<Utc>,
    ) -> Result<Afterwards, WantedPast> {
        let is_of_past = last.is_some_and(|line| counted_at < line.at);
        let asks = |total: &Total| total.asks_for_changes(counted_at, at);
        if !is_of_past || !totals.iter().any(asks) {
            return Ok(Afterwards::NOTHING);
        }
        let tail = self.tail(counted_at)?;
        let changes = bucket_changes(tail).into_iter().map(|(_, change)| change);
        // Between two lines without a movement of units, only time changes a bucket.
        let first = tail.iter().find(|movement| movement.moves_units());
        Ok(Afterwards {
            line: first.map_or(u64::MAX, |first| first.number),
            changes: changes.filter(|change| counted_at < change.at).collect(),
        })
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
    let per = unused.per();
    match &mut unused.state {
        // 2. A calendar window: from the line, unused if it starts after the line, or from the
        //    past.
        LimitState::Calendar(calendar) => {
            let window = calendar.window;
            let known = |total: &Total| {
                let one = total.window_use().filter(|one| one.window == window)?;
                Some(WindowSum {
                    used: one.used,
                    reset_at: total.reset_at,
                })
            };
            let sum = match last.totals.iter().find_map(known) {
                Some(sum) => sum,
                None if window.start > last.at => WindowSum::default(),
                None => {
                    let window = LimitWindow { per, window };
                    past.sum(window).ok_or_else(|| WantedPast {
                        windows: vec![window],
                        ..WantedPast::default()
                    })?
                }
            };
            calendar.used = sum.used;
            unused.reset_at = sum.reset_at;
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
        let counting = counting(total, since, past)?;
        begin(total, since, last.at, &counting);
        total.age(at);
    }
    Ok(())
}

/// The entries that count for a new limit after an instant.
///
/// An adjustment down took the oldest units first. So with one, a sliding limit also reads the older
/// units that counted when it was entered. These count as if no adjustment up to `since` had lowered
/// them: then a later one lowers the newer units by no more than it did.
///
/// # Errors
/// The part of the past that must be read.
fn counting(total: &Total, since: DateTime<Utc>, past: &Past) -> Result<Vec<Movement>, WantedPast> {
    let after = |since: DateTime<Utc>| {
        let tail = past.tail(since)?.iter().copied();
        let counting = tail.filter(|movement| movement.counted_at() > since);
        Ok(counting.collect::<Vec<_>>())
    };
    let counting = after(since)?;
    match &total.state {
        LimitState::Sliding(log) if counting.iter().any(Movement::is_down) => {
            let mut older = after(since - log.per.delta())?;
            older.retain(|movement| since < movement.at || !movement.is_down());
            Ok(older)
        }
        _ => Ok(counting),
    }
}

/// Begins a limit at the last line, which does not have it, with all entries that count after
/// `since`.
fn begin(total: &mut Total, since: DateTime<Utc>, last_at: DateTime<Utc>, movements: &[Movement]) {
    // 1. After a reset the limit is known: it began there, with nothing used.
    let per = total.per();
    let mut resets = movements.iter().rev();
    let reset_at = resets.find(|one| one.kind.resets(per)).map(|one| one.at);
    if let Some(at) = reset_at {
        total.reset(at);
    }
    let counts = |movement: &&Movement| reset_at <= Some(movement.counted_at());
    let movements: Vec<Movement> = movements.iter().filter(counts).copied().collect();
    let movements = movements.as_slice();
    match &mut total.state {
        // 2. Otherwise the earlier state of a bucket is not known: the bucket is taken as empty. At the
        //    last line it is empty at worst, also if more than its burst was used under other limits.
        LimitState::Rate(bucket) => {
            if reset_at.is_none() {
                bucket.at = since.timestamp_micros();
                bucket.owed = bucket.parts(bucket.burst);
            }
            for (_, change) in bucket_changes(movements) {
                bucket.change(total.max, &change);
            }
            bucket.age(total.max, last_at);
            bucket.owed = bucket.owed.min(bucket.parts(bucket.burst));
        }
        // 3. The start of a window is not known: the window ends as late as it can, and has as much as
        //    it can. An adjustment that counts before the window took nothing off.
        LimitState::FromFirstClaim(opened) => {
            let changes = net_changes(movements);
            let changes = || changes.iter().map(|(_, change)| change);
            let takes = changes().filter(|change| change.takes);
            opened.opened = takes.map(|change| change.counted_at).max();
            let off = changes().filter(|change| !change.takes);
            let starts = [since]
                .into_iter()
                .chain(off.map(|change| change.counted_at));
            let used_after = |start| {
                let inside = changes().filter(|change| start < change.counted_at);
                inside.fold(0, |used: u64, change| {
                    if change.takes {
                        used.saturating_add(change.units)
                    } else {
                        used.saturating_sub(change.units)
                    }
                })
            };
            opened.used = starts.map(used_after).max().unwrap_or_default();
        }
        // 4. Nothing else of a sliding limit counts.
        LimitState::Calendar(_) | LimitState::Sliding(_) => {
            movements
                .iter()
                .for_each(|movement| movement.apply(total, None, &Afterwards::NOTHING));
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

/// The total after an entry, from the total before it, which comes after the `last` line. The audit
/// replays entries in this way.
///
/// # Errors
/// The part of the past that must be read.
pub fn total_with(
    mut before: Total,
    last: Option<&Line>,
    entry: &Entry,
    past: &Past,
) -> Result<Total, WantedPast> {
    let movement = Movement::from(entry);
    let at = entry.line.at;
    let grant = movement.kind.gives_back();
    let asks = |grant: &EntryId| before.asks_for_changes(grant.at(), at);
    let grant = match grant.filter(asks) {
        Some(grant) => past.after_grant(grant)?,
        None => None,
    };
    let after = if movement.is_down() {
        let totals = std::slice::from_ref(&before);
        past.after_adjustment(totals, movement.counted_at(), last, at)?
    } else {
        Afterwards::NOTHING
    };
    movement.apply(&mut before, grant.as_ref(), &after);
    Ok(before)
}
