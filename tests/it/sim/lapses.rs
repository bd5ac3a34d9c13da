//! Whether a lapse is recorded early or late changes no decision. A history without faults happens
//! twice. In one of two equal worlds a sweep records lapses at some moments after their ends. In the
//! other one only decisions record them. Everything else must be equal.

use std::time::Duration;

use perdiem::domain::grant::{Entry, EntryKind};
use perdiem::domain::identity::EntryId;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRng, TestRunner};

use super::choices::Kinds;
use super::courses::{COURSES, Course};
use super::events::Event;
use super::promises::Broken;
use super::world::World;
use super::{Planted, SCENE, Scene, histories};

/// Three instances. The last one has the slowest clock. It sweeps: so each end has passed by every
/// clock when its lapse is recorded.
const LAPSING: Scene = Scene {
    instances: 3,
    ..SCENE
};
const SWEEPER: usize = 2;
/// More sweeps than any history needs for its last lapses.
const SWEEPS_MOST: usize = 100;

/// Whether lapses are recorded before a decision needs them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LapseTime {
    Early,
    Late,
}

/// The story of a world: for each account its entries, and whether each claim was refused.
#[derive(Debug, PartialEq)]
struct Story {
    entries: Vec<Entry>,
    refused: Vec<bool>,
}

/// Goes through a history in which the calls of each event end before the next event.
fn go_calmly(scene: Scene, choices: &[u16], recorded: LapseTime) -> Result<World, Broken> {
    // What all subjects share counts the hold of another subject until its lapse is recorded.
    let shares = |course: &&Course| course.iter().any(|version| version.total.is_some());
    let courses: Vec<&Course> = COURSES.iter().filter(|course| !shares(course)).collect();
    let course = choices.first().copied().unwrap_or_default();
    let mut world = World::new(scene, courses[usize::from(course) % courses.len()]);
    for choice in choices.iter().skip(1) {
        let event = match Kinds::WITHOUT_FAULTS.pick(*choice, &world) {
            Some(Event::Sweep(_)) if recorded == LapseTime::Late => continue,
            // A batch appends the first entries of all its accounts before the others. So a lapse
            // changes the order of its grants, and the order selects later corrections.
            Some(Event::SendTogether(..)) => continue,
            Some(Event::Sweep(_)) => Event::Sweep(SWEEPER),
            Some(event) => event,
            None => continue,
        };
        world.happen(&event)?;
        world.settle_down()?;
    }
    end_holds(&mut world)?;
    world.come_to_rest()?;
    Ok(world)
}

/// Lets every hold end, and records every lapse.
fn end_holds(world: &mut World) -> Result<(), Broken> {
    world.happen(&Event::Pass(Duration::from_secs(5), None))?;
    for _ in 0..SWEEPS_MOST {
        if !world.ledger.has_open_holds() {
            return Ok(());
        }
        world.happen(&Event::Sweep(SWEEPER))?;
        world.settle_down()?;
    }
    Err("sweeps record every lapse".to_owned())
}

fn story(world: &World) -> Story {
    let mut entries = world.ledger.entries.clone();
    entries.sort_by_key(|entry| (entry.account, entry.line.number));
    for entry in &mut entries {
        // No open hold lapses before `lapses_at`. It is earlier than needed after a read that did not
        // return all holds. The judge checks it.
        entry.line.lapses_at = None;
        // The id of a lapse is random.
        if matches!(entry.kind, EntryKind::Lapse { .. }) {
            entry.id = EntryId::new(entry.line.at, entry.line.number, 0);
        }
    }
    let refused = world.sent.iter().map(|claim| claim.is_refused);
    Story {
        entries,
        refused: refused.collect(),
    }
}

/// A history in which early lapses change something, or break a promise.
fn changed_history(scene: Scene, histories: u32) -> Option<String> {
    let config = Config {
        cases: histories,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&vec(any::<u16>(), 2..120), |choices| {
        let play = |recorded| go_calmly(scene, &choices, recorded).map(|world| story(&world));
        let early = play(LapseTime::Early);
        let late = play(LapseTime::Late);
        if early == late && early.is_ok() {
            Ok(())
        } else {
            Err(TestCaseError::fail(format!("{early:#?}\n{late:#?}")))
        }
    });
    result.err().map(|error| error.to_string())
}

#[test]
fn early_and_late_lapses_change_no_decision() {
    if let Some(changed) = changed_history(LAPSING, histories()) {
        panic!("{changed}");
    }
}

#[test]
fn a_lapse_that_changes_decisions_is_found() {
    for planted in [Planted::LapsesEarly, Planted::LapsesUnderNewTerms] {
        let changed = changed_history(Scene { planted, ..LAPSING }, 5000);
        assert!(changed.is_some(), "{planted:?}");
    }
}
