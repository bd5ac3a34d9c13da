//! The limits that a policy can have, and the answer to each wrong limit.

use serde_json::{Value, json};

use crate::http::invalid_parts;
use crate::support::app::{App, Stack};
use crate::support::desk::on_every_store;

on_every_store!(
    limits_come_back_as_they_were_put,
    an_override_changes_the_max_alone
);

async fn limits_come_back_as_they_were_put(stack: Stack) {
    let app = App::on(stack).await;
    let put = json!([
        { "max": 3, "per": "day", "kind": "calendar" },
        { "max": 1, "per": "ever" },
        { "max": 5, "per": "7d", "kind": "from_first_claim" },
        { "max": 1, "per": "60s", "kind": "sliding" },
        { "max": 500, "per": "24h", "kind": "sliding", "step": "3600s" },
        { "max": 10, "per": "1s", "kind": "rate", "burst": 20 },
        { "max": 10, "per": "2s", "kind": "rate" },
        { "max": 5, "per": "15m", "kind": "calendar" },
        { "max": 80, "per": "02 weeks", "from": "2026-01-05" },
    ]);
    let told = json!([
        { "max": 3, "per": "day" },
        { "max": 1, "per": "ever" },
        { "max": 5, "per": "168h", "kind": "from_first_claim" },
        { "max": 1, "per": "1m", "kind": "sliding" },
        { "max": 500, "per": "24h", "kind": "sliding", "step": "1h" },
        { "max": 10, "per": "1s", "kind": "rate", "burst": 20 },
        { "max": 10, "per": "2s", "kind": "rate" },
        { "max": 5, "per": "15m", "kind": "calendar" },
        { "max": 80, "per": "2 weeks", "from": "2026-01-05" },
    ]);
    let rule = json!({ "time_zone": "UTC", "limits": put });
    assert_eq!(
        app.put_policy("benefit", rule).await.is(201)["limits"],
        told
    );
    let found = app.get("/v1/policies/benefit").await;
    assert_eq!(found.is(200)["limits"], told);
    // Limits that were read can be put again. Nothing changes.
    let again = json!({ "time_zone": "UTC", "limits": told, "reason": "the same" });
    assert_eq!(app.put_policy("benefit", again).await.is(200)["version"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_limit_is_told() {
    let app = App::on(Stack::Sqlite).await;
    let sliding = |max: u64, per: &str| json!({ "max": max, "per": per, "kind": "sliding" });
    let rate = |max: u64, per: &str, burst: Value| json!({ "max": max, "per": per, "kind": "rate", "burst": burst });
    for (limit, pointer, words) in [
        (
            json!({ "max": 5, "per": "24h" }),
            "kind",
            "from_first_claim",
        ),
        (json!({ "max": 5, "per": "24h" }), "kind", "sliding"),
        (json!({ "max": 5, "per": "24h" }), "kind", "rate"),
        (
            json!({ "max": 5, "per": "24h", "kind": "calendar" }),
            "per",
            "\"day\"",
        ),
        (
            json!({ "max": 5, "per": "7h", "kind": "calendar" }),
            "per",
            "does not divide a day",
        ),
        (
            json!({ "max": 5, "per": "2 weeks" }),
            "from",
            "\"2026-01-05\"",
        ),
        (
            json!({ "max": 5, "per": "2 weeks", "from": "5 January" }),
            "from",
            "\"2026-01-05\"",
        ),
        (
            json!({ "max": 5, "per": "week", "from": "2026-01-05" }),
            "from",
            "leave it out",
        ),
        (
            json!({ "max": 5, "per": "1 weeks", "from": "2026-01-05" }),
            "per",
            "2 weeks",
        ),
        (
            json!({ "max": 5, "per": "day", "kind": "sliding" }),
            "kind",
            "\"24h\"",
        ),
        (
            json!({ "max": 5, "per": "ever", "kind": "rate" }),
            "kind",
            "leave kind out",
        ),
        (
            json!({ "max": 5, "per": "24h", "kind": "leaky" }),
            "kind",
            "write calendar, from_first_claim",
        ),
        (
            json!({ "max": 5, "per": "0s", "kind": "rate" }),
            "per",
            "from 1s to 400d",
        ),
        (
            json!({ "max": 5, "per": "401d", "kind": "rate" }),
            "per",
            "from 1s to 400d",
        ),
        (json!({ "max": 5, "per": "fortnight" }), "per", "24h"),
        (
            json!({ "max": 5, "per": "day", "step": "1h" }),
            "step",
            "leave it out",
        ),
        (
            json!({ "max": 5, "per": "day", "burst": 9 }),
            "burst",
            "leave it out",
        ),
        (
            json!({ "max": 5, "per": "24h", "kind": "sliding", "step": "7h" }),
            "step",
            "such as 15m",
        ),
        (
            json!({ "max": 5, "per": "24h", "kind": "sliding", "step": "1m" }),
            "step",
            "write 15m or longer",
        ),
        (
            json!({ "max": 5, "per": "24h", "kind": "sliding", "step": "a" }),
            "step",
            "such as 90s",
        ),
        (
            json!({ "max": 5, "per": "24h", "kind": "sliding", "burst": 9 }),
            "burst",
            "leave it out",
        ),
        (sliding(101, "24h"), "max", "\"15m\""),
        (rate(10, "1s", json!(0)), "burst", "from 1"),
        (rate(1_000_001, "1s", Value::Null), "max", "1000000"),
        (rate(1, "400d", json!(11)), "burst", "write 10 at most"),
    ] {
        let rule = json!({ "time_zone": "UTC", "limits": [limit] });
        let parts = invalid_parts(&app.put_policy("benefit", rule).await);
        let found: Vec<&str> = parts.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(found, [format!("#/limits/0/{pointer}")], "{limit}");
        assert!(parts[0].1.contains(words), "{limit}: {parts:?}");
    }
    // Each entry keeps the totals of all limits, so their number has a bound.
    let with_limits = |count: u64| {
        let limits: Vec<Value> = (1..=count)
            .map(|hours| sliding(1, &format!("{hours}h")))
            .collect();
        json!({ "time_zone": "UTC", "limits": limits })
    };
    app.put_policy("ten", with_limits(10)).await.is(201);
    let parts = invalid_parts(&app.put_policy("eleven", with_limits(11)).await);
    assert_eq!(parts[0].0, "#/limits");
    assert!(parts[0].1.contains("at most 10"), "{parts:?}");
    for (one, other) in [("24h", "1d"), ("60s", "1m"), ("24h", "24h")] {
        let rule =
            json!({ "time_zone": "UTC", "limits": [sliding(1, one), rate(2, other, json!(3))] });
        let parts = invalid_parts(&app.put_policy("benefit", rule).await);
        assert_eq!(parts[0].0, "#/limits/1/per");
        assert!(parts[0].1.contains("keep one of them"), "{parts:?}");
    }
    assert_eq!(app.get("/v1/policies/benefit").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_counts_windows_of_the_calendar_alone() {
    let app = App::on(Stack::RedisAndSqlite).await;
    for limit in [
        json!({ "max": 5, "per": "ever" }),
        json!({ "max": 5, "per": "24h", "kind": "sliding" }),
        json!({ "max": 5, "per": "24h", "kind": "from_first_claim" }),
        json!({ "max": 5, "per": "24h", "kind": "rate" }),
    ] {
        let rule = json!({
            "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }, limit],
            "durability": "counted", "on_ledger_outage": "count",
        });
        let parts = invalid_parts(&app.put_policy("benefit", rule).await);
        let [(durability, detail), (outage, _)] = &parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!([durability, outage], ["#/durability", "#/on_ledger_outage"]);
        let per = limit["per"].as_str().expect("a name");
        assert!(
            detail.contains(per) && detail.contains("write recorded"),
            "{detail}"
        );
    }
}

async fn an_override_changes_the_max_alone(stack: Stack) {
    let app = App::on(stack).await;
    super::put(
        &app,
        json!([
            { "max": 5, "per": "24h", "kind": "sliding" },
            { "max": 10, "per": "1s", "kind": "rate", "burst": 20 },
        ]),
    )
    .await;
    let limits = json!({ "limits": [{ "max": 7, "per": "1d" }, { "max": 1, "per": "1s" }] });
    let told = app.put_override(super::SUBJECT, limits).await;
    let expected = json!([{ "max": 7, "per": "24h" }, { "max": 1, "per": "1s" }]);
    assert_eq!(told.is(201)["limits"], expected);
    assert_eq!(super::claim(&app, 1).await.status, 201);
    let limits = json!({ "limits": [{ "max": 101, "per": "24h" }, { "max": 1, "per": "1h" }], "reason": "a test" });
    let parts = invalid_parts(&app.put_override(super::SUBJECT, limits).await);
    let found: Vec<&str> = parts.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(found, ["#/limits/0/max", "#/limits/1/per"]);
    let limits =
        json!({ "limits": [{ "max": 7, "per": "24h", "kind": "sliding" }], "reason": "a test" });
    let answer = app.put_override(super::SUBJECT, limits).await;
    crate::http::problem(&answer, 400, "malformed");
}
