//! Blocks as they are put, shown, listed and told.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{all_items, has_version, invalid_places, problem};
use crate::support::app::{App, NOON, Stack};
use crate::support::desk::on_every_store;

on_every_store!(
    a_block_lives,
    blocks_and_overrides_of_a_subject_do_not_disturb_each_other,
    usage_and_explanations_show_a_block,
);

const BLOCKS: &str = "/v1/policies/benefit/blocks";
const BLOCK: &str = "/v1/policies/benefit/blocks/member-42";

async fn a_block_lives(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let put = async |body: Value| app.ask(&format!("PUT {BLOCK}"), body).await;
    problem(&put(json!({ "reason": "x" })).await, 404, "unknown-policy");
    app.benefit(3, "GMT+8").await;
    problem(&app.get(BLOCK).await, 404, "not-found");
    problem(&app.remove_block("member-42").await, 404, "not-found");
    for (body, place) in [
        (json!({}), "#/reason"),
        (json!({ "reason": " " }), "#/reason"),
        (json!({ "reason": "x", "until": NOON }), "#/until"),
    ] {
        assert_eq!(invalid_places(&put(body).await), [place]);
    }
    problem(
        &put(json!({ "reason": "x", "limits": [] })).await,
        400,
        "malformed",
    );
    let created = put(json!({ "reason": "chargebacks" })).await;
    has_version(&created, 201, 1);
    let expected = json!({
        "policy": "benefit", "subject": "member-42", "version": 1, "until": null,
        "changed_at": NOON, "changed_by": "PERDIEM_ADMIN_KEY", "reason": "chargebacks",
    });
    assert_eq!(created.json(), expected);
    assert_eq!(app.get(BLOCK).await.json(), expected);
    assert_eq!(
        all_items(&app, BLOCKS).await,
        std::slice::from_ref(&expected)
    );
    // The same block is no change. Another reason or another end is one.
    clock.advance(TimeDelta::hours(1));
    assert_eq!(
        put(json!({ "reason": "chargebacks" })).await.is(200),
        expected
    );
    has_version(&put(json!({ "reason": "fraud" })).await, 200, 2);
    let until = json!({ "reason": "fraud", "until": "2026-12-01T00:00:00Z" });
    has_version(&put(until).await, 200, 3);
    // A removal has a reason, and the answer shows the block.
    let path = format!("DELETE {BLOCK}");
    let removed = app.ask(&path, Value::Null).await;
    problem(&removed, 422, "invalid");
    let removed = app.remove_block("member-42").await;
    assert_eq!(removed.is(200)["until"], "2026-12-01T00:00:00Z");
    problem(&app.get(BLOCK).await, 404, "not-found");
    assert_eq!(all_items(&app, BLOCKS).await, [] as [Value; 0]);
    let changes = all_items(&app, "/v1/changes?kind=block&subject=member-42").await;
    let told = changes.iter().map(|change| {
        let reason = |side: &str| change[side]["reason"].clone();
        (change["reason"].clone(), reason("before"), reason("after"))
    });
    let expected = [
        (json!("a test"), json!("fraud"), Value::Null),
        (json!("fraud"), json!("fraud"), json!("fraud")),
        (json!("fraud"), json!("chargebacks"), json!("fraud")),
        (json!("chargebacks"), Value::Null, json!("chargebacks")),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(
        all_items(&app, "/v1/changes?kind=override").await,
        [] as [Value; 0]
    );
}

async fn blocks_and_overrides_of_a_subject_do_not_disturb_each_other(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    app.override_day("member-42", 5).await;
    has_version(&app.block("member-42").await, 201, 2);
    let of_override = "/v1/policies/benefit/overrides/member-42";
    has_version(&app.get(of_override).await, 200, 1);
    // The override can be changed and deleted while the subject is blocked.
    app.override_day("member-42", 6).await;
    has_version(&app.get(of_override).await, 200, 3);
    has_version(&app.get(BLOCK).await, 200, 2);
    let listed = all_items(&app, "/v1/policies/benefit/overrides").await;
    assert_eq!(listed[0]["limits"][0]["max"], 6);
    let change = all_items(&app, "/v1/changes?kind=override").await;
    assert_eq!(change[0]["before"]["limits"][0]["max"], 5);
    assert_eq!(change[0]["after"]["limits"][0]["max"], 6);
    app.delete_override("member-42").await.is(200);
    assert_eq!(
        all_items(&app, "/v1/policies/benefit/overrides").await,
        [] as [Value; 0]
    );
    problem(&app.claim("member-42", None).await, 403, "subject-blocked");
    app.override_day("member-42", 8).await;
    app.remove_block("member-42").await.is(200);
    assert_eq!(app.claim("member-42", None).await.at("/limits/0/max"), 8);
    app.override_day("member-42", 9).await;
    assert_eq!(app.claim("member-42", None).await.at("/limits/0/max"), 9);
}

async fn usage_and_explanations_show_a_block(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let usage = "/v1/policies/benefit/subjects/member-42";
    assert_eq!(app.get(usage).await.json().get("block"), None);
    clock.advance(TimeDelta::hours(1));
    app.block("member-42").await.is(201);
    let shown = app.get(usage).await;
    assert_eq!(shown.at("/block"), json!({ "until": null }));
    assert!(!shown.text.contains("a test"), "{shown:?}");
    let explained = app.get(&format!("{usage}?units=1")).await.json();
    assert_eq!(
        [&explained["outcome"], &explained["reason"]],
        ["denied", "blocked"]
    );
    assert_eq!(explained["terms"]["block"]["reason"], "a test");
    // Before the block the claim would have been granted.
    let before = app.get(&format!("{usage}?at={NOON}")).await.json();
    assert_eq!([&before["outcome"], &before["reason"]], ["granted", "room"]);
    assert_eq!(before["terms"]["block"], Value::Null);
}
