//! Whether a lapse is recorded early or late changes no entry.

use super::*;

/// Plays steps. `sweeps` tells after which steps the lapses that are due are recorded by themselves.
fn played(rules: &[Vec<String>], steps: &[ModelStep], sweeps: &[bool]) -> History {
    let mut history = History::default();
    let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
    for ((version, step), sweeps) in (1..).zip(steps).zip(sweeps) {
        let before = now;
        now += TimeDelta::microseconds(step.passes);
        // A sweep comes when it comes: at each end of a hold, or only when the time has passed.
        let mut ends: Vec<DateTime<Utc>> = history.open.iter().map(|hold| hold.until).collect();
        ends.sort_unstable();
        for end in ends
            .into_iter()
            .filter(|end| *sweeps && (before..=now).contains(end))
        {
            history.lapse(end);
        }
        let policy = policy_then(rules, step, version);
        let units = Units::new(step.units.into()).unwrap();
        history.step(&policy, units, &step.what, now);
    }
    history.lapse(now);
    history
}

proptest! {
    #[test]
    fn early_and_late_lapses_make_the_same_entries(
        rules in proptest::collection::vec(any_rule(), 1..5),
        steps in model_steps(true),
        sweeps in proptest::collection::vec(any::<bool>(), 50),
    ) {
        // A grant that Redis counted is recorded at its own instant, before lapses that are due.
        let decided = steps.into_iter().filter(|step| !matches!(step.what, What::Record(_)));
        let steps: Vec<ModelStep> = decided.collect();
        let late = played(&rules, &steps, &[false; 50]);
        let early = played(&rules, &steps, &sweeps);
        prop_assert_eq!(early.entries, late.entries);
    }
}
