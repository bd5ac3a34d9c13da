//! While the clock of an instance is off, an admin changes nothing there.

use chrono::TimeDelta;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::support::app::{Answer, App, Ground, Stack, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_at_a_clock_that_is_off_is_refused() {
    let ground = Ground::new(Stack::Postgres);
    let right = || Clock::system().now();
    let clock = ManualClock::at(right());
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        options.clock_tolerance = Some(TimeDelta::seconds(10));
    })
    .await;
    app.benefit(3, "GMT+8").await;
    let grant = app.claim("member-1", None).await.grant_id();
    let key = json!({ "name": "till", "role": "claim" });
    let made = Answer::of(app.request(Method::POST, "/v1/keys").json(&key)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    let key_path = format!("/v1/keys/{}", made.json()["id"].as_str().expect("an id"));
    let before = app.get("/v1/changes").await.text;
    // Every change by an admin, and the corrections.
    let reason = json!({ "reason": "a test" });
    let rule = json!({
        "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }], "reason": "a test",
    });
    let limits = json!({ "limits": [{ "max": 9, "per": "day" }], "reason": "a test" });
    let one_more = json!({ "units": 1, "reason": "a test" });
    let [policy, subject] = [
        "/v1/policies/benefit",
        "/v1/policies/benefit/overrides/member-1",
    ];
    let edits = [
        (Method::PUT, policy.to_owned(), &rule),
        (Method::PUT, format!("{policy}?dry_run=true"), &rule),
        (Method::PUT, "/v1/policies/another".to_owned(), &rule),
        (Method::DELETE, format!("{policy}?reason=a+test"), &reason),
        (Method::PUT, subject.to_owned(), &limits),
        (Method::DELETE, format!("{subject}?reason=a+test"), &reason),
        (Method::POST, "/v1/keys".to_owned(), &key),
        (
            Method::PATCH,
            key_path.clone(),
            &json!({ "ends_at": null, "reason": "a test" }),
        ),
        (Method::DELETE, format!("{key_path}?reason=a+test"), &reason),
        (
            Method::POST,
            "/v1/subjects/member-1/erasure".to_owned(),
            &reason,
        ),
        (
            Method::POST,
            format!("{policy}/subjects/member-1/adjustments"),
            &one_more,
        ),
        (
            Method::POST,
            format!("/v1/grants/{grant}/reversal"),
            &reason,
        ),
    ];
    for off in [TimeDelta::hours(3), TimeDelta::hours(-3)] {
        clock.set(right() + off);
        eventually("the clock is off", || async {
            app.get("/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        for (method, path, body) in &edits {
            let answer = Answer::of(app.request(method.clone(), path).json(body)).await;
            let what = format!("{method} {path}: {answer:?}");
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{what}");
            assert!(
                answer.text.contains("clock of this instance is off"),
                "{what}"
            );
            assert!(answer.header("Retry-After").is_some(), "{what}");
        }
        // A key without the right is told so first, and reads go on.
        let bare = app.bare_request(Method::PUT, policy).json(&rule);
        assert_eq!(Answer::of(bare).await.status, StatusCode::UNAUTHORIZED);
        assert_eq!(app.get("/v1/changes").await.text, before);
        let usage = app.get("/v1/policies/benefit/subjects/member-1").await;
        assert_eq!(usage.status, StatusCode::OK, "{usage:?}");
    }
    // The clock is right again.
    eventually("edits are made again", || async {
        clock.set(right());
        app.put_policy("benefit", rule.clone()).await.status == StatusCode::OK
    })
    .await;
}
