//! Grants: one grant, and lists with filters and cursors.

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
    let claimed = app.claim_body(body, Some("order-17")).await;
    let id = claimed.grant_id();
    let version = uuid::Uuid::parse_str(&id).map(|id| id.get_version_num());
    assert_eq!(version, Ok(7));
    let path = format!("/v1/grants/{id}");
    let grant = app.get(&path).await;
    assert_eq!(grant.is(200), claimed.at("/grant"));
    // The answer does not show the `Idempotency-Key`.
    assert!(!grant.text.contains("order-17"));
    archive(&app).await;
    assert_eq!(app.get(&path).await.is(200), claimed.at("/grant"));
    let of_policy = all_items(&app, "/v1/grants?policy=benefit").await;
    assert_eq!(of_policy, [claimed.at("/grant")]);
    let other = "/v1/grants/0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";
    problem(&app.get(other).await, 404, "not-found");
    app.put_policy("bare", rule(3)).await.is(201);
    let bare = app
        .claim_under("bare", json!({ "subject": "a" }), None)
        .await;
    assert_eq!(bare.is(201)["grant"]["metadata"], Value::Null);
}

on_every_store!(metadata_comes_back_as_it_was);

async fn metadata_comes_back_as_it_was(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    // The names are sorted and there are no spaces, so the answer has exactly this text.
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
    for policy in ["one", "two"] {
        app.put_policy(policy, rule(100)).await.is(201);
    }
    // One grant each minute.
    let mut grants: Vec<Value> = Vec::new();
    for minute in 0..12 {
        let policy = if minute % 2 == 0 { "one" } else { "two" };
        let subject = format!("member-{}", minute % 3);
        let key = format!("key-{}", minute / 2);
        let body = json!({ "subject": subject, "units": minute + 1 });
        let answer = app.claim_under(policy, body, Some(&key)).await;
        grants.push(answer.is(201)["grant"].clone());
        clock.advance(TimeDelta::minutes(1));
    }
    let at = |minute: usize| grants[minute]["granted_at"].as_str().expect("an instant");
    // The grants of the minutes 2, 8 and 4.
    let from = at(2);
    let to = at(8);
    let fourth = at(4);
    #[rustfmt::skip]
    let cases: [(String, &[usize]); 19] = [
        (String::new(), &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("policy=one".into(), &[10, 8, 6, 4, 2, 0]),
        ("subject=member-1".into(), &[10, 7, 4, 1]),
        ("policy=two&subject=member-1".into(), &[7, 1]),
        ("idempotency_key=key-2".into(), &[5, 4]),
        ("idempotency_key=%22key-2%22".into(), &[5, 4]),
        ("idempotency_key=key-2&policy=one".into(), &[4]),
        ("idempotency_key=key-2&subject=member-1".into(), &[4]),
        ("idempotency_key=key-2&subject=member-0".into(), &[]),
        ("idempotency_key=key-9".into(), &[]),
        ("state=granted".into(), &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        ("state=held&policy=one".into(), &[]),
        ("state=lapsed&subject=member-1".into(), &[]),
        (format!("from={from}"), &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2]),
        (format!("to={to}"), &[7, 6, 5, 4, 3, 2, 1, 0]),
        (format!("from={from}&to={to}"), &[7, 6, 5, 4, 3, 2]),
        (format!("from={from}&to={to}&policy=one&subject=member-0&state=granted"), &[6]),
        (format!("idempotency_key=key-2&to={fourth}"), &[]),
        ("subject=nobody".into(), &[]),
    ];
    for (query, minutes) in cases {
        let wanted: Vec<Value> = minutes
            .iter()
            .map(|minute| grants[*minute].clone())
            .collect();
        for limit in [1, 2, 1000] {
            let items = all_items(&app, &format!("/v1/grants?{query}&limit={limit}")).await;
            assert_eq!(items, wanted, "{query}, {limit} a page");
        }
    }
    // The filter compares microseconds.
    let next = from.replace("901Z", "902Z");
    assert!(*next > *from);
    let items = all_items(&app, &format!("/v1/grants?from={next}")).await;
    assert_eq!(items.len(), 9);
    let refused = app.get("/v1/grants?policy=nothing").await;
    problem(&refused, 404, "unknown-policy");
}
