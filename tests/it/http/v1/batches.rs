//! Batches of claims: each claim for itself, and all or none.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{invalid_places, items, malformed, problem, used};
use crate::support::app::{Answer, App, NOON, Stack, instant, on_every_stack};
use crate::support::desk::on_every_store;

on_every_stack!(all_are_granted_or_none_is,);

on_every_store!(
    each_item_is_what_the_claim_alone_would_get,
    an_atomic_batch_is_safe_to_retry,
    a_key_of_the_batch_makes_a_retry_safe,
);

async fn send(app: &App, claims: Value, atomic: bool) -> Answer {
    let body = json!({ "claims": claims, "atomic": atomic });
    app.ask("POST /v1/claims", body).await
}

fn statuses(answer: &Answer) -> Vec<u64> {
    items(answer)
        .iter()
        .map(|item| item["status"].as_u64().expect("a status"))
        .collect()
}

async fn policies(app: &App) {
    app.benefit(3, "GMT+8").await;
    let sms = json!({ "time_zone": "UTC", "limits": [{ "max": 2, "per": "day" }] });
    assert_eq!(app.put_policy("sms", sms).await.status, 201);
}

fn claim(policy: &str, subject: &str, units: u64) -> Value {
    json!({ "policy": policy, "subject": subject, "units": units })
}

async fn each_item_is_what_the_claim_alone_would_get(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    policies(&app).await;
    let keyed = json!({ "policy": "sms", "subject": "a", "idempotency_key": "order-1" });
    let alone = app
        .claim_under("sms", json!({ "subject": "a" }), Some("order-1"))
        .await;
    for (subject, key) in [("full", "order-2"), ("other", "order-3")] {
        let body = json!({ "subject": subject, "units": 2 });
        app.claim_under("sms", body, Some(key)).await;
    }
    let claims = json!([
        claim("benefit", "a", 3),
        claim("sms", "full", 1),
        claim("sms", "b", 2),
        claim("sms", "b", 3),
        claim("unknown", "a", 1),
        claim("benefit", "", 1),
        keyed,
        { "policy": "sms", "subject": "b", "idempotency_key": "order-3" },
        { "policy": "Sms", "subject": "b" },
        { "policy": "sms", "subject": "c", "hold_seconds": 60, "metadata": { "order": "A-17" } },
    ]);
    let answer = send(&app, claims, false).await;
    let expected = [201, 429, 201, 422, 404, 422, 200, 422, 422, 201];
    assert_eq!(statuses(&answer), expected, "{answer:?}");
    let items = items(&answer);
    assert_eq!(items[0]["grant"]["units"], 3);
    assert_eq!(items[1]["outcome"], "denied");
    assert_eq!(items[1]["violated-policies"], json!(["day"]));
    assert_eq!(items[3]["errors"][0]["pointer"], "#/units");
    assert_eq!(items[5]["errors"][0]["pointer"], "#/subject");
    assert_eq!(items[6]["grant"], alone.json()["grant"]);
    assert_eq!(items[8]["errors"][0]["pointer"], "#/policy");
    assert_eq!(items[9]["grant"]["state"], "held");
    assert_eq!(items[9]["grant"]["metadata"]["order"], "A-17");
    assert_eq!(used(&app, "benefit", "a").await, [3]);
}

async fn all_are_granted_or_none_is(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    policies(&app).await;
    let all = json!([
        claim("benefit", "a", 2),
        claim("benefit", "a", 1),
        claim("sms", "a", 1),
        claim("sms", "b", 2),
    ]);
    let answer = send(&app, all, true).await;
    assert_eq!(statuses(&answer), [201; 4], "{answer:?}");
    assert_eq!(items(&answer)[1]["limits"][0]["remaining"], 0);
    assert_eq!(answer.at("/items/1/grant/granted_at"), NOON);
    // One denied claim refuses all other claims, also those of other policies and subjects.
    let none = json!([
        claim("benefit", "b", 1),
        claim("sms", "a", 1),
        claim("benefit", "a", 1),
        claim("sms", "c", 1),
    ]);
    let answer = send(&app, none, true).await;
    assert_eq!(statuses(&answer), [424, 424, 429, 424], "{answer:?}");
    assert!(answer.text.contains("#failed-dependency"), "{answer:?}");
    // A wrong claim and a claim of an unknown policy also refuse all others.
    for (wrong, status) in [
        (claim("unknown", "b", 1), 404),
        (claim("benefit", "", 1), 422),
        (claim("benefit", "b", 4), 422),
    ] {
        let answer = send(&app, json!([claim("benefit", "b", 1), wrong]), true).await;
        assert_eq!(statuses(&answer), [424, status], "{answer:?}");
    }
    for (policy, subject, units) in [("benefit", "b", 0), ("sms", "a", 1), ("sms", "c", 0)] {
        let found = used(&app, policy, subject).await;
        assert_eq!(found, [units], "{policy} {subject}");
    }
    // The subject has no room for both of its claims.
    let twice = json!([claim("sms", "c", 1), claim("sms", "c", 2)]);
    assert_eq!(statuses(&send(&app, twice, true).await), [424, 429]);
    // The next day begins for both policies, each at its own midnight.
    clock.set(instant(NOON) + TimeDelta::days(1));
    let again = json!([claim("benefit", "a", 3), claim("sms", "b", 2)]);
    assert_eq!(statuses(&send(&app, again, true).await), [201, 201]);
}

async fn an_atomic_batch_is_safe_to_retry(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    policies(&app).await;
    let keyed = |subject: &str, key: &str| json!({ "policy": "sms", "subject": subject, "idempotency_key": key, "hold_seconds": 60 });
    let batch = json!([keyed("a", "order-1"), keyed("b", "order-2")]);
    let first = send(&app, batch.clone(), true).await;
    assert_eq!(statuses(&first), [201, 201], "{first:?}");
    let again = send(&app, batch, true).await;
    assert_eq!(statuses(&again), [200, 200], "{again:?}");
    for (first, again) in items(&first).iter().zip(items(&again)) {
        assert_eq!(first["grant"], again["grant"]);
    }
    // A claim that was granted before does not stop the others. A reused key stops the others.
    let more = json!([keyed("a", "order-1"), keyed("c", "order-3")]);
    assert_eq!(statuses(&send(&app, more, true).await), [200, 201]);
    let reused = json!([keyed("d", "order-1"), keyed("d", "order-4")]);
    assert_eq!(statuses(&send(&app, reused, true).await), [422, 424]);
    assert_eq!(used(&app, "sms", "d").await, [0]);
    let twice = json!([keyed("d", "order-5"), keyed("d", "order-5")]);
    let answer = send(&app, twice, true).await;
    let told = problem(&answer, 422, "invalid");
    assert_eq!(told["errors"][0]["pointer"], "#/claims/1/idempotency_key");
    // The holds of a batch lapse like other holds.
    clock.advance(TimeDelta::seconds(60));
    let full = json!([claim("sms", "a", 2), claim("sms", "b", 2)]);
    assert_eq!(statuses(&send(&app, full, true).await), [201, 201]);
}

/// The key of the batch is for the claims without keys. Each has its number.
async fn a_key_of_the_batch_makes_a_retry_safe(stack: Stack) {
    let app = App::on(stack).await;
    policies(&app).await;
    for atomic in [false, true] {
        let subject = format!("atomic-{atomic}");
        let own = format!("own-{atomic}");
        let mut with_own = claim("benefit", &subject, 1);
        with_own["idempotency_key"] = json!(own);
        let claims = json!([
            claim("benefit", &subject, 1),
            claim("sms", &subject, 1),
            with_own
        ]);
        let body = json!({ "claims": claims, "atomic": atomic });
        let key = format!("\"order-{atomic}\"");
        let send = || app.ask_with(("Idempotency-Key", &key), "POST /v1/claims", body.clone());
        let first = send().await;
        assert_eq!(statuses(&first), [201, 201, 201], "{first:?}");
        let again = send().await;
        assert_eq!(statuses(&again), [200, 200, 200], "{again:?}");
        for (first, again) in items(&first).iter().zip(items(&again)) {
            assert_eq!(first["grant"], again["grant"]);
        }
        assert_eq!(used(&app, "benefit", &subject).await, [2]);
        assert_eq!(used(&app, "sms", &subject).await, [1]);
        // Each claim has the key that it would have alone.
        for key in [&format!("order-{atomic}#1"), &own] {
            let alone = app.claim_body(json!({ "subject": subject }), Some(key));
            assert_eq!(alone.await.status, 200);
        }
        // Other claims with the same key are not these claims.
        let other = json!({ "claims": [claim("benefit", "another", 1)], "atomic": atomic });
        let other = app.ask_with(("Idempotency-Key", &key), "POST /v1/claims", other);
        assert_eq!(statuses(&other.await), [422]);
    }
    let body = json!({ "claims": [claim("benefit", "b", 1)] });
    let long = "k".repeat(254);
    let answer = app.ask_with(("Idempotency-Key", &long), "POST /v1/claims", body);
    assert_eq!(invalid_places(&answer.await), ["Idempotency-Key"]);
    assert_eq!(used(&app, "benefit", "b").await, [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_batches_are_told() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    for atomic in [false, true] {
        problem(&send(&app, json!([]), atomic).await, 422, "invalid");
        let many = vec![claim("benefit", "a", 1); 1001];
        problem(&send(&app, json!(many), atomic).await, 422, "invalid");
        let wrong = json!([{ "policy": "benefit", "subject": "a", "dry_run": true }]);
        malformed(&send(&app, wrong, atomic).await, "dry_run");
    }
    assert_eq!(used(&app, "benefit", "a").await, [0]);
    // The largest batch: each claim has a subject of 256 characters and long metadata.
    let metadata = json!({ "a": "x".repeat(4000) });
    let claims: Vec<Value> = (0..1000)
        .map(|number| {
            let subject = format!("{number:0256}");
            json!({ "policy": "benefit", "subject": subject, "metadata": metadata })
        })
        .collect();
    let answer = send(&app, json!(claims), true).await;
    assert_eq!(statuses(&answer), [201; 1000]);
}
