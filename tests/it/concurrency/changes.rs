//! Policies that change inside a window. No unit is granted twice, and no granted unit is taken
//! back.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::http::all_items;
use crate::judge::Wish;
use crate::support::app::{NOON, Stack, eventually, instant, on_every_stack, on_every_way};
use crate::support::crowd::Fleet;
use crate::support::direct::Direct;

on_every_stack!(a_change_holds_for_the_very_next_claim);
on_every_way!(
    what_a_change_leaves_is_handed_out_once,
    usage_where_a_change_is_not_known_yet,
    a_clock_that_steps_back,
);

const SUBJECT: &str = "member-42";

/// Zones, starts of the day and of the week, limits, and the hours that pass before the change.
const CHANGES: [(&str, &str, &str, &str, i64); 24] = [
    ("GMT+8", "00:00", "monday", "6/day", 0),
    ("UTC", "00:00", "monday", "6/day", 1),
    ("GMT+8", "00:00", "monday", "6/day", 1),
    ("America/Los_Angeles", "00:00", "monday", "6/day", 2),
    ("Pacific/Kiritimati", "00:00", "monday", "6/day", 3),
    ("Pacific/Pago_Pago", "00:00", "monday", "6/day", 1),
    ("Asia/Kathmandu", "00:00", "monday", "6/day", 7),
    ("-12:00", "00:00", "monday", "6/day", 20),
    ("+14:00", "00:00", "monday", "6/day", 1),
    ("Australia/Lord_Howe", "00:00", "monday", "6/day", 30),
    ("GMT+8", "00:00", "monday", "9/day 16/week", 5),
    ("GMT+8", "06:00", "monday", "9/day 16/week", 1),
    ("GMT+8", "05:00", "sunday", "9/day 16/week", 7),
    ("GMT+8", "12:30", "saturday", "9/day 16/week", 8),
    ("GMT+8", "12:31", "saturday", "9/day 20/week", 0),
    ("GMT+8", "00:00", "monday", "9/day 24/week", 12),
    ("GMT+8", "00:00", "monday", "70/month 26/week", 2),
    ("GMT+8", "00:00", "monday", "3/day", 1),
    ("GMT+8", "00:00", "monday", "2/hour 9/day", 20),
    ("GMT+8", "00:00", "monday", "4/hour", 0),
    ("GMT+8", "00:00", "monday", "99/year 80/month", 70),
    (
        "GMT+8",
        "00:00",
        "monday",
        "85/month 95/quarter 101/year",
        0,
    ),
    ("GMT+8", "00:00", "monday", "1/minute", 0),
    ("GMT+8", "00:00", "monday", "12/day 50/week", 1),
];

/// After each change, clients get exactly the units that the rule leaves.
async fn what_a_change_leaves_is_handed_out_once(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-20T13:00:00Z")).await;
    for change @ (time_zone, day_starts_at, week_starts_on, limits, hours) in CHANGES {
        fleet.clock.advance(TimeDelta::hours(hours));
        let limit = |text: &str| {
            let (max, per) = text.split_once('/').expect("a max and a window");
            json!({ "max": max.parse::<u64>().expect("a max"), "per": per })
        };
        let limits: Vec<Value> = limits.split(' ').map(limit).collect();
        let version = fleet
            .put_body(json!({
                "time_zone": time_zone, "limits": limits, "reason": "a test",
                "day_starts_at": day_starts_at, "week_starts_on": week_starts_on,
            }))
            .await;
        fleet.everybody_knows(version).await;
        let room = fleet.ground.stores().await.room(SUBJECT, fleet.clock.now());
        let granted = fleet.drain(12, SUBJECT).await;
        assert_eq!(granted as u64, room, "{change:?}");
    }
    fleet.finds_nothing().await;
}

/// The change holds at the instance that took it, although a counter was confirmed just before.
async fn a_change_holds_for_the_very_next_claim(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let app = &fleet.apps[0];
    app.benefit(5, "GMT+8").await;
    for round in 0..10 {
        while app.claim(SUBJECT, None).await.status == StatusCode::CREATED {}
        let denied = app.claim(SUBJECT, None).await;
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
        app.benefit(5 + 2 * (round + 1), "GMT+8").await;
        let granted = app.claim(SUBJECT, None).await;
        assert_eq!(granted.status, StatusCode::CREATED, "{granted:?}");
        app.benefit(5 + 2 * round + 1, "GMT+8").await;
        let denied = app.claim(SUBJECT, None).await;
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
        let used = denied.json()["limits"][0]["used"].clone();
        assert_eq!(used, 5 + 2 * round + 1);
        app.benefit(5 + 2 * (round + 1), "GMT+8").await;
    }
    fleet.finds_nothing().await;
    // The change also holds at every other instance, soon afterwards.
    app.benefit(1000, "GMT+8").await;
    for app in &fleet.apps {
        eventually("the raise holds everywhere", || async {
            app.claim(SUBJECT, None).await.status == StatusCode::CREATED
        })
        .await;
    }
}

/// The clock goes back over midnight while claims are decided. Their last line contains neither the
/// day nor the week. Every claim is decided, and no day gives more than its `max`.
async fn a_clock_that_steps_back(stack: Stack) {
    const ROUNDS: usize = 40;
    const CLIENTS: usize = 8;
    let before_midnight = instant("2026-11-21T23:59:59.5Z");
    let after_midnight = before_midnight + TimeDelta::seconds(1);
    let fleet = Fleet::start(stack, before_midnight - TimeDelta::hours(3)).await;
    let limits = json!([{ "max": 2, "per": "day" }, { "max": 1000, "per": "week" }]);
    fleet.put("Asia/Kolkata", limits.clone()).await;
    let subject = |round: usize, client: usize| format!("member-{round}-{client}");
    let rounds = |client| {
        let subjects = (0..ROUNDS).map(|round| subject(round, client));
        subjects.map(|subject| Wish::of(&subject)).collect()
    };
    assert_eq!(
        fleet.claim_all(CLIENTS, rounds).await,
        [CLIENTS * ROUNDS, 0, 0]
    );
    fleet.put("UTC", limits).await;
    for round in 0..ROUNDS {
        fleet.clock.set(after_midnight);
        let claims = fleet.claim_all(CLIENTS, |client| vec![Wish::of(&subject(round, client)); 3]);
        let clock = fleet.clock.clone();
        let step = tokio::task::spawn_blocking(move || {
            // Each round begins a little later in the processing of the claims.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(150 * round as u64) {
                std::hint::spin_loop();
            }
            clock.set(before_midnight);
        });
        let (_, stepped) = tokio::join!(claims, step);
        stepped.expect("the clock is set");
    }
    fleet.finds_nothing().await;
}

/// A hold lapsed under a policy version that the other instance may not know yet. That instance
/// still answers with the usage.
async fn usage_where_a_change_is_not_known_yet(stack: Stack) {
    let fleet = Fleet::with_max(stack, 3).await;
    for round in 1..6 {
        let limits = json!([{ "max": 3 + round, "per": "day" }]);
        let version = fleet.put_quietly("GMT+8", limits).await;
        let hold = json!({ "subject": SUBJECT, "hold_seconds": 60 });
        let held = fleet.app(0).claim_body(hold, None).await;
        assert_eq!(held.status, StatusCode::CREATED, "{held:?}");
        fleet.clock.advance(TimeDelta::seconds(60));
        let path = format!("/v1/policies/benefit/subjects/{SUBJECT}");
        let usage = fleet.app(1).get(&path).await;
        assert_eq!(usage.json()["limits"][0]["used"], 0, "{usage:?}");
        let dry = json!({ "subject": SUBJECT, "dry_run": true });
        let answer = fleet.app(1).claim_body(dry, None).await;
        assert_eq!(answer.json()["outcome"], "granted", "{answer:?}");
        fleet.everybody_knows(version).await;
    }
    fleet.finds_nothing().await;
}

/// Another change takes its time. A change of the zone that waits for it begins afterwards: an entry
/// that was decided meanwhile stays on its day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_waits_begins_at_its_turn() {
    let noon = instant("2026-11-21T12:00:00Z");
    let fleet = Fleet::start_sweeping(Stack::Postgres, noon).await;
    let limits = json!([{ "max": 3, "per": "day" }]);
    fleet.put("UTC", limits.clone()).await;
    let mut other = Direct::to(&fleet.ground).await;
    for sql in ["BEGIN", "UPDATE ledger SET revision = revision"] {
        other.execute(sql, sql).await;
    }
    let meanwhile = async {
        let waiting = "SELECT CAST(count(*) AS text) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("the change waits", || async {
            Direct::to(&fleet.ground).await.texts(waiting).await != ["0"]
        })
        .await;
        fleet.clock.advance(TimeDelta::hours(1));
        let claims = |_| vec![Wish::of(SUBJECT)];
        assert_eq!(fleet.claim_all(1, claims).await, [1, 0, 0]);
        fleet.clock.advance(TimeDelta::microseconds(1));
        other.execute("COMMIT", "COMMIT").await;
    };
    // At 13:00 UTC it is the next day in this zone.
    let (version, ()) = tokio::join!(fleet.put_quietly("+14:00", limits), meanwhile);
    fleet.everybody_knows(version).await;
    fleet.tells_one_story().await;
    let days = all_items(&fleet.apps[0], "/v1/stats").await;
    let days: Vec<&Value> = days.iter().map(|day| &day["date"]).collect();
    assert_eq!(days, ["2026-11-21"]);
}
