//! Changes that wait for the policy's next local day. Every instance uses the change from that
//! instant.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::host::clock::ManualClock;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::judge::{Outcome, Wish};
use crate::support::app::{
    Answer, App, Ground, NOON, Stack, instant, on_every_stack, on_every_way,
};
use crate::support::books::Books;
use crate::support::crowd::{Fleet, all_at_once};

on_every_stack!(a_scheduled_change_switches_exactly_at_midnight);
on_every_way!(
    a_later_change_supersedes_a_scheduled_one,
    an_account_never_goes_back_to_an_older_version,
    midnight_under_load,
    what_fits_only_later_is_told_with_the_usage_of_now,
);

/// The end of the day of [`NOON`] in GMT+8.
const MIDNIGHT: &str = "2026-11-21T16:00:00Z";

fn midnight() -> DateTime<Utc> {
    instant(MIDNIGHT)
}

fn just_before() -> DateTime<Utc> {
    midnight() - TimeDelta::microseconds(1)
}

fn policy(max: u64, effective: &str) -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": max, "per": "day" }, { "max": 1000, "per": "week" }],
        "effective": effective,
        "reason": "a test",
    })
}

async fn put(app: &App, body: Value) -> Value {
    let answer = app.put_policy("benefit", body).await;
    assert!(answer.status.is_success(), "{answer:?}");
    answer.json()
}

/// The version of a grant, and the day's `max`.
#[track_caller]
fn granted_by(answer: &Answer) -> (u64, u64) {
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let body = answer.json();
    let version = body["grant"]["policy_version"].as_u64();
    let max = body["limits"][0]["max"].as_u64();
    (version.expect("a version"), max.expect("a max"))
}

async fn a_scheduled_change_switches_exactly_at_midnight(stack: Stack) {
    let durabilities: &[&str] = match stack {
        Stack::Sqlite | Stack::Postgres => &["recorded"],
        Stack::RedisAndSqlite | Stack::RedisAndPostgres => &["recorded", "counted"],
    };
    for durability in durabilities {
        let fleet = Fleet::start(stack, instant(NOON)).await;
        let books = Books::open(&fleet.ground).await;
        let mut body = policy(2, "now");
        body["durability"] = json!(durability);
        assert_eq!(put(&fleet.apps[0], body.clone()).await["version"], 1);
        body["limits"][0]["max"] = json!(5);
        body["effective"] = json!("next_window");
        let scheduled = put(&fleet.apps[0], body).await;
        assert_eq!(scheduled["effective_at"], MIDNIGHT);
        assert_eq!(scheduled["in_force_version"], 1);
        fleet.everybody_knows_all().await;
        fleet.clock.set(just_before());
        for (number, app) in fleet.apps.iter().enumerate() {
            let subject = format!("member-{number}");
            for grants in 1..=2 {
                let granted = app.claim(&subject, None).await;
                assert_eq!(granted_by(&granted), (1, 2));
                books.has_recorded(&subject, grants).await;
            }
            let denied = app.claim(&subject, None).await;
            assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
            assert_eq!(denied.json()["limits"][0]["max"], 2);
            let units = app.claim_body(json!({ "subject": "a", "units": 3 }), None);
            let units = units.await;
            assert_eq!(units.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(units.json()["fits_at"], MIDNIGHT);
            let units = app.claim_body(json!({ "subject": "a", "units": 6 }), None);
            assert_eq!(units.await.status, StatusCode::UNPROCESSABLE_ENTITY);
            let usage = app.get("/v1/policies/benefit/subjects/nobody").await.json();
            assert_eq!(usage["policy_version"], 1);
        }
        fleet.clock.set(midnight());
        for (number, app) in fleet.apps.iter().enumerate() {
            let subject = format!("member-{number}");
            let units = app.claim_body(json!({ "subject": subject, "units": 3 }), None);
            assert_eq!(granted_by(&units.await), (2, 5));
            books.has_recorded(&subject, 3).await;
            let keyed = app.claim(&subject, Some(&format!("key-{number}"))).await;
            assert_eq!(granted_by(&keyed), (2, 5));
            let usage = app.get("/v1/policies/benefit/subjects/nobody").await.json();
            assert_eq!(usage["policy_version"], 2);
            assert_eq!(usage["limits"][0]["max"], 5);
            let policy = app.get("/v1/policies/benefit").await.json();
            assert_eq!(policy["in_force_version"], 2);
        }
        fleet.finds_nothing().await;
    }
}

async fn a_later_change_supersedes_a_scheduled_one(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let app = fleet.app(0);
    let after_midnight = async |expected: (u64, u64)| {
        fleet.everybody_knows_all().await;
        fleet.clock.set(midnight());
        for app in &fleet.apps {
            let claim = app.claim("member-42", None).await;
            assert_eq!(granted_by(&claim), expected);
        }
        fleet.clock.set(instant(NOON));
    };
    put(&app, policy(20, "now")).await;
    // A change at once replaces a waiting change for good.
    put(&app, policy(30, "next_window")).await;
    let now = put(&app, policy(40, "now")).await;
    assert_eq!(
        (&now["version"], &now["in_force_version"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(granted_by(&app.claim("somebody", None).await), (3, 40));
    after_midnight((3, 40)).await;
    // Another change replaces a waiting change for the same instant.
    put(&app, policy(50, "next_window")).await;
    put(&app, policy(60, "next_window")).await;
    after_midnight((5, 60)).await;
    // The rule of a waiting change can be put at once.
    let forward = put(&app, policy(60, "now")).await;
    assert_eq!(
        (&forward["version"], &forward["effective_at"]),
        (&json!(6), &json!(NOON))
    );
    assert_eq!(granted_by(&app.claim("somebody", None).await), (6, 60));
    // The rule in force, put again, takes back a waiting change.
    put(&app, policy(70, "next_window")).await;
    put(&app, policy(60, "next_window")).await;
    after_midnight((8, 60)).await;
    // An archived policy is gone at once, with its waiting change.
    put(&app, policy(80, "next_window")).await;
    let request = app.request(reqwest::Method::DELETE, "/v1/policies/benefit?reason=over");
    let archived = Answer::of(request).await.json();
    assert_eq!(
        (&archived["version"], &archived["effective_at"]),
        (&json!(10), &json!(NOON))
    );
    fleet.everybody_knows_all().await;
    for at in [instant(NOON), midnight()] {
        fleet.clock.set(at);
        for app in &fleet.apps {
            let claim = app.claim("member-42", None).await;
            assert_eq!(claim.status, StatusCode::NOT_FOUND, "{claim:?}");
        }
    }
    fleet.finds_nothing().await;
}

/// Two instances whose clocks differ around midnight. On a stack with one instance, its clock goes
/// back.
async fn an_account_never_goes_back_to_an_older_version(stack: Stack) {
    let ground = Ground::new(stack);
    let ahead = ManualClock::at(instant(NOON));
    let behind = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => ahead.clone(),
        Stack::Postgres | Stack::RedisAndPostgres => ManualClock::at(instant(NOON)),
    };
    let start = async |clock: &ManualClock| {
        let app = App::start_at(&ground, clock);
        Arc::new(app.await)
    };
    let one = start(&ahead).await;
    let other = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => one.clone(),
        Stack::Postgres | Stack::RedisAndPostgres => start(&behind).await,
    };
    let fleet = Fleet::of(ground, ahead.clone(), vec![one.clone(), other.clone()]);
    put(&one, policy(3, "now")).await;
    put(&one, policy(9, "next_window")).await;
    fleet.everybody_knows_all().await;
    for round in 0..10 {
        let subject = format!("member-{round}");
        ahead.set(midnight() + TimeDelta::seconds(1));
        assert_eq!(granted_by(&one.claim(&subject, None).await), (2, 9));
        behind.set(just_before());
        let key = format!("key-{round}");
        let key = (round % 2 == 0).then_some(key.as_str());
        let late = other.claim(&subject, key).await;
        assert_eq!(granted_by(&late), (2, 9));
        // The account's time does not go back either.
        assert_eq!(late.json()["grant"]["granted_at"], "2026-11-21T16:00:01Z");
        let elsewhere = other.claim(&format!("{subject}-new"), key).await;
        if key.is_none() {
            assert_eq!(granted_by(&elsewhere), (1, 3));
        }
        let usage = format!("/v1/policies/benefit/subjects/{subject}");
        assert_eq!(other.get(&usage).await.json()["policy_version"], 2);
        assert_eq!(other.get(&usage).await.json()["limits"][0]["used"], 2);
    }
    fleet.finds_nothing().await;
}

/// Clients claim while the clock passes midnight. Each entry has the version that was in force at
/// the entry's instant.
async fn midnight_under_load(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    put(&fleet.apps[0], policy(1000, "now")).await;
    let mut body = policy(900, "next_window");
    // The day continues in another zone.
    body["time_zone"] = json!("UTC");
    put(&fleet.apps[0], body).await;
    fleet.everybody_knows_all().await;
    fleet.clock.set(midnight() - TimeDelta::microseconds(300));
    let clock = &fleet.clock;
    let fleet = &fleet;
    all_at_once(8, |client| async move {
        for round in 0..40 {
            let claim = Wish::of(&format!("member-{}", (client + round) % 3));
            let has_key = round % 3 == 0;
            let wish = fleet.wishes([Wish { has_key, ..claim }])[0];
            let outcome = fleet.send(client, wish).await;
            assert!(matches!(outcome, Outcome::Granted(_)), "{outcome:?}");
            clock.advance(TimeDelta::microseconds(2));
        }
    })
    .await;
    assert!(clock.now() > midnight());
    let mut versions = [0, 0];
    for entry in fleet.finds_nothing().await.entries {
        let expected = if entry.at < midnight() { 1 } else { 2 };
        assert_eq!(entry.policy_version, expected, "{entry:?}");
        versions[expected as usize - 1] += 1;
    }
    assert_eq!(versions.iter().sum::<u32>(), 320);
    assert!(versions.iter().all(|count| *count > 0), "{versions:?}");
}

/// An instance that denied such a claim just before learns of another instance's grant.
async fn what_fits_only_later_is_told_with_the_usage_of_now(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    put(&fleet.apps[0], policy(2, "now")).await;
    put(&fleet.apps[0], policy(5, "next_window")).await;
    fleet.everybody_knows_all().await;
    let other = fleet.apps.last().expect("an instance");
    for used in 0..=2 {
        let denied = fleet.apps[0].claim_body(json!({ "subject": "a", "units": 3 }), None);
        let denied = denied.await;
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
        assert_eq!(denied.json()["limits"][0]["used"], used);
        let granted = other.claim("a", None).await;
        assert_eq!(granted.status == StatusCode::CREATED, used < 2);
    }
}
