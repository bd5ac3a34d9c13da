//! A pause is a state of its own: no change of the policy ends it.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{all_items, archive, invalid_places, problem, replace};
use crate::support::app::{App, NOON, Stack};
use crate::support::desk::on_every_store;

on_every_store!(
    a_pause_outlives_every_change_of_the_policy,
    a_pause_says_who_and_why,
    a_scheduled_version_inherits_the_pause_of_its_moment,
    a_description_does_not_look_like_a_pause,
);

/// Case 14 of the list of cases, and further members: an archived policy that is put again; a version with
/// other limits.
async fn a_pause_outlives_every_change_of_the_policy(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    app.pause(true).await.is(200);
    let is_paused = async || problem(&app.claim("a", None).await, 409, "policy-inactive");
    is_paused().await;
    replace(&app, json!({ "limits": [{ "max": 9, "per": "day" }] })).await;
    is_paused().await;
    replace(
        &app,
        json!({ "limits": [{ "max": 9, "per": "day" }], "mode": "observe" }),
    )
    .await;
    is_paused().await;
    assert_eq!(app.get("/v1/policies/benefit").await.at("/paused"), true);
    archive(&app).await;
    problem(&app.pause(false).await, 404, "unknown-policy");
    app.benefit(5, "GMT+8").await;
    is_paused().await;
    // The body of a policy cannot change the pause. The present value may be there.
    let with = |paused: bool| {
        json!({
            "time_zone": "GMT+8", "limits": [{ "max": 5, "per": "day" }], "reason": "x",
            "paused": paused,
        })
    };
    let refused = app.put_policy("benefit", with(false)).await;
    assert_eq!(invalid_places(&refused), ["#/paused"]);
    assert!(
        refused.text.contains("/v1/policies/{policy}/pause"),
        "{refused:?}"
    );
    app.put_policy("benefit", with(true)).await.is(200);
    is_paused().await;
    app.pause(false).await.is(200);
    assert_eq!(app.claim("a", None).await.status, 201);
    let refused = app.put_policy("benefit", with(true)).await;
    assert_eq!(invalid_places(&refused), ["#/paused"]);
    app.put_policy("benefit", with(false)).await.is(200);
    problem(&app.pause(false).await, 404, "not-found");
}

async fn a_pause_says_who_and_why(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let path = "/v1/policies/benefit/pause";
    problem(&app.pause(true).await, 404, "unknown-policy");
    app.benefit(3, "GMT+8").await;
    for body in [json!({}), json!({ "reason": " " })] {
        let refused = app.ask(&format!("PUT {path}"), body).await;
        assert_eq!(invalid_places(&refused), ["#/reason"]);
    }
    let refused = app.ask(&format!("DELETE {path}"), Value::Null).await;
    problem(&refused, 422, "invalid");
    let body = json!({ "reason": "stock is out" });
    let paused = app.ask(&format!("PUT {path}"), body).await;
    let pause = json!({ "since": NOON, "by": "PERDIEM_ADMIN_KEY", "reason": "stock is out" });
    assert_eq!(paused.is(200)["pause"], pause);
    assert_eq!(paused.header("etag"), Some("\"2\""));
    // Changes of the policy, and a second pause, do not change it.
    clock.advance(TimeDelta::hours(1));
    app.pause(true).await.is(200);
    replace(&app, json!({ "limits": [{ "max": 9, "per": "day" }] })).await;
    let shown = app.get("/v1/policies/benefit").await;
    assert_eq!(
        [shown.at("/version"), shown.at("/pause")],
        [json!(3), pause.clone()]
    );
    assert_eq!(all_items(&app, "/v1/policies").await[0]["pause"], pause);
    // The reason is for admins.
    let refused = app.claim("a", None).await;
    problem(&refused, 409, "policy-inactive");
    assert!(!refused.text.contains("stock"), "{refused:?}");
    let resumed = app.pause(false).await.is(200);
    assert_eq!(
        [&resumed["paused"], &resumed["pause"]],
        [&json!(false), &Value::Null]
    );
    assert_eq!(resumed["limits"][0]["max"], 9);
}

async fn a_scheduled_version_inherits_the_pause_of_its_moment(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let next = json!({ "limits": [{ "max": 5, "per": "day" }], "effective": "next_window" });
    replace(&app, next).await;
    app.pause(true).await.is(200);
    let shown = app.get("/v1/policies/benefit").await;
    assert_eq!(
        [shown.at("/limits/0/max"), shown.at("/paused")],
        [json!(5), json!(true)]
    );
    assert_eq!(shown.at("/effective_at"), "2026-11-21T16:00:00Z");
    problem(&app.claim("a", None).await, 409, "policy-inactive");
    clock.advance(TimeDelta::days(1));
    problem(&app.claim("a", None).await, 409, "policy-inactive");
    app.pause(false).await.is(200);
    assert_eq!(app.claim("a", None).await.at("/limits/0/max"), 5);
    // The pause ends before the scheduled version takes effect.
    app.pause(true).await.is(200);
    let next = json!({ "limits": [{ "max": 7, "per": "day" }], "effective": "next_window" });
    replace(&app, next).await;
    app.pause(false).await.is(200);
    assert_eq!(app.claim("a", None).await.at("/limits/0/max"), 5);
    clock.advance(TimeDelta::days(1));
    assert_eq!(app.claim("a", None).await.at("/limits/0/max"), 7);
}

/// A pause is in the text of a rule.
async fn a_description_does_not_look_like_a_pause(stack: Stack) {
    let app = App::on(stack).await;
    let body = json!({
        "time_zone": "GMT+8", "limits": [{ "max": 3, "per": "day" }],
        "description": "\"paused\":true",
    });
    app.put_policy("benefit", body).await.is(201);
    app.pause(true).await.is(200);
    let shown = app.get("/v1/policies/benefit").await;
    assert_eq!(shown.at("/pause/reason"), "a test");
    let versions = all_items(&app, "/v1/policies/benefit/versions").await;
    assert_eq!(
        [&versions[0]["paused"], &versions[1]["paused"]],
        [true, false]
    );
}
