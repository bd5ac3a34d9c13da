//! Totals: limits that all subjects of a policy share.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use futures_util::future::join_all;
use perdiem::engine::EngineOptions;
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{invalid_places, problem, replace};
use crate::reconciliation::{kinds, reconcile};
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant, on_every_way};
use crate::support::desk::on_every_store;

on_every_way!(
    the_first_of_each_day_are_granted,
    a_crowd_gets_exactly_the_total
);
on_every_store!(
    what_returns_comes_back_to_all,
    both_limits_or_none,
    a_batch_shares_the_total,
    a_dry_run_and_a_policy_that_observes_tell_it,
    a_total_without_an_end_never_resets,
    a_total_begins_with_its_version,
    a_pause_keeps_what_was_counted,
    the_calendar_of_a_total_stays,
    the_faults_of_totals_are_told,
    a_retry_is_no_second_grant_of_the_total,
    a_backtest_knows_the_total,
    a_forecast_knows_what_the_subject_has_then,
    an_explanation_knows_the_total_of_then,
    a_reconciliation_sums_the_total_again,
);

const TOTAL: &str = "/v1/policies/benefit/total";

async fn with_total(app: &App, total: Value) -> Answer {
    let limits = json!([{ "max": 5, "per": "day" }]);
    replace(app, json!({ "limits": limits, "total": total })).await
}

/// What is used of each limit that all subjects share.
async fn used(app: &App) -> Vec<u64> {
    let body = app.get(TOTAL).await.json();
    let limits = body["total"].as_array().expect("a list").iter();
    limits
        .map(|limit| limit["used"].as_u64().expect("a number"))
        .collect()
}

async fn claim_units(app: &App, subject: &str, units: u64) -> Answer {
    let body = json!({ "subject": subject, "units": units });
    app.claim_body(body, None).await
}

async fn the_first_of_each_day_are_granted(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let put = with_total(&app, json!([{ "max": 3, "per": "day" }])).await;
    assert_eq!(put.json()["total"], json!([{ "max": 3, "per": "day" }]));
    for subject in ["ann", "bob", "cid"] {
        app.claim(subject, None).await.is(201);
    }
    let denied = app.claim("dora", None).await;
    let body = problem(&denied, 429, "quota-exceeded");
    assert_eq!(body["violated-policies"], json!(["total day"]));
    assert_eq!(body["total"][0]["used"], 3);
    assert_eq!(body["total"][0]["remaining"], 0);
    assert_eq!(body["limits"][0]["used"], 0);
    // The next day begins at midnight in Shanghai.
    let midnight = "2026-11-21T16:00:00Z";
    assert_eq!(body["fits_at"], midnight);
    assert_eq!(body["total"][0]["resets_at"], midnight);
    let until = (instant(midnight) - instant(NOON)).num_seconds() + 1;
    assert_eq!(denied.header("retry-after"), Some(&*until.to_string()));
    let fields = [
        denied.header("ratelimit-policy"),
        denied.header("ratelimit"),
    ];
    let [policies, limits] = fields.map(|field| field.expect("a field").to_owned());
    assert!(
        policies.contains(r#""total day";q=3;w=86400"#),
        "{policies}"
    );
    assert!(
        limits.contains(&format!(r#""total day";r=0;t={until}"#)),
        "{limits}"
    );
    let told = body["detail"].as_str().unwrap();
    let expected =
        "all subjects together have used 3 of 3 for today under benefit; the next window begins at";
    assert!(told.starts_with(expected), "{told}");
    let total = app.get(TOTAL).await.json();
    assert_eq!(
        [
            &total["policy"],
            &total["time_zone"],
            &total["total"][0]["window_start"]
        ],
        ["benefit", "Asia/Shanghai", "2026-11-20T16:00:00Z"]
    );
    clock.set(instant(midnight));
    assert_eq!(used(&app).await, [0]);
    app.claim("dora", None).await.is(201);
    assert_eq!(used(&app).await, [1]);
}

/// Two instances, and more claims than units.
async fn a_crowd_gets_exactly_the_total(stack: Stack) {
    const MAX: usize = 40;
    let ground = Ground::new(stack);
    let apps = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => vec![App::start(&ground).await],
        Stack::Postgres | Stack::RedisAndPostgres => {
            vec![App::start(&ground).await, App::start(&ground).await]
        }
    };
    with_total(
        &apps[0],
        json!([{ "max": MAX, "per": "day" }, { "max": 900, "per": "ever" }]),
    )
    .await;
    let claim = async |number: usize| {
        // Some subjects claim twice, and every third claim has a key.
        let subject = format!("m-{}", number % 200);
        let key = format!("k-{number}");
        let key = (number.is_multiple_of(3)).then_some(&*key);
        let app = &apps[number % apps.len()];
        app.claim(&subject, key).await.status.as_u16()
    };
    let answers = join_all((0..300).map(claim)).await;
    let mut statuses: BTreeMap<u16, usize> = BTreeMap::new();
    answers
        .iter()
        .for_each(|status| *statuses.entry(*status).or_default() += 1);
    assert_eq!(statuses, BTreeMap::from([(201, MAX), (429, 300 - MAX)]));
    assert_eq!(used(&apps[0]).await, [MAX as u64, MAX as u64]);
    let granted = apps[0]
        .get("/v1/grants?policy=benefit&limit=1000")
        .await
        .json();
    assert_eq!(granted["items"].as_array().unwrap().len(), MAX);
}

async fn what_returns_comes_back_to_all(stack: Stack) {
    let clock = ManualClock::at(instant(NOON));
    let sweeps = |options: &mut EngineOptions| {
        options.clock = Clock::Manual(clock.clone());
        options.record_lapses_after = Some(TimeDelta::zero());
    };
    let app = App::start_with(&Ground::new(stack), sweeps).await;
    with_total(&app, json!([{ "max": 3, "per": "day" }])).await;
    let body = json!({ "subject": "ann", "units": 3 });
    let grant = app.claim_body(body, None).await.grant_id();
    app.claim("bob", None).await.is(429);
    app.reverse_units(&grant, 1, "a test", "part").await.is(201);
    assert_eq!(used(&app).await, [2]);
    app.claim("bob", None).await.is(201);
    app.claim("cid", None).await.is(429);
    app.reverse(&grant, "a test").await.is(201);
    assert_eq!(used(&app).await, [1]);
    // An adjustment moves what all have used. A reset of a subject does not: its units were given out.
    app.adjust("bob", json!({ "units": 1, "reason": "by hand" }), None)
        .await
        .is(201);
    assert_eq!(used(&app).await, [2]);
    app.reset("bob", None, None).await.is(201);
    assert_eq!(used(&app).await, [2]);
    // A hold counts until its lapse is recorded.
    let hold = json!({ "subject": "dora", "hold_seconds": 60 });
    app.claim_body(hold.clone(), None).await.is(201);
    app.claim("eve", None).await.is(429);
    clock.set(instant(NOON) + TimeDelta::seconds(61));
    eventually("the lapse is recorded", || async {
        used(&app).await == [2]
    })
    .await;
    let kept = app.claim_body(hold, None).await.grant_id();
    app.confirm(&kept).await.is(201);
    assert_eq!(used(&app).await, [3]);
    // A reversal on another day gives nothing back on that day.
    clock.set(instant("2026-11-21T16:00:00Z"));
    app.claim("eve", None).await.is(201);
    app.reverse(&kept, "a test").await.is(201);
    assert_eq!(used(&app).await, [1]);
}

async fn both_limits_or_none(stack: Stack) {
    let app = App::on(stack).await;
    with_total(&app, json!([{ "max": 7, "per": "day" }])).await;
    claim_units(&app, "ann", 4).await.is(201);
    // The subject's own limit: nothing of the total is taken.
    let denied = claim_units(&app, "ann", 2).await;
    let body = problem(&denied, 429, "quota-exceeded");
    assert_eq!(body["violated-policies"], json!(["day"]));
    assert_eq!(body.get("total"), None);
    assert_eq!(used(&app).await, [4]);
    // The total: nothing of the subject's own limit is taken.
    let denied = claim_units(&app, "bob", 4).await;
    let body = problem(&denied, 429, "quota-exceeded");
    assert_eq!(body["violated-policies"], json!(["total day"]));
    let told = body["detail"].as_str().unwrap();
    assert!(
        told.contains("4 of 7 for today under benefit, and bob asks for 4"),
        "{told}"
    );
    claim_units(&app, "bob", 3).await.is(201);
    assert_eq!(used(&app).await, [7]);
    // What can never fit is no denial.
    with_total(&app, json!([{ "max": 2, "per": "day" }])).await;
    let never = claim_units(&app, "cid", 3).await;
    assert_eq!(invalid_places(&never), ["#/units"]);
    let usage = app.get("/v1/policies/benefit/subjects/bob").await;
    assert_eq!(usage.at("/limits/0/used"), 3);
}

async fn a_batch_shares_the_total(stack: Stack) {
    let app = App::on(stack).await;
    with_total(&app, json!([{ "max": 3, "per": "day" }])).await;
    let batch = async |units: [u64; 2]| {
        let claims = ["ann", "bob"].into_iter().zip(units);
        let claims = claims.map(
            |(subject, units)| json!({ "policy": "benefit", "subject": subject, "units": units }),
        );
        let claims: Vec<Value> = claims.collect();
        let body = json!({ "claims": claims, "atomic": true });
        let request = app.request(Method::POST, "/v1/claims").json(&body);
        Answer::of(request).await.text
    };
    let denied = batch([2, 2]).await;
    assert!(denied.contains("quota-exceeded"), "{denied}");
    assert_eq!(used(&app).await, [0]);
    let granted = batch([1, 2]).await;
    assert_eq!(used(&app).await, [3], "{granted}");
}

async fn a_dry_run_and_a_policy_that_observes_tell_it(stack: Stack) {
    let app = App::on(stack).await;
    with_total(&app, json!([{ "max": 1, "per": "day" }])).await;
    let dry_run = json!({ "subject": "bob", "dry_run": true });
    let rehearsed = app.claim_body(dry_run.clone(), None).await;
    assert_eq!(rehearsed.is(200)["outcome"], "granted");
    app.claim("ann", None).await.is(201);
    let rehearsed = app.claim_body(dry_run, None).await;
    assert_eq!(rehearsed.is(200)["outcome"], "denied");
    assert_eq!(rehearsed.at("/total/0/used"), 1);
    let limits = json!([{ "max": 5, "per": "day" }]);
    let total = json!([{ "max": 2, "per": "day" }]);
    replace(
        &app,
        json!({ "limits": limits, "total": total, "mode": "observe" }),
    )
    .await;
    for (subject, would_deny) in [("bob", Value::Null), ("cid", true.into())] {
        let granted = app.claim(subject, None).await;
        assert_eq!(granted.is(201)["would_deny"], would_deny);
    }
    assert_eq!(used(&app).await, [3]);
}

async fn a_total_without_an_end_never_resets(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    with_total(&app, json!([{ "max": 2, "per": "ever" }])).await;
    app.claim("ann", None).await.is(201);
    clock.set(instant("2027-11-21T16:00:00Z"));
    app.claim("ann", None).await.is(201);
    let denied = app.claim("bob", None).await;
    let body = problem(&denied, 429, "quota-exceeded");
    assert_eq!(body["fits_at"], Value::Null);
    assert_eq!(denied.header("retry-after"), None);
    assert_eq!(body["total"][0]["resets_at"], Value::Null);
    // More can be given out at any time.
    with_total(&app, json!([{ "max": 3, "per": "ever" }])).await;
    app.claim("bob", None).await.is(201);
    app.claim("bob", None).await.is(429);
}

async fn a_total_begins_with_its_version(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let before = with_total(&app, json!([])).await;
    assert_eq!(before.json()["total"], json!([]));
    let early = app.claim("ann", None).await.grant_id();
    with_total(&app, json!([{ "max": 2, "per": "day" }])).await;
    // What was granted before it is not in it, and does not come back to it.
    assert_eq!(used(&app).await, [0]);
    app.claim("ann", None).await.is(201);
    app.reverse(&early, "a test").await.is(201);
    assert_eq!(used(&app).await, [1]);
    // Another max goes on counting, and another limit begins.
    let both = json!([{ "max": 3, "per": "day" }, { "max": 9, "per": "month" }]);
    with_total(&app, both).await;
    assert_eq!(used(&app).await, [1, 0]);
    app.claim("bob", None).await.is(201);
    assert_eq!(used(&app).await, [2, 1]);
    // A scheduled change that takes it out, and brings it back, begins again.
    for (total, effective) in [
        (json!([]), "2026-11-22T00:00:00Z"),
        (json!([{ "max": 3, "per": "day" }]), "2026-11-22T01:00:00Z"),
    ] {
        let limits = json!([{ "max": 5, "per": "day" }]);
        let change = json!({ "limits": limits, "total": total, "effective": effective });
        replace(&app, change).await;
    }
    clock.set(instant("2026-11-21T17:00:00Z"));
    app.claim("ann", None).await.is(201);
    assert_eq!(used(&app).await, [1, 2]);
    clock.set(instant("2026-11-22T00:30:00Z"));
    app.claim("ann", None).await.is(201);
    assert_eq!(used(&app).await, [] as [u64; 0]);
    clock.set(instant("2026-11-22T01:30:00Z"));
    assert_eq!(used(&app).await, [0]);
}

async fn a_pause_keeps_what_was_counted(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    with_total(&app, json!([])).await;
    let limits = json!([{ "max": 5, "per": "day" }]);
    let total = json!([{ "max": 2, "per": "day" }]);
    let change = json!({ "limits": limits, "total": total, "effective": "2026-11-21T05:00:00Z" });
    replace(&app, change).await;
    // The pause makes the scheduled version again. What it counts begins with the new one.
    app.pause(true).await.is(200);
    app.pause(false).await.is(200);
    let early = app.claim("ann", None).await.grant_id();
    clock.set(instant("2026-11-21T05:00:01Z"));
    app.claim("bob", None).await.is(201);
    app.reverse(&early, "a test").await.is(201);
    assert_eq!(used(&app).await, [1]);
    app.pause(true).await.is(200);
    app.pause(false).await.is(200);
    assert_eq!(used(&app).await, [1]);
    app.claim("cid", None).await.is(201);
    app.claim("dora", None).await.is(429);
    // The archive keeps it too.
    let path = "/v1/policies/benefit?reason=a+test";
    Answer::of(app.request(Method::DELETE, path)).await.is(200);
    assert_eq!(app.get(TOTAL).await.status, 404);
    with_total(&app, json!([{ "max": 2, "per": "day" }])).await;
    app.claim("dora", None).await.is(429);
}

async fn the_calendar_of_a_total_stays(stack: Stack) {
    let app = App::on(stack).await;
    with_total(&app, json!([{ "max": 3, "per": "day" }])).await;
    app.claim("ann", None).await.is(201);
    let change = |zone: &str, total: Value| {
        json!({
            "time_zone": zone, "limits": [{ "max": 5, "per": "day" }], "total": total,
            "day_starts_at": "06:00", "reason": "a test",
        })
    };
    let day = json!([{ "max": 3, "per": "day" }]);
    let refused = app.put_policy("benefit", change("UTC", day)).await;
    assert_eq!(invalid_places(&refused), ["#/time_zone", "#/day_starts_at"]);
    // Without the total the calendar can change, and a total without an end has none.
    let ever = json!([{ "max": 3, "per": "ever" }]);
    app.put_policy("benefit", change("UTC", ever.clone()))
        .await
        .is(200);
    app.claim("ann", None).await.is(201);
    app.put_policy("benefit", change("Asia/Tokyo", ever))
        .await
        .is(200);
    assert_eq!(used(&app).await, [1]);
}

async fn the_faults_of_totals_are_told(stack: Stack) {
    let app = App::on(stack).await;
    let put = async |total: Value| {
        let body = json!({
            "time_zone": "UTC", "limits": [{ "max": 5, "per": "day" }], "total": total,
        });
        invalid_places(&app.put_policy("other", body).await)
    };
    let sliding = json!([{ "max": 3, "per": "24h", "kind": "sliding" }]);
    assert_eq!(put(sliding).await, ["#/total/0/kind"]);
    let twice = json!([{ "max": 3, "per": "1d", "kind": "rate" }, { "max": 0, "per": "day" }]);
    assert_eq!(put(twice).await, ["#/total/0/kind", "#/total/1/max"]);
    let twice = json!([{ "max": 3, "per": "day" }, { "max": 4, "per": "day" }]);
    assert_eq!(put(twice).await, ["#/total/1/per"]);
    let eleven: Vec<Value> = (1..=11)
        .map(|hour| json!({ "max": 1, "per": format!("{hour}h") }))
        .collect();
    assert!(put(json!(eleven)).await.contains(&"#/total".to_owned()));
    assert_eq!(app.get("/v1/policies/other/total").await.status, 404);
    let weeks = json!([
        { "max": 9, "per": "2 weeks", "from": "2026-11-02" },
        { "max": 3, "per": "6h", "kind": "calendar" },
    ]);
    with_total(&app, weeks.clone()).await;
    let policy = app.get("/v1/policies/benefit").await.json();
    assert_eq!(policy["total"], weeks);
    app.claim("ann", None).await.is(201);
    assert_eq!(used(&app).await, [1, 1]);
}

async fn a_retry_is_no_second_grant_of_the_total(stack: Stack) {
    let app = App::on(stack).await;
    with_total(&app, json!([{ "max": 1, "per": "day" }])).await;
    app.claim("ann", Some("one")).await.is(201);
    app.claim("bob", Some("two")).await.is(429);
    app.claim("ann", Some("one")).await.is(200);
    assert_eq!(used(&app).await, [1]);
}

async fn a_backtest_knows_the_total(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    with_total(&app, json!([])).await;
    for subject in ["ann", "bob", "cid", "dora"] {
        app.claim(subject, None).await.is(201);
    }
    clock.advance(TimeDelta::seconds(1));
    let first = app.claim("ann", None).await.grant_id();
    clock.advance(TimeDelta::seconds(1));
    app.reverse(&first, "a test").await.is(201);
    clock.advance(TimeDelta::seconds(1));
    app.claim("eve", None).await.is(201);
    clock.set(instant("2026-11-22T03:00:00Z"));
    let try_on = async |total: Value| {
        let policy = json!({
            "time_zone": "Asia/Shanghai", "limits": [{ "max": 5, "per": "day" }], "total": total,
        });
        let body = json!({ "policy": policy, "from": "2026-11-21", "to": "2026-11-22" });
        let answer = app
            .ask("POST /v1/policies/benefit/backtest", body)
            .await
            .is(200);
        answer["total"]["denied_grants"].as_u64().expect("a number")
    };
    assert_eq!(try_on(json!([])).await, 0);
    // The fifth grant is given back, so the sixth one fits again.
    assert_eq!(try_on(json!([{ "max": 5, "per": "day" }])).await, 0);
    // The fifth one is denied, and the sixth one too.
    assert_eq!(try_on(json!([{ "max": 4, "per": "day" }])).await, 2);
    assert_eq!(try_on(json!([{ "max": 2, "per": "ever" }])).await, 4);
}

/// A top-up that ends before the total's next window fills no room then.
async fn a_forecast_knows_what_the_subject_has_then(stack: Stack) {
    let (app, _) = App::with_clock(stack).await;
    let limits = json!([{ "max": 3, "per": "day" }]);
    let total = json!([{ "max": 6, "per": "day" }]);
    replace(&app, json!({ "limits": limits, "total": total })).await;
    for subject in ["ann", "bob"] {
        claim_units(&app, subject, 2).await.is(201);
    }
    let until = instant(NOON) + TimeDelta::hours(1);
    let path = "/v1/policies/benefit/subjects/cid/top-ups";
    let top_up = json!({ "units": 2, "until": until, "reason": "a test" });
    app.ask(&format!("POST {path}"), top_up).await.is(201);
    // The total has room for 2 today, and the subject for 5 until the top-up ends.
    for (units, fits_at) in [(4, json!(null)), (3, json!("2026-11-21T16:00:00Z"))] {
        let denied = claim_units(&app, "cid", units).await;
        let body = problem(&denied, 429, "quota-exceeded");
        assert_eq!(body["violated-policies"], json!(["total day"]));
        assert_eq!(body["fits_at"], fits_at, "{units}");
        let path = format!("/v1/policies/benefit/subjects/cid?at={NOON}&units={units}");
        let explained = app.get(&path).await.is(200);
        assert_eq!(explained["lacking"], json!(["total day"]));
        assert_eq!(explained["fits_at"], fits_at, "{units}");
    }
}

async fn an_explanation_knows_the_total_of_then(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    with_total(
        &app,
        json!([{ "max": 2, "per": "day" }, { "max": 9, "per": "ever" }]),
    )
    .await;
    let early = app.claim("ann", None).await.is(201);
    clock.advance(TimeDelta::seconds(10));
    let grant = app.claim("bob", None).await.grant_id();
    clock.advance(TimeDelta::seconds(10));
    app.claim("cid", None).await.is(429);
    app.reverse(&grant, "a test").await.is(201);
    clock.advance(TimeDelta::seconds(10));
    let explain = async |at: &str| {
        let path = format!("/v1/policies/benefit/subjects/cid?at={at}");
        app.get(&path).await.is(200)
    };
    assert_eq!(early["outcome"], "granted");
    let before = explain("2026-11-21T03:04:10Z").await;
    assert_eq!(
        [&before["outcome"], &before["total"][0]["used"]],
        [&json!("granted"), &json!(1)]
    );
    let full = explain("2026-11-21T03:04:20Z").await;
    assert_eq!([&full["outcome"], &full["reason"]], ["denied", "no_room"]);
    assert_eq!(
        full["detail"],
        "there was no room for 1 more: 2 of 2 per day by all were used"
    );
    assert_eq!(full["fits_at"], "2026-11-21T16:00:00Z");
    assert_eq!(full["total"][1]["used"], 2);
    let after = app
        .get("/v1/policies/benefit/subjects/cid?units=1")
        .await
        .is(200);
    assert_eq!(
        [&after["outcome"], &after["total"][0]["used"]],
        [&json!("granted"), &json!(1)]
    );
}

async fn a_reconciliation_sums_the_total_again(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    with_total(&app, json!([])).await;
    let early = app.claim("ann", None).await.grant_id();
    with_total(&app, json!([{ "max": 9, "per": "ever" }])).await;
    let grant = claim_units(&app, "ann", 3).await.grant_id();
    app.reverse(&early, "a test").await.is(201);
    app.reverse_units(&grant, 1, "a test", "part").await.is(201);
    app.adjust("bob", json!({ "units": 2, "reason": "by hand" }), None)
        .await
        .is(201);
    assert_eq!(used(&app).await, [4]);
    assert_eq!(kinds(&reconcile(&app, false).await), [] as [&str; 0]);
    ground.open_the_ledger().await;
    ground.sql("UPDATE shared_use SET used = 5").await;
    let report = reconcile(&app, false).await;
    assert_eq!(kinds(&report), ["wrong_figure"]);
    let difference = &report["differences"][0];
    let numbers = ["found_number", "expected_number"].map(|name| &difference[name]);
    assert_eq!(numbers, [5, 4]);
    assert_eq!(difference["figure"], "total ever");
}
