//! Overrides: put, read, deleted and listed. Preconditions, and overrides that are wrong in
//! themselves.

use serde_json::{Value, json};

use crate::http::{archive, encoded, has_version, invalid_places, problem, replace};
use crate::support::app::{Answer, App, NOON, Stack};
use crate::support::desk::on_every_store;

const OVERRIDES: &str = "/v1/policies/benefit/overrides";
const OVERRIDE: &str = "/v1/policies/benefit/overrides/member-42";

fn per_day(max: u64) -> Value {
    json!({ "limits": [{ "max": max, "per": "day" }], "reason": "vip" })
}

async fn delete(app: &App, path: &str) -> Answer {
    app.ask(&format!("DELETE {path}"), Value::Null).await
}

on_every_store!(an_override_lives, an_archived_policy_keeps_its_overrides,);

async fn an_override_lives(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let is_none = async || {
        problem(&app.get(OVERRIDE).await, 404, "not-found");
        let deleted = delete(&app, &format!("{OVERRIDE}?reason=over")).await;
        problem(&deleted, 404, "not-found");
        assert_eq!(app.get(OVERRIDES).await.json()["items"], json!([]));
    };
    is_none().await;

    let body = json!({
        "limits": [{ "max": 10, "per": "day" }],
        "until": "2026-12-01T00:00:00.1234567+08:00",
    });
    let created = app.put_override("member-42", body.clone()).await;
    has_version(&created, 201, 1);
    assert_eq!(
        created.json(),
        json!({
            "policy": "benefit", "subject": "member-42", "version": 1,
            "limits": [{ "max": 10, "per": "day" }],
            "until": "2026-11-30T16:00:00.123456Z",
            "changed_at": NOON, "changed_by": "PERDIEM_ADMIN_KEY", "reason": null,
        })
    );
    let read = app.get(OVERRIDE).await;
    has_version(&read, 200, 1);
    assert_eq!(read.json(), created.json());
    let listed = app.get(OVERRIDES).await.json();
    assert_eq!(listed["items"], json!([created.json()]));

    // The same override again is no change and needs no reason.
    clock.advance(chrono::TimeDelta::hours(1));
    let again = app.put_override("member-42", body.clone()).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, created.json()));
    // A change needs a reason and makes a version.
    let mut changed = body;
    changed["until"] = Value::Null;
    let answer = app.put_override("member-42", changed.clone()).await;
    assert_eq!(invalid_places(&answer), ["#/reason"]);
    changed["reason"] = json!("for good");
    let replaced = app.put_override("member-42", changed).await;
    has_version(&replaced, 200, 2);
    let replaced = replaced.json();
    assert_eq!(replaced["until"], Value::Null);
    assert_eq!(replaced["reason"], "for good");
    assert_eq!(app.get(OVERRIDE).await.json(), replaced);

    // A deletion also needs a reason.
    let deleted = delete(&app, &format!("{OVERRIDE}?reason=over")).await;
    let mut expected = replaced;
    expected["version"] = json!(3);
    expected["reason"] = json!("over");
    assert_eq!((deleted.status.as_u16(), deleted.json()), (200, expected));
    is_none().await;
    // After the deletion, a new override is a new version and needs no reason.
    let mut fresh = per_day(2);
    fresh["reason"] = Value::Null;
    let created = app.put_override("member-42", fresh).await;
    has_version(&created, 201, 4);
    // A subject can be any text.
    for subject in ["a/b", "ä ö", "%2F", "\u{1f600}"] {
        let path = format!("{OVERRIDES}/{}", encoded(subject));
        let put = app.ask(&format!("PUT {path}"), per_day(1)).await;
        assert_eq!(put.is(201)["subject"], subject);
        assert_eq!(app.get(&path).await.json()["subject"], subject);
        assert_eq!(delete(&app, &format!("{path}?reason=x")).await.status, 200);
    }
}

async fn an_archived_policy_keeps_its_overrides(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    app.override_day("member-42", 1).await;
    archive(&app).await;
    for answer in [
        app.put_override("member-42", per_day(2)).await,
        app.get(OVERRIDE).await,
        app.get(OVERRIDES).await,
        app.delete_override("member-42").await,
        app.claim("member-42", None).await,
    ] {
        problem(&answer, 404, "unknown-policy");
    }
    app.benefit(5, "GMT+8").await;
    assert_eq!(app.get(OVERRIDE).await.at("/limits/0/max"), 1);
    // An override of a limit that the policy no longer has does nothing. The override works again
    // when the limit returns.
    let weekly = json!({ "limits": [{ "max": 9, "per": "week" }], "orphaned_overrides": "keep" });
    replace(&app, weekly).await;
    assert_eq!(app.claim("member-42", None).await.at("/limits/0/max"), 9);
    app.benefit(5, "GMT+8").await;
    problem(&app.claim("member-42", None).await, 429, "quota-exceeded");
}
