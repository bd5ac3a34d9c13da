//! Corrections: confirmations, reversals, lapses, adjustments, and moves of an account's calendar.

use std::collections::VecDeque;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::account::{Unknown, check_version, instant_after, next_line, top_ups_at, totals_at};
use super::account_totals::{both, calendar_totals_at, totals_asked};
use super::claim::Units;
use super::grant::{Direction, Entry, EntryKind, Line};
use super::identity::{AccountId, EntryId};
use super::kind::Follows;
use super::limit::rate::Afterwards;
use super::limit::total::{GivenBack, Total};
use super::own_calendar::OwnCalendar;
use super::past::Past;
use super::policy::Policy;
use super::refusal::Refusal;
use super::top_up::{Returned, TopUps};
use super::warning::Levels;

/// A hold without a confirmation, reversal or lapse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub grant: EntryId,
    /// The units that were not given back.
    pub units: Units,
    /// The units of the grant, and the top-ups on its line.
    pub granted: Units,
    pub top_ups: Option<Arc<TopUps>>,
    /// The instant at which the hold lapses.
    pub until: DateTime<Utc>,
    /// The version of the policy that granted it.
    pub version: u32,
}

/// The open holds of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holds {
    /// The holds that have lapsed, in the order of their ends.
    pub lapsed: VecDeque<Hold>,
    /// The holds that lapse next, in the order of their ends.
    pub next: Vec<Hold>,
    /// The end of the first hold after `next`, or an earlier instant.
    pub beyond: Option<DateTime<Utc>>,
}

impl Hold {
    /// The entry of the lapse, with its line.
    pub fn lapsed(&self, account: AccountId, line: Line, nonce: u64) -> Entry {
        Entry {
            account,
            id: EntryId::new(line.at, line.number, nonce),
            kind: EntryKind::Lapse { of: self.grant },
            units: self.units,
            key: None,
            metadata: None,
            provisional: None,
            would_deny: false,
            crossed: Levels::default(),
            bundle: None,
            is_erased: false,
            claimed_by: None,
            note: None,
            line,
        }
    }

    /// The units that return when the hold lapses.
    pub fn returning(&self) -> Returned {
        let before = self.granted.get() - self.units.get();
        Returned::new(self.grant, self.top_ups.as_deref(), before, self.units)
    }
}

impl Holds {
    /// Sorts holds that were read. `found` has all of them in the order of their ends: those that
    /// end by `at`, of which `lapsed_most` were asked for, and those after it, of which `most` were
    /// asked for. If that many were found, more may exist.
    pub fn at(at: DateTime<Utc>, mut found: Vec<Hold>, lapsed_most: usize, most: usize) -> Self {
        let mut next = found.split_off(found.partition_point(|hold| hold.until <= at));
        let mut beyond = next.last().filter(|_| next.len() >= most);
        if found.len() >= lapsed_most {
            beyond = found.last();
        }
        let beyond = beyond.map(|hold| hold.until);
        if beyond.is_some_and(|beyond| beyond <= at) {
            next.clear();
        }
        Self {
            beyond,
            lapsed: found.into(),
            next,
        }
    }

    pub fn change(&mut self, change: HoldChange) {
        match change {
            HoldChange::Opens(hold) => {
                let place = self.next.partition_point(|other| other.until <= hold.until);
                self.next.insert(place, hold);
            }
            HoldChange::Shrinks(grant, units) => shrink(self.next.iter_mut(), grant, units),
            HoldChange::Ends(grant) => self.next.retain(|hold| hold.grant != grant),
        }
    }

    /// See [`Line::lapses_at`].
    pub fn lapses_at(&self) -> Option<DateTime<Utc>> {
        let first = self.lapsed.front().or(self.next.first());
        let first = first.map(|hold| hold.until);
        first.into_iter().chain(self.beyond).min()
    }
}

/// What an entry does to the open holds of its account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldChange {
    Opens(Hold),
    /// Some of the units were given back.
    Shrinks(EntryId, Units),
    Ends(EntryId),
}

impl HoldChange {
    /// `None` for an entry that leaves the holds as they are.
    pub fn by(entry: &Entry) -> Option<Self> {
        let grant = entry.kind.of();
        match entry.kind.facts().follows {
            Follows::NoGrant => entry.held_until().map(|until| {
                Self::Opens(Hold {
                    grant: entry.id,
                    units: entry.units,
                    granted: entry.units,
                    top_ups: entry.line.top_ups.clone(),
                    until,
                    version: entry.line.policy_version,
                })
            }),
            Follows::GoesOn => {
                let shrinks = entry.kind.gives_back();
                shrinks.map(|grant| Self::Shrinks(grant, entry.units))
            }
            Follows::EndsHold | Follows::Reverses | Follows::Lapses => grant.map(Self::Ends),
            Follows::EndsTopUp => None,
        }
    }
}

/// Takes units off one of some holds. A hold keeps at least one unit: the reversal of its last unit
/// closes it.
pub fn shrink<'a>(mut holds: impl Iterator<Item = &'a mut Hold>, grant: EntryId, units: Units) {
    if let Some(hold) = holds.find(|hold| hold.grant == grant)
        && let Some(left) = hold.units.less(units.get())
    {
        hold.units = left;
    }
}

/// The next line with unchanged usage.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`].
pub fn carry_on(
    policy: &Policy,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Line, Unknown> {
    check_version(policy, last)?;
    let at = instant_after(last, now);
    Ok(next_line(
        policy,
        None,
        last,
        at,
        totals_at(policy, last, past, at)?,
    ))
}

/// The next line after units of a grant are given back. They return to the windows that contain the
/// grant, and to the top-ups from which they came; windows and top-ups that have ended are not in the
/// line.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`].
pub fn give_back(
    policy: &Policy,
    returned: &Returned,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Line, Unknown> {
    // 1. Only a version that is not older than the last line may decide.
    check_version(policy, last)?;
    let at = instant_after(last, now);
    // 2. The units return to the totals and the top-ups of now.
    let mut totals = totals_at(policy, last, past, at)?;
    return_to(&mut totals, returned, past, at)?;
    Ok(Line {
        top_ups: top_ups_with(returned, last, at),
        ..next_line(policy, None, last, at, totals)
    })
}

fn top_ups_with(
    returned: &Returned,
    last: Option<&Line>,
    at: DateTime<Utc>,
) -> Option<Arc<TopUps>> {
    let mut top_ups = top_ups_at(last, at);
    top_ups.give_back(returned.draws.iter().copied());
    top_ups.on_line()
}

/// The next line after a hold lapsed. It is at the end of the hold, under the terms of the line
/// before it. So the line is the same whether it is appended at once or later, and no decision
/// depends on that. A calendar window stays, also if it has ended: the next decision knows the
/// calendar.
///
/// # Errors
/// [`Unknown::Past`].
pub fn lapse(hold: &Hold, last: &Line, past: &Past) -> Result<Line, Unknown> {
    let at = last.at.max(hold.until);
    let mut totals = last.totals.to_vec();
    totals.iter_mut().for_each(|total| total.age(at));
    let returned = hold.returning();
    return_to(&mut totals, &returned, past, at)?;
    Ok(Line {
        number: last.number + 1,
        at,
        totals: totals.into(),
        top_ups: top_ups_with(&returned, Some(last), at),
        ..last.clone()
    })
}

/// Gives the units of a grant back to each total that still has them.
fn return_to(
    totals: &mut [Total],
    returned: &Returned,
    past: &Past,
    at: DateTime<Utc>,
) -> Result<(), Unknown> {
    let own_units = returned.own_units();
    if own_units == 0 {
        return Ok(());
    }
    let granted_at = returned.grant.at();
    let asks = |total: &Total| total.asks_for_changes(granted_at, at);
    let after = if totals.iter().any(asks) {
        past.after_grant(returned.grant).map_err(Unknown::Past)?
    } else {
        None
    };
    let given = GivenBack {
        units: own_units,
        granted_at,
        after: after.as_ref(),
    };
    for total in totals {
        total.give_back(given, at);
    }
    Ok(())
}

/// The next line after an adjustment that counts at `counted_at`. The instant of the line is not
/// before `counted_at`, even if the clock stepped back since. An adjustment may go over a limit:
/// the units are already used.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`] outside, [`Refusal`] inside.
pub fn adjust(
    policy: &Policy,
    units: Units,
    direction: Direction,
    counted_at: DateTime<Utc>,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Result<Line, Refusal>, Unknown> {
    // 1. Only a version that is not older than the last line may decide.
    check_version(policy, last)?;
    let at = instant_after(last, now.max(counted_at));
    // 2. The totals of now, and the calendar windows of the instant at which the units count.
    let current = totals_at(policy, last, past, at);
    let own = calendar_totals_at(policy, last, past, counted_at);
    let (mut totals, mut own) = both(current, own)?;
    let after = match direction {
        Direction::Up => Afterwards::NOTHING,
        Direction::Down => past
            .after_adjustment(&totals, counted_at, last, at)
            .map_err(Unknown::Past)?,
    };
    // 3. The units are added or taken off in all of them, or the adjustment is refused.
    for total in totals.iter_mut().chain(&mut own) {
        let entered = match direction {
            Direction::Up => total.take(units, counted_at, at).map_err(Refusal::from),
            Direction::Down => total
                .take_off(units, counted_at, at, &after)
                .map_err(Refusal::from),
        };
        if let Err(refusal) = entered {
            return Ok(Err(refusal));
        }
    }
    Ok(Ok(next_line(policy, None, last, at, totals)))
}

/// The next line after an admin moved the calendar of an account. The usage stays.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`] outside, [`Refusal`] inside.
pub fn move_calendar(
    policy: &Policy,
    asked: Option<&OwnCalendar>,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Result<Line, Refusal>, Unknown> {
    check_version(policy, last)?;
    if !policy.rule.calendar_owner.lets_subjects_own() {
        return Ok(Err(Refusal::NoOwnCalendar));
    }
    let at = instant_after(last, now);
    let totals = totals_asked(policy, asked, last, past, at)?;
    Ok(Ok(next_line(policy, asked, last, at, totals)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::claim::UNITS_MAX;
    use crate::limit::total::NotUsed;
    use crate::samples;
    use crate::window::Length;

    fn policy(version: u32, limits: &[(u64, &str)]) -> Policy {
        samples::policy(version, "UTC", limits)
    }

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn units(units: u64) -> Units {
        Units::new(units.into()).unwrap()
    }

    /// Units of a grant that took nothing from top-ups.
    fn returned(number: u64, grant: EntryId) -> Returned {
        Returned::new(grant, None, 0, units(number))
    }

    /// A line with this usage in each window of the policy at an instant.
    fn line(policy: &Policy, at: DateTime<Utc>, used: &[u64]) -> Line {
        let mut line = carry_on(policy, None, &Past::default(), at).unwrap();
        for (total, used) in Arc::make_mut(&mut line.totals).iter_mut().zip(used) {
            total.set_used(*used);
        }
        line
    }

    fn used(line: &Line) -> Vec<u64> {
        line.totals.iter().map(|total| total.used()).collect()
    }

    const NOON: &str = "2026-11-21T12:00:00Z";

    #[test]
    fn what_gives_back_lowers_the_windows_that_contain_the_grant() {
        let policy = policy(1, &[(9, "hour"), (9, "day"), (9, "month")]);
        let last = line(&policy, at(NOON), &[2, 3, 5]);
        for (granted_at, expected) in [
            (NOON, [0, 1, 3]),
            ("2026-11-21T11:59:59.999999Z", [2, 1, 3]),
            ("2026-11-21T00:00:00Z", [2, 1, 3]),
            ("2026-11-20T23:59:59.999999Z", [2, 3, 3]),
            ("2026-10-31T23:59:59.999999Z", [2, 3, 5]),
        ] {
            let given = EntryId::new(at(granted_at), 1, 0);
            let none = Past::default();
            let line = give_back(&policy, &returned(2, given), Some(&last), &none, at(NOON));
            let line = line.unwrap();
            assert_eq!(used(&line), expected, "{granted_at}");
            assert_eq!((line.number, line.at), (2, at(NOON)));
        }
    }

    #[test]
    fn a_window_that_ended_is_not_on_the_line_and_the_next_one_is_untouched() {
        let policy = policy(1, &[(9, "day")]);
        let last = line(&policy, at(NOON), &[3]);
        let tomorrow = at(NOON) + TimeDelta::days(1);
        let none = Past::default();
        let line = give_back(
            &policy,
            &returned(3, EntryId::new(at(NOON), 1, 0)),
            Some(&last),
            &none,
            tomorrow,
        );
        let line = line.unwrap();
        assert_eq!(used(&line), [0]);
        assert!(line.totals[0].window().unwrap().contains(tomorrow));
    }

    #[test]
    fn a_confirmation_leaves_what_is_used_and_goes_on_to_new_windows() {
        let policy = policy(2, &[(9, "hour"), (9, "day")]);
        let last = line(&policy, at(NOON), &[2, 3]);
        let later = at(NOON) + TimeDelta::hours(1);
        let next = carry_on(&policy, Some(&last), &Past::default(), later).unwrap();
        assert_eq!(used(&next), [0, 3]);
        assert_eq!((next.number, next.at, next.policy_version), (2, later, 2));
        // Time does not run backwards.
        let earlier = carry_on(&policy, Some(&next), &Past::default(), at(NOON)).unwrap();
        assert_eq!((earlier.at, used(&earlier)), (later, vec![0, 3]));
    }

    #[test]
    fn nothing_is_corrected_under_an_older_version() {
        let old = policy(1, &[(9, "day")]);
        let new = policy(2, &[(9, "day")]);
        let last = line(&new, at(NOON), &[3]);
        let last = Some(&last);
        let none = Past::default();
        let now = at(NOON);
        let unknown = Err(Unknown::Policy);
        assert_eq!(carry_on(&old, last, &none, now), unknown);
        assert_eq!(
            give_back(
                &old,
                &returned(1, EntryId::new(now, 1, 0)),
                last,
                &none,
                now
            ),
            unknown
        );
        let adjusted = adjust(&old, units(1), Direction::Up, now, last, &none, now);
        assert_eq!(adjusted, Err(Unknown::Policy));
    }

    /// The outcome for a day with 3 of 9 used and a month with 5 of 9 used, at noon.
    fn adjusted(
        by: u64,
        direction: Direction,
        counted_at: &str,
        sums: &[u64],
    ) -> Result<Vec<u64>, Refusal> {
        let policy = policy(1, &[(9, "day"), (9, "month")]);
        let last = line(&policy, at(NOON), &[3, 5]);
        let counted_at = at(counted_at);
        let now = at(NOON);
        let mut known = Past::default();
        let mut given_sums = sums.iter();
        loop {
            let last = Some(&last);
            match adjust(&policy, units(by), direction, counted_at, last, &known, now) {
                Ok(result) => return result.map(|line| used(&line)),
                Err(Unknown::Past(wanted)) => {
                    for window in wanted.windows {
                        let sum = given_sums.next().expect("no more than are told");
                        known.insert(window, (*sum).into());
                    }
                }
                Err(unknown) => panic!("{unknown:?}"),
            }
        }
    }

    #[test]
    fn adjustments_count_in_the_windows_of_their_instant() {
        let up = Direction::Up;
        let down = Direction::Down;
        assert_eq!(adjusted(2, up, NOON, &[]), Ok(vec![5, 7]));
        assert_eq!(adjusted(3, down, NOON, &[]), Ok(vec![0, 2]));
        // An adjustment may go over the limit: the units are already used.
        assert_eq!(adjusted(20, up, NOON, &[]), Ok(vec![23, 25]));
        let yesterday = "2026-11-20T12:00:00Z";
        assert_eq!(adjusted(2, up, yesterday, &[1]), Ok(vec![3, 7]));
        assert_eq!(adjusted(1, down, yesterday, &[1]), Ok(vec![3, 4]));
        let last_month = "2026-10-20T12:00:00Z";
        assert_eq!(adjusted(2, down, last_month, &[2, 2]), Ok(vec![3, 5]));
    }

    #[test]
    fn no_more_is_taken_off_than_is_used_in_every_window() {
        let down = Direction::Down;
        let not_used = |length: Length, used, is_past| {
            let per = length.into();
            Err(NotUsed { per, used, is_past }.into())
        };
        let refused = not_used(Length::Day, 3, false);
        assert_eq!(adjusted(4, down, NOON, &[]), refused);
        let yesterday = "2026-11-20T12:00:00Z";
        let refused = not_used(Length::Day, 1, true);
        assert_eq!(adjusted(2, down, yesterday, &[1]), refused);
        let refused = not_used(Length::Month, 5, true);
        assert_eq!(adjusted(6, down, yesterday, &[8]), refused);
        let last_month = "2026-10-20T12:00:00Z";
        let refused = not_used(Length::Month, 1, true);
        assert_eq!(adjusted(2, down, last_month, &[2, 1]), refused);
        let up = Direction::Up;
        assert_eq!(
            adjusted(UNITS_MAX - 5, up, NOON, &[]),
            Ok(vec![UNITS_MAX - 2, UNITS_MAX])
        );
        assert_eq!(
            adjusted(UNITS_MAX - 4, up, NOON, &[]),
            Err(Refusal::TooMany)
        );
    }

    #[test]
    fn a_clock_that_stepped_back_leaves_an_adjustment_in_its_window() {
        let policy = policy(1, &[(9, "day")]);
        let counted_at = at("2026-11-22T00:00:00Z");
        let now = at("2026-11-21T23:59:59Z");
        let none = Past::default();
        let line = adjust(
            &policy,
            units(1),
            Direction::Up,
            counted_at,
            None,
            &none,
            now,
        );
        let line = line.unwrap().unwrap();
        assert_eq!((line.at, used(&line)), (counted_at, vec![1]));
    }

    fn holds() -> impl Strategy<Value = Vec<Hold>> {
        let ends = proptest::collection::vec(0i64..40, 0..30);
        ends.prop_map(|mut ends| {
            ends.sort_unstable();
            let numbered = ends.into_iter().zip(1..);
            let hold = |(end, number)| Hold {
                grant: EntryId::new(at(NOON), number, 0),
                units: Units::ONE,
                granted: Units::ONE,
                top_ups: None,
                until: at(NOON) + TimeDelta::seconds(end),
                version: 1,
            };
            numbered.map(hold).collect()
        })
    }

    proptest! {
        /// For any number of holds in a read, and any holds that end and start meanwhile: no open
        /// hold lapses before `lapses_at`. If all holds were read, one lapses exactly then.
        #[test]
        fn no_hold_lapses_before_the_line_says(
            all in holds(),
            now in 0i64..40,
            most in 1usize..20,
            closed in proptest::collection::vec(any::<bool>(), 30),
            opened in holds(),
        ) {
            let now = at(NOON) + TimeDelta::seconds(now);
            let due = all.partition_point(|hold| hold.until <= now);
            let found = all[..all.len().min(due + most)].to_vec();
            let were_all_read = found.len() - due < most;
            let mut holds = Holds::at(now, found, usize::MAX, most);
            let first = all.iter().map(|hold| hold.until).min();
            prop_assert_eq!(holds.lapses_at(), first);
            prop_assert_eq!(Vec::from(std::mem::take(&mut holds.lapsed)), &all[..due]);
            let mut open: Vec<Hold> = all[due..].to_vec();
            let next = holds.next.clone();
            for (hold, _) in next.iter().zip(&closed).filter(|(_, is_closed)| **is_closed) {
                holds.change(HoldChange::Ends(hold.grant));
                open.retain(|other| other.grant != hold.grant);
            }
            for hold in opened {
                holds.change(HoldChange::Opens(hold.clone()));
                open.push(hold);
            }
            prop_assert!(holds.next.is_sorted_by_key(|hold| hold.until));
            let first = open.iter().map(|hold| hold.until).min();
            if were_all_read {
                prop_assert_eq!(holds.lapses_at(), first);
            } else {
                prop_assert!(
                    first.is_none_or(|first| holds.lapses_at().is_some_and(|at| at <= first))
                );
            }
        }
    }
}
