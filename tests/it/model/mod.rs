//! A model of the counted protocol: instances, the ledger, Redis' queue, claims and the messages
//! between them. The simulator (`tests/it/sim/`) does not drive `src/engine/counted/` yet.
//!
//! Every order in which the steps of a few claims can happen is tried, with crashes, lost and
//! repeated messages. Each step is checked against the promises, and the shortest way to a broken
//! one is told step by step. The steps are written down here a second time, so a change there must
//! be made here too.
//!
//! `PERDIEM_MODEL_DEPTH=2 cargo test --test it model:: -- --nocapture` searches deeper, for minutes.

mod counting;
mod search;

use counting::Counting;
use search::{Model, Searched, search};

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
