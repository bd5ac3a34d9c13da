//! Policies: put, read, archived, revived.

mod newer;
mod patches;
mod schedules;

use serde_json::{Value, json};

use crate::http::{archive, has_version, invalid_places, items, problem, replace};
use crate::support::app::{App, NOON, Stack, instant};
use crate::support::desk::on_every_store;

const POLICY: &str = "/v1/policies/benefit";

fn rule(max: u64) -> Value {
    json!({ "time_zone": "GMT+8", "limits": [{ "max": max, "per": "day" }], "reason": "a test" })
}

/// The policy as a list of versions shows it.
fn listed(mut policy: Value) -> Value {
    let members = policy.as_object_mut().expect("an object");
    members.remove("in_force_version").expect("a version");
    policy
}

on_every_store!(a_policy_lives);

async fn a_policy_lives(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    for path in [POLICY, "/v1/policies/benefit/versions"] {
        problem(&app.get(path).await, 404, "unknown-policy");
    }
    let put = json!({
        "description": "3 benefit claims per member per day",
        "time_zone": "gmt+8",
        "limits": [{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }],
        "day_starts_at": "06:00", "week_starts_on": "sunday",
        "active_from": "2026-01-01T00:00:00+08:00", "active_until": null,
    });
    let created = app.put_policy("benefit", put.clone()).await;
    has_version(&created, 201, 1);
    assert_eq!(
        created.json(),
        json!({
            "name": "benefit", "version": 1,
            "description": "3 benefit claims per member per day",
            "time_zone": "+08:00",
            "limits": [{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }],
            "day_starts_at": "06:00", "week_starts_on": "sunday", "calendar": "policy",
            "active_from": "2025-12-31T16:00:00Z", "active_until": null,
            "paused": false, "mode": "enforce", "durability": "recorded", "on_ledger_outage": "refuse",
            "warn_at": [], "idempotency_days": null, "tiers": [], "total": [], "archived": false, "effective_at": NOON, "in_force_version": 1,
            "changed_at": NOON, "changed_by": "PERDIEM_ADMIN_KEY", "reason": null,
        })
    );
    let read = app.get(POLICY).await;
    has_version(&read, 200, 1);
    assert_eq!(read.json(), created.json());

    // The same policy again is no change and needs no reason.
    clock.advance(chrono::TimeDelta::hours(1));
    let again = app.put_policy("benefit", put.clone()).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, created.json()));

    // A change needs a reason and makes a version.
    let mut changed = put;
    changed["limits"][0]["max"] = json!(4);
    let answer = app.put_policy("benefit", changed.clone()).await;
    assert_eq!(invalid_places(&answer), ["#/reason"]);
    changed["reason"] = json!("campaign 7");
    let replaced = app.put_policy("benefit", changed).await;
    has_version(&replaced, 200, 2);
    let replaced = replaced.json();
    assert_eq!(replaced["version"], 2);
    assert_eq!(replaced["reason"], "campaign 7");
    assert_eq!(replaced["changed_at"], "2026-11-21T04:04:05.678901Z");
    assert_eq!(app.get(POLICY).await.json(), replaced);

    // To archive a policy also needs a reason.
    let answer = app.ask("DELETE /v1/policies/benefit", Value::Null).await;
    assert_eq!(invalid_places(&answer), ["reason"]);
    let archived = archive(&app).await.json();
    for (name, value) in [
        ("archived", json!(true)),
        ("version", json!(3)),
        ("reason", json!("it is over")),
        ("limits", replaced["limits"].clone()),
    ] {
        assert_eq!(archived[name], value, "{name}");
    }
    for path in ["", "/windows", "/subjects/member-42"] {
        let answer = app.get(&format!("{POLICY}{path}")).await;
        problem(&answer, 404, "unknown-policy");
    }
    let twice = app.ask("DELETE /v1/policies/benefit?reason=again", Value::Null);
    problem(&twice.await, 404, "unknown-policy");
    assert_eq!(app.get("/v1/policies").await.json()["items"], json!([]));

    // The policy's versions remain.
    let versions = app.get("/v1/policies/benefit/versions").await.json();
    assert_eq!(versions["next_cursor"], Value::Null);
    assert_eq!(
        versions["items"],
        json!([listed(archived), listed(replaced), listed(created.json())])
    );

    // A put revives the policy with a new version.
    let revived = app.put_policy("benefit", rule(3)).await;
    has_version(&revived, 201, 4);
    assert_eq!(revived.json()["archived"], false);
    assert_eq!(app.get(POLICY).await.json(), revived.json());
}

on_every_store!(a_policy_that_is_not_active_grants_nothing);

async fn a_policy_that_is_not_active_grants_nothing(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let from = "2026-11-21T03:05:00Z";
    let until = "2026-11-21T03:06:00Z";
    replace(&app, json!({ "active_from": from, "active_until": until })).await;
    let inactive = async |words: &str| {
        for (key, dry_run) in [(None, false), (Some("a key"), false), (None, true)] {
            let body = json!({ "subject": "member-42", "dry_run": dry_run });
            let answer = app.claim_body(body, key).await;
            let problem = problem(&answer, 409, "policy-inactive");
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains(words), "{detail}");
        }
    };
    inactive("before 2026-11-21T03:05:00").await;
    let micro = chrono::TimeDelta::microseconds(1);
    clock.set(instant(from) - micro);
    inactive("before 2026-11-21T03:05:00").await;
    clock.advance(micro);
    assert_eq!(app.claim("member-42", None).await.status, 201);
    clock.set(instant(until) - micro);
    assert_eq!(app.claim("member-42", None).await.status, 201);
    clock.advance(micro);
    inactive("since 2026-11-21T03:06:00").await;
    replace(&app, json!({})).await;
    app.pause(true).await.is(200);
    inactive("paused").await;
    app.pause(false).await.is(200);
    let claimed = app.claim("member-42", None).await.json();
    assert_eq!(claimed["limits"][0]["used"], 3);
}

on_every_store!(a_dry_run_changes_nothing);

async fn a_dry_run_changes_nothing(stack: Stack) {
    let app = App::on(stack).await;
    let rehearse = async |max: u64, etag: &str| {
        let line = format!("PUT {POLICY}?dry_run=true");
        app.ask_with(("If-Match", etag), &line, rule(max)).await
    };
    let line = format!("PUT {POLICY}?dry_run=true");
    let answer = app.ask(&line, rule(3)).await;
    assert_eq!(answer.is(200)["version"], 1);
    assert_eq!(answer.header("etag"), None);
    assert_eq!(app.get(POLICY).await.status, 404);
    assert_eq!(app.claim("member-42", None).await.status, 404);
    assert_eq!(rehearse(3, "\"1\"").await.status, 412);

    app.put_policy("benefit", rule(3)).await.is(201);
    let told = rehearse(5, "\"1\"").await.is(200);
    assert_eq!([&told["version"], &told["limits"][0]["max"]], [2, 5]);
    assert_eq!(app.ask(&line, rule(3)).await.at("/version"), 1);
    assert_eq!(rehearse(5, "\"2\"").await.status, 412);
    // Claims also see no change.
    let claim = json!({ "subject": "member-42", "units": 4 });
    assert_eq!(app.claim_body(claim, None).await.status, 422);
    for wrong in ["dry_run=1", "dry_run=false", "dry_run=", "dry=true"] {
        let answer = app.ask(&format!("PUT {POLICY}?{wrong}"), rule(5)).await;
        assert!([400, 422].contains(&answer.status.as_u16()), "{answer:?}");
    }
    let versions = app.get("/v1/policies/benefit/versions").await;
    assert_eq!(items(&versions).len(), 1);
}
