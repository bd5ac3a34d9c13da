//! Bundles: an atomic batch is one claim, and its grants are reversed and confirmed together.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::keys::make_role;
use crate::http::{items, malformed, problem, used};
use crate::support::app::{Answer, App, Ground, Stack, on_every_stack};
use crate::support::desk::on_every_store;

const NEVER: &str = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42";

on_every_stack!(
    a_bundle_is_reversed_whole,
    a_bundle_is_confirmed_whole,
    a_batch_with_a_key_is_one_claim,
);

on_every_store!(
    a_bundle_is_seen_by_all_readers,
    a_bundle_needs_rights_to_all_of_it,
    a_hold_that_lapsed_is_left,
    the_claims_of_a_batch_without_a_key_stay_their_own,
);

async fn policies(app: &App) {
    app.benefit(3, "GMT+8").await;
    let sms = json!({ "time_zone": "UTC", "limits": [{ "max": 2, "per": "day" }] });
    assert_eq!(app.put_policy("sms", sms).await.status, 201);
}

/// A claim per phone and per device.
fn claims(hold_seconds: Option<u64>) -> Value {
    let claim = |policy: &str, subject: &str| json!({ "policy": policy, "subject": subject, "hold_seconds": hold_seconds });
    json!([
        claim("benefit", "phone"),
        claim("sms", "device"),
        claim("sms", "device")
    ])
}

async fn send(app: &App, key: Option<&str>, claims: &Value) -> Answer {
    let body = json!({ "claims": claims, "atomic": true });
    match key {
        Some(key) => {
            app.ask_with(("Idempotency-Key", key), "POST /v1/claims", body)
                .await
        }
        None => app.ask("POST /v1/claims", body).await,
    }
}

fn statuses(answer: &Answer) -> Vec<u64> {
    let status = |item: &Value| item["status"].as_u64().expect("a status");
    items(answer).iter().map(status).collect()
}

/// The id of the bundle in an answer.
fn bundle(answer: &Answer) -> String {
    let id = answer.json()["bundle"].as_str().map(str::to_owned);
    id.unwrap_or_else(|| panic!("a bundle: {answer:?}"))
}

async fn granted(app: &App, hold_seconds: Option<u64>) -> String {
    let answer = send(app, None, &claims(hold_seconds)).await;
    assert_eq!(statuses(&answer), [201, 201, 201], "{answer:?}");
    bundle(&answer)
}

async fn reverse(app: &App, bundle: &str) -> Answer {
    let line = format!("POST /v1/bundles/{bundle}/reversal");
    app.ask(&line, json!({ "reason": "SMS gateway refused" }))
        .await
}

async fn confirm(app: &App, bundle: &str) -> Answer {
    let line = format!("POST /v1/bundles/{bundle}/confirmation");
    app.ask(&line, json!({})).await
}

fn states(answer: &Answer) -> Vec<Value> {
    let grants = answer.json()["grants"].as_array().expect("grants").clone();
    grants.iter().map(|grant| grant["state"].clone()).collect()
}

async fn both_used(app: &App) -> [u64; 2] {
    let phone = used(app, "benefit", "phone").await;
    let device = used(app, "sms", "device").await;
    [phone[0], device[0]]
}

async fn a_bundle_is_reversed_whole(stack: Stack) {
    let app = App::on(stack).await;
    policies(&app).await;
    let id = granted(&app, None).await;
    // The counter of the device denies from now on, until the reversal is answered.
    for _ in 0..3 {
        let denied = app
            .claim_under("sms", json!({ "subject": "device" }), None)
            .await;
        problem(&denied, 429, "quota-exceeded");
    }
    let shown = app.get(&format!("/v1/bundles/{id}")).await;
    assert_eq!(shown.is(200)["id"], json!(id));
    assert_eq!(states(&shown), ["granted", "granted", "granted"]);
    let reversed = reverse(&app, &id).await;
    reversed.is(201);
    assert_eq!(states(&reversed), ["reversed", "reversed", "reversed"]);
    for grant in reversed.json()["grants"].as_array().expect("grants") {
        assert_eq!(grant["bundle"], json!(id));
        assert_eq!(grant["reversal"]["reason"], "SMS gateway refused");
    }
    let claimed = app
        .claim_under("sms", json!({ "subject": "device" }), None)
        .await;
    claimed.is(201);
    let again = reverse(&app, &id).await;
    again.is(200);
    assert_eq!(states(&again), ["reversed", "reversed", "reversed"]);
    assert_eq!(both_used(&app).await, [0, 1]);
    problem(&confirm(&app, &id).await, 409, "not-a-hold");
    // Of a bundle that was reversed in part, the rest is reversed.
    let again = app.reverse(&claimed.grant_id(), "sent twice").await;
    again.is(201);
    let answer = send(&app, None, &claims(None)).await;
    let first = items(&answer)[1]["grant"]["id"].clone();
    app.reverse(first.as_str().expect("an id"), "sent twice")
        .await
        .is(201);
    reverse(&app, &bundle(&answer)).await.is(201);
    assert_eq!(both_used(&app).await, [0, 0]);
}

async fn a_bundle_is_confirmed_whole(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    policies(&app).await;
    let id = granted(&app, Some(60)).await;
    let confirmed = confirm(&app, &id).await;
    confirmed.is(201);
    assert_eq!(states(&confirmed), ["granted", "granted", "granted"]);
    confirm(&app, &id).await.is(200);
    clock.advance(TimeDelta::seconds(61));
    assert_eq!(both_used(&app).await, [1, 2]);
    // What was confirmed can be reversed.
    reverse(&app, &id).await.is(201);
    assert_eq!(both_used(&app).await, [0, 0]);
    // If a hold was reversed or lapsed, none is confirmed.
    let answer = send(&app, None, &claims(Some(60))).await;
    let phone = items(&answer)[0]["grant"]["id"].clone();
    app.reverse(phone.as_str().expect("an id"), "sent twice")
        .await
        .is(201);
    let id = bundle(&answer);
    problem(&confirm(&app, &id).await, 409, "grant-reversed");
    clock.advance(TimeDelta::seconds(61));
    let late = confirm(&app, &id).await;
    assert!([409, 410].contains(&late.status.as_u16()), "{late:?}");
    assert_eq!(both_used(&app).await, [0, 0]);
    let id = granted(&app, Some(60)).await;
    clock.advance(TimeDelta::seconds(61));
    problem(&confirm(&app, &id).await, 410, "hold-lapsed");
    let line = format!("POST /v1/bundles/{id}/confirmation");
    malformed(&app.ask(&line, json!({ "units": 1 })).await, "units");
}

async fn a_hold_that_lapsed_is_left(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    policies(&app).await;
    let mut mixed = claims(None);
    mixed[0]["hold_seconds"] = json!(60);
    let answer = send(&app, None, &mixed).await;
    let id = bundle(&answer);
    // A bundle with a hold and grants: the hold is confirmed, the grants are.
    clock.advance(TimeDelta::seconds(61));
    let reversed = reverse(&app, &id).await;
    reversed.is(201);
    let mut told = states(&reversed);
    told.sort_by_key(Value::to_string);
    assert_eq!(told, ["lapsed", "reversed", "reversed"]);
    assert_eq!(both_used(&app).await, [0, 0]);
    reverse(&app, &id).await.is(200);
    let lapsed = granted(&app, Some(60)).await;
    clock.advance(TimeDelta::seconds(61));
    let reversed = reverse(&app, &lapsed).await;
    reversed.is(200);
    assert_eq!(states(&reversed), ["lapsed", "lapsed", "lapsed"]);
    let mixed = send(&app, None, &mixed).await;
    let confirmed = confirm(&app, &bundle(&mixed)).await;
    confirmed.is(201);
    assert_eq!(states(&confirmed), ["granted", "granted", "granted"]);
}

async fn a_batch_with_a_key_is_one_claim(stack: Stack) {
    let app = App::on(stack).await;
    policies(&app).await;
    let all = claims(None);
    let first = send(&app, Some("order-17"), &all).await;
    assert_eq!(statuses(&first), [201, 201, 201]);
    let id = bundle(&first);
    let again = send(&app, Some("order-17"), &all).await;
    assert_eq!(statuses(&again), [200, 200, 200]);
    assert_eq!(bundle(&again), id);
    // Fewer claims, more claims, the same in another order (a key belongs to a policy), and one with another key of
    // its own.
    let fewer = json!([all[0], all[1]]);
    let mut more = all.clone();
    more.as_array_mut()
        .expect("claims")
        .push(json!({ "policy": "benefit", "subject": "address" }));
    let reordered = json!([all[1], all[0], all[2]]);
    let mut own = all.clone();
    own[2]["idempotency_key"] = json!("another");
    for (other, expected) in [
        (fewer, vec![422, 422]),
        (more, vec![422, 422, 422, 424]),
        (reordered, vec![429, 424, 422]),
        (own, vec![422, 422, 429]),
    ] {
        let answer = send(&app, Some("order-17"), &other).await;
        assert_eq!(statuses(&answer), expected, "{answer:?}");
        assert_eq!(answer.json().get("bundle"), None);
    }
    assert_eq!(both_used(&app).await, [1, 2]);
    assert_eq!(used(&app, "benefit", "address").await, [0]);
    // A batch with an invalid claim, or with other units, is another one too.
    let mut invalid = all.clone();
    invalid[2]["units"] = json!(0);
    let answer = send(&app, Some("order-17"), &invalid).await;
    assert_eq!(statuses(&answer), [422, 422, 422], "{answer:?}");
    invalid[2]["units"] = json!(2);
    let answer = send(&app, Some("order-17"), &invalid).await;
    assert_eq!(statuses(&answer), [422, 422, 422], "{answer:?}");
    // A claim alone with the key of one of them gets its grant.
    let body = json!({ "subject": "phone" });
    let alone = app.claim_under("benefit", body, Some("order-17#1")).await;
    assert_eq!(alone.is(200)["grant"]["bundle"], json!(id));
    // A retry names the bundle as long as all of its grants are in force.
    let claim = |subject: &str| json!({ "policy": "benefit", "subject": subject });
    let two = json!([claim("a"), claim("b")]);
    let partly = send(&app, Some("order-19"), &two).await;
    let first = items(&partly)[0]["grant"]["id"].clone();
    let first = first.as_str().expect("an id");
    app.reverse(first, "sent twice").await.is(201);
    let again = send(&app, Some("order-19"), &two).await;
    assert_eq!(statuses(&again), [409, 200]);
    assert_eq!(again.json().get("bundle"), None);
    // A batch that was denied takes its key nowhere.
    let denied = send(&app, Some("order-18"), &all).await;
    assert_eq!(statuses(&denied), [424, 429, 429]);
    reverse(&app, &id).await.is(201);
    let retried = send(&app, Some("order-18"), &all).await;
    assert_eq!(statuses(&retried), [201, 201, 201]);
    let ended = send(&app, Some("order-17"), &all).await;
    assert_eq!(statuses(&ended), [409, 409, 409], "{ended:?}");
    assert_eq!(both_used(&app).await, [1, 2]);
}

async fn the_claims_of_a_batch_without_a_key_stay_their_own(stack: Stack) {
    let app = App::on(stack).await;
    policies(&app).await;
    let keyed =
        |key: &str| json!({ "policy": "benefit", "subject": "phone", "idempotency_key": key });
    let alone = app
        .claim_under("benefit", json!({ "subject": "phone" }), Some("a"))
        .await;
    assert_eq!(alone.is(201)["grant"].get("bundle"), None);
    let mixed = send(&app, None, &json!([keyed("a"), keyed("b")])).await;
    assert_eq!(statuses(&mixed), [200, 201]);
    let id = bundle(&mixed);
    let again = send(&app, None, &json!([keyed("a"), keyed("b")])).await;
    assert_eq!(statuses(&again), [200, 200]);
    // The bundle has what the batch was granted.
    let shown = app.get(&format!("/v1/bundles/{id}")).await;
    assert_eq!(states(&shown), ["granted"]);
    reverse(&app, &id).await.is(201);
    assert_eq!(used(&app, "benefit", "phone").await, [1]);
}

async fn a_bundle_needs_rights_to_all_of_it(stack: Stack) {
    let app = App::on(stack).await;
    policies(&app).await;
    let id = granted(&app, None).await;
    let shop = make_role(&app, "claim", Some("sms")).await;
    let audit = make_role(&app, "audit", None).await;
    let line = format!("POST /v1/bundles/{id}/reversal");
    let body = json!({ "reason": "SMS gateway refused" });
    problem(
        &app.ask_as(&shop.secret, &line, body.clone()).await,
        403,
        "forbidden",
    );
    problem(
        &app.ask_as(&audit.secret, &line, body).await,
        403,
        "forbidden",
    );
    let line = format!("GET /v1/bundles/{id}");
    app.ask_as(&audit.secret, &line, Value::Null).await.is(200);
    assert_eq!(both_used(&app).await, [1, 2]);
    problem(&reverse(&app, NEVER).await, 404, "not-found");
    problem(&confirm(&app, NEVER).await, 404, "not-found");
    problem(
        &app.get(&format!("/v1/bundles/{NEVER}")).await,
        404,
        "not-found",
    );
    problem(&reverse(&app, "order-17").await, 422, "invalid");
    let line = format!("POST /v1/bundles/{id}/reversal");
    problem(
        &app.ask(&line, json!({ "reason": "" })).await,
        422,
        "invalid",
    );
}

async fn a_bundle_is_seen_by_all_readers(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    policies(&app).await;
    let id = granted(&app, None).await;
    let bundles = |answer: &Answer| -> Vec<Value> {
        items(answer)
            .iter()
            .map(|item| item["bundle"].clone())
            .collect()
    };
    let expected = vec![json!(id); 3];
    assert_eq!(bundles(&app.get("/v1/grants").await), expected);
    assert_eq!(bundles(&app.get("/v1/entries?wait=10").await), expected);
    let of_device = app.get("/v1/policies/sms/subjects/device/entries").await;
    assert_eq!(bundles(&of_device), expected[..2]);
    for export in [
        "/v1/grants/export?format=csv",
        "/v1/entries/export?format=csv",
    ] {
        let exported = app.get(export).await;
        assert_eq!(exported.text.matches(&id).count(), 3, "{exported:?}");
    }
    // Another instance finds and reverses it.
    let other = App::start(&ground).await;
    assert_eq!(
        states(&reverse(&other, &id).await),
        ["reversed", "reversed", "reversed"]
    );
    assert_eq!(
        states(&app.get(&format!("/v1/bundles/{id}")).await),
        states(&reverse(&app, &id).await)
    );
}
