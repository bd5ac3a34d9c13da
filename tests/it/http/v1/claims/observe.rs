//! `mode: observe`: the policy grants every claim, and marks the grants that it would have denied.

use serde_json::{Value, json};

use crate::http::{all_items, archive, invalid_places, problem, used};
use crate::support::app::{Answer, App, Ground, Stack, on_every_stack, on_every_store_with_redis};
use crate::support::books::Books;

on_every_stack!(what_a_longer_window_sums_is_exact,);

on_every_store_with_redis!(
    an_observing_policy_grants_all_and_marks_what_it_would_have_denied,
    what_cannot_be_counted_is_refused,
);

/// The most units that a window can count.
const MOST: u64 = 9_007_199_254_740_991;

/// The durabilities of a policy.
const DURABILITIES: [&str; 2] = ["recorded", "counted"];

fn policy(max: u64, mode: &str, durability: &str) -> Value {
    json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": max, "per": "day" }, { "max": 100, "per": "month" }],
        "mode": mode,
        "durability": durability,
        "reason": "a test",
    })
}

/// Whether a grant is marked, with the day's `max`, used units and remaining units.
#[track_caller]
fn granted(answer: &Answer) -> (bool, [u64; 3]) {
    assert_eq!(answer.status, 201, "{answer:?}");
    let body = answer.json();
    let marks = [&body["would_deny"], &body["grant"]["would_deny"]];
    assert_eq!(marks[0], marks[1], "{answer:?}");
    assert!(body["grant"].get("over").is_none(), "{answer:?}");
    let number = |name: &str| body["limits"][0][name].as_u64().expect("a number");
    (
        marks[0] == true,
        [number("max"), number("used"), number("remaining")],
    )
}

async fn an_observing_policy_grants_all_and_marks_what_it_would_have_denied(stack: Stack) {
    for durability in DURABILITIES {
        let ground = Ground::new(stack);
        let app = App::start(&ground).await;
        let books = Books::open(&ground).await;
        let put = app.put_policy("benefit", policy(2, "observe", durability));
        assert_eq!(put.await.is(201)["mode"], "observe");
        let mut grants = 0;
        let mut claim = async |units: u64, key: Option<&str>| {
            books.has_recorded("member-42", grants).await;
            grants += 1;
            let body = json!({ "subject": "member-42", "units": units });
            app.claim_body(body, key).await
        };
        assert_eq!(granted(&claim(2, None).await), (false, [2, 2, 0]));
        assert_eq!(granted(&claim(1, None).await), (true, [2, 3, 0]));
        // More units than the limit allows, and then a claim of a blocked subject.
        let first = claim(7, Some("order-1")).await;
        assert_eq!(granted(&first), (true, [2, 10, 0]));
        app.override_day("member-42", 20).await;
        app.block("member-42").await.is(201);
        assert_eq!(granted(&claim(1, None).await), (true, [20, 11, 9]));
        app.remove_block("member-42").await.is(200);
        assert_eq!(granted(&claim(1, None).await), (false, [20, 12, 8]));
        books.has_recorded("member-42", 5).await;

        // A retry gets the same grant, with its mark.
        let body = json!({ "subject": "member-42", "units": 7 });
        let again = app.claim_body(body, Some("order-1")).await;
        assert_eq!(again.is(200)["would_deny"], true);
        assert_eq!(again.grant_id(), first.grant_id());
        // A dry run shows whether the grant would be marked.
        for (units, would_deny) in [(8, false), (9, true)] {
            let body = json!({ "subject": "member-42", "units": units, "dry_run": true });
            let tried = app.claim_body(body, None).await.json();
            assert_eq!(tried["outcome"], "granted", "{tried}");
            assert_eq!(tried["would_deny"] == true, would_deny, "{tried}");
        }

        let marked = all_items(&app, "/v1/grants?would_deny=true").await;
        let units: Vec<u64> = marked
            .iter()
            .filter_map(|grant| grant["units"].as_u64())
            .collect();
        assert_eq!(units, [1, 7, 1]);
        assert!(marked.iter().all(|grant| grant["would_deny"] == true));
        assert_eq!(all_items(&app, "/v1/grants").await.len(), 5);
        let csv = "/v1/grants/export?format=csv&would_deny=true";
        let csv = app.get(csv).await;
        assert_eq!(csv.text.lines().count(), 4, "{csv:?}");

        // Inactive policies and archived policies refuse claims, as in the other mode.
        app.pause(true).await.is(200);
        problem(&app.claim("member-42", None).await, 409, "policy-inactive");
        app.pause(false).await.is(200);
        // With `mode: enforce`, no further claim fits.
        let put = app.put_policy("benefit", policy(2, "enforce", durability));
        put.await.is(200);
        app.delete_override("member-42").await.is(200);
        let denied = app.claim("member-42", None).await;
        problem(&denied, 429, "quota-exceeded");
        assert_eq!(denied.at("/limits/0/used"), 12);
        let body = json!({ "subject": "member-42", "units": 3 });
        let denied = app.claim_body(body, None).await;
        assert_eq!(invalid_places(&denied), ["#/units"]);
        archive(&app).await;
        problem(&app.claim("member-42", None).await, 404, "unknown-policy");

        books.audit().await;
        books.counters_follow().await;
        no_alarms(&app).await;
    }
}

/// One grant takes all units that can be counted. Further units are refused. The reversal gives
/// exactly the granted units back.
async fn what_cannot_be_counted_is_refused(stack: Stack) {
    for durability in DURABILITIES {
        let ground = Ground::new(stack);
        let app = App::start(&ground).await;
        let books = Books::open(&ground).await;
        app.put_policy("benefit", policy(3, "observe", durability))
            .await;
        let all = json!({ "subject": "member-42", "units": MOST });
        let first = app.claim_body(all.clone(), Some("order-1")).await;
        assert_eq!(granted(&first), (true, [3, MOST, 0]));
        let refuse_all = async || {
            for _ in 0..5 {
                let refused = app.claim_body(all.clone(), None).await;
                assert_eq!(invalid_places(&refused), ["#/units"], "{refused:?}");
                assert!(refused.text.contains(&MOST.to_string()), "{refused:?}");
            }
            for body in [
                json!({ "subject": "member-42", "dry_run": true }),
                json!({ "subject": "member-42", "hold_seconds": 60 }),
            ] {
                let refused = app.claim_body(body, None).await;
                assert_eq!(invalid_places(&refused), ["#/units"], "{refused:?}");
            }
            let body = json!({ "units": 1, "reason": "a test" });
            let refused = app.adjust("member-42", body, None).await;
            assert_eq!(invalid_places(&refused), ["#/units"], "{refused:?}");
            for atomic in [false, true] {
                let claims = ["member-42", "other"]
                    .map(|subject| json!({ "policy": "benefit", "subject": subject }));
                let body = json!({ "atomic": atomic, "claims": claims });
                let items = app.ask("POST /v1/claims", body).await.at("/items");
                let other = if atomic { 424 } else { 201 };
                assert_eq!(items[0]["status"], 422, "{items}");
                assert_eq!(items[1]["status"], other, "{items}");
            }
            // The retry of the grant is not refused.
            let again = app.claim_body(all.clone(), Some("order-1")).await;
            assert_eq!(again.grant_id(), first.grant_id());
        };
        refuse_all().await;
        books.has_recorded("member-42", 1).await;
        refuse_all().await;

        let reversed = app.reverse(&first.grant_id(), "a test").await;
        assert_eq!(reversed.json()["limits"][0]["used"], 0, "{reversed:?}");
        app.put_policy("benefit", policy(3, "enforce", durability))
            .await;
        for used in 1..=3 {
            let claimed = app.claim("member-42", None).await;
            assert_eq!(claimed.json()["limits"][0]["used"], used, "{claimed:?}");
        }
        problem(&app.claim("member-42", None).await, 429, "quota-exceeded");
        books.has_recorded("member-42", 4).await;
        no_alarms(&app).await;
    }
}

/// A longer window can sum more units than can be counted. Then every claim is refused, and a
/// reversal leaves the exact rest.
async fn what_a_longer_window_sums_is_exact(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let put = async |per: &str, max: u64, mode: &str| {
        let limits = json!([{ "max": max, "per": per }]);
        let body =
            json!({ "time_zone": "UTC", "limits": limits, "mode": mode, "reason": "a test" });
        assert!(app.put_policy("benefit", body).await.status.is_success());
    };
    put("day", 3, "observe").await;
    let mut ids = Vec::new();
    for units in [MOST, MOST, MOST - 1] {
        let body = json!({ "subject": "member-42", "units": units });
        let claimed = app.claim_body(body, None).await;
        assert_eq!(claimed.status, 201, "{claimed:?}");
        ids.push(claimed.grant_id());
        clock.advance(chrono::TimeDelta::days(1));
    }
    put("month", 3, "observe").await;
    assert_eq!(used(&app, "benefit", "member-42").await, [3 * MOST - 1]);
    let refused = app.claim("member-42", None).await;
    assert_eq!(invalid_places(&refused), ["#/units"], "{refused:?}");
    for (id, left) in ids.iter().zip([2 * MOST - 1, MOST - 1]) {
        let reversed = app.reverse(id, "a test").await;
        assert_eq!(reversed.json()["limits"][0]["used"], left, "{reversed:?}");
    }
    assert_eq!(
        granted(&app.claim("member-42", None).await),
        (true, [3, MOST, 0])
    );
    put("month", MOST, "enforce").await;
    problem(&app.claim("member-42", None).await, 429, "quota-exceeded");
    no_alarms(&app).await;
}

/// Checks that the ledger agrees with itself, and the counters with the ledger.
async fn no_alarms(app: &App) {
    let report = app.ask("POST /v1/reconciliations", json!({})).await.json();
    assert_eq!(report["alarm_count"], 0, "{report}");
    assert_eq!(report["difference_count"], 0, "{report}");
}
