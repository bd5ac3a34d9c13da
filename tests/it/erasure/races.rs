//! Claims and their retries continue while their subjects are erased and their windows end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{all_are_past, erase};
use crate::http::problem;
use crate::judge::judge_ledger;
use crate::support::app::{
    Answer, NOON, Stack, eventually, instant, on_every_store_with_redis, on_every_way,
};
use crate::support::crowd::Fleet;
use crate::support::dice::Dice;
use crate::support::direct::Direct;

on_every_way!(claims_go_on_while_their_subjects_are_erased);
on_every_store_with_redis!(counted_claims_go_on_while_their_subjects_are_erased);

const CLIENTS: usize = 8;
const SUBJECTS: usize = 5;
const MAX: usize = 3;
/// How often accounts get other ids before the clients stop.
const REPLACED: usize = 4;

/// A granted claim.
struct Granted {
    subject: String,
    key: String,
    id: String,
    window: DateTime<Utc>,
}

#[derive(Default)]
struct Told {
    granted: Mutex<Vec<Granted>>,
    replaced: AtomicUsize,
    /// The first of the subjects that claim now.
    youngest: AtomicUsize,
}

async fn client(fleet: &Fleet, told: &Told, number: usize) {
    let mut dice = Dice::of(16, number);
    let mut acts = 0;
    while told.replaced.load(Ordering::Relaxed) < REPLACED {
        acts += 1;
        assert!(acts < 20_000, "accounts do not get other ids");
        let app = fleet.app(dice.below(2));
        // Subjects come and go, so that their accounts have times without claims.
        let youngest = told.youngest.load(Ordering::Relaxed);
        let subject = format!("member-{}", youngest + dice.below(SUBJECTS));
        match dice.below(100) {
            0..60 => claim(fleet, told, &subject, &format!("{number}-{acts}"), number).await,
            60..85 => retry(fleet, told, &mut dice).await,
            85..97 => {
                let erased = erase(&app, &subject, "a test").await;
                // 503: queued grants in Redis can name the subject.
                assert!(
                    matches!(erased.status.as_u16(), 200 | 404 | 503),
                    "{erased:?}"
                );
            }
            _ if number == 0 => {
                fleet.clock.advance(TimeDelta::minutes(20));
                told.youngest.fetch_add(1, Ordering::Relaxed);
                let sql = "SELECT CAST(erasures AS text) FROM ledger";
                let replaced = Direct::to(&fleet.ground).await.texts(sql).await;
                let replaced = replaced[0].parse().expect("a number");
                told.replaced.store(replaced, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

async fn claim(fleet: &Fleet, told: &Told, subject: &str, key: &str, number: usize) {
    let body = json!({ "subject": subject, "metadata": { "key": key } });
    let answer = fleet.app(number).claim_body(body, Some(key)).await;
    match answer.status {
        StatusCode::CREATED => {
            let answer = answer.json();
            let window = answer["limits"][0]["window_start"]
                .as_str()
                .expect("a window");
            told.granted.lock().expect("no panic").push(Granted {
                subject: subject.to_owned(),
                key: key.to_owned(),
                id: answer["grant"]["id"].as_str().expect("an id").to_owned(),
                window: instant(window),
            });
        }
        StatusCode::TOO_MANY_REQUESTS => {}
        _ => panic!("{answer:?}"),
    }
}

/// Sends a claim again that was granted in the last day.
async fn retry(fleet: &Fleet, told: &Told, dice: &mut Dice) {
    let now = perdiem::host::clock::Clock::Manual(fleet.clock.clone()).now();
    let chosen = {
        let granted = told.granted.lock().expect("no panic");
        let recent = granted
            .iter()
            .rev()
            .take_while(|it| it.window > now - TimeDelta::days(1));
        let recent: Vec<_> = recent.collect();
        let Some(chosen) = recent.get(dice.below(recent.len().max(1))) else {
            return;
        };
        (
            chosen.subject.clone(),
            chosen.key.clone(),
            chosen.id.clone(),
        )
    };
    let (subject, key, id) = chosen;
    let body = json!({ "subject": subject, "metadata": { "key": key } });
    let answer = fleet.app(dice.below(2)).claim_body(body, Some(&key)).await;
    if answer.status == StatusCode::CONFLICT {
        // Another client sends the same claim at the same time.
        problem(&answer, 409, "claim-in-progress");
        return;
    }
    assert_eq!(answer.status, 200, "{subject} {key} {answer:?}");
    assert_eq!(answer.grant_id(), id);
}

async fn claims_go_on_while_their_subjects_are_erased(stack: Stack) {
    all_goes_on(stack, "recorded").await;
}

async fn counted_claims_go_on_while_their_subjects_are_erased(stack: Stack) {
    all_goes_on(stack, "counted").await;
}

async fn all_goes_on(stack: Stack, durability: &str) {
    let fleet = Arc::new(Fleet::start(stack, instant(NOON)).await);
    let limits = json!([{ "max": MAX, "per": "hour" }]);
    let rule = json!({ "time_zone": "GMT+8", "limits": limits, "durability": durability });
    let version = fleet.put_body(rule).await;
    fleet.everybody_knows(version).await;
    let told = Arc::new(Told::default());
    let clients = (0..CLIENTS).map(|number| {
        let fleet = fleet.clone();
        let told = told.clone();
        tokio::spawn(async move { client(&fleet, &told, number).await })
    });
    let clients: Vec<_> = clients.collect();
    for client in clients {
        client.await.expect("a client without a fault");
    }

    // No subject got more than the limit, under all ids of its account.
    let granted = std::mem::take(&mut *told.granted.lock().expect("no panic"));
    let mut units: BTreeMap<(&str, DateTime<Utc>), usize> = BTreeMap::new();
    for it in granted.iter() {
        *units.entry((&it.subject, it.window)).or_default() += 1;
    }
    let over: Vec<_> = units.iter().filter(|(_, units)| **units > MAX).collect();
    assert!(over.is_empty(), "{over:?}");
    // The ledger has each grant once, also the grants that were queued in Redis.
    eventually("every grant is in the ledger", || async {
        fleet.ground.stores().await.entries.len() >= granted.len()
    })
    .await;
    let stores = fleet.ground.stores().await;
    let stored: BTreeSet<String> = stores.entries.iter().map(|it| it.id.to_string()).collect();
    assert_eq!(stored.len(), granted.len());
    assert!(granted.iter().all(|it| stored.contains(&it.id)));
    assert_eq!(judge_ledger(&stores), []);

    // The rest is erased when its time has come.
    fleet.clock.advance(TimeDelta::hours(60));
    all_are_past(&fleet.ground, 4, &fleet.clock).await;
    let app = fleet.app(0);
    let check = app.request(Method::POST, "/v1/reconciliations");
    let report = Answer::of(check.json(&json!({ "apply": false })))
        .await
        .json();
    assert_eq!(report["difference_count"], 0, "{report}");
    assert_eq!(judge_ledger(&fleet.ground.stores().await), []);
}
