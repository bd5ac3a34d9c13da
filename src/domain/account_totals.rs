//! The totals of an account at an instant, and what must be known for them.

use chrono::{DateTime, Utc};

use super::grant::Line;
use super::limit::shape::{Limit, LimitKind};
use super::limit::total::Total;
use super::own_calendar::OwnCalendar;
use super::past::{Past, WantedPast, go_on_after};
use super::policy::Policy;
use super::warning::Levels;

/// The information that is missing for a verdict. The rule must be asked again with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// The last line does not have all totals: read this part of the past.
    Past(WantedPast),
    /// Holds may have lapsed since the last line: append the lapses first.
    Holds,
    /// A newer version of the policy decided the last line.
    Policy,
}

/// The total of each limit of the policy at an instant that is not before the last line of the
/// account.
///
/// # Errors
/// [`Unknown::Past`]: the part of the past that the last line does not have.
pub fn totals_at(
    policy: &Policy,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<Vec<Total>, Unknown> {
    totals_asked(policy, None, last, past, at)
}

/// As [`totals_at`], with the calendar that is asked for.
///
/// # Errors
/// [`Unknown::Past`].
pub(super) fn totals_asked(
    policy: &Policy,
    asked: Option<&OwnCalendar>,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<Vec<Total>, Unknown> {
    let limits = policy.rule.limits.iter();
    totals_of(limits, policy, asked, last, past, at)
}

/// The totals of the calendar windows at an instant. The instant may be before the last line of the
/// account.
///
/// # Errors
/// [`Unknown::Past`].
pub(super) fn calendar_totals_at(
    policy: &Policy,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<Vec<Total>, Unknown> {
    let of_calendar = |limit: &&Limit| limit.shape.kind() == LimitKind::Calendar;
    let limits = policy.rule.limits.iter().filter(of_calendar);
    totals_of(limits, policy, None, last, past, at)
}

fn totals_of<'a>(
    limits: impl Iterator<Item = &'a Limit>,
    policy: &Policy,
    asked: Option<&OwnCalendar>,
    last: Option<&Line>,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<Vec<Total>, Unknown> {
    let rule = &policy.rule;
    let almanac = rule.almanac_after(last, asked, at);
    let line = next_number(last);
    let mut totals = Vec::with_capacity(policy.rule.limits.len());
    let mut wanted: Option<WantedPast> = None;
    let may_be_begun = rule.calendar_owner.lets_subjects_own();
    for limit in limits {
        let mut total = Total::unused(limit, &almanac, at, line);
        if may_be_begun && let Some(begun) = rule.begun_window(&total, last, at) {
            total.set_window(begun);
        }
        if let Err(more) = go_on_after(&mut total, last, past, at) {
            wanted.get_or_insert_default().add(more);
        }
        totals.push(total);
    }
    match wanted {
        None => Ok(totals),
        Some(wanted) => Err(Unknown::Past(wanted)),
    }
}

/// The levels of use, of those that the policy watches, that a line after `last` reaches.
///
/// # Errors
/// As for [`totals_at`].
pub fn levels_reached(
    policy: &Policy,
    last: Option<&Line>,
    past: &Past,
    line: &Line,
) -> Result<Levels, Unknown> {
    let levels = policy.rule.warn_at;
    if levels.is_empty() {
        return Ok(levels);
    }
    let before = totals_asked(policy, line.calendar.as_deref(), last, past, line.at)?;
    Ok(levels.crossed(&before, &line.totals))
}

/// The number of the next line.
pub(super) fn next_number(last: Option<&Line>) -> u64 {
    last.map_or(1, |line| line.number + 1)
}

/// Both results.
///
/// # Errors
/// [`Unknown::Past`] with the wishes of both.
pub(super) fn both<A, B>(
    one: Result<A, Unknown>,
    two: Result<B, Unknown>,
) -> Result<(A, B), Unknown> {
    match (one, two) {
        (Ok(one), Ok(two)) => Ok((one, two)),
        (Err(Unknown::Past(mut wanted)), Err(Unknown::Past(more))) => {
            wanted.add(more);
            Err(Unknown::Past(wanted))
        }
        (Err(unknown), _) | (_, Err(unknown)) => Err(unknown),
    }
}
