//! Limits that change in the middle of a window. The ledger's check and backtests know every kind.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{SUBJECT, claim, granted_at_once, put, usage};
use crate::support::app::{App, Stack, on_every_way};

on_every_way!(
    a_change_between_kinds_hands_nothing_out_twice,
    another_max_goes_on,
    the_ledgers_check_knows_every_kind,
    a_backtest_knows_every_kind,
);

/// Limits of every kind. Each limit allows six units at once.
fn kinds() -> [Value; 7] {
    [
        json!({ "max": 6, "per": "day" }),
        json!({ "max": 6, "per": "ever" }),
        json!({ "max": 6, "per": "20h", "kind": "from_first_claim" }),
        json!({ "max": 6, "per": "21h", "kind": "sliding" }),
        json!({ "max": 6, "per": "24h", "kind": "sliding", "step": "1h" }),
        json!({ "max": 6, "per": "22h", "kind": "rate" }),
        json!({ "max": 6, "per": "23h", "kind": "rate", "burst": 6 }),
    ]
}

async fn a_change_between_kinds_hands_nothing_out_twice(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let morning = "2026-11-21T00:00:00Z".parse().expect("an instant");
    for (index, one) in kinds().iter().enumerate() {
        for other in &kinds()[index + 1..] {
            // Each pair of limits has its own subject, so each pair begins at zero.
            let subject = format!("{} then {}", one["per"], other["per"]);
            let granted = async |most: u64| {
                let mut granted = 0;
                for _ in 0..most {
                    let body = json!({ "subject": subject });
                    granted += u64::from(app.claim_body(body, None).await.status == 201);
                }
                granted
            };
            clock.set(morning);
            put(&app, json!([one])).await;
            assert_eq!(granted(4).await, 4, "{subject}");
            clock.advance(TimeDelta::minutes(1));
            put(&app, json!([other])).await;
            assert_eq!(granted(9).await, 2, "{subject}");
            clock.advance(TimeDelta::minutes(1));
            put(&app, json!([one, other])).await;
            assert_eq!(granted(3).await, 0, "{subject}");
        }
    }
}

async fn another_max_goes_on(stack: Stack) {
    for limit in kinds() {
        let (app, _clock) = App::with_clock(stack).await;
        put(&app, json!([limit])).await;
        assert_eq!(granted_at_once(&app).await, 6);
        let mut higher = limit.clone();
        higher["max"] = json!(8);
        if !higher["burst"].is_null() {
            higher["burst"] = json!(8);
        }
        put(&app, json!([higher])).await;
        assert_eq!(granted_at_once(&app).await, 2, "{limit}");
        put(&app, json!([limit])).await;
        let told = usage(&app).await;
        assert_eq!(told["remaining"], 0, "{limit}");
        assert!(told["used"].as_u64() >= Some(8), "{told}");
    }
}

async fn the_ledgers_check_knows_every_kind(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let mut grants = Vec::new();
    for (number, limit) in kinds().into_iter().chain(kinds()).enumerate() {
        let rule = json!({
            "time_zone": "UTC", "limits": [limit, { "max": 90, "per": "year" }], "mode": "observe",
            "reason": format!("rule {number}"),
        });
        assert!(app.put_policy("benefit", rule).await.status.is_success());
        grants.push(claim(&app, 3).await.grant_id());
        let hold = json!({ "subject": SUBJECT, "units": 2, "hold_seconds": 600 });
        app.claim_body(hold, None).await.is(201);
        clock.advance(TimeDelta::minutes(17));
        let raise = json!({ "units": 1, "reason": "a test" });
        app.adjust(SUBJECT, raise, None).await.is(201);
        if number % 3 == 2 {
            let grant = grants.remove(grants.len() / 2);
            app.reverse(&grant, "a test").await.is(201);
        }
        clock.advance(TimeDelta::minutes(number as i64 * 37));
    }
    let request = app.request(reqwest::Method::POST, "/v1/reconciliations");
    let report = request.json(&json!({})).send().await.expect("an answer");
    let report: Value = report.json().await.expect("JSON");
    assert_eq!(report["differences"], json!([]), "{report}");
    let account = format!("/v1/policies/benefit/subjects/{SUBJECT}");
    let explained = app.get(&format!("{account}?units=2")).await;
    assert_eq!(explained.is(200)["subject"], SUBJECT);
    for grant in grants {
        let explained = app.get(&format!("/v1/grants/{grant}/explanation")).await;
        assert!(explained.status == 200, "{explained:?}");
    }
}

async fn a_backtest_knows_every_kind(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    put(&app, json!([{ "max": 100, "per": "day" }])).await;
    clock.set("2026-11-21T10:00:00Z".parse().expect("an instant"));
    for _ in 0..8 {
        claim(&app, 1).await.is(201);
    }
    clock.set("2026-11-22T10:00:00Z".parse().expect("an instant"));
    for limit in kinds() {
        let body = json!({
            "policy": { "time_zone": "UTC", "limits": [limit] },
            "from": "2026-11-21", "to": "2026-11-22",
        });
        let request = app.request(reqwest::Method::POST, "/v1/policies/benefit/backtest");
        let answer = request.json(&body).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        assert_eq!(answer["total"]["denied_grants"], 2, "{limit}: {answer}");
    }
}
