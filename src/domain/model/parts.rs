//! Compares a reversal of a whole grant with reversals of its parts, after adjustments of all kinds.

use super::*;
use crate::claim::UNITS_MAX;

/// The totals after a history and the reversal of one of its grants: at first these units of it, one
/// after the other, then all that are left.
fn after_reversal(
    policy: &Policy,
    steps: &[ModelStep],
    grant: Index,
    parts: usize,
) -> (Vec<Total>, usize) {
    let mut history = History::default();
    let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
    for step in steps {
        now += TimeDelta::microseconds(step.passes);
        let units = Units::new(step.units.into()).unwrap();
        history.step(policy, units, &step.what, now);
    }
    history.lapse(now);
    let known = history.entries.len();
    let all = Units::new(UNITS_MAX.into()).unwrap();
    let units = std::iter::repeat_n(Units::ONE, parts).chain([all]);
    for units in units {
        let is_whole = |entry: &Entry| matches!(entry.kind, EntryKind::Reversal { .. });
        if !history.entries[known..].iter().any(is_whole) {
            history.step(policy, units, &What::Reverse(grant), now);
        }
    }
    let reversals = history.entries.len() - known;
    let at = instant_after(history.last(), now);
    (totals(&history, policy, at), reversals)
}

proptest! {
    #[test]
    fn a_reversal_in_parts_leaves_what_a_whole_one_leaves(
        limit in any_limit(),
        steps in model_steps(true),
        grant: Index,
        parts in 1usize..4,
    ) {
        let policy = policy_of(1, "Asia/Kolkata", &[limit]);
        let (whole, reversals) = after_reversal(&policy, &steps, grant, 0);
        prop_assume!(reversals > 0);
        let (in_parts, _) = after_reversal(&policy, &steps, grant, parts);
        prop_assert_eq!(in_parts, whole);
    }
}
