//! An account, and the one rule that decides its claims.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::account_calendar::calendar_of;
pub use super::account_totals::{Unknown, totals_at};
use super::account_totals::{both, calendar_totals_at, next_number, totals_asked};
use super::claim::Units;
use super::grant::{Line, Provisional};
use super::limit::shape::{Limit, LimitKind};
use super::limit::total::{TooMany, Total};
use super::own_calendar::OwnCalendar;
use super::past::Past;
use super::policy::{Mode, Policy, Rule};
use super::refusal::{DeniedClaim, Refusal};
use super::top_up::TopUps;

/// The verdict of the rule on a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The claim is granted: the next line of the account.
    Granted(Line),
    /// The policy only observes, and would have denied the claim: the next line of the account.
    WouldDeny(Line),
    Refused(Refusal),
}

/// What a claim asks for.
#[derive(Debug, Clone)]
pub struct UnitsAsked {
    pub units: Units,
    /// The zone and the anchor of the account from this claim on; `None` leaves them as they are.
    pub calendar: Option<Arc<OwnCalendar>>,
}

impl From<Units> for UnitsAsked {
    fn from(units: Units) -> Self {
        Self {
            units,
            calendar: None,
        }
    }
}

/// Decides whether a claim may take its units at `now`, after the `last` line of the account.
///
/// Invariant: a claim takes units from all limits of its policy, or from none. Every store and
/// every path uses this one rule.
///
/// # Errors
/// [`Unknown`].
pub fn decide(
    policy: &Policy,
    asked: impl Into<UnitsAsked>,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Verdict, Unknown> {
    // 1. Only a version that is not older than the last line may decide.
    check_version(policy, last)?;
    // 2. Some claims are refused whatever the account holds.
    let asked = asked.into();
    let at = instant_after(last, now);
    let mut top_ups = top_ups_at(last, at);
    if let Some(refusal) = refuse(policy, &asked, top_ups.given(), now) {
        return Ok(Verdict::Refused(refusal));
    }
    let UnitsAsked { units, calendar } = asked;
    let calendar = calendar.as_deref();
    // 3. Lapses that are due come first: they make room.
    if last.is_some_and(|line| line.may_have_lapses(at)) {
        return Err(Unknown::Holds);
    }
    // 4. What the limits have no room for comes from top-ups. The rest must fit into every limit, unless the
    //    policy only observes. A policy that observes also grants the claims of a blocked subject.
    let mut totals = totals_asked(policy, calendar, last, past, at)?;
    if !top_ups.each.is_empty() {
        top_ups.draw(units.get().saturating_sub(room(&totals)));
    }
    let own = units.less(top_ups.aside);
    let has_room = |own: Units| totals.iter().all(|total| total.fits(own));
    let fits = policy.blocked.is_none() && own.is_none_or(has_room);
    if !fits && policy.rule.mode == Mode::Enforce {
        let last = last.cloned();
        return Ok(Verdict::Refused(Refusal::Denied(DeniedClaim {
            own_units: own.map_or(0, Units::get),
            totals: totals.into(),
            last,
            shared: Box::default(),
        })));
    }
    // 5. The units are taken from all totals.
    if let Some(own) = own
        && (totals.iter_mut())
            .try_for_each(|total| total.take(own, at, at))
            .is_err()
    {
        return Ok(Verdict::Refused(Refusal::TooMany));
    }
    let verdict = if fits {
        Verdict::Granted
    } else {
        Verdict::WouldDeny
    };
    let mut line = next_line(policy, calendar, last, at, totals);
    if top_ups.aside > 0 {
        line.top_ups = top_ups.on_line();
    }
    Ok(verdict(line))
}

/// The most units that all limits have room for.
fn room(totals: &[Total]) -> u64 {
    let room = totals.iter().map(Total::remaining).min();
    room.unwrap_or(u64::MAX)
}

/// The top-ups of an account at an instant that is not before its last line.
pub fn top_ups_at(last: Option<&Line>, at: DateTime<Utc>) -> TopUps {
    last.map(|line| line.top_ups_at(at)).unwrap_or_default()
}

/// The units of a claim that the limits must have room for, if only time passes until an instant: those that no
/// top-up has then.
pub fn own_units(units: Units, last: Option<&Line>, at: DateTime<Utc>) -> u64 {
    units.get().saturating_sub(top_ups_at(last, at).left())
}

/// Checks that the policy is not older than the version of the last line.
///
/// # Errors
/// [`Unknown::Policy`].
pub(super) fn check_version(policy: &Policy, last: Option<&Line>) -> Result<(), Unknown> {
    match last {
        Some(line) if line.policy_version > policy.version => Err(Unknown::Policy),
        Some(_) | None => Ok(()),
    }
}

/// The next line, with totals at an instant, and the calendar that is asked for.
pub(super) fn next_line(
    policy: &Policy,
    asked: Option<&OwnCalendar>,
    last: Option<&Line>,
    at: DateTime<Utc>,
    totals: Vec<Total>,
) -> Line {
    Line {
        number: next_number(last),
        at,
        policy_version: policy.version,
        lapses_at: last.and_then(|line| line.lapses_at),
        calendar: policy.rule.own_calendar(calendar_of(last), asked, at),
        top_ups: top_ups_at(last, at).on_line(),
        totals: totals.into(),
    }
}

/// The line of the totals that Redis tells. The ledger does not have it: it has no number.
pub fn line_of(policy_version: u32, totals: &[Total], at: DateTime<Utc>) -> Line {
    Line {
        number: 0,
        at,
        policy_version,
        lapses_at: None,
        calendar: None,
        top_ups: None,
        totals: totals.into(),
    }
}

/// The line of `units` that Redis granted at `granted_at`, after the `last` line of the account,
/// and whether the grant went over a limit. The grant is recorded even if it goes over.
///
/// The units count from `granted_at` on. Invariant: the instant of the line is not before the last
/// line. If the last line is in later windows, the new line keeps these windows. Holds that lapsed
/// meanwhile are left to the next decision. Under a policy that only observes, no grant counts as
/// over.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`] outside, [`TooMany`] inside.
pub fn record(
    policy: &Policy,
    units: Units,
    last: Option<&Line>,
    past: &Past,
    granted_at: DateTime<Utc>,
) -> Result<Result<(Line, Provisional), TooMany>, Unknown> {
    // 1. Only a version that is not older than the last line may decide.
    check_version(policy, last)?;
    let at = instant_after(last, granted_at);
    // 2. The totals of the line, and the calendar windows of the instant of the grant.
    let current = totals_at(policy, last, past, at);
    let own = calendar_totals_at(policy, last, past, granted_at);
    let (mut totals, own) = both(current, own)?;
    // 3. A grant is over a limit if it does not fit into its own windows.
    let others = totals
        .iter()
        .filter(|total| total.kind() != LimitKind::Calendar);
    let fits = (own.iter().chain(others)).all(|it| it.has_room(units, granted_at));
    // 4. The units are recorded in any case, unless they cannot be counted.
    let mut recorded = totals.iter_mut();
    let recorded = recorded.try_for_each(|total| total.record(units, granted_at, at));
    if let Err(too_many) = recorded {
        return Ok(Err(too_many));
    }
    let provisional = if fits || policy.rule.mode == Mode::Observe {
        Provisional::Within
    } else {
        Provisional::Over
    };
    let line = next_line(policy, None, last, at, totals);
    Ok(Ok((line, provisional)))
}

/// The reason to refuse the claim whatever the account holds. `topped_up` is what its top-ups have at most;
/// `u64::MAX` if that is not known.
pub fn refuse(
    policy: &Policy,
    asked: &UnitsAsked,
    topped_up: u64,
    now: DateTime<Utc>,
) -> Option<Refusal> {
    if policy.archived {
        return Some(Refusal::Archived);
    }
    if let Some(inactive) = policy.rule.inactive(now) {
        return Some(Refusal::Inactive(inactive));
    }
    if asked.calendar.is_some() && !policy.rule.calendar_owner.lets_subjects_own() {
        return Some(Refusal::NoOwnCalendar);
    }
    if policy.rule.mode == Mode::Observe {
        return None;
    }
    if let Some(block) = policy.blocked {
        return Some(Refusal::Blocked(block));
    }
    let Rule { limits, shared, .. } = &policy.rule;
    let most = |it: &Limit| it.ceiling.saturating_add(topped_up);
    let own = limits.iter().map(|it| (most(it), it.per()));
    let shared = shared.iter().map(|it| (it.max, it.per()));
    own.chain(shared)
        .filter(|(most, _)| asked.units.get() > *most)
        .min_by_key(|(most, _)| *most)
        .map(|(max, per)| Refusal::NeverFits { per, max })
}

/// The next instant of an account. Invariant: time never runs backwards in an account, whatever the
/// clock says.
pub fn instant_after(last: Option<&Line>, now: DateTime<Utc>) -> DateTime<Utc> {
    last.map_or(now, |line| now.max(line.at))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::blocks::BlockTerms;
    use crate::claim::UNITS_MAX;
    use crate::limit::shape::Shape;
    use crate::limit::shape::TOTAL_MAX;
    use crate::policy::Inactive;
    use crate::samples::policy;
    use crate::window::{Division, Length, Window};

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn units(units: i128) -> Units {
        Units::new(units).unwrap()
    }

    fn granted(verdict: Result<Verdict, Unknown>) -> Line {
        match verdict {
            Ok(Verdict::Granted(line)) => line,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn take(policy: &Policy, last: Option<&Line>, now: DateTime<Utc>) -> Result<Verdict, Unknown> {
        decide(policy, Units::ONE, last, &Past::default(), now)
    }

    #[test]
    fn three_a_day_in_gmt_8() {
        let policy = policy(1, "GMT+8", &[(3, "day")]);
        let mut last = None;
        for number in 1..=3 {
            let line = granted(take(&policy, last.as_ref(), at("2026-11-21T15:59:59Z")));
            assert_eq!((line.number, line.totals[0].used()), (number, number));
            assert_eq!(
                line.totals[0].window().unwrap().end,
                at("2026-11-21T16:00:00Z")
            );
            last = Some(line);
        }
        let denied = take(&policy, last.as_ref(), at("2026-11-21T15:59:59.999999Z"));
        let Ok(Verdict::Refused(Refusal::Denied(DeniedClaim { totals, .. }))) = denied else {
            panic!("{denied:?}")
        };
        assert_eq!((totals[0].used(), totals[0].remaining()), (3, 0));
        let next = granted(take(&policy, last.as_ref(), at("2026-11-21T16:00:00Z")));
        assert_eq!((next.number, next.totals[0].used()), (4, 1));
    }

    #[test]
    fn units_come_from_every_limit_or_from_none() {
        let policy = policy(1, "UTC", &[(3, "day"), (4, "month")]);
        let first = decide(
            &policy,
            units(3),
            None,
            &Past::default(),
            at("2026-11-20T00:00:00Z"),
        );
        let first = granted(first);
        let now = at("2026-11-21T00:00:00Z");
        let denied = decide(&policy, units(2), Some(&first), &Past::default(), now);
        let Ok(Verdict::Refused(Refusal::Denied(DeniedClaim { totals, .. }))) = denied else {
            panic!("{denied:?}")
        };
        assert_eq!([totals[0].used(), totals[1].used()], [0, 3]);
        let second = granted(take(&policy, Some(&first), now));
        assert_eq!([second.totals[0].used(), second.totals[1].used()], [1, 4]);
    }

    #[test]
    fn a_new_zone_sums_what_was_granted_inside_the_new_window() {
        let shanghai = policy(1, "Asia/Shanghai", &[(3, "day")]);
        let now = at("2026-11-21T15:00:00Z");
        let last = granted(take(&shanghai, None, now));
        let utc = policy(2, "UTC", &[(3, "day")]);
        let Err(Unknown::Past(wanted)) = take(&utc, Some(&last), now) else {
            panic!()
        };
        assert_eq!(wanted.windows[0].window.start, at("2026-11-21T00:00:00Z"));
        let mut sums = Past::default();
        sums.insert(wanted.windows[0], 3.into());
        let verdict = decide(&utc, Units::ONE, Some(&last), &sums, now);
        assert!(matches!(verdict, Ok(Verdict::Refused(Refusal::Denied(_)))));
    }

    #[test]
    fn a_lower_max_takes_nothing_back_and_a_higher_one_gives_room() {
        let now = at("2026-11-21T00:00:00Z");
        let five = policy(1, "UTC", &[(5, "day")]);
        let last = granted(decide(&five, units(4), None, &Past::default(), now));
        let Ok(Verdict::Refused(Refusal::Denied(DeniedClaim { totals, .. }))) =
            take(&policy(2, "UTC", &[(3, "day")]), Some(&last), now)
        else {
            panic!()
        };
        assert_eq!((totals[0].used(), totals[0].remaining()), (4, 0));
        let six = policy(3, "UTC", &[(6, "day")]);
        let line = granted(decide(&six, units(2), Some(&last), &Past::default(), now));
        assert_eq!(line.totals[0].used(), 6);
    }

    #[test]
    fn nobody_decides_under_an_older_version() {
        let now = at("2026-11-21T00:00:00Z");
        let last = granted(take(&policy(2, "UTC", &[(5, "day")]), None, now));
        let verdict = take(&policy(1, "UTC", &[(9, "day")]), Some(&last), now);
        assert_eq!(verdict, Err(Unknown::Policy));
    }

    #[test]
    fn time_never_runs_backwards_in_an_account() {
        let policy = policy(1, "UTC", &[(5, "day")]);
        let last = granted(take(&policy, None, at("2026-11-22T00:00:00Z")));
        let line = granted(take(&policy, Some(&last), at("2026-11-21T23:59:59Z")));
        assert_eq!(line.at, last.at);
        assert_eq!(line.totals[0].used(), 2);
    }

    #[test]
    fn an_observing_policy_grants_all_and_tells_what_it_would_have_denied() {
        let now = at("2026-11-21T00:00:00Z");
        let mut observing = policy(1, "UTC", &[(3, "day")]);
        observing.rule.mode = Mode::Observe;
        let last = granted(decide(&observing, units(2), None, &Past::default(), now));
        let would_deny = decide(&observing, units(7), Some(&last), &Past::default(), now);
        let Ok(Verdict::WouldDeny(line)) = would_deny else {
            panic!("{would_deny:?}")
        };
        assert_eq!((line.number, line.totals[0].used()), (2, 9));
        assert_eq!(line.totals[0].remaining(), 0);
        let own = record(&observing, units(1), Some(&line), &Past::default(), now);
        assert_eq!(own.unwrap().unwrap().1, Provisional::Within);
        // As many units as can be counted.
        let rest = |more| units(i128::from(UNITS_MAX) - 9 + more);
        let full = decide(&observing, rest(0), Some(&line), &Past::default(), now);
        let Ok(Verdict::WouldDeny(full)) = full else {
            panic!("{full:?}")
        };
        assert_eq!(full.totals[0].used(), UNITS_MAX);
        let refused = decide(&observing, rest(1), Some(&line), &Past::default(), now);
        assert_eq!(refused, Ok(Verdict::Refused(Refusal::TooMany)));
        // A grant that was already answered is recorded beyond this, until the stores cannot sum
        // it.
        let recorded = |line: &Line, used: u64| {
            let mut line = line.clone();
            std::sync::Arc::make_mut(&mut line.totals)[0].set_used(used);
            let recorded = record(&observing, rest(0), Some(&line), &Past::default(), now);
            recorded.unwrap().map(|(line, _)| line.totals[0].used())
        };
        assert_eq!(recorded(&full, UNITS_MAX), Ok(2 * UNITS_MAX - 9));
        assert_eq!(recorded(&full, TOTAL_MAX - UNITS_MAX + 9), Ok(TOTAL_MAX));
        let too_many = recorded(&full, TOTAL_MAX - UNITS_MAX + 10);
        assert_eq!(too_many, Err(TooMany));
        observing.rule.paused = true;
        let refused = take(&observing, Some(&line), now);
        let paused = Verdict::Refused(Refusal::Inactive(Inactive::Paused));
        assert_eq!(refused, Ok(paused));
    }

    #[test]
    fn units_never_fit_above_the_larger_max_of_policy_and_override() {
        let now = at("2026-11-21T00:00:00Z");
        let own = policy(1, "UTC", &[(5, "day")]);
        for (max, claimed, never_fits) in
            [(2, 5, None), (2, 6, Some(5)), (8, 8, None), (8, 9, Some(8))]
        {
            let terms = own.with_max(|_| Some(max));
            let per = Length::Day.into();
            let expected = never_fits.map(|max| Refusal::NeverFits { per, max });
            assert_eq!(refuse(&terms, &units(claimed).into(), 0, now), expected);
        }
        // Ledgers from before blocks have overrides with a `max` of 0.
        let blocked = own.with_max(|_| Some(0));
        let Ok(Verdict::Refused(Refusal::Denied(DeniedClaim { totals, .. }))) =
            take(&blocked, None, now)
        else {
            panic!()
        };
        assert_eq!((totals[0].max, totals[0].used()), (0, 0));
    }

    #[test]
    fn a_block_denies_every_claim_unless_the_policy_only_observes() {
        let now = at("2026-11-21T00:00:00Z");
        let block = BlockTerms { until: None };
        let mut terms = policy(1, "UTC", &[(5, "day")]);
        terms.blocked = Some(block);
        for claimed in [1, 5, 6] {
            let refused = refuse(&terms, &units(claimed).into(), 0, now);
            assert_eq!(refused, Some(Refusal::Blocked(block)));
        }
        terms.rule.mode = Mode::Observe;
        let Ok(Verdict::WouldDeny(line)) = take(&terms, None, now) else {
            panic!()
        };
        assert_eq!(line.totals[0].used(), 1);
    }

    #[test]
    fn what_could_never_fit_is_told_before_a_denial() {
        let policy = policy(1, "UTC", &[(5, "month"), (3, "day")]);
        let per = Length::Day.into();
        let expected = Refusal::NeverFits { per, max: 3 };
        let refused = refuse(&policy, &units(6).into(), 0, at("2026-11-21T00:00:00Z"));
        assert_eq!(refused, Some(expected));
    }

    /// A step of a history: hours that pass, the units of a claim, perhaps another policy, and
    /// perhaps a decision without the ledger, this many hours before it was appended.
    #[derive(Debug, Clone)]
    struct Step {
        hours: i64,
        units: u64,
        change: Option<(usize, u64)>,
        without_ledger: Option<i64>,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (
            0i64..30,
            1u64..4,
            proptest::option::of((0usize..4, 1u64..9)),
            proptest::option::weighted(0.3, 0i64..60),
        );
        let step = step.prop_map(|(hours, units, change, without_ledger)| Step {
            hours,
            units,
            change,
            without_ledger,
        });
        proptest::collection::vec(step, 1..60)
    }

    fn division(limit: &Limit) -> Division {
        match limit.shape {
            Shape::Calendar(division) => division,
            _ => panic!("no window of the calendar"),
        }
    }

    fn sum_of(grants: &[(DateTime<Utc>, u64)], window: Window) -> u64 {
        let inside = grants.iter().filter(|(at, _)| window.contains(*at));
        inside.map(|(_, units)| units).sum()
    }

    const ZONES: [&str; 4] = ["UTC", "GMT+8", "America/New_York", "Australia/Lord_Howe"];

    proptest! {
        /// Compared with the plain model: a list of grants, summed again for each decision.
        #[test]
        fn totals_are_the_sums_of_the_grants_in_their_windows(steps in steps()) {
            let mut current = policy(1, ZONES[0], &[(3, "day"), (9, "week")]);
            let mut now = at("2026-10-20T00:00:00Z");
            let mut grants: Vec<(DateTime<Utc>, u64)> = Vec::new();
            let mut last: Option<Line> = None;
            for step in steps {
                now += TimeDelta::hours(step.hours);
                if let Some((zone, max)) = step.change {
                    let limits: &[(u64, &str)] = match max % 3 {
                        0 => &[(max, "day")],
                        1 => &[(max, "day"), (2 * max, "week")],
                        _ => &[(max, "hour"), (2 * max, "day"), (30, "month")],
                    };
                    current = policy(current.version + 1, ZONES[zone], limits);
                }
                let known = grants.clone();
                let sum = |window: Window| sum_of(&known, window);
                let wanted = units(step.units.into());
                let room_at = |at: DateTime<Utc>| current.rule.limits.iter().all(|limit| {
                    sum(current.rule.calendar.window(division(limit), at)) + step.units <= limit.max
                });
                if let Some(hours) = step.without_ledger {
                    let granted_at = now - TimeDelta::hours(hours);
                    let mut sums = Past::default();
                    let (line, provisional) = loop {
                        match record(&current, wanted, last.as_ref(), &sums, granted_at) {
                            Err(Unknown::Past(wanted)) => {
                                for window in wanted.windows {
                                    sums.insert(window, sum(window.window).into());
                                }
                            }
                            Ok(recorded) => break recorded.unwrap(),
                            Err(unknown) => panic!("{unknown:?}"),
                        }
                    };
                    prop_assert_eq!(provisional == Provisional::Within, room_at(granted_at));
                    grants.push((granted_at, step.units));
                    prop_assert!(last.is_none_or(|last| last.at <= line.at));
                    prop_assert!(granted_at <= line.at);
                    for total in line.totals.iter() {
                        prop_assert!(total.window().unwrap().contains(line.at));
                        prop_assert_eq!(total.used(), sum_of(&grants, total.window().unwrap()));
                    }
                    last = Some(line);
                    continue;
                }
                let mut sums = Past::default();
                let verdict = loop {
                    match decide(&current, wanted, last.as_ref(), &sums, now) {
                        Err(Unknown::Past(wanted)) => {
                            for window in wanted.windows {
                                sums.insert(window, sum(window.window).into());
                            }
                        }
                        verdict => break verdict,
                    }
                };
                prop_assert_eq!(matches!(verdict, Ok(Verdict::Granted(_))), room_at(now));
                if let Ok(Verdict::Granted(line)) = verdict {
                    grants.push((line.at, step.units));
                    for total in line.totals.iter() {
                        prop_assert_eq!(total.used(), sum_of(&grants, total.window().unwrap()));
                        prop_assert!(total.used() <= total.max);
                    }
                    last = Some(line);
                }
            }
        }
    }
}
