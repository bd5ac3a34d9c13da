//! Changes of some settings, of scheduled versions, and dry runs of all changes.

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::http::v1::keys::make;
use crate::http::{all_items, archive, has_version, invalid_places, problem};
use crate::support::app::{Answer, App, NOON, Stack, instant};
use crate::support::desk::on_every_store;

const POLICY: &str = "/v1/policies/benefit";
/// The end of the day of [`NOON`] in GMT+8.
const MIDNIGHT: &str = "2026-11-21T16:00:00Z";

on_every_store!(
    a_patch_changes_what_it_names,
    a_patch_of_a_scheduled_version_stays_scheduled,
    patches_at_the_same_time_are_all_made,
    a_pause_keeps_every_scheduled_version,
    a_change_takes_effect_on_its_day,
    a_dry_run_changes_nothing,
    an_archived_policy_is_revived_with_a_reason,
);

async fn patch(app: &App, body: Value) -> Answer {
    app.ask(&format!("PATCH {POLICY}"), body).await
}

/// The policy as it is shown, without what says when and by whom it was changed.
async fn settings(app: &App) -> Value {
    let mut policy = app.get(POLICY).await.json();
    for name in [
        "version",
        "in_force_version",
        "effective_at",
        "changed_at",
        "reason",
    ] {
        policy.as_object_mut().expect("a policy").remove(name);
    }
    policy
}

async fn a_patch_changes_what_it_names(stack: Stack) {
    let app = App::on(stack).await;
    problem(
        &patch(&app, json!({ "reason": "x" })).await,
        404,
        "unknown-policy",
    );
    let whole = json!({
        "description": "a text",
        "time_zone": "Asia/Shanghai",
        "limits": [{ "max": 3, "per": "day" }, { "max": 5, "per": "24h", "kind": "sliding" },
            { "max": 10, "per": "1s", "kind": "rate", "burst": 20 }],
        "day_starts_at": "06:00",
        "week_starts_on": "sunday",
        "active_from": "2026-01-01T00:00:00Z",
        "active_until": "2027-01-01T00:00:00.000001Z",
        "mode": "observe",
        "reason": "a test",
    });
    app.put_policy("benefit", whole).await.is(201);
    let mut expected = settings(&app).await;
    // 1. Nothing is named, and nothing changes.
    has_version(&patch(&app, json!({ "reason": "x" })).await, 200, 1);
    // 2. Each setting by itself; null means the default.
    for (name, value, shown) in [
        ("description", json!("other"), json!("other")),
        ("description", Value::Null, json!("")),
        ("time_zone", json!("GMT+8"), json!("+08:00")),
        ("day_starts_at", Value::Null, json!("00:00")),
        ("week_starts_on", json!("friday"), json!("friday")),
        ("active_from", Value::Null, Value::Null),
        (
            "active_until",
            json!("2028-01-01T00:00:00Z"),
            json!("2028-01-01T00:00:00Z"),
        ),
        ("mode", Value::Null, json!("enforce")),
        (
            "limits",
            json!([{ "max": 4, "per": "day" }]),
            json!([{ "max": 4, "per": "day" }]),
        ),
    ] {
        let answer = patch(&app, json!({ name: value, "reason": "x" })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        expected[name] = shown;
        assert_eq!(settings(&app).await, expected, "{name}");
    }
    // 3. Wrong values are told with their places, and nothing changes.
    for (body, place) in [
        (json!({ "mode": "strict", "reason": "x" }), "#/mode"),
        (json!({ "limits": [], "reason": "x" }), "#/limits"),
        (
            json!({ "active_until": "2020-01-01", "reason": "x" }),
            "#/active_until",
        ),
        (json!({ "effective": "soon", "reason": "x" }), "#/effective"),
        (json!({ "description": "no reason" }), "#/reason"),
    ] {
        assert_eq!(invalid_places(&patch(&app, body).await), [place]);
    }
    for body in [
        json!({ "paused": true }),
        json!({ "time_zone": null }),
        json!([]),
    ] {
        problem(&patch(&app, body).await, 400, "malformed");
    }
    assert_eq!(settings(&app).await, expected);
    archive(&app).await;
    problem(
        &patch(&app, json!({ "reason": "x" })).await,
        404,
        "unknown-policy",
    );
}

fn body(max: u64, effective: &str) -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": max, "per": "day" }],
        "effective": effective,
        "reason": "a test",
    })
}

async fn a_patch_of_a_scheduled_version_stays_scheduled(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    app.put_policy("benefit", body(5, "next_window"))
        .await
        .is(200);
    let patched = patch(&app, json!({ "description": "a text", "reason": "x" }))
        .await
        .json();
    assert_eq!(patched["effective_at"], MIDNIGHT);
    assert_eq!(patched["in_force_version"], 1);
    assert_eq!(patched["limits"][0]["max"], 5);
    clock.set(instant(MIDNIGHT));
    assert_eq!(app.get(POLICY).await.at("/in_force_version"), 3);
    // A version that is in force is changed now.
    let patched = patch(&app, json!({ "description": "other", "reason": "x" }))
        .await
        .json();
    assert_eq!(patched["in_force_version"], 4);
}

/// Each patch changes another setting, and none of them is lost.
async fn patches_at_the_same_time_are_all_made(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let patches = [
        json!({ "description": "a text", "reason": "x" }),
        json!({ "mode": "observe", "reason": "x" }),
        json!({ "week_starts_on": "friday", "reason": "x" }),
        json!({ "limits": [{ "max": 9, "per": "day" }], "reason": "x" }),
    ];
    let answers = join_all(patches.map(|body| patch(&app, body))).await;
    assert!(
        answers.iter().all(|answer| answer.status == 200),
        "{answers:?}"
    );
    let policy = app.get(POLICY).await.json();
    assert_eq!(policy["version"], 5);
    assert_eq!(policy["description"], "a text");
    assert_eq!(policy["mode"], "observe");
    assert_eq!(policy["week_starts_on"], "friday");
    assert_eq!(policy["limits"][0]["max"], 9);
    // With a condition, the first one wins.
    let stale = app
        .ask_with(
            ("If-Match", "\"4\""),
            &format!("PATCH {POLICY}"),
            json!({ "reason": "x" }),
        )
        .await;
    problem(&stale, 412, "precondition-failed");
}

/// A pause and its end make the scheduled versions again, each for its own instant.
async fn a_pause_keeps_every_scheduled_version(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    for (max, day) in [
        (5, "2026-11-23"),
        (7, "2026-11-25"),
        (9, "2026-11-24"),
        (11, "2026-11-30"),
    ] {
        app.put_policy("benefit", body(max, day)).await.is(200);
    }
    app.pause(true).await.is(200);
    app.pause(false).await.is(200);
    // The second version was replaced by the third, which takes effect earlier.
    for (at, max) in [
        (NOON, 3),
        ("2026-11-22T16:00:00Z", 5),
        ("2026-11-23T16:00:00Z", 9),
        ("2026-11-24T16:00:00Z", 9),
        ("2026-11-29T16:00:00Z", 11),
    ] {
        clock.set(instant(at));
        let usage = app.get(&format!("{POLICY}/subjects/a")).await;
        assert_eq!(usage.at("/limits/0/max"), max, "{at}");
    }
    let versions = all_items(&app, &format!("{POLICY}/versions")).await;
    assert_eq!(versions.len(), 13);
}

async fn a_change_takes_effect_on_its_day(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    for (effective, at) in [
        ("2026-12-01", "2026-11-30T16:00:00Z"),
        ("2026-12-24T18:30:00+01:00", "2026-12-24T17:30:00Z"),
    ] {
        let put = app.put_policy("benefit", body(5, effective)).await.json();
        assert_eq!(put["effective_at"], at);
        assert_eq!(put["in_force_version"], 1);
    }
    // The same policy at another instant is a change; at the same instant it is none.
    let again = app
        .put_policy("benefit", body(5, "2026-12-24T17:30:00Z"))
        .await;
    has_version(&again, 200, 3);
    // An instant is kept as the ledger keeps it.
    let fine = app
        .put_policy("benefit", body(5, "2027-01-01T00:00:00.1234567Z"))
        .await;
    assert_eq!(fine.at("/effective_at"), "2027-01-01T00:00:00.123456Z");
    assert_eq!(app.get(POLICY).await.json(), fine.json());
    let far = json!({ "effective": "+10000-01-01", "reason": "x" });
    assert_eq!(invalid_places(&patch(&app, far).await), ["#/effective"]);
    for past in [NOON, "2026-11-21", "2026-11-20", "0000-01-01T00:00:00Z"] {
        let refused = app.put_policy("benefit", body(6, past)).await;
        assert_eq!(invalid_places(&refused), ["#/effective"], "{past}");
        assert!(refused.text.contains("not in the future"), "{refused:?}");
    }
    clock.set(instant("2026-12-24T17:30:00Z") - TimeDelta::microseconds(1));
    assert_eq!(app.get(POLICY).await.at("/in_force_version"), 2);
    clock.set(instant("2026-12-24T17:30:00Z"));
    assert_eq!(app.get(POLICY).await.at("/in_force_version"), 3);
}

/// Every change can be tried: the answer is that of the change, and nothing changes.
async fn a_dry_run_changes_nothing(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    app.override_day("vip", 9).await;
    app.block("thief").await.is(201);
    let limits = json!([{ "max": 4, "per": "day" }]);
    let vip = "/v1/policies/benefit/overrides/vip";
    let thief = "/v1/policies/benefit/blocks/thief";
    let key = make(&app, json!({ "name": "k", "role": "audit" })).await;
    let key = format!("/v1/keys/{}", key.id);
    let before = all_items(&app, "/v1/changes").await;
    for (line, body) in [
        (
            format!("PATCH {POLICY}?dry_run=true"),
            json!({ "limits": limits, "reason": "x" }),
        ),
        (
            format!("PUT {POLICY}/pause?dry_run=true"),
            json!({ "reason": "x" }),
        ),
        (
            format!("DELETE {POLICY}?dry_run=true&reason=x"),
            Value::Null,
        ),
        (
            format!("PUT {vip}?dry_run=true"),
            json!({ "limits": limits, "reason": "x" }),
        ),
        (format!("DELETE {vip}?dry_run=true&reason=x"), Value::Null),
        (
            format!("PUT {thief}?dry_run=true"),
            json!({ "reason": "other" }),
        ),
        (format!("DELETE {thief}?dry_run=true&reason=x"), Value::Null),
        (
            format!("PATCH {key}?dry_run=true"),
            json!({ "ends_at": "2030-01-01T00:00:00Z", "reason": "x" }),
        ),
        (format!("DELETE {key}?dry_run=true&reason=x"), Value::Null),
    ] {
        let answer = app.ask(&line, body).await;
        assert_eq!(answer.status, 200, "{line}: {answer:?}");
        assert_eq!(answer.header("etag"), None, "{line}");
        assert_eq!(answer.at("/version"), 2, "{line}");
    }
    assert_eq!(all_items(&app, "/v1/changes").await, before);
    // This instance did not learn what was tried.
    app.claim("vip", None).await.is(201);
    let usage = app.get(&format!("{POLICY}/subjects/vip")).await;
    assert_eq!(usage.at("/limits/0/max"), 9);
    problem(&app.claim("thief", None).await, 403, "subject-blocked");
    let wrong = app
        .ask(&format!("PATCH {POLICY}?dry_run=false"), json!({}))
        .await;
    assert_eq!(invalid_places(&wrong), ["dry_run"]);
}

async fn an_archived_policy_is_revived_with_a_reason(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    archive(&app).await;
    assert_eq!(all_items(&app, "/v1/policies").await, [json!(null); 0]);
    let listed = all_items(&app, "/v1/policies?archived=true").await;
    assert_eq!(listed[0]["archived"], true);
    let silent = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let refused = app.put_policy("benefit", silent).await;
    assert_eq!(invalid_places(&refused), ["#/reason"]);
    app.put_policy("benefit", body(1, "now")).await.is(201);
}
