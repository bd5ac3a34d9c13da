//! Compares a limit that is computed from the past, because the last line does not have it, with
//! the same limit that existed all the time.

use std::sync::Arc;

use super::*;
use crate::limit::sliding::SlidingLog;
use crate::past::{Past, WantedPast, total_after};

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

/// What the fold says is what the line says, or more if an adjustment took units off.
fn tells_no_less(folded: &SlidingLog, stepwise: &SlidingLog, is_exact: bool) -> bool {
    let units_at = |at: i64| {
        let mut pairs = folded.pairs.iter().filter(|pair| pair.at == at);
        pairs.next().map_or(0, |pair| pair.units)
    };
    let mut pairs = stepwise.pairs.iter();
    if is_exact {
        folded == stepwise
    } else {
        pairs.all(|pair| pair.units <= units_at(pair.at))
    }
}

/// The same step, in which units are taken and given back by claims, or taken off by hand.
fn without_units_by_hand(what: &What) -> What {
    match what {
        What::Adjust(_, ago) => What::Adjust(Direction::Down, *ago),
        What::Record(_) => What::Grant,
        what => what.clone(),
    }
}

proptest! {
    #[test]
    fn the_past_tells_no_less_than_the_line(
        limit in any_limit(),
        steps in model_steps(true),
        later in passes(),
    ) {
        let policy = policy_of(1, "Asia/Kolkata", &[limit]);
        let mut history = History::default();
        let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
        for step in &steps {
            now += TimeDelta::microseconds(step.passes);
            let units = Units::new(step.units.into()).unwrap();
            history.step(&policy, units, &without_units_by_hand(&step.what), now);
        }
        prop_assume!(history.last().is_some());
        let at = now + TimeDelta::microseconds(later);
        let stepwise = totals(&history, &policy, at).swap_remove(0);
        let folded = folded(&history, &policy, at);
        match (&stepwise.state, &folded.state) {
            (LimitState::Calendar(_), _) => prop_assert_eq!(&folded, &stepwise),
            (LimitState::Sliding(one), LimitState::Sliding(two)) => {
                let off = |entry: &Entry| entry.kind == EntryKind::Adjustment(Direction::Down);
                let is_exact = !history.entries.iter().any(off);
                prop_assert!(tells_no_less(two, one, is_exact), "{two:?} {one:?}");
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
