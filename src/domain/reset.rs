//! Resets: from an instant on, a limit of a subject is as if nothing had been used before.
//!
//! In the limit, only what counts at or after the reset counts. So a reversal or a lapse of an earlier
//! grant gives nothing back there, and an adjustment that is dated before the reset changes nothing.
//! [`Total::reset_at`] remembers the reset for that, as long as it matters.

use chrono::{DateTime, TimeDelta, Utc};

use super::account::{Unknown, check_version, next_line, totals_at};
use super::grant::Line;
use super::limit::per::Per;
use super::limit::total::Total;
use super::past::Past;
use super::policy::Policy;
use super::refusal::{CorrectionRefusal, Refusal};

/// The next line after a reset of a limit, or of all limits. It is later than all entries before it, so
/// that an instant tells what counts before the reset.
///
/// # Errors
/// [`Unknown::Past`] or [`Unknown::Policy`] outside, [`Refusal`] inside.
pub fn reset(
    policy: &Policy,
    per: Option<Per>,
    last: Option<&Line>,
    past: &Past,
    now: DateTime<Utc>,
) -> Result<Result<Line, Refusal>, Unknown> {
    // 1. Only a version that is not older than the last line may decide.
    check_version(policy, last)?;
    let at = last.map_or(now, |line| now.max(line.at + MICROSECOND));
    let mut totals = totals_at(policy, last, past, at)?;
    // 2. The policy must have the limit, and a unit must be used: a reset of nothing is a mistake.
    let is_named = |total: &&mut Total| per.is_none_or(|per| per == total.per());
    let mut named: Vec<&mut Total> = totals.iter_mut().filter(is_named).collect();
    if let Some(per) = per.filter(|_| named.is_empty()) {
        return Ok(Err(CorrectionRefusal::NoSuchLimit(per).into()));
    }
    if named.iter().all(|total| total.used() == 0) {
        return Ok(Err(CorrectionRefusal::NothingUsed(per).into()));
    }
    // 3. Each of these limits begins again.
    named.iter_mut().for_each(|total| total.reset(at));
    Ok(Ok(next_line(policy, None, last, at, totals)))
}

const MICROSECOND: TimeDelta = TimeDelta::microseconds(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Verdict, decide, record};
    use crate::claim::Units;
    use crate::correction::{adjust, give_back};
    use crate::grant::{Direction, Provisional};
    use crate::histories::{History, What};
    use crate::identity::EntryId;
    use crate::samples::policy_of;
    use crate::top_up::Returned;
    use crate::window::Length;

    const LIMITS: [&str; 4] = [
        "3 per day",
        "9 per month",
        "5 per 1h sliding",
        "7 per 10m rate",
    ];

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn two() -> Units {
        Units::new(2).unwrap()
    }

    fn two_of(grant: EntryId) -> Returned {
        Returned::new(grant, None, 0, two())
    }

    fn used(line: &Line) -> Vec<u64> {
        line.totals.iter().map(Total::used).collect()
    }

    fn policy() -> Policy {
        policy_of(1, "UTC", &LIMITS)
    }

    /// The line of a grant of two units, with its id.
    fn granted(last: Option<&Line>, now: DateTime<Utc>) -> (Line, EntryId) {
        let none = Past::default();
        match decide(&policy(), two(), last, &none, now) {
            Ok(Verdict::Granted(line)) => {
                let id = EntryId::new(line.at, line.number, 0);
                (line, id)
            }
            other => panic!("{other:?}"),
        }
    }

    fn reset_of(per: Option<Per>, last: Option<&Line>, now: &str) -> Result<Line, Refusal> {
        reset(&policy(), per, last, &Past::default(), at(now)).unwrap()
    }

    const NOON: &str = "2026-11-21T12:00:00Z";
    const DAY: Per = Per::Calendar(Length::Day);

    #[test]
    fn a_reset_begins_its_limit_again_and_no_other() {
        let (first, _) = granted(None, at(NOON));
        let line = reset_of(Some(DAY), Some(&first), NOON).unwrap();
        assert_eq!(used(&line), [0, 2, 2, 2]);
        // It is later than the entry before it, whatever the clock says.
        assert_eq!((line.number, line.at), (2, first.at + MICROSECOND));
        let (line, _) = granted(Some(&line), at("2026-11-21T12:00:01Z"));
        assert_eq!(used(&line)[..3], [2, 4, 4]);
        let line = reset_of(None, Some(&line), "2026-11-21T12:00:02Z").unwrap();
        assert_eq!(used(&line), [0; 4]);
        assert_eq!(line.at, at("2026-11-21T12:00:02Z"));
    }

    #[test]
    fn what_counted_before_a_reset_moves_its_limits_no_more() {
        let (first, grant) = granted(None, at(NOON));
        let limits = policy_of(1, "UTC", &LIMITS[..3]);
        let none = Past::default();
        for (per, others_after_up) in [(Some(DAY), 6), (None, 2)] {
            let line = reset_of(per, Some(&first), NOON).unwrap();
            let (line, _) = granted(Some(&line), at("2026-11-21T12:00:01Z"));
            let last = Some(&line);
            let now = at("2026-11-21T12:00:02Z");
            let back = give_back(&limits, &two_of(grant), last, &none, now).unwrap();
            assert_eq!(used(&back), [2; 3], "{per:?}");
            for (direction, others) in [(Direction::Up, others_after_up), (Direction::Down, 2)] {
                let line = adjust(&limits, two(), direction, at(NOON), last, &none, now);
                assert_eq!(
                    used(&line.unwrap().unwrap()),
                    [2, others, others],
                    "{per:?}"
                );
            }
        }
    }

    #[test]
    fn a_reset_of_nothing_is_refused() {
        let nothing = |per| Err(CorrectionRefusal::NothingUsed(per).into());
        assert_eq!(reset_of(None, None, NOON), nothing(None));
        let (line, _) = granted(None, at(NOON));
        let line = reset_of(Some(DAY), Some(&line), NOON).unwrap();
        assert_eq!(reset_of(Some(DAY), Some(&line), NOON), nothing(Some(DAY)));
        assert!(reset_of(None, Some(&line), NOON).is_ok());
        // The next window is unused.
        let later = "2026-12-01T00:00:00Z";
        assert_eq!(reset_of(None, Some(&line), later), nothing(None));
        let hour = Per::Calendar(Length::Hour);
        let unknown = CorrectionRefusal::NoSuchLimit(hour);
        assert_eq!(reset_of(Some(hour), Some(&line), NOON), Err(unknown.into()));
    }

    /// Redis decided a grant before a reset, and it is recorded afterwards.
    #[test]
    fn a_grant_from_before_a_reset_that_is_recorded_later_takes_no_room() {
        let (first, _) = granted(None, at(NOON));
        for (per, others) in [(None, 2), (Some(DAY), 6)] {
            let line = reset_of(per, Some(&first), NOON).unwrap();
            let (line, _) = granted(Some(&line), at("2026-11-21T12:00:01Z"));
            let none = Past::default();
            let policy = policy_of(1, "UTC", &LIMITS[..3]);
            let recorded = record(&policy, two(), Some(&line), &none, at(NOON));
            let (line, provisional) = recorded.unwrap().unwrap();
            assert_eq!(used(&line), [2, others, others], "{per:?}");
            // The hour has no room for it, if it was not reset.
            let expected = per.map_or(Provisional::Within, |_| Provisional::Over);
            assert_eq!(provisional, expected, "{per:?}");
        }
    }

    /// What counts before a reset is no change of the bucket when a later grant is reversed.
    #[test]
    fn a_bucket_gives_a_grant_of_after_the_reset_back_whole() {
        let policy = policy_of(1, "UTC", &["7 per 10m rate"]);
        let mut history = History::default();
        let second = |second| at(NOON) + TimeDelta::seconds(second);
        for (what, seconds) in [
            (What::Grant, 0),
            (What::Reset(None), 1),
            (What::Grant, 2),
            (What::Adjust(Direction::Up, TimeDelta::seconds(3)), 3),
        ] {
            history.step(&policy, two(), &what, second(seconds));
        }
        let last = history.last();
        assert_eq!(last.map(used), Some(vec![2]));
        let grant = history.entries[2].id;
        let back = history.ask(|past| give_back(&policy, &two_of(grant), last, past, second(3)));
        assert_eq!(used(&back), [0]);
    }

    /// A reset in a window that only the next zone has whole.
    #[test]
    fn a_sum_over_another_window_begins_at_the_reset() {
        let mut history = History::default();
        let shanghai = policy_of(1, "Asia/Shanghai", &["9 per day"]);
        for (what, now) in [
            (What::Grant, "2026-11-21T15:00:00Z"),
            (What::Reset(None), "2026-11-21T15:30:00Z"),
            (What::Grant, "2026-11-21T15:45:00Z"),
            // The next day in Shanghai.
            (What::Grant, "2026-11-21T16:15:00Z"),
        ] {
            history.step(&shanghai, two(), &what, at(now));
        }
        let utc = policy_of(2, "UTC", &["9 per day"]);
        let now = at("2026-11-21T17:00:00Z");
        let totals = history.ask(|past| totals_at(&utc, history.last(), past, now));
        assert_eq!(totals[0].used(), 4);
        assert_eq!(totals[0].reset_at, Some(at("2026-11-21T15:30:00Z")));
        let first = history.entries[0].id;
        let back = history.ask(|past| give_back(&utc, &two_of(first), history.last(), past, now));
        assert_eq!(used(&back), [4]);
    }
}
