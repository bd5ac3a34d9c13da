//! A reconciliation counts the figures of a closed day again. A wrong one is an alarm until the
//! figures are made again.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use serde_json::json;

use super::{kinds, nothing_differs, reconcile};
use crate::http::items;
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant};
use crate::support::command_line::command;
use crate::support::desk::on_every_store;

on_every_store!(a_wrong_figure_of_a_closed_day_is_an_alarm);

/// More than one read has.
const MANY: usize = 510;

async fn a_wrong_figure_of_a_closed_day_is_an_alarm(stack: Stack) {
    // 1. A day with entries of many kinds, which has closed. A later entry also counts on it.
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(3, "GMT+8").await;
    let claim = |n: usize| json!({ "policy": "benefit", "subject": format!("m-{n}"), "units": 2 });
    let body = json!({ "claims": (0..MANY).map(claim).collect::<Vec<_>>() });
    let granted = app.ask("POST /v1/claims", body).await.is(200);
    let granted = granted["items"].as_array().expect("items").clone();
    for result in &granted {
        let grant = result["grant"]["id"].as_str().expect("an id");
        assert_eq!(
            app.reverse_units(grant, 1, "a test", grant).await.status,
            201
        );
    }
    let adjustment = json!({ "units": 1, "reason": "a test" });
    app.adjust("m-1", adjustment, None).await;
    app.ask(
        "PUT /v1/policies/sms",
        json!({
            "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }],
        }),
    )
    .await
    .is(201);
    let other = app
        .claim_under("sms", json!({ "subject": "a" }), None)
        .await;
    assert_eq!(app.reverse(&other.grant_id(), "a test").await.status, 201);
    all_is_recorded(&app, &ground).await;
    are_sums_of_the_entries(&app).await;
    clock.advance(TimeDelta::days(1));
    eventually("the figures of the days are in the record", || async {
        items(&app.get("/v1/changes?kind=day").await).len() == 2
    })
    .await;
    let first = granted[0]["grant"]["id"].as_str().expect("an id");
    assert_eq!(app.reverse(first, "a test").await.status, 201);
    all_is_recorded(&app, &ground).await;
    are_sums_of_the_entries(&app).await;
    // Each day is chosen now and then. Reports are in the order of their instants.
    let nothing_is_wrong = async || {
        for _ in 0..6 {
            clock.advance(TimeDelta::seconds(1));
            nothing_differs(&app, false).await;
        }
    };
    nothing_is_wrong().await;
    // 2. Somebody changes the figures of both days.
    ground.open_the_figures().await;
    ground
        .sql("UPDATE day_figures SET value = value + 4 WHERE figure = 'units'")
        .await;
    clock.advance(TimeDelta::seconds(1));
    let report = reconcile(&app, true).await;
    assert_eq!(kinds(&report), ["wrong_figure"], "{report}");
    let counts = ["difference_count", "alarm_count", "healed_count"];
    assert_eq!(counts.map(|name| &report[name]), [1, 1, 0]);
    let difference = &report["differences"][0];
    assert_eq!(
        ["figure", "date"].map(|name| &difference[name]),
        ["units", "2026-11-21"]
    );
    let policy = difference["policy"].as_str().expect("a policy");
    let units = match policy {
        "benefit" => 2 * MANY,
        _ => 1,
    };
    assert_eq!(
        ["found_number", "expected_number"].map(|name| &difference[name]),
        [units + 4, units]
    );
    // 3. The same day is counted until its figures are right.
    for _ in 0..3 {
        clock.advance(TimeDelta::seconds(1));
        let again = reconcile(&app, false).await;
        assert_eq!(again["differences"][0]["policy"], policy, "{again}");
    }
    clock.advance(TimeDelta::seconds(1));
    let said = command(&app, "reconcile").await.well(4);
    let line = format!(
        "ALARM   wrong_figure       {policy} 2026-11-21: units {}, expected {units}",
        units + 4
    );
    assert_eq!(said.lines().next(), Some(line.as_str()), "{said}");
    eventually("/readyz and the metrics show the alarm", || async {
        let metrics = app.get("/metrics").await.text;
        app.get("/readyz").await.text.contains("contradicts itself")
            && metrics.contains("\nperdiem_ledger_alarms 1\n")
    })
    .await;
    ground.make_figures_again().await;
    are_sums_of_the_entries(&app).await;
    nothing_is_wrong().await;
}
