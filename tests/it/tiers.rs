//! Tiers: named maxima of a policy, and the subjects that are in them.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::v1::keys::make_role;
use crate::http::{
    all_items, archive, has_version, invalid_parts, invalid_places, problem, replace,
};
use crate::support::app::{
    Answer, App, Ground, NOON, Stack, eventually, instant, on_every_store_with_redis, on_every_way,
};
use crate::support::desk::on_every_store;

on_every_way!(a_subject_keeps_its_usage_when_it_moves);
on_every_store_with_redis!(a_counter_denies_by_the_tier);
on_every_store!(
    an_override_wins_until_it_ends,
    a_tier_ends_when_it_says,
    a_tier_can_be_lower_and_a_claim_for_it_waits,
    a_subjects_tier_lives,
    the_faults_of_tiers_are_told,
    a_tier_that_the_policy_loses_is_told,
    a_scheduled_change_ends_tiers_when_it_takes_effect,
    a_tier_and_a_change_at_the_same_time_know_each_other,
    a_tier_comes_with_its_version,
    explanations_know_the_tier_of_then,
    a_support_key_stays_within_its_bounds,
);

const TIER: &str = "/v1/policies/benefit/tiers/ann";
const USAGE: &str = "/v1/policies/benefit/subjects/ann";

fn gold() -> Value {
    json!([
        { "name": "gold", "limits": [{ "max": 5, "per": "day" }] },
        { "name": "slow", "limits": [{ "max": 1, "per": "day" }] },
    ])
}

/// `benefit` with 2 per day, or 5 in the tier `gold`.
async fn benefit(app: &App) -> Answer {
    let limits = json!([{ "max": 2, "per": "day" }]);
    replace(app, json!({ "limits": limits, "tiers": gold() })).await
}

/// Claims until one is denied, and returns how many were granted.
async fn drain(app: &App, subject: &str) -> usize {
    for granted in 0.. {
        let answer = app.claim(subject, None).await;
        if answer.status == 429 {
            return granted;
        }
        answer.is(201);
    }
    unreachable!()
}

async fn a_subject_keeps_its_usage_when_it_moves(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    let other = App::start(&ground).await;
    let put = benefit(&app).await;
    assert_eq!(put.json()["tiers"], gold());
    assert_eq!(drain(&app, "ann").await, 2);
    has_version(&app.put_tier("ann", "gold", None).await, 201, 1);
    let usage = app.get(USAGE).await.json();
    assert_eq!(usage["tier"], json!({ "name": "gold", "until": null }));
    assert_eq!(
        [&usage["limits"][0]["max"], &usage["limits"][0]["used"]],
        [5, 2]
    );
    // An instance knows it after a second at most.
    eventually("the other instance knows the tier", || async {
        other.get(USAGE).await.at("/limits/0/max") == 5
    })
    .await;
    assert_eq!(drain(&other, "ann").await, 3);
    assert_eq!(drain(&other, "bob").await, 2);
    // In a lower tier nothing is taken back, and nothing is granted.
    app.put_tier("ann", "slow", None).await.is(200);
    let denied = app.claim("ann", None).await;
    assert_eq!(
        problem(&denied, 429, "quota-exceeded")["limits"][0]["used"],
        5
    );
    app.end_tier("ann").await.is(200);
    let usage = app.get(USAGE).await.json();
    assert_eq!(
        [&usage["limits"][0]["max"], &usage["limits"][0]["used"]],
        [2, 5]
    );
    assert_eq!(usage.get("tier"), None);
}

async fn a_counter_denies_by_the_tier(stack: Stack) {
    let app = App::on(stack).await;
    let counted = json!({
        "limits": [{ "max": 2, "per": "day" }], "tiers": gold(), "durability": "counted",
    });
    replace(&app, counted).await;
    assert_eq!(drain(&app, "ann").await, 2);
    app.put_tier("ann", "gold", None).await.is(201);
    assert_eq!(drain(&app, "ann").await, 3);
    app.put_tier("bob", "slow", None).await.is(201);
    assert_eq!(drain(&app, "bob").await, 1);
}

async fn an_override_wins_until_it_ends(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let two = json!([{ "max": 2, "per": "day" }, { "max": 9, "per": "week" }]);
    let tiers = json!([{ "name": "gold", "limits": [
        { "max": 5, "per": "day" }, { "max": 20, "per": "week" },
    ] }]);
    replace(&app, json!({ "limits": two, "tiers": tiers })).await;
    app.put_tier("ann", "gold", None).await.is(201);
    let until = "2026-11-21T04:00:00Z";
    let body = json!({
        "limits": [{ "max": 1, "per": "day" }], "until": until, "reason": "a test",
    });
    app.put_override("ann", body).await.is(201);
    let usage = app.get(USAGE).await.json();
    // The override names one limit. The other one is the tier's.
    assert_eq!(
        [&usage["limits"][0]["max"], &usage["limits"][1]["max"]],
        [1, 20]
    );
    assert_eq!(drain(&app, "ann").await, 1);
    // What the tier will have room for is foretold, and is no claim that never fits.
    let denied = app
        .claim_body(json!({ "subject": "ann", "units": 4 }), None)
        .await;
    let body = problem(&denied, 429, "quota-exceeded");
    assert_eq!(body["fits_at"], until);
    clock.set(instant(until));
    app.claim_body(json!({ "subject": "ann", "units": 4 }), None)
        .await
        .is(201);
}

async fn a_tier_ends_when_it_says(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    benefit(&app).await;
    let until = "2026-11-21T04:00:00Z";
    app.put_tier("ann", "gold", Some(instant(until)))
        .await
        .is(201);
    assert_eq!(drain(&app, "ann").await, 5);
    app.put_tier("bob", "slow", Some(instant(until)))
        .await
        .is(201);
    assert_eq!(drain(&app, "bob").await, 1);
    let denied = problem(&app.claim("bob", None).await, 429, "quota-exceeded");
    assert_eq!(denied["fits_at"], until);
    let usage = app.get("/v1/policies/benefit/subjects/bob").await;
    assert_eq!(usage.at("/tier/until"), until);
    clock.set(instant(until));
    app.claim("bob", None).await.is(201);
    problem(&app.claim("ann", None).await, 429, "quota-exceeded");
    assert_eq!(app.get(USAGE).await.at("/limits/0/max"), 2);
    // It is shown until somebody ends it.
    assert_eq!(app.get(TIER).await.at("/until"), until);
    let listed = all_items(&app, "/v1/policies/benefit/tiers").await;
    assert_eq!(listed.len(), 2);
}

async fn a_tier_can_be_lower_and_a_claim_for_it_waits(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    benefit(&app).await;
    app.put_tier("ann", "slow", None).await.is(201);
    // The policy's own limit would have room, and the tier may end.
    let denied = app
        .claim_body(json!({ "subject": "ann", "units": 2 }), None)
        .await;
    problem(&denied, 429, "quota-exceeded");
    let never = app
        .claim_body(json!({ "subject": "ann", "units": 3 }), None)
        .await;
    assert_eq!(invalid_places(&never), ["#/units"]);
    let gold = app
        .claim_body(json!({ "subject": "bob", "units": 3 }), None)
        .await;
    assert_eq!(invalid_places(&gold), ["#/units"]);
}

async fn a_subjects_tier_lives(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    benefit(&app).await;
    problem(&app.get(TIER).await, 404, "not-found");
    problem(&app.end_tier("ann").await, 404, "not-found");
    let put = async |body: Value| app.ask(&format!("PUT {TIER}"), body).await;
    let created = put(json!({ "tier": "gold" })).await;
    has_version(&created, 201, 1);
    let expected = json!({
        "policy": "benefit", "subject": "ann", "version": 1, "tier": "gold", "until": null,
        "changed_at": NOON, "changed_by": "PERDIEM_ADMIN_KEY", "reason": null,
    });
    assert_eq!(created.json(), expected);
    assert_eq!(app.get(TIER).await.json(), expected);
    let list = "/v1/policies/benefit/tiers";
    assert_eq!(all_items(&app, list).await, std::slice::from_ref(&expected));
    // The same tier is no change. Another one needs a reason.
    clock.advance(TimeDelta::hours(1));
    assert_eq!(
        put(json!({ "tier": "gold", "reason": "x" })).await.is(200),
        expected
    );
    assert_eq!(
        invalid_places(&put(json!({ "tier": "slow" })).await),
        ["#/reason"]
    );
    has_version(
        &put(json!({ "tier": "slow", "reason": "late" })).await,
        200,
        2,
    );
    // The override, the block and the tier do not disturb each other.
    app.override_day("ann", 4).await;
    app.block("ann").await.is(201);
    has_version(&app.get(TIER).await, 200, 2);
    app.remove_block("ann").await.is(200);
    app.delete_override("ann").await.is(200);
    assert_eq!(app.get(USAGE).await.at("/limits/0/max"), 1);
    let request = app.request(reqwest::Method::PUT, TIER);
    let request = request.header("if-match", "\"1\"");
    let body = json!({ "tier": "gold", "reason": "x" });
    let stale = Answer::of(request.json(&body)).await;
    problem(&stale, 412, "precondition-failed");
    let dry = app.ask(&format!("PUT {TIER}?dry_run=true"), body).await;
    assert_eq!(dry.is(200)["tier"], "gold");
    let ended = app.end_tier("ann").await.is(200);
    assert_eq!([&ended["tier"], &ended["reason"]], ["slow", "a test"]);
    assert_eq!(all_items(&app, list).await, [] as [Value; 0]);
    let changes = all_items(&app, "/v1/changes?kind=tier&subject=ann").await;
    let tiers = changes.iter().map(|change| {
        let tier = |side: &str| change[side]["tier"].clone();
        (tier("before"), tier("after"), change["reason"].clone())
    });
    let expected = [
        (json!("slow"), Value::Null, json!("a test")),
        (json!("gold"), json!("slow"), json!("late")),
        (Value::Null, json!("gold"), Value::Null),
    ];
    assert_eq!(tiers.collect::<Vec<_>>(), expected);
    // A subject that is only in a tier is known.
    app.put_tier("carl", "gold", None).await.is(201);
    let known = app.get("/v1/subjects/carl").await;
    assert_eq!(known.at("/items/0/tier/name"), "gold");
    archive(&app).await;
    problem(&app.get(TIER).await, 404, "unknown-policy");
    problem(
        &app.put_tier("ann", "gold", None).await,
        404,
        "unknown-policy",
    );
}

async fn the_faults_of_tiers_are_told(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    app.benefit(2, "GMT+8").await;
    let put = async |body: Value| app.ask(&format!("PUT {TIER}"), body).await;
    let refused = put(json!({ "tier": "gold" })).await;
    let says = "write tiers into the policy first";
    assert!(invalid_parts(&refused)[0].1.contains(says), "{refused:?}");
    benefit(&app).await;
    for (body, place, says) in [
        (
            json!({ "tier": "platinum" }),
            "#/tier",
            "name one of its tiers: gold, slow",
        ),
        (json!({ "tier": "Gold" }), "#/tier", "write 1 to 63 of a-z"),
        (
            json!({ "tier": "gold", "until": NOON }),
            "#/until",
            "write a later instant",
        ),
    ] {
        let refused = put(body).await;
        let parts = invalid_parts(&refused);
        assert_eq!(parts[0].0, place);
        assert!(parts[0].1.contains(says), "{parts:?}");
    }
    problem(
        &put(json!({ "tier": "gold", "max": 9 })).await,
        400,
        "malformed",
    );
    problem(&put(json!({})).await, 400, "malformed");
    // A tier of the policy.
    let tier = |name: &str, max: u64, per: &str| json!({ "name": name, "limits": [{ "max": max, "per": per }] });
    for (tiers, place, says) in [
        (
            json!([tier("gold", 5, "week")]),
            "#/tiers/0/limits/0/per",
            "name one of its limits: day",
        ),
        (
            json!([tier("gold", 0, "day")]),
            "#/tiers/0/limits/0/max",
            "a whole number from 1",
        ),
        (
            json!([{ "name": "gold", "limits": [] }]),
            "#/tiers/0/limits",
            "at least one limit",
        ),
        (
            json!([tier("a b", 5, "day")]),
            "#/tiers/0/name",
            "write 1 to 63",
        ),
        (
            json!([tier("a", 5, "day"), tier("a", 6, "day")]),
            "#/tiers/1/name",
            "keep one",
        ),
    ] {
        let body = json!({
            "time_zone": "UTC", "limits": [{ "max": 2, "per": "day" }], "tiers": tiers, "reason": "x",
        });
        let refused = app.put_policy("benefit", body).await;
        let parts = invalid_parts(&refused);
        assert_eq!(parts[0].0, place, "{parts:?}");
        assert!(parts[0].1.contains(says), "{parts:?}");
        assert_eq!(parts.len(), 1);
    }
}

async fn put_tiers(app: &App, tiers: Value, more: Value) -> Answer {
    let mut body = json!({
        "time_zone": "Asia/Shanghai", "limits": [{ "max": 2, "per": "day" }], "tiers": tiers,
        "reason": "a change",
    });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    app.put_policy("benefit", body).await
}

async fn a_tier_that_the_policy_loses_is_told(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    benefit(&app).await;
    app.put_tier("ann", "gold", None).await.is(201);
    app.put_tier("bob", "slow", None).await.is(201);
    let slow = json!([gold()[1]]);
    let told = json!({ "count": 1, "first": [{ "subject": "ann", "limits": [], "tier": "gold" }] });
    let refused = put_tiers(&app, slow.clone(), json!({})).await;
    let body = problem(&refused, 409, "orphaned-overrides");
    assert_eq!(body["orphaned_overrides"], told);
    let patch = app
        .ask(
            "PATCH /v1/policies/benefit",
            json!({ "tiers": null, "reason": "x" }),
        )
        .await;
    let body = problem(&patch, 409, "orphaned-overrides");
    assert_eq!(body["orphaned_overrides"]["count"], 2);
    // Kept, the tier counts again when the policy gets it back.
    let kept = put_tiers(&app, slow.clone(), json!({ "orphaned_overrides": "keep" })).await;
    assert_eq!(kept.is(200)["orphaned_overrides"], told);
    assert_eq!(app.get(USAGE).await.json().get("tier"), None);
    let explained = app.get(&format!("{USAGE}?units=1")).await.json();
    assert_eq!(explained["terms"]["tier"], Value::Null);
    assert_eq!(drain(&app, "ann").await, 2);
    assert_eq!(app.get(TIER).await.at("/tier"), "gold");
    // It is not told again.
    put_tiers(&app, slow.clone(), json!({ "mode": "observe" }))
        .await
        .is(200);
    benefit(&app).await;
    assert_eq!(drain(&app, "ann").await, 3);
    // Another max of a tier orphans nobody, and applies at once.
    let more = json!([gold()[1], { "name": "gold", "limits": [{ "max": 6, "per": "day" }] }]);
    put_tiers(&app, more, json!({})).await.is(200);
    assert_eq!(drain(&app, "ann").await, 1);
    // Dropped, it ends.
    let dropped = put_tiers(&app, slow, json!({ "orphaned_overrides": "drop" })).await;
    assert_eq!(dropped.is(200)["orphaned_overrides"], told);
    problem(&app.get(TIER).await, 404, "not-found");
    assert_eq!(app.get(USAGE).await.at("/limits/0/max"), 2);
    let change = all_items(&app, "/v1/changes?kind=tier").await.remove(0);
    assert_eq!([&change["subject"], &change["reason"]], ["ann", "a change"]);
    assert_eq!(all_items(&app, "/v1/policies/benefit/tiers").await.len(), 1);
}

async fn a_scheduled_change_ends_tiers_when_it_takes_effect(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    benefit(&app).await;
    app.put_tier("ann", "gold", None).await.is(201);
    let earlier = instant("2026-11-21T04:00:00Z");
    app.put_tier("bob", "gold", Some(earlier)).await.is(201);
    let next = json!({ "effective": "next_window", "orphaned_overrides": "drop" });
    let scheduled = put_tiers(&app, json!([]), next).await.is(200);
    // One that ends before is no orphan.
    assert_eq!(scheduled["orphaned_overrides"]["count"], 1);
    let again = json!({ "effective": "next_window", "description": "x" });
    put_tiers(&app, json!([]), again).await.is(200);
    let ends_at = "2026-11-21T16:00:00Z";
    assert_eq!(app.get(TIER).await.at("/until"), ends_at);
    let of_bob = app.get("/v1/policies/benefit/tiers/bob").await;
    assert_eq!(of_bob.at("/until"), "2026-11-21T04:00:00Z");
    assert_eq!(of_bob.at("/version"), 1);
    assert_eq!(drain(&app, "ann").await, 5);
    clock.set(instant(ends_at));
    assert_eq!(drain(&app, "ann").await, 2);
}

/// Of two instances one puts a subject into a tier, and the other removes the tier.
async fn a_tier_and_a_change_at_the_same_time_know_each_other(stack: Stack) {
    let ground = Ground::new(stack);
    let one = App::start(&ground).await;
    let other = App::start(&ground).await;
    for round in 0..8 {
        benefit(&one).await;
        let subject = format!("ann-{round}");
        let (moved, changed) = tokio::join!(
            one.put_tier(&subject, "gold", None),
            put_tiers(&other, json!([]), json!({})),
        );
        // The second one of the two is refused.
        let statuses = (moved.status.as_u16(), changed.status.as_u16());
        assert!([(201, 409), (422, 200)].contains(&statuses), "{statuses:?}");
        if moved.status == 201 {
            one.end_tier(&subject).await.is(200);
        }
    }
}

async fn a_tier_comes_with_its_version(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(2, "Asia/Shanghai").await;
    put_tiers(&app, gold(), json!({ "effective": "next_window" }))
        .await
        .is(200);
    // A subject can be put into a tier that is to come.
    app.put_tier("ann", "gold", None).await.is(201);
    assert_eq!(drain(&app, "ann").await, 2);
    let denied = problem(&app.claim("ann", None).await, 429, "quota-exceeded");
    assert_eq!(denied["fits_at"], "2026-11-21T16:00:00Z");
    clock.set(instant("2026-11-21T16:00:00Z"));
    assert_eq!(drain(&app, "ann").await, 5);
}

async fn explanations_know_the_tier_of_then(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    benefit(&app).await;
    assert_eq!(drain(&app, "ann").await, 2);
    clock.advance(TimeDelta::hours(1));
    app.put_tier("ann", "gold", None).await.is(201);
    clock.advance(TimeDelta::hours(1));
    let granted = app.claim("ann", None).await;
    let path = format!("/v1/grants/{}/explanation", granted.grant_id());
    clock.advance(TimeDelta::hours(1));
    app.end_tier("ann").await.is(200);
    let explained = app.get(&path).await.json();
    assert_eq!(explained["terms"]["tier"]["tier"], "gold");
    assert_eq!(explained["took"][0]["max"], 5);
    let then = app.get(&format!("{USAGE}?at={NOON}")).await.json();
    assert_eq!(
        [&then["outcome"], &then["terms"]["tier"]],
        [&json!("denied"), &Value::Null]
    );
    let then = app
        .get(&format!("{USAGE}?at=2026-11-21T05:00:00Z"))
        .await
        .json();
    assert_eq!(then["outcome"], "granted");
    assert_eq!(then["terms"]["tier"]["reason"], "a test");
    assert_eq!(
        app.get(&format!("{USAGE}?units=1")).await.at("/outcome"),
        "denied"
    );
}

async fn a_support_key_stays_within_its_bounds(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let high = json!([gold()[0], { "name": "vip", "limits": [{ "max": 11, "per": "day" }] }]);
    let limits = json!([{ "max": 2, "per": "day" }]);
    replace(&app, json!({ "limits": limits, "tiers": high })).await;
    let key = make_role(&app, "support", None).await.secret;
    let put = async |tier: &str, until: Option<&str>| {
        let body = json!({ "tier": tier, "until": until, "reason": "ticket 4711" });
        app.ask_as(&key, &format!("PUT {TIER}"), body).await
    };
    let soon = Some("2026-11-25T00:00:00Z");
    assert_eq!(
        invalid_places(&put("vip", None).await),
        ["#/tier", "#/until"]
    );
    let refused = put("vip", soon).await;
    assert!(
        refused.text.contains("the tier vip has 11 per day"),
        "{refused:?}"
    );
    put("gold", soon).await.is(201);
    let end = format!("DELETE {TIER}?reason=x");
    app.ask_as(&key, &end, Value::Null).await.is(200);
    // It neither replaces nor ends what another key put.
    app.put_tier("ann", "vip", None).await.is(201);
    problem(&put("gold", soon).await, 403, "forbidden");
    problem(&app.ask_as(&key, &end, Value::Null).await, 403, "forbidden");
}
