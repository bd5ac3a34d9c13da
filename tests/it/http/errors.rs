//! Requests that cannot be read, and the order in which the answers name faults.

use std::io::{Read, Write};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{
    CLAIMS, archive, invalid_parts, invalid_places, malformed, problem, replace, send,
};
use crate::support::app::{Answer, App, KEY, Stack, on_every_stack};

const POLICY: &str = "/v1/policies/benefit";

/// Requests that take a body.
fn bodied() -> [(Method, &'static str); 4] {
    [
        (Method::POST, CLAIMS),
        (Method::PUT, POLICY),
        (Method::POST, "/v1/keys"),
        (Method::POST, "/v1/reconciliations"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_json_is_malformed() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let deep_metadata = format!(r#"{{"subject": "a", "metadata": {{"a": {deep}}}}}"#);
    let bodies: &[&[u8]] = &[
        b"",
        b"{",
        b"subject=member-42",
        b"{'subject': 'a'}",
        br#"{"subject": "a"} {}"#,
        br#"{"subject": "a",}"#,
        br#"{"subject": "\ud800"}"#,
        b"{\"subject\": \"\xff\"}",
        b"\xef\xbb\xbf{\"subject\": \"a\"}",
        b"{\"subject\": \"a\0\"}",
        br#"{"subject": "a", "units": 1e999}"#,
        br#"{"subject": "a", "units": 01}"#,
        br#"{"subject": "a", "units": NaN}"#,
        br#"{"subject": "a", "subject": "b"}"#,
        b"null",
        b"[]",
        br#" ["member-42", 1, null, false, null]"#,
        b"\"a\"",
        deep.as_bytes(),
        deep_metadata.as_bytes(),
    ];
    for body in bodies {
        for (method, path) in bodied() {
            let answer = send(&app, method, path, body.to_vec()).await;
            problem(&answer, 400, "malformed");
        }
    }
    let grants = app.get("/v1/grants").await.json();
    assert_eq!(grants["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_limit_is_too_large() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let body = r#"{"subject": "a"}"#;
    let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
    let answer = send(&app, Method::POST, CLAIMS, padded(64 * 1024)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    for (method, path) in bodied() {
        let answer = send(&app, method, path, padded(64 * 1024 + 1)).await;
        problem(&answer, 413, "too-large");
        assert!(answer.text.contains("65536"), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_in_pieces_is_too_large_too() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let address = app.url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    let timeout = Some(std::time::Duration::from_secs(30));
    stream.set_read_timeout(timeout).expect("a timeout");
    let head = format!(
        "POST {CLAIMS} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("the head is sent");
    let piece = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    for _ in 0..17 {
        // The server can refuse the body before its end.
        if stream.write_all(piece.as_bytes()).is_err() {
            break;
        }
    }
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 413");
}

/// A proxy before perdiem may check another one of the fields than perdiem does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_keys_are_refused() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let right = format!("Bearer {KEY}");
    let wrong = "Bearer a-wrong-key".to_owned();
    for keys in [[&right, &wrong], [&wrong, &right], [&right, &right]] {
        for path in ["/v1/policies/benefit", "/metrics", "/livez"] {
            let request = app.bare_request(Method::GET, path);
            let request = keys
                .into_iter()
                .fold(request, |request, key| request.header("Authorization", key));
            malformed(&Answer::of(request).await, "several Authorization fields");
        }
    }
}

/// perdiem would read the compressed bytes as JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encoded_body_is_refused() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let body = r#"{"subject": "member-42"}"#;
    let claim = |encodings: &[&'static str]| {
        let request = app.request(Method::POST, CLAIMS).body(body);
        let fields = encodings.iter();
        fields.fold(request, |request, encoding| {
            request.header("Content-Encoding", *encoding)
        })
    };
    for encodings in [
        &["gzip"][..],
        &["br"],
        &["identity", "gzip"],
        &["gzip, identity"],
    ] {
        let answer = Answer::of(claim(encodings)).await;
        problem(&answer, 415, "encoded-body");
        assert_eq!(answer.header("accept-encoding"), Some("identity"));
    }
    Answer::of(claim(&["identity"])).await.is(201);
    assert_eq!(crate::http::used(&app, "benefit", "member-42").await, [1]);
}

/// Which of two members with one name counts would depend on the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_has_each_name_once() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let twice = r#"{"order": "A-17", "order": "A-18"}"#;
    let deep = r#"{"lines": [{"sku": 1, "sku": 1}]}"#;
    for metadata in [twice, deep] {
        let body = format!(r#"{{"subject": "a", "metadata": {metadata}}}"#);
        let answer = send(&app, Method::POST, CLAIMS, body).await;
        let [(place, detail)] = &invalid_parts(&answer)[..] else {
            panic!("one fault: {answer:?}");
        };
        assert_eq!(place, "#/metadata");
        assert!(detail.contains("twice in one object"), "{detail}");
    }
    let body =
        format!(r#"{{"claims": [{{"policy": "benefit", "subject": "a", "metadata": {twice}}}]}}"#);
    let batch = send(&app, Method::POST, "/v1/claims", body).await.is(200);
    assert_eq!(batch["items"][0]["status"], 422, "{batch}");
    // The same name in different objects is fine.
    let fine = r#"{"subject": "a", "metadata": {"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}}"#;
    send(&app, Method::POST, CLAIMS, fine).await.is(201);
}

/// Good bodies in which one byte is changed. No answer may be a 5xx.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_makes_the_service_fail() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let claim = r#"{"subject":"\u00e9","units":1,"dry_run":false,"metadata":{"a":[1.5e3,null]}}"#;
    let rule = r#"{"time_zone":"+08:00","limits":[{"max":3,"per":"day"}],"day_starts_at":"06:30",
        "week_starts_on":"monday","active_from":"2026-11-21T00:00:00.5Z","reason":"x"}"#;
    for (method, path, body) in [(Method::POST, CLAIMS, claim), (Method::PUT, POLICY, rule)] {
        let sent = send(&app, method.clone(), path, body).await;
        assert!(sent.status.is_success(), "{sent:?}");
        for index in 0..body.len() {
            let changed = b"\0\"{]9-\\\xff".map(|byte| {
                let mut changed = body.as_bytes().to_vec();
                changed[index] = byte;
                send(&app, method.clone(), path, changed)
            });
            for answer in join_all(changed).await {
                assert!(
                    !answer.status.is_server_error(),
                    "{index} of {body}: {answer:?}"
                );
            }
        }
    }
}

/// Each request also has the faults that come later in the order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_told_in_the_order_of_the_contract() {
    let app = App::on(Stack::Sqlite).await;
    // 400 comes before 422, in whatever part of the request each fault is.
    for (line, name, value) in [
        (
            "POST /v1/policies/No_Such/claims",
            "Idempotency-Key",
            "\"open",
        ),
        ("PUT /v1/policies/No_Such", "If-Match", "3"),
        ("DELETE /v1/policies/No_Such?why=x", "If-Match", "3"),
        (
            "GET /v1/policies/No_Such/versions?what=x",
            "X-Request-Id",
            "",
        ),
        (
            "GET /v1/policies/No_Such/windows?what=x",
            "X-Request-Id",
            "",
        ),
    ] {
        let request = app.line(KEY, line, &Value::Null).header(name, value);
        problem(&Answer::of(request.body("{")).await, 400, "malformed");
    }
    // 422 comes before 404.
    let body = json!({ "subject": "" });
    let answer = app.claim_under("nothing", body, None).await;
    assert_eq!(invalid_places(&answer), ["#/subject"]);
    let wrong = json!({ "limits": [{ "max": -1, "per": "day" }] });
    let line = "PUT /v1/policies/nothing/overrides/a";
    let answer = app.ask(line, wrong).await;
    assert_eq!(invalid_places(&answer), ["#/limits/0/max"]);
    let answer = app.get("/v1/policies/nothing/windows?per=eon").await;
    assert_eq!(invalid_places(&answer), ["per"]);
    let answer = app.get("/v1/grants?policy=nothing&limit=0").await;
    assert_eq!(invalid_places(&answer), ["limit"]);
    // 412 comes before a missing reason.
    app.benefit(3, "GMT+8").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let stale = ("If-Match", "\"9\"");
    let answer = app.ask_with(stale, "PUT /v1/policies/benefit", rule).await;
    problem(&answer, 412, "precondition-failed");
    // 404 comes before 412.
    let line = "DELETE /v1/policies/nothing?reason=x";
    let answer = app.ask_with(stale, line, Value::Null).await;
    problem(&answer, 404, "unknown-policy");
}

on_every_stack!(a_claims_faults_are_told_in_the_order_of_the_contract);

async fn a_claims_faults_are_told_in_the_order_of_the_contract(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    replace(&app, json!({ "limits": [{ "max": 5, "per": "day" }] })).await;
    let body = json!({ "subject": "member-42", "units": 4 });
    let first = app.claim_body(body.clone(), Some("order-1")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let other = json!({ "subject": "member-42", "units": 5 });

    // The retry of a key comes before every fault that the policy causes. So does another claim
    // with the same key.
    let told_first = async || {
        let again = app.claim_body(body.clone(), Some("order-1")).await;
        assert_eq!((again.status.as_u16(), &again.text), (200, &first.text));
        let again = app.claim_body(other.clone(), Some("order-1")).await;
        problem(&again, 422, "idempotency-key-reused");
    };
    told_first().await;
    // The units are above a max that was lowered.
    replace(&app, json!({ "limits": [{ "max": 1, "per": "day" }] })).await;
    told_first().await;
    for key in [None, Some("order-2")] {
        let answer = app.claim_body(body.clone(), key).await;
        assert_eq!(invalid_places(&answer), ["#/units"]);
    }
    // 409 comes before the fault of the units.
    app.pause(true).await.is(200);
    told_first().await;
    for key in [None, Some("order-2")] {
        let answer = app.claim_body(body.clone(), key).await;
        problem(&answer, 409, "policy-inactive");
    }
    // 404 comes before 409.
    archive(&app).await;
    told_first().await;
    for key in [None, Some("order-2")] {
        let answer = app.claim_body(body.clone(), key).await;
        problem(&answer, 404, "unknown-policy");
    }
    // 422 for a claim that is wrong in itself comes before the retry.
    let wrong = json!({ "subject": "member-42", "units": 0 });
    let answer = app.claim_body(wrong, Some("order-1")).await;
    assert_eq!(invalid_places(&answer), ["#/units"]);
}
