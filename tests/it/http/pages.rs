//! Lists page by page. A cursor works for its own list only, and stays right while the list grows.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use serde_json::{Value, json};

use crate::http::v1::keys::make;
use crate::http::{all_items, invalid_places, items};
use crate::support::app::{App, Stack};
use crate::support::desk::on_every_store;

const WINDOWS: &str =
    "/v1/policies/benefit/windows?from=2026-11-01T00:00:00Z&to=2026-11-08T12:00:00Z";

/// Each list, and the member whose values differ in all items.
const LISTS: [(&str, &str); 14] = [
    ("/v1/policies", "name"),
    ("/v1/policies/benefit/versions", "version"),
    ("/v1/policies/other/versions", "version"),
    ("/v1/policies/benefit/overrides", "subject"),
    ("/v1/policies/benefit/subjects/member-1/entries", "id"),
    (WINDOWS, "start"),
    ("/v1/keys", "name"),
    ("/v1/changes", "revision"),
    ("/v1/changes?policy=benefit", "revision"),
    ("/v1/changes?kind=override", "revision"),
    ("/v1/reconciliations", "id"),
    ("/v1/grants", "id"),
    ("/v1/grants?policy=benefit", "id"),
    ("/v1/grants?state=granted&subject=member-1", "id"),
];

/// Names that another collation than byte order would sort differently.
const NAMES: [&str; 7] = ["b", "a-1", "a", "0", "ab", "c", "a0"];

async fn put(app: &App, policy: &str, max: usize) {
    let limits = json!([{ "max": 1000 + max, "per": "day" }]);
    let body = json!({ "time_zone": "GMT+8", "limits": limits, "reason": "a test" });
    let answer = app.put_policy(policy, body).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Adds an item to each list except the list of windows. The new policy has this name.
async fn grow(app: &App, clock: &ManualClock, number: usize, name: &str) {
    // Keys are ordered by milliseconds.
    clock.advance(TimeDelta::milliseconds(1));
    for policy in [name, "benefit", "other"] {
        put(app, policy, number).await;
    }
    app.override_day(&format!("vip-{number}"), 9).await;
    make(
        app,
        json!({ "name": format!("key {number}"), "role": "audit" }),
    )
    .await;
    for subject in ["member-1", "member-2"] {
        app.claim(subject, None).await.is(201);
    }
    app.ask("POST /v1/reconciliations", json!({})).await.is(201);
}

fn with(list: &str, query: &str) -> String {
    let sign = if list.contains('?') { '&' } else { '?' };
    format!("{list}{sign}{query}")
}

fn names(items: &[Value], member: &str) -> Vec<Value> {
    items.iter().map(|item| item[member].clone()).collect()
}

/// The cursor after the first page.
async fn cursor(app: &App, list: &str) -> String {
    let cursor = app.get(&with(list, "limit=2")).await.at("/next_cursor");
    cursor.as_str().expect("a cursor").to_owned()
}

on_every_store!(lists_come_page_by_page_and_in_order);

async fn lists_come_page_by_page_and_in_order(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, "gone", 0).await;
    for (number, name) in NAMES.iter().enumerate() {
        grow(&app, &clock, number, name).await;
    }
    app.override_day("gone", 1).await;
    app.delete_override("gone").await.is(200);
    app.ask("DELETE /v1/policies/gone?reason=x", Value::Null)
        .await
        .is(200);
    for (list, member) in LISTS {
        let whole = all_items(&app, &with(list, "limit=1000")).await;
        let own = names(&whole, member);
        let told: BTreeSet<String> = own.iter().map(Value::to_string).collect();
        assert!(
            own.len() >= NAMES.len() && told.len() == own.len(),
            "{list}"
        );
        assert!(!own.contains(&json!("gone")), "{list}");
        for limit in [1, 2, own.len() - 1, own.len(), own.len() + 1] {
            let items = all_items(&app, &with(list, &format!("limit={limit}"))).await;
            assert_eq!(items, whole, "{list}, {limit} items a page");
        }
        let texts = own.iter().map(Value::to_string);
        let numbers = own.iter().map(|name| name.as_u64());
        let is_in_order = match (list, member) {
            ("/v1/policies", _) | (WINDOWS, _) => texts.is_sorted(),
            (_, "subject") => true,
            (_, "version" | "revision") => numbers.is_sorted_by(|newer, older| newer > older),
            _ => texts.is_sorted_by(|newer, older| newer > older),
        };
        assert!(is_in_order, "{list}: {own:?}");
    }
}

on_every_store!(a_cursor_stays_right_while_its_list_grows);

async fn a_cursor_stays_right_while_its_list_grows(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    for (number, name) in NAMES.iter().enumerate() {
        grow(&app, &clock, number, name).await;
    }
    let mut more = NAMES.len()..;
    for (list, member) in LISTS {
        let whole = names(&all_items(&app, list).await, member);
        let mut seen = Vec::new();
        let mut next = String::new();
        loop {
            let query = format!("limit={}{next}", whole.len() / 3 + 1);
            let page = app.get(&with(list, &query)).await;
            seen.extend(names(&items(&page), member));
            match page.at("/next_cursor") {
                Value::String(cursor) => next = format!("&cursor={cursor}"),
                _ => break,
            }
            let number = more.next().expect("a number");
            let name = format!("{}{number}", ["0", "a-", "y"][number % 3]);
            grow(&app, &clock, number, &name).await;
        }
        let told: BTreeSet<String> = seen.iter().map(Value::to_string).collect();
        assert_eq!(told.len(), seen.len(), "{list}");
        // A list by name or subject can get new items on a later page. The other lists begin with
        // the newest item.
        if !["name", "subject"].contains(&member) || list == "/v1/keys" {
            assert_eq!(seen, whole, "{list}");
        }
        seen.retain(|name| whole.contains(name));
        assert_eq!(seen, whole, "{list}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_is_good_for_its_own_list_only() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    let (other, _clock) = App::with_clock(Stack::Sqlite).await;
    for (number, name) in NAMES.iter().enumerate() {
        grow(&app, &clock, number, name).await;
    }
    put(&other, "benefit", 1).await;
    let is_refused = async |app: &App, list: &str, cursor: &str| {
        let answer = app
            .get(&with(list, &format!("limit=1&cursor={cursor}")))
            .await;
        assert_eq!(invalid_places(&answer), ["cursor"], "{list}: {cursor}");
    };
    for (list, _) in LISTS {
        let cursor = cursor(&app, list).await;
        // A cursor also works with another page size.
        app.get(&with(list, &format!("limit=3&cursor={cursor}")))
            .await
            .is(200);
        for (another, _) in LISTS.iter().filter(|(another, _)| *another != list) {
            is_refused(&app, another, &cursor).await;
        }
        for tampered in [&format!("{cursor}A"), &format!("A{cursor}"), &cursor[1..]] {
            is_refused(&app, list, tampered).await;
        }
    }
    let list = "/v1/grants?policy=benefit";
    let cursor = cursor(&app, list).await;
    for index in 0..cursor.len() {
        let mut bytes = cursor.clone().into_bytes();
        bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
        is_refused(&app, list, &String::from_utf8(bytes).expect("ASCII")).await;
    }
    let short = &cursor[..cursor.len() - 1];
    for tampered in [short, &format!("{cursor}="), &"A".repeat(8_000)] {
        is_refused(&app, list, tampered).await;
    }
    // The cursor of another ledger is refused, too.
    is_refused(&other, list, &cursor).await;
}
