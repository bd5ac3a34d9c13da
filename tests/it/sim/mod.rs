//! A simulator of the claim protocol. It drives the production code of a claim through histories of
//! random events, and checks every promise after each event.
//!
//! - `instance` runs the production code. It replaces the dispatch and the lanes, without async.
//! - `ledger` and `redis` replace the stores. Each keeps the store's contract.
//! - `calls` are the requests of instances to the stores.
//! - `clients` send claims, corrections, adjustments and resets. `time` has the clocks.
//! - `courses` are the versions of the policy, with limits of every kind.
//! - `events` lists what can happen next. `choices` picks an event, and `world` executes it.
//! - `lapses` compares lapses that are recorded early with late ones.
//! - `promises` is the judge. `telling` prints a history in which a promise is broken.
//!
//! A history is a list of numbers. The first number selects the kinds of events, the second number
//! selects the course of the policy, and each other number selects one event. `go_through` drives a
//! history: read it first. The tests of `keeps!` expect no broken promise. The tests of `finds!`
//! plant one fault in a store or an instance, and expect the simulator to find it.
//!
//! This command runs more histories: `PERDIEM_SIM_HISTORIES=100000 cargo test --test it sim::`

mod calls;
mod choices;
mod clients;
mod courses;
mod events;
mod instance;
mod lapses;
mod ledger;
mod promises;
mod redis;
mod scripts;
mod telling;
mod time;
mod world;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use chrono::TimeDelta;
use perdiem::domain::kind::Kind;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRng, TestRunner};

use choices::Kinds;
use courses::{COUNTED_COURSES, COURSES, Course};
use promises::Broken;
use telling::tell;
use world::World;

/// The skew of each instance's clock. Two instances never show the same microsecond.
const SKEWS: [TimeDelta; 3] = [
    TimeDelta::zero(),
    TimeDelta::microseconds(400_123),
    TimeDelta::microseconds(-300_457),
];

/// The fault that is planted in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    Nothing,
    /// The ledger accepts any entry number.
    NoGuard,
    /// A burst opens an account that exists.
    OpensTwice,
    /// The ledger accepts a key twice.
    NoUniqueKey,
    /// The ledger accepts a burst without the fence.
    NoFence,
    /// A settlement overwrites a newer line.
    OlderLineWins,
    /// Redis answers an ask with another account's counter.
    OtherCounter,
    /// Redis counts a claim again that is already in the queue.
    ForgetsIds,
    /// Redis lowers the waiting units for grants that left the queue before.
    LowersTwice,
    /// A grant leaves the queue, and its account is not settled.
    RecordsApart,
    /// Redis denies a claim because of grants that are on their way into the ledger.
    DeniesAtOnce,
    /// A drain does not look for the entries of the queued grants.
    DrainsUnseen,
    /// A drain takes entries for counted that were appended after it read the last line.
    TakesLaterEntries,
    /// The counter cannot decide a claim, and after one question to the ledger the claim skips the
    /// queue.
    AsksOnce,
    /// The ledger decides a claim whose count has no answer.
    CountsUnseen,
    /// The ledger returns none of the entries that may count for a new limit.
    ForgetsTail,
    /// The ledger accepts any instant.
    NoTimeBounds,
    /// A sweep ends holds before their ends.
    LapsesEarly,
    /// The ledger returns a hold that has lapsed as open.
    LapsesTwice,
    /// A sweep records lapses under the newest version of the policy.
    LapsesUnderNewTerms,
    /// The ledger returns a hold with all its units, also after parts were given back.
    LapsesWhole,
    /// The ledger finds no part of a grant by its key.
    PartsTwice,
    /// The ledger returns no parts among the entries that name a grant.
    ForgetsParts,
    /// The ledger finds no adjustment by its key.
    AdjustsTwice,
    /// The ledger leaves adjustments out of the sum of a window.
    ForgetsAdjustments,
    /// A sum has the units of grants that came from top-ups.
    SumsTopUps,
    /// The ledger does not begin the sum of a window at a reset.
    ForgetsResets,
    /// An instance decides a batch again whose append has no answer, as if it had lost.
    ForgetsBatches,
    /// The ledger appends the part of a component of batches that fits: it guards each account alone.
    SplitsBatches,
    /// A refused batch leaves its entries in the drafts of the component.
    KeepsRefused,
    /// The ledger guards each account alone, and not the room in the limits that all subjects share.
    NoRoomInAll,
}

/// When Redis decides claims alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    Never,
    /// `durability: counted`.
    Always,
    /// `on_ledger_outage: count`.
    InOutage,
}

/// The settings of a world in which histories begin.
#[derive(Debug, Clone, Copy)]
pub struct Scene {
    pub instances: usize,
    pub has_counters: bool,
    pub counting: Counting,
    pub courses: &'static [Course],
    pub planted: Planted,
}

/// Two instances with counters.
const SCENE: Scene = Scene {
    instances: 2,
    has_counters: true,
    counting: Counting::Never,
    courses: COURSES,
    planted: Planted::Nothing,
};

/// Three instances that let Redis decide.
const COUNTED: Scene = Scene {
    instances: 3,
    counting: Counting::Always,
    courses: COUNTED_COURSES,
    ..SCENE
};

/// Two instances that let Redis decide while the ledger is silent.
const IN_OUTAGE: Scene = Scene {
    counting: Counting::InOutage,
    courses: COUNTED_COURSES,
    ..SCENE
};

/// The number of choices at the start of a history that do not select an event.
const HEAD: usize = 2;

/// Runs one history. The first choice selects the kinds of events, the second choice selects the
/// course of the policy, and each other choice selects one event. `note` is called before each
/// event.
fn go_through(
    scene: Scene,
    choices: &[u16],
    mut note: impl FnMut(&World, &events::Event),
) -> (World, Result<(), Broken>) {
    // 1. Choose the course and the kinds of events, and make a new world.
    let head = |place: usize| choices.get(place).copied().unwrap_or_default();
    let course = usize::from(head(1)) % scene.courses.len();
    let mut world = World::new(scene, scene.courses[course]);
    let kinds = Kinds(head(0));
    // 2. Pick an event for each choice. A choice for which no event is possible is skipped.
    for choice in choices.iter().skip(HEAD) {
        let Some(event) = kinds.pick(*choice, &world) else {
            continue;
        };
        // 3. Execute the event. It checks every promise that it can break. The first broken promise
        //    ends the history.
        note(&world, &event);
        let kept = world.happen(&event);
        if kept.is_err() {
            return (world, kept);
        }
    }
    // 4. End all calls without faults, and check the promises of a world at rest.
    let kept = world.come_to_rest();
    (world, kept)
}

/// Runs so many histories. Returns the shortest history that was found in which a promise is
/// broken, as a text that begins with the promise. `end` is called with each world at its end.
fn broken_promise(scene: Scene, histories: u32, end: impl Fn(&World)) -> Option<String> {
    // 1. Draw random histories, always from the same seed.
    let config = Config {
        cases: histories,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let choices = vec(any::<u16>(), HEAD + 1..250);
    let kept = Cell::new(0);
    let first = Cell::new(None);
    // 2. Run each history, until one breaks a promise. proptest then shortens that history.
    let found = runner.run(&choices, |choices| {
        let (world, promises) = go_through(scene, &choices, |_, _| {});
        end(&world);
        match promises {
            Ok(()) => {
                kept.set(kept.get() + 1);
                Ok(())
            }
            Err(broken) => {
                first.set(first.get().or(Some(kept.get())));
                Err(TestCaseError::fail(broken))
            }
        }
    });
    // 3. Shorten the history further, and print it in words.
    match found {
        Ok(()) => None,
        Err(TestError::Fail(broken, choices)) => {
            println!("after {} histories", first.get().unwrap_or_default());
            Some(tell(scene, &shorten(scene, choices, broken.message())))
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Removes consecutive choices while the same promise stays broken.
fn shorten(scene: Scene, mut choices: Vec<u16>, broken: &str) -> Vec<u16> {
    let head = |broken: &str| broken.split(':').next().map(str::to_owned);
    for size in [8, 5, 4, 3, 2, 1, 4, 3, 2, 1] {
        let mut start = HEAD;
        while start + size <= choices.len() {
            let mut fewer = choices.clone();
            fewer.drain(start..start + size);
            let kept = go_through(scene, &fewer, |_, _| {}).1;
            if kept.is_err_and(|other| head(&other) == head(broken)) {
                choices = fewer
            } else {
                start += 1
            }
        }
    }
    choices
}

fn histories() -> u32 {
    let histories = std::env::var("PERDIEM_SIM_HISTORIES").ok();
    histories.map_or(2000, |histories| histories.parse().expect("a number"))
}

macro_rules! keeps {
    ($($name:ident: $scene:expr;)*) => {$(
        #[test]
        fn $name() {
            let made = RefCell::new(HashSet::new());
            let batches_most = Cell::new(0);
            let broken = broken_promise($scene, histories(), |world| {
                let batches = world.instances.iter().map(|instance| instance.batches_most);
                batches_most.set(batches.chain([batches_most.get()]).max().unwrap_or_default());
                let kinds = world.ledger.entries.iter().map(|entry| entry.kind.kind());
                made.borrow_mut().extend(kinds);
            });
            if let Some(broken) = broken {
                panic!("{broken}");
            }
            let missing = Kind::ALL.into_iter().filter(|kind| !made.borrow().contains(kind));
            assert_eq!(missing.collect::<Vec<_>>(), []);
            // Atomic batches that share accounts were granted together.
            assert!($scene.counting != Counting::Never || batches_most.get() > 1);
        }
    )*};
}

macro_rules! finds {
    ($($name:ident: $scene:ident, $planted:ident, $promise:expr;)*) => {$(
        #[test]
        fn $name() {
            let planted = Planted::$planted;
            let broken = broken_promise(Scene { planted, ..$scene }, 5000, |_| {});
            let broken = broken.expect("a broken promise");
            println!("{broken}");
            assert!(broken.starts_with($promise), "{broken}");
        }
    )*};
}

keeps! {
    two_instances_keep_every_promise: SCENE;
    one_instance_keeps_every_promise: Scene { instances: 1, ..SCENE };
    three_instances_keep_every_promise: Scene { instances: 3, ..SCENE };
    the_ledger_alone_keeps_every_promise: Scene { has_counters: false, ..SCENE };
    counted_claims_keep_every_promise: COUNTED;
    claims_that_are_counted_in_an_outage_keep_every_promise: IN_OUTAGE;
}

finds! {
    a_ledger_without_the_guard_is_found:
        SCENE, NoGuard, "numbers without gaps or forks";
    a_burst_that_opens_an_account_twice_is_found:
        SCENE, OpensTwice, "numbers without gaps or forks";
    a_ledger_without_unique_keys_is_found:
        SCENE, NoUniqueKey, "a key has one entry";
    a_ledger_without_the_fence_is_found:
        SCENE, NoFence, "numbers without gaps or forks";
    a_redis_that_keeps_an_older_line_is_found:
        SCENE, OlderLineWins, "counters follow the ledger";
    a_ledger_without_time_bounds_is_found:
        SCENE, NoTimeBounds, "no entry is in the future";
    a_past_without_entries_is_found:
        SCENE, ForgetsTail, "totals are sums";
    a_sweep_before_the_ends_of_holds_is_found:
        SCENE, LapsesEarly, "no entry is in the future";
    a_hold_that_lapses_twice_is_found:
        SCENE, LapsesTwice, "a grant is given back once";
    a_lapse_under_new_terms_is_found:
        SCENE, LapsesUnderNewTerms, "a lapse is under the terms of the line before";
    a_lapse_that_gives_parts_back_again_is_found:
        SCENE, LapsesWhole, "what is given back of a grant adds up";
    parts_without_unique_keys_are_found:
        SCENE, PartsTwice, "a key has one entry";
    a_reversal_that_forgets_parts_is_found:
        SCENE, ForgetsParts, "what is given back of a grant adds up";
    adjustments_without_unique_keys_are_found:
        SCENE, AdjustsTwice, "a key has one entry";
    a_sum_without_adjustments_is_found:
        SCENE, ForgetsAdjustments, "totals are sums";
    a_sum_with_units_of_top_ups_is_found:
        SCENE, SumsTopUps, "a claim that fits is granted";
    a_sum_from_before_a_reset_is_found:
        SCENE, ForgetsResets, "a claim that fits is granted";
    a_batch_that_is_decided_again_unseen_is_found:
        SCENE, ForgetsBatches, "a denied claim takes nothing";
    a_ledger_that_appends_part_of_a_batch_is_found:
        SCENE, SplitsBatches, "a batch is granted whole";
    a_refused_batch_that_leaves_entries_is_found:
        SCENE, KeepsRefused, "a batch is granted whole";
    a_guard_for_each_account_alone_is_found:
        SCENE, NoRoomInAll, "never over: all subjects";
    an_ask_that_returns_another_counter_is_found:
        SCENE, OtherCounter, "a claim that fits is granted";
    a_redis_that_counts_twice_what_waits_is_found:
        COUNTED, ForgetsIds, "the same key gets the same grant";
    a_redis_that_lowers_what_was_not_queued_is_found:
        COUNTED, LowersTwice, "counters follow the ledger";
    a_grant_that_leaves_the_queue_uncounted_is_found:
        COUNTED, RecordsApart, "with nothing under way a claim is decided exactly";
    a_denial_while_grants_wait_is_found:
        COUNTED, DeniesAtOnce, "a claim that fits is granted";
    a_drain_that_does_not_look_is_found:
        COUNTED, DrainsUnseen, "a claim has one entry";
    a_drain_that_settles_an_older_line_is_found:
        COUNTED, TakesLaterEntries, "never over";
    a_claim_that_goes_past_the_queue_is_found:
        COUNTED, AsksOnce, "Redis decides alone";
    a_claim_that_is_decided_unseen_is_found:
        IN_OUTAGE, CountsUnseen, "a claim has one entry";
}
