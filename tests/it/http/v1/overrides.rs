//! Overrides: put, read, deleted; preconditions, lists, and what is wrong in itself.

use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{
    all_items, archive, column, encoded, has_version, invalid_places, problem, replace,
};
use crate::support::app::{Answer, App, NOON, Stack};
use crate::support::desk::on_every_store;

const OVERRIDES: &str = "/v1/policies/benefit/overrides";
const OVERRIDE: &str = "/v1/policies/benefit/overrides/member-42";

fn per_day(max: u64) -> Value {
    json!({ "limits": [{ "max": max, "per": "day" }], "reason": "vip" })
}

async fn put_if(app: &App, max: u64, header: (&str, &str)) -> Answer {
    let request = app.request(Method::PUT, OVERRIDE).json(&per_day(max));
    Answer::of(request.header(header.0, header.1)).await
}

async fn delete(app: &App, path: &str) -> Answer {
    Answer::of(app.request(Method::DELETE, path)).await
}

on_every_store!(
    an_override_lives,
    preconditions,
    overrides_are_listed_page_by_page,
    an_archived_policy_keeps_its_overrides,
);

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

    // The same again is no change, and needs no reason.
    clock.advance(chrono::TimeDelta::hours(1));
    let again = app.put_override("member-42", body.clone()).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, created.json()));
    // A change needs one, and makes a version.
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

    // To delete it needs a reason too.
    assert_eq!(invalid_places(&delete(&app, OVERRIDE).await), ["reason"]);
    let path = format!("{OVERRIDE}?reason={}", "x".repeat(1001));
    assert_eq!(invalid_places(&delete(&app, &path).await), ["reason"]);
    let deleted = delete(&app, &format!("{OVERRIDE}?reason=over")).await;
    let mut expected = replaced;
    expected["version"] = json!(3);
    expected["reason"] = json!("over");
    assert_eq!((deleted.status.as_u16(), deleted.json()), (200, expected));
    is_none().await;
    // Another one is a new version, without a reason.
    let mut fresh = per_day(0);
    fresh["reason"] = Value::Null;
    let created = app.put_override("member-42", fresh).await;
    has_version(&created, 201, 4);
    // Subjects are any text.
    for subject in ["a/b", "ä ö", "%2F", "\u{1f600}"] {
        let path = format!("{OVERRIDES}/{}", encoded(subject));
        let put = Answer::of(app.request(Method::PUT, &path).json(&per_day(1))).await;
        assert_eq!(put.status, 201, "{put:?}");
        assert_eq!(put.json()["subject"], subject);
        assert_eq!(app.get(&path).await.json()["subject"], subject);
        assert_eq!(delete(&app, &format!("{path}?reason=x")).await.status, 200);
    }
}

async fn preconditions(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    for etag in ["*", "\"1\""] {
        let answer = put_if(&app, 3, ("If-Match", etag)).await;
        problem(&answer, 412, "precondition-failed");
    }
    assert_eq!(put_if(&app, 3, ("If-None-Match", "*")).await.status, 201);
    let answer = put_if(&app, 4, ("If-None-Match", "*")).await;
    problem(&answer, 412, "precondition-failed");
    assert_eq!(answer.header("etag"), Some("\"1\""));
    assert_eq!(put_if(&app, 4, ("If-Match", "\"1\"")).await.status, 200);
    for max in [4, 5] {
        let answer = put_if(&app, max, ("If-Match", "\"1\"")).await;
        problem(&answer, 412, "precondition-failed");
        assert_eq!(answer.header("etag"), Some("\"2\""));
    }
    assert_eq!(put_if(&app, 5, ("If-Match", "*")).await.status, 200);
    let unquoted = put_if(&app, 5, ("If-Match", "3")).await;
    assert_eq!(invalid_places(&unquoted), ["If-Match"]);
    let delete_if = async |etag: &str| {
        let path = format!("{OVERRIDE}?reason=x");
        Answer::of(app.request(Method::DELETE, &path).header("If-Match", etag)).await
    };
    problem(&delete_if("\"2\"").await, 412, "precondition-failed");
    assert_eq!(delete_if("\"3\"").await.status, 200);
    // A deleted one does not exist.
    let answer = put_if(&app, 3, ("If-Match", "\"4\"")).await;
    problem(&answer, 412, "precondition-failed");
    assert_eq!(answer.header("etag"), None);
    problem(&delete_if("\"4\"").await, 404, "not-found");
    assert_eq!(put_if(&app, 3, ("If-None-Match", "*")).await.status, 201);
}

async fn overrides_are_listed_page_by_page(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let subject = |number: usize| format!("member-{number}");
    for number in 0..7 {
        app.override_day(&subject(number), number as u64).await;
        app.override_day(&subject(number), number as u64 + 1).await;
    }
    app.put_policy(
        "other",
        json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] }),
    )
    .await;
    assert_eq!(app.delete_override(&subject(3)).await.status, 200);
    let whole = all_items(&app, OVERRIDES).await;
    let mut subjects = column(&whole, "subject");
    subjects.sort_unstable();
    let wanted: Vec<String> = (0..7).filter(|number| *number != 3).map(subject).collect();
    assert_eq!(subjects, wanted);
    for limit in [1, 2, 5, 6, 7] {
        let items = all_items(&app, &format!("{OVERRIDES}?limit={limit}")).await;
        assert_eq!(items, whole, "{limit} a page");
    }
    let page = app.get(&format!("{OVERRIDES}?limit=2")).await.json();
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    let others = "/v1/policies/other/overrides";
    assert_eq!(app.get(others).await.json()["items"], json!([]));
    for path in [
        format!("{others}?cursor={cursor}"),
        format!("/v1/policies?cursor={cursor}"),
        format!("{OVERRIDES}?cursor={}", &cursor[1..]),
    ] {
        assert_eq!(invalid_places(&app.get(&path).await), ["cursor"], "{path}");
    }
}

async fn an_archived_policy_keeps_its_overrides(stack: Stack) {
    let app = App::on(stack).await;
    let put = app.put_override("member-42", per_day(1)).await;
    problem(&put, 404, "unknown-policy");
    problem(&app.get(OVERRIDES).await, 404, "unknown-policy");
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
    assert_eq!(app.get(OVERRIDE).await.json()["limits"][0]["max"], 1);
    let claim = app.claim("member-42", None).await.json();
    assert_eq!(claim["limits"][0]["max"], 1);
    // A limit that the policy lost does nothing, and comes back with it.
    replace(&app, json!({ "limits": [{ "max": 9, "per": "week" }] })).await;
    let claim = app.claim("member-42", None).await.json();
    assert_eq!(claim["limits"][0]["max"], 9);
    app.benefit(5, "GMT+8").await;
    problem(&app.claim("member-42", None).await, 429, "quota-exceeded");
}
