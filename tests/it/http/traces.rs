//! The trace of a request (W3C Trace Context): in its problem document, and in the log.

use std::io::{Read, Seek};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::tempfile;

use super::problem;
use crate::support::app::{Answer, App, Ground, Stack};
use crate::support::process::Process;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn traceparent() -> String {
    format!("00-{TRACE}-b7ad6b7169203331-01")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_problem_names_the_trace_of_its_request() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1, "UTC").await;
    let body = json!({ "subject": "a" });
    app.claim_body(body.clone(), None).await.is(201);
    let asks = [
        (
            Method::POST,
            "/v1/policies/benefit/claims",
            429,
            "quota-exceeded",
        ),
        (Method::GET, "/v1/policies/nothing", 404, "unknown-policy"),
        (Method::GET, "/nowhere", 404, "not-found"),
    ];
    for (method, path, status, kind) in asks {
        let request = || app.request(method.clone(), path).json(&body);
        let traced = Answer::of(request().header("traceparent", traceparent())).await;
        assert_eq!(problem(&traced, status, kind)["trace_id"], TRACE);
        for field in [None, Some("00-no-trace-01")] {
            let mut request = request();
            if let Some(field) = field {
                request = request.header("traceparent", field);
            }
            let answer = Answer::of(request).await;
            assert_eq!(problem(&answer, status, kind).get("trace_id"), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_names_the_trace_of_a_request() {
    let ground = Ground::new(Stack::Sqlite);
    let mut log = tempfile().expect("a file");
    let into = log.try_clone().expect("a file");
    let settings = [
        ("PERDIEM_LOG_FORMAT", "json"),
        ("PERDIEM_LOG", "debug,sqlx=off"),
    ];
    let process = Process::try_start_logging(&ground.database_url, &settings, into);
    let mut process = process.expect("the process starts");
    let asked = process.request(Method::GET, "/v1/policies");
    let asked = asked
        .header("traceparent", traceparent())
        .header("X-Request-Id", "mine");
    Answer::of(asked).await.is(200);
    process.terminate();
    process.wait();
    let mut text = String::new();
    log.rewind().expect("a file");
    log.read_to_string(&mut text).expect("a log");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let ended: Vec<Value> = lines
        .filter(|line| line["message"] == "a request ended" && line["path"] == "/v1/policies")
        .collect();
    let [ended] = &ended[..] else {
        panic!("one line: {text}");
    };
    assert_eq!(ended["span"]["request_id"], "mine");
    assert_eq!(ended["span"]["trace_id"], TRACE);
}
