//! Values at their bounds, and parameters and keys out of their bounds.

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};

use crate::http::v1::keys::make_role;
use crate::http::{CLAIMS, encoded, invalid_places, problem};
use crate::support::app::{Answer, App, Stack};

/// The largest integer of the API: 2^53 − 1.
const MOST: u64 = 9_007_199_254_740_991;

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
        assert_eq!(limit["used"], MOST);
        assert_eq!(limit["remaining"], 0);
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
    app.benefit(3, "UTC").await;
    let limits = json!([{ "max": MOST, "per": "day" }]);
    let most = json!({ "limits": limits, "until": "9999-12-31T23:59:59Z" });
    app.put_override("member-42", most).await.is(201);
    let body = json!({ "subject": "member-42", "units": MOST });
    let answer = app.claim_body(body, None).await;
    assert_eq!(answer.at("/limits/0/remaining"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_out_of_bounds_are_told() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let long = "k".repeat(256);
    let one = ["", "\"\"", "\"open", "\"a\"b", "k\u{e4}se", "a\tb", &long].map(|key| vec![key]);
    for keys in one.into_iter().chain([vec!["a", "b"]]) {
        let mut request = app
            .request(Method::POST, CLAIMS)
            .json(&json!({ "subject": "a" }));
        for key in &keys {
            let value = HeaderValue::from_bytes(key.as_bytes()).expect("a value");
            request = request.header("Idempotency-Key", value);
        }
        let places = invalid_places(&Answer::of(request).await);
        assert_eq!(places, ["Idempotency-Key"], "{keys:?}");
    }
}

/// The answer names the first parameter of each query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_parameters_are_told() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let long = "x".repeat(257);
    #[rustfmt::skip]
    let of_queries = [
        ("policies", "limit=0 limit=1001 limit=-1 limit=ten limit= limit=99999999999999999999"),
        ("policies", "cursor= cursor=AAAA cursor=%F0%9F%98%80"),
        ("policies/benefit/versions", "limit=0 cursor=x"),
        ("policies/benefit/windows", "per=fortnight per= limit=0 cursor=x"),
        ("policies/benefit/windows", "from=today from=2026-11-21T00:00:00+08:00 to=1"),
        ("policies/benefit/windows", "to=2026-11-21T00:00:00Z&from=2026-11-21T00:00:00Z"),
        ("policies/benefit/windows", "to=2000-01-01T00:00:00Z"),
        ("grants", "policy=Benefit policy= subject= subject=%00 limit=0 cursor=x"),
        ("grants", "from=yesterday to=2026-13-01T00:00:00Z state=open state=Granted"),
        ("grants", "idempotency_key="),
        ("grants", &format!("subject={long}")),
        ("keys", "limit=0 cursor=x"),
        ("policies/benefit/overrides", "limit=0"),
        ("reconciliations", "limit=0 limit=1001 limit=x cursor=x"),
        ("grants/export", "format=xlsx format=CSV state=x&format=csv from=x&format=csv"),
    ];
    for (list, queries) in of_queries {
        for query in queries.split(' ') {
            let answer = app.get(&format!("/v1/{list}?{query}")).await;
            let (parameter, _) = query.split_once('=').expect("a parameter");
            assert_eq!(invalid_places(&answer), [parameter], "{list} {query}");
        }
    }
    #[rustfmt::skip]
    let of_paths = [
        ("grants/export", "format"),
        ("grants/42", "id"),
        ("keys/shop", "id"),
        ("keys/%00", "id"),
        ("reconciliations/1", "id"),
        ("policies/Benefit", "policy"),
        ("policies/-a", "policy"),
        ("policies/a%2Fb", "policy"),
        ("policies/a%00", "policy"),
        (&format!("policies/{}", "a".repeat(64)), "policy"),
        ("policies/benefit/subjects/a%0Ab", "subject"),
        ("policies/benefit/subjects/%00", "subject"),
        // A subject is UTF-8. Other bytes are refused and never read as another subject.
        ("policies/benefit/subjects/%FF", "subject"),
        ("policies/benefit/subjects/a%C3", "subject"),
        ("policies/benefit/subjects/%ED%A0%80", "subject"),
        ("policies/benefit/overrides/%00", "subject"),
        (&format!("policies/benefit/subjects/{long}"), "subject"),
    ];
    for (path, parameter) in of_paths {
        let answer = app.get(&format!("/v1/{path}")).await;
        assert_eq!(invalid_places(&answer), [parameter], "{path}");
    }
    let answer = app.get("/v1/grants?state=x&from=x&limit=0").await;
    assert_eq!(invalid_places(&answer), ["from", "state", "limit"]);
    let key = make_role(&app, "audit", None).await.id;
    for path in [
        "policies/benefit",
        "policies/benefit/overrides/a",
        &format!("keys/{key}"),
    ] {
        for query in [
            "",
            "?reason=%20",
            "?reason=%00",
            &format!("?reason={}", "x".repeat(1001)),
        ] {
            let answer = app
                .ask(&format!("DELETE /v1/{path}{query}"), Value::Null)
                .await;
            assert_eq!(invalid_places(&answer), ["reason"], "{path}{query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_but_good_parameters_make_no_fault() {
    let app = App::on(Stack::Sqlite).await;
    let limits = json!([
        { "max": 3, "per": "day" },
        { "max": 3, "per": "15m", "kind": "calendar" },
        { "max": 3, "per": "52 weeks", "from": "9999-12-31" },
    ]);
    let rule = json!({ "time_zone": "America/Havana", "limits": limits });
    app.put_policy("benefit", rule).await.is(201);
    let windows = "/v1/policies/benefit/windows?limit=2";
    let ends = "from=0000-01-01T00:00:00Z&to=9999-12-31T23:59:59.999999999Z";
    let words = ["minute", "hour", "day", "week", "month", "quarter", "year"];
    for per in words.into_iter().chain(["15m", "52%20weeks"]) {
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
