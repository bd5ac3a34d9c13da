//! Reading: looks, sums and keys.

use chrono::TimeDelta;
use perdiem::domain::identity::EntryId;
use perdiem::domain::window::Window;
use perdiem::ledger::Look;
use uuid::Uuid;

use crate::support::app::Stack;
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
    // Everything of an entry comes back as it was.
    let look = Look {
        accounts: Vec::new(),
        keys: vec![desk.key("order-1"), desk.key("order-2")],
        entries: vec![draft.entries[1].id, EntryId(Uuid::from_u128(7))],
        ..Look::default()
    };
    let mut entries = desk.ledger.look(&look).await.expect("a look").entries;
    entries.sort_by_key(|entry| entry.line.number);
    assert_eq!(entries, draft.entries);
    let nothing = desk.ledger.look(&Look::default()).await.expect("a look");
    assert!(nothing.lines.is_empty() && nothing.entries.is_empty());
}

async fn sums_have_their_start_and_not_their_end(stack: Stack) {
    let mut desk = Desk::open(stack).await;
    desk.now = crate::support::app::instant("2026-11-21T03:00:00Z");
    let start = desk.now;
    let mut last = None;
    for units in [1, 10, 100, 1000] {
        if units == 1000 {
            desk.advance(TimeDelta::hours(20));
        }
        let draft = desk.draft_of("a", last.as_ref(), &[(units, None)]);
        last = Some(desk.append(draft).await);
        desk.advance(TimeDelta::hours(1));
    }
    // Another account's count for nothing.
    desk.append(desk.draft("b", None, 3)).await;
    let sum = async |hours: i64, micros: i64, until: i64, until_micros: i64| {
        let edge =
            |hours, micros| start + TimeDelta::hours(hours) + TimeDelta::microseconds(micros);
        let window = Window {
            start: edge(hours, micros),
            end: edge(until, until_micros),
        };
        let windows = [window];
        let sums = desk
            .ledger
            .sums(desk.account("a"), last.as_ref(), &windows)
            .await
            .expect("sums");
        format!("{sums:?}")
    };
    let is = |text: String, units: u64| {
        assert!(text.ends_with(&format!(", {units})])")), "{units}: {text}");
    };
    is(sum(0, 0, 3, 0).await, 111);
    is(sum(0, 0, 1, 0).await, 1);
    is(sum(0, 0, 1, 1).await, 11);
    is(sum(1, 0, 2, 0).await, 10);
    is(sum(0, 1, 2, 1).await, 110);
    is(sum(-5, 0, 0, 0).await, 0);
    is(sum(-5, 0, 100, 0).await, 1111);
    // Up to the line that is asked for, and no further.
    let account = desk.account("a");
    let mut line = last.clone().expect("a line");
    line.number = 2;
    let windows = [Window {
        start,
        end: start + TimeDelta::days(9),
    }];
    let sums = desk.ledger.sums(account, Some(&line), &windows).await;
    is(format!("{:?}", sums.expect("sums")), 11);
    let sums = desk.ledger.sums(account, None, &windows).await;
    is(format!("{:?}", sums.expect("sums")), 0);
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
        let keys = desk.ledger.keys_of(account, since, limit).await;
        keys.expect("keys")
    };
    let all = ["order-3", "order-2", "order-1"].map(|key| desk.key(key));
    assert_eq!(keys(first_at, 10).await, all);
    assert_eq!(keys(first_at, 2).await, all[..2]);
    let later = first_at + TimeDelta::microseconds(1);
    assert_eq!(keys(later, 10).await, all[..1]);
}
