//! Top-ups: units that a subject has beside its windows.

use chrono::{SecondsFormat, TimeDelta};
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{invalid_places, items, problem, replace, used};
use crate::judge::{Kind, Wish};
use crate::support::app::{Answer, App, Stack, eventually, on_every_stack};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::desk::on_every_store;
use perdiem::host::clock::ManualClock;

on_every_stack!(
    a_top_up_is_used_after_the_windows,
    units_return_to_where_they_came_from,
    claims_race_with_top_ups,
);

on_every_store!(
    a_top_up_ends_in_mid_window,
    a_hold_that_lapses_returns_to_its_top_up,
    a_forecast_knows_the_ends_of_top_ups,
    every_kind_of_limit_leaves_the_rest_to_them,
    a_change_of_the_policy_sums_no_units_of_top_ups,
    what_was_taken_back_returns_no_more,
    a_bundle_takes_of_them,
    every_view_knows_the_top_ups,
    a_retry_gives_nothing_twice,
    what_is_wrong_is_told,
    a_backtest_draws_on_the_top_ups_of_then,
);

const SUBJECT: &str = "member-42";
const ACCOUNT: &str = "/v1/policies/benefit/subjects/member-42";

async fn put(app: &App, limits: Value) {
    replace(app, json!({ "time_zone": "UTC", "limits": limits })).await;
}

async fn give(app: &App, units: u64, until: &str, key: Option<&str>) -> Answer {
    let body = json!({ "units": units, "until": until, "reason": "goodwill" });
    let request = app.request(Method::POST, &format!("{ACCOUNT}/top-ups"));
    let request = match key {
        Some(key) => request.header("Idempotency-Key", key),
        None => request,
    };
    Answer::of(request.json(&body)).await
}

/// The id of a top-up that ends after some hours.
async fn given(app: &App, clock: &ManualClock, units: u64, hours: i64) -> String {
    let until = clock.now() + TimeDelta::hours(hours);
    let until = until.to_rfc3339_opts(SecondsFormat::Micros, true);
    let given = give(app, units, &until, None).await.is(201);
    given["id"].as_str().expect("an id").to_owned()
}

async fn take_back(app: &App, id: &str) -> Answer {
    let path = format!("POST {ACCOUNT}/top-ups/{id}/reversal");
    app.ask(&path, json!({ "reason": "a mistake" })).await
}

async fn claim(app: &App, units: u64) -> Answer {
    app.claim_body(json!({ "subject": SUBJECT, "units": units }), None)
        .await
}

/// What is left of each top-up.
async fn left(app: &App) -> Vec<u64> {
    let usage = app.get(ACCOUNT).await.json();
    let top_ups = usage["top_ups"].as_array().into_iter().flatten();
    let left = top_ups.map(|top_up| top_up["units_left"].as_u64().expect("units"));
    left.collect()
}

async fn used_now(app: &App) -> Vec<u64> {
    used(app, "benefit", SUBJECT).await
}

async fn a_top_up_is_used_after_the_windows(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(
        &app,
        json!([{ "max": 3, "per": "day" }, { "max": 9, "per": "month" }]),
    )
    .await;
    given(&app, &clock, 2, 48).await;
    given(&app, &clock, 2, 24).await;
    assert_eq!(left(&app).await, [2, 2]);
    // 1. The windows have room for two: the top-ups stay.
    let first = claim(&app, 2).await.is(201);
    assert_eq!(first["grant"].get("topped_up_units"), None);
    // 2. One of the day, and two of the top-up that ends first.
    let second = claim(&app, 3).await.is(201);
    assert_eq!(second["grant"]["topped_up_units"], 2);
    assert_eq!(second["limits"][0]["used"], 3);
    assert_eq!(second["limits"][1]["used"], 3);
    assert_eq!(left(&app).await, [0, 2]);
    // 3. Nothing is taken of what is too little.
    let denied = claim(&app, 3).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.at("/violated-policies"), json!(["day"]));
    let detail = denied.at("/detail").as_str().expect("a text").to_owned();
    assert!(detail.contains("of which its top-ups have 2"), "{detail}");
    assert_eq!(left(&app).await, [0, 2]);
    // 4. The next day has three, and the other top-up is still there.
    clock.advance(TimeDelta::hours(23));
    claim(&app, 5).await.is(201);
    assert_eq!(used_now(&app).await, [3, 6]);
    problem(&claim(&app, 1).await, 429, "quota-exceeded");
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

/// The unit that was taken last returns first, to where it came from, also in parts.
async fn units_return_to_where_they_came_from(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "day" }])).await;
    given(&app, &clock, 1, 24).await;
    given(&app, &clock, 2, 48).await;
    let grant = claim(&app, 6).await.grant_id();
    assert_eq!(
        (used_now(&app).await, left(&app).await),
        (vec![3], vec![0, 0])
    );
    for (number, expected) in [(3, [0, 1]), (3, [0, 2]), (3, [1, 2]), (2, [1, 2])]
        .into_iter()
        .enumerate()
    {
        let (used, left_then) = expected;
        let key = format!("part-{number}");
        app.reverse_units(&grant, 1, &key, &key).await.is(201);
        let found = (used_now(&app).await, left(&app).await);
        assert_eq!(found, (vec![used], left_then.to_vec()), "{number}");
    }
    let answer = app.reverse(&grant, "the rest").await.is(201);
    assert_eq!(answer["grant"]["topped_up_units"], 3);
    assert_eq!(
        (used_now(&app).await, left(&app).await),
        (vec![0], vec![1, 2])
    );
    // All of it can be claimed again, and no more.
    claim(&app, 6).await.is(201);
    problem(&claim(&app, 1).await, 429, "quota-exceeded");
}

/// Claims and top-ups of two admins at two instances: everything that was given is handed out once.
async fn claims_race_with_top_ups(stack: Stack) {
    let fleet = Fleet::with_max(stack, 5).await;
    let claims = fleet.claim_all(12, |_| vec![Wish::of(SUBJECT); 4]);
    let until = "2026-12-24T00:00:00Z";
    let given = all_at_once(6, |client| {
        let app = fleet.app(client);
        async move { give(&app, 2, until, Some(&format!("top-up-{}", client / 2))).await }
    });
    let (_, given) = tokio::join!(claims, given);
    let new = given.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(new, 3, "{given:?}");
    let stores = fleet.ground.stores().await;
    let granted = stores.of_kind(Kind::Grant).count();
    assert_eq!(fleet.drain(4, SUBJECT).await, 5 + 6 - granted);
    let stores = fleet.finds_nothing().await;
    assert_eq!(stores.of_kind(Kind::TopUp).count(), 3);
    assert_eq!(stores.of_kind(Kind::Grant).count(), 11);
    fleet.tells_one_story().await;
}

/// What was used of it counts in no window after its end either, and what is left is gone.
async fn a_top_up_ends_in_mid_window(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "day" }])).await;
    given(&app, &clock, 4, 2).await;
    let grant = claim(&app, 5).await.grant_id();
    clock.advance(TimeDelta::hours(2) - TimeDelta::microseconds(1));
    assert_eq!(left(&app).await, [2]);
    clock.advance(TimeDelta::microseconds(1));
    assert_eq!((used_now(&app).await, left(&app).await), (vec![3], vec![]));
    problem(&claim(&app, 1).await, 429, "quota-exceeded");
    // Two of its units are gone, and three return to the day.
    app.reverse(&grant, "a mistake").await.is(201);
    assert_eq!((used_now(&app).await, left(&app).await), (vec![0], vec![]));
    claim(&app, 3).await.is(201);
    problem(&claim(&app, 1).await, 429, "quota-exceeded");
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

async fn a_hold_that_lapses_returns_to_its_top_up(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "day" }])).await;
    given(&app, &clock, 4, 24).await;
    let hold = |units: u64| json!({ "subject": SUBJECT, "units": units, "hold_seconds": 60 });
    app.claim_body(hold(5), None).await.is(201);
    let confirmed = app.claim_body(hold(2), None).await.grant_id();
    assert_eq!(left(&app).await, [0]);
    // One of two stays used.
    app.confirm_units(&confirmed, Some(1)).await.is(201);
    assert_eq!(left(&app).await, [1]);
    // A claim of six fits when the hold lapses: three of the day, and three of the top-up.
    let denied = claim(&app, 6).await;
    let fits_at = denied.at("/fits_at");
    let until = clock.now() + TimeDelta::seconds(60);
    assert_eq!(fits_at, until.to_rfc3339_opts(SecondsFormat::Micros, true));
    clock.advance(TimeDelta::seconds(60));
    let granted = claim(&app, 6).await.is(201);
    assert_eq!(granted["grant"]["topped_up_units"], 3);
    assert_eq!((used_now(&app).await, left(&app).await), (vec![3], vec![0]));
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

/// A claim that a top-up would have to help with fits only while it lasts.
async fn a_forecast_knows_the_ends_of_top_ups(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "24h", "kind": "sliding" }])).await;
    claim(&app, 2).await.is(201);
    clock.advance(TimeDelta::hours(1));
    claim(&app, 1).await.is(201);
    // 1. It ends after the first units have returned, so five fit then: two of the limit, three of the top-up.
    given(&app, &clock, 3, 30).await;
    let denied = claim(&app, 5).await;
    assert_eq!(denied.at("/fits_at"), "2026-11-22T03:04:05.678901Z");
    // 2. Six fit an hour later, and seven never.
    let denied = claim(&app, 6).await;
    assert_eq!(denied.at("/fits_at"), "2026-11-22T04:04:05.678901Z");
    assert_eq!(invalid_places(&claim(&app, 7).await), ["#/units"]);
    // 3. It ends before: then only what the limit has alone fits.
    let id = left_id(&app).await;
    take_back(&app, &id).await.is(201);
    given(&app, &clock, 3, 20).await;
    let denied = claim(&app, 5).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.at("/fits_at"), Value::Null);
    let explained = app.get(&format!("{ACCOUNT}?units=5")).await.json();
    assert_eq!(explained["outcome"], "denied");
    assert_eq!(explained["fits_at"], Value::Null);
    let explained = app.get(&format!("{ACCOUNT}?units=3")).await.json();
    let told = [&explained["outcome"], &explained["reason"]];
    assert_eq!(told, ["granted", "topped_up"]);
}

async fn left_id(app: &App) -> String {
    let usage = app.get(ACCOUNT).await.json();
    usage["top_ups"][0]["id"]
        .as_str()
        .expect("an id")
        .to_owned()
}

async fn every_kind_of_limit_leaves_the_rest_to_them(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    for limit in [
        json!({ "max": 2, "per": "day" }),
        json!({ "max": 2, "per": "ever" }),
        json!({ "max": 2, "per": "2h", "kind": "sliding" }),
        json!({ "max": 2, "per": "2h", "kind": "from_first_claim" }),
        json!({ "max": 2, "per": "2h", "kind": "rate" }),
    ] {
        put(&app, json!([limit])).await;
        let subject = limit.to_string().replace('/', "");
        let account = format!(
            "/v1/policies/benefit/subjects/{}",
            subject
                .replace('"', "%22")
                .replace('{', "%7B")
                .replace('}', "%7D")
        );
        let until = (clock.now() + TimeDelta::days(9)).to_rfc3339_opts(SecondsFormat::Micros, true);
        let body = json!({ "units": 3, "until": until, "reason": "x" });
        app.ask(&format!("POST {account}/top-ups"), body)
            .await
            .is(201);
        let body = json!({ "subject": subject, "units": 4 });
        let granted = app.claim_body(body, None).await.is(201);
        assert_eq!(granted["grant"]["topped_up_units"], 2, "{limit}");
        assert_eq!(granted["limits"][0]["used"], 2, "{limit}");
        app.claim(&subject, None).await.is(201);
        problem(&app.claim(&subject, None).await, 429, "quota-exceeded");
        let id = granted["grant"]["id"].as_str().expect("an id");
        app.reverse(id, "a mistake").await.is(201);
        let usage = app.get(&account).await.json();
        assert_eq!(usage["limits"][0]["used"], 0, "{limit}: {usage}");
        assert_eq!(usage["top_ups"][0]["units_left"], 2, "{limit}");
    }
}

/// The windows of another zone and another kind are summed from the entries.
async fn a_change_of_the_policy_sums_no_units_of_top_ups(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "day" }])).await;
    given(&app, &clock, 4, 48).await;
    let grant = claim(&app, 4).await.grant_id();
    claim(&app, 2).await.is(201);
    for (zone, limit) in [
        ("GMT+8", json!({ "max": 9, "per": "day" })),
        ("UTC", json!({ "max": 9, "per": "week" })),
        ("UTC", json!({ "max": 9, "per": "ever" })),
        ("UTC", json!({ "max": 9, "per": "24h", "kind": "sliding" })),
        (
            "UTC",
            json!({ "max": 9, "per": "24h", "kind": "from_first_claim" }),
        ),
    ] {
        replace(&app, json!({ "time_zone": zone, "limits": [limit] })).await;
        assert_eq!(used_now(&app).await, [3], "{limit}");
        assert_eq!(left(&app).await, [1]);
    }
    app.reverse(&grant, "a mistake").await.is(201);
    replace(
        &app,
        json!({ "time_zone": "GMT+8", "limits": [{ "max": 9, "per": "day" }] }),
    )
    .await;
    assert_eq!((used_now(&app).await, left(&app).await), (vec![0], vec![2]));
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

async fn what_was_taken_back_returns_no_more(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 3, "per": "day" }])).await;
    let id = given(&app, &clock, 3, 48).await;
    let grant = claim(&app, 5).await.grant_id();
    let ended = take_back(&app, &id).await.is(201);
    assert_eq!(ended["kind"], "top_up_reversal");
    assert_eq!(ended["top_up"], json!({ "id": id, "units": 1 }));
    assert_eq!(ended.get("grant"), None);
    // Once, whoever asks, and under its subject only.
    let again = take_back(&app, &id).await.is(200);
    assert_eq!(again["id"], ended["id"]);
    let other = format!("POST /v1/policies/benefit/subjects/other/top-ups/{id}/reversal");
    let other = app.ask(&other, json!({ "reason": "x" })).await;
    problem(&other, 409, "nothing-left");
    assert_eq!(left(&app).await, [0; 0]);
    problem(&claim(&app, 1).await, 429, "quota-exceeded");
    app.reverse(&grant, "a mistake").await.is(201);
    assert_eq!((used_now(&app).await, left(&app).await), (vec![0], vec![]));
    // All units are used: there is nothing to take back, until one returns.
    let id = given(&app, &clock, 1, 48).await;
    let grant = claim(&app, 4).await.grant_id();
    problem(&take_back(&app, &id).await, 409, "nothing-left");
    app.reverse(&grant, "a mistake").await.is(201);
    take_back(&app, &id).await.is(201);
    // Nobody's, another subject's, and one that has ended.
    problem(
        &take_back(&app, "01980000-0000-7000-8000-000000000000").await,
        409,
        "nothing-left",
    );
    let id = given(&app, &clock, 1, 1).await;
    let other = format!("POST /v1/policies/benefit/subjects/other/top-ups/{id}/reversal");
    let other = app.ask(&other, json!({ "reason": "x" })).await;
    problem(&other, 409, "nothing-left");
    clock.advance(TimeDelta::hours(1));
    problem(&take_back(&app, &id).await, 409, "nothing-left");
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

async fn a_bundle_takes_of_them(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 1, "per": "day" }])).await;
    given(&app, &clock, 1, 24).await;
    let claims = |others: &[&str]| {
        let all = [&[SUBJECT, SUBJECT], others].concat();
        let claims = all
            .iter()
            .map(|subject| json!({ "policy": "benefit", "subject": subject }));
        json!({ "atomic": true, "claims": claims.collect::<Vec<_>>() })
    };
    // The third claim is denied, so no unit is taken.
    let denied = app.ask("POST /v1/claims", claims(&[SUBJECT])).await.is(200);
    assert_eq!(denied["items"][2]["status"], 429, "{denied}");
    assert_eq!(left(&app).await, [1]);
    let granted = app.ask("POST /v1/claims", claims(&["other"])).await.is(200);
    assert_eq!(
        granted["items"][1]["grant"]["topped_up_units"], 1,
        "{granted}"
    );
    assert_eq!(left(&app).await, [0]);
    let bundle = granted["bundle"].as_str().expect("a bundle");
    let path = format!("POST /v1/bundles/{bundle}/reversal");
    app.ask(&path, json!({ "reason": "a mistake" }))
        .await
        .is(201);
    assert_eq!((used_now(&app).await, left(&app).await), (vec![0], vec![1]));
}

async fn every_view_knows_the_top_ups(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 1, "per": "day" }])).await;
    let id = given(&app, &clock, 3, 48).await;
    clock.advance(TimeDelta::minutes(1));
    let granted = claim(&app, 2).await;
    clock.advance(TimeDelta::minutes(1));
    take_back(&app, &id).await.is(201);
    // 1. A dry run, and the usage.
    given(&app, &clock, 1, 48).await;
    let dry = json!({ "subject": SUBJECT, "dry_run": true });
    assert_eq!(app.claim_body(dry, None).await.at("/outcome"), "granted");
    let subject = app.get("/v1/subjects/member-42").await;
    assert_eq!(subject.at("/items/0/top_ups/0/units_left"), 1);
    // 2. Its entries, and the record.
    let entries = items(&app.get(&format!("{ACCOUNT}/entries")).await);
    let told: Vec<Value> = entries
        .iter()
        .map(|it| {
            json!([
                it["kind"],
                it["units"],
                it["topped_up_units"],
                it["top_up"]["units"]
            ])
        })
        .collect();
    assert_eq!(
        told,
        [
            json!(["top_up", 0, null, 1]),
            json!(["top_up_reversal", 0, null, 2]),
            json!(["grant", 2, 1, null]),
            json!(["top_up", 0, null, 3]),
        ]
    );
    eventually("the record has the entries", || async {
        items(&app.get("/v1/entries").await).len() == 4
    })
    .await;
    let listed = items(&app.get("/v1/entries?kind=top_up").await);
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["reason"], "goodwill");
    let listed = items(&app.get("/v1/entries?kind=top_up_reversal").await);
    assert_eq!(listed[0]["top_up"]["id"], id);
    let export = app.get("/v1/entries/export?format=ndjson").await;
    assert!(export.text.contains(r#""topped_up_units":1"#), "{export:?}");
    // 3. Why a claim was granted.
    let why = format!("/v1/grants/{}/explanation", granted.grant_id());
    let why = app.get(&why).await.json();
    assert_eq!(
        why["took"],
        json!([{ "per": "day", "first": 1, "last": 1, "max": 1 }])
    );
    assert_eq!(why["entry"]["units"], 1, "{why}");
    assert_eq!(why["entry"]["topped_up_units"], 1);
    // 4. The figures count all units that were handed out, and the ledger is sound.
    eventually("the figures count all units", || async {
        let stats = app.get("/v1/stats?policy=benefit").await.json();
        stats["items"][0]["units"] == 2
    })
    .await;
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

async fn a_retry_gives_nothing_twice(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 1, "per": "day" }])).await;
    let until = "2026-11-28T00:00:00Z";
    let first = give(&app, 2, until, Some("top-up-1")).await.is(201);
    let again = give(&app, 2, "2026-11-28T08:00:00+08:00", Some("top-up-1")).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.is(200)["id"], first["id"]);
    for (units, until) in [(1, until), (2, "2026-11-29T00:00:00Z")] {
        let other = give(&app, units, until, Some("top-up-1")).await;
        problem(&other, 422, "idempotency-key-reused");
    }
    let claimed = app.claim(SUBJECT, Some("top-up-1")).await;
    problem(&claimed, 422, "idempotency-key-reused");
    assert_eq!(left(&app).await, [2]);
    // Also after the end.
    clock.advance(TimeDelta::days(9));
    let again = give(&app, 2, until, Some("top-up-1")).await;
    assert_eq!(again.is(200)["id"], first["id"]);
    let other = give(&app, 2, until, Some("top-up-2")).await;
    assert_eq!(invalid_places(&other), ["#/until"]);
}

async fn what_is_wrong_is_told(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 1, "per": "day" }])).await;
    // 1. What a body has.
    let path = format!("POST {ACCOUNT}/top-ups");
    for (wrong, places) in [
        (json!({ "units": 0 }), &["#/units"][..]),
        (json!({ "units": -1 }), &["#/units"]),
        (json!({ "until": "2026-11-21T00:00:00Z" }), &["#/until"]),
        (json!({ "until": "friday" }), &["#/until"]),
        (json!({ "reason": "" }), &["#/reason"]),
        (
            json!({ "units": 0, "until": "soon", "reason": "" }),
            &["#/units", "#/until", "#/reason"],
        ),
    ] {
        let mut body = json!({ "units": 1, "until": "2026-11-28T00:00:00Z", "reason": "x" });
        for (name, value) in wrong.as_object().expect("an object") {
            body[name] = value.clone();
        }
        assert_eq!(
            invalid_places(&app.ask(&path, body).await),
            places,
            "{wrong}"
        );
    }
    for malformed in [
        json!({}),
        json!({ "units": 1, "until": "2026-11-28T00:00:00Z" }),
    ] {
        problem(&app.ask(&path, malformed).await, 400, "malformed");
    }
    // 2. So many at the same time, and one more after an end.
    for hours in 1..=16 {
        given(&app, &clock, 1, hours).await;
    }
    let refused = give(&app, 1, "2026-11-28T00:00:00Z", None).await;
    assert_eq!(invalid_places(&refused), ["#/units"]);
    assert!(refused.text.contains("16 top-ups"), "{refused:?}");
    clock.advance(TimeDelta::hours(1));
    give(&app, 1, "2026-11-28T00:00:00Z", None).await.is(201);
    // 3. Redis alone knows none of them.
    let counted = json!({
        "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }], "durability": "counted", "reason": "x",
    });
    let has_redis = app.put_policy("counted", counted).await.status == 201;
    if has_redis {
        let body = json!({ "units": 1, "until": "2026-11-28T00:00:00Z", "reason": "x" });
        let path = "POST /v1/policies/counted/subjects/a/top-ups";
        let refused = app.ask(path, body).await;
        assert_eq!(invalid_places(&refused), ["#/units"]);
        assert!(refused.text.contains("durability recorded"), "{refused:?}");
    }
    // 4. A block and an archived policy deny all the same.
    let block = json!({ "reason": "x" });
    app.ask("PUT /v1/policies/benefit/blocks/member-42", block)
        .await
        .is(201);
    problem(&claim(&app, 1).await, 403, "subject-blocked");
    let archived = app.request(Method::DELETE, "/v1/policies/benefit?reason=x");
    Answer::of(archived).await.is(200);
    let refused = give(&app, 1, "2026-11-28T00:00:00Z", None).await;
    problem(&refused, 404, "unknown-policy");
}

async fn a_backtest_draws_on_the_top_ups_of_then(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 5, "per": "day" }])).await;
    given(&app, &clock, 2, 12).await;
    // Nothing was drawn then. Under a max of 3, one of the second claim would have been, and one of the third.
    for units in [3, 1, 1] {
        claim(&app, units).await.is(201);
    }
    // The top-up has ended, and the day has not.
    clock.advance(TimeDelta::hours(13));
    claim(&app, 2).await;
    clock.advance(TimeDelta::days(1));
    let tried = async |max: u64| {
        let draft = json!({ "time_zone": "UTC", "limits": [{ "max": max, "per": "day" }] });
        let body = json!({ "policy": draft, "from": "2026-11-21", "to": "2026-11-22" });
        let tried = app
            .ask("POST /v1/policies/benefit/backtest", body)
            .await
            .is(200);
        tried["total"]["denied_grants"].clone()
    };
    assert_eq!([tried(3).await, tried(2).await, tried(1).await], [0, 1, 2]);
}
