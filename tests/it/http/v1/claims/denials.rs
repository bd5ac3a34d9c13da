//! Denied claims, and the header fields that show what remains.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::http::{items, problem, replace};
use crate::support::app::{Answer, App, Stack, on_every_stack};

on_every_stack!(
    a_denial_tells_what_is_used_up_and_when_to_come_again,
    a_denial_under_several_limits_names_all_that_lack_room,
    a_dry_run_changes_nothing,
);

/// The limit of a day in Shanghai, with these units used.
fn day(used: u64) -> Value {
    json!({
        "per": "day", "kind": "calendar", "max": 3, "used": used, "remaining": 3 - used,
        "window_start": "2026-11-20T16:00:00Z",
        "more_at": "2026-11-21T16:00:00Z", "resets_at": "2026-11-21T16:00:00Z",
    })
}

#[track_caller]
fn has_fields(answer: &Answer, policy: &str, remaining: &str) {
    assert_eq!(answer.header("ratelimit-policy"), Some(policy));
    assert_eq!(answer.header("ratelimit"), Some(remaining));
}

async fn a_denial_tells_what_is_used_up_and_when_to_come_again(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    let policy = "\"day\";q=3;w=86400";
    // 12 h 55 min 54.321099 s of the day remain.
    let first = app.claim("member-42", None).await;
    has_fields(&first, policy, "\"day\";r=2;t=46555");
    assert_eq!(first.header("retry-after"), None);
    app.claim("member-42", None).await;
    let last = app.claim("member-42", None).await;
    assert_eq!(last.at("/limits/0/remaining"), 0);
    has_fields(&last, policy, "\"day\";r=0;t=46555");

    for key in [None, Some("order-1"), None] {
        let denied = app.claim("member-42", key).await;
        problem(&denied, 429, "quota-exceeded");
        assert_eq!(denied.header("retry-after"), Some("46555"));
        has_fields(&denied, policy, "\"day\";r=0;t=46555");
        let expected = json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "code": "quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "member-42 has used 3 of 3 for today under benefit; the next window \
                       begins at 2026-11-21T16:00:00Z",
            "page": "/docs/problems#quota-exceeded",
            "request_id": denied.header("x-request-id"),
            "outcome": "denied",
            "policy": "benefit",
            "subject": "member-42",
            "fits_at": "2026-11-21T16:00:00Z",
            "violated-policies": ["day"],
            "limits": [day(3)],
        });
        assert_eq!(denied.json(), expected);
    }

    // `Retry-After` is exact: one second earlier, the claim is still denied.
    clock.advance(TimeDelta::seconds(46554));
    let denied = app.claim("member-42", None).await;
    problem(&denied, 429, "quota-exceeded");
    assert_eq!(denied.header("retry-after"), Some("1"));
    clock.advance(TimeDelta::seconds(1));
    // A denied claim does not use up its `Idempotency-Key`.
    let granted = app.claim("member-42", Some("order-1")).await.is(201);
    assert_eq!(granted["limits"][0]["used"], 1);
}

async fn a_denial_under_several_limits_names_all_that_lack_room(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let limits = json!([
        { "max": 2, "per": "hour" }, { "max": 5, "per": "month" }, { "max": 3, "per": "day" },
    ]);
    replace(&app, json!({ "limits": limits })).await;
    let claim = async |units: u64| {
        let body = json!({ "subject": "member-42", "units": units });
        app.claim_body(body, None).await
    };
    let is_denied = async |units: u64, limits: Value, seconds: &str, words: &str| {
        let denied = claim(units).await;
        let told = problem(&denied, 429, "quota-exceeded");
        assert_eq!(told["violated-policies"], limits);
        assert_eq!(denied.header("retry-after"), Some(seconds));
        let detail = told["detail"].as_str().expect("a detail");
        assert!(detail.contains(words), "{detail}");
        denied
    };
    claim(2).await.is(201);

    // Only the hour is full. 55 min 54.3 s of the hour remain.
    let denied = is_denied(1, json!(["hour"]), "3355", "2 of 2 for this hour").await;
    has_fields(
        &denied,
        "\"hour\";q=2;w=3600, \"month\";q=5;w=2592000, \"day\";q=3;w=86400",
        "\"hour\";r=0;t=3355, \"month\";r=3;t=824155, \"day\";r=1;t=46555",
    );
    // A claim of two units: the hour is full, and the day has room for one unit.
    let words = "2 of 3 for today under benefit and asks for 2";
    let denied = is_denied(2, json!(["hour", "day"]), "46555", words).await;
    for limit in 0..3 {
        assert_eq!(denied.at(&format!("/limits/{limit}/used")), 2);
    }
    // The next day: two claims later each limit has room for one unit. The month ends last, on 30
    // November at 16:00 UTC: in 8 days, 11 h 55 min 54.3 s.
    clock.advance(TimeDelta::days(1));
    claim(1).await.is(201);
    clock.advance(TimeDelta::hours(1));
    claim(1).await.is(201);
    let all = json!(["hour", "month", "day"]);
    is_denied(2, all, "734155", "2026-11-30T16:00:00Z").await;
    // The denied claims took nothing and added no entry.
    assert_eq!(items(&app.get("/v1/grants").await).len(), 3);
}

async fn a_dry_run_changes_nothing(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    let rehearse = async |units: u64, key: Option<&str>| {
        let body = json!({ "subject": "member-42", "units": units, "dry_run": true });
        app.claim_body(body, key).await
    };
    for key in [None, Some("order-1"), Some("order-1")] {
        let answer = rehearse(2, key).await;
        let expected = json!({ "outcome": "granted", "limits": [day(2)] });
        assert_eq!(answer.is(200), expected);
        assert_eq!(answer.header("ratelimit"), Some("\"day\";r=1;t=46555"));
        assert_eq!(answer.header("idempotent-replayed"), None);
    }
    let body = json!({ "subject": "member-42", "units": 2 });
    app.claim_body(body, Some("order-1")).await.is(201);
    let answer = rehearse(2, None).await.is(200);
    let fits_at = "2026-11-21T16:00:00Z";
    let expected = json!({ "outcome": "denied", "fits_at": fits_at, "limits": [day(2)] });
    assert_eq!(answer, expected);
    // A dry run with a used key shows the answer to a retry, and the fault of another claim.
    let answer = rehearse(2, Some("order-1")).await;
    assert_eq!(answer.header("idempotent-replayed"), Some("true"));
    let answer = rehearse(1, Some("order-1")).await;
    problem(&answer, 422, "idempotency-key-reused");
    assert_eq!(items(&app.get("/v1/grants").await).len(), 1);
}
