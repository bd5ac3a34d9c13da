//! Policies that change in mid-window: nothing is handed out twice, nothing taken back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::judge::Wish;
use crate::support::app::{NOON, Stack, eventually, instant, on_every_stack, on_every_way};
use crate::support::crowd::Fleet;
use crate::support::dice::Dice;

on_every_stack!(
    zones_that_change_hand_out_nothing_twice,
    limits_that_change_hand_out_nothing_twice,
    a_change_holds_for_the_very_next_claim,
);
on_every_way!(
    days_that_start_elsewhere_hand_out_nothing_twice,
    a_max_that_falls_and_rises_under_load,
    zones_that_change_under_load,
    a_clock_that_steps_back,
);

const SUBJECT: &str = "member-42";

/// How many units fit now, by the plain rule: each limit's `max` less the sum of the grants in its
/// window.
async fn room(fleet: &Fleet) -> usize {
    let (stores, now) = (fleet.ground.stores().await, fleet.clock.now());
    let rule = stores.rules.values().next_back().expect("a version");
    let room = rule.limits.iter().map(|(per, max)| {
        let name = |at| rule.calendar.name(per, at);
        let grants = stores.entries.iter();
        let inside = grants.filter(|grant| name(grant.counted_at) == name(now));
        max.saturating_sub(inside.map(|grant| grant.units).sum())
    });
    room.min().expect("a limit") as usize
}

/// Changes the policy, and lets clients take what is left: exactly what the rule leaves.
async fn change_and_drain(fleet: &Fleet, mut body: Value) {
    body["reason"] = json!("a test");
    let answer = fleet.apps[0].put_policy("benefit", body.clone()).await;
    assert!(answer.status.is_success(), "{answer:?}");
    let version = answer.json()["version"].as_u64().expect("a version");
    fleet.everybody_knows(version).await;
    let room = room(fleet).await;
    let granted = fleet.drain(12, SUBJECT).await;
    assert_eq!(granted, room, "{body} at {}", fleet.clock.now());
}

async fn zones_that_change_hand_out_nothing_twice(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-20T13:00:00Z")).await;
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
        change_and_drain(&fleet, body).await;
    }
    fleet.finds_nothing().await;
}

async fn limits_that_change_hand_out_nothing_twice(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-27T23:30:00Z")).await;
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
        change_and_drain(&fleet, body).await;
    }
    fleet.finds_nothing().await;
}

async fn days_that_start_elsewhere_hand_out_nothing_twice(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T21:00:00Z")).await;
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
        change_and_drain(&fleet, body).await;
    }
    fleet.finds_nothing().await;
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
    fleet.finds_nothing().await;
    // And at every other instance soon afterwards.
    app.benefit(1000, "GMT+8").await;
    for app in &fleet.apps {
        eventually("the raise holds everywhere", || async {
            app.claim(SUBJECT, None).await.status == StatusCode::CREATED
        })
        .await;
    }
}

/// A claim of the load.
fn claim(dice: &mut Dice) -> Wish {
    Wish::of(SUBJECT).units(dice.between(1, 2))
}

/// Each grant fits under the `max` of the version that it was decided under, versions never
/// go back, and in the end there is exactly as much as the last `max` says.
async fn a_max_that_falls_and_rises_under_load(stack: Stack) {
    let fleet = Fleet::with_max(stack, 10).await;
    let stop = AtomicBool::new(false);
    let changes = async {
        for max in [30, 20, 35, 5, 50, 45, 60, 2, 80] {
            let limits = json!([{ "max": max, "per": "day" }]);
            let version = fleet.put_quietly("GMT+8", limits).await;
            if max % 10 == 0 {
                fleet.everybody_knows(version).await;
            }
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(fleet.load(16, &stop, claim), changes);
    fleet.drain(12, SUBJECT).await;
    let stores = fleet.finds_nothing().await;
    let last = stores.entries.last().expect("a grant");
    assert_eq!(last.totals[0].used, 80);
}

async fn zones_that_change_under_load(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T15:50:00Z")).await;
    let limits = json!([{ "max": 25, "per": "day" }, { "max": 90, "per": "month" }]);
    fleet.put("GMT+8", limits.clone()).await;
    let stop = AtomicBool::new(false);
    let changes = async {
        for time_zone in ["UTC", "+09:00", "Asia/Kolkata", "GMT+8", "America/New_York"] {
            fleet.put(time_zone, limits.clone()).await;
            fleet.clock.advance(TimeDelta::hours(5));
        }
        stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(fleet.load(16, &stop, claim), changes);
    let room = room(&fleet).await;
    assert_eq!(fleet.drain(12, SUBJECT).await, room);
    fleet.finds_nothing().await;
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
    fleet.finds_nothing().await;
}
