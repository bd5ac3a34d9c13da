//! `perdiem changes`, as a person at a terminal uses the command.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::json;

use crate::support::app::{Answer, App, Stack};
use crate::support::command_line::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_can_be_read() {
    let (app, clock) = App::with_clock(Stack::Sqlite).await;
    assert_eq!(command(&app, "changes").await.well(0), "");
    let tick = || clock.advance(TimeDelta::minutes(1));
    app.benefit(3, "GMT+8").await;
    tick();
    let later = json!({
        "time_zone": "GMT+8", "limits": [{ "max": 5, "per": "day" }],
        "effective": "next_window", "reason": "more\nfor all",
    });
    assert_eq!(app.put_policy("benefit", later).await.status, 200);
    tick();
    app.override_day("member-42", 10).await;
    tick();
    assert_eq!(app.delete_override("member-42").await.status, 200);
    tick();
    let body = json!({ "name": "shop", "role": "claim", "policies": ["benefit"] });
    let made = Answer::of(app.request(Method::POST, "/v1/keys").json(&body)).await;
    let id = made.json()["id"].as_str().expect("an id").to_owned();

    let text = command(&app, "changes").await.well(0);
    let expected = format!(
        "\
2026-11-21T03:08:05.678901Z  key {id}, by PERDIEM_ADMIN_KEY
    policies: benefit
    role: claim
2026-11-21T03:07:05.678901Z  override benefit member-42, by PERDIEM_ADMIN_KEY: a test
    limits: 10 per day → none
2026-11-21T03:06:05.678901Z  override benefit member-42, by PERDIEM_ADMIN_KEY: a test
    limits: 10 per day
2026-11-21T03:05:05.678901Z  policy benefit, by PERDIEM_ADMIN_KEY: \"more\\nfor all\"
    limits: 3 per day → 5 per day
    effective: 2026-11-21T16:00:00Z
2026-11-21T03:04:05.678901Z  policy benefit, by PERDIEM_ADMIN_KEY: a test
    calendar: policy
    day_starts_at: 00:00
    durability: recorded
    limits: 3 per day
    mode: enforce
    on_ledger_outage: refuse
    time_zone: +08:00
    week_starts_on: monday
"
    );
    assert_eq!(text, expected);

    let text = command(&app, "changes benefit --limit 1").await.well(0);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("override benefit member-42"), "{text}");
    assert!(lines[2].contains("--limit") && lines.len() == 3, "{text}");
    let span = "--from 2026-11-21T03:05 --until 2026-11-21T03:06";
    let items = command(&app, &format!("changes --json {span}"))
        .await
        .json(0);
    assert_eq!(items.as_array().map(Vec::len), Some(1));
    assert_eq!(items[0]["after"]["version"], 2);
    let fault = command(&app, "changes --policy nothing").await.fault();
    assert!(fault.contains("no policy nothing"), "{fault}");
}
