//! Denials, and the fields that tell what remains.

use serde_json::json;

use crate::http::{problem, replace};
use crate::support::app::{App, Stack, on_every_stack};

on_every_stack!(a_denial_tells_what_is_used_up_and_when_to_come_again);

async fn a_denial_tells_what_is_used_up_and_when_to_come_again(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    // 12 h 55 min 54.321099 s of the day remain.
    let first = app.claim("member-42", None).await;
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"day\";q=3;w=86400")
    );
    assert_eq!(first.header("ratelimit"), Some("\"day\";r=2;t=46555"));
    assert_eq!(first.header("retry-after"), None);
    app.claim("member-42", None).await;
    let last = app.claim("member-42", None).await;
    assert_eq!(last.json()["limits"][0]["remaining"], 0);
    assert_eq!(last.header("ratelimit"), Some("\"day\";r=0;t=46555"));

    for key in [None, Some("order-1"), None] {
        let denied = app.claim("member-42", key).await;
        problem(&denied, 429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), Some("46555"));
        assert_eq!(
            denied.header("ratelimit-policy"),
            Some("\"day\";q=3;w=86400")
        );
        assert_eq!(denied.header("ratelimit"), Some("\"day\";r=0;t=46555"));
        assert_eq!(
            denied.json(),
            json!({
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Quota exceeded",
                "status": 429,
                "detail": "member-42 has used 3 of 3 for today under benefit; the next window \
                           begins at 2026-11-21T16:00:00Z",
                "outcome": "denied",
                "policy": "benefit",
                "subject": "member-42",
                "violated-policies": ["day"],
                "limits": [{
                    "per": "day", "max": 3, "used": 3, "remaining": 0,
                    "window_start": "2026-11-20T16:00:00Z",
                    "resets_at": "2026-11-21T16:00:00Z",
                }],
            })
        );
    }

    // Whoever waits so long, and not a second less, does not come too early.
    clock.advance(chrono::TimeDelta::seconds(46554));
    let denied = app.claim("member-42", None).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.header("retry-after"), Some("1"));
    clock.advance(chrono::TimeDelta::seconds(1));
    // The denial of a key is not remembered.
    let granted = app.claim("member-42", Some("order-1")).await;
    assert_eq!(granted.status, 201, "{granted:?}");
    assert_eq!(granted.json()["limits"][0]["used"], 1);
}

on_every_stack!(a_denial_under_several_limits_names_all_that_lack_room);

async fn a_denial_under_several_limits_names_all_that_lack_room(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([
        { "max": 2, "per": "hour" }, { "max": 5, "per": "month" }, { "max": 3, "per": "day" },
    ]);
    replace(&app, json!({ "limits": limits })).await;
    let units = |units: u64| json!({ "subject": "member-42", "units": units });
    assert_eq!(app.claim_body(units(2), None).await.status, 201);

    // Only the hour: 55 min 54.3 s remain of it.
    let denied = app.claim("member-42", None).await;
    let told = problem(&denied, 429, "quota-exceeded");
    assert_eq!(told["violated-policies"], json!(["hour"]));
    assert_eq!(denied.header("retry-after"), Some("3355"));
    assert_eq!(
        denied.header("ratelimit-policy"),
        Some("\"hour\";q=2;w=3600, \"month\";q=5;w=2592000, \"day\";q=3;w=86400")
    );
    assert_eq!(
        denied.header("ratelimit"),
        Some("\"hour\";r=0;t=3355, \"month\";r=3;t=824155, \"day\";r=1;t=46555")
    );
    assert!(
        told["detail"]
            .as_str()
            .unwrap()
            .contains("2 of 2 for this hour")
    );

    // Two units: the hour has room again later, and the day has none for both.
    let denied = app.claim_body(units(2), None).await;
    let told = problem(&denied, 429, "quota-exceeded");
    assert_eq!(told["violated-policies"], json!(["hour", "day"]));
    assert_eq!(denied.header("retry-after"), Some("46555"));
    let detail = told["detail"].as_str().unwrap();
    assert!(
        detail.contains("2 of 3 for today under benefit and asks for 2"),
        "{detail}"
    );
    let used: Vec<_> = told["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| &l["used"])
        .collect();
    assert_eq!(used, [2, 2, 2]);

    // The next day: one more of two, so that the month has 2 left.
    clock.advance(chrono::TimeDelta::days(1));
    assert_eq!(app.claim("member-42", None).await.status, 201);
    clock.advance(chrono::TimeDelta::hours(1));
    assert_eq!(app.claim("member-42", None).await.status, 201);
    let denied = app.claim_body(units(2), None).await;
    let told = problem(&denied, 429, "quota-exceeded");
    assert_eq!(told["violated-policies"], json!(["hour", "month", "day"]));
    // The month ends on 30 November at 16:00 UTC: 8 days, 11 h 55 min 54.3 s.
    assert_eq!(denied.header("retry-after"), Some("734155"));
    assert!(
        told["detail"]
            .as_str()
            .unwrap()
            .ends_with("2026-11-30T16:00:00Z")
    );
    // Nothing was counted, and nothing of it reached the ledger.
    let history = app.get("/v1/grants").await.json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(3));
}

on_every_stack!(a_dry_run_changes_nothing);

async fn a_dry_run_changes_nothing(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    let rehearsal = |units: u64| json!({ "subject": "member-42", "units": units, "dry_run": true });
    for key in [None, Some("order-1"), Some("order-1")] {
        let answer = app.claim_body(rehearsal(2), key).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("ratelimit"), Some("\"day\";r=1;t=46555"));
        assert_eq!(answer.header("idempotent-replayed"), None);
        assert_eq!(
            answer.json(),
            json!({
                "outcome": "granted",
                "limits": [{
                    "per": "day", "max": 3, "used": 2, "remaining": 1,
                    "window_start": "2026-11-20T16:00:00Z",
                    "resets_at": "2026-11-21T16:00:00Z",
                }],
            })
        );
    }
    let body = json!({ "subject": "member-42", "units": 2 });
    assert_eq!(app.claim_body(body, Some("order-1")).await.status, 201);
    let answer = app.claim_body(rehearsal(2), None).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    assert_eq!(answer["outcome"], "denied");
    assert_eq!(answer["limits"][0]["used"], 2);
    assert!(answer.get("grant").is_none());
    // What a retry would get, and what another claim with the key would.
    let answer = app.claim_body(rehearsal(2), Some("order-1")).await;
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    let answer = app.claim_body(rehearsal(1), Some("order-1")).await;
    problem(&answer, 422, "idempotency-key-reused");
    let history = app.get("/v1/grants").await.json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(1));
}
