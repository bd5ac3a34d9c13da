//! Bodies that are refused. Each answer names the place and says what is wrong.

use serde_json::{Value, json};

use crate::http::{invalid_parts, malformed, with_member};
use crate::support::app::{App, NOON, Stack, instant};

/// The largest integer of the API: 2^53 − 1.
const MOST: u64 = 9_007_199_254_740_991;

/// The member that is set in a good body (empty: the value is the whole body), the value, the
/// places in the answer in the order of their names (empty: the body cannot be read), and words of
/// the answer.
type Row<'a> = (&'a str, Value, &'a str, &'a str);

async fn refuses(app: &App, line: &str, good: &Value, rows: &[Row<'_>]) {
    for (member, value, places, words) in rows {
        let body = match *member {
            "" => value.clone(),
            member => with_member(good, member, value.clone()),
        };
        let answer = app.ask(line, body).await;
        if places.is_empty() {
            malformed(&answer, words);
            continue;
        }
        let mut parts = invalid_parts(&answer);
        parts.sort();
        let found: Vec<&str> = parts.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(found.join(" "), *places, "{line}: {member}");
        let is_told = parts.iter().any(|(_, detail)| detail.contains(words));
        assert!(is_told, "{line}: {words}: {parts:?}");
    }
}

fn limits(max: impl Into<Value>, per: &str) -> Value {
    json!([{ "max": max.into(), "per": per }])
}

fn day(max: impl Into<Value>) -> Value {
    limits(max, "day")
}

fn long() -> Value {
    json!("x".repeat(1001))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies() {
    let app = App::on(Stack::Sqlite).await;
    let good = json!({ "time_zone": "UTC", "limits": day(1) });
    let twice = json!([{ "max": 1, "per": "day" }, { "max": 2, "per": "day" }]);
    let faults = json!({
        "time_zone": "Asia/Shangai",
        "limits": [{ "max": 0, "per": "day" }, { "max": 1, "per": "eon" }],
        "day_starts_at": "noon",
        "active_from": "2026-01-02T00:00:00Z",
        "active_until": "2026-01-02T00:00:00Z",
        "durability": "counting",
    });
    let all =
        "#/active_until #/day_starts_at #/durability #/limits/0/max #/limits/1/per #/time_zone";
    #[rustfmt::skip]
    let rows = [
        ("", faults, all, "Asia/Shanghai"),
        ("time_zone", json!("Asia/Shangai"), "#/time_zone", "Asia/Shanghai"),
        ("time_zone", json!("Berlin, Europe"), "#/time_zone", "Europe/Paris"),
        ("time_zone", json!("Berln"), "#/time_zone", "Europe/Berlin"),
        ("time_zone", json!("GMT+25"), "#/time_zone", "range"),
        ("time_zone", json!("+08:0x"), "#/time_zone", "the offset"),
        ("time_zone", json!("\0"), "#/time_zone", "IANA"),
        ("time_zone", json!("../../etc/passwd"), "#/time_zone", "IANA"),
        ("time_zone", json!("x".repeat(5000)), "#/time_zone", "IANA"),
        ("limits", json!([]), "#/limits", "at least one"),
        ("limits", day(0), "#/limits/0/max", "from 1 to"),
        ("limits", day(MOST + 1), "#/limits/0/max", "9007199254740991"),
        ("limits", day(1e300), "#/limits/0/max", "from 1 to"),
        ("limits", day(-1e300), "#/limits/0/max", "from 1 to"),
        ("limits", limits(1, "Day"), "#/limits/0/per", "minute, hour"),
        ("limits", twice, "#/limits/1/per", "already"),
        ("description", long(), "#/description", "1000"),
        ("description", json!("a\0b"), "#/description", "U+0000"),
        ("reason", long(), "#/reason", "1000"),
        ("reason", json!("a\0b"), "#/reason", "U+0000"),
        ("day_starts_at", json!("24:00"), "#/day_starts_at", "HH:MM"),
        ("week_starts_on", json!("Monday"), "#/week_starts_on", "monday"),
        ("active_from", json!("tomorrow"), "#/active_from", "RFC 3339"),
        ("active_from", json!("2026-11-21T00:00:00"), "#/active_from", "RFC 3339"),
        ("active_until", json!("2026-02-30T00:00:00Z"), "#/active_until", "RFC 3339"),
        ("mode", json!("watch"), "#/mode", "enforce or observe"),
        ("mode", json!(""), "#/mode", "enforce"),
        ("durability", json!("counted"), "#/durability", "REDIS_URL"),
        ("durability", json!("count"), "#/durability", "counted"),
        ("on_ledger_outage", json!("count"), "#/on_ledger_outage", "REDIS_URL"),
    ];
    refuses(&app, "PUT /v1/policies/benefit", &good, &rows).await;
    assert_eq!(app.get("/v1/policies/benefit").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_with_unknown_members_or_other_types() {
    let app = App::on(Stack::Sqlite).await;
    let good = json!({ "time_zone": "UTC", "limits": day(1) });
    #[rustfmt::skip]
    let rows = [
        ("timezone", json!("UTC"), "", "timezone"),
        ("time_zone", json!(8), "", "time_zone"),
        ("time_zone", Value::Null, "", "time_zone"),
        ("limits", json!({}), "", "limits"),
        ("limits", json!([3]), "", "limits[0]"),
        ("limits", json!([[3, "day"]]), "", "limits[0]"),
        ("limits", json!([{ "max": 3 }]), "", "per"),
        ("limits", json!([{ "per": "day" }]), "", "max"),
        ("limits", json!([{ "mx": 3, "per": "day" }]), "", "the nearest known name is max;"),
        ("limits", day("3"), "", "limits[0].max"),
        ("limits", day(3.5), "", "limits[0].max"),
        ("limits", json!([{ "max": 3, "per": 1 }]), "", "limits[0].per"),
        ("limits", json!([{ "max": 3, "per": "day", "carry_over": 1 }]), "", "carry_over"),
        ("description", json!(1), "", "description"),
        ("day_starts_at", json!(6), "", "day_starts_at"),
        ("week_starts_on", json!(1), "", "week_starts_on"),
        ("active_from", json!(0), "", "active_from"),
        ("active_until", json!({}), "", "active_until"),
        ("paused", json!("no"), "", "paused"),
        ("mode", json!(1), "", "mode"),
        ("durability", json!(1), "", "durability"),
        ("on_ledger_outage", json!(1), "", "on_ledger_outage"),
        ("reason", json!(1), "", "reason"),
    ];
    refuses(&app, "PUT /v1/policies/benefit", &good, &rows).await;
    assert_eq!(app.get("/v1/policies/benefit").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let deep = (0..32).fold(json!(1), |inner, _| json!({ "a": inner }));
    let faults = json!({ "subject": "", "units": 0, "hold_seconds": 0, "metadata": { "": "\0" } });
    #[rustfmt::skip]
    let rows = [
        ("", faults, "#/hold_seconds #/metadata #/subject #/units", "1 to 256"),
        ("subject", json!("x".repeat(257)), "#/subject", "257"),
        ("subject", json!("é".repeat(129)), "#/subject", "258"),
        ("subject", json!("a\nb"), "#/subject", "U+000A"),
        ("subject", json!("\0"), "#/subject", "U+0000"),
        ("subject", json!("\u{7f}"), "#/subject", "U+007F"),
        ("subject", json!("\u{85}"), "#/subject", "U+0085"),
        ("units", json!(0), "#/units", "from 1"),
        ("units", json!(-1), "#/units", "from 1"),
        ("units", json!(MOST + 1), "#/units", "9007199254740991"),
        ("units", json!(1e300), "#/units", "from 1"),
        ("units", json!(4), "#/units", "at most 3 fit per day"),
        ("hold_seconds", json!(0), "#/hold_seconds", "2592000"),
        ("hold_seconds", json!(-1), "#/hold_seconds", "2592000"),
        ("hold_seconds", json!(2_592_001), "#/hold_seconds", "2592000"),
        ("metadata", json!({ "a": "x".repeat(4096 - 7) }), "#/metadata", "4096"),
        ("metadata", deep, "#/metadata", "32"),
        ("metadata", json!({ "a": "\0" }), "#/metadata", "U+0000"),
        ("metadata", json!({ "a": [{ "\0": 1 }] }), "#/metadata", "U+0000"),
        ("", json!({}), "", "subject"),
        ("subject", json!(42), "", "subject"),
        ("subject", Value::Null, "", "subject"),
        ("units", json!("1"), "", "units"),
        ("units", json!(1.5), "", "units"),
        ("hold_seconds", json!("60"), "", "hold_seconds"),
        ("dry_run", json!("true"), "", "dry_run"),
        ("metadata", json!([]), "", "metadata"),
        ("idempotency_key", json!("a"), "", "idempotency_key"),
        ("unit", json!(1), "", "the nearest known name is units;"),
    ];
    let line = "POST /v1/policies/benefit/claims";
    for dry_run in [false, true] {
        let good = json!({ "subject": "a", "dry_run": dry_run });
        refuses(&app, line, &good, &rows).await;
    }
    let body = json!({ "subject": "a", "units": null, "hold_seconds": null, "metadata": null });
    app.ask(line, body).await.is(201);
    let grants = app.get("/v1/grants").await.at("/items");
    assert_eq!(grants.as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let good = json!({ "limits": day(1), "reason": "vip" });
    let and = |per: &str| json!([{ "max": 1, "per": "day" }, { "max": 2, "per": per }]);
    #[rustfmt::skip]
    let rows = [
        ("limits", json!([]), "#/limits", "at least one"),
        ("limits", day(-1), "#/limits/0/max", "from 1 to"),
        ("limits", day(0), "#/limits/0/max", "PUT /v1/policies/{policy}/blocks/{subject}"),
        ("limits", day(MOST + 1), "#/limits/0/max", "9007199254740991"),
        ("limits", day(1e300), "#/limits/0/max", "from 1 to"),
        ("limits", limits(1, "eon"), "#/limits/0/per", "eon"),
        ("limits", limits(1, "month"), "#/limits/0/per", "no limit per month"),
        ("limits", and("day"), "#/limits/1/per", "already"),
        ("limits", and("week"), "#/limits/1/per", "no limit per week"),
        ("until", json!(NOON), "#/until", "passed"),
        ("until", json!("2020-01-01T00:00:00Z"), "#/until", "passed"),
        ("until", json!("tomorrow"), "#/until", "RFC 3339"),
        ("reason", long(), "#/reason", "1000"),
        ("reason", json!("\0"), "#/reason", "U+0000"),
        ("limit", json!([]), "", "the nearest known name is limits;"),
        ("limits", day(1.5), "", "limits[0].max"),
        ("until", json!(1), "", "until"),
    ];
    refuses(&app, "PUT /v1/policies/benefit/overrides/a", &good, &rows).await;
    let list = app.get("/v1/policies/benefit/overrides").await;
    assert_eq!(list.at("/items"), json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let rule = json!({ "time_zone": "UTC", "limits": day(1) });
    for name in ["other", "archived"] {
        app.put_policy(name, rule.clone()).await.is(201);
    }
    let archive = "DELETE /v1/policies/archived?reason=over";
    app.ask(archive, Value::Null).await.is(200);
    let many: Vec<String> = (0..101).map(|index| format!("p{index}")).collect();
    let good = json!({ "name": "a", "role": "claim" });
    let faults = json!({ "name": "", "role": "", "policies": [] });
    let admin = json!({ "name": "a", "role": "admin", "policies": ["other"] });
    #[rustfmt::skip]
    let rows = [
        ("", faults, "#/name #/policies #/role", ""),
        ("", admin, "#/policies", "an admin key cannot be limited"),
        ("name", json!("x".repeat(101)), "#/name", ""),
        ("name", json!("a\nb"), "#/name", ""),
        ("name", json!("a\u{0}"), "#/name", ""),
        ("role", json!("Admin"), "#/role", ""),
        ("policies", json!(many), "#/policies", ""),
        ("policies", json!(["other", "other"]), "#/policies/1", "names this policy twice"),
        ("policies", json!(["A", "-"]), "#/policies/0 #/policies/1", "the policy name is invalid"),
        ("policies", json!(["other", "archived", "x"]), "#/policies/1 #/policies/2", "no policy"),
        ("ends_at", json!("tomorrow"), "#/ends_at", "RFC 3339"),
        ("ends_at", json!(NOON), "#/ends_at", "is not in the future"),
        ("ends_at", json!("2020-01-01T00:00:00Z"), "#/ends_at", "is not in the future"),
        ("reason", json!("\u{0}"), "#/reason", "U+0000"),
        ("reason", long(), "#/reason", "1000"),
        ("", json!({ "name": "a" }), "", "role"),
        ("policies", json!("other"), "", "policies"),
        ("policies", json!([null]), "", "policies"),
        ("secret", json!("perdiem_mine"), "", "secret"),
    ];
    refuses(&app, "POST /v1/keys", &good, &rows).await;
    assert_eq!(app.get("/v1/keys").await.at("/items"), json!([]));

    let id = app.ask("POST /v1/keys", good).await.is(201)["id"].clone();
    let path = format!("/v1/keys/{}", id.as_str().expect("an id"));
    let good = json!({ "ends_at": "2027-01-01T00:00:00Z", "reason": "x" });
    let faults = json!({ "ends_at": "", "reason": "\u{0}" });
    #[rustfmt::skip]
    let rows = [
        ("", faults, "#/ends_at #/reason", "U+0000"),
        ("ends_at", json!("2020-01-01T00:00:00Z"), "#/ends_at", "is not in the future"),
        ("ends_at", json!(NOON), "#/ends_at", "is not in the future"),
        ("reason", Value::Null, "#/reason", "the reason is missing"),
        ("", json!({ "reason": "x" }), "", "ends_at"),
        ("role", json!("admin"), "", "role"),
    ];
    refuses(&app, &format!("PATCH {path}"), &good, &rows).await;
    let unchanged = app.get(&path).await.is(200);
    assert_eq!(unchanged["version"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrections() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let tomorrow = instant(NOON) + chrono::TimeDelta::days(1);
    let good = json!({ "units": 1, "reason": "x" });
    #[rustfmt::skip]
    let rows = [
        ("units", json!(0), "#/units", "but not 0"),
        ("units", json!(MOST + 1), "#/units", "but not 0"),
        ("units", json!(-1), "#/units", "only 0 are used"),
        ("reason", json!(" "), "#/reason", "say why"),
        ("at", json!(tomorrow), "#/at", "not in the future"),
        ("at", json!("yesterday"), "#/at", "RFC 3339"),
        ("", json!({ "units": 1 }), "", "reason"),
    ];
    let account = "/v1/policies/benefit/subjects/a";
    refuses(&app, &format!("POST {account}/adjustments"), &good, &rows).await;
    #[rustfmt::skip]
    let rows = [
        ("per", json!("daily"), "#/per", "no limit is per"),
        ("per", json!("hour"), "#/per", "write one of: day"),
        ("reason", json!(" "), "#/reason", "say why"),
        ("", json!({ "per": "day" }), "", "reason"),
        ("", json!({ "reason": "x", "units": 1 }), "", "units"),
    ];
    let reset = json!({ "per": "day", "reason": "x" });
    refuses(&app, &format!("POST {account}/resets"), &reset, &rows).await;
    let grant = app.claim("a", None).await.grant_id();
    #[rustfmt::skip]
    let rows = [
        ("reason", json!(""), "#/reason", "say why"),
        ("reason", long(), "#/reason", "1000"),
        ("units", json!(1), "Idempotency-Key", "write an Idempotency-Key"),
        ("units", json!(0), "#/units", "from 1 to"),
        ("", json!({}), "", "reason"),
        ("", json!([]), "", ""),
    ];
    let good = json!({ "reason": "x" });
    refuses(
        &app,
        &format!("POST /v1/grants/{grant}/reversal"),
        &good,
        &rows,
    )
    .await;
    let rows = [("", good.clone(), "", "reason")];
    refuses(
        &app,
        &format!("POST /v1/grants/{grant}/confirmation"),
        &good,
        &rows,
    )
    .await;
    let entries = app.get(&format!("{account}/entries")).await;
    assert_eq!(entries.at("/items").as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backtests_and_reconciliations() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let draft = json!({ "time_zone": "GMT+8", "limits": day(3) });
    let good = json!({ "policy": draft, "from": "2026-11-20", "to": "2026-11-21" });
    let wrong = json!({
        "time_zone": "Asia/Shangai", "limits": limits(0, "fortnight"), "active_from": "soon",
        "durability": "counted",
    });
    let faults = json!({ "policy": wrong, "from": "20. 11.", "to": "2026-02-30" });
    let all = "#/from #/policy/active_from #/policy/limits/0/max #/policy/limits/0/per \
               #/policy/time_zone #/to";
    let counted = with_member(&draft, "durability", json!("counted"));
    let span = |from: &str, to: &str| json!({ "policy": draft, "from": from, "to": to });
    #[rustfmt::skip]
    let rows = [
        ("", faults, all, "Asia/Shanghai"),
        ("policy", counted, "#/policy/durability", "REDIS_URL"),
        ("to", json!("2026-11-20"), "#/to", "is not after from"),
        ("to", json!("2026-11-19"), "#/to", "is not after from"),
        ("", span("2026-01-01", "2027-02-06"), "#/to", "at most 400 days"),
        ("", span("0000-01-01", "9999-12-31"), "#/to", "at most 400 days"),
        ("", json!({}), "", ""),
        ("", json!({ "policy": draft, "from": "2026-11-20" }), "", "to"),
        ("policy", json!([]), "", "policy"),
        ("policy", json!({ "time_zone": "UTC", "limit": [] }), "", "limit"),
        ("from", json!(20_261_120), "", "from"),
        ("limits", json!([]), "", "limits"),
    ];
    refuses(&app, "POST /v1/policies/benefit/backtest", &good, &rows).await;
    let rows = [
        ("apply", json!(1), "", "apply"),
        ("apply", json!("true"), "", "apply"),
        ("apply", Value::Null, "", "apply"),
        ("aply", json!(true), "", "the nearest known name is apply;"),
    ];
    refuses(&app, "POST /v1/reconciliations", &json!({}), &rows).await;
    let list = app.get("/v1/reconciliations").await.is(200);
    assert_eq!(list, json!({ "items": [], "next_cursor": null }));
}
