//! Fields of the header that change what a request means: a request takes them, or is refused.

use reqwest::Method;
use serde_json::json;

use super::{CLAIMS, problem};
use crate::support::app::{Answer, App, Stack};
use crate::support::operations::operations;

const DROPPED: [(&str, &str); 8] = [
    ("If-Match", "\"1\""),
    ("If-None-Match", "*"),
    ("If-Unmodified-Since", "Fri, 27 Nov 2026 18:00:00 GMT"),
    ("Content-Range", "bytes 0-1/2"),
    ("Prefer", "return=minimal"),
    ("X-HTTP-Method", "DELETE"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Method-Override", "DELETE"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_field_that_it_would_drop_is_refused() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1, "UTC").await;
    for (name, value) in DROPPED {
        let request = app.request(Method::POST, CLAIMS).header(name, value);
        let answer = Answer::of(request.json(&json!({ "subject": "a" }))).await;
        let told = problem(&answer, 400, "malformed");
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.contains(&name.to_lowercase()), "{detail}");
    }
    app.claim("a", None).await.is(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_takes_such_a_field_or_refuses_it() {
    let app = App::on(Stack::Sqlite).await;
    let mut refused = 0;
    for operation in operations() {
        let taken = operation.parameters("header");
        let is_repeatable = operation.method.is_idempotent();
        let key = ("Idempotency-Key", "a");
        for (name, value) in DROPPED.into_iter().chain([key]) {
            let is_needless = match name {
                "If-None-Match" => operation.method.is_safe(),
                "Idempotency-Key" => is_repeatable,
                _ => false,
            };
            if is_needless || taken.contains(&name) {
                continue;
            }
            let request = app.request(operation.method.clone(), &operation.filled());
            let answer = Answer::of(request.header(name, value)).await;
            problem(&answer, 400, "malformed");
            refused += 1;
        }
    }
    assert!(refused > 200, "{refused}");
}

/// A second key, made by a retry, would be known to nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_not_made_under_an_idempotency_key() {
    let app = App::on(Stack::Sqlite).await;
    let request = app
        .request(Method::POST, "/v1/keys")
        .header("Idempotency-Key", "a");
    let body = json!({ "name": "shop", "role": "claim" });
    problem(&Answer::of(request.json(&body)).await, 400, "malformed");
    let keys = app.get("/v1/keys").await.json();
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(0));
}

/// What is safe to repeat takes the field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_may_have_an_idempotency_key() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1, "UTC").await;
    let hold = json!({ "subject": "a", "hold_seconds": 60 });
    let hold = app.claim_body(hold, None).await.grant_id();
    for status in [201, 200] {
        let path = format!("/v1/grants/{hold}/confirmation");
        let request = app
            .request(Method::POST, &path)
            .header("Idempotency-Key", "a");
        Answer::of(request).await.is(status);
    }
}
