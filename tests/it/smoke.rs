//! One subject's day, on every stack.

use reqwest::StatusCode;

use crate::support::app::{App, Stack, on_every_stack};

on_every_stack!(three_a_day_and_no_more);

async fn three_a_day_and_no_more(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "GMT+8").await;
    for used in 1..=3 {
        let answer = app.claim("member-42", None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        assert_eq!(answer.json()["limits"][0]["used"], used);
    }
    let answer = app.claim("member-42", None).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    let history = app.get("/v1/grants?policy=benefit").await.json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(3));
    clock.advance(chrono::TimeDelta::hours(13));
    let answer = app.claim("member-42", None).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
}
