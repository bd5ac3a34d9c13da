//! Policies that change in mid-window: nothing is handed out twice, nothing taken back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use perdiem::domain::grant::Grant;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::app::{NOON, Stack, eventually, instant, on_every_stack};
use crate::support::books::Books;
use crate::support::crowd::{Fleet, all_at_once};

on_every_stack!(
    zones_that_change_hand_out_nothing_twice,
    limits_that_change_hand_out_nothing_twice,
    days_that_start_elsewhere_hand_out_nothing_twice,
    a_change_holds_for_the_very_next_claim,
    a_max_that_falls_and_rises_under_load,
    zones_that_change_under_load,
    a_clock_that_steps_back,
);

const SUBJECT: &str = "member-42";

/// Claims with 12 clients until each was denied; returns how many grants there were.
async fn drain(fleet: &Fleet) -> u64 {
    let granted = all_at_once(12, |client| {
        let app = fleet.app(client);
        async move {
            let mut granted = 0;
            loop {
                let answer = app.claim(SUBJECT, None).await;
                match answer.status {
                    StatusCode::CREATED => granted += 1,
                    StatusCode::TOO_MANY_REQUESTS => return granted,
                    _ => panic!("{answer:?}"),
                }
            }
        }
    })
    .await;
    granted.into_iter().sum()
}

/// How many units fit now, by the plain rule: each limit's `max` less the sum of the grants
/// in its window, as the window's endpoint tells it.
async fn room(fleet: &Fleet, books: &Books, limits: &Value) -> u64 {
    let grants: Vec<Grant> = books.audit().await.into_values().flatten().collect();
    let now = fleet.clock.now();
    let mut room = u64::MAX;
    for limit in limits.as_array().expect("limits") {
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        let path = format!(
            "/v1/policies/benefit/windows?per={}&from={}&to={}",
            limit["per"].as_str().expect("a length"),
            text(now),
            text(now + TimeDelta::microseconds(1)),
        );
        let window = fleet.apps[0].get(&path).await.json()["items"][0].clone();
        let edge = |name: &str| instant(window[name].as_str().expect("an instant"));
        let (start, end) = (edge("start"), edge("end"));
        let inside = grants.iter().filter(|grant| {
            let at = grant.entry.line.at;
            start <= at && at < end
        });
        let used: u64 = inside.map(|grant| grant.entry.units.get()).sum();
        let max = limit["max"].as_u64().expect("a max");
        room = room.min(max.saturating_sub(used));
    }
    room
}

/// Changes the policy, and lets clients take what is left: exactly what the rule leaves.
async fn change_and_drain(fleet: &Fleet, books: &Books, body: Value) {
    let body_of_put = {
        let mut body = body.clone();
        body["reason"] = json!("a test");
        body
    };
    let answer = fleet.apps[0].put_policy("benefit", body_of_put).await;
    assert!(answer.status.is_success(), "{answer:?}");
    let version = answer.json()["version"].as_u64().expect("a version");
    fleet.everybody_knows(version).await;
    let room = room(fleet, books, &body["limits"]).await;
    assert_eq!(drain(fleet).await, room, "{body} at {}", fleet.clock.now());
}

async fn zones_that_change_hand_out_nothing_twice(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-20T13:00:00Z")).await;
    let books = Books::open(&fleet.ground).await;
    let limits = json!([{ "max": 6, "per": "day" }]);
    for (time_zone, hours) in [
        ("GMT+8", 0),
        ("UTC", 1),
        ("GMT+8", 1),
        ("America/Los_Angeles", 2),
        ("Pacific/Kiritimati", 3),
        ("Pacific/Pago_Pago", 1),
        ("Asia/Kathmandu", 7),
        ("GMT+8", 9),
        ("-12:00", 11),
        ("+14:00", 1),
        ("Australia/Lord_Howe", 30),
        ("UTC", 5),
    ] {
        fleet.clock.advance(TimeDelta::hours(hours));
        let body = json!({ "time_zone": time_zone, "limits": limits });
        change_and_drain(&fleet, &books, body).await;
    }
    books.counters_follow().await;
}

async fn limits_that_change_hand_out_nothing_twice(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-27T23:30:00Z")).await;
    let books = Books::open(&fleet.ground).await;
    for (limits, hours) in [
        (json!([{ "max": 3, "per": "day" }]), 0),
        (json!([{ "max": 5, "per": "week" }]), 1),
        (
            json!([{ "max": 7, "per": "month" }, { "max": 6, "per": "week" }]),
            2,
        ),
        (json!([{ "max": 3, "per": "day" }]), 1),
        (
            json!([{ "max": 2, "per": "hour" }, { "max": 9, "per": "day" }]),
            20,
        ),
        (json!([{ "max": 4, "per": "hour" }]), 0),
        (
            json!([{ "max": 40, "per": "year" }, { "max": 30, "per": "month" }]),
            70,
        ),
        (
            json!([{ "max": 30, "per": "month" }, { "max": 41, "per": "year" }]),
            0,
        ),
        (json!([{ "max": 1, "per": "minute" }]), 0),
        (
            json!([{ "max": 12, "per": "day" }, { "max": 50, "per": "week" }]),
            1,
        ),
    ] {
        fleet.clock.advance(TimeDelta::hours(hours));
        let body = json!({ "time_zone": "GMT+8", "limits": limits });
        change_and_drain(&fleet, &books, body).await;
    }
    books.counters_follow().await;
}

async fn days_that_start_elsewhere_hand_out_nothing_twice(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T21:00:00Z")).await;
    let books = Books::open(&fleet.ground).await;
    let limits = json!([{ "max": 4, "per": "day" }, { "max": 9, "per": "week" }]);
    for (day_starts_at, week_starts_on, hours) in [
        ("00:00", "monday", 0),
        ("06:00", "monday", 1),
        ("05:00", "sunday", 7),
        ("00:00", "sunday", 0),
        ("12:30", "saturday", 8),
        ("12:31", "saturday", 0),
        ("00:00", "monday", 12),
    ] {
        fleet.clock.advance(TimeDelta::hours(hours));
        let body = json!({
            "time_zone": "GMT+8", "limits": limits,
            "day_starts_at": day_starts_at, "week_starts_on": week_starts_on,
        });
        change_and_drain(&fleet, &books, body).await;
    }
    books.counters_follow().await;
}

/// At the instance that took the change, with a counter that was confirmed just now.
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
    Books::open(&fleet.ground).await.audit().await;
    // And at every other instance soon afterwards.
    app.benefit(1000, "GMT+8").await;
    for app in &fleet.apps {
        eventually("the raise holds everywhere", || async {
            app.claim(SUBJECT, None).await.status == StatusCode::CREATED
        })
        .await;
    }
}

/// Loads a subject with claims of 1 or 2 units, some with keys that are sent twice, until
/// told to stop.
async fn load(fleet: &Fleet, stop: Arc<AtomicBool>) {
    all_at_once(16, |client| {
        let (app, stop) = (fleet.app(client), stop.clone());
        async move {
            let mut round = 0;
            while !stop.load(Ordering::SeqCst) {
                round += 1;
                let body = json!({ "subject": SUBJECT, "units": 1 + (round + client) % 2 });
                // Every second key is the one before once more.
                let key = format!("order-{client}-{}", round / 4);
                let key = (round % 4 < 2).then_some(key);
                let answer = app.claim_body(body, key.as_deref()).await;
                let expected = [
                    StatusCode::CREATED,
                    StatusCode::TOO_MANY_REQUESTS,
                    // A key of the round before, for other units.
                    StatusCode::UNPROCESSABLE_ENTITY,
                    StatusCode::OK,
                ];
                assert!(expected.contains(&answer.status), "{answer:?}");
            }
        }
    })
    .await;
}

/// Each grant fits under the `max` of the version that it was decided under, versions never
/// go back, and in the end there is exactly as much as the last `max` says.
async fn a_max_that_falls_and_rises_under_load(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let limits = |max: u64| json!([{ "max": max, "per": "day" }]);
    fleet.put("GMT+8", limits(10)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let changes = async {
        for max in [30, 20, 35, 5, 50, 45, 60, 2, 80] {
            let version = fleet.put_quietly("GMT+8", limits(max)).await;
            if max % 10 == 0 {
                fleet.everybody_knows(version).await;
            }
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(load(&fleet, stop.clone()), changes);

    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    let versions = fleet.apps[0].get("/v1/policies/benefit/versions").await;
    let versions = versions.json();
    for grant in accounts.values().flatten() {
        let line = &grant.entry.line;
        let mut items = versions["items"].as_array().expect("versions").iter();
        let version = items.find(|item| item["version"] == line.policy_version);
        let max = &version.expect("its version")["limits"][0]["max"];
        assert_eq!(*max, line.totals[0].max);
    }
    drain(&fleet).await;
    let accounts = books.audit().await;
    let last = accounts.values().next().and_then(|grants| grants.last());
    assert_eq!(last.expect("a grant").entry.line.totals[0].used, 80);
    books.counters_follow().await;
}

async fn zones_that_change_under_load(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T15:50:00Z")).await;
    let limits = json!([{ "max": 25, "per": "day" }, { "max": 90, "per": "month" }]);
    let version = fleet.put_quietly("GMT+8", limits.clone()).await;
    fleet.everybody_knows(version).await;
    let stop = Arc::new(AtomicBool::new(false));
    let changes = async {
        for time_zone in ["UTC", "+09:00", "Asia/Kolkata", "GMT+8", "America/New_York"] {
            let version = fleet.put_quietly(time_zone, limits.clone()).await;
            fleet.everybody_knows(version).await;
            fleet.clock.advance(TimeDelta::hours(5));
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(load(&fleet, stop.clone()), changes);
    let books = Books::open(&fleet.ground).await;
    let room = room(&fleet, &books, &limits).await;
    assert_eq!(drain(&fleet).await, room);
    books.audit().await;
    books.counters_follow().await;
}

/// The clock is set back over midnight while claims are decided whose last line tells neither
/// the day nor the week: every claim is decided, and no day gives more than its `max`.
async fn a_clock_that_steps_back(stack: Stack) {
    const ROUNDS: usize = 40;
    const CLIENTS: usize = 8;
    let before_midnight = instant("2026-11-21T23:59:59.5Z");
    let after_midnight = before_midnight + TimeDelta::seconds(1);
    let fleet = Fleet::start(stack, before_midnight - TimeDelta::hours(3)).await;
    let limits = json!([{ "max": 2, "per": "day" }, { "max": 1000, "per": "week" }]);
    fleet.put("Asia/Kolkata", limits.clone()).await;
    let subject = |round: usize, client: usize| format!("member-{round}-{client}");
    all_at_once(CLIENTS, |client| {
        let app = fleet.app(client);
        async move {
            for round in 0..ROUNDS {
                let answer = app.claim(&subject(round, client), None).await;
                assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
            }
        }
    })
    .await;
    fleet.put("UTC", limits).await;
    for round in 0..ROUNDS {
        fleet.clock.set(after_midnight);
        let claims = all_at_once(CLIENTS, |client| {
            let app = fleet.app(client);
            async move {
                for _ in 0..3 {
                    let answer = app.claim(&subject(round, client), None).await;
                    let expected = [StatusCode::CREATED, StatusCode::TOO_MANY_REQUESTS];
                    assert!(expected.contains(&answer.status), "{answer:?}");
                }
            }
        });
        let clock = fleet.clock.clone();
        let step = tokio::task::spawn_blocking(move || {
            // Each round a little later in the claims' way.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(150 * round as u64) {
                std::hint::spin_loop();
            }
            clock.set(before_midnight);
        });
        let (_, stepped) = tokio::join!(claims, step);
        stepped.expect("the clock is set");
    }
    let books = Books::open(&fleet.ground).await;
    books.audit().await;
    books.counters_follow().await;
}
