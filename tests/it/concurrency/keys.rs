//! A retry is safe, any number of times and at any instance.

use reqwest::StatusCode;
use serde_json::json;

use crate::judge::Wish;
use crate::support::app::{
    Answer, App, Stack, eventually, instant, on_every_stack, on_every_store_with_redis,
    on_every_way,
};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::hand::Hand;

on_every_stack!(keys_race_for_the_last_units);
on_every_way!(a_key_at_two_subjects_makes_one_grant);
on_every_store_with_redis!(a_retry_gets_its_grant_whatever_a_counter_says);

/// Claims with a key until the answer is not "in progress".
async fn claim_to_the_end(app: &App, subject: &str, key: &str) -> Answer {
    loop {
        let answer = app.claim(subject, Some(key)).await;
        if answer.status != StatusCode::CONFLICT {
            return answer;
        }
        assert!(answer.text.contains("claim-in-progress"), "{answer:?}");
        tokio::task::yield_now().await;
    }
}

/// Twelve keys with eight clients each, and room for seven. Seven keys are granted, once each. Each
/// other key is denied to all of its clients. No key is denied after its grant.
async fn keys_race_for_the_last_units(stack: Stack) {
    let fleet = Fleet::with_max(stack, 7).await;
    let keys = fleet.wishes(vec![Wish::of("member-42").with_key(); 12]);
    let told = fleet.send_all(96, |client| vec![keys[client / 8]]).await;
    assert_eq!(told[0], 7);
    let stores = fleet.finds_nothing().await;
    let granted = stores.entries.iter().filter_map(|entry| entry.wish);
    let granted: Vec<usize> = granted.collect();
    let again = fleet.send_all(2, |_| granted.clone()).await;
    assert_eq!(again, [0, 2 * 7, 0]);
    fleet.finds_nothing().await;
}

/// One key for two subjects, at two instances, at the same time. One claim is granted. The other
/// claim is refused with the reason, and never granted.
async fn a_key_at_two_subjects_makes_one_grant(stack: Stack) {
    let fleet = &Fleet::with_max(stack, 1000).await;
    let answers = all_at_once(16, |client| async move {
        let app = fleet.app(client);
        let mut answers = Vec::new();
        for round in 0..10 {
            let subject = format!("member-{}", client % 2);
            let key = format!("order-{round}");
            // Another claim, so that the batch is not empty.
            let beside = app.claim(&subject, None).await;
            assert_eq!(beside.status, StatusCode::CREATED, "{beside:?}");
            answers.push((round, claim_to_the_end(&app, &subject, &key).await));
        }
        answers
    })
    .await;
    for round in 0..10 {
        let of_round = answers.iter().flatten().filter(|(of, _)| *of == round);
        let statuses: Vec<StatusCode> = of_round.map(|(_, answer)| answer.status).collect();
        let having = |wanted| statuses.iter().filter(|status| **status == wanted).count();
        assert_eq!(having(StatusCode::CREATED), 1, "{statuses:?}");
        assert_eq!(having(StatusCode::OK), 7, "{statuses:?}");
        assert_eq!(having(StatusCode::UNPROCESSABLE_ENTITY), 8, "{statuses:?}");
    }
    assert_eq!(fleet.finds_nothing().await.entries.len(), 160 + 10);
}

/// A grant of the new day is retried at an instance whose clock is before midnight. The counter
/// lags: it is full, was just confirmed, and has all keys as of its line.
async fn a_retry_gets_its_grant_whatever_a_counter_says(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T23:59:55Z")).await;
    fleet.put("UTC", json!([{ "max": 1, "per": "day" }])).await;
    let with_key = Wish::of("member-42").with_key();
    let [first, second, third] = fleet.wishes(vec![with_key; 3])[..] else {
        panic!("three wishes")
    };
    let [denied] = fleet.wishes(vec![Wish::of("member-42")])[..] else {
        panic!("a wish")
    };
    assert_eq!(fleet.send_all(1, |_| vec![first]).await, [1, 0, 0]);
    // The denial makes a counter for the account. It lives until midnight, in the time of Redis.
    assert_eq!(fleet.send_all(1, |_| vec![denied]).await, [0, 0, 1]);
    let hand = Hand::of(&fleet.ground).await;
    eventually("there is a counter", || async {
        !hand.dump().await.is_empty()
    })
    .await;
    let lagging = hand.dump().await;
    fleet.finds_nothing().await;

    fleet.clock.set(instant("2026-11-22T00:00:00Z"));
    assert_eq!(fleet.send_all(1, |_| vec![second]).await, [1, 0, 0]);
    fleet.finds_nothing().await;

    fleet.clock.set(instant("2026-11-21T23:59:55.5Z"));
    hand.restore(&lagging).await;
    assert_eq!(fleet.send_all(1, |_| vec![second, third]).await, [0, 1, 1]);
}
