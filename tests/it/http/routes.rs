//! Every route: who may use the route, and which methods the route has.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde_json::json;

use crate::http::problem;
use crate::http::v1::keys::client_from;
use crate::support::app::{Answer, App, KEY, Stack, client_builder};
use crate::support::operations::{OPEN, operations};

/// The methods of each path, with values in place of the templates.
fn routes() -> BTreeMap<String, BTreeSet<Method>> {
    let mut routes: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for operation in operations() {
        routes
            .entry(operation.filled())
            .or_default()
            .insert(operation.method);
    }
    routes
}

/// Every route except the open ones needs a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_are_no_key_open_nothing() {
    let app = App::on(Stack::Sqlite).await;
    let wrong_credentials = [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some("Bearer wrong".to_owned()),
        Some(format!("Basic {KEY}")),
        Some(KEY.to_owned()),
        Some(format!("Bearer {KEY}x")),
        Some(format!("Bearer \"{KEY}\"")),
        Some("Bearer \u{fc}".to_owned()),
    ];
    for (address, operation) in operations().into_iter().enumerate() {
        let method = operation.method.clone();
        let path = operation.filled();
        if OPEN.contains(&path.as_str()) {
            assert_eq!(
                Answer::of(app.bare_request(method, &path)).await.status,
                200,
                "{path}"
            );
            continue;
        }
        // Each route is called from another address: an address with many wrong keys is slowed
        // down.
        let client = client_from([3, u8::try_from(address).expect("an address")]);
        for credentials in &wrong_credentials {
            // 401 comes before every other fault: this body and this query are also wrong.
            let url = format!("{}{path}?no-such-parameter=1", app.url);
            let mut request = client.request(method.clone(), url).body("{");
            if let Some(credentials) = credentials {
                let value = HeaderValue::from_bytes(credentials.as_bytes());
                request = request.header(AUTHORIZATION, value.expect("a value"));
            }
            let answer = Answer::of(request).await;
            problem(&answer, 401, "unauthorized");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            assert!(!answer.text.contains(KEY));
        }
    }
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let request = app.bare_request(Method::GET, "/v1/policies");
        let answer = Answer::of(request.header(AUTHORIZATION, format!("{scheme} {KEY}"))).await;
        assert_eq!(answer.status, 200, "{scheme}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_methods_are_refused_with_those_that_are_allowed() {
    let app = App::on(Stack::Sqlite).await;
    let every = [
        Method::GET,
        Method::PUT,
        Method::POST,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
    ];
    for (path, methods) in routes() {
        for method in every.iter().filter(|method| !methods.contains(*method)) {
            let answer = Answer::of(app.request(method.clone(), &path)).await;
            problem(&answer, 405, "method-not-allowed");
            let allow = answer.header("allow").expect("Allow").split(',');
            let mut allowed: BTreeSet<Method> = allow
                .map(|method| method.trim().parse().expect("a method"))
                .collect();
            let has_head = allowed.remove(&Method::HEAD);
            assert_eq!(has_head, methods.contains(&Method::GET), "{path}");
            assert_eq!(allowed, methods, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_get_without_the_body() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    for path in ["/livez", "/v1/policies/benefit", "/v1/grants", "/docs"] {
        let get = app.get(path).await;
        let head = Answer::of(app.request(Method::HEAD, path)).await;
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"));
        assert_eq!(head.header("etag"), get.header("etag"));
        assert!(!get.text.is_empty() && head.text.is_empty(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_leads_to_the_documentation() {
    let app = App::on(Stack::Sqlite).await;
    let client = client_builder().redirect(reqwest::redirect::Policy::none());
    let request = client
        .build()
        .expect("a client")
        .get(format!("{}/", app.url));
    let answer = Answer::of(request).await;
    assert_eq!(answer.status, 307);
    assert_eq!(answer.header("location"), Some("/docs"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elsewhere_is_nothing() {
    let app = App::on(Stack::Sqlite).await;
    for path in [
        "/v1",
        "/v1/",
        "/v1/policies/",
        "/v1/policies/a/b",
        "/v1/policies/benefit/claims/",
        "/v1/policies/benefit/subjects/a/b",
        "/v2/policies",
        "/docs/nothing.js",
        "/docs/..%2f..%2fCargo.toml",
        "/docs/%2e%2e%2findex.html",
        "//livez",
        "/LIVEZ",
        "/%00",
        "/v1/grants/%FF/x",
    ] {
        let answer = app.get(path).await;
        problem(&answer, 404, "not-found");
    }
    let answer = Answer::of(app.request(Method::POST, "/nowhere").json(&json!({}))).await;
    problem(&answer, 404, "not-found");
}
