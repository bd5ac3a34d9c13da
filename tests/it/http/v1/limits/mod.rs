//! Limits of every kind over HTTP.

mod bodies;
mod changes;
mod forecasts;
mod kinds;
mod past;

use serde_json::{Value, json};

use crate::support::app::{Answer, App};

const SUBJECT: &str = "member-42";

/// Creates or replaces the policy `benefit`, which counts in UTC.
async fn put(app: &App, limits: Value) -> Value {
    let rule = json!({ "time_zone": "UTC", "limits": limits, "reason": "a test" });
    let answer = app.put_policy("benefit", rule).await;
    assert!(matches!(answer.status.as_u16(), 200 | 201), "{answer:?}");
    answer.json()
}

async fn claim(app: &App, units: u64) -> Answer {
    let body = json!({ "subject": SUBJECT, "units": units });
    app.claim_body(body, None).await
}

/// Claims single units until a claim is denied. Returns the number of grants.
async fn granted_at_once(app: &App) -> u64 {
    for granted in 0..1000 {
        match claim(app, 1).await.status.as_u16() {
            201 => {}
            429 => return granted,
            other => panic!("{other}"),
        }
    }
    panic!("a thousand claims were granted")
}

async fn usage(app: &App) -> Value {
    let usage = app.get("/v1/policies/benefit/subjects/member-42").await;
    usage.is(200)["limits"][0].clone()
}
