//! Compares a limit that is computed from the past, because the last line does not have it, with
//! the same limit that existed all the time.

use std::sync::Arc;

use super::*;
use crate::domain::past::{Past, WantedPast, total_after};

/// The total as if the last line had no limit.
fn folded(history: &History, policy: &Policy, at: DateTime<Utc>) -> Total {
    let mut last = history.last().unwrap().clone();
    last.totals = Arc::new([]);
    let unused = Total::unused(
        &policy.rule.limits[0],
        &policy.rule.calendar,
        at,
        last.number + 1,
    );
    let mut known = Past::default();
    loop {
        match total_after(unused.clone(), Some(&last), &known, at) {
            Ok(total) => return total,
            Err(wanted) => {
                let is_new = wanted != WantedPast::default();
                assert!(is_new, "nothing is wanted");
                known.extend(history.past(&wanted));
            }
        }
    }
}

proptest! {
    #[test]
    fn the_past_tells_no_less_than_the_line(
        limit in any_limit(),
        steps in model_steps(false),
        later in passes(),
    ) {
        let policy = policy_of(1, "Asia/Kolkata", &[limit]);
        let mut history = History::default();
        let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
        for step in &steps {
            now += TimeDelta::microseconds(step.passes);
            let units = Units::new(step.units.into()).unwrap();
            history.step(&policy, units, &step.what, now);
        }
        prop_assume!(history.last().is_some());
        let at = now + TimeDelta::microseconds(later);
        let stepwise = totals(&history, &policy, at).swap_remove(0);
        let folded = folded(&history, &policy, at);
        match (&stepwise.state, &folded.state) {
            (LimitState::Calendar(_), _) | (LimitState::Sliding(_), _) => {
                prop_assert_eq!(&folded, &stepwise);
            }
            (LimitState::FromFirstClaim(one), LimitState::FromFirstClaim(two)) => {
                prop_assert!(two.used >= one.used);
                prop_assert!(two.opened >= one.opened);
            }
            (LimitState::Rate(one), LimitState::Rate(two)) => {
                prop_assert!(two.owed >= one.owed, "{two:?} {one:?}");
            }
            _ => prop_assert!(false, "another kind"),
        }
    }
}
