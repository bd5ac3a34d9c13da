//! Reading: looks, sums, keys, lists and snapshots.

use chrono::TimeDelta;
use perdiem::domain::identity::EntryId;
use perdiem::domain::window::Window;
use perdiem::ledger::{GrantFilter, GrantScope, Look};
use uuid::Uuid;

use crate::support::app::Stack;
use crate::support::desk::{Desk, on_every_store, put, rule};

on_every_store!(
    a_look_sees_lines_keys_and_ids,
    sums_have_their_start_and_not_their_end,
    keys_of_an_account_are_newest_first,
    grants_are_listed_by_scope_and_span,
    a_snapshot_stands_still,
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

async fn grants_are_listed_by_scope_and_span(stack: Stack) {
    let mut desk = Desk::open(stack).await;
    let start = desk.now;
    let mut grants = Vec::new();
    let mut lasts = std::collections::BTreeMap::new();
    for (number, subject) in ["a", "b", "a", "c", "b", "a"].into_iter().enumerate() {
        let key = format!("order-{number}");
        let after = lasts.get(subject);
        let draft = desk.draft_of(subject, after, &[(1, Some(&key))]);
        grants.push((subject, draft.entries[0].id));
        lasts.insert(subject, desk.append(draft).await);
        desk.advance(TimeDelta::milliseconds(1));
    }
    let benefit = desk.policy.clone();
    desk.policy = put(&desk.ledger, "sms", rule("UTC", &[(9, "day")])).await;
    let draft = desk.draft("a", None, 1);
    grants.push(("sms", draft.entries[0].id));
    desk.append(draft).await;
    let sms = std::mem::replace(&mut desk.policy, benefit);

    let list = async |scope, from: Option<usize>, to: Option<usize>, limit| {
        let mut filter = GrantFilter::of(scope, desk.now);
        if let Some(number) = from {
            filter.from = grants[number].1;
        }
        if let Some(number) = to {
            filter.to = grants[number].1;
        }
        let found = desk.ledger.grants(&filter, limit).await.expect("grants");
        let number = |id| grants.iter().position(|(_, known)| *known == id);
        let numbers = found.iter().map(|grant| {
            let number = number(grant.entry.id).expect("a known grant");
            let (policy, subject) = match grants[number].0 {
                "sms" => ("sms", "a"),
                subject => ("benefit", subject),
            };
            assert_eq!(grant.policy.as_str(), policy);
            assert_eq!(grant.subject.as_deref(), Some(subject));
            number
        });
        numbers.collect::<Vec<usize>>()
    };
    let all = || GrantScope::All;
    assert_eq!(list(all(), None, None, 100).await, [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(list(all(), None, None, 2).await, [6, 5]);
    // The lower end counts, the upper one does not.
    assert_eq!(list(all(), Some(2), Some(5), 100).await, [4, 3, 2]);
    assert_eq!(list(all(), Some(2), Some(2), 100).await, [0; 0]);
    let policy = || GrantScope::Policy(desk.policy.id);
    assert_eq!(list(policy(), None, None, 100).await, [5, 4, 3, 2, 1, 0]);
    assert_eq!(list(policy(), Some(1), None, 3).await, [5, 4, 3]);
    let of_sms = GrantScope::Policy(sms.id);
    assert_eq!(list(of_sms, None, None, 100).await, [6]);
    let accounts = |subjects: &[&str]| {
        GrantScope::Accounts(subjects.iter().map(|text| desk.account(text)).collect())
    };
    assert_eq!(list(accounts(&["a"]), None, None, 100).await, [5, 2, 0]);
    let both = accounts(&["b", "c", "nobody"]);
    assert_eq!(list(both, Some(1), Some(4), 100).await, [3, 1]);
    assert_eq!(list(accounts(&[]), None, None, 100).await, [0; 0]);
    let keys = |keys: &[&str]| GrantScope::Keys(keys.iter().map(|text| desk.key(text)).collect());
    assert_eq!(list(keys(&["order-3"]), None, None, 100).await, [3]);
    let several = keys(&["order-1", "order-4", "order-9"]);
    assert_eq!(list(several, None, None, 100).await, [4, 1]);
    // A span of time is a span of ids.
    let filter = GrantFilter {
        from: EntryId::first_at(start + TimeDelta::milliseconds(1)),
        to: EntryId::first_at(start + TimeDelta::milliseconds(3)),
        ..GrantFilter::of(all(), desk.now)
    };
    let found = desk.ledger.grants(&filter, 100).await.expect("grants");
    let ids: Vec<EntryId> = found.iter().map(|grant| grant.entry.id).collect();
    assert_eq!(ids, [grants[2].1, grants[1].1]);

    let one = desk.ledger.grant(grants[3].1).await.expect("an answer");
    assert_eq!(one.expect("a grant").subject.as_deref(), Some("c"));
    let none = desk.ledger.grant(EntryId(Uuid::from_u128(7))).await;
    assert_eq!(none.expect("an answer"), None);
}

/// What is appended after it began is not in it, however long it is read.
async fn a_snapshot_stands_still(stack: Stack) {
    let mut desk = Desk::open(stack).await;
    let mut last = desk.append(desk.draft("a", None, 5)).await;
    let mut snapshot = desk.ledger.snapshot().await.expect("a snapshot");
    for round in 0..5 {
        // Also entries whose ids lie among the older ones.
        desk.append(desk.draft(&format!("b-{round}"), None, 2))
            .await;
        desk.advance(TimeDelta::seconds(1));
        last = desk.append(desk.draft("a", Some(&last), 1)).await;
        let filter = GrantFilter::of(GrantScope::All, desk.now);
        let frozen = snapshot.grants(&filter, 100).await.expect("grants");
        assert_eq!(frozen.len(), 5);
        let live = desk.ledger.grants(&filter, 100).await.expect("grants");
        assert_eq!(live.len(), 5 + 3 * (round + 1));
    }
    drop(snapshot);
}
