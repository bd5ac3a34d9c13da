//! With one part of the protocol taken out, the model finds the promise that breaks.

use super::world::{Guard, KeyedDenial, Protocol};
use super::{PROTOCOL, breaks_in, holds_in, scenes};

#[test]
fn without_the_guard_a_limit_is_passed() {
    let wrong = Protocol {
        guard: Guard::Nothing,
        ..PROTOCOL
    };
    breaks_in(scenes::ledger_alone(), wrong, "never over");
}

#[test]
fn a_guard_of_numbers_alone_believes_a_planted_counter() {
    let wrong = Protocol {
        guard: Guard::Number,
        ..PROTOCOL
    };
    breaks_in(scenes::planted_counters(), wrong, "never over");
}

#[test]
fn without_a_look_at_keys_a_retry_is_granted_again() {
    let wrong = Protocol {
        keys_are_looked_up: false,
        keys_are_unique: false,
        ..PROTOCOL
    };
    breaks_in(scenes::ledger_with_room(), wrong, "a key has one entry");
}

#[test]
fn without_unique_keys_two_accounts_take_one() {
    let wrong = Protocol {
        keys_are_unique: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::one_key_for_two_accounts(),
        wrong,
        "a key has one entry",
    );
}

#[test]
fn an_answer_before_the_commit_may_be_untrue() {
    let wrong = Protocol {
        answers_after_commit: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::ledger_alone(),
        wrong,
        "an acknowledged grant is in the ledger",
    );
}

#[test]
fn an_unknown_outcome_decided_anew_denies_what_was_granted() {
    let wrong = Protocol {
        looks_up_unknown: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::ledger_alone(),
        wrong,
        "a denied claim takes nothing",
    );
}

#[test]
fn an_unknown_outcome_decided_anew_grants_twice() {
    let wrong = Protocol {
        looks_up_unknown: false,
        ..PROTOCOL
    };
    breaks_in(scenes::ledger_with_room(), wrong, "a claim has one entry");
}

#[test]
fn a_draft_that_is_decided_again_and_forgotten_denies_what_it_grants() {
    let wrong = Protocol {
        remembers_sent: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::ledger_in_time(),
        wrong,
        "a denied claim takes nothing",
    );
}

#[test]
fn settlements_in_any_order_cost_speed_alone() {
    let slower = Protocol {
        settles_in_order: false,
        ..PROTOCOL
    };
    holds_in(scenes::settlements(), slower);
}

#[test]
fn a_counter_without_all_keys_denies_a_retry() {
    let wrong = Protocol {
        keyed_denial: KeyedDenial::WithoutAllKeys,
        ..PROTOCOL
    };
    breaks_in(scenes::settlements(), wrong, "a retry gets its grant");
}

#[test]
fn a_counter_with_all_keys_denies_a_retry_under_a_version_that_its_line_is_not_of() {
    let wrong = Protocol {
        keyed_denial: KeyedDenial::AnyVersion,
        ..PROTOCOL
    };
    breaks_in(scenes::lower(), wrong, "a retry gets its grant");
}

/// A counter holds all keys as of its line. That is not enough: a grant after its line had room
/// there under a version that the instance does not know yet.
#[test]
fn a_counter_with_all_keys_denies_a_retry_after_a_raise() {
    let wrong = Protocol {
        keyed_denial: KeyedDenial::WithAllKeys,
        ..PROTOCOL
    };
    breaks_in(scenes::raise(), wrong, "a retry gets its grant");
}

/// Or it had room in a window that has not begun by the instance's clock.
#[test]
fn a_counter_with_all_keys_denies_a_retry_at_midnight() {
    let wrong = Protocol {
        keyed_denial: KeyedDenial::WithAllKeys,
        ..PROTOCOL
    };
    breaks_in(
        scenes::midnight_on_two_clocks(),
        wrong,
        "a retry gets its grant",
    );
}

/// Or a reversal made the room.
#[test]
fn a_counter_with_all_keys_denies_a_retry_after_a_reversal() {
    let wrong = Protocol {
        keyed_denial: KeyedDenial::WithAllKeys,
        ..PROTOCOL
    };
    breaks_in(scenes::reversals(), wrong, "a retry gets its grant");
}

/// A reversal and a grant bring back the same totals at the same instant.
#[test]
fn a_settlement_that_compares_texts_misses_a_key() {
    let wrong = Protocol {
        compares_numbers: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::reversals_of_two(),
        wrong,
        "a counter that says so holds all keys",
    );
}

/// Two writers may append the same lapse, each before a grant of its own. Where it has the same
/// id, one believes that its draft stands.
#[test]
fn a_lapse_with_an_id_that_others_give_it_too_answers_what_does_not_stand() {
    let wrong = Protocol {
        lapses_have_own_ids: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::lapses_and_timeouts(),
        wrong,
        "an acknowledged grant is in the ledger",
    );
}

#[test]
fn a_counter_with_a_lapse_that_is_due_denies_for_what_is_free() {
    let wrong = Protocol {
        heeds_lapses: false,
        ..PROTOCOL
    };
    breaks_in(scenes::lapses(), wrong, "what lapsed takes nothing");
}

#[test]
fn without_lapses_first_a_hold_is_confirmed_too_late() {
    let wrong = Protocol {
        lapses_first: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::confirmations(),
        wrong,
        "a hold is confirmed in time or never",
    );
}

#[test]
fn without_lapses_first_what_lapsed_goes_on_to_be_used() {
    let wrong = Protocol {
        lapses_first: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::lapses_and_timeouts(),
        wrong,
        "holds lapse before the next decision",
    );
}

#[test]
fn a_guard_that_does_not_compare_lapses_believes_a_counter_without_holds() {
    let wrong = Protocol {
        guard: Guard::ButLapses,
        ..PROTOCOL
    };
    breaks_in(
        scenes::hidden_holds(),
        wrong,
        "a line tells when its first hold lapses",
    );
}

/// Either of them is enough: nobody can come between a look and its draft, which the guard sees.
/// Without the look the second reversal is never answered.
#[test]
fn a_look_or_a_unique_index_keeps_a_grant_from_being_given_back_twice() {
    let unlooked = Protocol {
        followers_are_looked_up: false,
        ..PROTOCOL
    };
    let wrong = Protocol {
        followers_are_unique: false,
        ..unlooked
    };
    let without_index = Protocol {
        followers_are_unique: false,
        ..PROTOCOL
    };
    holds_in(scenes::reversals_alone(), without_index);
    holds_in(scenes::reversals_alone(), unlooked);
    breaks_in(
        scenes::reversals_alone(),
        wrong,
        "a grant is given back once",
    );
}

#[test]
fn without_a_look_a_hold_is_confirmed_that_was_reversed() {
    let wrong = Protocol {
        followers_are_looked_up: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::confirmations(),
        wrong,
        "a hold is confirmed in time or never",
    );
}

#[test]
fn a_reversal_that_is_answered_before_its_counter_was_told_is_not_heard_of() {
    let wrong = Protocol {
        answers_after_settlement: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::reversals(),
        wrong,
        "what was given back can be claimed at once",
    );
}

#[test]
fn a_policy_as_it_was_when_the_claim_came_may_be_too_old() {
    let wrong = Protocol {
        renews_policies: false,
        ..PROTOCOL
    };
    breaks_in(
        scenes::raise_and_wait(),
        wrong,
        "a change holds within a second",
    );
}

/// This is so by choice: what can never fit is told without the ledger, also by an instance that
/// is cut off and does not know of a raise.
#[test]
fn what_can_never_fit_is_refused_under_an_old_policy() {
    let stricter = Protocol {
        refuses_when_fresh: true,
        ..PROTOCOL
    };
    holds_in(scenes::raise_to_fit(), stricter);
    breaks_in(
        scenes::raise_to_fit(),
        PROTOCOL,
        "a change holds within a second",
    );
}
