//! An override gives one subject another `max`. It holds at once and until its end, and never lets
//! a subject exceed the `max` of the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{SecondsFormat, TimeDelta};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::http::problem;
use crate::judge::{Entry, Provisional, Wish};
use crate::support::app::{
    Answer, App, NOON, Stack, eventually, instant, on_every_stack, on_every_store_with_redis,
    on_every_way,
};
use crate::support::books::Books;
use crate::support::crowd::Fleet;
use crate::support::dice::Dice;

on_every_stack!(an_override_holds_for_the_very_next_claim);
on_every_way!(an_override_holds_everywhere_soon, an_override_ends);
on_every_store_with_redis!(overrides_that_change_while_redis_counts);

/// The durabilities that a stack supports.
fn durabilities(stack: Stack) -> &'static [&'static str] {
    match stack {
        Stack::Sqlite | Stack::Postgres => &["recorded"],
        Stack::RedisAndSqlite | Stack::RedisAndPostgres => &["recorded", "counted"],
    }
}

fn policy(max: u64, durability: &str) -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": max, "per": "day" }, { "max": 1000, "per": "month" }],
        "durability": durability,
        "reason": "a test",
    })
}

/// The day's `max` and usage in an answer.
fn day(answer: &Answer) -> (u64, u64) {
    let limit = answer.json()["limits"][0].clone();
    let number = |name: &str| limit[name].as_u64().expect("a number");
    (number("max"), number("used"))
}

/// A client that claims, with new keys or without keys.
struct Client {
    app: Arc<App>,
    subject: String,
    has_keys: bool,
    claims: u32,
    grants: usize,
    books: Arc<Books>,
}

impl Client {
    fn new(app: &Arc<App>, books: &Arc<Books>, subject: &str, has_keys: bool) -> Self {
        Self {
            app: app.clone(),
            subject: subject.to_owned(),
            has_keys,
            claims: 0,
            grants: 0,
            books: books.clone(),
        }
    }

    async fn claim(&mut self, units: u64) -> Answer {
        self.books.has_recorded(&self.subject, self.grants).await;
        self.claims += 1;
        let key = format!("{}-{}", self.subject, self.claims);
        let key = self.has_keys.then_some(key);
        let body = json!({ "subject": self.subject, "units": units });
        let answer = self.app.claim_body(body, key.as_deref()).await;
        self.grants += usize::from(answer.status == StatusCode::CREATED);
        answer
    }

    #[track_caller]
    fn is_granted(answer: &Answer, expected: (u64, u64)) {
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        assert_eq!(day(answer), expected, "{answer:?}");
    }

    #[track_caller]
    fn is_denied(answer: &Answer, expected: (u64, u64)) {
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
        assert_eq!(day(answer), expected, "{answer:?}");
        assert_eq!(answer.json()["limits"][0]["remaining"], 0, "{answer:?}");
    }

    #[track_caller]
    fn never_fits(answer: &Answer, max: u64) {
        assert_eq!(
            answer.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{answer:?}"
        );
        let words = format!("at most {max} fit per day");
        assert!(answer.text.contains(&words), "{answer:?}");
    }
}

/// The override holds at the instance that took it, although a counter was confirmed just before.
async fn an_override_holds_for_the_very_next_claim(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let books = Arc::new(Books::open(&fleet.ground).await);
    let app = fleet.app(0);
    for durability in durabilities(stack) {
        assert!(
            app.put_policy("benefit", policy(3, durability))
                .await
                .status
                .is_success()
        );
        fleet.everybody_knows_all().await;
        for has_keys in [false, true] {
            let subject = format!("{durability}-{has_keys}");
            let mut client = Client::new(&app, &books, &subject, has_keys);
            for used in 1..=3 {
                Client::is_granted(&client.claim(1).await, (3, used));
            }
            Client::is_denied(&client.claim(1).await, (3, 3));
            // A higher `max`.
            app.override_day(&subject, 5).await;
            Client::is_granted(&client.claim(1).await, (5, 4));
            Client::is_granted(&client.claim(1).await, (5, 5));
            Client::is_denied(&client.claim(1).await, (5, 5));
            Client::never_fits(&client.claim(6).await, 5);
            // A lower `max`: no granted unit is taken back.
            app.override_day(&subject, 2).await;
            Client::is_denied(&client.claim(1).await, (2, 5));
            // A claim within the policy's `max` is denied. A claim above the override's `max` never
            // fits.
            Client::is_denied(&client.claim(3).await, (2, 5));
            Client::never_fits(&client.claim(4).await, 3);
            // A higher `max`, and a claim above the policy's own `max`.
            app.override_day(&subject, 20).await;
            Client::is_granted(&client.claim(12).await, (20, 17));
            // The subject is blocked.
            app.block(&subject).await.is(201);
            for units in [1, 3, 40] {
                problem(&client.claim(units).await, 403, "subject-blocked");
            }
            app.remove_block(&subject).await.is(200);
            Client::is_granted(&client.claim(1).await, (20, 18));
            app.block(&subject).await.is(201);
            problem(&client.claim(1).await, 403, "subject-blocked");
            app.remove_block(&subject).await.is(200);
            // The override is deleted, and the policy's own `max` holds again.
            let deleted = app.delete_override(&subject).await;
            assert_eq!(deleted.status, StatusCode::OK, "{deleted:?}");
            Client::is_denied(&client.claim(1).await, (3, 18));
            // A change of the policy also holds under an override, for limits that the override
            // does not name.
            app.override_day(&subject, 30).await;
            Client::is_granted(&client.claim(1).await, (30, 19));
        }
        // Another subject keeps its own limits.
        let other = app.claim(&format!("{durability}-other"), None).await;
        Client::is_granted(&other, (3, 1));
    }
    fleet.finds_nothing().await;
}

async fn an_override_holds_everywhere_soon(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    for durability in durabilities(stack) {
        let put = fleet.apps[0].put_policy("benefit", policy(1, durability));
        assert!(put.await.status.is_success());
        fleet.everybody_knows_all().await;
        for app in &fleet.apps {
            let claim = app.claim(durability, None).await;
            assert!(
                [StatusCode::CREATED, StatusCode::TOO_MANY_REQUESTS].contains(&claim.status),
                "{claim:?}"
            );
        }
        fleet.apps[0].override_day(durability, 1000).await;
        for app in &fleet.apps {
            eventually("the raise holds everywhere", || async {
                app.claim(durability, None).await.status == StatusCode::CREATED
            })
            .await;
        }
        fleet.apps[0].block(durability).await.is(201);
        for app in &fleet.apps {
            eventually("the block holds everywhere", || async {
                app.claim(durability, None).await.status == StatusCode::FORBIDDEN
            })
            .await;
            // After the block holds, it continues to hold.
            for _ in 0..3 {
                let denied = app.claim(durability, None).await;
                problem(&denied, 403, "subject-blocked");
            }
        }
    }
}

async fn an_override_ends(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let books = Arc::new(Books::open(&fleet.ground).await);
    let app = fleet.app(0);
    for durability in durabilities(stack) {
        fleet.clock.set(instant(NOON));
        assert!(
            app.put_policy("benefit", policy(1, durability))
                .await
                .status
                .is_success()
        );
        let until = instant(NOON) + TimeDelta::hours(1);
        let body = json!({
            "limits": [{ "max": 3, "per": "day" }],
            "until": until.to_rfc3339_opts(SecondsFormat::Micros, true),
        });
        let put = app.put_override(durability, body).await;
        assert_eq!(put.status, StatusCode::CREATED, "{put:?}");
        let usage = format!("/v1/policies/benefit/subjects/{durability}");
        let mut client = Client::new(&app, &books, durability, false);
        Client::is_granted(&client.claim(1).await, (3, 1));
        fleet.clock.set(until - TimeDelta::microseconds(1));
        Client::is_granted(&client.claim(1).await, (3, 2));
        books.has_recorded(durability, 2).await;
        let shown = app.get(&usage).await;
        assert_eq!(day(&shown), (3, 2));
        assert_eq!(
            shown.json()["override"]["until"],
            "2026-11-21T04:04:05.678901Z"
        );
        fleet.clock.set(until);
        Client::is_denied(&client.claim(1).await, (1, 2));
        let shown = app.get(&usage).await;
        assert_eq!(day(&shown), (1, 2));
        assert_eq!(shown.json().get("override"), None);
    }
    books.audit().await;
}

/// Redis counts. Each grant fits the `max` of its moment, which somebody put. At the end, the usage
/// is exactly the last `max`. `mixed` tests the same where the ledger decides.
async fn overrides_that_change_while_redis_counts(stack: Stack) {
    const SUBJECTS: usize = 3;
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet.put_body(policy(7, "counted")).await;
    fleet.everybody_knows_all().await;
    let stop = AtomicBool::new(false);
    let changes = async {
        let mut dice = Dice::new(7);
        for change in 0..60 {
            let app = fleet.app(dice.below(2));
            let subject = format!("member-{}", dice.below(SUBJECTS));
            if dice.percent(15) {
                let deleted = app.delete_override(&subject).await.status;
                assert!([200, 404].contains(&deleted.as_u16()), "{deleted}");
                continue;
            }
            let max = 1 + dice.below(10 + change) as u64;
            app.override_day(&subject, max).await;
        }
        stop.store(true, Ordering::SeqCst);
    };
    let claim = |dice: &mut Dice| {
        let claim = Wish::of(&format!("member-{}", dice.below(SUBJECTS)));
        claim.units(dice.between(1, 3))
    };
    tokio::join!(fleet.load(12, &stop, claim), changes);

    let stores = fleet.finds_nothing().await;
    let is_over = |entry: &Entry| entry.provisional == Some(Provisional::Over);
    assert!(!stores.entries.iter().any(is_over), "{stores:?}");
    for subject in 0..SUBJECTS {
        let subject = format!("member-{subject}");
        fleet.apps[0].override_day(&subject, 90).await;
        fleet.everybody_knows_all().await;
        fleet.drain(6, &subject).await;
        let usage = format!("/v1/policies/benefit/subjects/{subject}");
        assert_eq!(day(&fleet.apps[0].get(&usage).await), (90, 90));
    }
    fleet.finds_nothing().await;
}
