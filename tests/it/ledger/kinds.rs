//! What the kinds of entries are is the same for the program and for SQL.

use perdiem::domain::grant::GrantState;
use perdiem::domain::kind::{Dated, Follows, Kind};

use crate::support::app::{Ground, Stack};
use crate::support::desk::{another_ledger, on_every_store};
use crate::support::direct::Direct;

on_every_store!(
    the_ledger_and_the_program_say_the_same_of_each_kind,
    what_a_kind_is_never_changes,
);

/// A row of `entry_kinds`, as the program has it.
fn row_of(kind: Kind) -> String {
    let facts = kind.facts();
    let closes_as = match facts.follows {
        Follows::Reverses => GrantState::Reversed.as_str(),
        Follows::Lapses => GrantState::Lapsed.as_str(),
        Follows::NoGrant | Follows::GoesOn | Follows::EndsHold => "",
    };
    let is = |fact: bool| u8::from(fact);
    format!(
        "{} {} {} {} {} {} {closes_as}",
        facts.number,
        facts.word,
        facts.effect.sign(),
        is(facts.follows != Follows::NoGrant),
        is(facts.follows.ends_hold()),
        is(facts.dated != Dated::AtEndOfHold),
    )
}

async fn the_ledger_and_the_program_say_the_same_of_each_kind(stack: Stack) {
    let ground = Ground::new(stack);
    another_ledger(&ground).await;
    let rows = "SELECT kind || ' ' || word || ' ' || sign || ' ' || CAST(names_grant AS integer)
        || ' ' || CAST(ends_hold AS integer) || ' ' || CAST(of_clock AS integer)
        || ' ' || COALESCE(closes_as, '') FROM entry_kinds ORDER BY kind";
    let found = Direct::to(&ground).await.texts(rows).await;
    assert_eq!(found, Kind::ALL.map(row_of));
}

async fn what_a_kind_is_never_changes(stack: Stack) {
    let ground = Ground::new(stack);
    another_ledger(&ground).await;
    let mut direct = Direct::to(&ground).await;
    for change in [
        "UPDATE entry_kinds SET sign = 0",
        "DELETE FROM entry_kinds WHERE kind = 4",
    ] {
        let refused = direct.try_execute(change, change).await;
        let refused = refused.expect_err(change).to_string();
        assert!(refused.contains("append-only"), "{refused}");
    }
}
