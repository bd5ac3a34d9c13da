//! Whether an instance lives, and whether it is ready.

use chrono::TimeDelta;
use perdiem::clock::{Clock, ManualClock};
use serde_json::{Value, json};

use crate::http::problem;
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant, on_every_stack};

on_every_stack!(a_ready_instance_says_what_it_stands_on);

async fn a_ready_instance_says_what_it_stands_on(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let live = app.get("/livez").await;
    assert_eq!((live.status.as_u16(), live.text.as_str()), (200, "ok\n"));
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    let ready = ready.json();
    let (ledger, counters) = match stack {
        Stack::Sqlite => ("SQLite", false),
        Stack::Postgres => ("PostgreSQL", false),
        Stack::RedisAndSqlite => ("SQLite", true),
        Stack::RedisAndPostgres => ("PostgreSQL", true),
    };
    assert_eq!(
        ready,
        json!({
            "status": "ready", "troubles": [], "ledger": ledger, "counters": counters,
            "zone_rules": ready["zone_rules"],
        })
    );
    let rules = ready["zone_rules"].as_str().expect("a text");
    assert!(
        rules.ends_with("(system)") || rules.ends_with("(bundled)"),
        "{rules}"
    );
}

/// The clock of PostgreSQL is the machine's, so one that stands elsewhere is off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_whose_clock_is_off_decides_nothing() {
    let ground = Ground::new(Stack::Postgres);
    let good = App::start(&ground).await;
    good.benefit(3, "GMT+8").await;
    let clock = ManualClock::at(instant(NOON) + TimeDelta::days(3650));
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(clock);
        options.clock_tolerance = Some(TimeDelta::seconds(10));
    })
    .await;
    eventually("the clock is found off", async || {
        app.get("/readyz").await.status == 503
    })
    .await;
    let ready = app.get("/readyz").await.json();
    assert_eq!(ready["status"], "not ready");
    let trouble = ready["troubles"][0].as_str().expect("a text");
    for words in ["clock is off", "NTP", "PERDIEM_CLOCK_TOLERANCE_SECONDS"] {
        assert!(trouble.contains(words), "{trouble}");
    }
    problem(&app.claim("member-42", None).await, 503, "undecided");
    assert_eq!(good.claim("member-42", None).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_does_without_redis_and_says_so() {
    let mut redis = crate::support::servers::Redis::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.redis_url = Some(redis.url());
    // By the machine's clock the rules of time zones will be old one day.
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(ManualClock::at(instant(NOON)));
    })
    .await;
    app.benefit(3, "GMT+8").await;
    assert_eq!(app.claim("member-42", None).await.status, 201);
    redis.kill();
    assert_eq!(app.claim("member-42", None).await.status, 201);
    eventually("Redis is missed", async || {
        app.claim("member-43", None).await;
        app.get("/readyz")
            .await
            .text
            .contains("Redis does not serve")
    })
    .await;
    let ready = app.get("/readyz").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["status"]),
        (200, &json!("ready"))
    );
    redis.restart();
    eventually("Redis serves again", async || {
        app.get("/readyz").await.json()["troubles"] == json!([])
    })
    .await;
    assert_eq!(
        app.claim("member-42", None).await.json()["limits"][0]["used"],
        3
    );
    assert_ne!(ready.json()["zone_rules"], Value::Null);
}
