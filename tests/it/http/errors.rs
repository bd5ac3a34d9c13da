//! What is wrong in itself, and the order in which faults are told.

use std::io::{Read, Write};

use reqwest::Method;
use serde_json::{Value, json};

use super::{CLAIMS, archive, encoded, invalid_parts, invalid_places, problem, replace, send};
use crate::support::app::{Answer, App, KEY, Stack, on_every_stack};

const POLICY: &str = "/v1/policies/benefit";
/// 2^53 − 1.
const MOST: u64 = 9_007_199_254_740_991;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_json_is_malformed() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let deep_metadata = format!(r#"{{"subject": "a", "metadata": {{"a": {deep}}}}}"#);
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"subject=member-42".to_vec(),
        b"{'subject': 'a'}".to_vec(),
        br#"{"subject": "a"} {}"#.to_vec(),
        br#"{"subject": "a",}"#.to_vec(),
        br#"{"subject": "\ud800"}"#.to_vec(),
        b"{\"subject\": \"\xff\"}".to_vec(),
        b"\xef\xbb\xbf{\"subject\": \"a\"}".to_vec(),
        b"{\"subject\": \"a\0\"}".to_vec(),
        br#"{"subject": "a", "units": 1e999}"#.to_vec(),
        br#"{"subject": "a", "units": 01}"#.to_vec(),
        br#"{"subject": "a", "units": NaN}"#.to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        br#" ["member-42", 1, null, false, null]"#.to_vec(),
        b"\"a\"".to_vec(),
        deep.clone().into_bytes(),
        deep_metadata.into_bytes(),
    ];
    for body in bodies {
        for (method, path) in [(Method::POST, CLAIMS), (Method::PUT, POLICY)] {
            let answer = send(&app, method, path, body.clone()).await;
            problem(&answer, 400, "malformed");
        }
    }
    let grants = app.get("/v1/grants").await.json();
    assert_eq!(grants["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_fields_and_wrong_types_are_named() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let rule = |name: &str, value: Value| {
        let mut rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
        rule[name] = value;
        (Method::PUT, POLICY, rule)
    };
    let claim = |name: &str, value: Value| {
        let mut claim = json!({ "subject": "a" });
        claim[name] = value;
        (Method::POST, CLAIMS, claim)
    };
    for ((method, path, body), name) in [
        (rule("timezone", json!("UTC")), "timezone"),
        (rule("time_zone", json!(8)), "time_zone"),
        (rule("time_zone", Value::Null), "time_zone"),
        (rule("limits", json!({})), "limits"),
        (rule("limits", json!([3])), "limits[0]"),
        (rule("limits", json!([[3, "day"]])), "limits[0]"),
        (rule("limits", json!([{ "max": 3 }])), "per"),
        (rule("limits", json!([{ "per": "day" }])), "max"),
        (
            rule("limits", json!([{ "max": "3", "per": "day" }])),
            "limits[0].max",
        ),
        (
            rule("limits", json!([{ "max": 3.5, "per": "day" }])),
            "limits[0].max",
        ),
        (
            rule("limits", json!([{ "max": true, "per": "day" }])),
            "limits[0].max",
        ),
        (
            rule("limits", json!([{ "max": 3, "per": 1 }])),
            "limits[0].per",
        ),
        (
            rule("limits", json!([{ "max": 3, "per": "day", "burst": 1 }])),
            "burst",
        ),
        (rule("description", json!(1)), "description"),
        (rule("day_starts_at", json!(6)), "day_starts_at"),
        (rule("week_starts_on", json!(1)), "week_starts_on"),
        (rule("active_from", json!(0)), "active_from"),
        (rule("active_until", json!({})), "active_until"),
        (rule("paused", json!("no")), "paused"),
        (rule("mode", json!(1)), "mode"),
        (rule("durability", json!(1)), "durability"),
        (rule("on_ledger_outage", json!(1)), "on_ledger_outage"),
        (rule("reason", json!(1)), "reason"),
        (claim("subject", json!(42)), "subject"),
        (claim("subject", Value::Null), "subject"),
        (claim("units", json!("1")), "units"),
        (claim("units", json!(1.5)), "units"),
        (claim("units", json!([1])), "units"),
        (claim("hold_seconds", json!("60")), "hold_seconds"),
        (claim("dry_run", json!("true")), "dry_run"),
        (claim("metadata", json!([])), "metadata"),
        (claim("metadata", json!("a")), "metadata"),
        (claim("idempotency_key", json!("a")), "idempotency_key"),
        (claim("member", json!("a")), "member"),
    ] {
        let answer = send(&app, method, path, body.to_string()).await;
        let problem = problem(&answer, 400, "malformed");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(name), "{name}: {detail}");
    }
    let no_subject = send(&app, Method::POST, CLAIMS, "{}").await;
    let problem = problem(&no_subject, 400, "malformed");
    assert!(problem["detail"].as_str().unwrap().contains("subject"));
    let twice = r#"{"subject": "a", "subject": "b"}"#;
    let answer = send(&app, Method::POST, CLAIMS, twice).await;
    super::problem(&answer, 400, "malformed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_parameters_are_named() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    for (method, path) in [
        (Method::GET, "/v1/policies"),
        (Method::DELETE, POLICY),
        (Method::GET, "/v1/policies/benefit/versions"),
        (Method::GET, "/v1/policies/benefit/windows"),
        (Method::GET, "/v1/grants"),
        (Method::GET, "/v1/grants/export"),
    ] {
        let path = format!("{path}?subjekt=a");
        let answer = Answer::of(app.request(method, &path)).await;
        let problem = problem(&answer, 400, "malformed");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("subjekt"), "{path}: {detail}");
    }
    let answer = app.get("/v1/grants?subject=a&subject=b").await;
    problem(&answer, 400, "malformed");
    let answer = app.get("/v1/grants/export?format=csv&limit=1").await;
    problem(&answer, 400, "malformed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_limit_is_too_large() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let body = r#"{"subject": "a"}"#;
    let padded = |length: usize| format!("{body}{}", " ".repeat(length - body.len()));
    let answer = send(&app, Method::POST, CLAIMS, padded(64 * 1024)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let answer = send(&app, Method::POST, CLAIMS, padded(64 * 1024 + 1)).await;
    let told = problem(&answer, 413, "too-large");
    assert!(told["detail"].as_str().unwrap().contains("65536"));
    let answer = send(&app, Method::PUT, POLICY, padded(64 * 1024 + 1)).await;
    problem(&answer, 413, "too-large");
}

/// A body that comes in pieces does not say how long it is.
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
    stream.write_all(head.as_bytes()).expect("it is sent");
    let piece = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    for _ in 0..17 {
        // It may be refused before its end.
        if stream.write_all(piece.as_bytes()).is_err() {
            break;
        }
    }
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 413");
}

/// Good bodies with one byte changed, whatever that makes of them.
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
            for byte in *b"\0\"{]9-\\\xff" {
                let mut changed = body.as_bytes().to_vec();
                changed[index] = byte;
                let answer = send(&app, method.clone(), path, changed.clone()).await;
                let changed = String::from_utf8_lossy(&changed);
                assert!(!answer.status.is_server_error(), "{changed}: {answer:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_out_of_bounds_in_a_policy_are_told_with_their_places() {
    let app = App::on(Stack::Sqlite).await;
    let limit = |max: Value| json!([{ "max": max, "per": "day" }]);
    let long = "x".repeat(1001);
    for (name, value, pointer, words) in [
        (
            "time_zone",
            json!("Asia/Shangai"),
            "#/time_zone",
            "Asia/Shanghai",
        ),
        (
            "time_zone",
            json!("Berlin, Europe"),
            "#/time_zone",
            "Europe/Paris",
        ),
        ("time_zone", json!("Berln"), "#/time_zone", "Europe/Berlin"),
        ("time_zone", json!(""), "#/time_zone", "IANA"),
        ("time_zone", json!("GMT+25"), "#/time_zone", "range"),
        ("time_zone", json!("+08:0x"), "#/time_zone", "not an offset"),
        ("time_zone", json!("\0"), "#/time_zone", "IANA"),
        (
            "time_zone",
            json!("../../etc/passwd"),
            "#/time_zone",
            "IANA",
        ),
        ("time_zone", json!("x".repeat(5000)), "#/time_zone", "IANA"),
        ("limits", json!([]), "#/limits", "at least one"),
        ("limits", limit(json!(0)), "#/limits/0/max", "from 1 to"),
        ("limits", limit(json!(-1)), "#/limits/0/max", "from 1 to"),
        (
            "limits",
            limit(json!(MOST + 1)),
            "#/limits/0/max",
            "9007199254740991",
        ),
        ("limits", limit(json!(1e300)), "#/limits/0/max", "from 1 to"),
        (
            "limits",
            limit(json!(-1e300)),
            "#/limits/0/max",
            "from 1 to",
        ),
        (
            "limits",
            json!([{ "max": 1, "per": "fortnight" }]),
            "#/limits/0/per",
            "minute, hour",
        ),
        (
            "limits",
            json!([{ "max": 1, "per": "Day" }]),
            "#/limits/0/per",
            "minute, hour",
        ),
        (
            "limits",
            json!([{ "max": 1, "per": "day" }, { "max": 2, "per": "day" }]),
            "#/limits/1/per",
            "already",
        ),
        ("description", json!(long), "#/description", "1000"),
        ("description", json!("a\0b"), "#/description", "U+0000"),
        ("reason", json!(long), "#/reason", "1000"),
        ("reason", json!("a\0b"), "#/reason", "U+0000"),
        ("day_starts_at", json!("24:00"), "#/day_starts_at", "HH:MM"),
        ("day_starts_at", json!("6"), "#/day_starts_at", "HH:MM"),
        (
            "week_starts_on",
            json!("Monday"),
            "#/week_starts_on",
            "monday",
        ),
        (
            "active_from",
            json!("tomorrow"),
            "#/active_from",
            "RFC 3339",
        ),
        (
            "active_from",
            json!("2026-11-21"),
            "#/active_from",
            "RFC 3339",
        ),
        (
            "active_from",
            json!("2026-11-21T00:00:00"),
            "#/active_from",
            "RFC 3339",
        ),
        (
            "active_until",
            json!("2026-02-30T00:00:00Z"),
            "#/active_until",
            "RFC 3339",
        ),
        ("mode", json!("watch"), "#/mode", "enforce or observe"),
        ("mode", json!(""), "#/mode", "enforce"),
        ("durability", json!("counted"), "#/durability", "REDIS_URL"),
        ("durability", json!("count"), "#/durability", "counted"),
        (
            "on_ledger_outage",
            json!("count"),
            "#/on_ledger_outage",
            "REDIS_URL",
        ),
    ] {
        let mut rule = json!({ "time_zone": "UTC", "limits": limit(json!(1)) });
        rule[name] = value;
        let answer = app.put_policy("benefit", rule.clone()).await;
        let parts = invalid_parts(&answer);
        let [(place, detail)] = parts.as_slice() else {
            panic!("{rule}: {parts:?}");
        };
        assert_eq!(place, pointer, "{rule}");
        assert!(detail.contains(words), "{rule}: {detail}");
    }
    assert_eq!(app.get(POLICY).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_a_policy_is_told_at_once() {
    let app = App::on(Stack::Sqlite).await;
    let rule = json!({
        "time_zone": "Asia/Shangai",
        "limits": [{ "max": 0, "per": "day" }, { "max": 1, "per": "eon" }],
        "day_starts_at": "noon",
        "active_from": "2026-01-02T00:00:00Z",
        "active_until": "2026-01-02T00:00:00Z",
        "durability": "counting",
    });
    let mut places = invalid_places(&app.put_policy("benefit", rule).await);
    places.sort();
    assert_eq!(
        places,
        [
            "#/active_until",
            "#/day_starts_at",
            "#/durability",
            "#/limits/0/max",
            "#/limits/1/per",
            "#/time_zone",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_at_their_bounds_are_good() {
    let app = App::on(Stack::Sqlite).await;
    let rule = json!({
        "description": "é".repeat(1000),
        "time_zone": "+18:00",
        "limits": [
            { "max": MOST, "per": "minute" }, { "max": MOST as f64, "per": "hour" },
            { "max": MOST, "per": "day" }, { "max": MOST, "per": "week" },
            { "max": MOST, "per": "month" }, { "max": MOST, "per": "year" },
        ],
        "day_starts_at": "23:59",
        "week_starts_on": "sunday",
        "active_from": "0000-01-01T00:00:00Z",
        "active_until": "9999-12-31T23:59:59.999999999Z",
        "mode": "enforce", "durability": "recorded", "on_ledger_outage": "refuse",
        "paused": false,
        "reason": "r".repeat(1000),
    });
    let name = "a".repeat(63);
    let answer = app.put_policy(&name, rule).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let metadata = json!({ "a": "x".repeat(4096 - 8) });
    let body = json!({ "subject": "é".repeat(128), "units": MOST, "metadata": metadata });
    let key = "k".repeat(255);
    let answer = app.claim_under(&name, body.clone(), Some(&key)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let limits = answer.json()["limits"].clone();
    for limit in limits.as_array().expect("limits") {
        assert_eq!(
            (&limit["used"], &limit["remaining"]),
            (&json!(MOST), &json!(0))
        );
    }
    let fields = answer.header("ratelimit-policy").expect("a field");
    // The largest integer of a structured field has 15 digits (RFC 9651, section 3.3.1).
    assert!(
        fields.starts_with("\"minute\";q=999999999999999;w=60, "),
        "{fields}"
    );
    let answer = app.claim_under(&name, body, Some(&key)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = json!({ "subject": "é".repeat(128) });
    let answer = app.claim_under(&name, body, None).await;
    problem(&answer, 429, "quota-exceeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_out_of_bounds_in_a_claim_are_told_with_their_places() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let deep = (0..32).fold(json!(1), |inner, _| json!({ "a": inner }));
    for (name, value, pointer, words) in [
        ("subject", json!(""), "#/subject", "1 to 256"),
        ("subject", json!("x".repeat(257)), "#/subject", "257"),
        ("subject", json!("é".repeat(129)), "#/subject", "258"),
        ("subject", json!("a\nb"), "#/subject", "U+000A"),
        ("subject", json!("\0"), "#/subject", "U+0000"),
        ("subject", json!("\u{7f}"), "#/subject", "U+007F"),
        ("subject", json!("\u{85}"), "#/subject", "U+0085"),
        ("units", json!(0), "#/units", "from 1"),
        ("units", json!(-1), "#/units", "from 1"),
        ("units", json!(MOST + 1), "#/units", "9007199254740991"),
        ("units", json!(1e300), "#/units", "from 1"),
        ("units", json!(4), "#/units", "max per day is 3"),
        ("hold_seconds", json!(0), "#/hold_seconds", "2592000"),
        ("hold_seconds", json!(-1), "#/hold_seconds", "2592000"),
        ("hold_seconds", json!(2_592_001), "#/hold_seconds", "2592000"),
        (
            "metadata",
            json!({ "a": "x".repeat(4096 - 7) }),
            "#/metadata",
            "4096",
        ),
        ("metadata", deep, "#/metadata", "32"),
        ("metadata", json!({ "a": "\0" }), "#/metadata", "U+0000"),
        (
            "metadata",
            json!({ "a": [{ "\0": 1 }] }),
            "#/metadata",
            "U+0000",
        ),
    ] {
        for dry_run in [false, true] {
            let mut body = json!({ "subject": "a", "dry_run": dry_run });
            body[name] = value.clone();
            let answer = app.claim_body(body, None).await;
            let parts = invalid_parts(&answer);
            let [(place, detail)] = parts.as_slice() else {
                panic!("{name} {value}: {parts:?}");
            };
            assert_eq!(place, pointer);
            assert!(detail.contains(words), "{name} {value}: {detail}");
        }
    }
    let body = json!({ "subject": "", "units": 0, "hold_seconds": 0, "metadata": { "": "\0" } });
    let mut places = invalid_places(&app.claim_body(body, None).await);
    places.sort();
    assert_eq!(
        places,
        ["#/hold_seconds", "#/metadata", "#/subject", "#/units"]
    );
    let body = json!({ "subject": "a", "units": null, "hold_seconds": null, "metadata": null });
    assert_eq!(app.claim_body(body, None).await.status, 201);
    let grants = app.get("/v1/grants").await.json();
    assert_eq!(grants["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_out_of_bounds_are_told() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let long = "k".repeat(256);
    for key in [
        "",
        "\"\"",
        "\"open",
        "\"a\"b",
        "k\u{e4}se",
        "a\tb",
        long.as_str(),
    ] {
        let header = reqwest::header::HeaderValue::from_bytes(key.as_bytes()).expect("a value");
        let request = app
            .request(Method::POST, CLAIMS)
            .json(&json!({ "subject": "a" }));
        let answer = Answer::of(request.header("Idempotency-Key", header)).await;
        assert_eq!(invalid_places(&answer), ["Idempotency-Key"], "{key}");
    }
    let request = app
        .request(Method::POST, CLAIMS)
        .json(&json!({ "subject": "a" }));
    let request = request
        .header("Idempotency-Key", "a")
        .header("Idempotency-Key", "b");
    assert_eq!(
        invalid_places(&Answer::of(request).await),
        ["Idempotency-Key"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_parameters_are_told() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let windows = "/v1/policies/benefit/windows";
    let long = "x".repeat(257);
    let faults = [
        ("/v1/policies?limit=0".to_owned(), "limit"),
        ("/v1/policies?limit=1001".to_owned(), "limit"),
        ("/v1/policies?limit=-1".to_owned(), "limit"),
        ("/v1/policies?limit=ten".to_owned(), "limit"),
        ("/v1/policies?limit=".to_owned(), "limit"),
        (
            "/v1/policies?limit=99999999999999999999".to_owned(),
            "limit",
        ),
        ("/v1/policies?cursor=".to_owned(), "cursor"),
        ("/v1/policies?cursor=AAAA".to_owned(), "cursor"),
        ("/v1/policies?cursor=%F0%9F%98%80".to_owned(), "cursor"),
        ("/v1/policies/Benefit".to_owned(), "policy"),
        ("/v1/policies/-a".to_owned(), "policy"),
        ("/v1/policies/a%2Fb".to_owned(), "policy"),
        ("/v1/policies/a%00".to_owned(), "policy"),
        (format!("/v1/policies/{}", "a".repeat(64)), "policy"),
        ("/v1/policies/benefit/versions?limit=0".to_owned(), "limit"),
        (
            "/v1/policies/benefit/versions?cursor=x".to_owned(),
            "cursor",
        ),
        (format!("{windows}?per=fortnight"), "per"),
        (format!("{windows}?per="), "per"),
        (format!("{windows}?from=today"), "from"),
        (format!("{windows}?from=2026-11-21T00:00:00+08:00"), "from"),
        (format!("{windows}?to=1"), "to"),
        (
            format!("{windows}?from=2026-11-21T00:00:00Z&to=2026-11-21T00:00:00Z"),
            "to",
        ),
        (format!("{windows}?to=2000-01-01T00:00:00Z"), "to"),
        (format!("{windows}?limit=0"), "limit"),
        (format!("{windows}?cursor=x"), "cursor"),
        ("/v1/policies/benefit/subjects/a%0Ab".to_owned(), "subject"),
        ("/v1/policies/benefit/subjects/%00".to_owned(), "subject"),
        (format!("/v1/policies/benefit/subjects/{long}"), "subject"),
        ("/v1/grants/42".to_owned(), "id"),
        ("/v1/grants?policy=Benefit".to_owned(), "policy"),
        ("/v1/grants?policy=".to_owned(), "policy"),
        ("/v1/grants?subject=".to_owned(), "subject"),
        (format!("/v1/grants?subject={long}"), "subject"),
        ("/v1/grants?subject=%00".to_owned(), "subject"),
        ("/v1/grants?from=yesterday".to_owned(), "from"),
        ("/v1/grants?to=2026-13-01T00:00:00Z".to_owned(), "to"),
        ("/v1/grants?state=open".to_owned(), "state"),
        ("/v1/grants?state=Granted".to_owned(), "state"),
        ("/v1/grants?idempotency_key=".to_owned(), "idempotency_key"),
        ("/v1/grants?limit=0".to_owned(), "limit"),
        ("/v1/grants?cursor=x".to_owned(), "cursor"),
        ("/v1/grants/export".to_owned(), "format"),
        ("/v1/grants/export?format=xlsx".to_owned(), "format"),
        ("/v1/grants/export?format=CSV".to_owned(), "format"),
        ("/v1/grants/export?format=csv&state=x".to_owned(), "state"),
        ("/v1/grants/export?format=csv&from=x".to_owned(), "from"),
    ];
    for (path, parameter) in faults {
        let answer = app.get(&path).await;
        assert_eq!(answer.status, 422, "{path}: {answer:?}");
        assert_eq!(invalid_places(&answer), [parameter], "{path}");
    }
    let answer = app.get("/v1/grants?state=x&from=x&limit=0").await;
    assert_eq!(invalid_places(&answer), ["from", "state", "limit"]);
    let path = format!("{POLICY}?reason={}", "x".repeat(1001));
    let answer = Answer::of(app.request(Method::DELETE, &path)).await;
    assert_eq!(invalid_places(&answer), ["reason"]);
    let path = format!("{POLICY}?reason=%00");
    let answer = Answer::of(app.request(Method::DELETE, &path)).await;
    assert_eq!(invalid_places(&answer), ["reason"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_but_good_parameters_make_no_fault() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "America/Havana").await;
    let windows = "/v1/policies/benefit/windows?limit=2";
    let ends = "from=0000-01-01T00:00:00Z&to=9999-12-31T23:59:59.999999999Z";
    for per in ["minute", "hour", "day", "week", "month", "year"] {
        for span in [
            ends,
            "from=9999-12-31T23:59:59Z",
            "from=0000-01-01T00:00:00Z",
            "from=9999-12-31T23:59:59Z&to=9999-12-31T23:59:59.5Z",
        ] {
            let answer = app.get(&format!("{windows}&per={per}&{span}")).await;
            assert_eq!(answer.status, 200, "{per} {span}: {answer:?}");
        }
    }
    for path in [
        format!("/v1/grants?{ends}"),
        "/v1/grants?from=9999-12-31T23:59:59.999999999Z".to_owned(),
        "/v1/grants?to=0000-01-01T00:00:00Z".to_owned(),
        "/v1/grants?from=2026-01-01T00:00:00Z&to=2020-01-01T00:00:00Z".to_owned(),
        "/v1/grants?limit=1000&state=held".to_owned(),
        format!("/v1/grants/export?format=ndjson&{ends}"),
        format!(
            "/v1/grants?subject={}",
            encoded("% _\"'\\;--\u{202e}\u{1f600}")
        ),
        "/v1/grants?idempotency_key=%22a+b%22".to_owned(),
    ] {
        let answer = app.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
}

/// Each request has the faults of all that come after it too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_are_told_in_the_order_of_the_contract() {
    let app = App::on(Stack::Sqlite).await;
    // 400 before 422, whichever part of the request each is in.
    let request = app.request(Method::POST, "/v1/policies/No_Such/claims");
    let request = request.header("Idempotency-Key", "\"open").body("{");
    problem(&Answer::of(request).await, 400, "malformed");
    let request = app.request(Method::PUT, "/v1/policies/No_Such");
    let request = request.header("If-Match", "3").body("{");
    problem(&Answer::of(request).await, 400, "malformed");
    let request = app.request(Method::DELETE, "/v1/policies/No_Such?why=x");
    problem(
        &Answer::of(request.header("If-Match", "3")).await,
        400,
        "malformed",
    );
    for list in ["versions", "windows"] {
        let path = format!("/v1/policies/No_Such/{list}?what=x");
        problem(&app.get(&path).await, 400, "malformed");
    }
    // 422 before 404.
    let body = json!({ "subject": "" });
    let answer = app.claim_under("nothing", body, None).await;
    assert_eq!(invalid_places(&answer), ["#/subject"]);
    let answer = app.get("/v1/policies/nothing/windows?per=eon").await;
    assert_eq!(invalid_places(&answer), ["per"]);
    let answer = app.get("/v1/grants?policy=nothing&limit=0").await;
    assert_eq!(invalid_places(&answer), ["limit"]);
    // 412 before the reason that is missing.
    app.benefit(3, "GMT+8").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let request = app.request(Method::PUT, POLICY).header("If-Match", "\"9\"");
    problem(
        &Answer::of(request.json(&rule)).await,
        412,
        "precondition-failed",
    );
    // 404 before 412.
    let path = "/v1/policies/nothing?reason=x";
    let request = app
        .request(Method::DELETE, path)
        .header("If-Match", "\"9\"");
    problem(&Answer::of(request).await, 404, "unknown-policy");
}

on_every_stack!(a_claims_faults_are_told_in_the_order_of_the_contract);

async fn a_claims_faults_are_told_in_the_order_of_the_contract(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    replace(&app, json!({ "limits": [{ "max": 5, "per": "day" }] })).await;
    let body = json!({ "subject": "member-42", "units": 4 });
    let first = app.claim_body(body.clone(), Some("order-1")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let other = json!({ "subject": "member-42", "units": 5 });

    // A replayed key before all that the policy says; another claim with it just as well.
    let told_first = async || {
        let again = app.claim_body(body.clone(), Some("order-1")).await;
        assert_eq!((again.status.as_u16(), &again.text), (200, &first.text));
        let again = app.claim_body(other.clone(), Some("order-1")).await;
        problem(&again, 422, "idempotency-key-reused");
    };
    told_first().await;
    // Units above a lowered max.
    replace(&app, json!({ "limits": [{ "max": 1, "per": "day" }] })).await;
    told_first().await;
    for key in [None, Some("order-2")] {
        let answer = app.claim_body(body.clone(), key).await;
        assert_eq!(invalid_places(&answer), ["#/units"]);
    }
    // 409 before it.
    replace(
        &app,
        json!({ "limits": [{ "max": 1, "per": "day" }], "paused": true }),
    )
    .await;
    told_first().await;
    for key in [None, Some("order-2")] {
        let answer = app.claim_body(body.clone(), key).await;
        problem(&answer, 409, "policy-inactive");
    }
    // 404 before that.
    archive(&app).await;
    told_first().await;
    for key in [None, Some("order-2")] {
        let answer = app.claim_body(body.clone(), key).await;
        problem(&answer, 404, "unknown-policy");
    }
    // 422 for what is wrong in itself before the replayed key.
    let wrong = json!({ "subject": "member-42", "units": 0 });
    let answer = app.claim_body(wrong, Some("order-1")).await;
    assert_eq!(invalid_places(&answer), ["#/units"]);
}
