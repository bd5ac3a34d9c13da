//! A retry is safe: however often, at whichever instance, and whoever hung up.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::json;

use crate::support::app::{Answer, App, Ground, KEY, NOON, Stack, instant, on_every_stack};
use crate::support::books::Books;
use crate::support::crowd::{Fleet, all_at_once, count};
use crate::support::servers;

on_every_stack!(
    a_key_repeated_at_once_makes_one_grant,
    keys_race_for_the_last_units,
    a_key_at_two_subjects_makes_one_grant,
    a_client_that_hangs_up_changes_nothing,
    a_retry_gets_its_grant_whatever_a_counter_says,
);

/// Claims with a key until the answer is no "in progress".
async fn claim_to_the_end(app: &Arc<App>, subject: &str, key: &str) -> Answer {
    loop {
        let answer = app.claim(subject, Some(key)).await;
        if answer.status != StatusCode::CONFLICT {
            return answer;
        }
        assert!(answer.text.contains("claim-in-progress"), "{answer:?}");
        tokio::task::yield_now().await;
    }
}

async fn a_key_repeated_at_once_makes_one_grant(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 50, "per": "day" }]))
        .await;
    for round in 0..5 {
        let key = format!("order-{round}");
        let answers = all_at_once(20, |client| {
            let (app, key) = (fleet.app(client), key.clone());
            async move { claim_to_the_end(&app, "member-42", &key).await }
        })
        .await;
        assert_eq!(count(&answers, StatusCode::CREATED), 1, "{answers:?}");
        assert_eq!(count(&answers, StatusCode::OK), 19, "{answers:?}");
        let id = answers[0].json()["grant"]["id"].clone();
        for answer in &answers {
            assert_eq!(answer.json()["grant"]["id"], id);
            let replayed = answer.header("Idempotent-Replayed") == Some("true");
            assert_eq!(replayed, answer.status == StatusCode::OK, "{answer:?}");
            assert_eq!(answer.json()["limits"][0]["used"], round + 1);
        }
    }
    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.values().map(Vec::len).sum::<usize>(), 5);
    books.counters_follow().await;
}

/// Twelve keys, four clients each, and room for seven: seven keys are granted, once each, and
/// each of the others is denied to all of its clients.
async fn keys_race_for_the_last_units(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 7, "per": "day" }]))
        .await;
    let mut answers = all_at_once(48, |client| {
        let app = fleet.app(client / 12);
        async move {
            let key = format!("order-{}", client % 12);
            (client % 12, claim_to_the_end(&app, "member-42", &key).await)
        }
    })
    .await;
    answers.sort_by_key(|(key, _)| *key);
    let mut granted = 0;
    for answers in answers.chunk_by(|(one, _), (other, _)| one == other) {
        let statuses: Vec<StatusCode> = answers.iter().map(|(_, answer)| answer.status).collect();
        if statuses.contains(&StatusCode::CREATED) {
            granted += 1;
            // Whoever was denied asked before the grant was made. Nobody is afterwards.
            let key = format!("order-{}", answers[0].0);
            for app in &fleet.apps {
                let retry = claim_to_the_end(app, "member-42", &key).await;
                assert_eq!(retry.status, StatusCode::OK, "{retry:?}");
            }
        } else {
            let denied = |status: &StatusCode| *status == StatusCode::TOO_MANY_REQUESTS;
            assert!(statuses.iter().all(denied), "{statuses:?}");
        }
    }
    assert_eq!(granted, 7);
    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.values().map(Vec::len).sum::<usize>(), 7);
    books.counters_follow().await;
}

/// One key at two subjects, at two instances, at once: the first takes it, and the other is
/// told, never granted.
async fn a_key_at_two_subjects_makes_one_grant(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 1000, "per": "day" }]))
        .await;
    let answers = all_at_once(16, |client| {
        let app = fleet.app(client);
        async move {
            let mut answers = Vec::new();
            for round in 0..10 {
                let subject = format!("member-{}", client % 2);
                let key = format!("order-{round}");
                // Something else for the batch to carry.
                let beside = app.claim(&subject, None).await;
                assert_eq!(beside.status, StatusCode::CREATED, "{beside:?}");
                answers.push((round, claim_to_the_end(&app, &subject, &key).await));
            }
            answers
        }
    })
    .await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    for round in 0..10 {
        let of_round = answers.iter().filter(|(of, _)| *of == round);
        let statuses: Vec<StatusCode> = of_round.map(|(_, answer)| answer.status).collect();
        let having = |wanted| statuses.iter().filter(|status| **status == wanted).count();
        assert_eq!(having(StatusCode::CREATED), 1, "{statuses:?}");
        assert_eq!(having(StatusCode::OK), 7, "{statuses:?}");
        assert_eq!(having(StatusCode::UNPROCESSABLE_ENTITY), 8, "{statuses:?}");
    }
    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.values().map(Vec::len).sum::<usize>(), 160 + 10);
    books.counters_follow().await;
}

/// Clients that send a claim and hang up at once: the claim ends the same way, and a retry
/// finds its grant, or makes it.
async fn a_client_that_hangs_up_changes_nothing(stack: Stack) {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    fleet
        .put("GMT+8", json!([{ "max": 1000, "per": "day" }]))
        .await;
    let answers = all_at_once(24, |client| {
        let app = fleet.app(client);
        async move {
            let mut answers = Vec::new();
            for round in 0..5 {
                let key = format!("order-{client}-{round}");
                send_and_hang_up(&app, "member-42", &key);
                answers.push(claim_to_the_end(&app, "member-42", &key).await);
            }
            answers
        }
    })
    .await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    let granted = count(&answers, StatusCode::CREATED) + count(&answers, StatusCode::OK);
    assert_eq!(granted, 24 * 5, "{answers:?}");
    let books = Books::open(&fleet.ground).await;
    let accounts = books.audit().await;
    assert_eq!(accounts.values().map(Vec::len).sum::<usize>(), 24 * 5);
    books.counters_follow().await;
}

fn send_and_hang_up(app: &App, subject: &str, key: &str) {
    let address = app.url.strip_prefix("http://").expect("an address");
    let body = json!({ "subject": subject }).to_string();
    let request = format!(
        "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: {address}\r\n\
         Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("it is sent");
}

/// A grant of the new day, retried at an instance whose clock has not struck midnight, on a
/// counter that lags: full, confirmed just now, and complete as of its line.
async fn a_retry_gets_its_grant_whatever_a_counter_says(stack: Stack) {
    let fleet = Fleet::start(stack, instant("2026-11-21T23:59:59Z")).await;
    fleet.put("UTC", json!([{ "max": 1, "per": "day" }])).await;
    let books = Books::open(&fleet.ground).await;
    let app = fleet.app(0);
    let first = app.claim("member-42", Some("order-1")).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    // The account gets a counter when a claim is denied.
    let denied = app.claim("member-42", None).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    books.counters_follow().await;
    let lagging = Dump::take(&fleet.ground, &books).await;

    fleet.clock.set(instant("2026-11-22T00:00:00Z"));
    let second = app.claim("member-42", Some("order-2")).await;
    assert_eq!(second.status, StatusCode::CREATED, "{second:?}");
    books.counters_follow().await;

    fleet.clock.set(instant("2026-11-21T23:59:59.5Z"));
    lagging.bring_back(&fleet.ground).await;
    let retry = app.claim("member-42", Some("order-2")).await;
    assert_eq!(retry.status, StatusCode::OK, "{retry:?}");
    assert_eq!(retry.json()["grant"]["id"], second.json()["grant"]["id"]);
    let third = app.claim("member-42", Some("order-3")).await;
    assert_eq!(third.status, StatusCode::TOO_MANY_REQUESTS, "{third:?}");
}

/// A ledger's counters as they were once.
struct Dump(Vec<(String, Vec<u8>)>);

impl Dump {
    async fn take(ground: &Ground, books: &Books) -> Self {
        let Some(mut connection) = connect(ground).await else {
            return Self(Vec::new());
        };
        let ledger = books.ledger.identity().id;
        let names: Vec<String> = redis::cmd("KEYS")
            .arg(format!("perdiem:{{{}:*", ledger.simple()))
            .query_async(&mut connection)
            .await
            .expect("names");
        let mut dump = Vec::new();
        for name in names {
            let mut command = redis::cmd("DUMP");
            let bytes = command.arg(&name).query_async(&mut connection).await;
            dump.push((name, bytes.expect("a dump")));
        }
        assert!(!dump.is_empty());
        Self(dump)
    }

    async fn bring_back(&self, ground: &Ground) {
        let Some(mut connection) = connect(ground).await else {
            return;
        };
        for (name, bytes) in &self.0 {
            let mut command = redis::cmd("RESTORE");
            command
                .arg(name)
                .arg(0)
                .arg(bytes.as_slice())
                .arg("REPLACE");
            let (): () = command
                .query_async(&mut connection)
                .await
                .expect("an answer");
        }
    }
}

async fn connect(ground: &Ground) -> Option<redis::aio::MultiplexedConnection> {
    Some(servers::redis_at(ground.redis_url.as_deref()?).await)
}
