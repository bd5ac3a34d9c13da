//! A subject under all policies.

use serde_json::{Value, json};

use crate::http::{column, invalid_places, items, problem, replace};
use crate::support::app::{App, Ground, Stack, eventually, on_every_store_with_redis};
use crate::support::desk::on_every_store;

on_every_store!(
    a_subject_is_shown_under_every_policy_that_knows_it,
    a_subject_that_was_never_seen_is_told,
);
on_every_store_with_redis!(what_redis_counts_is_shown_too);

async fn put(app: &App, name: &str) {
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy(name, rule).await.is(201);
}

async fn shown(app: &App, subject: &str) -> Vec<Value> {
    items(&app.get(&format!("/v1/subjects/{subject}")).await)
}

async fn a_subject_is_shown_under_every_policy_that_knows_it(stack: Stack) {
    let app = App::on(stack).await;
    for name in ["c", "b", "a", "benefit", "gone", "other"] {
        put(&app, name).await;
    }
    let subject = json!({ "subject": "member-42" });
    for name in ["c", "a", "gone"] {
        app.claim_under(name, subject.clone(), None).await.is(201);
    }
    app.override_day("member-42", 9).await;
    let block = json!({ "reason": "fraud" });
    app.ask("PUT /v1/policies/b/blocks/member-42", block)
        .await
        .is(201);
    app.claim_under("other", json!({ "subject": "member-4" }), None)
        .await
        .is(201);
    app.ask("DELETE /v1/policies/gone?reason=x", Value::Null)
        .await
        .is(200);

    let found = shown(&app, "member-42").await;
    assert_eq!(column(&found, "policy"), ["a", "b", "benefit", "c"]);
    let has_entries: Vec<&Value> = found.iter().map(|item| &item["has_entries"]).collect();
    assert_eq!(has_entries, [true, false, false, true]);
    assert!(found[1]["block"].is_object() && found[2]["override"].is_object());
    // Each item is what the policy shows by itself.
    for item in &found {
        let policy = item["policy"].as_str().expect("a name");
        let path = format!("/v1/policies/{policy}/subjects/member-42");
        assert_eq!(app.get(&path).await.json(), *item);
    }
    let later = items(&app.get("/v1/subjects/member-42?after=b").await);
    assert_eq!(column(&later, "policy"), ["benefit", "c"]);
    let wrong = app.get("/v1/subjects/member-42?after=B").await;
    assert_eq!(invalid_places(&wrong), ["after"]);
}

async fn a_subject_that_was_never_seen_is_told(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "UTC").await;
    let path = "/v1/policies/benefit/subjects/nobody";
    assert_eq!(app.get(path).await.at("/has_entries"), false);
    let nobody = app.get("/v1/subjects/nobody").await.json();
    assert_eq!(
        nobody,
        json!({ "subject": "nobody", "items": [], "next_after": null })
    );
    problem(&app.get("/v1/subjects/%00").await, 422, "invalid");
    app.claim("nobody", None).await.is(201);
    assert_eq!(app.get(path).await.at("/has_entries"), true);
    assert_eq!(shown(&app, "nobody").await.len(), 1);
}

/// A page has at most a hundred policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subject_of_many_policies_is_shown_page_by_page() {
    let app = App::on(Stack::Sqlite).await;
    let names: Vec<String> = (0..103).map(|number| format!("p{number:03}")).collect();
    for name in &names {
        put(&app, name).await;
        app.claim_under(name, json!({ "subject": "a" }), None)
            .await
            .is(201);
    }
    let first = app.get("/v1/subjects/a").await;
    assert_eq!(items(&first).len(), 100);
    assert_eq!(first.at("/next_after"), "p099");
    let second = app.get("/v1/subjects/a?after=p099").await;
    assert_eq!(column(&items(&second), "policy"), names[100..]);
    assert_eq!(second.at("/next_after"), Value::Null);
}

async fn what_redis_counts_is_shown_too(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    replace(&app, json!({ "durability": "counted" })).await;
    put(&app, "other").await;
    let grant = app.claim("a", None).await.grant_id();
    let is_shown = async || column(&shown(&app, "a").await, "policy") == ["benefit"];
    eventually("the ledger has the grant", is_shown).await;
    assert_eq!(shown(&app, "b").await, [json!(null); 0]);
    // A subject whose units were given back was seen all the same.
    app.reverse(&grant, "a test").await.is(201);
    let usage = "/v1/policies/benefit/subjects/a";
    assert_eq!(app.get(usage).await.at("/limits/0/used"), 0);
    assert_eq!(app.get(usage).await.at("/has_entries"), true);
    assert!(is_shown().await);
}
