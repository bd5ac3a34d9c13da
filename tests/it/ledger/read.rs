//! Reads: looks, sums and keys.

use chrono::TimeDelta;
use perdiem::domain::identity::EntryId;
use perdiem::domain::limit::per::Per;
use perdiem::domain::past::{LimitWindow, WantedPast};
use perdiem::domain::window::Window;
use perdiem::ledger::Look;
use uuid::Uuid;

use crate::support::app::{Stack, instant};
use crate::support::desk::{Desk, on_every_store};

on_every_store!(
    a_look_sees_lines_keys_and_ids,
    sums_have_their_start_and_not_their_end,
    keys_of_an_account_are_newest_first,
);

async fn a_look_sees_lines_keys_and_ids(stack: Stack) {
    let desk = Desk::open(stack).await;
    let grants = [(2, Some("order-1")), (3, None), (1, Some("order-2"))];
    let draft = desk.draft_of("a", None, &grants);
    let last = desk.append(draft.clone()).await;
    desk.append(desk.draft_of("b", None, &[(1, Some("order-3"))]))
        .await;
    let seen = desk.look(&["a", "c"], &["order-2", "order-4"]).await;
    assert_eq!(seen.lines.len(), 1);
    assert_eq!(seen.lines.get(&desk.account("a")), Some(&last));
    assert_eq!(seen.entries, [draft.entries[2].clone()]);
    // Every field of an entry is read back unchanged.
    let look = Look {
        accounts: Vec::new(),
        keys: vec![desk.key("order-1"), desk.key("order-2")],
        entries: vec![draft.entries[1].id, EntryId(Uuid::from_u128(7))],
        ..Look::default()
    };
    let mut entries = desk
        .ledger
        .claims()
        .look(&look)
        .await
        .expect("a look")
        .entries;
    entries.sort_by_key(|entry| entry.line.number);
    assert_eq!(entries, draft.entries);
    let nothing = desk
        .ledger
        .claims()
        .look(&Look::default())
        .await
        .expect("a look");
    assert!(nothing.lines.is_empty() && nothing.entries.is_empty());
}

async fn sums_have_their_start_and_not_their_end(stack: Stack) {
    let mut desk = Desk::open(stack).await;
    desk.now = instant("2026-11-21T03:00:00Z");
    let start = desk.now;
    let mut last = None;
    for (hours, units) in [(0, 1), (1, 10), (2, 100), (23, 1000)] {
        desk.now = start + TimeDelta::hours(hours);
        let draft = desk.draft_of("a", last.as_ref(), &[(units, None)]);
        last = Some(desk.append(draft).await);
    }
    // Another account's units do not count.
    desk.append(desk.draft("b", None, 3)).await;
    let last = last.expect("a line");
    let mut second = last.clone();
    second.number = 2;
    let after = |hours, micros| start + TimeDelta::hours(hours) + TimeDelta::microseconds(micros);
    // A line, the hours and microseconds of a window, and the units in the window up to that line.
    for (line, from, to, units) in [
        (Some(&last), (0, 0), (3, 0), 111),
        (Some(&last), (0, 0), (1, 0), 1),
        (Some(&last), (0, 0), (1, 1), 11),
        (Some(&last), (1, 0), (2, 0), 10),
        (Some(&last), (0, 1), (2, 1), 110),
        (Some(&last), (-5, 0), (0, 0), 0),
        (Some(&last), (-5, 0), (100, 0), 1111),
        (Some(&second), (0, 0), (216, 0), 11),
        (None, (0, 0), (216, 0), 0),
    ] {
        let start = after(from.0, from.1);
        let end = after(to.0, to.1);
        let window = LimitWindow {
            per: Per::Ever,
            window: Window { start, end },
        };
        let wanted = WantedPast {
            windows: vec![window],
            ..WantedPast::default()
        };
        let past = desk
            .ledger
            .claims()
            .past(desk.account("a"), line, &wanted)
            .await;
        let told = past.expect("the past").sum(window);
        assert_eq!(told, Some(units.into()), "{from:?} {to:?}");
    }
}

async fn keys_of_an_account_are_newest_first(stack: Stack) {
    let mut desk = Desk::open(stack).await;
    let first_at = desk.now;
    let grants = [(1, Some("order-1")), (1, None), (1, Some("order-2"))];
    let last = desk.append(desk.draft_of("a", None, &grants)).await;
    desk.advance(TimeDelta::seconds(1));
    let grants = [(1, Some("order-3"))];
    desk.append(desk.draft_of("a", Some(&last), &grants)).await;
    desk.append(desk.draft_of("b", None, &[(1, Some("order-4"))]))
        .await;
    let account = desk.account("a");
    let keys = async |since, limit| {
        let keys = desk.ledger.claims().keys_of(account, since, limit).await;
        keys.expect("keys")
    };
    let all = ["order-3", "order-2", "order-1"].map(|key| desk.key(key));
    assert_eq!(keys(first_at, 10).await, all);
    assert_eq!(keys(first_at, 2).await, all[..2]);
    let later = first_at + TimeDelta::microseconds(1);
    assert_eq!(keys(later, 10).await, all[..1]);
}
