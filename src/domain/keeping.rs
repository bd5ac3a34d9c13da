//! For how long the ledger keeps the entries of a policy, and with them the idempotency keys of its claims.

use chrono::{DateTime, TimeDelta, Utc};

use super::limit::shape::Shape;
use super::policy::{Policy, Rule};
use super::window::{Division, Length};

/// For how many days keys are kept if their policy does not say it.
pub const KEPT_DAYS: u32 = 400;
/// More than clocks and the midnights of zones differ.
const MIDNIGHTS_DIFFER_DAYS: u32 = 2;
/// For how long a grant that Redis decided may wait for the ledger, at least.
const QUEUE_DAYS: u32 = 34;
const DAY_SECONDS: u32 = 24 * 60 * 60;

/// What is older than so many days at an instant is not needed any more: its windows have ended, and its keys are
/// old enough. `versions` are all versions of a policy that are known then.
///
/// Windows of a version can be open until the longest of them has passed since its end. The days of keys are those of
/// the version in force, and of later ones.
pub fn needed_days(versions: &[Policy], at: DateTime<Utc>) -> u32 {
    let needed = versions.iter().enumerate().map(|(place, version)| {
        let window_days = window_days(&version.rule);
        let later = versions[place + 1..].iter().map(|it| it.effective_at);
        let ends_at = later.min().filter(|ends_at| *ends_at <= at);
        match ends_at {
            None => window_days.max(keys_days(&version.rule)),
            Some(ends_at) if at - ends_at < TimeDelta::days(window_days.into()) => window_days,
            Some(_) => 0,
        }
    });
    needed.max().unwrap_or(0)
}

fn keys_days(rule: &Rule) -> u32 {
    rule.idempotency_days
        .map_or(KEPT_DAYS, |days| days.get().into())
}

/// The longest time for which an entry counts in a window of a rule. An end that is very far, or never comes, is not
/// waited for.
fn window_days(rule: &Rule) -> u32 {
    let own = rule.limits.iter().map(|limit| (limit.max, limit.shape));
    let shared = rule.shared.iter().map(|limit| (limit.max, limit.shape));
    let days = own.chain(shared).map(|(max, shape)| match shape {
        Shape::Calendar(Division::Length(length)) => match length {
            Length::Minute | Length::Hour | Length::Day => 1,
            Length::Week => 7,
            Length::Month => 31,
            Length::Quarter => 92,
            Length::Year => 366,
        },
        Shape::Calendar(Division::PartOfDay(_)) => 1,
        Shape::Calendar(Division::Weeks(run)) => 7 * u32::from(run.weeks.get()),
        Shape::Ever => KEPT_DAYS,
        Shape::FromFirstClaim(per) | Shape::Sliding { per, .. } => days_of(per.seconds().into()),
        // The units of a full burst have returned after this time.
        Shape::Rate { per, .. } => {
            let seconds = u128::from(per.seconds()) * u128::from(shape.at_once(max));
            days_of(seconds.div_ceil(max.max(1).into()))
        }
    });
    let longest = days.max().unwrap_or(0);
    let later = if rule.may_be_counted() {
        QUEUE_DAYS
    } else {
        MIDNIGHTS_DIFFER_DAYS
    };
    longest.saturating_add(later).min(KEPT_DAYS)
}

fn days_of(seconds: u128) -> u32 {
    u32::try_from(seconds.div_ceil(DAY_SECONDS.into())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::draft::LimitDraft;
    use crate::policy::{Durability, PolicyId, PolicyName, RuleDraft};

    fn day(day: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::days(day)
    }

    fn limit(max: i128, per: &str, kind: Option<&str>) -> LimitDraft {
        LimitDraft {
            max,
            per: per.to_owned(),
            kind: kind.map(str::to_owned),
            ..LimitDraft::default()
        }
    }

    /// A version that takes effect on a day.
    fn version(number: u32, from: i64, keys: Option<i128>, limits: &[LimitDraft]) -> Policy {
        let rule = RuleDraft {
            time_zone: "Asia/Kathmandu".to_owned(),
            limits: limits.to_vec(),
            idempotency_days: keys,
            ..RuleDraft::default()
        };
        Policy {
            id: PolicyId(1),
            name: PolicyName::new("benefit").unwrap(),
            version: number,
            rule: rule.check().unwrap(),
            archived: false,
            effective_at: day(from),
            changed_at: day(from),
            changed_by: "a test".to_owned(),
            reason: None,
            blocked: None,
        }
    }

    #[test]
    fn the_longest_window_and_the_days_of_keys_count() {
        let needed =
            |keys, limits: &[LimitDraft]| needed_days(&[version(1, 0, keys, limits)], day(1000));
        let daily = [limit(3, "day", None)];
        assert_eq!(needed(None, &daily), 400);
        assert_eq!(needed(Some(1000), &daily), 1000);
        assert_eq!(needed(Some(30), &daily), 30);
        assert_eq!(needed(Some(1), &daily), 3);
        for (with, days) in [
            (limit(9, "week", None), 9),
            (limit(9, "month", None), 33),
            (limit(9, "quarter", None), 94),
            (limit(9, "year", None), 368),
            (limit(9, "ever", None), 400),
            (limit(9, "15m", Some("calendar")), 3),
            (limit(9, "36h", Some("sliding")), 4),
            (limit(9, "400d", Some("from_first_claim")), 400),
            // One unit returns each minute.
            (limit(1440, "24h", Some("rate")), 3),
        ] {
            assert_eq!(
                needed(Some(1), &[daily[0].clone(), with.clone()]),
                days,
                "{with:?}"
            );
        }
        let slow = LimitDraft {
            burst: Some(30),
            ..limit(1, "24h", Some("rate"))
        };
        assert_eq!(needed(Some(1), &[slow]), 32);
        let mut counted = version(1, 0, Some(1), &daily);
        counted.rule.durability = Durability::Counted;
        assert_eq!(needed_days(&[counted], day(1000)), 35);
    }

    #[test]
    fn windows_of_earlier_versions_are_waited_for_and_their_keys_are_not() {
        let daily = [limit(3, "day", None)];
        let monthly = [limit(3, "month", None)];
        let versions = [
            version(1, 0, None, &monthly),
            version(2, 100, Some(7), &daily),
            version(3, 110, Some(5), &daily),
        ];
        // A window of the month can be open for 33 days after the first version's end.
        assert_eq!(needed_days(&versions, day(132)), 33);
        assert_eq!(needed_days(&versions, day(133)), 5);
        // Before a version takes effect, it counts, and the one before it too.
        assert_eq!(needed_days(&versions, day(105)), 33);
        assert_eq!(needed_days(&versions[1..], day(109)), 7);
        assert_eq!(needed_days(&versions[1..], day(110)), 5);
        assert_eq!(needed_days(&[], day(110)), 0);
    }
}
