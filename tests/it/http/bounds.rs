//! Values and parameters out of bounds, each told with its place; and those at their bounds.

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};

use crate::http::{CLAIMS, encoded, invalid_places, problem, told_at, with_member};
use crate::support::app::{Answer, App, Stack};

const POLICY: &str = "/v1/policies/benefit";
/// 2^53 − 1.
const MOST: u64 = 9_007_199_254_740_991;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_out_of_bounds_in_a_policy_are_told_with_their_places() {
    let app = App::on(Stack::Sqlite).await;
    let limit = |max: Value| json!([{ "max": max, "per": "day" }]);
    let per = |per: &str| json!([{ "max": 1, "per": per }]);
    let twice = json!([{ "max": 1, "per": "day" }, { "max": 2, "per": "day" }]);
    let long = json!("x".repeat(1001));
    #[rustfmt::skip]
    let rows = [
        ("time_zone", json!("Asia/Shangai"), "#/time_zone", "Asia/Shanghai"),
        ("time_zone", json!("Berlin, Europe"), "#/time_zone", "Europe/Paris"),
        ("time_zone", json!("Berln"), "#/time_zone", "Europe/Berlin"),
        ("time_zone", json!(""), "#/time_zone", "IANA"),
        ("time_zone", json!("GMT+25"), "#/time_zone", "range"),
        ("time_zone", json!("+08:0x"), "#/time_zone", "not an offset"),
        ("time_zone", json!("\0"), "#/time_zone", "IANA"),
        ("time_zone", json!("../../etc/passwd"), "#/time_zone", "IANA"),
        ("time_zone", json!("x".repeat(5000)), "#/time_zone", "IANA"),
        ("limits", json!([]), "#/limits", "at least one"),
        ("limits", limit(json!(0)), "#/limits/0/max", "from 1 to"),
        ("limits", limit(json!(-1)), "#/limits/0/max", "from 1 to"),
        ("limits", limit(json!(MOST + 1)), "#/limits/0/max", "9007199254740991"),
        ("limits", limit(json!(1e300)), "#/limits/0/max", "from 1 to"),
        ("limits", limit(json!(-1e300)), "#/limits/0/max", "from 1 to"),
        ("limits", per("fortnight"), "#/limits/0/per", "minute, hour"),
        ("limits", per("Day"), "#/limits/0/per", "minute, hour"),
        ("limits", twice, "#/limits/1/per", "already"),
        ("description", long.clone(), "#/description", "1000"),
        ("description", json!("a\0b"), "#/description", "U+0000"),
        ("reason", long, "#/reason", "1000"),
        ("reason", json!("a\0b"), "#/reason", "U+0000"),
        ("day_starts_at", json!("24:00"), "#/day_starts_at", "HH:MM"),
        ("day_starts_at", json!("6"), "#/day_starts_at", "HH:MM"),
        ("week_starts_on", json!("Monday"), "#/week_starts_on", "monday"),
        ("active_from", json!("tomorrow"), "#/active_from", "RFC 3339"),
        ("active_from", json!("2026-11-21"), "#/active_from", "RFC 3339"),
        ("active_from", json!("2026-11-21T00:00:00"), "#/active_from", "RFC 3339"),
        ("active_until", json!("2026-02-30T00:00:00Z"), "#/active_until", "RFC 3339"),
        ("mode", json!("watch"), "#/mode", "enforce or observe"),
        ("mode", json!(""), "#/mode", "enforce"),
        ("durability", json!("counted"), "#/durability", "REDIS_URL"),
        ("durability", json!("count"), "#/durability", "counted"),
        ("on_ledger_outage", json!("count"), "#/on_ledger_outage", "REDIS_URL"),
    ];
    let rule = json!({ "time_zone": "UTC", "limits": limit(json!(1)) });
    for (name, value, place, words) in rows {
        let body = with_member(&rule, name, value);
        told_at(&app.put_policy("benefit", body).await, place, words);
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
    let expected = "#/active_until #/day_starts_at #/durability #/limits/0/max #/limits/1/per \
                    #/time_zone";
    assert_eq!(places.join(" "), expected);
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_out_of_bounds_in_a_claim_are_told_with_their_places() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let deep = (0..32).fold(json!(1), |inner, _| json!({ "a": inner }));
    #[rustfmt::skip]
    let rows = [
        ("subject", json!(""), "1 to 256"),
        ("subject", json!("x".repeat(257)), "257"),
        ("subject", json!("é".repeat(129)), "258"),
        ("subject", json!("a\nb"), "U+000A"),
        ("subject", json!("\0"), "U+0000"),
        ("subject", json!("\u{7f}"), "U+007F"),
        ("subject", json!("\u{85}"), "U+0085"),
        ("units", json!(0), "from 1"),
        ("units", json!(-1), "from 1"),
        ("units", json!(MOST + 1), "9007199254740991"),
        ("units", json!(1e300), "from 1"),
        ("units", json!(4), "max per day is 3"),
        ("hold_seconds", json!(0), "2592000"),
        ("hold_seconds", json!(-1), "2592000"),
        ("hold_seconds", json!(2_592_001), "2592000"),
        ("metadata", json!({ "a": "x".repeat(4096 - 7) }), "4096"),
        ("metadata", deep, "32"),
        ("metadata", json!({ "a": "\0" }), "U+0000"),
        ("metadata", json!({ "a": [{ "\0": 1 }] }), "U+0000"),
    ];
    for (name, value, words) in rows {
        for dry_run in [false, true] {
            let claim = json!({ "subject": "a", "dry_run": dry_run });
            let body = with_member(&claim, name, value.clone());
            told_at(
                &app.claim_body(body, None).await,
                &format!("#/{name}"),
                words,
            );
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
    let one = ["", "\"\"", "\"open", "\"a\"b", "k\u{e4}se", "a\tb", &long].map(|key| vec![key]);
    for keys in one.into_iter().chain([vec!["a", "b"]]) {
        let mut request = app
            .request(Method::POST, CLAIMS)
            .json(&json!({ "subject": "a" }));
        for key in &keys {
            let value = HeaderValue::from_bytes(key.as_bytes()).expect("a value");
            request = request.header("Idempotency-Key", value);
        }
        assert_eq!(
            invalid_places(&Answer::of(request).await),
            ["Idempotency-Key"],
            "{keys:?}"
        );
    }
}

/// The first parameter of each query is the one that is told.
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
        ("policies/Benefit", "policy"),
        ("policies/-a", "policy"),
        ("policies/a%2Fb", "policy"),
        ("policies/a%00", "policy"),
        (&format!("policies/{}", "a".repeat(64)), "policy"),
        ("policies/benefit/subjects/a%0Ab", "subject"),
        ("policies/benefit/subjects/%00", "subject"),
        (&format!("policies/benefit/subjects/{long}"), "subject"),
    ];
    for (path, parameter) in of_paths {
        let answer = app.get(&format!("/v1/{path}")).await;
        assert_eq!(invalid_places(&answer), [parameter], "{path}");
    }
    let answer = app.get("/v1/grants?state=x&from=x&limit=0").await;
    assert_eq!(invalid_places(&answer), ["from", "state", "limit"]);
    for reason in ["x".repeat(1001), "%00".to_owned()] {
        let path = format!("{POLICY}?reason={reason}");
        let answer = Answer::of(app.request(Method::DELETE, &path)).await;
        assert_eq!(invalid_places(&answer), ["reason"]);
    }
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
