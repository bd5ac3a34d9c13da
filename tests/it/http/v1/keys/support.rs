//! Keys for support: they read, correct, and put overrides and blocks within their bounds.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{make, make_role};
use crate::http::{invalid_places, problem};
use crate::support::app::{Answer, App, NOON, Stack, instant};
use crate::support::desk::on_every_store;

on_every_store!(
    an_override_stays_within_the_bounds,
    a_block_ends_within_the_bounds,
    what_an_admin_put_stays,
    support_corrects_and_does_not_claim,
    bounds_are_told_and_belong_to_support_only,
);

const VIP: &str = "/v1/policies/benefit/overrides/vip";
const THIEF: &str = "/v1/policies/benefit/blocks/thief";

/// The last instant that a key with seven days may write at [`NOON`].
fn in_a_week() -> String {
    let last = instant(NOON) + TimeDelta::days(7);
    last.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

fn limits(max: u64, until: Option<&str>) -> Value {
    json!({ "limits": [{ "max": max, "per": "day" }], "until": until, "reason": "ticket 4711" })
}

async fn an_override_stays_within_the_bounds(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(1, "UTC").await;
    let key = make_role(&app, "support", None).await.secret;
    let put = async |body: Value| app.ask_as(&key, &format!("PUT {VIP}"), body).await;
    let last = in_a_week();
    for (body, places) in [
        (limits(11, Some(&last)), vec!["#/limits/0/max"]),
        (limits(10, None), vec!["#/until"]),
        (
            limits(10, Some("2026-11-28T03:04:05.678902Z")),
            vec!["#/until"],
        ),
        (limits(11, None), vec!["#/limits/0/max", "#/until"]),
    ] {
        let refused = put(body).await;
        assert_eq!(invalid_places(&refused), places);
        assert!(refused.text.contains("ask an admin"), "{refused:?}");
    }
    put(limits(10, Some(&last))).await.is(201);
    app.claim("vip", None).await.is(201);
    app.claim("vip", None).await.is(201);
    // It changes and ends what it put itself.
    put(limits(3, Some(&last))).await.is(200);
    let delete = format!("DELETE {VIP}?reason=x");
    app.ask_as(&key, &delete, Value::Null).await.is(200);
}

async fn a_block_ends_within_the_bounds(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(1, "UTC").await;
    let key = make_role(&app, "support", None).await.secret;
    let put = async |until: Value| {
        let body = json!({ "reason": "chargebacks", "until": until });
        app.ask_as(&key, &format!("PUT {THIEF}"), body).await
    };
    assert_eq!(invalid_places(&put(Value::Null).await), ["#/until"]);
    put(json!(in_a_week())).await.is(201);
    problem(&app.claim("thief", None).await, 403, "subject-blocked");
}

/// A support key neither replaces nor ends what another key put, until that has ended.
async fn what_an_admin_put_stays(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(1, "UTC").await;
    let key = make_role(&app, "support", None).await.secret;
    let soon = "2026-11-22T00:00:00Z";
    let ask = async |line: &str, body: Value| app.ask_as(&key, line, body).await;
    for (path, admins, own) in [
        (VIP, limits(5, None), limits(2, Some(soon))),
        (VIP, limits(2, Some(soon)), limits(3, Some(soon))),
        (
            THIEF,
            json!({ "reason": "fraud" }),
            json!({ "reason": "a mistake", "until": soon }),
        ),
    ] {
        let put = app.ask(&format!("PUT {path}"), admins).await;
        assert!(put.status.is_success(), "{put:?}");
        let before = app.get(path).await.json();
        for dry_run in ["", "?dry_run=true"] {
            let refused = ask(&format!("PUT {path}{dry_run}"), own.clone()).await;
            problem(&refused, 403, "forbidden");
        }
        let refused = ask(&format!("DELETE {path}?reason=x"), Value::Null).await;
        problem(&refused, 403, "forbidden");
        assert_eq!(app.get(path).await.json(), before);
    }
    clock.set(instant(soon));
    let later = limits(2, Some("2026-11-23T00:00:00Z"));
    ask(&format!("PUT {VIP}"), later).await.is(200);
}

async fn support_corrects_and_does_not_claim(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(9, "UTC").await;
    let key = make_role(&app, "support", Some("benefit")).await.secret;
    let ask = async |line: &str, body: Value| -> Answer { app.ask_as(&key, line, body).await };
    let claim = json!({ "subject": "a" });
    let refused = ask("POST /v1/policies/benefit/claims", claim.clone()).await;
    problem(&refused, 403, "forbidden");
    let batch = json!({ "claims": [{ "policy": "benefit", "subject": "a" }] });
    problem(&ask("POST /v1/claims", batch).await, 403, "forbidden");
    let adjust = "POST /v1/policies/benefit/subjects/a/adjustments";
    let body = json!({ "units": -1, "reason": "x" });
    problem(&ask(adjust, body).await, 403, "forbidden");
    let pause = ask("PUT /v1/policies/benefit/pause", json!({ "reason": "x" })).await;
    problem(&pause, 403, "forbidden");

    let grant = app.claim("a", None).await.grant_id();
    let hold = json!({ "subject": "a", "hold_seconds": 60 });
    let hold = app.claim_body(hold, None).await.grant_id();
    let confirm = ask(&format!("POST /v1/grants/{hold}/confirmation"), json!({})).await;
    confirm.is(201);
    let body = json!({ "reason": "sent twice" });
    let reversed = ask(&format!("POST /v1/grants/{grant}/reversal"), body).await;
    reversed.is(201);
    ask(
        "GET /v1/policies/benefit/subjects/a?at=2026-11-21",
        Value::Null,
    )
    .await;
    ask("GET /v1/subjects/a", Value::Null).await.is(200);
}

async fn bounds_are_told_and_belong_to_support_only(stack: Stack) {
    let app = App::on(stack).await;
    let bounds = json!({ "max": 3, "days": 30 });
    let body = json!({ "name": "desk", "role": "support", "bounds": bounds });
    let key = make(&app, body).await;
    assert_eq!(
        app.get(&format!("/v1/keys/{}", key.id)).await.at("/bounds"),
        bounds
    );
    let own = app
        .ask_as(&key.secret, "GET /v1/keys/me", Value::Null)
        .await;
    assert_eq!(own.at("/bounds"), bounds);
    for (role, bounds, place) in [
        ("support", Value::Null, "#/bounds"),
        ("audit", bounds.clone(), "#/bounds"),
        ("support", json!({ "max": 0, "days": 7 }), "#/bounds/max"),
        ("support", json!({ "max": 1, "days": 401 }), "#/bounds/days"),
    ] {
        let body = json!({ "name": "x", "role": role, "bounds": bounds });
        let refused = app.ask("POST /v1/keys", body).await;
        assert_eq!(invalid_places(&refused), [place]);
    }
    for bounds in [
        json!([3, 7]),
        json!({ "max": 3 }),
        json!({ "max": 3, "days": 7, "x": 1 }),
    ] {
        let body = json!({ "name": "x", "role": "support", "bounds": bounds });
        problem(&app.ask("POST /v1/keys", body).await, 400, "malformed");
    }
}
