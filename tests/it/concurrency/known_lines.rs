//! An instance knows the last line of an account to which it has appended.

use std::cell::Cell;

use reqwest::StatusCode;

use crate::support::app::{App, Stack, eventually, on_every_way};

on_every_way!(a_claim_after_ones_own_asks_nobody);

/// How often an instance went through a stage.
async fn times(app: &App, stage: &str) -> u64 {
    let text = app.get("/metrics").await.text;
    let name = format!("perdiem_stage_seconds_count{{stage=\"{stage}\"}}");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&name));
    lines.next().map_or(0, |count| {
        count.trim().parse::<f64>().expect("a number") as u64
    })
}

async fn a_claim_after_ones_own_asks_nobody(stack: Stack) {
    let app = App::on(stack).await;
    app.benefit(3, "UTC").await;
    let subject = Cell::new(0);
    // The loop is needed because an instance on a slow machine may forget the first line.
    eventually("the second and third claim ask nobody", || async {
        subject.set(subject.get() + 1);
        let subject = format!("member-{}", subject.get());
        let mut asked = 0;
        for number in 1..=3 {
            let answer = app
                .claim(&subject, Some(&format!("{subject}-{number}")))
                .await;
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
            assert_eq!(answer.json()["limits"][0]["used"], number);
            if number == 1 {
                asked = times(&app, "ask").await + times(&app, "look").await;
            }
        }
        times(&app, "ask").await + times(&app, "look").await == asked
    })
    .await;
}
