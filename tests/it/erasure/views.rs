//! The views and counts of an erased subject.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use super::{all_are_past, erase, erasing, shown};
use crate::http::{all_items, problem};
use crate::record::all_is_recorded;
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant, on_every_way};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::operations::every_read_is_tried;

on_every_way!(an_erased_name_finds_nothing_and_counts_on_today);
on_every_store!(
    who_is_not_known_cannot_be_erased,
    an_erasure_is_recorded_without_the_name,
    a_grant_of_an_erased_subject_is_reversed_whole,
);

/// Every view that takes a subject's name. The exports have the rows of the lists.
fn paths(subject: &str) -> Vec<String> {
    vec![
        format!("/v1/policies/benefit/subjects/{subject}"),
        format!("/v1/policies/benefit/subjects/{subject}?at=2026-11-21T03:04:00Z"),
        format!("/v1/policies/benefit/subjects/{subject}/entries"),
        format!("/v1/policies/benefit/subjects/{subject}/denials"),
        format!("/v1/policies/benefit/overrides/{subject}"),
        format!("/v1/policies/benefit/blocks/{subject}"),
        format!("/v1/policies/benefit/tiers/{subject}"),
        format!("/v1/subjects/{subject}"),
        format!("/v1/entries?subject={subject}"),
        format!("/v1/grants?subject={subject}"),
        format!("/v1/changes?subject={subject}"),
    ]
}

#[test]
fn every_view_of_a_subject_is_tried() {
    every_read_is_tried(&paths("member-42"), |operation| {
        let mut names = operation.parameters("path");
        names.extend(operation.parameters("query"));
        names.contains(&"subject") && !operation.path.ends_with("/export")
    });
}

/// The answers of every view.
async fn views(app: &App, subject: &str) -> Vec<Value> {
    let mut views = Vec::new();
    for path in paths(subject) {
        let answer = app.get(&path).await;
        let mut view = answer.json();
        for name in [
            "request_id",
            "instance",
            "subject",
            "as_of",
            "at",
            "known_at",
        ] {
            if let Some(view) = view.as_object_mut() {
                view.remove(name);
            }
        }
        views.push(json!([answer.status.as_u16(), view]));
    }
    views
}

/// The keys of its parts are erased later: nothing is given back twice.
async fn a_grant_of_an_erased_subject_is_reversed_whole(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = perdiem::host::clock::ManualClock::at(instant(NOON));
    let app = App::start_with(&ground, |options| {
        options.clock = perdiem::host::clock::Clock::Manual(clock.clone());
    })
    .await;
    app.benefit(9, "Asia/Shanghai").await;
    let body = json!({ "subject": "member-42", "units": 5 });
    let id = app.claim_body(body, None).await.grant_id();
    let part = async |key: &str| app.reverse_units(&id, 3, "a refund", key).await;
    part("part-1").await.is(201);
    all_is_recorded(&app, &ground).await;
    erase(&app, "member-42", "request 118").await.is(200);
    part("part-1").await.is(200);
    problem(&part("part-2").await, 422, "invalid");
    // The account has another id.
    clock.advance(TimeDelta::hours(14));
    all_are_past(&ground, 3, &clock).await;
    part("part-1").await.is(200);
    let (again, whole) = futures_util::future::join(part("part-1"), app.reverse(&id, "all")).await;
    again.is(200);
    whole.is(201);
    assert_eq!(whole.at("/grant/returned_units"), 3);
    // Its keys are free.
    clock.advance(TimeDelta::hours(72));
    all_are_past(&ground, 4, &clock).await;
    problem(&part("part-1").await, 409, "grant-reversed");
    all_is_recorded(&app, &ground).await;
    let entries = all_items(&app, "/v1/entries?policy=benefit").await;
    let units: Vec<_> = entries
        .iter()
        .map(|entry| entry["units"].as_i64())
        .collect();
    assert_eq!(units, [Some(5), Some(-3), Some(-2)]);
}

async fn an_erased_name_finds_nothing_and_counts_on_today(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = perdiem::host::clock::ManualClock::at(instant(NOON));
    let app = App::start_with(&ground, |options| {
        options.clock = perdiem::host::clock::Clock::Manual(clock.clone());
    })
    .await;
    app.benefit(3, "Asia/Shanghai").await;
    app.override_day("member-42", 3).await;
    let body = json!({ "subject": "member-42", "metadata": { "phone": "+86138" } });
    let first = app.claim_body(body.clone(), Some("k-1")).await;
    assert_eq!(first.status, 201);
    for key in ["k-2", "k-3"] {
        assert_eq!(app.claim("member-42", Some(key)).await.status, 201);
    }
    assert_eq!(app.claim("member-42", None).await.status, 429);
    assert_eq!(app.claim("other", None).await.status, 201);
    all_is_recorded(&app, &ground).await;
    eventually("the denial is written", || async {
        let sql = "SELECT CAST(count(*) AS text) FROM first_denials";
        Direct::to(&ground).await.texts(sql).await == ["1"]
    })
    .await;
    let stranger = views(&app, "stranger").await;
    assert_ne!(views(&app, "member-42").await, stranger);
    let before = all_items(&app, "/v1/entries?policy=benefit").await;

    // The name finds nothing.
    let erased = erase(&app, "member-42", "request 118").await;
    assert_eq!(erased.status, 200, "{erased:?}");
    assert_eq!(erased.json()["accounts"], 1);
    assert_eq!(views(&app, "member-42").await, stranger);

    // The entries stay, without their texts.
    let after = all_items(&app, "/v1/entries?policy=benefit").await;
    assert_eq!(after.len(), before.len());
    for (before, after) in before.iter().zip(&after) {
        let mut expected = before.clone();
        if expected["subject"] == "member-42" {
            expected["subject"] = Value::Null;
            let fields = expected.as_object_mut().expect("an object");
            fields.remove("metadata");
        }
        assert_eq!(*after, expected);
    }

    // The account still counts today, and its keys still belong to their claims.
    let denied = app.claim("member-42", Some("k-4")).await;
    assert_eq!(denied.status, 429, "{denied:?}");
    let again = app.claim_body(body.clone(), Some("k-1")).await;
    assert_eq!(
        (again.status.as_u16(), again.grant_id()),
        (200, first.grant_id())
    );
    let other = app
        .claim_body(json!({ "subject": "other" }), Some("k-1"))
        .await;
    problem(&other, 422, "idempotency-key-reused");
    assert_eq!(erasing(&ground, 2).await, 1);

    // An override would name the subject again.
    let named = json!({ "limits": [{ "max": 9, "per": "day" }], "reason": "vip" });
    let refused = app.put_override("member-42", named.clone()).await;
    problem(&refused, 409, "being-erased");
    let detail = refused.json()["detail"].to_string();
    assert!(
        detail.contains("try again after 2026-11-21T16:"),
        "{detail}"
    );
    problem(&app.delete_override("member-42").await, 409, "being-erased");

    // After midnight the account has another id, and a claim with the name is by a new subject.
    clock.advance(TimeDelta::hours(14));
    all_are_past(&ground, 3, &clock).await;
    assert_eq!(
        views(&app, "member-42").await,
        views(&app, "stranger").await
    );
    let again = app.claim_body(body, Some("k-1")).await;
    assert_eq!(
        (again.status.as_u16(), again.grant_id()),
        (200, first.grant_id())
    );
    let first = app.claim("member-42", Some("k-5")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let list = app
        .get("/v1/policies/benefit/subjects/member-42/entries")
        .await;
    assert_eq!(shown(&list).len(), 1);
    assert_eq!(shown(&list)[0]["number"], 1);
    assert_eq!(
        all_items(&app, "/v1/entries?policy=benefit").await[..after.len()],
        after
    );

    assert_eq!(app.put_override("member-42", named).await.status, 201);

    // After 48 hours its keys are free.
    clock.advance(TimeDelta::hours(48));
    all_are_past(&ground, 4, &clock).await;
    assert_eq!(app.claim("member-42", Some("k-1")).await.status, 201);
    let report = Answer::of(
        app.request(Method::POST, "/v1/reconciliations")
            .json(&json!({ "apply": false })),
    );
    let report = report.await.json();
    assert_eq!(report["difference_count"], 0, "{report}");
}

async fn who_is_not_known_cannot_be_erased(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "Asia/Shanghai").await;
    let unknown = erase(&app, "nobody", "request").await;
    problem(&unknown, 404, "not-found");
    app.claim("member-42", None).await.is(201);
    let named = erase(&app, "member-42", "member-42 asked for it").await;
    assert_eq!(named.status, 422, "{named:?}");
    assert_eq!(erase(&app, "member-42", "").await.status, 422);
    assert_eq!(
        erase(&app, "member-42", "they asked for it").await.status,
        200
    );
}

async fn an_erasure_is_recorded_without_the_name(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "Asia/Shanghai").await;
    app.claim("member-42", None).await.is(201);
    let exported = app
        .get("/v1/entries/export?format=ndjson&subject=member-42")
        .await;
    let link = exported.header("link").expect("a link");
    let manifest = link.split(['<', '>']).nth(1).expect("a URL").to_owned();
    let erased = erase(&app, "member-42", "request 118").await.is(200);
    let changes = all_items(&app, "/v1/changes?kind=erasure").await;
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0]["revision"], erased["revision"]);
    assert_eq!(changes[0]["after"], json!({ "accounts": 1 }));
    assert_eq!(changes[0]["reason"], "request 118");
    let all = all_items(&app, "/v1/changes").await;
    assert!(!json!(all).to_string().contains("member-42"), "{all:?}");
    let export = all.iter().find(|change| change["kind"] == "export");
    let export = &export.expect("the export")["after"];
    assert_eq!(export["filters"], json!({}));
    assert_eq!(export["erased"], json!(["subject"]));
    problem(&app.get(&manifest).await, 404, "not-found");
    // The same request again returns the same erasure.
    assert_eq!(erase(&app, "member-42", "again").await.is(200), erased);
}
