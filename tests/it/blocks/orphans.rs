//! A change of a policy's limits that leaves overrides without their limit, or beyond its bounds.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::{Value, json};

use crate::http::{all_items, archive, invalid_places, problem};
use crate::support::app::{Answer, App, Ground, NOON, Stack, instant};
use crate::support::command_line::command;
use crate::support::desk::on_every_store;

on_every_store!(
    a_change_says_which_overrides_lose_their_limit,
    a_kept_override_beyond_the_bounds_has_no_effect,
    a_policy_that_is_put_again_says_which_overrides_lose_their_limit,
    a_scheduled_change_ends_overrides_when_it_takes_effect,
    an_override_names_limits_in_force_or_to_come,
    an_override_and_a_change_at_the_same_time_know_each_other,
    many_overrides_are_counted,
);

fn rule(limits: Value, more: Value) -> Value {
    let mut rule = json!({ "time_zone": "GMT+8", "limits": limits, "reason": "a change" });
    let rule_fields = rule.as_object_mut();
    let more = more.as_object().cloned();
    rule_fields
        .expect("an object")
        .extend(more.expect("an object"));
    rule
}

fn sliding() -> Value {
    json!([{ "max": 3, "per": "24h", "kind": "sliding" }])
}

async fn put(app: &App, limits: Value, more: Value) -> Answer {
    app.put_policy("benefit", rule(limits, more)).await
}

async fn dry_run(app: &App, limits: Value) -> Value {
    let body = rule(limits, json!({}));
    let answer = app.ask("PUT /v1/policies/benefit?dry_run=true", body).await;
    answer.is(200)["orphaned_overrides"].clone()
}

async fn override_max(app: &App, subject: &str, max: u64, per: &str) -> Answer {
    let limits = json!([{ "max": max, "per": per }]);
    app.put_override(subject, json!({ "limits": limits, "reason": "vip" }))
        .await
}

fn overrides(app: &App) -> impl Future<Output = Vec<Value>> {
    all_items(app, "/v1/policies/benefit/overrides")
}

/// Cases 1 and 2 of the list of cases, for an override that is no block.
async fn a_change_says_which_overrides_lose_their_limit(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    override_max(&app, "slow", 1, "day").await.is(201);
    let told = json!({
        "count": 1,
        "first": [{ "subject": "slow", "limits": [{ "max": 1, "per": "day" }] }],
    });
    // The dry run and the backtest list the override. The change is refused until it says what to do.
    assert_eq!(dry_run(&app, sliding()).await, told);
    let draft = json!({
        "policy": rule(sliding(), json!({})), "from": "2026-11-20", "to": "2026-11-22",
    });
    let backtest = app.ask("POST /v1/policies/benefit/backtest", draft).await;
    assert_eq!(backtest.is(200)["orphaned_overrides"], told);
    let refused = put(&app, sliding(), json!({})).await;
    let body = problem(&refused, 409, "orphaned-overrides");
    assert_eq!(body["orphaned_overrides"], told);
    // The command says which ones too.
    let line = "policy put benefit --time-zone GMT+8 --limit '3 per 24h sliding' --reason x";
    let said = command(&app, line).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("(1): slow (1 per day)"), "{said:?}");
    assert_eq!(app.get("/v1/policies/benefit").await.at("/version"), 1);
    let wrong = put(&app, sliding(), json!({ "orphaned_overrides": "lose" })).await;
    assert_eq!(invalid_places(&wrong), ["#/orphaned_overrides"]);
    // A change that keeps the limit orphans nothing.
    let higher = json!([{ "max": 9, "per": "day" }, { "max": 9, "per": "24h", "kind": "sliding" }]);
    assert_eq!(dry_run(&app, higher.clone()).await, Value::Null);
    put(&app, higher, json!({})).await.is(200);
    assert_eq!(app.claim("slow", None).await.at("/limits/0/max"), 1);
    // Kept, the override has no effect, and is not told again.
    let kept = put(&app, sliding(), json!({ "orphaned_overrides": "keep" })).await;
    assert_eq!(kept.is(200)["orphaned_overrides"], told);
    assert_eq!(app.claim("slow", None).await.at("/limits/0/max"), 3);
    assert_eq!(overrides(&app).await[0]["version"], 1);
    put(
        &app,
        json!([{ "max": 4, "per": "24h", "kind": "sliding" }]),
        json!({}),
    )
    .await
    .is(200);
    // It has its effect again when the limit returns, and then it can end with the limit.
    app.benefit(3, "GMT+8").await;
    assert_eq!(dry_run(&app, sliding()).await, told);
    let dropped = put(&app, sliding(), json!({ "orphaned_overrides": "drop" })).await;
    assert_eq!(dropped.is(200)["orphaned_overrides"], told);
    assert_eq!(overrides(&app).await, [] as [Value; 0]);
    let change = all_items(&app, "/v1/changes?kind=override").await.remove(0);
    assert_eq!(
        [
            &change["subject"],
            &change["reason"],
            &change["by"],
            &change["after"]
        ],
        [
            &json!("slow"),
            &json!("a change"),
            &json!("PERDIEM_ADMIN_KEY"),
            &Value::Null
        ]
    );
}

/// Case 3: the `max` is beyond the bounds of the new limit, which stays exact.
async fn a_kept_override_beyond_the_bounds_has_no_effect(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let stepped = json!([{ "max": 500, "per": "24h", "kind": "sliding", "step": "1h" }]);
    let exact = json!([{ "max": 50, "per": "24h", "kind": "sliding" }]);
    put(&app, stepped, json!({})).await.is(201);
    override_max(&app, "vip", 150, "24h").await.is(201);
    let told = dry_run(&app, exact.clone()).await;
    assert_eq!(
        told["first"][0]["limits"],
        json!([{ "max": 150, "per": "24h" }])
    );
    problem(
        &put(&app, exact.clone(), json!({})).await,
        409,
        "orphaned-overrides",
    );
    put(&app, exact, json!({ "orphaned_overrides": "keep" }))
        .await
        .is(200);
    // As a new override it is refused.
    let refused = override_max(&app, "vip-2", 150, "24h").await;
    assert_eq!(invalid_places(&refused), ["#/limits/0/max"]);
    for minute in 0..50 {
        let claim = app.claim("vip", None).await;
        assert_eq!(claim.status, 201, "{minute}: {claim:?}");
        clock.advance(TimeDelta::minutes(1));
    }
    problem(&app.claim("vip", None).await, 429, "quota-exceeded");
    // 24 hours and 10 minutes after the first grant, 11 of the 50 units have returned.
    clock.set(instant(NOON) + TimeDelta::minutes(24 * 60 + 10));
    let usage = app.get("/v1/policies/benefit/subjects/vip").await;
    assert_eq!(usage.at("/limits/0/max"), 50);
    assert_eq!(usage.at("/limits/0/used"), 39);
}

/// A further member: an archived policy is put again with other limits; and a part of an override stays.
async fn a_policy_that_is_put_again_says_which_overrides_lose_their_limit(stack: Stack) {
    let app = App::on(stack).await;
    let both = json!([{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }]);
    let month = json!([{ "max": 30, "per": "month" }]);
    put(&app, both.clone(), json!({})).await.is(201);
    let limits = json!([{ "max": 1, "per": "day" }, { "max": 5, "per": "month" }]);
    let body = json!({ "limits": limits, "reason": "slow" });
    app.put_override("slow", body).await.is(201);
    archive(&app).await;
    problem(
        &put(&app, month.clone(), json!({})).await,
        409,
        "orphaned-overrides",
    );
    put(&app, month, json!({ "orphaned_overrides": "drop" }))
        .await
        .is(201);
    let left = overrides(&app).await;
    assert_eq!(left[0]["limits"], json!([{ "max": 5, "per": "month" }]));
    put(&app, both, json!({})).await.is(200);
    let claim = app.claim("slow", None).await;
    assert_eq!(
        [claim.at("/limits/0/max"), claim.at("/limits/1/max")],
        [3, 5]
    );
}

async fn a_scheduled_change_ends_overrides_when_it_takes_effect(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    override_max(&app, "vip", 9, "day").await.is(201);
    let next = json!({ "effective": "next_window" });
    problem(&put(&app, sliding(), next).await, 409, "orphaned-overrides");
    let next = json!({ "effective": "next_window", "orphaned_overrides": "drop" });
    let scheduled = put(&app, sliding(), next).await.is(200);
    let ends_at = scheduled["effective_at"].clone();
    assert_eq!(overrides(&app).await[0]["until"], ends_at);
    assert_eq!(app.claim("vip", None).await.at("/limits/0/max"), 9);
    let ends_at = instant(ends_at.as_str().expect("an instant"));
    let written = ends_at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    assert_eq!(written, "2026-11-21T16:00:00Z");
    clock.set(ends_at);
    let claim = app.claim("vip", None).await;
    assert_eq!(
        [claim.at("/limits/0/max"), claim.at("/limits/0/per")],
        [json!(3), json!("24h")]
    );
    // A version that is scheduled and then superseded: an override of its limit is told.
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    put(&app, sliding(), json!({ "effective": "next_window" }))
        .await
        .is(200);
    override_max(&app, "vip", 9, "24h").await.is(201);
    let cancelled = put(&app, json!([{ "max": 3, "per": "day" }]), json!({})).await;
    problem(&cancelled, 409, "orphaned-overrides");
}

async fn an_override_names_limits_in_force_or_to_come(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    let refused = override_max(&app, "vip", 9, "24h").await;
    assert_eq!(invalid_places(&refused), ["#/limits/0/per"]);
    assert!(
        refused.text.contains("name one of its limits: day"),
        "{refused:?}"
    );
    put(&app, sliding(), json!({ "effective": "next_window" }))
        .await
        .is(200);
    override_max(&app, "vip", 9, "24h").await.is(201);
    override_max(&app, "another", 9, "day").await.is(201);
    // Beyond the bounds of the version to come.
    let refused = override_max(&app, "third", 101, "24h").await;
    assert_eq!(invalid_places(&refused), ["#/limits/0/max"]);
    let refused = override_max(&app, "third", 9, "week").await;
    assert!(
        refused.text.contains("name one of its limits: day, 24h"),
        "{refused:?}"
    );
}

/// Of two instances one puts an override, and the other changes the limits.
async fn an_override_and_a_change_at_the_same_time_know_each_other(stack: Stack) {
    let ground = Ground::new(stack);
    let one = App::start(&ground).await;
    let other = App::start(&ground).await;
    one.benefit(3, "GMT+8").await;
    for round in 0..8 {
        let subject = format!("vip-{round}");
        let (overridden, changed) = tokio::join!(
            override_max(&one, &subject, 9, "day"),
            put(&other, sliding(), json!({})),
        );
        // Whoever is second is refused.
        let statuses = (overridden.status.as_u16(), changed.status.as_u16());
        assert!([(201, 409), (422, 200)].contains(&statuses), "{statuses:?}");
        if overridden.status == 201 {
            one.delete_override(&subject).await.is(200);
        }
        assert!(
            put(&other, json!([{ "max": 3, "per": "day" }]), json!({}))
                .await
                .status
                .is_success()
        );
    }
}

async fn many_overrides_are_counted(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    for number in 0..25 {
        override_max(&app, &format!("member-{number}"), 9, "day")
            .await
            .is(201);
    }
    let told = dry_run(&app, sliding()).await;
    assert_eq!(told["count"], 25);
    assert_eq!(told["first"].as_array().map(Vec::len), Some(20));
    put(&app, sliding(), json!({ "orphaned_overrides": "drop" }))
        .await
        .is(200);
    assert_eq!(overrides(&app).await, [] as [Value; 0]);
    assert_eq!(app.claim("member-3", None).await.at("/limits/0/max"), 3);
}
