//! The query of every request: an unknown parameter is refused, with the nearest known name.

use reqwest::Method;

use crate::http::problem;
use crate::http::v1::keys::{make_role, with};
use crate::support::app::{Answer, App, Stack};
use crate::support::operations::operations;

/// Sends a query that is refused, and returns the detail of the answer.
async fn refused(app: &App, method: &Method, path: &str, query: &str) -> String {
    let path = format!("{path}?{query}");
    let answer = Answer::of(app.request(method.clone(), &path)).await;
    let problem = problem(&answer, 400, "malformed");
    let detail = problem["detail"].as_str().expect("a detail").to_owned();
    assert!(!detail.contains("deserialize"), "{path}: {detail}");
    detail
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_ignores_a_parameter() {
    let app = App::on(Stack::Sqlite).await;
    for operation in operations() {
        let method = &operation.method;
        let path = operation.filled();
        let told = refused(&app, method, &path, "no-such-parameter=1").await;
        assert!(told.contains("no-such-parameter"), "{path}: {told}");
        let told = refused(&app, method, &path, "no-%FF=1").await;
        assert!(told.contains("UTF-8"), "{path}: {told}");
        // `metadata.<name>` takes any name, so a longer name is not wrong.
        let fixed = |name: &&str| !name.contains('<');
        for name in operation.parameters("query").into_iter().filter(fixed) {
            let told = refused(&app, method, &path, &format!("{name}x=1")).await;
            let nearest = format!("the nearest known name is {name};");
            assert!(told.contains(&nearest), "{path}: {told}");
            let told = refused(&app, method, &path, &format!("{name}=a&{name}=a")).await;
            assert!(told.contains(name), "{path}: {told}");
            let told = refused(&app, method, &path, &format!("{name}=%FF")).await;
            assert!(told.contains("UTF-8"), "{path}: {told}");
        }
    }
    for wrong in ["metadata=1", "metadata.=1", "metadate.a=1"] {
        let told = refused(&app, &Method::GET, "/v1/entries", wrong).await;
        assert!(
            told.contains("nearest known name is metadata.<name>;"),
            "{told}"
        );
    }
    let told = refused(
        &app,
        &Method::GET,
        "/v1/grants",
        "metadata.a=1&metadata.a=2",
    )
    .await;
    assert!(told.contains("metadata.a is repeated"), "{told}");
    let told = refused(&app, &Method::GET, "/docs/swagger-ui.css", "v=1").await;
    assert!(told.contains("\"v\""), "{told}");
    let head = app.request(Method::HEAD, "/v1/grants?polcy=benefit");
    assert_eq!(Answer::of(head).await.status, 400);
}

/// A key without the right gets 401 or 403, whatever the query is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_the_query_come_after_those_of_the_key() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let claimer = make_role(&app, "claim", None).await.secret;
    let confined = make_role(&app, "audit", Some("benefit")).await.secret;
    for query in ["date=2026-11-21T00:00:00Z", "a=%FF"] {
        let path = format!("/v1/grants?{query}");
        let unauthorized = Answer::of(app.bare_request(Method::GET, &path)).await;
        problem(&unauthorized, 401, "unauthorized");
        for secret in [&claimer, &confined] {
            let forbidden = Answer::of(with(&app, secret, Method::GET, &path)).await;
            problem(&forbidden, 403, "forbidden");
        }
        let path = format!("/v1/policies/benefit/subjects/member-42?{query}");
        let malformed = Answer::of(with(&app, &claimer, Method::GET, &path)).await;
        problem(&malformed, 400, "malformed");
    }
}
