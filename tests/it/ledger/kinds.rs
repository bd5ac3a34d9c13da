//! What the kinds of entries are is the same for the program and for SQL.

use perdiem::domain::grant::GrantState;
use perdiem::domain::kind::{Dated, Follows, Kind};
use uuid::Uuid;

use crate::support::app::{Ground, Stack};
use crate::support::desk::{another_ledger, on_every_store};
use crate::support::direct::Direct;

on_every_store!(
    the_ledger_and_the_program_say_the_same_of_each_kind,
    what_a_kind_is_never_changes,
    the_tables_take_what_each_kind_may_be,
);

/// A row of `entry_kinds`, as the program has it.
fn row_of(kind: Kind) -> String {
    let facts = kind.facts();
    let closes_as = match facts.follows {
        Follows::Reverses => GrantState::Reversed.as_str(),
        Follows::Lapses => GrantState::Lapsed.as_str(),
        Follows::NoGrant | Follows::GoesOn | Follows::EndsHold | Follows::EndsTopUp => "",
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

/// The row of `entry_details` of an entry with this number, in an account of its own.
fn details(ground: &Ground, kind: Kind, number: u64, of_grant: Option<Uuid>) -> String {
    let id = ground.literal(Uuid::new_v4());
    let of_grant = of_grant.map_or("NULL".to_owned(), |grant| ground.literal(grant));
    let kind = kind.facts().number;
    format!(
        "INSERT INTO entry_details (account, number, id, kind, of_grant)
         VALUES ({id}, {number}, {id}, {kind}, {of_grant})"
    )
}

/// Whether an entry of this kind names a grant, whether a grant can have several of them, and which
/// others it can have beside one: the database refuses every exception, also one by hand.
async fn the_tables_take_what_each_kind_may_be(stack: Stack) {
    let ground = Ground::new(stack);
    let mut direct = Direct::to(&ground).await;
    let mut takes = async |sql: String| direct.try_execute(&sql, &sql).await.is_ok();
    for kind in Kind::ALL {
        let id = ground.literal(Uuid::new_v4());
        let number = kind.facts().number;
        let entry = format!(
            "INSERT INTO entries
                 (number, at, units, policy, policy_version, kind, flags, account, id, totals)
             SELECT 1, {}, 1, 1, 1, {number}, 0, {id}, {id}, ''",
            if stack == Stack::Sqlite { "0" } else { "now()" },
        );
        assert!(takes(entry).await, "an entry: {kind:?}");
        let follows = kind.facts().follows;
        let names_grant = follows != Follows::NoGrant;
        let grant = Uuid::new_v4();
        let of_limit = details(&ground, kind, 5, names_grant.then(Uuid::new_v4));
        let of_limit = of_limit.replace("of_grant)", "of_grant, per)");
        let of_limit = format!("{}, 'day')", of_limit.trim_end().trim_end_matches(')'));
        let names_limit = takes(of_limit).await;
        assert_eq!(names_limit, kind == Kind::Reset, "of a limit: {kind:?}");
        let alone = takes(details(&ground, kind, 2, None)).await;
        assert_eq!(alone, !names_grant, "without a grant: {kind:?}");
        let first = takes(details(&ground, kind, 2, Some(grant))).await;
        assert_eq!(first, names_grant, "of a grant: {kind:?}");
        if !names_grant {
            continue;
        }
        let second = takes(details(&ground, kind, 3, Some(grant))).await;
        assert_eq!(second, follows == Follows::GoesOn, "a second one: {kind:?}");
        let closing = takes(details(&ground, Kind::Reversal, 4, Some(grant))).await;
        let is_last = follows.closes() || follows == Follows::EndsTopUp;
        assert_eq!(closing, !is_last, "a reversal beside: {kind:?}");
    }
}
