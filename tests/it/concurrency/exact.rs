//! Exactly the limit is granted, whoever asks, and what is denied costs nothing.

use reqwest::StatusCode;
use serde_json::json;

use crate::support::app::{NOON, Stack, instant, on_every_stack};
use crate::support::books::Books;
use crate::support::crowd::{Fleet, all_at_once, count};

on_every_stack!(
    fifty_grants_for_sixty_four_clients,
    many_subjects_at_once,
    units_fill_a_limit_exactly,
    midnight_under_load,
    denials_cost_nothing,
);

/// 64 clients, four claims each, on one subject with a limit of 50.
async fn fifty_grants_for_sixty_four_clients(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 50, "per": "day" }]))
        .await;
    let answers = all_at_once(64, |client| {
        let app = fleet.app(client);
        async move {
            let mut answers = Vec::new();
            for _ in 0..4 {
                answers.push(app.claim("member-42", None).await);
            }
            answers
        }
    })
    .await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(count(&answers, StatusCode::CREATED), 50);
    assert_eq!(count(&answers, StatusCode::TOO_MANY_REQUESTS), 64 * 4 - 50);
    let mut used: Vec<u64> = answers
        .iter()
        .filter(|answer| answer.status == StatusCode::CREATED)
        .map(|answer| answer.json()["limits"][0]["used"].as_u64().expect("used"))
        .collect();
    used.sort_unstable();
    assert_eq!(used, (1..=50).collect::<Vec<u64>>());

    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    let grants = accounts.values().next().expect("an account");
    assert_eq!((accounts.len(), grants.len()), (1, 50));
    for (grant, number) in grants.iter().zip(1..) {
        let line = &grant.entry.line;
        assert_eq!((line.number, line.totals[0].used), (number, number));
    }
    books.counters_follow().await;
}

/// Many accounts share each batch: who loses in one must not carry the others along.
async fn many_subjects_at_once(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 3, "per": "day" }]))
        .await;
    let answers = all_at_once(64, |client| {
        let app = fleet.app(client);
        async move {
            let mut answers = Vec::new();
            for subject in 0..20 {
                let subject = (subject + client * 7) % 20;
                answers.push(app.claim(&format!("member-{subject}"), None).await);
            }
            answers
        }
    })
    .await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(count(&answers, StatusCode::CREATED), 60);
    assert_eq!(count(&answers, StatusCode::TOO_MANY_REQUESTS), 64 * 20 - 60);
    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.len(), 20);
    assert!(accounts.values().all(|grants| grants.len() == 3));
    books.counters_follow().await;
}

/// Claims of 1 to 5 units at once: whoever fits is granted, so that in the end not even one
/// unit fits.
async fn units_fill_a_limit_exactly(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let limits = json!([{ "max": 60, "per": "hour" }, { "max": 70, "per": "day" }]);
    fleet.put("Asia/Kolkata", limits).await;
    let fill = || {
        all_at_once(32, |client| {
            let app = fleet.app(client);
            async move {
                let mut taken = 0;
                for units in [5, 4, 3, 2, 1, 1] {
                    let body = json!({ "subject": "member-42", "units": units });
                    let answer = app.claim_body(body, None).await;
                    match answer.status {
                        StatusCode::CREATED => taken += units,
                        StatusCode::TOO_MANY_REQUESTS => {}
                        _ => panic!("{answer:?}"),
                    }
                }
                taken
            }
        })
    };
    assert_eq!(fill().await.into_iter().sum::<u64>(), 60);
    // The next hour has room for 60, the day for 10.
    fleet.clock.advance(chrono::TimeDelta::hours(1));
    assert_eq!(fill().await.into_iter().sum::<u64>(), 10);
    let books = Books::open(&fleet.ground).await;
    books.audit().await;
    books.counters_follow().await;
}

/// The clock passes three midnights while clients claim: each day gives exactly its `max`.
async fn midnight_under_load(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T15:59:59.9Z")).await;
    fleet
        .put("GMT+8", json!([{ "max": 20, "per": "day" }]))
        .await;
    let clock = fleet.clock.clone();
    let answers = all_at_once(24, |client| {
        let app = fleet.app(client);
        let clock = clock.clone();
        async move {
            let mut granted = 0;
            for turn in 0..40 {
                // Ten times, a tenth of a day each, spread over the load.
                if client == 0 && turn % 4 == 3 {
                    clock.advance(chrono::TimeDelta::minutes(240));
                }
                let answer = app.claim("member-42", None).await;
                match answer.status {
                    StatusCode::CREATED => granted += 1,
                    StatusCode::TOO_MANY_REQUESTS => {}
                    _ => panic!("{answer:?}"),
                }
            }
            granted
        }
    })
    .await;
    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    let grants = accounts.values().next().expect("an account");
    assert_eq!(grants.len(), answers.into_iter().sum::<usize>());
    let mut days = std::collections::BTreeMap::new();
    for grant in grants {
        let window = grant.entry.line.totals[0].window;
        *days.entry(window.start).or_insert(0) += 1;
    }
    assert!(days.values().all(|granted| *granted <= 20), "{days:?}");
    // The last day has room until it is asked for more than 20.
    let mut last = 0;
    while fleet.app(last).claim("member-42", None).await.status == StatusCode::CREATED {
        last += 1;
    }
    let usage = fleet.apps[0].get("/v1/policies/benefit/subjects/member-42");
    assert_eq!(usage.await.json()["limits"][0]["used"], 20);
    books.audit().await;
    books.counters_follow().await;
}

async fn denials_cost_nothing(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 2, "per": "day" }]))
        .await;
    for client in 0..2 {
        let answer = fleet.app(client).claim("member-42", None).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
    let books = Books::open(&fleet.ground).await;
    let before = books.audit().await;
    books.counters_follow().await;
    let answers = all_at_once(32, |client| {
        let app = fleet.app(client);
        async move {
            let key = format!("key-{client}");
            let key = (client % 2 == 0).then_some(key.as_str());
            app.claim("member-42", key).await
        }
    })
    .await;
    assert_eq!(count(&answers, StatusCode::TOO_MANY_REQUESTS), 32);
    for answer in &answers {
        assert_eq!(answer.json()["limits"][0]["used"], 2, "{answer:?}");
    }
    assert_eq!(books.audit().await, before);
    // Not counted either: the raise leaves room for exactly as much as it says.
    fleet
        .put("GMT+8", json!([{ "max": 4, "per": "day" }]))
        .await;
    for client in 0..2 {
        // A denial is not remembered: the same key may be granted later.
        let key = format!("key-{}", client * 2);
        let answer = fleet.app(client).claim("member-42", Some(&key)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
    let answer = fleet.app(0).claim("member-42", None).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    books.counters_follow().await;
}
