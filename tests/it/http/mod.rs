//! The HTTP API, as clients use it. `v1` mirrors `src/http/v1`. The files beside `v1` test what
//! every request has.

mod bounds;
mod connections;
mod docs;
mod errors;
mod fields;
mod floods;
mod gate;
mod health;
mod metadata;
mod metrics;
mod overload;
mod pages;
mod plain_claims;
mod preconditions;
mod queries;
mod questions;
mod rate_limits;
mod reads;
mod refusals;
mod request_id;
mod routes;
mod shares;
mod subjects;
mod tls;
mod traces;
pub mod v1;
mod wire;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{Answer, App};

const PROBLEM: &str = "application/problem+json";
const CLAIMS: &str = "/v1/policies/benefit/claims";

/// The problem document of an answer. Checks the status and the kind.
#[track_caller]
pub fn problem(answer: &Answer, status: u16, kind: &str) -> Value {
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some(PROBLEM), "{answer:?}");
    assert!(answer.header("x-request-id").is_some(), "{answer:?}");
    let problem = answer.json();
    let type_of = problem["type"].as_str().expect("a type");
    let page = match kind {
        "quota-exceeded" => "https://iana.org/assignments/http-problem-types",
        _ => "/docs/problems",
    };
    assert_eq!(type_of, format!("{page}#{kind}"), "{answer:?}");
    assert_eq!(problem["status"], status);
    assert_eq!(problem["code"], kind, "{answer:?}");
    assert_eq!(problem["page"], format!("/docs/problems#{kind}"));
    assert_eq!(
        problem["request_id"].as_str(),
        answer.header("x-request-id")
    );
    for name in ["title", "detail"] {
        assert!(problem[name].as_str().is_some_and(|text| !text.is_empty()));
    }
    problem
}

/// The places that a 422 names, each with its fault.
#[track_caller]
pub fn invalid_parts(answer: &Answer) -> Vec<(String, String)> {
    let problem = problem(answer, 422, "invalid");
    let parts = problem["errors"].as_array().expect("errors");
    let part = |part: &Value| {
        let place = part["pointer"].as_str().or(part["parameter"].as_str());
        let detail = part["detail"].as_str();
        (
            place.expect("a place").to_owned(),
            detail.expect("a detail").to_owned(),
        )
    };
    parts.iter().map(part).collect()
}

/// The places that a 422 names.
#[track_caller]
pub fn invalid_places(answer: &Answer) -> Vec<String> {
    let parts = invalid_parts(answer);
    parts.into_iter().map(|(place, _)| place).collect()
}

/// Checks a 400 whose detail has these words.
#[track_caller]
fn malformed(answer: &Answer, words: &str) {
    let problem = problem(answer, 400, "malformed");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains(words), "{words}: {detail}");
}

/// Checks an answer whose `ETag` shows this version.
#[track_caller]
pub fn has_version(answer: &Answer, status: u16, version: u32) {
    assert_eq!(answer.status, status, "{answer:?}");
    let etag = format!("\"{version}\"");
    assert_eq!(answer.header("etag"), Some(etag.as_str()), "{answer:?}");
}

pub fn items(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["items"].as_array().expect("items").clone()
}

/// The units that a subject has used in each limit's window.
async fn used(app: &App, policy: &str, subject: &str) -> Vec<u64> {
    let usage = app
        .get(&format!("/v1/policies/{policy}/subjects/{subject}"))
        .await
        .json();
    let limits = usage["limits"].as_array().expect("limits").iter();
    limits
        .map(|limit| limit["used"].as_u64().expect("units"))
        .collect()
}

/// A copy of a body in which one member is set.
fn with_member(body: &Value, name: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[name] = value;
    body
}

/// Sends a body without a change, with the admin key.
async fn send(app: &App, method: Method, path: &str, body: impl Into<reqwest::Body>) -> Answer {
    Answer::of(app.request(method, path).body(body)).await
}

/// Archives `benefit`.
pub async fn archive(app: &App) -> Answer {
    let path = "/v1/policies/benefit?reason=it+is+over";
    let answer = Answer::of(app.request(Method::DELETE, path)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// Replaces `benefit`: 3 per day, with some members set.
pub async fn replace(app: &App, changes: Value) -> Answer {
    let mut body = json!({
        "time_zone": "Asia/Shanghai",
        "limits": [{ "max": 3, "per": "day" }],
        "reason": "a test",
    });
    for (name, value) in changes.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let answer = app.put_policy("benefit", body).await;
    assert!(answer.status.is_success(), "{answer:?}");
    answer
}

/// A text for a query or for a segment of a path.
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// Every item of a list, page by page.
pub async fn all_items(app: &App, path: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = None::<String>;
    loop {
        let sign = if path.contains('?') { '&' } else { '?' };
        let path = match &cursor {
            None => path.to_owned(),
            Some(cursor) => format!("{path}{sign}cursor={cursor}"),
        };
        let answer = app.get(&path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = answer.json();
        items.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => {
                assert_ne!(
                    cursor.as_deref(),
                    Some(next),
                    "{path} gives the same cursor again"
                );
                cursor = Some(next.to_owned());
            }
            None => return items,
        }
    }
}

/// The values of one member, which is a text, in all items.
fn column<'a>(items: &'a [Value], name: &str) -> Vec<&'a str> {
    let text = |item: &'a Value| item[name].as_str().expect("a text");
    items.iter().map(text).collect()
}
