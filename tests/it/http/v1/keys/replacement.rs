//! The replacement of a key: a new key with the same rights, and the end of the old one, in one request.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{Made, end, make, make_role, revoke, status_of};
use crate::http::{all_items, has_version, invalid_places, items, problem};
use crate::support::app::{Answer, App, Ground, KEY, NOON, Stack, instant};
use crate::support::desk::on_every_store;

on_every_store!(
    a_key_is_replaced_by_one_with_the_same_rights,
    a_key_that_ends_soon_keeps_its_end,
    the_last_admin_key_can_be_replaced,
    a_dry_run_makes_no_key,
    what_works_no_more_is_not_replaced,
    a_replacement_is_made_whole_or_not_at_all,
);

/// A day after [`NOON`].
const NEXT_NOON: &str = "2026-11-22T03:04:05.678901Z";

async fn replace(app: &App, secret: &str, id: &str, body: Value) -> Answer {
    app.ask_as(secret, &format!("POST /v1/keys/{id}/replacement"), body)
        .await
}

fn new_key(answer: &Answer) -> Made {
    let key = answer.is(201);
    let text = |name: &str| key[name].as_str().expect("a text").to_owned();
    Made {
        id: text("id"),
        secret: text("secret"),
    }
}

async fn key_of(app: &App, id: &str) -> Value {
    let mut key = app.get(&format!("/v1/keys/{id}")).await.is(200);
    key.as_object_mut()
        .expect("an object")
        .remove("last_used_on");
    key
}

async fn a_key_is_replaced_by_one_with_the_same_rights(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(9, "GMT+8").await;
    let admin = make_role(&app, "admin", None).await;
    let body = json!({
        "name": "shop", "role": "support", "policies": ["benefit"], "bounds": { "max": 10, "days": 7 },
    });
    let old = make(&app, body).await;
    // A key may stay confined to a policy that is archived by now.
    let archive = "DELETE /v1/policies/benefit?reason=x";
    app.ask(archive, Value::Null).await.is(200);
    let before = key_of(&app, &old.id).await;

    let answer = replace(
        &app,
        &admin.secret,
        &old.id,
        json!({ "reason": "once a year" }),
    )
    .await;
    has_version(&answer, 201, 1);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let new = new_key(&answer);
    let path = format!("/v1/keys/{}", new.id);
    assert_eq!(answer.header("location"), Some(path.as_str()));
    assert!(new.id != old.id && new.secret != old.secret);

    let made = json!({
        "id": new.id, "name": "shop", "role": "support", "policies": ["benefit"],
        "bounds": { "max": 10, "days": 7 }, "ends_at": null, "revoked": false, "version": 1,
        "created_at": NOON, "changed_at": NOON, "changed_by": admin.id, "reason": "once a year",
    });
    let mut ended = before.clone();
    for (name, value) in [
        ("ends_at", json!(NEXT_NOON)),
        ("version", json!(2)),
        ("changed_by", json!(admin.id)),
        ("reason", json!("once a year")),
    ] {
        ended[name] = value;
    }
    let mut expected = made.clone();
    expected["secret"] = json!(new.secret);
    expected["replaced"] = ended.clone();
    assert_eq!(answer.json(), expected);
    assert_eq!(key_of(&app, &new.id).await, made);
    assert_eq!(key_of(&app, &old.id).await, ended);

    // Both changes are in the record, by the key that made them.
    let changes = all_items(&app, "/v1/changes?kind=key").await;
    let told = |change: &Value| {
        json!([
            change["key"],
            change["by"],
            change["before"],
            change["after"]
        ])
    };
    assert_eq!(told(&changes[0]), json!([old.id, admin.id, before, ended]));
    assert_eq!(told(&changes[1]), json!([new.id, admin.id, null, made]));
    assert_eq!(changes.len(), 4);

    assert_eq!(status_of(&app, &old.secret).await, 200);
    assert_eq!(status_of(&app, &new.secret).await, 200);
    clock.set(instant(NEXT_NOON) - TimeDelta::microseconds(1));
    assert_eq!(status_of(&app, &old.secret).await, 200);
    clock.set(instant(NEXT_NOON));
    assert_eq!(status_of(&app, &old.secret).await, 401);
    assert_eq!(status_of(&app, &new.secret).await, 200);
}

async fn a_key_that_ends_soon_keeps_its_end(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let ends_at = "2026-11-21T05:00:00Z";
    let body = json!({ "name": "a guest", "role": "audit", "ends_at": ends_at });
    let old = make(&app, body).await;
    let before = key_of(&app, &old.id).await;
    for keep in [
        json!({}),
        json!({ "keep_seconds": 7200 }),
        json!({ "keep_seconds": 31_536_000 }),
    ] {
        let mut body = keep;
        body["reason"] = json!("a test");
        let answer = replace(&app, KEY, &old.id, body).await;
        let key = answer.is(201);
        assert_eq!(
            (&key["ends_at"], &key["replaced"]),
            (&json!(ends_at), &before)
        );
    }
    // The old key was not changed.
    assert_eq!(key_of(&app, &old.id).await, before);
    assert_eq!(all_items(&app, "/v1/changes?kind=key").await.len(), 4);
    // An earlier end is one; 0 seconds are none.
    let sooner = json!({ "keep_seconds": 3600, "reason": "a test" });
    let sooner = replace(&app, KEY, &old.id, sooner).await.is(201);
    assert_eq!(sooner["replaced"]["ends_at"], "2026-11-21T04:04:05.678901Z");
    assert_eq!(sooner["ends_at"], ends_at);
    assert_eq!(status_of(&app, &old.secret).await, 200);
    let at_once = json!({ "keep_seconds": 0, "reason": "a test" });
    let new = new_key(&replace(&app, KEY, &old.id, at_once).await);
    assert_eq!(status_of(&app, &old.secret).await, 401);
    assert_eq!(status_of(&app, &new.secret).await, 200);
}

async fn the_last_admin_key_can_be_replaced(stack: Stack) {
    let app = App::on(stack).await;
    let old = make_role(&app, "admin", None).await;
    problem(&revoke(&app, KEY, &old.id).await, 409, "last-admin-key");
    // A key can replace itself.
    let answer = replace(&app, &old.secret, &old.id, json!({ "reason": "a test" })).await;
    let new = new_key(&answer);
    assert_eq!(answer.at("/changed_by"), json!(old.id));
    assert_eq!(answer.at("/ends_at"), Value::Null);
    // Now the new one is the last.
    problem(
        &revoke(&app, &new.secret, &new.id).await,
        409,
        "last-admin-key",
    );
    assert_eq!(revoke(&app, &new.secret, &old.id).await.status, 200);
    assert_eq!(status_of(&app, &new.secret).await, 200);
}

async fn a_dry_run_makes_no_key(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let old = make_role(&app, "audit", None).await;
    let before = key_of(&app, &old.id).await;
    let line = format!("POST /v1/keys/{}/replacement?dry_run=true", old.id);
    let answer = app.ask(&line, json!({ "reason": "a test" })).await;
    let told = answer.is(200);
    assert_eq!(answer.header("etag"), None);
    assert_eq!(answer.header("location"), None);
    assert_eq!(told.get("secret"), None);
    assert_eq!(told["replaced"]["ends_at"], NEXT_NOON);
    assert_eq!(key_of(&app, &old.id).await, before);
    assert_eq!(all_items(&app, "/v1/keys").await.len(), 1);
    assert_eq!(all_items(&app, "/v1/changes").await.len(), 1);
}

async fn what_works_no_more_is_not_replaced(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let reason = || json!({ "reason": "a test" });
    let revoked = make_role(&app, "audit", None).await;
    revoke(&app, KEY, &revoked.id).await.is(200);
    let ended = make_role(&app, "audit", None).await;
    end(&app, KEY, &ended.id, Some("2026-11-21T04:00:00Z"))
        .await
        .is(200);
    clock.set(instant("2026-11-21T04:00:00Z"));
    problem(
        &replace(&app, KEY, &revoked.id, reason()).await,
        409,
        "key-revoked",
    );
    let told = replace(&app, KEY, &ended.id, reason()).await;
    let told = problem(&told, 409, "key-ended")["detail"].to_string();
    assert!(told.contains("another end"), "{told}");
    let unknown = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";
    problem(
        &replace(&app, KEY, unknown, reason()).await,
        404,
        "not-found",
    );
    assert_eq!(all_items(&app, "/v1/keys").await.len(), 2);
    // With another end it can be replaced.
    end(&app, KEY, &ended.id, None).await.is(200);
    replace(&app, KEY, &ended.id, reason()).await.is(201);
}

/// The store refuses the end of the old key, which comes after the new key.
async fn a_replacement_is_made_whole_or_not_at_all(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    let old = make_role(&app, "audit", None).await;
    let (refuse, permit) = if stack == Stack::Sqlite {
        (
            "CREATE TRIGGER one_version BEFORE INSERT ON key_versions WHEN NEW.version > 1
             BEGIN SELECT RAISE(ABORT, 'one version'); END",
            "DROP TRIGGER one_version",
        )
    } else {
        (
            "ALTER TABLE key_versions ADD CONSTRAINT one_version CHECK (version = 1)",
            "ALTER TABLE key_versions DROP CONSTRAINT one_version",
        )
    };
    ground.sql(refuse).await;
    let body = || json!({ "reason": "a test" });
    let failed = replace(&app, KEY, &old.id, body()).await;
    assert!(failed.status.is_server_error(), "{failed:?}");
    assert!(!failed.text.contains("perdiem_"), "{failed:?}");
    assert_eq!(all_items(&app, "/v1/keys").await.len(), 1);
    assert_eq!(all_items(&app, "/v1/changes").await.len(), 1);
    ground.sql(permit).await;
    replace(&app, KEY, &old.id, body()).await.is(201);
    assert_eq!(all_items(&app, "/v1/keys").await.len(), 2);
    assert_eq!(all_items(&app, "/v1/changes").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_replacement_is_refused() {
    let app = App::on(Stack::Sqlite).await;
    let old = make_role(&app, "audit", None).await;
    let line = format!("POST /v1/keys/{}/replacement", old.id);
    for (body, places) in [
        (json!({ "reason": "" }), &["#/reason"][..]),
        (
            json!({ "reason": "x", "keep_seconds": -1 }),
            &["#/keep_seconds"],
        ),
        (
            json!({ "reason": "x", "keep_seconds": 31_536_001 }),
            &["#/keep_seconds"],
        ),
        (
            json!({ "reason": " ", "keep_seconds": -1 }),
            &["#/keep_seconds", "#/reason"],
        ),
    ] {
        let answer = app.ask(&line, body.clone()).await;
        assert_eq!(invalid_places(&answer), places, "{body}");
    }
    for body in [json!({}), json!({ "reason": "x", "name": "y" })] {
        problem(&app.ask(&line, body).await, 400, "malformed");
    }
    let body = || json!({ "reason": "x" });
    // Every request makes another key, so a repeated one is not the same.
    let repeated = app.ask_with(("Idempotency-Key", "a"), &line, body());
    problem(&repeated.await, 400, "malformed");
    let late = app.ask_with(("If-Match", "\"2\""), &line, body()).await;
    problem(&late, 412, "precondition-failed");
    assert_eq!(items(&app.get("/v1/keys").await).len(), 1);
    app.ask_with(("If-Match", "\"1\""), &line, body())
        .await
        .is(201);
}
