//! A model of the protocol: instances, the ledger, Redis, clients and the messages between them.
//!
//! Every order in which the steps of a few claims can happen is tried, with crashes, lost and
//! repeated messages, a Redis that forgets, is rolled back or split, midnight, and changes of
//! the policy; in a larger world, random orders are. Each step is checked against the promises,
//! and the shortest way to a broken one is told step by step. What decides is perdiem's own
//! rule (`perdiem::domain::account`); the steps around it are written down here a second time,
//! after `src/engine/` and `src/counter/lua/`, so a change there must be made here too.
//!
//! The search is our own, a page of code, and the random choices are proptest's. `stateright`
//! (0.31) does what [`search::search`] does. It would bring nine crates, a web server among
//! them, and wants states that threads can share; and its generic code is compiled here, as slow
//! in a debug build as ours. `proptest-state-machine` drives a real system by a model, and there
//! is none here. Random orders alone would find long ways, and never that there is none.
//!
//! `PERDIEM_MODEL_DEPTH=2 cargo test --test it model:: -- --nocapture` searches deeper, for
//! minutes; 3 for much longer, and no longer all that there is.

mod appending;
mod broken;
mod claiming;
mod counting;
mod drafting;
mod perdiem;
mod promises;
mod rule;
mod scenes;
mod search;
mod settling;
mod telling;
mod world;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestError, TestRng, TestRunner};

use self::perdiem::Perdiem;
use counting::Counting;
use search::{Model, Searched, search, walk};
use world::{Guard, KeyedDenial, Protocol, Scene};

/// The protocol.
const PROTOCOL: Protocol = Protocol {
    guard: Guard::Line,
    keys_are_unique: true,
    keys_are_looked_up: true,
    answers_after_commit: true,
    looks_up_unknown: true,
    remembers_sent: true,
    settles_in_order: true,
    compares_numbers: true,
    lapses_have_own_ids: true,
    lapses_first: true,
    heeds_lapses: true,
    followers_are_looked_up: true,
    followers_are_unique: true,
    answers_after_settlement: true,
    keyed_denial: KeyedDenial::Probed,
    renews_policies: true,
    refuses_when_fresh: false,
};

/// How deep to search.
fn depth() -> u8 {
    let depth = std::env::var("PERDIEM_MODEL_DEPTH").ok();
    depth.map_or(1, |depth| depth.parse().expect("a small number"))
}

/// So many states a search may take; a test's scene has fewer.
fn states_most() -> usize {
    400_000 * 10usize.pow(u32::from(depth() - 1))
}

fn search_whole<M: Model>(model: &M) -> Searched {
    let searched = search(model, states_most());
    println!(
        "{} states, {} of them at rest",
        searched.states, searched.at_rest
    );
    searched
}

/// No promise can be broken.
fn holds<M: Model>(model: &M) {
    let searched = search_whole(model);
    if let Some(broken) = searched.broken {
        panic!("{broken}");
    }
    assert!(searched.is_whole || depth() > 1, "the scene is too large");
    assert!(searched.at_rest > 0);
}

/// A promise can be broken: the first of them is this one.
fn breaks<M: Model>(model: &M, promise: &str) {
    let broken = search_whole(model).broken.expect("a broken promise");
    println!("{broken}");
    assert!(broken.promise.starts_with(promise), "{broken}");
}

fn holds_in(scene: Scene, protocol: Protocol) {
    holds(&Perdiem::new(&scenes::deeper(scene, depth() - 1), protocol));
}

fn breaks_in(scene: Scene, protocol: Protocol, promise: &str) {
    breaks(&Perdiem::new(&scene, protocol), promise);
}

/// Goes random ways, and tells the shortest that could be found to a broken promise.
fn random_ways(scene: &Scene, protocol: Protocol, cases: u32) -> Result<(), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let model = Perdiem::new(scene, protocol);
    let ways = vec(any::<u16>(), 20..160);
    let found = runner.run(&ways, |choices| {
        let end = walk(&model, &choices);
        end.map_err(|broken| proptest::test_runner::TestCaseError::fail(broken.to_string()))
    });
    found.map_err(|error| match error {
        TestError::Fail(broken, _) => broken.to_string(),
        TestError::Abort(reason) => reason.to_string(),
    })
}

macro_rules! kept {
    ($($scene:ident: $protocol:expr;)*) => {
        /// The protocol keeps its promises in each scene, whatever happens.
        mod kept {
            $(
                #[test]
                fn $scene() {
                    super::holds_in(super::scenes::$scene(), $protocol);
                }
            )*
        }
    };
}

kept! {
    ledger_alone: super::PROTOCOL;
    ledger_with_room: super::PROTOCOL;
    ledger_in_time: super::PROTOCOL;
    one_key_for_two_accounts: super::PROTOCOL;
    counters: super::PROTOCOL;
    settlements: super::PROTOCOL;
    crashes_with_counters: super::PROTOCOL;
    planted_counters: super::PROTOCOL;
    midnight: super::PROTOCOL;
    midnight_on_two_clocks: super::PROTOCOL;
    raise: super::PROTOCOL;
    lower: super::PROTOCOL;
    raise_and_wait: super::PROTOCOL;
    another_zone: super::PROTOCOL;
    reversals: super::PROTOCOL;
    reversals_alone: super::PROTOCOL;
    reversals_of_two: super::PROTOCOL;
    confirmations: super::PROTOCOL;
    confirmations_on_two_clocks: super::PROTOCOL;
    lapses: super::PROTOCOL;
    lapses_and_timeouts: super::PROTOCOL;
    hidden_holds: super::PROTOCOL;
}

#[test]
fn everything_at_random() {
    let cases = 400 * 30u32.pow(u32::from(depth() - 1));
    for scene in [scenes::everything(), scenes::everything_but_give_backs()] {
        if let Err(broken) = random_ways(&scene, PROTOCOL, cases) {
            panic!("{broken}");
        }
    }
}

#[test]
fn random_ways_find_what_is_wrong() {
    let unguarded = Protocol {
        guard: Guard::Nothing,
        ..PROTOCOL
    };
    let without_keys = Protocol {
        keys_are_unique: false,
        keys_are_looked_up: false,
        ..PROTOCOL
    };
    for wrong in [unguarded, without_keys] {
        let scene = scenes::everything_but_give_backs();
        let broken = random_ways(&scene, wrong, 1000).expect_err("a broken promise");
        println!("{broken}");
    }
}

#[test]
fn counted_grants_end_in_the_ledger() {
    for counting in counting::scenes::all() {
        holds(&counting.deeper(depth() - 1));
    }
}

macro_rules! counting_breaks {
    ($($name:ident: $scene:ident, $part:ident, $promise:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut wrong = counting::scenes::$scene();
            wrong.protocol.$part = false;
            breaks::<Counting>(&wrong, $promise);
        }
    )*};
}

counting_breaks! {
    a_drain_that_does_not_look_records_twice:
        crashes, looks_before_append, "a claim has one entry";
    a_drain_that_lowers_what_was_not_queued_loses_units:
        crashes, lowers_what_was_queued, "counters follow the ledger";
    a_drain_that_settles_an_older_line_loses_units:
        crashes, takes_what_its_line_counts, "counters follow the ledger";
    a_grant_that_leaves_the_queue_before_the_line_is_settled_is_not_counted:
        crashes, records_in_one_step, "counters follow the ledger";
    a_claim_that_goes_past_the_queue_grants_a_key_twice:
        retries, asks_again, "the same key gets the same grant";
    a_denial_while_grants_wait_counts_them_twice:
        retries, waits_before_denial, "a claim that fits is granted";
    a_script_that_forgets_ids_denies_what_it_granted:
        repeats, remembers_ids, "a denied claim takes nothing";
    a_claim_without_an_answer_that_goes_past_the_queue_passes_a_limit:
        silences, leaves_unknown, "never over";
}
