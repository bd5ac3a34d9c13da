//! Corrections: what becomes of a grant afterwards, and units that are entered by hand.

use chrono::{DateTime, Utc};

use super::account::{
    Sums, Unknown, check_version, instant_after, next_line, totals_at, totals_at_both,
};
use super::claim::{UNITS_MAX, Units};
use super::grant::{Direction, Entry, EntryKind, Follower, Followers, Line, Total};
use super::identity::EntryId;
use super::policy::Policy;
use super::window::Per;

/// Why a correction is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorrectionRefusal {
    /// Only a hold can be confirmed.
    NotAHold,
    /// The grant's units were given back at this instant.
    Reversed(DateTime<Utc>),
    /// The hold lapsed at this instant, before it was confirmed.
    Lapsed(DateTime<Utc>),
    /// There is nothing to give back: the hold lapsed at this instant.
    GivenBack(DateTime<Utc>),
    /// Fewer units are used than are to be taken off.
    NotUsed {
        /// In this limit's window.
        per: Per,
        /// So many are used.
        used: u64,
    },
    /// More units would be used than can be counted.
    TooMany,
}

/// A hold that is neither confirmed nor reversed nor lapsed by an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The grant.
    pub grant: EntryId,
    /// Its units.
    pub units: Units,
    /// When it lapses.
    pub until: DateTime<Utc>,
}

/// An account's open holds.
#[derive(Debug, Clone, Default)]
pub struct Holds {
    /// Those that have lapsed, the first one first.
    pub lapsed: Vec<Hold>,
    /// The next ones, the first one first.
    pub next: Vec<Hold>,
    /// When the first of those after `next` lapses, or an instant before it.
    pub beyond: Option<DateTime<Utc>>,
}

impl Holds {
    /// The holds up to an instant and after it, of all those that `found` has in the order of
    /// their ends. `most` were asked for: where so many came, there may be more.
    pub fn at(at: DateTime<Utc>, mut found: Vec<Hold>, most: usize) -> Self {
        let next = found.split_off(found.partition_point(|hold| hold.until <= at));
        Self {
            beyond: next
                .last()
                .filter(|_| next.len() >= most)
                .map(|hold| hold.until),
            lapsed: found,
            next,
        }
    }

    /// Notes that one of them is open no more.
    pub fn close(&mut self, grant: EntryId) {
        self.next.retain(|hold| hold.grant != grant);
    }

    /// Notes one more.
    pub fn open(&mut self, hold: Hold) {
        let place = self.next.partition_point(|other| other.until <= hold.until);
        self.next.insert(place, hold);
    }

    /// See [`Line::lapses_at`].
    pub fn lapses_at(&self) -> Option<DateTime<Utc>> {
        let next = self.next.first().map(|hold| hold.until);
        next.into_iter().chain(self.beyond).min()
    }
}

/// What a reversal of a grant finds: nothing, or the reversal that was made before.
///
/// # Errors
/// [`CorrectionRefusal::GivenBack`].
pub fn check_reversal(followers: &Followers) -> Result<Option<&Follower>, CorrectionRefusal> {
    match &followers.closing {
        Some(closing) if matches!(closing.kind, EntryKind::Lapse { .. }) => {
            Err(CorrectionRefusal::GivenBack(closing.at))
        }
        closing => Ok(closing.as_ref()),
    }
}

/// What a confirmation of a grant finds: nothing, or the confirmation that was made before.
///
/// # Errors
/// [`CorrectionRefusal::NotAHold`], [`CorrectionRefusal::Reversed`] or
/// [`CorrectionRefusal::Lapsed`].
pub fn check_confirmation<'a>(
    grant: &Entry,
    followers: &'a Followers,
) -> Result<Option<&'a Follower>, CorrectionRefusal> {
    if grant.held_until().is_none() {
        return Err(CorrectionRefusal::NotAHold);
    }
    if let Some(closing) = &followers.closing {
        return Err(match closing.kind {
            EntryKind::Lapse { .. } => CorrectionRefusal::Lapsed(closing.at),
            _ => CorrectionRefusal::Reversed(closing.at),
        });
    }
    Ok(followers.confirmation.as_ref())
}

/// The line of an entry that leaves what is used as it is.
///
/// # Errors
/// [`Unknown::Sums`] or [`Unknown::Policy`].
pub fn carry_on(
    policy: &Policy,
    last: Option<&Line>,
    sums: &Sums,
    now: DateTime<Utc>,
) -> Result<Line, Unknown> {
    check_version(policy, last)?;
    let at = instant_after(last, now);
    Ok(next_line(
        policy,
        last,
        at,
        totals_at(policy, last, sums, at)?,
    ))
}

/// The line of an entry that gives a grant's units back: to the windows in which they were
/// granted, those that have ended too; but only current ones are on the line.
///
/// # Errors
/// [`Unknown::Sums`] or [`Unknown::Policy`].
pub fn give_back(
    policy: &Policy,
    units: Units,
    granted_at: DateTime<Utc>,
    last: Option<&Line>,
    sums: &Sums,
    now: DateTime<Utc>,
) -> Result<Line, Unknown> {
    let mut line = carry_on(policy, last, sums, now)?;
    for total in line
        .totals
        .iter_mut()
        .filter(|total| total.window.contains(granted_at))
    {
        total.give_back(units);
    }
    Ok(line)
}

/// The line of units that are entered by hand and count at `counted_at`, which is not after
/// `now`. They may go over a limit: what was used was used.
///
/// # Errors
/// [`Unknown::Sums`] or [`Unknown::Policy`] outside, [`CorrectionRefusal`] inside.
pub fn adjust(
    policy: &Policy,
    units: Units,
    direction: Direction,
    counted_at: DateTime<Utc>,
    last: Option<&Line>,
    sums: &Sums,
    now: DateTime<Utc>,
) -> Result<Result<Line, CorrectionRefusal>, Unknown> {
    check_version(policy, last)?;
    let at = instant_after(last, now);
    let (mut totals, own) = totals_at_both(policy, last, sums, [at, counted_at])?;
    let current = totals
        .iter()
        .filter(|total| total.window.contains(counted_at));
    let refusal = current
        .chain(&own)
        .find_map(|total| refuse(total, units, direction));
    if let Some(refusal) = refusal {
        return Ok(Err(refusal));
    }
    for total in totals
        .iter_mut()
        .filter(|total| total.window.contains(counted_at))
    {
        match direction {
            Direction::Up => total.take(units),
            Direction::Down => total.give_back(units),
        }
    }
    Ok(Ok(next_line(policy, last, at, totals)))
}

fn refuse(total: &Total, units: Units, direction: Direction) -> Option<CorrectionRefusal> {
    match direction {
        Direction::Up if units.get() > UNITS_MAX - total.used => Some(CorrectionRefusal::TooMany),
        Direction::Down if units.get() > total.used => Some(CorrectionRefusal::NotUsed {
            per: total.per,
            used: total.used,
        }),
        Direction::Up | Direction::Down => None,
    }
}
