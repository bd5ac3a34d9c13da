//! The usage of a subject's limits by the plain model. Each question reads all entries again.

use chrono::{DateTime, Utc};
use perdiem::domain::almanac::Almanac;
use perdiem::domain::limit::per::Per;
use perdiem::domain::limit::shape::{Limit, Shape};
use perdiem::domain::window::{Division, Window};

use super::entries::{Entry, What};
use crate::plain::{Effect, PlainAccount, PlainEntry, PlainLimit, PlainState, Return};

/// The plain model's form of a limit; `None` for a calendar limit.
fn returning(limit: &Limit) -> Option<PlainLimit> {
    let (per, returns) = match limit.shape {
        Shape::Calendar(_) | Shape::Ever => return None,
        Shape::FromFirstClaim(per) => (per, Return::FromFirstClaim),
        Shape::Sliding { per, step } => {
            let step = step.map(|step| step.micros());
            (per, Return::Sliding { step })
        }
        Shape::Rate { per, burst } => {
            let burst = burst.unwrap_or(limit.max);
            (per, Return::Rate { burst })
        }
    };
    Some(PlainLimit {
        max: limit.max,
        per: per.micros(),
        returns,
    })
}

/// What divides the time of a subject.
pub struct Dividing {
    pub calendar: Almanac,
    /// The windows of the last entry, if these go on to their ends.
    pub begun: Vec<(Per, Window)>,
}

impl Dividing {
    pub fn window(&self, division: Division, at: DateTime<Utc>) -> Window {
        let per = Per::from(division);
        let mut begun = self.begun.iter();
        let goes_on = begun.find(|(of, window)| *of == per && window.contains(at));
        goes_on.map_or_else(|| self.calendar.window(division, at), |(_, window)| *window)
    }
}

/// The instant of the last reset of a limit in a window.
fn reset_at(per: Per, window: Window, entries: &[&Entry]) -> Option<DateTime<Utc>> {
    let mut latest_first = entries.iter().rev();
    let reset = latest_first.find(|entry| entry.what.resets(per) && window.contains(entry.at));
    reset.map(|entry| entry.at)
}

/// The units of the entries that count in a window of a limit, since its last reset. The sum never falls
/// below zero.
fn used_in(per: Per, window: Window, entries: &[&Entry]) -> u64 {
    let reset_at = reset_at(per, window, entries);
    let counts = |entry: &&&Entry| window.contains(entry.at) && reset_at <= Some(entry.at);
    let inside = entries.iter().filter(counts);
    let used = inside.fold(0, |used: i64, entry| (used + entry.in_windows).max(0));
    used.cast_unsigned()
}

fn account(entries: &[&Entry]) -> PlainAccount {
    let mut account = PlainAccount::default();
    for entry in entries {
        let grant_of = |number| {
            let place = entries.iter().position(|other| other.number == number);
            Effect::GiveBack(place.expect("the grant's entry"))
        };
        let effect = match entry.what {
            What::Grant | What::Reversal(_) | What::PartialReversal(_) | What::Lapse(_)
                if entry.in_windows == 0 =>
            {
                Effect::Nothing
            }
            What::Grant => Effect::Grant,
            What::Reversal(of) | What::PartialReversal(of) | What::Lapse(of) => grant_of(of),
            What::Confirmation | What::Calendar | What::TopUp | What::TopUpReversal => {
                Effect::Nothing
            }
            What::Reset(None) => Effect::Reset(None),
            What::Reset(Some(Per::Elapsed(per))) => Effect::Reset(Some(per.micros())),
            What::Reset(Some(_)) => Effect::Nothing,
            What::Adjustment if entry.units < 0 => Effect::TakeOff,
            What::Adjustment => Effect::Take,
        };
        let plain = PlainEntry {
            effect,
            units: entry.in_windows.unsigned_abs(),
            at: entry.entered_at.timestamp_micros(),
            counted_at: entry.at.timestamp_micros(),
        };
        account.push(plain, entry.limits.iter().filter_map(returning).collect());
    }
    account
}

/// The units used and left of a limit, at an instant that is not before the last entry's.
pub fn used_and_left(
    limit: &Limit,
    calendar: &Dividing,
    entries: &[&Entry],
    now: DateTime<Utc>,
) -> (u64, u64) {
    let in_window = |window| {
        let used = used_in(limit.per(), window, entries);
        (used, limit.max.saturating_sub(used))
    };
    match (limit.shape, returning(limit)) {
        (Shape::Calendar(length), _) => in_window(calendar.window(length, now)),
        (_, None) => in_window(Window::EVER),
        (_, Some(plain)) => {
            let state = account(entries).state(&plain, now.timestamp_micros());
            (state.used(&plain), state.left(&plain))
        }
    }
}

/// Whether an adjustment can take units off that counted at an instant: the windows of that instant
/// must have at least that usage, and a sliding limit as many units that were taken by then.
pub fn can_take_off(
    units: u64,
    counted_at: DateTime<Utc>,
    limit: &Limit,
    calendar: &Dividing,
    entries: &[&Entry],
    now: DateTime<Utc>,
) -> bool {
    let per = limit.per();
    // What counted before a reset is not used any more.
    let was_reset = |window| reset_at(per, window, entries) > Some(counted_at);
    if let Shape::Calendar(length) = limit.shape {
        let both = [counted_at, now].map(|at| calendar.window(length, at));
        let mut own = both.iter().filter(|window| window.contains(counted_at));
        return own.all(|window| was_reset(*window) || units <= used_in(per, *window, entries));
    }
    if was_reset(Window::EVER) {
        return true;
    }
    let micros = counted_at.timestamp_micros();
    let state = |plain| account(entries).state(&plain, now.timestamp_micros());
    match (limit.shape, returning(limit).map(state)) {
        (Shape::FromFirstClaim(_), Some(state)) => {
            let is_inside = state.opened_at().is_some_and(|start| start <= micros);
            !is_inside || units <= used_and_left(limit, calendar, entries, now).0
        }
        (Shape::Sliding { per, step }, Some(PlainState::Log(pairs))) => {
            let step = step.map_or(1, |step| step.micros());
            let cell = (micros + step - 1).div_euclid(step) * step;
            let by_then = pairs.iter().filter(|(instant, _)| *instant <= cell);
            let counts = now.timestamp_micros() < cell + per.micros();
            !counts || units <= by_then.map(|(_, units)| units).sum()
        }
        (Shape::Rate { .. }, _) if counted_at < now => true,
        _ => units <= used_and_left(limit, calendar, entries, now).0,
    }
}
