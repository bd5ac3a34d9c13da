//! The clock of a sandbox.

use perdiem::host::clock::{Clock, SandboxClock};
use serde_json::{Value, json};

use crate::http::{invalid_places, problem};
use crate::support::app::{Answer, App, Ground, Stack, eventually};

const CLOCK: &str = "/v1/sandbox/clock";

async fn sandbox() -> App {
    App::start_with(&Ground::new(Stack::Sqlite), |options| {
        options.clock = Clock::Sandbox(SandboxClock::start());
    })
    .await
}

async fn advance(app: &App, seconds: i64) -> Answer {
    let body = json!({ "advance_seconds": seconds });
    app.ask(&format!("POST {CLOCK}"), body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tomorrow_comes_today() {
    let app = sandbox().await;
    app.benefit(1, "GMT+8").await;
    app.claim("a", None).await.is(201);
    problem(&app.claim("a", None).await, 429, "quota-exceeded");
    advance(&app, 86_400).await.is(200);
    app.claim("a", None).await.is(201);
    // A hold lapses by the clock of the sandbox, and its lapse is recorded.
    let hold = json!({ "subject": "b", "hold_seconds": 600 });
    let hold = app.claim_body(hold, None).await.grant_id();
    advance(&app, 601).await.is(200);
    let grant = format!("/v1/grants/{hold}");
    assert_eq!(app.get(&grant).await.at("/state"), "lapsed");
    problem(&app.confirm(&hold).await, 410, "hold-lapsed");
    eventually("the lapse", async || {
        let entries = app.get("/v1/policies/benefit/subjects/b/entries").await;
        entries.text.contains("\"lapse\"")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_goes_forward_only() {
    let app = sandbox().await;
    let now = app.get(CLOCK).await.is(200)["now"].clone();
    let ask = async |body: Value| app.ask(&format!("POST {CLOCK}"), body).await;
    for (body, place) in [
        (json!({ "at": now }), "#"),
        (json!({ "at": "9999-01-01T00:00:00Z" }), "#"),
        (json!({ "at": "tomorrow" }), "#/at"),
        (json!({ "advance_seconds": 0 }), "#/advance_seconds"),
        (json!({ "advance_seconds": 1e30 }), "#/advance_seconds"),
        (json!({ "advance_seconds": -1 }), "#/advance_seconds"),
        (json!({}), "#"),
        (
            json!({ "at": "2099-01-01T00:00:00Z", "advance_seconds": 1 }),
            "#",
        ),
    ] {
        assert_eq!(invalid_places(&ask(body).await), [place]);
    }
    let moved = ask(json!({ "at": "2099-01-01T00:00:00Z" })).await.is(200)["now"].clone();
    assert!(
        moved
            .as_str()
            .is_some_and(|now| now.starts_with("2099-01-01T00:0"))
    );
    app.benefit(1, "UTC").await;
    app.claim("a", None).await.is(201);
}

/// Nobody takes a sandbox for the real thing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_says_that_it_comes_from_a_sandbox() {
    let app = sandbox().await;
    app.benefit(1, "UTC").await;
    let wrong = app.ask_as("perdiem_wrong", "GET /v1/policies", Value::Null);
    let answers = [
        app.claim("a", Some("a key")).await,
        app.claim("a", Some("another")).await,
        app.get("/v1/policies").await,
        app.get("/nowhere").await,
        app.get("/livez").await,
        wrong.await,
    ];
    for answer in answers {
        assert_eq!(answer.header("perdiem-sandbox"), Some("true"), "{answer:?}");
    }
    let app = App::on(Stack::Sqlite).await;
    assert_eq!(app.get("/livez").await.header("perdiem-sandbox"), None);
    problem(&app.get(CLOCK).await, 404, "not-found");
    problem(&advance(&app, 1).await, 404, "not-found");
}
