//! The usage of a subject.

use serde_json::json;

use crate::http::{encoded, replace};
use crate::support::app::{App, Stack};
use crate::support::desk::on_every_store;

on_every_store!(usage_is_what_the_ledger_tells, subjects_are_any_text);

async fn usage_is_what_the_ledger_tells(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let limits = json!([{ "max": 3, "per": "day" }, { "max": 4, "per": "month" }]);
    replace(&app, json!({ "limits": limits })).await;
    let usage = async || {
        app.get("/v1/policies/benefit/subjects/member-42")
            .await
            .is(200)
    };
    let expected = |used: u64| {
        json!({
            "policy": "benefit", "policy_version": 1, "time_zone": "Asia/Shanghai",
            "subject": "member-42", "has_entries": used > 0,
            "limits": [{
                "per": "day", "kind": "calendar", "max": 3, "used": used, "remaining": 3 - used,
                "window_start": "2026-11-20T16:00:00Z", "more_at": "2026-11-21T16:00:00Z", "resets_at": "2026-11-21T16:00:00Z",
            }, {
                "per": "month", "kind": "calendar", "max": 4, "used": used, "remaining": 4 - used,
                "window_start": "2026-10-31T16:00:00Z", "more_at": "2026-11-30T16:00:00Z", "resets_at": "2026-11-30T16:00:00Z",
            }],
        })
    };
    assert_eq!(usage().await, expected(0));
    let body = json!({ "subject": "member-42", "units": 2 });
    app.claim_body(body, None).await.is(201);
    assert_eq!(usage().await, expected(2));
    // A lower max gives no units back.
    replace(&app, json!({ "limits": [{ "max": 1, "per": "day" }] })).await;
    let usage = usage().await;
    assert_eq!(usage["policy_version"], 2);
    assert_eq!(
        ["used", "remaining"].map(|name| &usage["limits"][0][name]),
        [2, 0]
    );
}

async fn subjects_are_any_text(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "GMT+8").await;
    let long = "\u{1f600}".repeat(64);
    let subjects = [
        "a/b",
        "a%2Fb",
        "a%252Fb",
        "ä %2F?#+",
        "a+b",
        "a b",
        "=1+1",
        "%",
        "%00",
        "...",
        "a\\b",
        "'; DROP TABLE entries; --",
        "é",
        "\u{5d0}\u{5d1}",
        "{subject}",
        "NULL",
        long.as_str(),
    ];
    let with_units = || [1, 2, 3].into_iter().cycle().zip(subjects);
    for (units, subject) in with_units() {
        let body = json!({ "subject": subject, "units": units });
        let claimed = app.claim_body(body, None).await;
        assert_eq!(claimed.status, 201, "{subject}: {claimed:?}");
        assert_eq!(claimed.json()["grant"]["subject"], subject);
    }
    for (units, subject) in with_units() {
        let path = format!("/v1/policies/benefit/subjects/{}", encoded(subject));
        let usage = app.get(&path).await;
        assert_eq!(usage.status, 200, "{subject}: {usage:?}");
        assert_eq!(usage.json()["subject"], subject);
        assert_eq!(usage.json()["limits"][0]["used"], units, "{subject}");
        let path = format!("/v1/grants?subject={}", encoded(subject));
        let found = app.get(&path).await.json();
        let found = found["items"].as_array().expect("items");
        assert_eq!(found.len(), 1, "{subject}");
        assert_eq!(found[0]["subject"], subject);
    }
}
