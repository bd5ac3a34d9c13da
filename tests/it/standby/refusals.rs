//! What an instance that only reads refuses.

use reqwest::Method;
use serde_json::json;

use super::Pair;
use crate::http::problem;
use crate::support::app::Answer;
use crate::support::operations::operations;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_changes_are_refused() {
    let pair = Pair::start().await;
    pair.is_followed().await;
    let mut refused = 0;
    for operation in operations() {
        let method = operation.method.clone();
        let path = operation.filled();
        if method == Method::GET || path.ends_with("/backtest") {
            continue;
        }
        let answer = Answer::of(pair.reader.request(method.clone(), &path)).await;
        let problem = problem(&answer, 503, "read-only");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("only reads"), "{detail}");
        assert!(detail.contains("/readyz"), "{detail}");
        // It will never be done here.
        assert_eq!(answer.header("retry-after"), None, "{method} {path}");
        let bare = Answer::of(pair.reader.bare_request(method, &path)).await;
        assert_eq!(bare.status, 401, "{bare:?}");
        refused += 1;
    }
    assert!(refused > 15, "{refused}");
    // A backtest reads.
    let draft = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let body = json!({ "policy": draft, "from": "2026-11-20", "to": "2026-11-23" });
    let line = "POST /v1/policies/benefit/backtest";
    let ours = pair.writer.ask(line, body.clone()).await.is(200);
    let theirs = pair.reader.ask(line, body).await.is(200);
    assert_eq!(ours, theirs);
}
