//! A client that follows the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use super::{all_is_recorded, follow, is_the_table, newest};
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::judge::Wish;
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::crowd::Fleet;
use crate::support::desk::on_every_store;
use crate::support::servers::Postgres;

on_every_store!(
    everything_gets_one_position,
    a_list_waits_for_an_entry,
    one_entry_answers_all_followers,
);

async fn everything_gets_one_position(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "UTC").await;
    app.override_day("b", 9).await;
    for subject in ["a", "b", "a", "a", "a"] {
        app.claim(subject, None).await;
    }
    app.override_day("b", 10).await;
    let grant = app.claim("b", None).await.grant_id();
    app.reverse(&grant, "a test").await;
    let body = json!({ "units": 2, "at": "2020-02-29T12:00:00Z", "reason": "a test" });
    app.adjust("c", body, None).await;
    let mut seen = Vec::new();
    let all = all_is_recorded(&app, &ground).await;
    assert_eq!(follow(&app, 0, 0, &mut seen).await, all);
    is_the_table(&seen, &ground).await;
    // Each kind of entry has positions between those of changes.
    let kinds: Vec<_> = seen.iter().map(|item| item["kind"].clone()).collect();
    assert_eq!(kinds.last(), Some(&json!("adjustment")), "{kinds:?}");
    assert_eq!(kinds[kinds.len() - 2], "reversal", "{kinds:?}");
    // As of a position, the list never changes.
    let path = format!("/v1/entries?as_of={all}");
    let then = app.get(&path).await.text;
    app.claim("d", None).await;
    all_is_recorded(&app, &ground).await;
    assert_eq!(app.get(&path).await.text, then);
    drop(app);
    let again = App::start(&ground).await;
    assert_eq!(again.get(&path).await.text, then);
}

async fn a_list_waits_for_an_entry(stack: Stack) {
    let ground = Ground::new(stack);
    let app = Arc::new(App::start(&ground).await);
    app.benefit(3, "UTC").await;
    let after = all_is_recorded(&app, &ground).await;
    let waiting = {
        let app = app.clone();
        let path = format!("/v1/entries?after={after}&wait=30");
        tokio::spawn(async move { app.get(&path).await })
    };
    // A change does not wake a client that waits for entries.
    app.override_day("a", 5).await;
    all_is_recorded(&app, &ground).await;
    assert!(!waiting.is_finished());
    app.claim("a", None).await;
    let list = waiting.await.expect("a list").json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list["items"][0]["position"], after + 2);
}

/// Many clients with one key wait for the next entry. All of them get it, and their reads leave room
/// for others.
async fn one_entry_answers_all_followers(stack: Stack) {
    const FOLLOWERS: usize = 1000;
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "UTC").await;
    let after = all_is_recorded(&app, &ground).await;
    let path = format!("/v1/entries?policy=benefit&after={after}&wait=30");
    let followers: Vec<_> = (0..FOLLOWERS)
        .map(|_| {
            let request = app.request(Method::GET, &path);
            tokio::spawn(Answer::of(request))
        })
        .collect();
    eventually("all of them wait", || async {
        let metrics = app.get("/metrics").await.text;
        metrics.contains(&format!("\nperdiem_requests_waiting {FOLLOWERS}\n"))
    })
    .await;
    let began = Instant::now();
    app.claim("a", None).await.is(201);
    let others = app.get("/v1/entries?limit=1").await;
    let mut texts = Vec::new();
    for follower in followers {
        let answer = follower.await.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        texts.push(answer.text);
    }
    let list: serde_json::Value = serde_json::from_str(&texts[0]).expect("JSON");
    assert_eq!(list["items"][0]["position"], after + 1, "{list}");
    let differ = texts.iter().filter(|text| **text != texts[0]).count();
    assert_eq!(differ, 0, "{FOLLOWERS} answers");
    assert_eq!(others.status, 200, "{others:?}");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

/// Two instances grant under load. A transaction in another database of the same cluster is open
/// for some time. The record waits for the transaction, and misses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_misses_nothing_while_a_transaction_is_open() {
    let postgres = Postgres::start();
    let ground = Ground::of_database(postgres.create_database());
    let fleet = Fleet::on(&[&ground; 2], instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 1000, "per": "day" }]))
        .await;
    let stop = AtomicBool::new(false);
    let has_ended = AtomicBool::new(false);
    let claim = |dice: &mut crate::support::dice::Dice| Wish::of(&format!("m-{}", dice.below(40)));
    let app = fleet.app(0);
    let other = fleet.app(1);
    let load = fleet.load(6, &stop, claim);
    let feed = async {
        let mut seen = Vec::new();
        let mut after = 0;
        loop {
            let is_last = has_ended.load(Ordering::SeqCst);
            after = follow(&other, after, 0, &mut seen).await;
            if is_last {
                return seen;
            }
        }
    };
    let disturbance = async {
        let sql = "CREATE TABLE t (i int); BEGIN; INSERT INTO t VALUES (1); SELECT pg_sleep(3600)";
        let mut open = postgres.begin("postgres", sql);
        for app in [&app, &other] {
            lag_is(app, "the record falls behind", |lag| lag > 1.0).await;
        }
        let behind = newest(&app).await;
        open.kill().expect("the end of psql");
        open.wait().expect("psql ended");
        let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
            WHERE query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()";
        postgres.execute("postgres", end);
        for app in [&app, &other] {
            lag_is(app, "the record catches up", |lag| lag < 1.0).await;
        }
        assert!(newest(&app).await > behind);
        stop.store(true, Ordering::SeqCst);
    };
    let ended = async {
        tokio::join!(load, disturbance);
        all_is_recorded(&app, &ground).await;
        has_ended.store(true, Ordering::SeqCst);
    };
    let (seen, ()) = tokio::join!(feed, ended);
    is_the_table(&seen, &ground).await;
    are_sums_of_the_entries(&app).await;
    fleet.finds_nothing().await;
}

async fn lag_is(app: &App, what: &str, is_so: impl Fn(f64) -> bool) {
    let is_so = &is_so;
    eventually(what, || async move {
        let metrics = Answer::of(app.request(Method::GET, "/metrics")).await.text;
        let mut lines = metrics.lines();
        let lag = lines.find_map(|line| line.strip_prefix("perdiem_record_lag_seconds "));
        is_so(lag.expect("a lag").parse().expect("a number"))
    })
    .await;
}
