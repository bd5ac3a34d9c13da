//! Retries: the same claim with the same `Idempotency-Key`.

use std::pin::pin;
use std::time::Duration;

use chrono::TimeDelta;
use futures_util::future::{Either, select};
use perdiem::host::clock::ManualClock;
use serde_json::json;

use crate::http::{problem, replace};
use crate::support::app::{App, Ground, NOON, Stack, instant, on_every_stack};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::servers::Redis;

/// A lock that every append needs. The ledger can still be read.
struct Held(Direct);

impl Held {
    async fn on(ground: &Ground) -> Self {
        let mut connection = Direct::to(ground).await;
        connection.execute("BEGIN", "BEGIN IMMEDIATE").await;
        let lock = "LOCK TABLE entries IN EXCLUSIVE MODE";
        connection.execute(lock, "SELECT 1").await;
        Self(connection)
    }

    async fn release(mut self) {
        self.0.execute("ROLLBACK", "ROLLBACK").await;
    }
}

on_every_stack!(the_same_claim_gets_the_same_grant);

async fn the_same_claim_gets_the_same_grant(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    let body = |metadata: &str| {
        let metadata: serde_json::Value = serde_json::from_str(metadata).expect("JSON");
        json!({ "subject": "member-42", "units": 2, "metadata": metadata })
    };
    let written = r#"{ "order": "A-17", "items": [1, { "b": 1.5, "a": "é" }] }"#;
    let first = app.claim_body(body(written), Some("order-17")).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(
        first.json(),
        json!({
            "outcome": "granted",
            "grant": {
                "id": first.json()["grant"]["id"], "policy": "benefit", "policy_version": 1,
                "subject": "member-42", "units": 2, "state": "granted",
                "granted_at": "2026-11-21T03:04:05.678901Z",
                "metadata": { "order": "A-17", "items": [1, { "b": 1.5, "a": "é" }] },
            },
            "limits": [{
                "per": "day", "kind": "calendar", "max": 3, "used": 2, "remaining": 1,
                "window_start": "2026-11-20T16:00:00Z",
                "more_at": "2026-11-21T16:00:00Z", "resets_at": "2026-11-21T16:00:00Z",
            }],
        })
    );
    // Another grant, another max and another day do not change the answer.
    clock.advance(chrono::TimeDelta::minutes(1));
    app.claim("member-42", None).await;
    replace(
        &app,
        json!({ "limits": [{ "max": 9, "per": "day" }, { "max": 9, "per": "week" }] }),
    )
    .await;
    clock.advance(chrono::TimeDelta::hours(20));
    let other_order = r#"{"items":[1,{"a":"é","b":1.5}],"order":"A-17"}"#;
    for (metadata, key) in [
        (written, "order-17"),
        (other_order, "order-17"),
        (written, "\"order-17\""),
        (other_order, " order-17 "),
    ] {
        let again = app.claim_body(body(metadata), Some(key)).await;
        assert_eq!(again.status, 200, "{key}: {again:?}");
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.json(), first.json());
        assert_eq!(
            again.header("ratelimit-policy"),
            Some("\"day\";q=3;w=86400")
        );
        assert_eq!(again.header("ratelimit"), Some("\"day\";r=1;t=0"));
    }
    let history = app.get("/v1/grants").await.json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(history["items"][1], first.json()["grant"]);
}

on_every_store!(a_key_outlives_redis_midnight_and_the_month);

async fn a_key_outlives_redis_midnight_and_the_month(stack: Stack) {
    let redis = Redis::start();
    let mut ground = Ground::new(stack);
    ground.redis_url = Some(redis.url());
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    replace(&app, json!({})).await;
    let first = app.claim("member-42", Some("order-17")).await.json();
    for days in [0, 1, 31, 365] {
        clock.advance(TimeDelta::days(days));
        redis.command::<()>(&["FLUSHALL"]);
        let again = app.claim("member-42", Some("order-17")).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, first.clone()));
    }
    let usage = app.get("/v1/policies/benefit/subjects/member-42").await;
    assert_eq!(usage.json()["limits"][0]["used"], 0);
}

on_every_stack!(a_key_stands_for_one_claim);

async fn a_key_stands_for_one_claim(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    let body = json!({ "subject": "member-42", "units": 1, "metadata": { "order": "A-17" } });
    let first = app.claim_body(body.clone(), Some("order-17")).await;
    assert_eq!(first.status, 201, "{first:?}");
    for (name, value) in [
        ("subject", json!("member-43")),
        ("units", json!(2)),
        ("units", json!(3)),
        ("metadata", json!({ "order": "A-18" })),
        ("metadata", json!({ "order": "A-17", "more": null })),
        ("metadata", json!({})),
        ("metadata", json!(null)),
    ] {
        let mut other = body.clone();
        other[name] = value;
        let answer = app.claim_body(other, Some("order-17")).await;
        problem(&answer, 422, "idempotency-key-reused");
    }
    // The case of a key counts. Another policy can use the same key.
    let answer = app.claim_body(body.clone(), Some("Order-17")).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy("other", rule).await;
    let answer = app
        .claim_under("other", body.clone(), Some("order-17"))
        .await;
    assert_eq!(answer.status, 201, "{answer:?}");
    // The key of a full account is still known. A retry without metadata still matches.
    let bare = json!({ "subject": "member-42" });
    assert_eq!(app.claim_body(bare.clone(), Some("bare")).await.status, 201);
    problem(&app.claim("member-42", None).await, 429, "quota-exceeded");
    let again = app.claim_body(body, Some("order-17")).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, first.json()));
    assert_eq!(app.claim_body(bare, Some("bare")).await.status, 200);
}

on_every_store!(a_key_that_is_being_decided_is_told);

async fn a_key_that_is_being_decided_is_told(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "GMT+8").await;
    let held = Held::on(&ground).await;
    // The lock stops both claims, so the second claim finds the first one undecided.
    let one = pin!(app.claim("member-42", Some("order-17")));
    let other = pin!(app.claim("member-42", Some("order-17")));
    let (refused, waiting) = match select(one, other).await {
        Either::Left((answer, waiting)) | Either::Right((answer, waiting)) => (answer, waiting),
    };
    problem(&refused, 409, "claim-in-progress");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Another claim with the key gets the same answer.
    let answer = app.claim("member-43", Some("order-17")).await;
    problem(&answer, 409, "claim-in-progress");
    held.release().await;
    let granted = waiting.await;
    assert_eq!(granted.status, 201, "{granted:?}");
    let again = app.claim("member-42", Some("order-17")).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, granted.json()));
    let answer = app.claim("member-43", Some("order-17")).await;
    problem(&answer, 422, "idempotency-key-reused");
}

on_every_store!(a_claim_that_is_not_decided_in_time_says_so);

async fn a_claim_that_is_not_decided_in_time_says_so(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start_with(&ground, |options| {
        options.claim_deadline = Duration::from_secs(1);
    })
    .await;
    app.benefit(3, "GMT+8").await;
    let held = Held::on(&ground).await;
    for key in [None, Some("order-17")] {
        let answer = app.claim("member-42", key).await;
        problem(&answer, 503, "undecided");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(!answer.text.contains("lock"), "{answer:?}");
    }
    held.release().await;
    // A retry is safe, and must be repeated until the claim is decided.
    let first = app.decided("member-42", "order-17").await;
    assert!(first.status.is_success(), "{first:?}");
    let again = app.decided("member-42", "order-17").await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json(), first.json());
    let path = "/v1/grants?idempotency_key=order-17";
    let history = app.get(path).await.json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(1));
}
