//! `warn_at`: the entry that brings a limit to a level of use is marked with it, for everybody who reads it.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{all_items, invalid_places};
use crate::support::app::{
    Answer, App, Ground, Stack, eventually, on_every_stack, on_every_store_with_redis,
};
use crate::support::books::Books;

on_every_stack!(
    everybody_sees_the_same_marks,
    each_kind_of_limit_has_levels,
    a_level_is_reached_again_after_units_came_back,
);

on_every_store_with_redis!(a_counted_grant_has_marks,);

fn policy(limits: &Value, levels: &[u64]) -> Value {
    json!({ "time_zone": "UTC", "limits": limits, "warn_at": levels, "reason": "a test" })
}

/// The levels of an answer to a claim.
#[track_caller]
fn crossed(answer: &Answer) -> Value {
    assert!(answer.status.is_success(), "{answer:?}");
    answer.json()["grant"]["crossed"].clone()
}

async fn take(app: &App, subject: &str, units: u64, key: Option<&str>) -> Answer {
    app.claim_body(json!({ "subject": subject, "units": units }), key)
        .await
}

/// The history has every entry once the record has caught up.
async fn history(app: &App, query: &str, count: usize) -> Vec<Value> {
    let path = format!("/v1/entries?policy=benefit{query}");
    eventually("the history has the entries", async || {
        all_items(app, &path).await.len() == count
    })
    .await;
    all_items(app, &path).await
}

async fn everybody_sees_the_same_marks(stack: Stack) {
    let app = App::on(stack).await;
    let limits = json!([{ "max": 5, "per": "day" }, { "max": 100, "per": "month" }]);
    let put = app.put_policy("benefit", policy(&limits, &[100, 80])).await;
    assert_eq!(put.is(201)["warn_at"], json!([80, 100]));
    let mut ids = Vec::new();
    for (number, levels) in [
        (1, json!(null)),
        (2, json!(null)),
        (3, json!(null)),
        (4, json!([80])),
        (5, json!([100])),
    ] {
        let key = format!("k{number}");
        let answer = take(&app, "ann", 1, Some(&key)).await;
        assert_eq!(crossed(&answer), levels, "{number}");
        // A retry is told the same.
        let again = take(&app, "ann", 1, Some(&key)).await;
        assert_eq!(crossed(&again), levels, "{number}");
        ids.push(answer.json()["grant"]["id"].clone());
    }
    // A denial reaches nothing, and one claim can reach several levels.
    take(&app, "ann", 1, None).await.is(429);
    assert_eq!(crossed(&take(&app, "bob", 5, None).await), json!([80, 100]));
    assert_eq!(crossed(&take(&app, "eve", 3, None).await), Value::Null);
    // The grant, the account's list, the history and its files tell the same.
    let id = ids[3].as_str().expect("an id");
    let grant = app.get(&format!("/v1/grants/{id}")).await;
    assert_eq!(grant.is(200)["crossed"], json!([80]));
    let explanation = app.get(&format!("/v1/grants/{id}/explanation")).await;
    let notes = explanation.is(200)["notes"].clone();
    assert_eq!(notes, json!(["it brought a limit to 80 %"]));
    let account = "/v1/policies/benefit/subjects/ann/entries";
    let entries = all_items(&app, account).await;
    let of_account: Vec<&Value> = entries.iter().map(|entry| &entry["crossed"]).collect();
    assert_eq!(of_account[..2], [&json!([100]), &json!([80])]);
    assert!(of_account[2..].iter().all(|levels| levels.is_null()));
    let all = history(&app, "", 7).await;
    let marked = all.iter().filter(|item| !item["crossed"].is_null());
    assert_eq!(marked.count(), 3);
    for (level, subjects) in [
        (80, vec!["ann", "bob"]),
        (100, vec!["ann", "bob"]),
        (50, vec![]),
    ] {
        let found = history(&app, &format!("&crossed={level}"), subjects.len()).await;
        let found: Vec<&str> = found
            .iter()
            .map(|item| item["subject"].as_str().expect("a subject"))
            .collect();
        assert_eq!(found, subjects, "{level}");
    }
    let of_ann = history(&app, "&subject=ann&crossed=80", 1).await;
    assert_eq!(of_ann[0]["id"], ids[3]);
    let csv = app
        .get("/v1/entries/export?format=csv&policy=benefit&crossed=100")
        .await;
    let rows: Vec<&str> = csv.text.lines().collect();
    assert_eq!(rows.len(), 3, "{csv:?}");
    assert!(
        rows[1].contains(r#","100","#) && rows[2].contains(r#","80 100","#),
        "{csv:?}"
    );
    // The metric counts each level of each entry once.
    let metrics = app.get("/metrics").await.text;
    for line in [
        "perdiem_crossed_total{percent=\"80\"} 2",
        "perdiem_crossed_total{percent=\"100\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

async fn each_kind_of_limit_has_levels(stack: Stack) {
    let app = App::on(stack).await;
    for (name, limit) in [
        ("day", json!({ "max": 4, "per": "day" })),
        ("ever", json!({ "max": 4, "per": "ever" })),
        (
            "first",
            json!({ "max": 4, "per": "24h", "kind": "from_first_claim" }),
        ),
        (
            "sliding",
            json!({ "max": 4, "per": "24h", "kind": "sliding" }),
        ),
        (
            "step",
            json!({ "max": 4, "per": "24h", "kind": "sliding", "step": "1h" }),
        ),
        (
            "rate",
            json!({ "max": 1, "per": "24h", "kind": "rate", "burst": 4 }),
        ),
    ] {
        let put = app
            .put_policy(name, policy(&json!([limit]), &[50, 75]))
            .await;
        put.is(201);
        for (units, levels) in [(1, json!(null)), (2, json!([50, 75])), (1, json!(null))] {
            let body = json!({ "subject": "ann", "units": units });
            let answer = app.claim_under(name, body, None).await;
            assert_eq!(crossed(&answer), levels, "{name} {units}");
        }
    }
}

async fn a_level_is_reached_again_after_units_came_back(stack: Stack) {
    let app = App::on(stack).await;
    let limits = json!([{ "max": 10, "per": "day" }]);
    app.put_policy("benefit", policy(&limits, &[80]))
        .await
        .is(201);
    let first = take(&app, "ann", 8, None).await;
    assert_eq!(crossed(&first), json!([80]));
    let id = first.json()["grant"]["id"].clone();
    let path = format!("/v1/grants/{}/reversal", id.as_str().expect("an id"));
    let reversal = app
        .request(Method::POST, &path)
        .json(&json!({ "reason": "a test" }));
    let reversed = Answer::of(reversal).await;
    // What gives units back reaches nothing, and the grant keeps its mark.
    assert_eq!(reversed.is(201)["grant"]["crossed"], json!([80]));
    assert_eq!(crossed(&take(&app, "ann", 7, None).await), Value::Null);
    // An adjustment reaches a level too. An override counts by its own max.
    let adjust = async |subject: &str, units: i64| {
        let path = format!("/v1/policies/benefit/subjects/{subject}/adjustments");
        let body = json!({ "units": units, "reason": "a test" });
        let answer = Answer::of(app.request(Method::POST, &path).json(&body)).await;
        answer.is(201)["crossed"].clone()
    };
    assert_eq!(adjust("ann", 1).await, json!([80]));
    assert_eq!(adjust("ann", 1).await, Value::Null);
    assert_eq!(adjust("ann", -4).await, Value::Null);
    let path = "/v1/policies/benefit/overrides/bob";
    let body = json!({ "limits": [{ "max": 2, "per": "day" }], "reason": "a test" });
    let put = app.request(Method::PUT, path).json(&body);
    Answer::of(put).await.is(201);
    assert_eq!(crossed(&take(&app, "bob", 1, None).await), Value::Null);
    assert_eq!(crossed(&take(&app, "bob", 1, None).await), json!([80]));
    // Units that have refilled since then reach nothing again, and units from before a whole refill can.
    let rate = json!([{ "max": 10, "per": "1000s", "kind": "rate", "burst": 10 }]);
    app.put_policy("rate", policy(&rate, &[50, 80]))
        .await
        .is(201);
    let body = json!({ "subject": "dan", "units": 8 });
    let first = app.claim_under("rate", body, None).await;
    assert_eq!(crossed(&first), json!([50, 80]));
    let granted_at = first.json()["grant"]["granted_at"].clone();
    let granted_at = granted_at.as_str().expect("an instant").parse();
    let granted_at: DateTime<Utc> = granted_at.expect("an instant");
    for (subject, units, ago, levels) in [
        ("dan", 7, 800, Value::Null),
        ("fay", 30, 1500, json!([50, 80])),
    ] {
        let at = granted_at - TimeDelta::seconds(ago);
        let path = format!("/v1/policies/rate/subjects/{subject}/adjustments");
        let body = json!({ "units": units, "at": at, "reason": "a test" });
        let answer = Answer::of(app.request(Method::POST, &path).json(&body)).await;
        assert_eq!(answer.is(201)["crossed"], levels, "{subject}");
    }
    // Without levels nothing is marked; with other ones, what is reached from now on.
    let patch = async |levels: Value| {
        let body = json!({ "warn_at": levels, "reason": "a test" });
        let patch = app
            .request(Method::PATCH, "/v1/policies/benefit")
            .json(&body);
        Answer::of(patch).await.is(200)["warn_at"].clone()
    };
    assert_eq!(patch(json!(null)).await, json!([]));
    assert_eq!(crossed(&take(&app, "eve", 9, None).await), Value::Null);
    assert_eq!(patch(json!([95, 100, 95])).await, json!([95, 100]));
    assert_eq!(crossed(&take(&app, "eve", 1, None).await), json!([95, 100]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_levels_are_told() {
    let app = App::on(Stack::Sqlite).await;
    let limits = json!([{ "max": 10, "per": "day" }]);
    for levels in [
        json!([81]),
        json!([0]),
        json!([101]),
        json!([80, -80]),
        json!([256]),
    ] {
        let body = json!({ "time_zone": "UTC", "limits": limits, "warn_at": levels });
        let answer = app.put_policy("benefit", body).await;
        let places = invalid_places(&answer);
        assert_eq!(places, ["#/warn_at"], "{answer:?}");
        assert!(
            answer.text.contains("50, 60, 70, 75, 80, 90, 95 and 100"),
            "{answer:?}"
        );
    }
    for levels in [json!(80), json!(["80"]), json!([80.5])] {
        let body = json!({ "time_zone": "UTC", "limits": limits, "warn_at": levels });
        let answer = app.put_policy("benefit", body).await;
        assert!(answer.status.is_client_error(), "{answer:?}");
    }
    for level in ["81", "x", "", "80,100"] {
        let answer = app.get(&format!("/v1/entries?crossed={level}")).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.text.contains("percent"), "{answer:?}");
    }
}

/// Redis decides: the answer has the mark, and so has the ledger's entry.
async fn a_counted_grant_has_marks(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    let books = Books::open(&ground).await;
    let policy = json!({
        "time_zone": "UTC",
        "limits": [{ "max": 4, "per": "day" }],
        "durability": "counted",
        "warn_at": [50],
    });
    app.put_policy("benefit", policy).await.is(201);
    for (number, levels) in [json!(null), json!([50]), json!(null)]
        .into_iter()
        .enumerate()
    {
        let key = format!("k{number}");
        let answer = take(&app, "ann", 1, Some(&key)).await;
        assert_eq!(crossed(&answer), levels, "{number}");
        books.has_recorded("ann", number + 1).await;
        assert_eq!(
            crossed(&take(&app, "ann", 1, Some(&key)).await),
            levels,
            "{number}"
        );
    }
    let marked = history(&app, "&crossed=50", 1).await;
    assert_eq!(marked[0]["number"], 2);
}
