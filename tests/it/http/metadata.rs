//! The filter by metadata in lists and exports.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{all_items, invalid_parts};
use crate::support::app::{App, Stack, eventually};
use crate::support::desk::on_every_store;

on_every_store!(grants_are_found_by_what_they_brought);

async fn grants_are_found_by_what_they_brought(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(99, "UTC").await;
    let mut grants = Vec::new();
    for (subject, metadata) in [
        ("a", json!({ "order": "A-17", "n": 7, "paid": true })),
        ("b", json!({ "order": "A-17", "n": "7", "paid": "true" })),
        (
            "a",
            json!({ "order": "A-18", "n": 1.5, "to": { "order": "A-17" }, "of": ["A-17"] }),
        ),
        (
            "b",
            json!({ "Bestellnummer für \u{1F600}": "a=b&c", "a.b": "dot", "n": null }),
        ),
        ("c", Value::Null),
    ] {
        let body = json!({ "subject": subject, "metadata": metadata });
        grants.push(app.claim_body(body, None).await.grant_id());
        clock.advance(TimeDelta::seconds(1));
    }
    app.reverse(&grants[0], "a test").await.is(201);
    eventually("the entries have positions", || async {
        all_items(&app, "/v1/entries").await.len() == 6
    })
    .await;
    let span = "policy=benefit&on=2026-11-21";
    for (filter, found) in [
        ("metadata.order=A-17", &[0, 1][..]),
        ("metadata.order=A-17&subject=b", &[1]),
        ("metadata.order=A-17&subject=c", &[]),
        ("metadata.order=a-17", &[]),
        ("metadata.order=", &[]),
        ("metadata.n=7", &[0, 1]),
        ("metadata.n=1.5", &[2]),
        ("metadata.n=null", &[]),
        ("metadata.paid=true", &[0, 1]),
        ("metadata.paid=1", &[]),
        ("metadata.to=%7B%22order%22%3A%22A-17%22%7D", &[]),
        ("metadata.of=%5B%22A-17%22%5D", &[]),
        (
            "metadata.Bestellnummer+f%C3%BCr+%F0%9F%98%80=a%3Db%26c",
            &[3],
        ),
        ("metadata.a.b=dot", &[3]),
        ("metadata.a=dot", &[]),
    ] {
        let query = format!("{span}&{filter}");
        let expected: Vec<&String> = found.iter().map(|index: &usize| &grants[*index]).collect();
        let ids = |items: &[Value]| -> Vec<String> {
            let id = |item: &Value| item["id"].as_str().expect("an id").to_owned();
            items.iter().map(id).collect()
        };
        let entries = all_items(&app, &format!("/v1/entries?{query}&limit=1")).await;
        assert_eq!(
            ids(&entries).iter().collect::<Vec<_>>(),
            expected,
            "{filter}"
        );
        let listed = all_items(&app, &format!("/v1/grants?{query}&limit=1")).await;
        let newest_first: Vec<&String> = expected.iter().copied().rev().collect();
        assert_eq!(
            ids(&listed).iter().collect::<Vec<_>>(),
            newest_first,
            "{filter}"
        );
        for path in ["/v1/entries/export", "/v1/grants/export"] {
            let export = app.get(&format!("{path}?format=csv&{query}")).await;
            let rows = export.text.lines().count() - 1;
            assert_eq!(rows, found.len(), "{path}: {export:?}");
        }
    }
    let by_key = all_items(
        &app,
        &format!("/v1/grants?{span}&metadata.n=7&state=reversed"),
    )
    .await;
    assert_eq!(by_key.len(), 1, "{by_key:?}");
    let held = all_items(&app, &format!("/v1/grants?{span}&metadata.n=7&state=held")).await;
    assert_eq!(held.len(), 0, "{held:?}");
    let key = format!("/v1/grants?{span}&metadata.n=7&idempotency_key=k");
    assert_eq!(all_items(&app, &key).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_has_bounds() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "America/New_York").await;
    let name = "metadata.order=A-17";
    let wants = "name the policy, and a span of at most 92 days";
    for (query, words) in [
        (name.to_owned(), wants),
        (format!("{name}&policy=benefit"), wants),
        (format!("{name}&policy=benefit&from=2026-11-01"), wants),
        (format!("{name}&policy=benefit&to=2026-11-01"), wants),
        (
            format!("{name}&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z"),
            wants,
        ),
        (
            format!("{name}&policy=benefit&from=2026-01-01&to=2026-04-05"),
            wants,
        ),
        (
            "metadata.%22=1&policy=benefit&on=2026-11-01".to_owned(),
            "without quotation marks",
        ),
        (
            format!("{name}&metadata.n=1&policy=benefit&on=2026-11-01"),
            "name only one member",
        ),
    ] {
        for path in [
            "entries?",
            "grants?",
            "entries/export?format=csv&",
            "grants/export?format=csv&",
        ] {
            let told = invalid_parts(&app.get(&format!("/v1/{path}{query}")).await);
            assert_eq!(told.len(), 1, "{query}: {told:?}");
            assert_eq!(told[0].0, "metadata.<name>", "{query}");
            assert!(told[0].1.contains(words), "{query}: {told:?}");
        }
    }
    // The span has 92 local days. One of these days has 25 hours.
    let quarter = format!("/v1/entries?{name}&policy=benefit&from=2026-10-01&to=2027-01-01");
    assert_eq!(app.get(&quarter).await.status, 200);
}
