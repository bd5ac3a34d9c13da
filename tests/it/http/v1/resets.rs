//! Resets: a limit of a subject begins again with nothing used.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::keys::make_role;
use crate::http::{invalid_places, items, problem, replace, used};
use crate::judge::{Kind, Wish};
use crate::support::app::{
    Answer, App, NOON, Stack, eventually, instant, on_every_stack, on_every_store_with_redis,
};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::desk::on_every_store;

on_every_stack!(a_reset_begins_its_limit_again, claims_race_with_resets);

on_every_store!(
    every_view_knows_a_reset,
    what_was_granted_before_gives_nothing_back,
    a_sum_over_another_window_begins_at_the_reset,
    every_kind_of_limit_begins_again,
    a_retry_resets_nothing_twice,
    a_reset_needs_something_to_reset,
);

on_every_store_with_redis!(a_counted_limit_begins_again);

const SUBJECT: &str = "member-42";
const ACCOUNT: &str = "/v1/policies/benefit/subjects/member-42";

async fn put(app: &App, limits: Value) {
    replace(app, json!({ "time_zone": "GMT+8", "limits": limits })).await;
}

async fn day_and_month(app: &App) {
    let limits = json!([{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }]);
    put(app, limits).await;
}

async fn granted(app: &App, units: u64) -> String {
    let body = json!({ "subject": SUBJECT, "units": units });
    app.claim_body(body, None).await.grant_id()
}

async fn used_now(app: &App) -> Vec<u64> {
    used(app, "benefit", SUBJECT).await
}

async fn reset(app: &App, per: Option<&str>) -> Value {
    app.reset(SUBJECT, per, None).await.is(201)
}

async fn a_reset_begins_its_limit_again(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    day_and_month(&app).await;
    granted(&app, 3).await;
    problem(&app.claim(SUBJECT, None).await, 429, "quota-exceeded");
    let entry = reset(&app, Some("day")).await;
    let told = ["kind", "per", "units", "number", "by", "reason"].map(|name| entry[name].clone());
    let expected = ["reset", "day"].map(Value::from);
    assert_eq!(told[..2], expected);
    let expected = [
        json!(0),
        json!(2),
        json!("PERDIEM_ADMIN_KEY"),
        json!("a reset"),
    ];
    assert_eq!(told[2..], expected);
    let limits = [&entry["limits"][0]["used"], &entry["limits"][1]["used"]];
    assert_eq!(limits, [0, 3]);
    // The clock stands still, and the reset is later than the grant.
    assert!(entry["at"].as_str() > Some(NOON), "{entry}");
    assert_eq!(used_now(&app).await, [0, 3]);
    // All of it can be claimed at once, and no more.
    granted(&app, 3).await;
    let denied = app.claim(SUBJECT, None).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.at("/limits/0/used"), 3);
    assert_eq!(used_now(&app).await, [3, 6]);
    reset(&app, None).await;
    assert_eq!(used_now(&app).await, [0, 0]);
    granted(&app, 2).await;
    clock.advance(TimeDelta::days(1));
    assert_eq!(used_now(&app).await, [0, 2]);
}

/// Claims and resets at two instances: at any time at most the limit is used since the last reset.
async fn claims_race_with_resets(stack: Stack) {
    let fleet = Fleet::with_max(stack, 5).await;
    let claims = fleet.claim_all(12, |_| vec![Wish::of(SUBJECT); 4]);
    let resets = all_at_once(4, |client| {
        let app = fleet.app(client);
        async move { app.reset(SUBJECT, None, None).await }
    });
    let (_, resets) = tokio::join!(claims, resets);
    for reset in resets {
        // Nothing was used, or it was reset.
        assert!([201, 409].contains(&reset.status.as_u16()), "{reset:?}");
    }
    let room = 5 - used_now(&fleet.app(1)).await[0];
    assert_eq!(fleet.drain(4, SUBJECT).await as u64, room);
    let stores = fleet.finds_nothing().await;
    let entries = stores.of_subject("benefit", SUBJECT);
    let since = entries.iter().rev().take_while(|it| it.kind != Kind::Reset);
    assert_eq!(since.map(|entry| entry.units).sum::<u64>(), 5);
}

async fn every_view_knows_a_reset(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    day_and_month(&app).await;
    granted(&app, 3).await;
    clock.advance(TimeDelta::minutes(1));
    reset(&app, Some("day")).await;
    clock.advance(TimeDelta::minutes(1));
    granted(&app, 1).await;
    // 1. Its usage, and what a claim would get.
    let usage = app.get(ACCOUNT).await;
    assert_eq!(usage.at("/limits/0/used"), 1);
    assert_eq!(usage.at("/limits/1/used"), 4);
    let dry = json!({ "subject": SUBJECT, "units": 2, "dry_run": true });
    assert_eq!(app.claim_body(dry, None).await.at("/outcome"), "granted");
    let subject = app.get("/v1/subjects/member-42").await;
    assert_eq!(subject.at("/items/0/limits/0/used"), 1);
    // 2. Its entries, and the record.
    let entries = items(&app.get(&format!("{ACCOUNT}/entries")).await);
    let kinds: Vec<&Value> = entries.iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["grant", "reset", "grant"]);
    assert_eq!(entries[1]["per"], "day");
    eventually("the record has the entries", || async {
        items(&app.get("/v1/entries").await).len() == 3
    })
    .await;
    let listed = items(&app.get("/v1/entries?kind=reset").await);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["per"], "day");
    // 3. Those near a limit.
    for (per, least, names) in [("day", "0.5", 0), ("day", "0.3", 1), ("month", "0.1", 1)] {
        let path = format!("/v1/policies/benefit/near?per={per}&at_least={least}");
        assert_eq!(items(&app.get(&path).await).len(), names, "{per} {least}");
    }
    // 4. The explanation has the reset, and what counts since then.
    let explained = app.get(&format!("{ACCOUNT}?units=2")).await.json();
    let of_limit = |limit: usize| {
        let entries = explained["limits"][limit]["entries"].as_array();
        let entries = entries.expect("entries").iter();
        let words = entries.map(|entry| format!("{} {}", entry["kind"], entry["units"]));
        words.collect::<Vec<_>>()
    };
    assert_eq!(explained["outcome"], "granted");
    assert_eq!(of_limit(0), ["\"grant\" 1", "\"reset\" 0"]);
    assert_eq!(of_limit(1).len(), 3);
    // 5. The figures: what was granted stays granted.
    app.get("/v1/stats?policy=benefit").await.is(200);
    eventually("the figures have the entries", || async {
        let days = items(&app.get("/v1/stats?policy=benefit").await);
        days.iter()
            .any(|day| day["grants"] == 2 && day["resets"] == 1)
    })
    .await;
    let day = items(&app.get("/v1/stats?policy=benefit").await).remove(0);
    assert_eq!([&day["units"], &day["net_units"]], [4, 4]);
    // 6. An export has the limit that was reset.
    let exported = app.get("/v1/entries/export?format=ndjson").await;
    assert!(
        exported.text.contains("\"per\":\"day\",\"by\""),
        "{exported:?}"
    );
    // 7. The ledger's own check.
    let report = app.ask("POST /v1/reconciliations", json!({})).await;
    assert_eq!(report.is(201)["difference_count"], 0);
    // 8. A backtest of the same limits denies nothing, and of a lower one as many as did not fit.
    for (max, denied) in [(3, 0), (2, 1)] {
        let draft = json!({ "time_zone": "GMT+8", "limits": [{ "max": max, "per": "day" }] });
        let body = json!({ "policy": draft, "from": "2026-11-21", "to": "2026-11-22" });
        let answer = app.ask("POST /v1/policies/benefit/backtest", body).await;
        assert_eq!(answer.at("/total/denied_grants"), denied, "{max}");
    }
}

async fn what_was_granted_before_gives_nothing_back(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 9, "per": "day" }, { "max": 30, "per": "month" }]);
    put(&app, limits).await;
    let grant = granted(&app, 3).await;
    let hold = json!({ "subject": SUBJECT, "units": 2, "hold_seconds": 60 });
    app.claim_body(hold, None).await.is(201);
    clock.advance(TimeDelta::seconds(1));
    reset(&app, Some("day")).await;
    granted(&app, 4).await;
    assert_eq!(used_now(&app).await, [4, 9]);
    app.reverse_units(&grant, 1, "too many", "part")
        .await
        .is(201);
    assert_eq!(used_now(&app).await, [4, 8]);
    app.reverse(&grant, "too late").await.is(201);
    assert_eq!(used_now(&app).await, [4, 6]);
    // An adjustment that is dated before the reset.
    for (units, month) in [(1, 7), (-1, 6)] {
        let body = json!({ "units": units, "at": NOON, "reason": "a test" });
        app.adjust(SUBJECT, body, None).await.is(201);
        assert_eq!(used_now(&app).await, [4, month], "{units}");
    }
    // The hold lapses.
    clock.advance(TimeDelta::minutes(2));
    assert_eq!(used_now(&app).await, [4, 4]);
    granted(&app, 1).await;
    assert_eq!(used_now(&app).await, [5, 5]);
    let report = app.ask("POST /v1/reconciliations", json!({})).await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

/// After a change of the zone, no line has the window: the store sums it from the reset on, also if
/// the reset is in a window that ended.
async fn a_sum_over_another_window_begins_at_the_reset(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 9, "per": "day" }, { "max": 90, "per": "month" }]);
    let in_zone = async |zone: &str, limits: &Value| {
        replace(&app, json!({ "time_zone": zone, "limits": limits })).await;
    };
    in_zone("GMT+8", &limits).await;
    let grant = granted(&app, 3).await;
    clock.advance(TimeDelta::hours(1));
    reset(&app, Some("day")).await;
    granted(&app, 1).await;
    // The next day in GMT+8, and the same day in UTC.
    clock.set(instant("2026-11-21T17:00:00Z"));
    granted(&app, 1).await;
    assert_eq!(used_now(&app).await, [1, 5]);
    in_zone("UTC", &limits).await;
    assert_eq!(used_now(&app).await, [2, 5]);
    app.reverse(&grant, "too late").await.is(201);
    assert_eq!(used_now(&app).await, [2, 2]);
    granted(&app, 1).await;
    assert_eq!(used_now(&app).await, [3, 3]);
    // A reset of all limits counts for a limit that the policy gets later.
    clock.advance(TimeDelta::hours(1));
    reset(&app, None).await;
    granted(&app, 2).await;
    let week = json!([{ "max": 90, "per": "week" }, { "max": 9, "per": "day" }]);
    in_zone("America/New_York", &week).await;
    assert_eq!(used_now(&app).await, [2, 2]);
    let report = app.ask("POST /v1/reconciliations", json!({})).await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

async fn every_kind_of_limit_begins_again(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([
        { "max": 4, "per": "day" },
        { "max": 4, "per": "ever" },
        { "max": 4, "per": "20h", "kind": "from_first_claim" },
        { "max": 4, "per": "21h", "kind": "sliding" },
        { "max": 4, "per": "24h", "kind": "sliding", "step": "1h" },
        { "max": 4, "per": "22h", "kind": "rate" },
    ]);
    put(&app, limits.clone()).await;
    let grant = granted(&app, 4).await;
    let count = limits.as_array().expect("limits").len();
    for (place, limit) in limits.as_array().expect("limits").iter().enumerate() {
        clock.advance(TimeDelta::seconds(1));
        problem(&app.claim(SUBJECT, None).await, 429, "quota-exceeded");
        reset(&app, limit["per"].as_str()).await;
        let told = used_now(&app).await;
        let expected = (0..count).map(|other| if other > place { 4 } else { 0 });
        assert_eq!(told, expected.collect::<Vec<u64>>(), "{limit}");
    }
    granted(&app, 3).await;
    app.reverse(&grant, "too late").await.is(201);
    assert_eq!(used_now(&app).await, [3; 6]);
    let report = app.ask("POST /v1/reconciliations", json!({})).await;
    assert_eq!(report.is(201)["difference_count"], 0);
}

async fn a_retry_resets_nothing_twice(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    day_and_month(&app).await;
    let claim = json!({ "subject": SUBJECT, "units": 2 });
    let grant = app.claim_body(claim.clone(), Some("order-1")).await;
    let first = app.reset(SUBJECT, Some("day"), Some("ticket-1")).await;
    first.is(201);
    granted(&app, 1).await;
    let again = app.reset(SUBJECT, Some("day"), Some("ticket-1")).await;
    assert_eq!(again.is(200), first.json());
    assert_eq!(again.header("Idempotent-Replayed"), Some("true"));
    assert_eq!(used_now(&app).await, [1, 3]);
    // Another reset, an adjustment and a claim cannot have its key, nor a reset theirs.
    let reused = |answer: &Answer| problem(answer, 422, "idempotency-key-reused");
    reused(&app.reset(SUBJECT, None, Some("ticket-1")).await);
    reused(&app.reset("member-7", Some("day"), Some("ticket-1")).await);
    reused(&app.reset(SUBJECT, None, Some("order-1")).await);
    reused(&app.claim(SUBJECT, Some("ticket-1")).await);
    let body = json!({ "units": 1, "reason": "a test" });
    reused(&app.adjust(SUBJECT, body, Some("ticket-1")).await);
    // A retry of the grant from before the reset gets the grant.
    let retried = app.claim_body(claim, Some("order-1")).await;
    assert_eq!(retried.is(200)["grant"], grant.json()["grant"]);
    // Also under an archived policy.
    app.ask("DELETE /v1/policies/benefit?reason=x", Value::Null)
        .await
        .is(200);
    let again = app.reset(SUBJECT, Some("day"), Some("ticket-1")).await;
    assert_eq!(again.is(200), first.json());
    for key in [None, Some("ticket-2")] {
        problem(&app.reset(SUBJECT, None, key).await, 404, "unknown-policy");
    }
}

async fn a_reset_needs_something_to_reset(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    day_and_month(&app).await;
    let nothing = |answer: &Answer| problem(answer, 409, "nothing-used");
    nothing(&app.reset("never-seen", None, None).await);
    let usage = app.get("/v1/policies/benefit/subjects/never-seen").await;
    assert_eq!(usage.at("/has_entries"), false);
    let grant = granted(&app, 1).await;
    app.reverse(&grant, "a test").await.is(201);
    nothing(&app.reset(SUBJECT, None, None).await);
    granted(&app, 1).await;
    reset(&app, Some("day")).await;
    nothing(&app.reset(SUBJECT, Some("day"), None).await);
    clock.advance(TimeDelta::days(1));
    nothing(&app.reset(SUBJECT, Some("day"), None).await);
    reset(&app, None).await;
    // What cannot be a reset.
    let post = format!("POST {ACCOUNT}/resets");
    for (body, places) in [
        (json!({ "per": "hour", "reason": "x" }), vec!["#/per"]),
        (
            json!({ "per": "daily", "reason": " " }),
            vec!["#/per", "#/reason"],
        ),
    ] {
        assert_eq!(invalid_places(&app.ask(&post, body).await), places);
    }
    let told = app.reset(SUBJECT, Some("hour"), None).await;
    assert!(told.text.contains("write one of: day, month"), "{told:?}");
    for body in [
        json!({ "per": "day" }),
        json!({ "reason": "x", "limit": "day" }),
        json!({ "reason": "x", "per": ["day"] }),
    ] {
        problem(&app.ask(&post, body).await, 400, "malformed");
    }
    let unknown = post.replace("benefit", "nothing");
    let answer = app.ask(&unknown, json!({ "reason": "x" })).await;
    problem(&answer, 404, "unknown-policy");
    // A key for support has bounds, which a reset has not.
    for role in ["support", "claim", "audit"] {
        let key = make_role(&app, role, None).await.secret;
        let answer = app.ask_as(&key, &post, json!({ "reason": "x" })).await;
        problem(&answer, 403, "forbidden");
    }
}

/// Redis decides the claims. What it granted before the reset counts before it, also if it was not
/// recorded yet.
async fn a_counted_limit_begins_again(stack: Stack) {
    let app = App::on(stack).await;
    let limits = json!([{ "max": 3, "per": "day" }, { "max": 30, "per": "month" }]);
    let rule = json!({ "time_zone": "GMT+8", "limits": limits, "durability": "counted" });
    replace(&app, rule).await;
    for round in 1..4 {
        for _ in 0..3 {
            let grant = app.claim(SUBJECT, None).await;
            assert_eq!(grant.is(201)["grant"]["provisional"], true);
        }
        problem(&app.claim(SUBJECT, None).await, 429, "quota-exceeded");
        let entry = reset(&app, Some("day")).await;
        assert_eq!(entry["limits"][0]["used"], 0);
        assert_eq!(used_now(&app).await, [0, 3 * round]);
    }
    granted(&app, 3).await;
    problem(&app.claim(SUBJECT, None).await, 429, "quota-exceeded");
    assert_eq!(used_now(&app).await, [3, 12]);
    let over = items(&app.get("/v1/grants?over=true").await);
    assert!(over.is_empty(), "{over:?}");
    let report = app.ask("POST /v1/reconciliations", json!({})).await;
    assert_eq!(report.is(201)["difference_count"], 0);
}
