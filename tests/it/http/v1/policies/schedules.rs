//! `effective`: changes that begin with the policy's next local day.

use serde_json::{Value, json};

use crate::http::{all_items, archive, has_version, invalid_parts, invalid_places, problem};
use crate::support::app::{Answer, App, NOON, Stack, instant};
use crate::support::desk::on_every_store;

const POLICY: &str = "/v1/policies/benefit";
/// The end of the day of [`NOON`] in GMT+8.
const MIDNIGHT: &str = "2026-11-21T16:00:00Z";

fn body(max: u64, changes: Value) -> Value {
    let mut body = json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": max, "per": "day" }],
        "reason": "a test",
    });
    for (name, value) in changes.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn next_window(max: u64) -> Value {
    body(max, json!({ "effective": "next_window" }))
}

on_every_store!(
    a_scheduled_version_is_shown,
    changes_that_never_come_are_refused
);

async fn a_scheduled_version_is_shown(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let first = app.put_policy("benefit", body(3, json!({ "effective": "now" })));
    let first = first.await.json();
    assert_eq!(first["effective_at"], NOON);
    assert_eq!(first["in_force_version"], 1);
    let put = app.put_policy("benefit", next_window(5)).await;
    has_version(&put, 200, 2);
    let second = put.json();
    assert_eq!(second["limits"][0]["max"], 5);
    assert_eq!(second["changed_at"], NOON);
    assert_eq!(second["effective_at"], MIDNIGHT);
    assert_eq!(second["in_force_version"], 1);
    let read = app.get(POLICY).await;
    has_version(&read, 200, 2);
    assert_eq!(read.json(), second);
    // The same policy again is no change.
    let again = app.put_policy("benefit", next_window(5)).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, second));
    // `If-Match` is compared with the newest version, whether or not the version is in force.
    let put_if = async |etag: &str, body: Value| {
        app.ask_with(("If-Match", etag), "PUT /v1/policies/benefit", body)
            .await
    };
    let stale = put_if("\"1\"", next_window(6)).await;
    problem(&stale, 412, "precondition-failed");
    assert_eq!(stale.header("etag"), Some("\"2\""));
    let third = put_if("\"2\"", next_window(6)).await;
    has_version(&third, 200, 3);

    let listed = all_items(&app, "/v1/policies").await;
    assert_eq!(listed[0]["version"], 3);
    assert_eq!(listed[0]["effective_at"], MIDNIGHT);
    assert_eq!(listed[0]["in_force_version"], 1);
    let versions = all_items(&app, &format!("{POLICY}/versions")).await;
    let effective: Vec<&Value> = versions.iter().map(|item| &item["effective_at"]).collect();
    assert_eq!(effective, [MIDNIGHT, MIDNIGHT, NOON]);

    clock.set(instant(MIDNIGHT) - chrono::TimeDelta::microseconds(1));
    assert_eq!(app.get(POLICY).await.at("/in_force_version"), 1);
    clock.set(instant(MIDNIGHT));
    assert_eq!(app.get(POLICY).await.at("/in_force_version"), 3);
    // The version is in force: the same policy without `effective` is also no change.
    let same = app.put_policy("benefit", body(6, json!({}))).await;
    has_version(&same, 200, 3);
}

async fn changes_that_never_come_are_refused(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let refused = |answer: &Answer, words: &[&str]| {
        let parts = invalid_parts(answer);
        let [(place, detail)] = parts.as_slice() else {
            panic!("{parts:?}");
        };
        assert_eq!(place, "#/effective");
        assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
    };
    for wrong in ["tomorrow", "", "Now", "next-window", "2026-13-01"] {
        let wrong = body(3, json!({ "effective": wrong }));
        refused(
            &app.put_policy("benefit", wrong).await,
            &["now, next_window"],
        );
    }
    let new = app.put_policy("benefit", next_window(3)).await;
    refused(&new, &["active_from"]);
    problem(&app.get(POLICY).await, 404, "unknown-policy");

    let until = |instant: &str| json!({ "active_until": instant, "effective": "next_window" });
    app.put_policy("benefit", body(3, json!({}))).await.is(201);
    // The new version would end before it begins, or at that instant.
    for end in ["2026-11-21T12:00:00Z", MIDNIGHT] {
        let answer = app.put_policy("benefit", body(5, until(end))).await;
        refused(&answer, &[MIDNIGHT, end]);
    }
    let felt = body(5, until("2026-11-21T16:00:00.000001Z"));
    assert_eq!(app.put_policy("benefit", felt).await.status, 200);
    // The version in force ends before the next day.
    let ends = body(5, json!({ "active_until": "2026-11-21T12:00:00Z" }));
    assert_eq!(app.put_policy("benefit", ends).await.status, 200);
    let answer = app.put_policy("benefit", next_window(6)).await;
    refused(&answer, &[MIDNIGHT, "2026-11-21T12:00:00Z"]);
    // 412 and a missing reason come first.
    let stale = ("If-Match", "\"9\"");
    let answer = app
        .ask_with(stale, "PUT /v1/policies/benefit", next_window(6))
        .await;
    problem(&answer, 412, "precondition-failed");
    let mut silent = next_window(6);
    silent["reason"] = Value::Null;
    let answer = app.put_policy("benefit", silent).await;
    assert_eq!(invalid_places(&answer), ["#/reason"]);

    archive(&app).await;
    refused(
        &app.put_policy("benefit", next_window(3)).await,
        &["active_from"],
    );
    let versions = all_items(&app, &format!("{POLICY}/versions")).await;
    assert_eq!(versions.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_those_of_the_version_in_force() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    app.put_policy("benefit", body(3, json!({}))).await;
    let utc = json!({ "time_zone": "UTC", "effective": "next_window" });
    assert_eq!(app.put_policy("benefit", body(3, utc)).await.status, 200);
    let windows = format!("{POLICY}/windows");
    let now = app.get(&windows).await.json();
    assert_eq!(now["items"][0]["end"], MIDNIGHT);
    clock.set(instant(MIDNIGHT));
    let then = app.get(&windows).await.json();
    assert_eq!(then["items"][0]["end"], "2026-11-22T00:00:00Z");
}
