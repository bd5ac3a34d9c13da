//! Calendars of subjects: months from the day of joining, days in the subject's own zone.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{invalid_places, items, problem, replace, used};
use crate::judge::{Kind, Wish};
use crate::support::app::{Answer, App, NOON, Stack, eventually, instant, on_every_stack};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::desk::on_every_store;

on_every_stack!(a_move_hands_out_nothing_twice, claims_race_with_moves);

on_every_store!(
    a_month_is_counted_from_the_day_of_joining,
    a_first_grant_begins_the_calendar,
    every_view_knows_the_calendar,
    a_retry_moves_nothing_twice,
    what_is_wrong_is_told,
    a_backtest_follows_the_calendars_of_subjects,
    a_policy_changes_whose_calendar_it_has,
);

const SUBJECT: &str = "member-42";
const ACCOUNT: &str = "/v1/policies/benefit/subjects/member-42";

/// A policy whose calendars are those of its subjects, in UTC.
async fn put(app: &App, calendar: &str, limits: Value) {
    let body = json!({ "time_zone": "UTC", "calendar": calendar, "limits": limits });
    replace(app, body).await;
}

async fn claim_in(app: &App, calendar: Value, units: u64) -> Answer {
    let body = json!({ "subject": SUBJECT, "units": units, "calendar": calendar });
    app.claim_body(body, None).await
}

async fn move_to(app: &App, calendar: Value, key: Option<&str>) -> Answer {
    let mut body = calendar;
    body["reason"] = json!("a move");
    let request = app.request(Method::POST, &format!("{ACCOUNT}/calendar"));
    let request = match key {
        Some(key) => request.header("Idempotency-Key", key),
        None => request,
    };
    Answer::of(request.json(&body)).await
}

fn day(text: &str) -> String {
    format!("{text}T00:00:00Z")
}

/// The 31st, the last day of shorter months, and the 31st again; and a year from 29 February.
async fn a_month_is_counted_from_the_day_of_joining(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 2, "per": "month" }, { "max": 9, "per": "year" }]);
    put(&app, "subject", limits).await;
    let joined = json!({ "anchor": "2026-01-31" });
    let granted = claim_in(&app, joined, 2).await;
    let granted = granted.is(201);
    assert_eq!(granted["limits"][0]["window_start"], day("2026-10-31"));
    assert_eq!(granted["limits"][0]["resets_at"], day("2026-11-30"));
    assert_eq!(granted["limits"][1]["window_start"], day("2026-01-31"));
    let denied = app.claim(SUBJECT, None).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.at("/fits_at"), day("2026-11-30"));
    for (begins, ends) in [
        ("2026-11-30", "2026-12-31"),
        ("2026-12-31", "2027-01-31"),
        ("2027-01-31", "2027-02-28"),
        ("2027-02-28", "2027-03-31"),
    ] {
        clock.advance(instant(&day(begins)) - clock.now() - TimeDelta::microseconds(1));
        problem(
            &claim_in(&app, json!({ "anchor": "2026-01-31" }), 2).await,
            429,
            "quota-exceeded",
        );
        clock.advance(TimeDelta::microseconds(1));
        // The calendar need not be told again.
        let body = json!({ "subject": SUBJECT, "units": 2 });
        let granted = app.claim_body(body, None).await.is(201);
        assert_eq!(granted["limits"][0]["window_start"], day(begins));
        assert_eq!(granted["limits"][0]["resets_at"], day(ends));
    }
    // Born on 29 February.
    let other = json!({ "subject": "leap", "calendar": { "anchor": "2024-02-29" } });
    let granted = app.claim_body(other, None).await.is(201);
    assert_eq!(granted["limits"][1]["window_start"], day("2027-02-28"));
    assert_eq!(granted["limits"][1]["resets_at"], day("2028-02-29"));
}

/// A day that has begun keeps its end, and the next one counts what was used in it already.
async fn a_move_hands_out_nothing_twice(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    clock.advance(TimeDelta::hours(9));
    put(&app, "subject", json!([{ "max": 3, "per": "day" }])).await;
    claim_in(&app, json!({ "time_zone": "UTC" }), 3)
        .await
        .is(201);
    // 1. In the zone that is 14 hours ahead it is the next day since 10:00, and nothing was used in it before
    //    noon. But the day in UTC goes on until midnight, and what was used at noon counts until 10:00.
    let ahead = json!({ "time_zone": "Pacific/Kiritimati" });
    let denied = claim_in(&app, ahead.clone(), 1).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.at("/fits_at"), "2026-11-22T10:00:00Z");
    assert_eq!(denied.header("retry-after"), Some("78955"));
    // 2. A denied claim moves nothing, and an admin does.
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(usage["calendar"], json!({ "time_zone": "UTC" }));
    assert_eq!(usage["limits"][0]["resets_at"], day("2026-11-22"));
    let moved = move_to(&app, ahead.clone(), None).await.is(201);
    assert_eq!(moved["kind"], "calendar");
    assert_eq!(moved["units"], 0);
    assert_eq!(moved["limits"][0]["used"], 3);
    assert_eq!(
        moved["calendar"],
        json!({ "time_zone": "Pacific/Kiritimati" })
    );
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(usage["time_zone"], "Pacific/Kiritimati");
    assert_eq!(usage["limits"][0]["window_start"], day("2026-11-21"));
    // All units return when the day that follows ends.
    assert_eq!(usage["limits"][0]["resets_at"], "2026-11-22T10:00:00Z");
    assert_eq!(usage["limits"][0]["more_at"], "2026-11-22T10:00:00Z");
    let denied = app.claim(SUBJECT, None).await;
    assert_eq!(denied.at("/fits_at"), "2026-11-22T10:00:00Z");
    // 3. The first day of the new calendar has the units of noon.
    clock.advance(TimeDelta::hours(12));
    let denied = app.claim(SUBJECT, None).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.at("/limits/0/window_start"), "2026-11-21T10:00:00Z");
    // 4. It stays so in every zone in which it is still the day of noon.
    for zone in ["+14:00", "+13:45", "-12:00", "Etc/GMT+12"] {
        let denied = claim_in(&app, json!({ "time_zone": zone }), 1).await;
        problem(&denied, 429, "quota-exceeded");
    }
    clock.advance(TimeDelta::hours(10));
    assert_eq!(used(&app, "benefit", SUBJECT).await, [0]);
    // In the zone that is 12 hours behind, it is still the day of noon.
    let denied = claim_in(&app, json!({ "time_zone": "-12:00" }), 1).await;
    assert_eq!(denied.at("/fits_at"), "2026-11-22T12:00:00Z");
    let body = json!({ "subject": SUBJECT, "units": 3 });
    app.claim_body(body, None).await.is(201);
}

/// Claims and moves of two admins at two instances: no window of the chain has more than the limit.
async fn claims_race_with_moves(stack: Stack) {
    let fleet = Fleet::with_max(stack, 5).await;
    let body = json!({
        "time_zone": "GMT+8", "calendar": "subject", "limits": [{ "max": 5, "per": "day" }], "reason": "a test",
    });
    fleet.app(0).put_policy("benefit", body).await.is(200);
    fleet.everybody_knows_all().await;
    let claims = fleet.claim_all(12, |_| vec![Wish::of(SUBJECT); 4]);
    let moves = all_at_once(6, |client| {
        let app = fleet.app(client);
        let zone = ["+14:00", "-12:00", "UTC"][client % 3];
        async move { move_to(&app, json!({ "time_zone": zone }), None).await }
    });
    let (_, moves) = tokio::join!(claims, moves);
    for moved in moves {
        moved.is(201);
    }
    let room = 5 - used(&fleet.app(1), "benefit", SUBJECT).await[0];
    assert_eq!(fleet.drain(4, SUBJECT).await as u64, room);
    let stores = fleet.finds_nothing().await;
    assert_eq!(stores.of_kind(Kind::Calendar).count(), 6);
    assert_eq!(stores.of_kind(Kind::Grant).count(), 5);
    fleet.tells_one_story().await;
}

async fn a_first_grant_begins_the_calendar(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, "first_grant", json!([{ "max": 2, "per": "month" }])).await;
    // 1. Nothing is known yet: the month would begin today.
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(usage["calendar"], json!({}));
    assert_eq!(usage["limits"][0]["window_start"], day("2026-11-21"));
    let first = app.claim(SUBJECT, None).await;
    assert_eq!(first.at("/limits/0/resets_at"), day("2026-12-21"));
    // 2. The day stays, also if the grant is reversed.
    clock.advance(TimeDelta::days(3));
    app.reverse(&first.grant_id(), "a mistake").await.is(201);
    clock.advance(TimeDelta::days(30));
    let granted = app.claim(SUBJECT, None).await.is(201);
    assert_eq!(granted["limits"][0]["window_start"], day("2026-12-21"));
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(usage["calendar"], json!({ "anchor": "2026-11-21" }));
    // 3. In its own zone it was the next day already.
    clock.advance(TimeDelta::hours(9));
    let body = json!({ "subject": "east", "calendar": { "time_zone": "Pacific/Kiritimati" } });
    app.claim_body(body, None).await.is(201);
    let usage = app.get("/v1/policies/benefit/subjects/east").await.json();
    let own = json!({ "time_zone": "Pacific/Kiritimati", "anchor": "2026-12-25" });
    assert_eq!(usage["calendar"], own);
    // 4. What a claim tells wins.
    let body = json!({ "subject": "told", "calendar": { "anchor": "2025-03-05" } });
    let granted = app.claim_body(body, None).await.is(201);
    assert_eq!(granted["limits"][0]["window_start"], day("2026-12-05"));
}

async fn every_view_knows_the_calendar(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, "subject", json!([{ "max": 3, "per": "week" }])).await;
    let own = json!({ "time_zone": "Asia/Tokyo", "anchor": "2026-11-19" });
    let granted = claim_in(&app, own.clone(), 2).await;
    assert_eq!(granted.at("/limits/0/window_start"), "2026-11-18T15:00:00Z");
    clock.advance(TimeDelta::hours(1));
    move_to(&app, json!({ "anchor": "2026-11-20" }), None)
        .await
        .is(201);
    // 1. Its usage, alone and among others; and what a claim would get.
    let moved = json!({ "time_zone": "Asia/Tokyo", "anchor": "2026-11-20" });
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(
        [&usage["calendar"], &usage["time_zone"]],
        [&moved, &json!("Asia/Tokyo")]
    );
    assert_eq!(usage["limits"][0]["resets_at"], "2026-11-26T15:00:00Z");
    let subject = app.get("/v1/subjects/member-42").await;
    assert_eq!(subject.at("/items/0/calendar"), moved);
    let dry = json!({ "subject": SUBJECT, "units": 2, "dry_run": true, "calendar": own });
    let dry = app.claim_body(dry, None).await;
    assert_eq!(
        [dry.at("/outcome"), dry.at("/fits_at")],
        [json!("denied"), json!("2026-11-25T15:00:00Z")]
    );
    // 2. Its entries, and the record.
    let entries = items(&app.get(&format!("{ACCOUNT}/entries")).await);
    let told: Vec<Value> = entries
        .iter()
        .map(|entry| json!([entry["kind"], entry["calendar"]]))
        .collect();
    assert_eq!(told, [json!(["calendar", moved]), json!(["grant", own])]);
    eventually("the record has the entries", || async {
        items(&app.get("/v1/entries").await).len() == 2
    })
    .await;
    let listed = items(&app.get("/v1/entries?kind=calendar").await);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["calendar"], moved);
    assert_eq!(listed[0]["by"], "PERDIEM_ADMIN_KEY");
    let export = app.get("/v1/entries/export?format=ndjson").await;
    assert!(
        export.text.contains(r#""anchor":"2026-11-20""#),
        "{export:?}"
    );
    // 3. Why a claim is decided so, now and before the move.
    let then = format!("{ACCOUNT}?at=2026-11-21T03:30:00Z&units=2");
    let explained = app.get(&then).await.json();
    assert_eq!(explained["fits_at"], "2026-11-25T15:00:00Z", "{explained}");
    let now = format!("{ACCOUNT}?at=2026-11-21T04:04:05.678901Z&units=2");
    let explained = app.get(&now).await.json();
    assert_eq!(explained["fits_at"], "2026-11-26T15:00:00Z", "{explained}");
    let why = format!("/v1/grants/{}/explanation", granted.grant_id());
    let why = app.get(&why).await.json();
    assert_eq!(
        why["limits"][0]["window_start"], "2026-11-18T15:00:00Z",
        "{why}"
    );
    // 4. The figures count no units for it.
    let report = app
        .ask("POST /v1/reconciliations", json!({ "apply": false }))
        .await;
    assert_eq!(report.is(201)["alarm_count"], 0);
}

async fn a_retry_moves_nothing_twice(stack: Stack) {
    let (app, _) = App::with_clock(stack).await;
    put(&app, "subject", json!([{ "max": 3, "per": "month" }])).await;
    let to = |anchor: &str| json!({ "anchor": anchor });
    let first = move_to(&app, to("2026-01-31"), Some("move-1"))
        .await
        .is(201);
    let again = move_to(&app, to("2026-01-31"), Some("move-1")).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.is(200)["id"], first["id"]);
    let other = move_to(&app, to("2026-01-30"), Some("move-1")).await;
    problem(&other, 422, "idempotency-key-reused");
    problem(
        &app.claim(SUBJECT, Some("move-1")).await,
        422,
        "idempotency-key-reused",
    );
    // The retry of a claim gets its grant, also if the profile has changed meanwhile.
    let body = |anchor: &str| json!({ "subject": SUBJECT, "calendar": { "anchor": anchor } });
    let grant = app
        .claim_body(body("2026-02-01"), Some("order-1"))
        .await
        .is(201);
    let again = app
        .claim_body(body("2026-02-02"), Some("order-1"))
        .await
        .is(200);
    assert_eq!(again["grant"]["id"], grant["grant"]["id"]);
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(usage["calendar"], to("2026-02-01"));
}

async fn what_is_wrong_is_told(stack: Stack) {
    let (app, _) = App::with_clock(stack).await;
    // 1. A policy with a calendar of its own takes no other one, and says so.
    replace(&app, json!({})).await;
    let refused = claim_in(&app, json!({ "anchor": "2026-01-31" }), 1).await;
    assert_eq!(invalid_places(&refused), ["#/calendar"]);
    let refused = move_to(&app, json!({ "anchor": "2026-01-31" }), None).await;
    assert_eq!(invalid_places(&refused), ["#/calendar"]);
    assert!(refused.text.contains("calendar subject"), "{refused:?}");
    assert_eq!(app.get(ACCOUNT).await.json().get("calendar"), None);
    // 2. Neither claims nor moves take nonsense.
    put(&app, "subject", json!([{ "max": 3, "per": "month" }])).await;
    for (wrong, place) in [
        (json!({}), ""),
        (json!({ "anchor": "2026-02-30" }), "/anchor"),
        (json!({ "anchor": "31" }), "/anchor"),
        (json!({ "anchor": "+2026-01-31" }), "/anchor"),
        (json!({ "anchor": "0000-01-31" }), "/anchor"),
        (json!({ "time_zone": "Asia/Shangai" }), "/time_zone"),
        (json!({ "time_zone": "" }), "/time_zone"),
    ] {
        let claimed = claim_in(&app, wrong.clone(), 1).await;
        assert_eq!(
            invalid_places(&claimed),
            [format!("#/calendar{place}")],
            "{wrong}"
        );
        let moved = move_to(&app, wrong.clone(), None).await;
        assert_eq!(invalid_places(&moved), [format!("#{place}")], "{wrong}");
        let batch =
            json!({ "claims": [{ "policy": "benefit", "subject": SUBJECT, "calendar": wrong }] });
        let batch = app.ask("POST /v1/claims", batch).await.is(200);
        assert_eq!(batch["items"][0]["status"], 422, "{batch}");
    }
    for malformed in [
        json!([]),
        json!("2026-01-31"),
        json!({ "anchors": "2026-01-31" }),
    ] {
        problem(&claim_in(&app, malformed, 1).await, 400, "malformed");
    }
    assert_eq!(used(&app, "benefit", SUBJECT).await, [0]);
    // 3. Redis alone cannot count by them.
    for (setting, value) in [("durability", "counted"), ("on_ledger_outage", "count")] {
        let mut body = json!({
            "time_zone": "UTC", "calendar": "first_grant", "limits": [{ "max": 3, "per": "day" }], "reason": "x",
        });
        body[setting] = json!(value);
        let refused = app.put_policy("counted", body).await;
        assert_eq!(invalid_places(&refused), [format!("#/{setting}")]);
    }
    // 4. An archived policy moves nothing.
    let archived = app.request(Method::DELETE, "/v1/policies/benefit?reason=x");
    Answer::of(archived).await.is(200);
    let moved = move_to(&app, json!({ "anchor": "2026-01-31" }), None).await;
    problem(&moved, 404, "unknown-policy");
}

async fn a_backtest_follows_the_calendars_of_subjects(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, "subject", json!([{ "max": 3, "per": "month" }])).await;
    // Two units on each side of the 25th, from which this subject counts, and two of another subject.
    claim_in(&app, json!({ "anchor": "2026-01-25" }), 2)
        .await
        .is(201);
    let other = json!({ "subject": "other", "units": 2 });
    app.claim_body(other, None).await.is(201);
    clock.advance(TimeDelta::days(5));
    app.claim_body(json!({ "subject": SUBJECT, "units": 2 }), None)
        .await
        .is(201);
    app.claim_body(json!({ "subject": "other", "units": 1 }), None)
        .await
        .is(201);
    clock.advance(TimeDelta::days(1));
    let tried = async |calendar: &str| {
        let draft = json!({
            "time_zone": "UTC", "calendar": calendar, "limits": [{ "max": 2, "per": "month" }],
        });
        let body = json!({ "policy": draft, "from": "2026-11-20", "to": "2026-11-28" });
        let tried = app
            .ask("POST /v1/policies/benefit/backtest", body)
            .await
            .is(200);
        tried["total"]["denied_grants"].clone()
    };
    // Under the calendars of subjects, the one from the 25th has two months.
    assert_eq!(tried("subject").await, 1);
    assert_eq!(tried("policy").await, 2);
}

/// A policy that counted by its own calendar takes those of subjects, and goes back.
async fn a_policy_changes_whose_calendar_it_has(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 3, "per": "month" }]);
    put(&app, "policy", limits.clone()).await;
    let granted = app
        .claim_body(json!({ "subject": SUBJECT, "units": 2 }), None)
        .await;
    assert_eq!(granted.at("/limits/0/window_start"), day("2026-11-01"));
    put(&app, "subject", limits.clone()).await;
    // The month that has begun goes on, and then the subject's own follows, which has the day of today.
    let granted = claim_in(&app, json!({ "anchor": "2026-01-15" }), 1).await;
    assert_eq!(granted.at("/limits/0/window_start"), day("2026-11-01"));
    let denied = app.claim(SUBJECT, None).await;
    assert_eq!(denied.at("/fits_at"), day("2026-12-15"));
    clock.advance(instant(&day("2026-12-01")) - instant(NOON));
    assert_eq!(used(&app, "benefit", SUBJECT).await, [3]);
    // Back: the policy's months, with what was used in them.
    put(&app, "policy", limits.clone()).await;
    assert_eq!(used(&app, "benefit", SUBJECT).await, [0]);
    app.claim(SUBJECT, None).await.is(201);
    assert_eq!(app.get(ACCOUNT).await.json().get("calendar"), None);
    // The subject's anchor was kept.
    put(&app, "subject", limits).await;
    let usage = app.get(ACCOUNT).await.json();
    assert_eq!(usage["calendar"], json!({ "anchor": "2026-01-15" }));
    assert_eq!(usage["limits"][0]["window_start"], day("2026-12-01"));
    assert_eq!(usage["limits"][0]["used"], 1);
}
