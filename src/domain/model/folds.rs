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
        // The start of each window from the first claim.
        let mut opened = Vec::new();
        for step in &steps {
            now += TimeDelta::microseconds(step.passes);
            let units = Units::new(step.units.into()).unwrap();
            history.step(&policy, units, &step.what, now);
            if let Some(line) = history.last()
                && let Some(window) = line.totals[0].window()
            {
                opened.push(window.start);
            }
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
                // If no older window reaches into the entries that were read, everything is known.
                let since = stepwise.forgets_at(at);
                let reaches = |start: &DateTime<Utc>| *start <= since && since < *start + one.per.delta();
                if !opened.iter().any(reaches) {
                    prop_assert_eq!(one, two);
                }
            }
            (LimitState::Rate(one), LimitState::Rate(two)) => {
                prop_assert!(two.owed >= one.owed, "{two:?} {one:?}");
            }
            _ => prop_assert!(false, "another kind"),
        }
    }
}
