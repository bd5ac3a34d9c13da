//! Parts of grants: a confirmation of some units of a hold, and reversals of some units of a grant.

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::http::{all_items, problem, replace};
use crate::support::app::{Answer, App, Stack, on_every_stack};
use crate::support::command_line::command;

on_every_stack!(
    what_is_not_settled_returns_at_the_confirmation,
    a_grant_is_reversed_in_parts_each_once,
    parts_race_and_never_give_back_more_than_was_granted,
    a_hold_that_lapses_gives_back_what_is_left,
);

const ENTRIES: &str = "/v1/policies/benefit/subjects/a/entries?limit=100";

async fn rule(app: &App) {
    let limits = json!([
        { "max": 1000, "per": "day" },
        { "max": 1000, "per": "24h", "kind": "sliding", "step": "1h" },
        { "max": 1000, "per": "23h", "kind": "from_first_claim" },
    ]);
    replace(app, json!({ "limits": limits })).await;
}

async fn grant(app: &App, units: u64, hold_seconds: Option<u64>) -> String {
    let body = json!({ "subject": "a", "units": units, "hold_seconds": hold_seconds });
    let answer = app.claim_body(body, None).await;
    answer.is(201);
    answer.grant_id()
}

async fn seen(app: &App, id: &str) -> Value {
    app.get(&format!("/v1/grants/{id}")).await.json()
}

/// Every reader tells the same usage: the limits, the statistics, and the entries.
async fn used(app: &App, expected: i64) {
    let usage = app.get("/v1/policies/benefit/subjects/a").await.json();
    for limit in usage["limits"].as_array().expect("limits") {
        assert_eq!(limit["used"], expected, "{usage}");
    }
    let entries = all_items(app, ENTRIES).await;
    let added = entries
        .iter()
        .map(|entry| entry["units"].as_i64().expect("units"));
    assert_eq!(added.sum::<i64>(), expected);
    are_sums_of_the_entries(app).await;
    let request = app.request(reqwest::Method::POST, "/v1/reconciliations");
    let report = Answer::of(request.json(&json!({ "apply": false }))).await;
    let report = report.json();
    let faults = (&report["alarm_count"], &report["difference_count"]);
    assert_eq!(faults, (&json!(0), &json!(0)), "{report}");
}

/// Reserve 800, settle 300.
async fn what_is_not_settled_returns_at_the_confirmation(stack: Stack) {
    let app = App::on(stack).await;
    rule(&app).await;
    let hold = grant(&app, 800, Some(60)).await;
    problem(&app.confirm_units(&hold, Some(801)).await, 422, "invalid");
    problem(&app.confirm_units(&hold, Some(0)).await, 422, "invalid");
    let confirmed = app.confirm_units(&hold, Some(300)).await;
    confirmed.is(201);
    assert_eq!(confirmed.at("/limits/0/used"), 300);
    assert_eq!(confirmed.at("/grant/confirmation/units"), 300);
    assert_eq!(confirmed.at("/grant/returned_units"), 500);
    for units in [Some(300), None] {
        let again = app.confirm_units(&hold, units).await;
        assert_eq!(
            (again.status.as_u16(), again.at("/limits/0/used")),
            (200, json!(300))
        );
    }
    let other = problem(&app.confirm_units(&hold, Some(299)).await, 422, "invalid");
    let detail = other["errors"][0]["detail"].as_str().expect("a detail");
    assert!(detail.contains("confirmed with 300 units"), "{detail}");
    used(&app, 300).await;
    // What was confirmed can be reversed, and nothing more.
    app.reverse(&hold, "a refund").await.is(201);
    let seen = seen(&app, &hold).await;
    assert_eq!(
        (&seen["state"], &seen["returned_units"]),
        (&json!("reversed"), &json!(500))
    );
    used(&app, 0).await;
}

async fn a_grant_is_reversed_in_parts_each_once(stack: Stack) {
    let app = App::on(stack).await;
    rule(&app).await;
    let id = grant(&app, 10, None).await;
    let body = json!({ "units": 3, "reason": "a test" });
    let no_key = app
        .ask(&format!("POST /v1/grants/{id}/reversal"), body)
        .await;
    let told = problem(&no_key, 422, "invalid");
    assert_eq!(told["errors"][0]["parameter"], "Idempotency-Key");
    for status in [201, 200, 200] {
        let part = app.reverse_units(&id, 3, "a test", "refund-1").await;
        assert_eq!(
            (part.status.as_u16(), part.at("/limits/0/used")),
            (status, json!(7))
        );
        assert_eq!(part.at("/grant/state"), "granted");
        assert_eq!(part.at("/grant/returned_units"), 3);
    }
    let reused = app.reverse_units(&id, 4, "a test", "refund-1").await;
    problem(&reused, 422, "idempotency-key-reused");
    problem(
        &app.claim("a", Some("refund-1")).await,
        422,
        "idempotency-key-reused",
    );
    problem(
        &app.reverse_units(&id, 8, "a test", "refund-2").await,
        422,
        "invalid",
    );
    used(&app, 7).await;
    let said = command(
        &app,
        &format!("reverse {id} --units 2 --idempotency-key refund-3 --reason x"),
    )
    .await;
    assert_eq!(said.code, 0, "{said:?}");
    used(&app, 5).await;
    // The rest, and then nothing is left.
    app.reverse_units(&id, 5, "a test", "refund-4")
        .await
        .is(201);
    app.reverse_units(&id, 5, "a test", "refund-4")
        .await
        .is(200);
    assert_eq!(seen(&app, &id).await["state"], "reversed");
    problem(
        &app.reverse_units(&id, 1, "a test", "refund-5").await,
        409,
        "grant-reversed",
    );
    app.reverse(&id, "again").await.is(200);
    used(&app, 0).await;
    let entries = all_items(&app, ENTRIES).await;
    let reversals = entries.iter().filter(|entry| {
        entry["kind"]
            .as_str()
            .expect("a kind")
            .ends_with("reversal")
    });
    let mut units: Vec<i64> = reversals
        .map(|one| one["units"].as_i64().expect("units"))
        .collect();
    units.sort_unstable();
    assert_eq!(units, [-5, -3, -2]);
}

async fn parts_race_and_never_give_back_more_than_was_granted(stack: Stack) {
    let app = App::on(stack).await;
    rule(&app).await;
    let id = grant(&app, 10, None).await;
    let keys: Vec<String> = (0..16)
        .map(|number| format!("part-{}", number / 2))
        .collect();
    let parts = join_all(
        keys.iter()
            .map(|key| app.reverse_units(&id, 3, "a test", key)),
    )
    .await;
    let new = parts.iter().filter(|part| part.status == 201).count();
    assert_eq!(new, 3, "{parts:?}");
    assert_eq!(seen(&app, &id).await["returned_units"], 9);
    used(&app, 1).await;
}

async fn a_hold_that_lapses_gives_back_what_is_left(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    rule(&app).await;
    let hold = grant(&app, 10, Some(60)).await;
    let part = app.reverse_units(&hold, 4, "a test", "part").await;
    assert_eq!(
        (part.status.as_u16(), part.at("/grant/state")),
        (201, json!("held"))
    );
    used(&app, 6).await;
    clock.advance(TimeDelta::seconds(61));
    grant(&app, 1, None).await;
    used(&app, 1).await;
    problem(
        &app.reverse_units(&hold, 1, "a test", "late").await,
        410,
        "hold-lapsed",
    );
    // The first part is still answered.
    app.reverse_units(&hold, 4, "a test", "part").await.is(200);
    let entries = all_items(&app, ENTRIES).await;
    let mut lapses = entries.iter().filter(|entry| entry["kind"] == "lapse");
    assert_eq!(lapses.next().expect("a lapse")["units"], -6);
}
