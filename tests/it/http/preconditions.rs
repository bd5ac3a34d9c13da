//! `If-Match` and `If-None-Match`: a client learns that somebody else has changed the resource.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::http::{all_items, has_version, invalid_places, problem};
use crate::support::app::{Answer, App, Stack};
use crate::support::desk::on_every_store;

/// A policy, and an override of another policy.
const PATHS: [&str; 2] = [
    "/v1/policies/other",
    "/v1/policies/benefit/overrides/member-42",
];

/// The body for a `PUT` at a path.
fn body(path: &str, max: u64) -> Value {
    let limits = json!([{ "max": max, "per": "day" }]);
    if path == PATHS[0] {
        json!({ "time_zone": "UTC", "limits": limits, "reason": "x" })
    } else {
        json!({ "limits": limits, "reason": "x" })
    }
}

/// Checks a 412 that shows the current version.
#[track_caller]
fn fails(answer: &Answer, version: Option<&str>) {
    problem(answer, 412, "precondition-failed");
    assert_eq!(answer.header("etag"), version, "{answer:?}");
}

on_every_store!(preconditions);

async fn preconditions(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    for path in PATHS {
        let put = async |max: u64, field: &str, value: &str| {
            let line = format!("PUT {path}");
            app.ask_with((field, value), &line, body(path, max)).await
        };
        let put_if = async |max: u64, etag: &str| put(max, "If-Match", etag).await;
        let put_new = async |max: u64| put(max, "If-None-Match", "*").await;
        let delete_if = async |etag: &str| {
            let line = format!("DELETE {path}?reason=x");
            app.ask_with(("If-Match", etag), &line, Value::Null).await
        };
        for etag in ["*", "\"1\""] {
            fails(&put_if(3, etag).await, None);
        }
        has_version(&put_new(3).await, 201, 1);
        fails(&put_new(4).await, Some("\"1\""));
        has_version(&put_if(4, "\"1\"").await, 200, 2);
        // A stale version fails, also where the limits are already the requested ones.
        for max in [4, 5] {
            fails(&put_if(max, "\"1\"").await, Some("\"2\""));
        }
        has_version(&put_if(5, "\"1\", \"2\"").await, 200, 3);
        has_version(&put_if(6, "*").await, 200, 4);
        // A weak `ETag` never matches, and the `ETag` of another service never matches.
        for etag in ["W/\"4\"", "\"abc\"", "\"04x\"", "\"\""] {
            fails(&put_if(7, etag).await, Some("\"4\""));
        }
        let fields = ["If-Match", "If-Match", "If-None-Match"];
        for (field, value) in fields.into_iter().zip(["4", "", "\"4\""]) {
            let answer = put(7, field, value).await;
            assert_eq!(invalid_places(&answer), [field], "{value}");
        }
        fails(&delete_if("\"3\"").await, Some("\"4\""));
        delete_if("\"4\"").await.is(200);
        // An archived policy or a deleted override does not exist.
        assert_eq!(delete_if("\"5\"").await.status, 404);
        fails(&put_if(3, "\"5\"").await, None);
        has_version(&put_new(3).await, 201, 6);
    }
}

/// Without a precondition the last writer wins. With the same precondition one of many writers
/// wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_writers_with_the_same_etag_wins() {
    let app = App::on(Stack::Postgres).await;
    let path = PATHS[0];
    let line = format!("PUT {path}");
    app.ask(&line, body(path, 1)).await.is(201);
    let etag = ("If-Match", "\"1\"");
    let writers = (2..12).map(|max| app.ask_with(etag, &line, body(path, max)));
    let answers = join_all(writers).await;
    let with = |status: u16| {
        answers
            .iter()
            .filter(|answer| answer.status == status)
            .count()
    };
    assert_eq!([with(200), with(412)], [1, 9]);
    let writers = (2..12).map(|max| app.ask(&line, body(path, max)));
    for answer in join_all(writers).await {
        answer.is(200);
    }
    let versions = all_items(&app, &format!("{path}/versions")).await;
    let newest = app.get(path).await.is(200);
    assert_eq!(versions[0]["limits"], newest["limits"]);
    assert_eq!(newest["version"], versions.len());
}
