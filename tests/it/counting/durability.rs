//! Policies with `durability: counted`: Redis decides, and the grants are appended to the ledger
//! steadily.

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::judge::{Provisional, Wish};
use crate::support::app::{
    Answer, App, Ground, NOON, Stack, eventually, instant, on_every_store_with_redis,
};
use crate::support::books::Books;
use crate::support::crowd::Fleet;
#[cfg(feature = "faults")]
use crate::support::{hand::Hand, process::Process};

on_every_store_with_redis!(
    as_many_as_fit_and_all_of_them_are_recorded,
    parts_of_a_day_and_weeks_are_counted_too,
    a_retry_gets_the_same_grant_before_and_after_it_is_recorded,
    a_retry_after_the_policy_stopped_counting_gets_its_grant,
    what_the_ledger_holds_counts,
    a_hold_lapses_before_what_was_counted_without_it,
);

fn counted(max: u64) -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": max, "per": "day" }, { "max": 2 * max, "per": "month" }],
        "durability": "counted",
        "reason": "a test",
    })
}

/// Redis finds these windows in a line as it finds days, also after a reset.
async fn parts_of_a_day_and_weeks_are_counted_too(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let mut body = counted(7);
    body["limits"] = json!([
        { "max": 4, "per": "6h", "kind": "calendar" },
        { "max": 7, "per": "2 weeks", "from": "1969-12-29" },
    ]);
    let version = fleet.put_body(body).await;
    fleet.everybody_knows(version).await;
    let claims = |client| vec![Wish::of(&format!("member-{}", client % 3))];
    assert_eq!(fleet.claim_all(60, claims).await, [12, 0, 48]);
    fleet.finds_nothing().await;
    fleet.clock.advance(chrono::TimeDelta::hours(6));
    assert_eq!(fleet.claim_all(60, claims).await, [9, 0, 51]);
    for entry in fleet.finds_nothing().await.entries {
        assert_eq!(entry.provisional, Some(Provisional::Within), "{entry:?}");
    }
}

/// The grants that a filter selects.
async fn list(app: &App, filter: &str) -> Vec<Value> {
    let answer = app.get(&format!("/v1/grants?{filter}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()["items"].as_array().expect("items").clone()
}

/// Many claims at the same time, at two instances. Exactly the claims that fit are granted, and the
/// ledger gets each grant as it was answered.
async fn as_many_as_fit_and_all_of_them_are_recorded(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let version = fleet.put_body(counted(7)).await;
    fleet.everybody_knows(version).await;
    let claims = |client| vec![Wish::of(&format!("member-{}", client % 3))];
    assert_eq!(fleet.claim_all(60, claims).await, [21, 0, 39]);
    for attempt in &fleet.history().attempts {
        let mut told = attempt.outcome.told().into_iter();
        assert!(told.all(|told| told.provisional), "{attempt:?}");
    }
    for entry in fleet.finds_nothing().await.entries {
        assert_eq!(entry.provisional, Some(Provisional::Within), "{entry:?}");
    }
    let app = &fleet.apps[0];
    assert_eq!(list(app, "provisional=true").await.len(), 21);
    assert!(list(app, "over=true").await.is_empty());
    let usage = app.get("/v1/policies/benefit/subjects/member-1").await;
    let limits = usage.json()["limits"].clone();
    assert_eq!(
        (&limits[0]["used"], &limits[1]["remaining"]),
        (&json!(7), &json!(7))
    );
}

async fn a_retry_gets_the_same_grant_before_and_after_it_is_recorded(stack: Stack) {
    let app = App::on(stack).await;
    app.put_policy("benefit", counted(2)).await;
    let body = json!({ "subject": "member-42", "metadata": { "order": "A-17" } });
    let first = app.claim_body(body.clone(), Some("order-17")).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    let first = first.json();
    let again = async || {
        let again = app.claim_body(body.clone(), Some("order-17")).await;
        assert_eq!(again.status, StatusCode::OK, "{again:?}");
        assert_eq!(again.header("Idempotent-Replayed"), Some("true"));
        let again = again.json();
        assert_eq!(again, first);
        let other = app.claim("member-42", Some("order-17")).await;
        assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(other.text.contains("idempotency-key-reused"), "{other:?}");
    };
    again().await;
    let id = first["grant"]["id"].as_str().expect("an id");
    let path = format!("/v1/grants/{id}");
    eventually("the grant is recorded", || async {
        app.get(&path).await.status == StatusCode::OK
    })
    .await;
    assert_eq!(app.get(&path).await.json(), first["grant"]);
    again().await;
    // One of two units is left, and a denial is not remembered.
    assert_eq!(
        app.claim("member-42", Some("b")).await.status,
        StatusCode::CREATED
    );
    for _ in 0..2 {
        let denied = app.claim("member-42", Some("c")).await;
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
        assert_eq!(denied.json()["limits"][0]["used"], 2);
    }
    app.put_policy("benefit", counted(3)).await;
    let raised = app.claim("member-42", Some("c")).await;
    assert_eq!(raised.status, StatusCode::CREATED, "{raised:?}");
}

/// A grant that Redis counted can still wait for the ledger when its policy stops counting.
async fn a_retry_after_the_policy_stopped_counting_gets_its_grant(stack: Stack) {
    let app = App::on(stack).await;
    let mut recorded = counted(1000);
    recorded["durability"] = json!("recorded");
    for round in 0..20 {
        app.put_policy("benefit", counted(1000)).await;
        let keys = (0..8).map(|claim| format!("order-{round}-{claim}"));
        let keys: Vec<String> = keys.collect();
        let claim = |key| app.claim("member-42", Some(key));
        let granted = join_all(keys.iter().map(|key| claim(key))).await;
        app.put_policy("benefit", recorded.clone()).await;
        let again = join_all(keys.iter().map(|key| claim(key))).await;
        for (granted, again) in granted.iter().zip(&again) {
            assert_eq!(granted.status, StatusCode::CREATED, "{granted:?}");
            assert_eq!(again.status, StatusCode::OK, "{round}: {again:?}");
            assert_eq!(again.grant_id(), granted.grant_id());
        }
    }
}

/// A recorded policy that becomes counted continues from the ledger's totals, and the reverse.
async fn what_the_ledger_holds_counts(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(5, "UTC").await;
    for _ in 0..2 {
        assert_eq!(
            app.claim("member-42", None).await.status,
            StatusCode::CREATED
        );
    }
    app.put_policy("benefit", counted(4)).await;
    let dry = json!({ "subject": "member-42", "units": 2, "dry_run": true });
    let answer = app.claim_body(dry.clone(), None).await;
    assert_eq!(answer.json()["outcome"], "granted", "{answer:?}");
    let third = app.claim("member-42", None).await.json();
    assert_eq!(third["limits"][0]["used"], 3, "{third}");
    let answer = app.claim_body(dry.clone(), None).await.json();
    assert_eq!(answer["outcome"], "denied", "{answer}");
    assert_eq!(answer["limits"][0]["used"], 3, "{answer}");
    assert_eq!(
        app.claim("member-42", None).await.status,
        StatusCode::CREATED
    );
    let fifth = app.claim("member-42", None).await;
    assert_eq!(fifth.status, StatusCode::TOO_MANY_REQUESTS, "{fifth:?}");
    eventually("all grants are recorded", || async {
        list(&app, "policy=benefit").await.len() == 4
    })
    .await;
    let mut recorded = counted(5);
    recorded["durability"] = json!("recorded");
    app.put_policy("benefit", recorded).await;
    let fifth = app.claim("member-42", None).await.json();
    assert_eq!(fifth["limits"][0]["used"], 5, "{fifth}");
    assert!(fifth["grant"].get("provisional").is_none());
    assert!(fifth.get("provisional").is_none());
    let sixth = app.claim("member-42", None).await;
    assert_eq!(sixth.status, StatusCode::TOO_MANY_REQUESTS);
    Books::open(&ground).await.audit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_policy_grants_nothing_and_repeats_what_it_granted() {
    let app = App::on(Stack::RedisAndSqlite).await;
    app.put_policy("benefit", counted(4)).await;
    let first = app.claim("member-42", Some("a")).await.json();
    app.pause(true).await.is(200);
    let denied = app.claim("member-42", None).await;
    assert_eq!(denied.status, StatusCode::CONFLICT, "{denied:?}");
    eventually("the grant is recorded", || async {
        list(&app, "provisional=true").await.len() == 1
    })
    .await;
    let again = app.claim("member-42", Some("a")).await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
    assert_eq!(again.json()["grant"], first["grant"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_told() {
    let app = App::on(Stack::Sqlite).await;
    let mut body = counted(3);
    body["on_ledger_outage"] = json!("count");
    let answer = app.put_policy("benefit", body.clone()).await;
    assert_eq!(
        answer.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{answer:?}"
    );
    for pointer in ["/durability", "/on_ledger_outage", "REDIS_URL"] {
        assert!(answer.text.contains(pointer), "{answer:?}");
    }
    body["durability"] = json!("counting");
    let answer = app.put_policy("benefit", body).await;
    assert!(answer.text.contains("recorded or counted"), "{answer:?}");
    for query in ["provisional=false", "over=1"] {
        let answer = app.get(&format!("/v1/grants?{query}")).await;
        assert_eq!(
            answer.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{answer:?}"
        );
        assert!(answer.text.contains("write true"), "{answer:?}");
    }
    let answer =
        Answer::of(app.request(Method::GET, "/v1/grants/export?format=csv&over=true")).await;
    let columns = r#","metadata","provisional","over","would_deny","#;
    assert!(answer.text.contains(columns), "{answer:?}");
}

/// A hold that lapsed frees its units. A grant counted afterwards is not over the limit. The ledger
/// gets the lapse before the grant, so that the counter alone can decide again.
async fn a_hold_lapses_before_what_was_counted_without_it(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.put_policy("benefit", counted(3)).await;
    let body = json!({ "subject": "member-42", "units": 3, "hold_seconds": 60 });
    let hold = app.claim_body(body, None).await;
    assert_eq!(hold.status, StatusCode::CREATED, "{hold:?}");
    let denied = app.claim("member-42", None).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    clock.advance(chrono::TimeDelta::seconds(60));
    for used in 1..=3 {
        let answer = app.claim("member-42", None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        assert_eq!(answer.json()["limits"][0]["used"], used, "{answer:?}");
        // Between its append and its removal from the queue, a grant can be counted twice.
        eventually("the grant is recorded", || async {
            list(&app, "provisional=true").await.len() == used
        })
        .await;
    }
    let denied = app.claim("member-42", None).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    assert!(list(&app, "over=true").await.is_empty());
    let path = "/v1/policies/benefit/subjects/member-42/entries";
    let entries = app.get(path).await.json()["items"].clone();
    let entries = entries.as_array().expect("items").iter();
    let kinds: Vec<&str> = entries.filter_map(|entry| entry["kind"].as_str()).collect();
    assert_eq!(kinds, ["grant", "grant", "grant", "lapse", "grant"]);
}

/// Between the append of a drain and the removal from the queue, a grant is in the ledger and in
/// the queue. No claim counts it twice.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_is_granted_while_a_drain_is_under_way() {
    let ground = Ground::new(Stack::RedisAndPostgres);
    let one = App::start(&ground).await;
    let created = one.put_policy("benefit", counted(3)).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let first = one.claim("member-42", None).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    let books = Books::open(&ground).await;
    books.has_recorded("member-42", 1).await;
    let redis_url = ground.redis_url.as_deref().expect("counters");
    let settings = [
        ("REDIS_URL", redis_url),
        ("FAILPOINTS", "drain.appended=1*return(stop)"),
    ];
    let other = Process::start(&ground.database_url, &settings);
    let claim = other.request(Method::POST, "/v1/policies/benefit/claims");
    let claim = claim.json(&json!({ "subject": "member-42" })).send();
    // The claim can stop before it has its answer.
    let claim = tokio::spawn(claim);
    eventually("the drain was stopped", || async { other.is_stopped() }).await;
    // Without the counter the ledger must decide, and the ledger has the grant already.
    let hand = Hand::of(&ground).await;
    hand.forget(books.account_of("member-42")).await;
    let usage = one.get("/v1/policies/benefit/subjects/member-42").await;
    assert_eq!(usage.json()["limits"][0]["used"], 2, "{usage:?}");
    let dry = json!({ "subject": "member-42", "dry_run": true });
    let dry = one.claim_body(dry, None).await;
    assert_eq!(dry.json()["outcome"], "granted", "{dry:?}");
    assert_eq!(dry.json()["limits"][0]["used"], 3, "{dry:?}");
    for used in 3..=4 {
        let answer = one.claim("member-42", None).await;
        let expected = match used {
            3 => StatusCode::CREATED,
            _ => StatusCode::TOO_MANY_REQUESTS,
        };
        assert_eq!(answer.status, expected, "{answer:?}");
        assert_eq!(answer.json()["limits"][0]["used"], 3, "{answer:?}");
    }
    other.resume();
    let second = claim.await.expect("the task ends").expect("an answer");
    assert_eq!(second.status(), StatusCode::CREATED);
    books.has_recorded("member-42", 3).await;
}
