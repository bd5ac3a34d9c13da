//! Reports are stored and listed, and a wrong request is refused.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{PATH, Scene, nothing_differs, post, reconcile};
use crate::support::app::{App, Stack, eventually, on_every_stack};
use crate::support::desk::on_every_store;

on_every_stack!(reports_are_kept_and_listed);
on_every_store!(one_at_a_time, it_goes_on_when_the_client_leaves);

async fn reports_are_kept_and_listed(stack: Stack) {
    let scene = Scene::live(stack).await;
    scene.grants("member-42", 2).await;
    let mut reports = Vec::new();
    for apply in [false, true, false, true, false] {
        reports.push(nothing_differs(&scene.app, apply).await);
    }
    reports.reverse();
    for report in &reports {
        let id = report["id"].as_str().expect("an id");
        let kept = scene.app.get(&format!("{PATH}/{id}")).await;
        assert_eq!(kept.status, StatusCode::OK);
        assert_eq!(kept.json(), *report);
    }
    // Newest first, without their differences.
    let summaries: Vec<Value> = reports
        .iter()
        .map(|report| {
            let mut summary = report.clone();
            summary
                .as_object_mut()
                .expect("an object")
                .remove("differences");
            summary
        })
        .collect();
    let whole = scene.app.get(PATH).await.json();
    assert_eq!(whole, json!({ "items": summaries, "next_cursor": null }));
    // Reports are still there after the instance has stopped.
    let other = App::start(&scene.ground).await;
    let kept = other.get(&format!("{PATH}?limit=1000")).await.json();
    assert_eq!(kept["items"].as_array().expect("items").len(), 5);
    // Without `apply`, a reconciliation only reports.
    let made = other.ask("POST /v1/reconciliations", json!({})).await;
    assert_eq!(made.is(201)["apply"], false);
    let location = made.header("location").expect("a place");
    assert_eq!(other.get(location).await.is(200), made.json());
    let unknown = format!("{PATH}/0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42");
    assert_eq!(other.get(&unknown).await.status, StatusCode::NOT_FOUND);
}

/// Makes a counter lag. The lag is certain only after some time.
async fn lag(scene: &Scene) {
    scene.grants("member-42", 2).await;
    let name = scene.counter_of("member-42");
    let _: i64 = scene.run(&["HSET", &name, "number", "1"]).await;
}

async fn one_at_a_time(stack: Stack) {
    let scene = Scene::live(super::with_redis(stack)).await;
    lag(&scene).await;
    let (one, other) = tokio::join!(post(&scene.app, false), post(&scene.app, false));
    let (done, refused) = match one.status {
        StatusCode::CREATED => (one, other),
        _ => (other, one),
    };
    assert_eq!(done.status, StatusCode::CREATED, "{done:?}");
    assert_eq!(refused.status, StatusCode::CONFLICT, "{refused:?}");
    let problem = refused.json();
    assert_eq!(problem["type"], "/docs/problems#reconciliation-in-progress");
    assert!(refused.header("retry-after").is_some());
    // The refused request leaves no report, and the next one is accepted.
    assert_eq!(
        scene.app.get(PATH).await.json()["items"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let report = reconcile(&scene.app, true).await;
    assert_eq!(report["healed_count"], 1, "{report}");
}

async fn it_goes_on_when_the_client_leaves(stack: Stack) {
    let scene = Scene::live(super::with_redis(stack)).await;
    lag(&scene).await;
    let request = scene.app.request(Method::POST, PATH);
    let client = tokio::spawn(request.json(&json!({ "apply": true })).send());
    eventually("the reconciliation has begun", || async {
        let reports = scene.app.get(PATH).await.json();
        let report = &reports["items"][0];
        report.is_object() && report["finished_at"].is_null() && report["counters"].is_null()
    })
    .await;
    client.abort();
    eventually("the report is finished", || async {
        let reports = scene.app.get(PATH).await.json();
        let report = &reports["items"][0];
        report["finished_at"].is_string() && report["healed_count"] == 1
    })
    .await;
    eventually("another reconciliation is accepted", || async {
        let answer = post(&scene.app, false).await;
        answer.status == StatusCode::CREATED && answer.json()["difference_count"] == 0
    })
    .await;
}
