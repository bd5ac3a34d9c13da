//! A limit's state as of an instant, which every line of an account keeps.

use chrono::{DateTime, Utc};

use super::first_claim::OpenedWindow;
use super::per::{Elapsed, Per};
use super::rate::Bucket;
use super::shape::{Limit, LimitKind, Shape, TOTAL_MAX};
use super::sliding::SlidingLog;
use crate::domain::almanac::Almanac;
use crate::domain::claim::{UNITS_MAX, Units};
use crate::domain::window::{Length, Window};

/// More units would be used than can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more units would be used in a window than can be counted")]
pub struct TooMany;

/// Fewer units are used than are to be taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotUsed {
    /// Of this limit.
    pub per: Per,
    /// So many are used.
    pub used: u64,
}

/// What is used of a limit as of an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// The limit's `max` that was in force.
    pub max: u64,
    pub state: LimitState,
}

/// What each kind of limit keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitState {
    Calendar(WindowUse),
    FromFirstClaim(OpenedWindow),
    Sliding(SlidingLog),
    /// Boxed: totals are moved on every claim, and a bucket is twice as large as any other state.
    Rate(Box<Bucket>),
}

/// The units used in a window of the calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowUse {
    /// `None` for the window without an end.
    pub length: Option<Length>,
    pub window: Window,
    /// At most [`TOTAL_MAX`]. More than [`UNITS_MAX`] only where no claim brought it there: Redis
    /// alone counted, or the limit is younger than its window's entries.
    pub used: u64,
}

/// A grant whose units are given back.
#[derive(Debug, Clone, Copy)]
pub struct GivenBack<'a> {
    pub units: Units,
    pub granted_at: DateTime<Utc>,
    /// The totals of the grant's own line; empty where they are not known.
    pub totals: &'a [Total],
}

impl Total {
    /// A limit of which nothing is used at an instant. `line` is the number of the account's first
    /// line that tells it.
    pub fn unused(limit: &Limit, calendar: &Almanac, at: DateTime<Utc>, line: u64) -> Self {
        let in_window = |length, window| {
            LimitState::Calendar(WindowUse {
                length,
                window,
                used: 0,
            })
        };
        let state = match limit.shape {
            Shape::Calendar(length) => in_window(Some(length), calendar.window(length, at)),
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
            state,
        }
    }

    /// The same limit in the same window, as if nothing were used of it at an instant.
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
            state,
        }
    }

    /// The limit's name.
    pub fn per(&self) -> Per {
        match &self.state {
            LimitState::Calendar(calendar) => calendar.length.map_or(Per::Ever, Per::Calendar),
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

    /// The units used.
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

    /// What is left of the limit; 0 when a lowered `max` lies below what is used.
    pub fn remaining(&self) -> u64 {
        match &self.state {
            LimitState::Rate(bucket) if self.max > 0 => bucket.left(),
            _ => self.max.saturating_sub(self.used()),
        }
    }

    /// Whether so many more units fit.
    pub fn fits(&self, units: Units) -> bool {
        units.get() <= self.remaining()
    }

    /// The instant at which so many units fit, which do not fit now, if nothing more is granted;
    /// `None`: never.
    pub fn fits_at(&self, units: Units) -> Option<DateTime<Utc>> {
        let room = self.at_once().checked_sub(units.get())?;
        match &self.state {
            LimitState::Calendar(calendar) => calendar.length.map(|_| calendar.window.end),
            LimitState::FromFirstClaim(opened) => opened.window().map(|window| window.end),
            LimitState::Sliding(log) => log.falls_to(room).and_then(instant),
            LimitState::Rate(bucket) => bucket.fits_at(self.max, units.get()).and_then(instant),
        }
    }

    /// The first instant at which more is left than now if nothing more is granted; `None` where that
    /// never comes. A window tells its end.
    pub fn more_at(&self) -> Option<DateTime<Utc>> {
        match &self.state {
            LimitState::Sliding(log) => {
                let most = self.max.min(log.used()).checked_sub(1)?;
                log.falls_to(most).and_then(instant)
            }
            LimitState::Rate(bucket) if self.max > 0 => {
                let next = self.remaining().saturating_add(1);
                bucket.fits_at(self.max, next).and_then(instant)
            }
            LimitState::Rate(_) => None,
            LimitState::Calendar(_) | LimitState::FromFirstClaim(_) => self.resets_at(),
        }
    }

    /// The instant from which on nothing is used any more if nothing more is granted; `None` where
    /// nothing returns.
    pub fn resets_at(&self) -> Option<DateTime<Utc>> {
        match &self.state {
            LimitState::Calendar(calendar) => calendar.length.map(|_| calendar.window.end),
            LimitState::FromFirstClaim(opened) => opened.window().map(|window| window.end),
            LimitState::Sliding(log) => log.resets_at().and_then(instant),
            LimitState::Rate(bucket) => bucket.resets_at(self.max).and_then(instant),
        }
    }

    /// The time in which all units return, in whole seconds; for the calendar that of its window.
    pub fn refill_seconds(&self) -> Option<i64> {
        match &self.state {
            LimitState::Calendar(calendar) => {
                let Window { start, end } = calendar.window;
                calendar.length.map(|_| (end - start).num_seconds())
            }
            LimitState::FromFirstClaim(OpenedWindow { per, .. })
            | LimitState::Sliding(SlidingLog { per, .. }) => Some(per.seconds().into()),
            LimitState::Rate(bucket) => {
                let micros = bucket.refill(self.max);
                Some(micros / 1_000_000 + i64::from(micros % 1_000_000 > 0))
            }
        }
    }

    /// The window that is current: none for a limit whose units return one by one, and none before
    /// the first claim.
    pub fn window(&self) -> Option<Window> {
        match &self.state {
            LimitState::Calendar(calendar) => Some(calendar.window),
            LimitState::FromFirstClaim(opened) => opened.window(),
            LimitState::Sliding(_) | LimitState::Rate(_) => None,
        }
    }

    /// The span of instants whose entries may count as of an instant.
    pub fn span(&self, at: DateTime<Utc>) -> Window {
        let next = at + MICROSECOND;
        let since = |start| Window { start, end: next };
        match &self.state {
            LimitState::Calendar(calendar) => calendar.window,
            LimitState::FromFirstClaim(opened) => {
                opened.window().unwrap_or(Window { start: at, end: at })
            }
            LimitState::Sliding(_) | LimitState::Rate(_) => {
                since(self.forgets_at(at) + MICROSECOND)
            }
        }
    }

    /// The limit and window of which a denial at an instant is the first one or not. Where units
    /// return one by one, it is a day, or `per` if that is longer, counted from 1970 on.
    pub fn denied_in(&self, at: DateTime<Utc>) -> (Per, Window) {
        let per = self.per();
        let window = self.window().unwrap_or_else(|| {
            let seconds = match per {
                Per::Elapsed(per) => i64::from(per.seconds()).max(DAY_SECONDS),
                Per::Calendar(_) | Per::Ever => DAY_SECONDS,
            };
            let start = at.timestamp() - at.timestamp().rem_euclid(seconds);
            let [start, end] = [start, start + seconds]
                .map(|seconds| DateTime::from_timestamp(seconds, 0).unwrap_or(at));
            Window { start, end }
        });
        (per, window)
    }

    /// The last instant that counts no more as of another: what the limit reads back to where the
    /// account's last line does not tell it.
    pub fn forgets_at(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        let ago = match &self.state {
            LimitState::Calendar(calendar) => return calendar.window.start - MICROSECOND,
            LimitState::FromFirstClaim(OpenedWindow { per, .. }) => per.micros(),
            LimitState::Sliding(log) => {
                let step = log.step.map_or(1, Elapsed::micros);
                let since = at.timestamp_micros().saturating_sub(log.per.micros());
                // What was taken up to here was rounded up to an instant that counts no more.
                return instant(since - since.rem_euclid(step)).unwrap_or(at);
            }
            LimitState::Rate(bucket) => bucket.refill(self.max),
        };
        instant(at.timestamp_micros().saturating_sub(ago)).unwrap_or(DateTime::<Utc>::MIN_UTC)
    }

    /// Whether a line's total is this limit's: its state goes on, also under another `max`.
    pub fn is_of_same_limit(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (LimitState::Calendar(one), LimitState::Calendar(two)) => one.window == two.window,
            (LimitState::Sliding(one), LimitState::Sliding(two)) => {
                (one.per, one.step) == (two.per, two.step)
            }
            _ => (self.kind(), self.per()) == (other.kind(), other.per()),
        }
    }

    /// Goes on from what a line before told of the same limit. Under another `max` a bucket is refilled
    /// by that from the line on, so that what is told of later instants holds.
    pub fn go_on(&mut self, before: &Self, at: DateTime<Utc>) {
        let begun = std::mem::replace(&mut self.state, before.state.clone());
        if let (LimitState::Rate(bucket), LimitState::Rate(begun)) = (&mut self.state, begun) {
            bucket.burst = begun.burst;
            if before.max != self.max {
                bucket.begin_again(begun.since);
            }
        }
        self.age(at);
    }

    /// The total as of an instant that is not before the last one. Windows of the calendar stay.
    pub fn age(&mut self, at: DateTime<Utc>) {
        match &mut self.state {
            LimitState::Calendar(_) => {}
            LimitState::FromFirstClaim(opened) => opened.age(at),
            LimitState::Sliding(log) => log.age(at),
            LimitState::Rate(bucket) => bucket.age(self.max, at),
        }
    }

    /// Takes units that count at an instant, as of another that is not before it, where they count;
    /// whether or not they fit.
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

    /// As [`Total::take`]; but a client was told of the units, so they count also beyond
    /// [`UNITS_MAX`].
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

    /// Adds units that count at an instant, as of another that is not before it; as many as can be
    /// counted.
    pub fn add(&mut self, units: u64, counted_at: DateTime<Utc>, at: DateTime<Utc>) {
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

    /// Whether what counts at an instant counts as of another that is not before it.
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

    /// Gives units back, where they count.
    pub fn give_back(&mut self, given: GivenBack<'_>, at: DateTime<Utc>) {
        let units = given.units.get();
        match &mut self.state {
            LimitState::Calendar(calendar) => {
                if calendar.window.contains(given.granted_at) {
                    calendar.used = calendar.used.saturating_sub(units);
                }
            }
            LimitState::FromFirstClaim(opened) => opened.take_off(units, given.granted_at),
            LimitState::Sliding(log) => log.give_back(units, given.granted_at, at),
            LimitState::Rate(bucket) => {
                let of_grant = given.totals.iter().find_map(|total| match &total.state {
                    LimitState::Rate(own) if own.per == bucket.per => Some(own),
                    _ => None,
                });
                if let Some(of_grant) = of_grant {
                    bucket.give_back(self.max, units, of_grant);
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

    /// The calendar's window with what is used in it, unless it has no end.
    pub fn in_window(&self) -> Option<(Length, Window, u64)> {
        let calendar = self.window_use()?;
        Some((calendar.length?, calendar.window, calendar.used))
    }

    /// Sets what is used in a window of the calendar. Only there Redis may tell it.
    pub fn set_used(&mut self, used: u64) {
        if let LimitState::Calendar(calendar) = &mut self.state {
            calendar.used = used;
        }
    }

    /// Whether the line of a grant must be known to give its units back.
    pub fn asks_for_grant(&self) -> bool {
        matches!(&self.state, LimitState::Rate(bucket) if bucket.owed > 0)
    }

    /// Takes units off that count at an instant, where they count.
    ///
    /// # Errors
    /// [`NotUsed`], and nothing is taken off.
    pub fn take_off(
        &mut self,
        units: Units,
        counted_at: DateTime<Utc>,
        at: DateTime<Utc>,
    ) -> Result<(), NotUsed> {
        let counts = match &self.state {
            LimitState::Rate(bucket) => bucket.at <= counted_at.timestamp_micros(),
            LimitState::FromFirstClaim(opened) => opened.counts(counted_at),
            _ => self.counts(counted_at, at),
        };
        if counts && units.get() > self.used() {
            let (per, used) = (self.per(), self.used());
            return Err(NotUsed { per, used });
        }
        self.lower(units.get(), counted_at, at);
        Ok(())
    }

    /// Takes units off that count at an instant, as many as are used.
    pub fn lower(&mut self, units: u64, counted_at: DateTime<Utc>, at: DateTime<Utc>) {
        match &mut self.state {
            LimitState::Calendar(calendar) => {
                if calendar.window.contains(counted_at) {
                    calendar.used = calendar.used.saturating_sub(units);
                }
            }
            LimitState::FromFirstClaim(opened) => opened.take_off(units, counted_at),
            LimitState::Sliding(log) if log.counts(counted_at, at) => log.take_off(units),
            LimitState::Sliding(_) => {}
            LimitState::Rate(bucket) => bucket.take_off(self.max, units, counted_at),
        }
    }
}

/// The totals with other units used in their windows of the calendar, in their order.
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
