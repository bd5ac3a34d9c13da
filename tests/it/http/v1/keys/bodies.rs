//! The members of a key, and changes of a key.

use serde_json::{Value, json};

use super::{end, make_role, revoke};
use crate::http::{has_version, problem};
use crate::support::app::{App, KEY, NOON, Stack};
use crate::support::desk::on_every_store;

on_every_store!(a_key_is_made_listed_ended_and_revoked);

async fn a_key_is_made_listed_ended_and_revoked(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({
        "name": "shop", "role": "claim", "policies": ["benefit"],
        "ends_at": "2026-12-01T08:00:00.123456789+08:00", "reason": "a new shop",
    });
    let answer = app.ask("POST /v1/keys", body).await;
    has_version(&answer, 201, 1);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let mut key = answer.json();
    let secret = key["secret"].take();
    let secret = secret.as_str().expect("a secret");
    let is_whole = secret.starts_with("perdiem_") && secret.len() == 56;
    assert!(is_whole, "{secret}");
    let id = key["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/keys/{id}");
    assert_eq!(answer.header("location"), Some(path.as_str()));
    key.as_object_mut().expect("an object").remove("secret");
    let expected = json!({
        "id": id, "name": "shop", "role": "claim", "policies": ["benefit"],
        "ends_at": "2026-12-01T00:00:00.123456Z", "revoked": false, "version": 1,
        "created_at": NOON, "changed_at": NOON, "changed_by": "PERDIEM_ADMIN_KEY",
        "reason": "a new shop",
    });
    assert_eq!(key, expected);
    let found = app.get(&path).await;
    has_version(&found, 200, 1);
    assert_eq!(found.json(), expected);
    let listed = app.get("/v1/keys").await;
    assert_eq!(listed.at("/items"), json!([expected]));
    for answer in [&listed, &found] {
        assert!(!answer.text.contains("secret") && !answer.text.contains(secret));
    }

    let claim = async || {
        let body = json!({ "subject": "a" });
        app.ask_as(secret, "POST /v1/policies/benefit/claims", body)
            .await
    };
    claim().await.is(201);

    let ended = end(&app, KEY, &id, Some("2026-11-30T00:00:00Z")).await;
    has_version(&ended, 200, 2);
    assert_eq!(ended.at("/ends_at"), "2026-11-30T00:00:00Z");
    // The key has this end already.
    let again = end(&app, KEY, &id, Some("2026-11-30T00:00:00Z")).await;
    assert_eq!(again.json(), ended.json());
    let endless = end(&app, KEY, &id, None).await;
    has_version(&endless, 200, 3);
    assert_eq!(endless.at("/ends_at"), Value::Null);

    let revoked = revoke(&app, KEY, &id).await;
    has_version(&revoked, 200, 4);
    assert_eq!(revoked.at("/revoked"), true);
    assert_eq!(revoked.at("/reason"), "a test");
    assert_eq!(revoke(&app, KEY, &id).await.is(200), revoked.json());
    problem(&end(&app, KEY, &id, None).await, 409, "key-revoked");
    problem(&claim().await, 401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_version_is_changed_once() {
    let app = App::on(Stack::Sqlite).await;
    let key = make_role(&app, "audit", None).await;
    let send = async |line: &str, etag: &str, body: Value| {
        app.ask_with(("If-Match", etag), line, body).await
    };
    let path = format!("PATCH /v1/keys/{}", key.id);
    let patch = async |etag: &str, at: &str| {
        send(&path, etag, json!({ "ends_at": at, "reason": "x" })).await
    };
    patch("\"1\"", "2100-01-01T00:00:00Z").await.is(200);
    let late = patch("\"1\"", "2101-01-01T00:00:00Z").await;
    problem(&late, 412, "precondition-failed");
    assert_eq!(late.header("etag"), Some("\"2\""));
    // The retry of a change succeeds.
    patch("\"1\"", "2100-01-01T00:00:00Z").await.is(200);
    problem(&patch("2", "2101-01-01T00:00:00Z").await, 422, "invalid");
    let path = format!("DELETE /v1/keys/{}?reason=x", key.id);
    let delete = async |etag: &str| send(&path, etag, Value::Null).await;
    problem(&delete("\"1\"").await, 412, "precondition-failed");
    delete("\"2\"").await.is(200);
    delete("\"2\"").await.is(200);
    // This key never existed.
    let path = "/v1/keys/0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";
    let body = json!({ "ends_at": null, "reason": "x" });
    let get = format!("GET {path}");
    let patch = format!("PATCH {path}");
    let delete = format!("DELETE {path}?reason=x");
    for (line, body) in [(get, Value::Null), (patch, body), (delete, Value::Null)] {
        problem(&app.ask(&line, body).await, 404, "not-found");
    }
}
