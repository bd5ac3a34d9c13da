//! `/v1/stats/quarters`: the figures of quarter hours.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::v1::keys::make_role;
use crate::http::{all_items, invalid_places, items, problem};
use crate::record::all_is_recorded;
use crate::seals::ledger;
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(
    what_happened_counts_in_its_quarter_hour,
    two_instances_count_each_claim_once,
    quarters_and_days_are_written_together,
    quarters_go_after_14_days,
    a_deletion_is_bounded,
);

/// The policy, the start and the figures of a quarter hour, as a line: grants, units, units that were given back,
/// denied claims.
fn line(quarter: &Value) -> String {
    let text = |name: &str| quarter[name].as_str().expect("a text");
    let figures = ["grants", "units", "given_back_units", "denied_claims"];
    let figures = figures.map(|name| quarter[name].to_string());
    format!(
        "{} {} {}",
        text("policy"),
        text("starts_at"),
        figures.join(" ")
    )
}

async fn quarters(app: &App, query: &str) -> Vec<String> {
    let found = items(&app.get(&format!("/v1/stats/quarters{query}")).await);
    found.iter().map(line).collect()
}

/// Waits until all entries are in the figures.
async fn are_made(app: &App, ground: &Ground) {
    let all = all_is_recorded(app, ground).await;
    eventually("the figures are made", || async {
        let list = app.get("/v1/stats/quarters?limit=1").await.json();
        list["as_of"].as_u64() >= Some(all)
    })
    .await;
}

async fn what_happened_counts_in_its_quarter_hour(stack: Stack) {
    let ground = Ground::new(stack);
    // 03:04 in UTC, and 08:49 in Kathmandu.
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(5, "Asia/Kathmandu").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("other", rule).await.is(201);
    // 1. Grants and a denial, then corrections of the grants in later quarter hours.
    let first = app.claim("a", None).await.grant_id();
    let four = json!({ "subject": "b", "units": 4 });
    let second = app.claim_body(four, None).await.grant_id();
    let five = json!({ "subject": "a", "units": 5 });
    app.claim_body(five, None).await.is(429);
    let adjusted = json!({ "units": 3, "at": NOON, "reason": "found later" });
    app.adjust("c", adjusted, None).await.is(201);
    clock.set(instant("2026-11-21T03:15:00Z"));
    let held = json!({ "subject": "held", "hold_seconds": 60 });
    app.claim_body(held, None).await.is(201);
    app.reverse(&first, "a test").await.is(201);
    app.claim_under("other", json!({ "subject": "a" }), None)
        .await
        .is(201);
    clock.set(instant("2026-11-21T03:59:59.999999Z"));
    app.reverse_units(&second, 3, "a test", "some")
        .await
        .is(201);
    // The hold has lapsed at 03:16. Its lapse is recorded with this claim.
    app.claim("held", None).await.is(201);
    let mut expected = vec![
        "benefit 2026-11-21T03:00:00Z 2 5 0 1",
        "benefit 2026-11-21T03:15:00Z 1 1 2 0",
        "other 2026-11-21T03:15:00Z 1 1 0 0",
        "benefit 2026-11-21T03:45:00Z 1 1 3 0",
    ];
    are_made(&app, &ground).await;
    eventually("the denial is counted", || async {
        quarters(&app, "").await == expected
    })
    .await;
    // 2. Spans: instants, and local days, which begin at 18:15 in UTC.
    for (query, found) in [
        ("?policy=benefit", vec![0, 1, 3]),
        (
            "?from=2026-11-21T03:15:00Z&to=2026-11-21T03:30:00Z",
            vec![1, 2],
        ),
        ("?from=2026-11-21T03:15:01Z", vec![3]),
        (
            "?policy=benefit&from=2026-11-21&to=2026-11-22",
            vec![0, 1, 3],
        ),
        ("?policy=benefit&from=2026-11-22", vec![]),
        ("?policy=other&to=2026-11-21", vec![]),
    ] {
        let found: Vec<&str> = found.into_iter().map(|at: usize| expected[at]).collect();
        assert_eq!(quarters(&app, query).await, found, "{query}");
    }
    let paged = all_items(&app, "/v1/stats/quarters?limit=1").await;
    assert_eq!(paged.iter().map(line).collect::<Vec<_>>(), expected);
    // 3. A later correction, and a denial that another run counts in the same quarter hour.
    clock.set(instant("2026-11-22T18:15:00Z"));
    app.reverse(&second, "the next day").await.is(201);
    let one = json!({ "subject": "d" });
    let five = json!({ "subject": "d", "units": 5 });
    app.claim_body(five, None).await.is(201);
    app.claim_body(one.clone(), None).await.is(429);
    drop(app);
    let app = App::start_at(&ground, &clock).await;
    app.claim_body(one.clone(), None).await.is(429);
    expected.push("benefit 2026-11-22T18:15:00Z 1 5 1 2");
    are_made(&app, &ground).await;
    eventually("the figures of both runs are summed", || async {
        quarters(&app, "").await == expected
    })
    .await;
    // 4. Figures that are made again are the same, and so are the denials.
    ground.make_figures_again().await;
    are_made(&app, &ground).await;
    assert_eq!(quarters(&app, "").await, expected);
    // 5. An archived policy keeps its figures.
    let archive = app.request(Method::DELETE, "/v1/policies/other?reason=a+test");
    let archived = archive.send().await.expect("an answer").status();
    assert!(archived.is_success(), "{archived}");
    assert_eq!(quarters(&app, "?policy=other").await, expected[2..3]);
}

async fn two_instances_count_each_claim_once(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let apps = [
        App::start_at(&ground, &clock).await,
        App::start_at(&ground, &clock).await,
    ];
    apps[0].benefit(1, "UTC").await;
    eventually("the other instance knows the policy", || async {
        apps[1].get("/v1/policies/benefit").await.status == 200
    })
    .await;
    for quarter in 0..4 {
        for number in 0..5 {
            let subject = format!("m-{quarter}-{number}");
            for app in &apps {
                app.claim(&subject, None).await;
            }
            apps[number % 2].claim(&subject, None).await.is(429);
        }
        clock.advance(TimeDelta::minutes(15));
    }
    let expected = ["03:00", "03:15", "03:30", "03:45"]
        .map(|at| format!("benefit 2026-11-21T{at}:00Z 5 5 0 10"));
    for app in &apps {
        are_made(app, &ground).await;
        eventually("everything is counted once", || async {
            quarters(app, "").await == expected
        })
        .await;
    }
    // Both followers begin again at once.
    ground.make_figures_again().await;
    are_made(&apps[0], &ground).await;
    assert_eq!(quarters(&apps[1], "").await, expected);
}

/// A step that fails counts nothing. A sum that is too high stays at the highest.
async fn quarters_and_days_are_written_together(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(9, "UTC").await;
    app.claim("a", None).await.is(201);
    are_made(&app, &ground).await;
    let highest = "UPDATE quarter_figures SET units = 9223372036854775807";
    Direct::to(&ground).await.execute(highest, highest).await;
    ground
        .sql("ALTER TABLE quarter_figures RENAME TO quarters_away")
        .await;
    app.claim("a", None).await.is(201);
    all_is_recorded(&app, &ground).await;
    let grants = async || items(&app.get("/v1/stats").await)[0]["grants"].clone();
    eventually("the figures are late", || async {
        let metrics = app.get("/metrics").await.text;
        let mut lines = metrics.lines();
        let lag = lines.find_map(|line| line.strip_prefix("perdiem_figures_lag_seconds "));
        lag.and_then(|lag| lag.parse::<f64>().ok()) > Some(3.0)
    })
    .await;
    assert_eq!(grants().await, 1);
    ground
        .sql("ALTER TABLE quarters_away RENAME TO quarter_figures")
        .await;
    are_made(&app, &ground).await;
    assert_eq!(grants().await, 2);
    let most = i64::MAX;
    let expected = format!("benefit 2026-11-21T03:00:00Z 2 {most} 0 0");
    assert_eq!(quarters(&app, "").await, [expected]);
}

async fn quarters_go_after_14_days(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(1, "UTC").await;
    app.claim("a", None).await.is(201);
    app.claim("a", None).await.is(429);
    let old = "benefit 2026-11-21T03:00:00Z 1 1 0 1";
    are_made(&app, &ground).await;
    eventually("the denial is counted", || async {
        quarters(&app, "").await == [old]
    })
    .await;
    // 1. The last minute, and the first one after it.
    clock.set(instant("2026-12-05T02:59:00Z"));
    app.claim("a", None).await.is(201);
    are_made(&app, &ground).await;
    let new = "benefit 2026-12-05T02:45:00Z 1 1 0 0";
    assert_eq!(quarters(&app, "").await, [old, new]);
    clock.set(instant("2026-12-05T03:01:00Z"));
    app.claim("b", None).await.is(201);
    let newest = "benefit 2026-12-05T03:00:00Z 1 1 0 0";
    are_made(&app, &ground).await;
    eventually("the old figures are deleted", || async {
        quarters(&app, "").await == [new, newest]
    })
    .await;
    // 2. They are not made again, also by an instance whose clock would not delete them.
    clock.set(instant("2026-12-05T02:59:00Z"));
    ground.make_figures_again().await;
    are_made(&app, &ground).await;
    assert_eq!(quarters(&app, "").await, [new, newest]);
    // The figures of days stay.
    assert_eq!(items(&app.get("/v1/stats").await).len(), 2);
}

async fn a_deletion_is_bounded(stack: Stack) {
    let ground = Ground::new(stack);
    let ledger = ledger(&ground).await;
    let app = App::start(&ground).await;
    app.benefit(1, "UTC").await;
    drop(app);
    let mut direct = Direct::to(&ground).await;
    let id = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => "x'00000000000000000000000000000000'",
        Stack::Postgres | Stack::RedisAndPostgres => "gen_random_uuid()",
    };
    for minute in [0, 15, 30] {
        let at = match stack {
            Stack::Sqlite | Stack::RedisAndSqlite => (instant("2026-11-21T03:00:00Z")
                + TimeDelta::minutes(minute))
            .timestamp_micros()
            .to_string(),
            Stack::Postgres | Stack::RedisAndPostgres => format!("'2026-11-21T03:{minute:02}:00Z'"),
        };
        for sql in [
            format!("INSERT INTO quarter_figures VALUES (1, {at}, 1, 1, 0)"),
            format!(
                "INSERT INTO quarter_denials (run, policy, starts_at, denied) VALUES ({id}, 1, {at}, 1)"
            ),
        ] {
            direct.execute(&sql, &sql).await;
        }
    }
    let before = instant("2026-11-21T03:30:00Z");
    for (limit, left) in [(1, "2 2"), (9, "1 1"), (9, "1 1")] {
        let forgotten = ledger.figures().forget_quarters(before, limit).await;
        forgotten.expect("the rows are deleted");
        let rows = "SELECT (SELECT count(*) FROM quarter_figures) || ' ' ||
            (SELECT count(*) FROM quarter_denials)";
        assert_eq!(direct.texts(rows).await, [left]);
    }
    ledger.close().await;
}

#[tokio::test]
async fn bad_input_and_keys_of_other_policies_are_refused() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(1, "UTC").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("other", rule).await.is(201);
    for (query, place) in [
        ("from=2026-11-21", "from"),
        ("from=today&policy=benefit", "from"),
        ("to=2026-11-31&policy=benefit", "to"),
        ("policy=B", "policy"),
        ("limit=0", "limit"),
        ("cursor=AAAA", "cursor"),
        ("from=2026-11-21T03:15:00Z&to=2026-11-21T03:15:00Z", "to"),
    ] {
        let wrong = app.get(&format!("/v1/stats/quarters?{query}")).await;
        assert_eq!(invalid_places(&wrong), [place], "{query}");
    }
    let unknown = app.get("/v1/stats/quarters?policy=none").await;
    problem(&unknown, 404, "unknown-policy");
    let key = make_role(&app, "audit", Some("other")).await.secret;
    for (query, status) in [("?policy=other", 200), ("", 403), ("?policy=benefit", 403)] {
        let path = format!("GET /v1/stats/quarters{query}");
        app.ask_as(&key, &path, Value::Null).await.is(status);
    }
}
