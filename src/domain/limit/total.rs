//! The state of a limit at an instant. Every line of an account keeps one for each limit.

use chrono::{DateTime, Utc};

use super::first_claim::OpenedWindow;
use super::per::Per;
use super::rate::{AfterGrant, Afterwards, Bucket};
use super::shape::{Limit, LimitKind, Shape, TOTAL_MAX};
use super::sliding::SlidingLog;
use crate::almanac::Almanac;
use crate::claim::{UNITS_MAX, Units};
use crate::elapsed::Elapsed;
use crate::window::{Division, Window};

/// More units would be used than can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more units would be used in a window than can be counted")]
pub struct TooMany;

/// Fewer units are used than the adjustment takes off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotUsed {
    pub per: Per,
    /// The units that the adjustment can take off.
    pub used: u64,
    /// Whether the adjustment counts at an instant of the past.
    pub is_past: bool,
}

/// The state of a limit at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// The `max` that was in force.
    pub max: u64,
    /// The last reset: units that counted before it do not count. `None` if there was none, or all
    /// units from before it have returned.
    pub reset_at: Option<DateTime<Utc>>,
    pub state: LimitState,
}

/// The state of each kind of limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitState {
    Calendar(WindowUse),
    FromFirstClaim(OpenedWindow),
    Sliding(SlidingLog),
    /// In a box, because a bucket is twice as large as the other states, and every claim moves totals.
    Rate(Box<Bucket>),
}

/// The units used in a window of the calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowUse {
    /// `None` for the window without an end.
    pub division: Option<Division>,
    pub window: Window,
    /// At most [`TOTAL_MAX`]. A claim brings it to at most [`UNITS_MAX`]. It is higher only if Redis alone
    /// counted, or if the window's entries are older than the limit.
    pub used: u64,
}

/// A grant whose units are given back.
#[derive(Debug, Clone, Copy)]
pub struct GivenBack<'a> {
    pub units: u64,
    pub granted_at: DateTime<Utc>,
    /// What happened after the grant, if a limit asks for it.
    pub after: Option<&'a AfterGrant>,
}

impl Total {
    /// The state of a limit without used units at an instant. `line` is the number of the first line that
    /// has this total.
    pub fn unused(limit: &Limit, calendar: &Almanac, at: DateTime<Utc>, line: u64) -> Self {
        let in_window = |division, window| {
            LimitState::Calendar(WindowUse {
                division,
                window,
                used: 0,
            })
        };
        let state = match limit.shape {
            Shape::Calendar(division) => in_window(Some(division), calendar.window(division, at)),
            Shape::Ever => in_window(None, Window::EVER),
            Shape::FromFirstClaim(per) => LimitState::FromFirstClaim(OpenedWindow::closed(per)),
            Shape::Sliding { per, step } => LimitState::Sliding(SlidingLog::empty(per, step)),
            Shape::Rate { per, .. } => {
                let burst = limit.shape.at_once(limit.max);
                LimitState::Rate(Box::new(Bucket::full(per, burst, at, line)))
            }
        };
        Self {
            max: limit.max,
            reset_at: None,
            state,
        }
    }

    /// The same limit in the same window, without used units.
    pub fn emptied(&self, at: DateTime<Utc>, line: u64) -> Self {
        let state = match &self.state {
            LimitState::Calendar(calendar) => LimitState::Calendar(WindowUse {
                used: 0,
                ..calendar.clone()
            }),
            LimitState::FromFirstClaim(opened) => {
                LimitState::FromFirstClaim(OpenedWindow::closed(opened.per))
            }
            LimitState::Sliding(log) => LimitState::Sliding(SlidingLog::empty(log.per, log.step)),
            LimitState::Rate(bucket) => {
                LimitState::Rate(Box::new(Bucket::full(bucket.per, bucket.burst, at, line)))
            }
        };
        Self {
            max: self.max,
            reset_at: None,
            state,
        }
    }

    pub fn per(&self) -> Per {
        match &self.state {
            LimitState::Calendar(calendar) => calendar.division.map_or(Per::Ever, Per::from),
            LimitState::FromFirstClaim(OpenedWindow { per, .. })
            | LimitState::Sliding(SlidingLog { per, .. }) => Per::Elapsed(*per),
            LimitState::Rate(bucket) => Per::Elapsed(bucket.per),
        }
    }

    pub fn kind(&self) -> LimitKind {
        match &self.state {
            LimitState::Calendar(_) => LimitKind::Calendar,
            LimitState::FromFirstClaim(_) => LimitKind::FromFirstClaim,
            LimitState::Sliding(_) => LimitKind::Sliding,
            LimitState::Rate(_) => LimitKind::Rate,
        }
    }

    pub fn used(&self) -> u64 {
        match &self.state {
            LimitState::Calendar(calendar) => calendar.used,
            LimitState::FromFirstClaim(opened) => opened.used,
            LimitState::Sliding(log) => log.used(),
            LimitState::Rate(bucket) => bucket.used(),
        }
    }

    /// The most units that fit at once.
    pub fn at_once(&self) -> u64 {
        match &self.state {
            LimitState::Rate(bucket) if self.max > 0 => bucket.burst,
            _ => self.max,
        }
    }

    /// The units that are left. 0 if more than `max` is used.
    pub fn remaining(&self) -> u64 {
        match &self.state {
            LimitState::Rate(bucket) if self.max > 0 => bucket.left(),
            _ => self.max.saturating_sub(self.used()),
        }
    }

    /// Tells whether the units fit now.
    pub fn fits(&self, units: Units) -> bool {
        units.get() <= self.remaining()
    }

    /// Tells whether units of an instant fit. Units from before a reset take no room.
    pub fn has_room(&self, units: Units, counted_at: DateTime<Utc>) -> bool {
        self.was_reset(counted_at) || self.fits(units)
    }

    /// The instant from which on the units fit, if nothing more is granted. Ask only for units that do not
    /// fit now. `None`: never.
    pub fn fits_at(&self, units: Units) -> Option<DateTime<Utc>> {
        let room = self.at_once().checked_sub(units.get())?;
        match &self.state {
            LimitState::Calendar(calendar) => calendar.division.map(|_| calendar.window.end),
            LimitState::FromFirstClaim(opened) => opened.window().map(|window| window.end),
            LimitState::Sliding(log) => log.falls_to(room).and_then(instant),
            LimitState::Rate(bucket) => bucket.fits_at(self.max, units.get()).and_then(instant),
        }
    }

    /// The next instant at which units return, if nothing more is granted. `None`: never. For a window this
    /// is the end of the window. Under a `max` of 0 nobody gets the units that return.
    pub fn more_at(&self) -> Option<DateTime<Utc>> {
        match &self.state {
            _ if self.max == 0 => None,
            LimitState::Sliding(log) => {
                let most = self.max.min(log.used()).checked_sub(1)?;
                log.falls_to(most).and_then(instant)
            }
            LimitState::Rate(bucket) => {
                let next = self.remaining().saturating_add(1);
                bucket.fits_at(self.max, next).and_then(instant)
            }
            LimitState::Calendar(_) | LimitState::FromFirstClaim(_) => self.resets_at(),
        }
    }

    /// The instant at which all units have returned, if nothing more is granted. `None`: no unit returns.
    pub fn resets_at(&self) -> Option<DateTime<Utc>> {
        match &self.state {
            LimitState::Calendar(calendar) => calendar.division.map(|_| calendar.window.end),
            LimitState::FromFirstClaim(opened) => opened.window().map(|window| window.end),
            LimitState::Sliding(log) => log.resets_at().and_then(instant),
            LimitState::Rate(bucket) => bucket.resets_at(self.max).and_then(instant),
        }
    }

    /// The time in which all units return, in whole seconds. For the calendar, the length of the window.
    pub fn refill_seconds(&self) -> Option<i64> {
        match &self.state {
            LimitState::Calendar(calendar) => {
                let Window { start, end } = calendar.window;
                calendar.division.map(|_| (end - start).num_seconds())
            }
            LimitState::FromFirstClaim(OpenedWindow { per, .. })
            | LimitState::Sliding(SlidingLog { per, .. }) => Some(per.seconds().into()),
            LimitState::Rate(bucket) => {
                let micros = bucket.refill(self.max);
                Some(micros / 1_000_000 + i64::from(micros % 1_000_000 > 0))
            }
        }
    }

    /// The current window. A sliding limit and a rate have no window. A limit from the first claim has none
    /// before its first grant.
    pub fn window(&self) -> Option<Window> {
        match &self.state {
            LimitState::Calendar(calendar) => Some(calendar.window),
            LimitState::FromFirstClaim(opened) => opened.window(),
            LimitState::Sliding(_) | LimitState::Rate(_) => None,
        }
    }

    /// The span of instants whose entries can count at `at`. It begins with the reset, if there was one.
    pub fn span(&self, at: DateTime<Utc>) -> Window {
        let next = at + MICROSECOND;
        let since = |start| Window { start, end: next };
        let span = match &self.state {
            LimitState::Calendar(calendar) => calendar.window,
            LimitState::FromFirstClaim(opened) => match (opened.window(), self.reset_at) {
                (Some(window), _) => window,
                // Nothing counts since the reset, which closed the window.
                (None, Some(reset_at)) => since(reset_at),
                (None, None) => Window { start: at, end: at },
            },
            LimitState::Sliding(_) | LimitState::Rate(_) => {
                since(self.forgets_at(at) + MICROSECOND)
            }
        };
        Window {
            start: self.reset_at.map_or(span.start, |at| at.max(span.start)),
            ..span
        }
    }

    /// The limit and the window in which a denial is counted: the first denial of a window is kept. A limit
    /// without a window uses a day, or `per` if that is longer, counted from 1970 on.
    pub fn denied_in(&self, at: DateTime<Utc>) -> (Per, Window) {
        let per = self.per();
        let window = self.window().unwrap_or_else(|| {
            let seconds = match per {
                Per::Elapsed(per) => i64::from(per.seconds()).max(DAY_SECONDS),
                Per::Calendar(_) | Per::Weeks(_) | Per::Ever => DAY_SECONDS,
            };
            let start = at.timestamp() - at.timestamp().rem_euclid(seconds);
            let [start, end] = [start, start + seconds]
                .map(|seconds| DateTime::from_timestamp(seconds, 0).unwrap_or(at));
            Window { start, end }
        });
        (per, window)
    }

    /// The latest instant whose units do not count any more at `at`. If the account's last line does not
    /// have this limit, the entries after this instant are read.
    pub fn forgets_at(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        let ago = match &self.state {
            LimitState::Calendar(calendar) => return calendar.window.start - MICROSECOND,
            LimitState::FromFirstClaim(OpenedWindow { per, .. }) => per.micros(),
            LimitState::Sliding(log) => {
                let step = log.step.map_or(1, Elapsed::micros);
                let since = at.timestamp_micros().saturating_sub(log.per.micros());
                // Units that were taken up to here were rounded up to an instant that does not count any more.
                return instant(since - since.rem_euclid(step)).unwrap_or(at);
            }
            LimitState::Rate(bucket) => bucket.refill(self.max),
        };
        instant(at.timestamp_micros().saturating_sub(ago)).unwrap_or(DateTime::<Utc>::MIN_UTC)
    }

    /// Tells whether both totals are of the same limit. Then the state goes on, also under another `max`.
    pub fn is_of_same_limit(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (LimitState::Calendar(one), LimitState::Calendar(two)) => {
                (one.division, one.window) == (two.division, two.window)
            }
            (LimitState::Sliding(one), LimitState::Sliding(two)) => {
                (one.per, one.step) == (two.per, two.step)
            }
            _ => (self.kind(), self.per()) == (other.kind(), other.per()),
        }
    }

    /// Begins the limit again: nothing that counted before this instant counts any more. The instant is
    /// later than all that was taken.
    pub fn reset(&mut self, at: DateTime<Utc>) {
        self.reset_at = Some(at);
        match &mut self.state {
            LimitState::Calendar(calendar) => calendar.used = 0,
            LimitState::FromFirstClaim(opened) => *opened = OpenedWindow::closed(opened.per),
            LimitState::Sliding(log) => log.pairs.clear(),
            LimitState::Rate(bucket) => (bucket.at, bucket.owed) = (at.timestamp_micros(), 0),
        }
    }

    /// Tells whether units that count at this instant were reset.
    fn was_reset(&self, counted_at: DateTime<Utc>) -> bool {
        self.reset_at.is_some_and(|reset_at| counted_at < reset_at)
    }

    /// Goes on from the total that an earlier line has of the same limit. A bucket under another `max` or
    /// `burst` gives back only what is granted from this line on.
    pub fn go_on(&mut self, before: &Self, at: DateTime<Utc>) {
        let begun = std::mem::replace(&mut self.state, before.state.clone());
        self.reset_at = before.reset_at;
        if let (LimitState::Rate(bucket), LimitState::Rate(begun)) = (&mut self.state, begun) {
            if (before.max, bucket.burst) != (self.max, begun.burst) {
                bucket.since = begun.since;
            }
            bucket.burst = begun.burst;
        }
        self.age(at);
    }

    /// Brings the total to a later instant. A calendar window stays.
    pub fn age(&mut self, at: DateTime<Utc>) {
        match &mut self.state {
            LimitState::Calendar(_) => {}
            LimitState::FromFirstClaim(opened) => opened.age(at),
            LimitState::Sliding(log) => log.age(at),
            LimitState::Rate(bucket) => bucket.age(self.max, at),
        }
        if let Some(reset_at) = self.reset_at
            && self.forgets_reset(reset_at, at)
        {
            self.reset_at = None;
        }
    }

    /// Tells whether no units of before a reset could count at `at`. A bucket remembers its reset for ever:
    /// units that are entered for the past can be more than time has refilled since.
    fn forgets_reset(&self, reset_at: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        match &self.state {
            LimitState::Calendar(_) | LimitState::Rate(_) => false,
            LimitState::FromFirstClaim(_) | LimitState::Sliding(_) => {
                reset_at <= self.forgets_at(at)
            }
        }
    }

    /// Takes units that count at `counted_at`, whether or not they fit. `at` is the present instant, not
    /// before `counted_at`. Units that do not count any more change nothing.
    ///
    /// # Errors
    /// [`TooMany`], and nothing is taken: more than [`UNITS_MAX`] would be used.
    pub fn take(
        &mut self,
        units: Units,
        counted_at: DateTime<Utc>,
        at: DateTime<Utc>,
    ) -> Result<(), TooMany> {
        self.take_up_to(UNITS_MAX, units, counted_at, at)
    }

    /// As [`Total::take`], for units that a client was told of. They count also beyond [`UNITS_MAX`].
    ///
    /// # Errors
    /// [`TooMany`], and nothing is taken: more than [`TOTAL_MAX`] would be used.
    pub fn record(
        &mut self,
        units: Units,
        counted_at: DateTime<Utc>,
        at: DateTime<Utc>,
    ) -> Result<(), TooMany> {
        self.take_up_to(TOTAL_MAX, units, counted_at, at)
    }

    fn take_up_to(
        &mut self,
        most: u64,
        units: Units,
        counted_at: DateTime<Utc>,
        at: DateTime<Utc>,
    ) -> Result<(), TooMany> {
        let units = units.get();
        if self.was_reset(counted_at) {
            return Ok(());
        }
        if let LimitState::Calendar(calendar) = &mut self.state {
            if calendar.window.contains(counted_at) {
                let used = calendar.used.saturating_add(units);
                calendar.used = Some(used).filter(|used| *used <= most).ok_or(TooMany)?;
            }
            return Ok(());
        }
        if !self.counts(counted_at, at) {
            return Ok(());
        }
        if self.used().saturating_add(units) > most {
            return Err(TooMany);
        }
        self.add(units, counted_at, at);
        Ok(())
    }

    /// Adds units that count at `counted_at`, up to the largest possible total. `at` is the present instant,
    /// not before `counted_at`.
    pub fn add(&mut self, units: u64, counted_at: DateTime<Utc>, at: DateTime<Utc>) {
        if self.was_reset(counted_at) {
            return;
        }
        match &mut self.state {
            LimitState::Calendar(calendar) => {
                if calendar.window.contains(counted_at) {
                    calendar.used = calendar.used.saturating_add(units).min(TOTAL_MAX);
                }
            }
            LimitState::FromFirstClaim(opened) => opened.add(units, counted_at, at),
            LimitState::Sliding(log) => log.add(units, counted_at, at),
            LimitState::Rate(bucket) => bucket.add(self.max, units, counted_at),
        }
    }

    /// Tells whether units of `counted_at` still count at `at`.
    fn counts(&self, counted_at: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        match &self.state {
            LimitState::Calendar(calendar) => calendar.window.contains(counted_at),
            LimitState::FromFirstClaim(opened) => match opened.window() {
                Some(window) => window.contains(counted_at),
                None => at < counted_at + opened.per.delta(),
            },
            LimitState::Sliding(log) => log.counts(counted_at, at),
            LimitState::Rate(_) => true,
        }
    }

    /// Gives the units of a grant back, if they still count.
    pub fn give_back(&mut self, given: GivenBack<'_>, at: DateTime<Utc>) {
        if self.was_reset(given.granted_at) {
            return;
        }
        let units = given.units;
        let is_missing = self.asks_for_changes(given.granted_at, at);
        match &mut self.state {
            LimitState::Calendar(calendar) => {
                if calendar.window.contains(given.granted_at) {
                    calendar.used = calendar.used.saturating_sub(units);
                }
            }
            LimitState::FromFirstClaim(opened) => opened.take_off(units, given.granted_at),
            LimitState::Sliding(log) => log.give_back(units, given.granted_at),
            LimitState::Rate(bucket) => {
                if let Some(after) = given.after.filter(|_| is_missing) {
                    bucket.give_back(self.max, units, after, self.reset_at);
                }
            }
        }
    }

    pub fn window_use(&self) -> Option<&WindowUse> {
        match &self.state {
            LimitState::Calendar(calendar) => Some(calendar),
            _ => None,
        }
    }

    /// The calendar window with the units used in it. `None` for `ever` and for other kinds.
    pub fn in_window(&self) -> Option<(Division, Window, u64)> {
        let calendar = self.window_use()?;
        Some((calendar.division?, calendar.window, calendar.used))
    }

    /// Sets the units used in a calendar window. Redis counts calendar windows only.
    pub fn set_used(&mut self, used: u64) {
        if let LimitState::Calendar(calendar) = &mut self.state {
            calendar.used = used;
        }
    }

    /// Sets the window of a limit of the calendar.
    pub fn set_window(&mut self, window: Window) {
        if let LimitState::Calendar(calendar) = &mut self.state {
            calendar.window = window;
        }
    }

    /// Tells whether the changes after an instant must be known to give back or take off units of that
    /// instant. Time has refilled a bucket with the units of an instant that is older than the time of a
    /// whole refill.
    pub fn asks_for_changes(&self, counted_at: DateTime<Utc>, at: DateTime<Utc>) -> bool {
        matches!(&self.state, LimitState::Rate(bucket) if bucket.owed > 0)
            && !self.was_reset(counted_at)
            && self.forgets_at(at) < counted_at
    }

    /// Takes off units that count at `counted_at`, if they still count. `after` has what happened after that
    /// instant, if a limit asks for it.
    ///
    /// # Errors
    /// [`NotUsed`], and nothing is taken off.
    pub fn take_off(
        &mut self,
        units: Units,
        counted_at: DateTime<Utc>,
        at: DateTime<Utc>,
        after: &Afterwards,
    ) -> Result<(), NotUsed> {
        if self.was_reset(counted_at) {
            return Ok(());
        }
        let counts = match &self.state {
            LimitState::Rate(bucket) => bucket.at <= counted_at.timestamp_micros(),
            LimitState::FromFirstClaim(opened) => opened.counts(counted_at),
            _ => self.counts(counted_at, at),
        };
        let used = match &self.state {
            LimitState::Sliding(log) => log.used_until(counted_at),
            _ => self.used(),
        };
        if counts && units.get() > used {
            return Err(NotUsed {
                per: self.per(),
                used,
                is_past: counted_at < at,
            });
        }
        self.lower(units.get(), counted_at, at, after);
        Ok(())
    }

    /// Takes off units that count at `counted_at`, at most as many as are used.
    pub fn lower(
        &mut self,
        units: u64,
        counted_at: DateTime<Utc>,
        at: DateTime<Utc>,
        after: &Afterwards,
    ) {
        if self.was_reset(counted_at) {
            return;
        }
        let is_missing = self.asks_for_changes(counted_at, at);
        match &mut self.state {
            LimitState::Calendar(calendar) => {
                if calendar.window.contains(counted_at) {
                    calendar.used = calendar.used.saturating_sub(units);
                }
            }
            LimitState::FromFirstClaim(opened) => opened.take_off(units, counted_at),
            LimitState::Sliding(log) => log.take_off(units, counted_at),
            LimitState::Rate(bucket) if is_missing => {
                bucket.take_off(self.max, units, after, self.reset_at);
            }
            LimitState::Rate(_) => {}
        }
    }
}

/// Sets the units used in the calendar windows, in the order of the totals.
pub fn with_used(mut totals: Vec<Total>, used: Vec<u64>) -> Vec<Total> {
    for (total, used) in totals.iter_mut().zip(used) {
        total.set_used(used);
    }
    totals
}

const DAY_SECONDS: i64 = 86_400;
const MICROSECOND: chrono::TimeDelta = chrono::TimeDelta::microseconds(1);

fn instant(micros: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_micros(micros)
}
