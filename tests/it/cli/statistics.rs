//! `perdiem stats` and `perdiem denials`.

use serde_json::json;

use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::command_line::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn days_are_shown_with_their_sums() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start(&ground).await;
    app.put_policy(
        "benefit",
        json!({ "time_zone": "GMT+8", "limits": [{ "max": 3, "per": "day" }] }),
    )
    .await;
    for (subject, units, at) in [
        ("a", 2, "2025-11-21T03:00:00Z"),
        ("b", 5, "2025-11-21T03:00:00Z"),
        ("a", 1, "2025-11-22T03:00:00Z"),
    ] {
        let adjusted = json!({ "units": units, "at": at, "reason": "opening" });
        app.adjust(subject, adjusted, None).await;
    }
    all_is_recorded(&app, &ground).await;
    let line = "stats benefit --from 2025-11-01 --until 2025-12-01 --wait";
    let shown = command(&app, line).await.well(0);
    let lines: Vec<String> = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(lines[1], "benefit 2025-11-21 0 0 0 0 7 0 0 7 0");
    assert_eq!(lines[2], "benefit 2025-11-22 0 0 0 0 1 0 0 1 0");
    assert_eq!(lines[3], "total 0 0 0 0 8 0 0 8 0");
    let days = command(&app, &format!("{line} --json")).await.json(0);
    assert_eq!(days[0]["adjusted_up_units"], 7);
    // Scripts write the flags of before.
    let before = "stats --policy benefit --from 2025-11-01 --to 2025-12-01";
    assert_eq!(command(&app, before).await.well(0), shown);
    let wrong = command(&app, "stats --from 2025-11-31").await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("write a time such as"), "{wrong:?}");
    let fault = command(&app, "stats benefit --from 14:03").await.fault();
    assert!(
        fault.contains("--from: figures are of whole days"),
        "{fault}"
    );
    let none = command(&app, "denials benefit a").await.well(0);
    assert_eq!(none, "no denial of the last 30 days is stored\n");
}

/// The times are those of the policy's zone, whose offset is 5:45.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarter_hours_are_shown_in_the_zone_of_the_policy() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(1, "Asia/Kathmandu").await;
    app.claim("a", None).await.is(201);
    app.claim("a", None).await.is(429);
    eventually("the denial is counted", || async {
        app.get("/v1/stats/quarters").await.json()["items"][0]["denied_claims"] == 1
    })
    .await;
    let line = "stats benefit --by quarter-hour --wait --from 2026-11-21T08:45 --until 2026-11-22";
    let lines = async |line: &str| {
        let shown = command(&app, line).await.well(0);
        let lines = shown.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.join(" ")
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(
        lines(line).await,
        [
            "policy quarter hour grants units given back denied",
            "benefit 2026-11-21T08:45:00+05:45 1 1 0 1",
            "total 1 1 0 1",
        ]
    );
    let later = "stats benefit --by quarter-hour --from 2026-11-21T09:00";
    assert_eq!(lines(later).await.last().expect("a line"), "total 0 0 0 0");
    let all = lines("stats --by quarter-hour").await;
    assert_eq!(all[1], "benefit 2026-11-21T03:00:00Z 1 1 0 1");
    let quarters = command(&app, &format!("{line} --json")).await.json(0);
    assert_eq!(quarters[0]["starts_at"], "2026-11-21T03:00:00Z");
    for wrong in [
        "stats --by hour",
        "stats --by quarter-hour --recorded-from 2026-11-21",
    ] {
        let said = command(&app, wrong).await;
        assert_eq!(said.code, 2, "{said:?}");
    }
}
