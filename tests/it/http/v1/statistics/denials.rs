//! Denied claims in the figures, the first denials of a subject, and wrong input.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::v1::keys::{make_role, with};
use crate::http::{all_items, invalid_places, items, problem};
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;

on_every_store!(
    denials_are_counted_and_the_first_ones_kept,
    denials_of_all_subjects_are_listed,
);

async fn denials_are_counted_and_the_first_ones_kept(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(1, "Asia/Shanghai").await;
    for _ in 0..4 {
        app.claim("a", Some("a key")).await;
        app.claim("a", None).await;
    }
    app.claim_body(json!({ "subject": "a", "dry_run": true }), None)
        .await;
    let claims = json!([
        { "policy": "benefit", "subject": "a" },
        { "policy": "benefit", "subject": "b" },
    ]);
    for atomic in [true, false] {
        let batch = json!({ "claims": claims, "atomic": atomic });
        let batch = app.request(Method::POST, "/v1/claims").json(&batch);
        assert_eq!(batch.send().await.expect("an answer").status(), 200);
    }
    let denied = async |app: &App| {
        let days = items(&app.get("/v1/stats?policy=benefit&from=2026-11-21").await);
        let denied = days
            .iter()
            .map(|day| day["denied_claims"].as_u64().expect("a number"));
        denied.collect::<Vec<_>>()
    };
    eventually("the denials are counted", || async {
        denied(&app).await == [6]
    })
    .await;
    let path = "/v1/policies/benefit/subjects/a/denials";
    let first = items(&app.get(path).await);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["denied_at"], NOON);
    assert_eq!(
        (&first[0]["units"], &first[0]["per"]),
        (&json!(1), &json!("day"))
    );
    assert_eq!(first[0]["limits"][0]["used"], 1);
    clock.advance(TimeDelta::days(1));
    app.claim("a", None).await;
    app.claim("a", None).await;
    // The instance writes the remaining counts when it ends.
    drop(app);
    let app = App::start_at(&ground, &clock).await;
    assert_eq!(denied(&app).await, [6, 1]);
    app.claim("a", None).await;
    eventually("the denial after the restart is counted", || async {
        denied(&app).await == [6, 2]
    })
    .await;
    assert_eq!(all_items(&app, &format!("{path}?limit=1")).await.len(), 2);
    // The first denials are deleted after 30 days.
    clock.advance(TimeDelta::days(31));
    eventually("the first denials are forgotten", || async {
        items(&app.get(path).await).is_empty()
    })
    .await;
    assert_eq!(denied(&app).await, [6, 2]);
}

#[tokio::test]
async fn of_many_first_denials_some_are_only_counted() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(1, "UTC").await;
    let subjects: Vec<String> = (0..130).map(|number| format!("m-{number}")).collect();
    let claims: Vec<Value> = subjects
        .iter()
        .map(|subject| json!({ "policy": "benefit", "subject": subject }))
        .collect();
    for _ in 0..2 {
        let batch = app.request(Method::POST, "/v1/claims");
        let batch = batch.json(&json!({ "claims": claims }));
        assert_eq!(batch.send().await.expect("an answer").status(), 200);
    }
    eventually("the denials are counted", || async {
        let days = items(&app.get("/v1/stats").await);
        days.iter()
            .any(|day| day["denied_claims"] == 130 && day["denials_not_kept"] == 30)
    })
    .await;
}

#[tokio::test]
async fn bad_input_is_told_with_its_place() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(1, "UTC").await;
    for (query, places) in [
        ("from=2026-11-31", &["from"][..]),
        ("from=2026-11-21T00:00:00Z", &["from"]),
        (
            "recorded_from=2&recorded_to=3",
            &["recorded_from", "recorded_to"],
        ),
        ("policy=A", &["policy"]),
    ] {
        let answer = app.get(&format!("/v1/stats?{query}")).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert_eq!(invalid_places(&answer), places, "{query}");
    }
    // An archived policy has statistics, an unknown policy has none.
    let unknown = app.get("/v1/stats?policy=none").await.is(404);
    assert_eq!(unknown["detail"], "there is no policy none: check the name");
    assert_eq!(
        app.get("/v1/policies/none/subjects/a/denials").await.status,
        404
    );
    let clerk = make_role(&app, "audit", Some("benefit")).await;
    for (path, status) in [
        ("/v1/stats", 403),
        ("/v1/stats?policy=benefit", 200),
        ("/v1/policies/benefit/subjects/a/denials", 200),
    ] {
        let asked = with(&app, &clerk.secret, Method::GET, path).send().await;
        assert_eq!(asked.expect("an answer").status(), status, "{path}");
    }
    let shop = make_role(&app, "claim", None).await;
    let asked = with(&app, &shop.secret, Method::GET, "/v1/stats")
        .send()
        .await;
    assert_eq!(asked.expect("an answer").status(), 403);
}

async fn denials_of_all_subjects_are_listed(stack: Stack) {
    // 11:04 on the 21st in Shanghai.
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(1, "Asia/Shanghai").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    app.put_policy("other", rule).await.is(201);
    for subject in ["a", "b"] {
        app.claim(subject, None).await.is(201);
        app.claim(subject, None).await.is(429);
        clock.advance(TimeDelta::minutes(1));
    }
    app.claim("c", None).await.is(201);
    app.claim("c", None).await.is(429);
    let body = json!({ "subject": "b" });
    for status in [201, 429] {
        app.claim_under("other", body.clone(), None)
            .await
            .is(status);
    }
    clock.advance(TimeDelta::days(1));
    app.override_day("d", 1).await;
    app.claim("d", None).await.is(201);
    app.claim("d", None).await.is(429);

    let found = async |query: &str| {
        let denials = items(&app.get(&format!("/v1/denials{query}")).await);
        let names = denials.iter().map(|denial| {
            let subject = denial["subject"].as_str().unwrap_or("-");
            format!("{} {subject}", denial["policy"].as_str().expect("a name"))
        });
        names.collect::<Vec<_>>()
    };
    eventually("the denials are stored", async || {
        found("").await.len() == 5
    })
    .await;
    let all = found("").await;
    let [newest, .., oldest] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!((&**newest, &**oldest), ("benefit d", "benefit a"));
    let of_policy = ["benefit d", "benefit c", "benefit b", "benefit a"];
    assert_eq!(found("?policy=benefit").await, of_policy);
    assert_eq!(found("?policy=benefit&on=2026-11-21").await, of_policy[1..]);
    assert_eq!(
        found("?policy=benefit&from=2026-11-22").await,
        of_policy[..1]
    );
    let first = format!("?policy=benefit&to={}", "2026-11-21T03:05:00Z");
    assert_eq!(found(&first).await, of_policy[3..]);
    assert_eq!(found("?policy=other").await, ["other b"]);
    // Page by page, each of them once.
    let paged = all_items(&app, "/v1/denials?limit=1").await;
    assert_eq!(paged, items(&app.get("/v1/denials").await));
    // A list of a subject has the same.
    let of_subject = items(&app.get("/v1/policies/benefit/subjects/a/denials").await);
    assert_eq!(of_subject[0]["limits"], paged[4]["limits"]);
    for (query, place) in [
        ("on=2026-11-21", "on"),
        ("from=today&policy=benefit", "from"),
        ("policy=B", "policy"),
        ("limit=0", "limit"),
    ] {
        let wrong = app.get(&format!("/v1/denials?{query}")).await;
        assert_eq!(invalid_places(&wrong), [place], "{query}");
    }
    problem(
        &app.get("/v1/denials?policy=none").await,
        404,
        "unknown-policy",
    );
    // An erased subject has no denials.
    let path = "POST /v1/subjects/b/erasure";
    app.ask(path, json!({ "reason": "asked for" }))
        .await
        .is(200);
    eventually("the denials are erased", async || {
        found("").await.len() == 3
    })
    .await;
    // A key of one policy must name it.
    let key = make_role(&app, "audit", Some("other")).await.secret;
    for (query, status) in [("?policy=other", 200), ("", 403), ("?policy=benefit", 403)] {
        let path = format!("GET /v1/denials{query}");
        app.ask_as(&key, &path, Value::Null).await.is(status);
    }
}
