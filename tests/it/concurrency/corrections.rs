//! What is given back is given back once, and can be claimed again: reversals, confirmations and
//! lapses that race each other and claims.

use chrono::TimeDelta;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::judge::Kind;
use crate::support::app::{Answer, App, NOON, Stack, instant, on_every_stack, on_every_way};
use crate::support::crowd::{Fleet, all_at_once, count};

on_every_stack!(
    each_hold_is_confirmed_or_lapses,
    what_is_reversed_can_be_claimed_again,
);
on_every_way!(
    holds_that_end_together_lapse_once,
    an_adjustment_is_entered_once,
    a_retry_after_its_reversal_gets_its_grant,
    usage_where_a_change_is_not_known_yet,
    more_lapses_than_one_draft_takes,
);

const SUBJECT: &str = "member-42";

async fn granted(app: &App, body: Value) -> String {
    let answer = app.claim_body(body, None).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    answer.grant_id()
}

async fn hold(app: &App, seconds: usize) -> String {
    granted(app, json!({ "subject": SUBJECT, "hold_seconds": seconds })).await
}

async fn state(app: &App, grant: &str) -> String {
    let answer = app.get(&format!("/v1/grants/{grant}")).await.json();
    answer["state"].as_str().expect("a state").to_owned()
}

async fn used(app: &App) -> u64 {
    let path = format!("/v1/policies/benefit/subjects/{SUBJECT}");
    let answer = app.get(&path).await;
    answer.json()["limits"][0]["used"].as_u64().expect("units")
}

/// Claims one unit at a time until none is left. Each instance must know at once that what was
/// given back can be claimed.
async fn claim_the_rest(fleet: &Fleet) -> usize {
    let mut granted = 0;
    for client in 0.. {
        let answer = fleet.app(client).claim(SUBJECT, None).await;
        match answer.status {
            StatusCode::CREATED => granted += 1,
            StatusCode::TOO_MANY_REQUESTS => break,
            _ => panic!("{answer:?}"),
        }
    }
    granted
}

/// Whoever was first, all hear the same.
#[track_caller]
fn made_once(answers: &[Answer]) {
    assert_eq!(count(answers, StatusCode::CREATED), 1, "{answers:?}");
    assert_eq!(count(answers, StatusCode::OK), answers.len() - 1);
    for answer in answers {
        assert_eq!(answer.json(), answers[0].json());
    }
}

/// The clock passes each hold's end while two clients confirm it and others claim what it may
/// leave. Either it was confirmed, or it lapsed and one claim has its unit.
async fn each_hold_is_confirmed_or_lapses(stack: Stack) {
    const HOLDS: usize = 24;
    let fleet = Fleet::with_max(stack, HOLDS).await;
    let mut holds = Vec::new();
    for place in 0..HOLDS {
        holds.push(hold(&fleet.app(place), 60 + place).await);
    }
    fleet.clock.advance(TimeDelta::seconds(59));
    let (mut confirmed, mut claimed) = (0, 0);
    for (place, grant) in holds.iter().enumerate() {
        let answers = all_at_once(6, |client| {
            let (app, grant) = (fleet.app(client / 2), grant.clone());
            let clock = fleet.clock.clone();
            async move {
                match client {
                    // After as many confirmations as claims have come, more or less.
                    0 => {
                        app.get("/livez").await;
                        clock.advance(TimeDelta::seconds(1));
                        None
                    }
                    1..4 => Some(app.confirm(&grant).await),
                    _ => Some(app.claim(SUBJECT, None).await),
                }
            }
        });
        let answers: Vec<Answer> = answers.await.into_iter().flatten().collect();
        let (claims, confirmations): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|answer| answer.json().get("outcome").is_some());
        assert_eq!(claims.len(), 2, "{claims:?}");
        let late = count(&confirmations, StatusCode::GONE);
        match late {
            0 => made_once(&confirmations),
            late => assert_eq!(late, confirmations.len(), "{place}: {confirmations:?}"),
        }
        confirmed += usize::from(late == 0);
        claimed += count(&claims, StatusCode::CREATED);
        for app in &fleet.apps {
            let expected = if late == 0 { "granted" } else { "lapsed" };
            assert_eq!(state(app, grant).await, expected);
        }
    }
    claimed += claim_the_rest(&fleet).await;
    assert_eq!(confirmed + claimed, HOLDS);
    let stores = fleet.finds_nothing().await;
    assert_eq!(stores.of_kind(Kind::Confirmation).count(), confirmed);
    assert_eq!(stores.of_kind(Kind::Lapse).count(), HOLDS - confirmed);
}

/// Both instances find the same holds lapsed, before claims, reversals and confirmations of their
/// own.
async fn holds_that_end_together_lapse_once(stack: Stack) {
    const HOLDS: usize = 100;
    let fleet = Fleet::with_max(stack, HOLDS).await;
    for round in 0..3 {
        let holds = all_at_once(HOLDS, |client| {
            let app = fleet.app(client);
            async move { hold(&app, 60).await }
        })
        .await;
        assert_eq!(used(&fleet.app(round)).await, HOLDS as u64);
        fleet.clock.advance(TimeDelta::seconds(60));
        let answers = all_at_once(24, |client| {
            let (app, grant) = (fleet.app(client), holds[client].clone());
            async move {
                match client % 4 {
                    0 => app.confirm(&grant).await,
                    1 => app.reverse(&grant, "too late").await,
                    2 => app.claim(SUBJECT, None).await,
                    _ => {
                        app.get(&format!("/v1/policies/benefit/subjects/{SUBJECT}"))
                            .await
                    }
                }
            }
        })
        .await;
        assert_eq!(count(&answers, StatusCode::GONE), 6, "{answers:?}");
        assert_eq!(count(&answers, StatusCode::CONFLICT), 6, "{answers:?}");
        assert_eq!(count(&answers, StatusCode::CREATED), 6, "{answers:?}");
        assert_eq!(used(&fleet.app(round)).await, 6);
        fleet.clock.advance(TimeDelta::days(1));
    }
    let stores = fleet.finds_nothing().await;
    assert_eq!(stores.of_kind(Kind::Lapse).count(), 3 * HOLDS);
}

/// A full limit, at which half of the clients reverse and the others claim: never over, and in
/// the end not a unit is lost.
async fn what_is_reversed_can_be_claimed_again(stack: Stack) {
    const MAX: usize = 16;
    let fleet = Fleet::with_max(stack, MAX).await;
    let mut grants = Vec::new();
    for place in 0..MAX {
        grants.push(granted(&fleet.app(place), json!({ "subject": SUBJECT })).await);
    }
    let answers = all_at_once(2 * MAX, |client| {
        let (app, grant) = (fleet.app(client / 2), grants[client / 2].clone());
        async move {
            let mut answers = Vec::new();
            match client % 2 {
                0 => answers.push(app.reverse(&grant, "x").await),
                _ => {
                    for _ in 0..6 {
                        answers.push(app.claim(SUBJECT, None).await);
                    }
                }
            }
            answers
        }
    })
    .await;
    let answers: Vec<Answer> = answers.into_iter().flatten().collect();
    let claimed = count(&answers, StatusCode::CREATED) - MAX;
    let denied = count(&answers, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(claimed + denied, 6 * MAX, "{answers:?}");
    assert_eq!(claimed + claim_the_rest(&fleet).await, MAX);
    for app in &fleet.apps {
        assert_eq!(used(app).await, MAX as u64);
    }
    assert_eq!(fleet.finds_nothing().await.entries.len(), 3 * MAX);
}

async fn an_adjustment_is_entered_once(stack: Stack) {
    let fleet = Fleet::with_max(stack, 100).await;
    granted(&fleet.app(0), json!({ "subject": SUBJECT, "units": 50 })).await;
    for (round, units) in [7, -4, 2, -50].into_iter().enumerate() {
        let past = instant(NOON) - TimeDelta::minutes(5);
        let at = [None, Some(past)][round % 2];
        let answers = all_at_once(12, |client| {
            let app = fleet.app(client);
            async move {
                let body = json!({ "units": units, "at": at, "reason": "by hand" });
                let key = format!("adjustment-{round}");
                loop {
                    let answer = app.adjust(SUBJECT, body.clone(), Some(&key)).await;
                    if answer.status != StatusCode::CONFLICT {
                        return answer;
                    }
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
        made_once(&answers);
        fleet.clock.advance(TimeDelta::seconds(1));
    }
    assert_eq!(used(&fleet.app(0)).await, 50 + 7 - 4 + 2 - 50);
    assert_eq!(claim_the_rest(&fleet).await, 95);
    fleet.finds_nothing().await;
}

/// While a grant is reversed, its claim is sent again: never granted anew, and never denied.
async fn a_retry_after_its_reversal_gets_its_grant(stack: Stack) {
    let fleet = Fleet::with_max(stack, 3).await;
    for round in 0..6 {
        let key = format!("order-{round}");
        let body = json!({ "subject": SUBJECT, "units": 3 });
        let first = fleet.app(round).claim_body(body.clone(), Some(&key)).await;
        assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
        let grant = first.grant_id();
        let answers = all_at_once(12, |client| {
            let (app, grant) = (fleet.app(client), grant.clone());
            let (body, key) = (body.clone(), key.clone());
            async move {
                match client {
                    0 => app.reverse(&grant, "x").await,
                    // Somebody else takes what is given back.
                    1 => app.claim_body(body, None).await,
                    _ => app.claim_body(body, Some(&key)).await,
                }
            }
        })
        .await;
        for answer in &answers {
            let is_replay = answer.status == StatusCode::OK;
            assert!(!is_replay || answer.grant_id() == grant, "{answer:?}");
            let is_in_progress = answer.text.contains("claim-in-progress");
            assert!(
                answer.status != StatusCode::CONFLICT || is_in_progress,
                "{answer:?}"
            );
        }
        let made =
            count(&answers, StatusCode::CREATED) + count(&answers, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(made, 2, "{answers:?}");
        for app in &fleet.apps {
            let retry = app.claim_body(body.clone(), Some(&key)).await;
            assert_eq!(retry.status, StatusCode::OK, "{retry:?}");
            assert_eq!(retry.grant_id(), grant);
            assert_eq!(retry.json()["grant"]["state"], "reversed");
            assert_eq!(retry.json()["limits"], first.json()["limits"]);
        }
        fleet.clock.advance(TimeDelta::days(1));
    }
    fleet.finds_nothing().await;
}
/// A hold lapsed under a version of the policy that the other instance may not know yet: its
/// usage is told all the same.
async fn usage_where_a_change_is_not_known_yet(stack: Stack) {
    let fleet = Fleet::with_max(stack, 3).await;
    for round in 1..6 {
        let limits = json!([{ "max": 3 + round, "per": "day" }]);
        let version = fleet.put_quietly("GMT+8", limits).await;
        hold(&fleet.app(0), 60).await;
        fleet.clock.advance(TimeDelta::seconds(60));
        assert_eq!(used(&fleet.app(1)).await, 0);
        let dry = json!({ "subject": SUBJECT, "dry_run": true });
        let answer = fleet.app(1).claim_body(dry, None).await;
        assert_eq!(answer.json()["outcome"], "granted", "{answer:?}");
        fleet.everybody_knows(version).await;
    }
    fleet.finds_nothing().await;
}

/// More holds end at once than lapse in one transaction: all of them do before the next decision,
/// whoever asks for it.
async fn more_lapses_than_one_draft_takes(stack: Stack) {
    const BATCHES: usize = 3;
    const OF_BATCH: usize = 400;
    const ALL: usize = BATCHES * OF_BATCH;
    let fleet = Fleet::with_max(stack, ALL).await;
    let hold = json!({ "policy": "benefit", "subject": SUBJECT, "hold_seconds": 60 });
    let holds = json!({ "claims": vec![hold; OF_BATCH], "atomic": false });
    let answers = all_at_once(BATCHES, |client| {
        let request = fleet.app(client).request(Method::POST, "/v1/claims");
        let request = request.json(&holds);
        async move { Answer::of(request).await }
    })
    .await;
    assert_eq!(count(&answers, StatusCode::OK), BATCHES);
    assert_eq!(used(&fleet.app(1)).await, ALL as u64);
    fleet.clock.advance(TimeDelta::seconds(60));
    assert_eq!(used(&fleet.app(1)).await, 0);
    let claim = json!({ "policy": "benefit", "subject": SUBJECT, "units": ALL });
    let granted = all_at_once(4, |client| {
        let (app, claim) = (fleet.app(client), claim.clone());
        let is_atomic = client % 2 == 0;
        async move {
            let batch = json!({ "claims": [claim], "atomic": is_atomic });
            let request = app.request(Method::POST, "/v1/claims");
            let answer = Answer::of(request.json(&batch)).await;
            answer.json()["items"][0]["status"] == 201
        }
    })
    .await;
    assert_eq!(granted.iter().filter(|granted| **granted).count(), 1);
    assert_eq!(fleet.finds_nothing().await.entries.len(), 2 * ALL + 1);
}
