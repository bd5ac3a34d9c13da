//! An instance knows the last line of an account that it appended to itself.

use std::cell::Cell;

use reqwest::StatusCode;

use crate::support::app::{Answer, App, Ground, Stack, eventually, on_every_way};
use crate::support::books::Books;

on_every_way!(
    a_claim_after_ones_own_asks_nobody,
    an_old_line_is_found_out,
    a_retry_is_no_new_claim,
);

/// How often an instance went through a stage.
async fn times(app: &App, stage: &str) -> u64 {
    let text = app.get("/metrics").await.text;
    let name = format!("perdiem_stage_seconds_count{{stage=\"{stage}\"}}");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&name));
    lines.next().map_or(0, |count| {
        count.trim().parse::<f64>().expect("a number") as u64
    })
}

fn used(answer: &Answer) -> u64 {
    answer.json()["limits"][0]["used"].as_u64().expect("used")
}

async fn a_claim_after_ones_own_asks_nobody(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "UTC").await;
    let subject = Cell::new(0);
    // Not for long: a machine that stops for a while may forget the first line.
    eventually("the second and third claim ask nobody", || async {
        subject.set(subject.get() + 1);
        let subject = format!("member-{}", subject.get());
        let mut asked = 0;
        for number in 1..=3 {
            let answer = app
                .claim(&subject, Some(&format!("{subject}-{number}")))
                .await;
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
            assert_eq!(used(&answer), number);
            if number == 1 {
                asked = times(&app, "ask").await + times(&app, "look").await;
            }
        }
        times(&app, "ask").await + times(&app, "look").await == asked
    })
    .await;
}

async fn an_old_line_is_found_out(stack: Stack) {
    let ground = Ground::new(stack);
    let one = App::start(&ground).await;
    one.benefit(5, "UTC").await;
    let other = App::start(&ground).await;
    for (app, number) in [(&one, 1), (&other, 2), (&one, 3), (&one, 4), (&other, 5)] {
        let answer = app.claim("member-42", None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        assert_eq!(used(&answer), number);
    }
    for app in [&one, &other] {
        let answer = app.claim("member-42", None).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    }
    let books = Books::open(&ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.values().map(Vec::len).sum::<usize>(), 5);
}

async fn a_retry_is_no_new_claim(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(30, "UTC").await;
    let keys: Vec<String> = (0..12).map(|number| format!("key-{number}")).collect();
    let mut granted = Vec::new();
    for key in &keys {
        let answer = app.claim("member-42", Some(key)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        granted.push(answer.json()["grant"]["id"].clone());
    }
    for (key, id) in keys.iter().zip(granted) {
        let answer = app.claim("member-42", Some(key)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(answer.json()["grant"]["id"], id);
    }
}
