//! Grants: one, and lists with filters and cursors.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{CLAIMS, all_items, archive, problem, send};
use crate::support::app::{App, Stack};
use crate::support::desk::on_every_store;

fn rule(max: u64) -> Value {
    json!({ "time_zone": "UTC", "limits": [{ "max": max, "per": "year" }], "reason": "a test" })
}

on_every_store!(one_grant);

async fn one_grant(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let body = json!({ "subject": "member-42", "units": 2, "metadata": { "b": 1, "a": [null] } });
    let claimed = app.claim_body(body, Some("order-17")).await.json();
    let id = claimed["grant"]["id"].as_str().expect("an id");
    assert_eq!(
        uuid::Uuid::parse_str(id).map(|id| id.get_version_num()),
        Ok(7)
    );
    let grant = app.get(&format!("/v1/grants/{id}")).await;
    assert_eq!(grant.status, 200, "{grant:?}");
    assert_eq!(grant.json(), claimed["grant"]);
    // A key is nobody's to read.
    assert!(!grant.text.contains("order-17"));
    archive(&app).await;
    assert_eq!(
        app.get(&format!("/v1/grants/{id}")).await.json(),
        claimed["grant"]
    );
    let other = "/v1/grants/0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";
    problem(&app.get(other).await, 404, "not-found");
    let bare = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy("bare", bare).await;
    let claimed = app
        .claim_under("bare", json!({ "subject": "a" }), None)
        .await
        .json();
    assert_eq!(claimed["grant"]["metadata"], Value::Null);
}

on_every_store!(metadata_comes_back_as_it_was);

async fn metadata_comes_back_as_it_was(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    // Names in order and no spaces: the text itself comes back.
    let metadata = concat!(
        r#"{"":[],"a":{"b":[null,true,false,""]},"big":18446744073709551615,"#,
        r#""double":[0.1,9007199254740991.0,1.7976931348623157e+308,5e-324,-0.0],"#,
        r#""least":-9223372036854775808,"text":"\"\\/\b\f\n\r\t\u0001é😀"}"#,
    );
    let body = format!(r#"{{"subject": "member-42", "metadata": {metadata}}}"#);
    let claimed = send(&app, reqwest::Method::POST, CLAIMS, body).await;
    assert_eq!(claimed.status, 201, "{claimed:?}");
    for path in ["/v1/grants", "/v1/grants/export?format=ndjson"] {
        let answer = app.get(path).await;
        assert!(answer.text.contains(metadata), "{path}: {}", answer.text);
    }
    assert!(claimed.text.contains(metadata), "{}", claimed.text);
}

on_every_store!(filters_combine);

async fn filters_combine(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.put_policy("one", rule(100)).await;
    app.put_policy("two", rule(100)).await;
    // A grant a minute, from the first one on.
    let mut grants: Vec<Value> = Vec::new();
    for minute in 0..12 {
        let policy = if minute % 2 == 0 { "one" } else { "two" };
        let subject = format!("member-{}", minute % 3);
        let key = format!("key-{}", minute / 2);
        let body = json!({ "subject": subject, "units": minute + 1 });
        let answer = app.claim_under(policy, body, Some(&key)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        grants.push(answer.json()["grant"].clone());
        clock.advance(TimeDelta::minutes(1));
    }
    grants.reverse();
    let at = |newest: usize| {
        grants[newest]["granted_at"]
            .as_str()
            .expect("an instant")
            .to_owned()
    };
    let of = |keep: &dyn Fn(usize) -> bool| -> Vec<Value> {
        let minute = |newest: usize| 11 - newest;
        let kept = (0..12).filter(|newest| keep(minute(*newest)));
        kept.map(|newest| grants[newest].clone()).collect()
    };
    let (from, to) = (at(9), at(3));
    let cases: Vec<(String, Vec<Value>)> = vec![
        (String::new(), grants.clone()),
        ("policy=one".into(), of(&|minute| minute % 2 == 0)),
        ("subject=member-1".into(), of(&|minute| minute % 3 == 1)),
        (
            "policy=two&subject=member-1".into(),
            of(&|minute| minute % 6 == 1),
        ),
        (
            "idempotency_key=key-2".into(),
            of(&|minute| minute / 2 == 2),
        ),
        (
            "idempotency_key=%22key-2%22".into(),
            of(&|minute| minute / 2 == 2),
        ),
        (
            "idempotency_key=key-2&policy=one".into(),
            of(&|minute| minute == 4),
        ),
        (
            "idempotency_key=key-2&subject=member-1".into(),
            of(&|minute| minute == 4),
        ),
        ("idempotency_key=key-2&subject=member-0".into(), vec![]),
        ("idempotency_key=key-9".into(), vec![]),
        ("state=granted".into(), grants.clone()),
        ("state=reversed".into(), vec![]),
        ("state=held&policy=one".into(), vec![]),
        ("state=lapsed&subject=member-1".into(), vec![]),
        (format!("from={from}"), of(&|minute| minute >= 2)),
        (format!("to={to}"), of(&|minute| minute < 8)),
        (
            format!("from={from}&to={to}"),
            of(&|minute| (2..8).contains(&minute)),
        ),
        (
            format!("from={from}&to={to}&policy=one&subject=member-0&state=granted"),
            of(&|minute| minute == 6),
        ),
        (format!("from={from}&to={from}"), vec![]),
        (format!("idempotency_key=key-2&to={}", at(7)), vec![]),
        ("subject=nobody".into(), vec![]),
    ];
    for (query, wanted) in cases {
        for limit in [1, 2, 1000] {
            let items = all_items(&app, &format!("/v1/grants?{query}&limit={limit}")).await;
            assert_eq!(items, wanted, "{query}, {limit} a page");
        }
    }
    // A microsecond counts.
    let next = format!("{}1Z", from.trim_end_matches('Z').trim_end_matches('1'));
    let items = all_items(&app, &format!("/v1/grants?from={next}")).await;
    let later = if next > from { 9 } else { 10 };
    assert_eq!(items.len(), later, "{next}");
    let refused = app.get("/v1/grants?policy=nothing").await;
    problem(&refused, 404, "unknown-policy");
}
