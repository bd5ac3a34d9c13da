//! What a key is made of, and what is refused.

use reqwest::Method;
use serde_json::{Value, json};

use super::{end, make, make_role, revoke, with};
use crate::http::{
    all_items, archive, column, has_version, invalid_places, problem, send, with_member,
};
use crate::support::app::{Answer, App, KEY, NOON, Stack};
use crate::support::desk::on_every_store;

on_every_store!(a_key_is_made_listed_ended_and_revoked);

async fn a_key_is_made_listed_ended_and_revoked(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({
        "name": "shop", "role": "claim", "policies": ["benefit"],
        "ends_at": "2026-12-01T08:00:00.123456789+08:00", "reason": "a new shop",
    });
    let answer = Answer::of(app.request(Method::POST, "/v1/keys").json(&body)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("etag"), Some("\"1\""));
    let mut key = answer.json();
    let secret = key["secret"].take();
    let secret = secret.as_str().expect("a secret");
    assert!(
        secret.starts_with("perdiem_") && secret.len() == 56,
        "{secret}"
    );
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
    assert_eq!(found.json(), expected);
    assert_eq!(found.header("etag"), Some("\"1\""));
    let listed = app.get("/v1/keys").await;
    assert_eq!(listed.json()["items"], json!([expected]));
    assert!(!listed.text.contains(secret) && !found.text.contains(secret));
    assert!(!listed.text.contains("secret"), "{listed:?}");

    let claim = async || {
        let claim = with(&app, secret, Method::POST, "/v1/policies/benefit/claims");
        Answer::of(claim.json(&json!({ "subject": "a" }))).await
    };
    assert_eq!(claim().await.status, 201);

    let ended = end(&app, KEY, &id, Some("2026-11-30T00:00:00Z")).await;
    assert_eq!(ended.header("etag"), Some("\"2\""), "{ended:?}");
    assert_eq!(ended.json()["ends_at"], "2026-11-30T00:00:00Z");
    // It is so already.
    let again = end(&app, KEY, &id, Some("2026-11-30T00:00:00Z")).await;
    assert_eq!(again.json(), ended.json());
    let endless = end(&app, KEY, &id, None).await.json();
    assert_eq!(endless["ends_at"], Value::Null);
    assert_eq!(endless["version"], 3);

    let revoked = revoke(&app, KEY, &id).await;
    has_version(&revoked, 200, 4);
    assert_eq!(revoked.json()["revoked"], true);
    assert_eq!(revoked.json()["reason"], "a test");
    let again = revoke(&app, KEY, &id).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, revoked.json()));
    problem(&end(&app, KEY, &id, None).await, 409, "key-revoked");
    problem(&claim().await, 401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_makes_no_key() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    app.put_policy("other", body).await;
    archive(&app).await;
    let post = async |body: Value| {
        let request = app.request(Method::POST, "/v1/keys").json(&body);
        Answer::of(request).await
    };
    let many: Vec<String> = (0..101).map(|index| format!("p{index}")).collect();
    let claim = json!({ "name": "a", "role": "claim" });
    #[rustfmt::skip]
    let faults = [
        ("name", json!(""), "#/name"),
        ("name", json!("x".repeat(101)), "#/name"),
        ("name", json!("a\nb"), "#/name"),
        ("name", json!("a\u{0}"), "#/name"),
        ("role", json!("Admin"), "#/role"),
        ("policies", json!([]), "#/policies"),
        ("policies", json!(many), "#/policies"),
        ("policies", json!(["other", "other"]), "#/policies/1"),
        ("policies", json!(["A", "-"]), "#/policies/0 #/policies/1"),
        ("policies", json!(["nothing"]), "#/policies/0"),
        // An archived one, and one that never was.
        ("policies", json!(["other", "benefit", "x"]), "#/policies/1 #/policies/2"),
        ("ends_at", json!("tomorrow"), "#/ends_at"),
        ("ends_at", json!(NOON), "#/ends_at"),
        ("ends_at", json!("2020-01-01T00:00:00Z"), "#/ends_at"),
        ("reason", json!("\u{0}"), "#/reason"),
        ("reason", json!("x".repeat(1001)), "#/reason"),
    ];
    let faults = faults.map(|(name, value, places)| (with_member(&claim, name, value), places));
    let more = [
        (
            json!({ "name": "", "role": "", "policies": [] }),
            "#/name #/policies #/role",
        ),
        (
            json!({ "name": "a", "role": "admin", "policies": ["other"] }),
            "#/policies",
        ),
    ];
    for (body, places) in faults.into_iter().chain(more) {
        let mut found = invalid_places(&post(body.clone()).await);
        found.sort();
        assert_eq!(found.join(" "), places, "{body}");
    }
    for body in [
        "",
        "[]",
        "{",
        r#"{"name":"a"}"#,
        r#"{"role":"claim"}"#,
        r#"{"name":1,"role":"claim"}"#,
        r#"{"name":"a","role":"claim","policies":"other"}"#,
        r#"{"name":"a","role":"claim","policies":[null]}"#,
        r#"{"name":"a","role":"claim","secret":"perdiem_mine"}"#,
        r#"{"name":"a","role":"claim","ends_at":1}"#,
    ] {
        let answer = send(&app, Method::POST, "/v1/keys", body).await;
        problem(&answer, 400, "malformed");
    }
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(70_000));
    let answer = send(&app, Method::POST, "/v1/keys", large).await;
    problem(&answer, 413, "too-large");
    assert!(all_items(&app, "/v1/keys").await.is_empty());

    let key = make_role(&app, "claim", Some("other")).await;
    let path = format!("/v1/keys/{}", key.id);
    #[rustfmt::skip]
    let rows = [
        (json!({ "ends_at": "2020-01-01T00:00:00Z", "reason": "x" }), "#/ends_at"),
        (json!({ "ends_at": NOON, "reason": "x" }), "#/ends_at"),
        (json!({ "ends_at": "", "reason": "\u{0}" }), "#/ends_at #/reason"),
        (json!({ "ends_at": "2027-01-01T00:00:00Z" }), "#/reason"),
        (json!({ "ends_at": "2027-01-01T00:00:00Z", "reason": null }), "#/reason"),
    ];
    for (body, places) in rows {
        let answer = Answer::of(app.request(Method::PATCH, &path).json(&body)).await;
        assert_eq!(invalid_places(&answer).join(" "), places, "{body}");
    }
    for body in [
        r#"{"reason":"x"}"#,
        r#"{"ends_at":null,"role":"admin"}"#,
        "null",
        "",
    ] {
        let answer = send(&app, Method::PATCH, &path, body).await;
        problem(&answer, 400, "malformed");
    }
    for delete in [path.clone(), format!("{path}?reason={}", "x".repeat(1001))] {
        let answer = send(&app, Method::DELETE, &delete, "").await;
        assert_eq!(invalid_places(&answer), ["reason"]);
    }
    #[rustfmt::skip]
    let rows = [
        ("/v1/keys/0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42", 404, "not-found"),
        ("/v1/keys/shop", 422, "invalid"),
        ("/v1/keys/%00", 422, "invalid"),
    ];
    for (path, status, kind) in rows {
        problem(&app.get(path).await, status, kind);
        let end = json!({ "ends_at": null, "reason": "x" }).to_string();
        problem(&send(&app, Method::PATCH, path, end).await, status, kind);
        let delete = format!("{path}?reason=x");
        problem(&send(&app, Method::DELETE, &delete, "").await, status, kind);
    }
    let unchanged = app.get(&path).await.json();
    assert_eq!(unchanged["version"], 1);
    assert_eq!(unchanged["revoked"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_version_is_changed_once() {
    let app = App::on(Stack::Sqlite).await;
    let key = make_role(&app, "audit", None).await;
    let path = format!("/v1/keys/{}", key.id);
    let patch = async |etag: &str, at: &str| {
        let body = json!({ "ends_at": at, "reason": "x" });
        let request = app.request(Method::PATCH, &path).header("If-Match", etag);
        Answer::of(request.json(&body)).await
    };
    assert_eq!(patch("\"1\"", "2100-01-01T00:00:00Z").await.status, 200);
    let late = patch("\"1\"", "2101-01-01T00:00:00Z").await;
    problem(&late, 412, "precondition-failed");
    assert_eq!(late.header("etag"), Some("\"2\""));
    // The retry of what was done is done.
    assert_eq!(patch("\"1\"", "2100-01-01T00:00:00Z").await.status, 200);
    problem(&patch("2", "2101-01-01T00:00:00Z").await, 422, "invalid");
    let delete = async |etag: &str| {
        let path = format!("{path}?reason=x");
        Answer::of(app.request(Method::DELETE, &path).header("If-Match", etag)).await
    };
    problem(&delete("\"1\"").await, 412, "precondition-failed");
    assert_eq!(delete("\"2\"").await.status, 200);
    assert_eq!(delete("\"2\"").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_listed_newest_first_page_by_page() {
    let app = App::on(Stack::Sqlite).await;
    let mut names = Vec::new();
    for index in 0..7 {
        let name = format!("key {index}");
        make(&app, json!({ "name": name, "role": "audit" })).await;
        names.insert(0, name);
        // Ids are in the order of milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    for limit in [1, 3, 7, 100] {
        let items = all_items(&app, &format!("/v1/keys?limit={limit}")).await;
        assert_eq!(column(&items, "name"), names);
    }
    problem(&app.get("/v1/keys?limit=0").await, 422, "invalid");
    problem(&app.get("/v1/keys?cursor=x").await, 422, "invalid");
    problem(&app.get("/v1/keys?role=audit").await, 400, "malformed");
}
