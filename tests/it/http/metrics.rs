//! The metrics.

use std::cell::Cell;
use std::time::{Duration, Instant};

use perdiem::host::clock::{Clock, ManualClock};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant, serve_options};
use crate::support::desk::on_every_store;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::postgres;

on_every_store!(policies_are_shown_by_their_own_days);

/// The value of the line that begins with this name.
fn value(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// SQLite without counters, and PostgreSQL with counters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_counted_by_what_became_of_them() {
    for stack in [Stack::Sqlite, Stack::RedisAndPostgres] {
        count_claims(stack).await;
    }
}

async fn count_claims(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(2, "UTC").await;
    for key in ["a", "b", "b", "c"] {
        app.claim("member-42", Some(key)).await;
    }
    app.claim_under("no-such-policy", json!({ "subject": "x" }), None)
        .await;
    // A claim gives its place back a moment after its answer.
    eventually("no claim is in progress", async || {
        let metrics = app.get("/metrics").await;
        value(&metrics.text, "perdiem_claims_under_way") == Some(0.0)
    })
    .await;
    let answer = app.get("/metrics").await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let kind = answer.header("content-type").expect("a type");
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    let text = &answer.text;
    let has_redis = stack == Stack::RedisAndPostgres;
    for (name, expected) in [
        ("perdiem_claims_total{outcome=\"granted\"}", 2.0),
        ("perdiem_claims_total{outcome=\"replayed\"}", 1.0),
        ("perdiem_claims_total{outcome=\"denied\"}", 1.0),
        ("perdiem_claims_total{outcome=\"unknown_policy\"}", 1.0),
        ("perdiem_claim_seconds_count", 5.0),
        ("perdiem_stage_seconds_count{stage=\"append\"}", 2.0),
        ("perdiem_claims_under_way", 0.0),
        ("perdiem_requests_waiting", 0.0),
        ("perdiem_ledger_answers", 1.0),
        ("perdiem_counters_available", f64::from(u8::from(has_redis))),
    ] {
        assert_eq!(value(text, name), Some(expected), "{name}: {text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    for secret in ["member-42", "benefit"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let metrics = text.lines().filter(|line| !line.starts_with('#'));
    for line in metrics {
        let (name, number) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("perdiem_"), "{line}");
        assert!(number.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_opens_them_or_a_setting() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start(&ground).await;
    let bare = Answer::of(app.bare_request(Method::GET, "/metrics")).await;
    assert_eq!(bare.status, StatusCode::UNAUTHORIZED, "{bare:?}");
    drop(app);
    let mut serve = serve_options();
    serve.open_metrics = true;
    let app = App::try_serve(&ground, serve, |_| {}).await;
    let app = app.expect("the application starts");
    let bare = Answer::of(app.bare_request(Method::GET, "/metrics")).await;
    assert_eq!(bare.status, StatusCode::OK, "{bare:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_decided_is_counted_too() {
    let app = App::on(Stack::RedisAndPostgres).await;
    let body = json!({
        "time_zone": "UTC",
        "limits": [{ "max": 3, "per": "day" }],
        "durability": "counted",
    });
    app.put_policy("benefit", body).await;
    for _ in 0..4 {
        app.claim("member-42", None).await;
    }
    eventually("all grants are recorded", || async {
        let text = app.get("/metrics").await.text;
        value(&text, "perdiem_recorded_total{standing=\"within\"}") == Some(3.0)
            && value(&text, "perdiem_claims_total{outcome=\"provisional\"}") == Some(3.0)
            && value(&text, "perdiem_claims_total{outcome=\"denied\"}") == Some(1.0)
            && value(&text, "perdiem_provisional_queue") == Some(0.0)
    })
    .await;
}

/// The result of the last reconciliation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_told() {
    let app = App::on(Stack::Sqlite).await;
    app.ask("POST /v1/reconciliations", json!({})).await.is(201);
    let text = app.get("/metrics").await.text;
    for (name, expected) in [
        ("perdiem_reconciliations_total", 1.0),
        ("perdiem_drift", 0.0),
        ("perdiem_ledger_alarms", 0.0),
    ] {
        assert_eq!(value(&text, name), Some(expected), "{text}");
    }
}

/// The units, the grants and the denied claims of a policy, as far as they are shown.
fn of_policy(text: &str, policy: &str) -> [Option<f64>; 3] {
    [
        format!("perdiem_policy_units{{policy=\"{policy}\"}}"),
        format!("perdiem_policy_claims{{policy=\"{policy}\",outcome=\"granted\"}}"),
        format!("perdiem_policy_claims{{policy=\"{policy}\",outcome=\"denied\"}}"),
    ]
    .map(|name| value(text, &name))
}

/// Of four policies the two with the most units. A policy whose day has ended makes room for another one.
async fn policies_are_shown_by_their_own_days(stack: Stack) {
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(&Ground::new(stack), |options| {
        options.policy_metrics = 2;
        options.clock = Clock::Manual(clock.clone());
    })
    .await;
    for (policy, time_zone) in [
        ("west", "-11:00"),
        ("east", "+08:00"),
        ("small", "UTC"),
        ("unused", "UTC"),
    ] {
        let limits = json!([{ "max": 10, "per": "day" }]);
        let body = json!({ "time_zone": time_zone, "limits": limits });
        app.put_policy(policy, body).await;
    }
    for (policy, units, status) in [
        ("west", 3, 201),
        ("west", 8, 429),
        ("east", 1, 201),
        ("east", 1, 201),
        ("small", 1, 201),
    ] {
        let body = json!({ "subject": "member-42", "units": units });
        let answer = app.claim_under(policy, body, None).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let shown = [Some(3.0), Some(1.0), Some(1.0)];
    let is_shown = async |policies: [(&str, [Option<f64>; 3]); 4]| {
        let text = app.get("/metrics").await.text;
        policies
            .iter()
            .all(|(policy, numbers)| of_policy(&text, policy) == *numbers)
    };
    eventually("the two policies are shown", || {
        is_shown([
            ("west", shown),
            ("east", [Some(2.0), Some(2.0), Some(0.0)]),
            ("small", [None; 3]),
            ("unused", [None; 3]),
        ])
    })
    .await;
    // The next day of one policy has begun.
    clock.set(instant("2026-11-21T11:00:01Z"));
    eventually("the other policies are shown", || {
        is_shown([
            ("west", [None; 3]),
            ("east", [Some(2.0), Some(2.0), Some(0.0)]),
            ("small", [Some(1.0), Some(1.0), Some(0.0)]),
            ("unused", [None; 3]),
        ])
    })
    .await;
}

/// While the ledger does not answer, the figures are unknown: a 0 would be wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_policies_nothing_is_shown_that_is_not_known() {
    let ground = Ground::new(Stack::Postgres);
    let proxy = Proxy::before(postgres().port()).await;
    let mut serve = serve_options();
    serve.open_metrics = true;
    let app = App::try_serve(&ground, serve, |options| {
        options.policy_metrics = 2;
        options.database_url = proxy.url(&ground.database_url);
    })
    .await
    .expect("the application starts");
    app.benefit(2, "UTC").await;
    app.claim("member-42", None).await;
    let metrics = async || Answer::of(app.bare_request(Method::GET, "/metrics")).await;
    let is_shown = async || of_policy(&metrics().await.text, "benefit")[0] == Some(1.0);
    eventually("the policy is shown", is_shown).await;
    proxy.set(Mode::Hold);
    eventually("the policy is not shown", async || {
        let answer = metrics().await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        !answer.text.contains("perdiem_policy")
    })
    .await;
    proxy.set(Mode::Pass);
    eventually("the policy is shown again", is_shown).await;
}

/// However often the metrics are read. Here nobody else reads them, so a new number is a new read, and it is
/// made by the answer that first shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn for_policies_the_ledger_is_read_every_five_seconds_at_most() {
    let app = App::start_with(&Ground::new(Stack::Sqlite), |options| {
        options.policy_metrics = 1;
    })
    .await;
    app.benefit(2, "UTC").await;
    let asked_at = Cell::new(Instant::now());
    let is_shown = async |units| {
        asked_at.set(Instant::now());
        of_policy(&app.get("/metrics").await.text, "benefit")[0] == Some(units)
    };
    app.claim("member-42", None).await;
    eventually("one unit is shown", || is_shown(1.0)).await;
    let first_asked_at = asked_at.get();
    app.claim("member-42", None).await;
    eventually("two units are shown", || is_shown(2.0)).await;
    let apart = first_asked_at.elapsed();
    assert!(apart >= Duration::from_secs(5), "{apart:?}");
}
