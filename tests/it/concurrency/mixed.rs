//! Everything at once: claims, holds, confirmations, reversals, adjustments, batches, overrides and
//! changes of the policy, which observes now and then, by many clients at every instance, while
//! the clock moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use perdiem::domain::grant::EntryKind;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::app::{Answer, App, NOON, Stack, instant, on_every_stack};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::dice::Dice;

on_every_stack!(everything_at_once);

const CLIENTS: usize = 16;
const ACTS: usize = 30;
const SUBJECTS: usize = 3;

/// What clients were told.
#[derive(Default)]
struct Told {
    granted: BTreeSet<Uuid>,
    /// The body of each reversal, and of each confirmation: whoever asks gets the same.
    reversed: BTreeMap<Uuid, Value>,
    confirmed: BTreeMap<Uuid, Value>,
    lapsed: BTreeSet<Uuid>,
    /// How often something was said to be made now.
    made: usize,
}

/// One of the clients.
struct Client {
    number: usize,
    fleet: Arc<Fleet>,
    told: Arc<Mutex<Told>>,
    dice: Dice,
}

fn id_of(grant: &Value) -> Uuid {
    let text = grant["id"].as_str().expect("an id");
    text.parse().expect("a UUID")
}

impl Client {
    fn app(&mut self) -> Arc<App> {
        let number = self.dice.below(2);
        self.fleet.app(number)
    }

    fn subject(&mut self) -> String {
        format!("member-{}", self.dice.below(SUBJECTS))
    }

    /// A grant that somebody was told of, the newest ones more often.
    fn choose(&mut self) -> Option<Uuid> {
        let told = self.told.lock().expect("nobody panicked");
        let granted: Vec<Uuid> = told.granted.iter().rev().take(30).copied().collect();
        drop(told);
        let place = self.dice.below(granted.len().max(1));
        granted.get(place).copied()
    }

    fn body(&mut self) -> Value {
        let mut body = json!({ "subject": self.subject(), "units": self.dice.between(1, 3) });
        if self.dice.percent(40) {
            body["hold_seconds"] = json!(self.dice.between(1, 20));
        }
        body
    }

    async fn act(&mut self) {
        match self.dice.below(100) {
            0..30 => self.claim().await,
            30..48 => self.reverse().await,
            48..66 => self.confirm().await,
            66..74 => self.adjust().await,
            74..82 => self.claim_together().await,
            82..86 => self.look().await,
            86..93 => {
                let seconds = self.dice.between(0, 8).cast_signed();
                self.fleet.clock.advance(TimeDelta::seconds(seconds));
            }
            93..97 => self.put_override().await,
            _ => self.put().await,
        }
    }

    async fn claim(&mut self) {
        let (app, body) = (self.app(), self.body());
        // A body of its own for each key.
        let key = self.dice.percent(30).then(|| Uuid::new_v4().to_string());
        let again = key.is_some() && self.dice.percent(50);
        let answer = app.claim_body(body.clone(), key.as_deref()).await;
        self.note_claim(answer.status.as_u16(), &answer.json());
        if again && answer.status == StatusCode::CREATED {
            let retry = self.app().claim_body(body, key.as_deref()).await;
            assert_eq!(retry.status, StatusCode::OK, "{retry:?}");
            assert_eq!(retry.grant_id(), answer.grant_id());
        }
    }

    fn note_claim(&self, status: u16, told: &Value) {
        match status {
            201 => {
                let is_new = self.notes(|notes| notes.granted.insert(id_of(&told["grant"])));
                assert!(is_new, "granted twice: {told}");
            }
            422 | 424 | 429 => {}
            _ => panic!("{told}"),
        }
    }

    fn notes<T>(&self, note: impl FnOnce(&mut Told) -> T) -> T {
        note(&mut self.told.lock().expect("nobody panicked"))
    }

    async fn claim_together(&mut self) {
        let count = self.dice.between(2, 5);
        let claims: Vec<Value> = (0..count)
            .map(|_| {
                let mut body = self.body();
                body["policy"] = json!("benefit");
                body
            })
            .collect();
        let body = json!({ "claims": claims, "atomic": true });
        let request = self.app().request(Method::POST, "/v1/claims").json(&body);
        let answer = Answer::of(request).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let items = answer.json()["items"].as_array().expect("items").clone();
        let status = |item: &Value| item["status"].as_u64().expect("a status") as u16;
        let granted = items.iter().filter(|item| status(item) == 201).count();
        assert!(granted == 0 || granted == items.len(), "{answer:?}");
        for item in &items {
            self.note_claim(status(item), item);
        }
    }

    async fn reverse(&mut self) {
        let Some(grant) = self.choose() else { return };
        let reason = format!("client {}", self.number);
        let answer = self.app().reverse(&grant.to_string(), &reason).await;
        let told = answer.json();
        match answer.status.as_u16() {
            status @ (200 | 201) => self.notes(|notes| {
                notes.made += usize::from(status == 201);
                let first = notes.reversed.entry(grant).or_insert_with(|| told.clone());
                assert_eq!(*first, told);
            }),
            409 => {
                assert!(answer.text.contains("hold-lapsed"), "{answer:?}");
                self.notes(|notes| notes.lapsed.insert(grant));
            }
            _ => panic!("{answer:?}"),
        }
    }

    async fn confirm(&mut self) {
        let Some(grant) = self.choose() else { return };
        let answer = self.app().confirm(&grant.to_string()).await;
        let told = answer.json();
        match answer.status.as_u16() {
            status @ (200 | 201) => self.notes(|notes| {
                notes.made += usize::from(status == 201);
                let first = notes.confirmed.entry(grant).or_insert_with(|| told.clone());
                assert_eq!(*first, told);
            }),
            410 => self.notes(|notes| {
                notes.lapsed.insert(grant);
            }),
            409 => {
                let is_either = ["not-a-hold", "grant-reversed"]
                    .iter()
                    .any(|kind| answer.text.contains(kind));
                assert!(is_either, "{answer:?}");
            }
            _ => panic!("{answer:?}"),
        }
    }

    async fn adjust(&mut self) {
        let units = [-3, -2, -1, 1, 2, 3][self.dice.below(6)];
        let mut body = json!({ "units": units, "reason": "by hand" });
        if self.dice.percent(50) {
            let ago = TimeDelta::seconds(self.dice.between(0, 100_000).cast_signed());
            body["at"] = json!(self.fleet.clock.now() - ago);
        }
        let (app, subject) = (self.app(), self.subject());
        let answer = app.adjust(&subject, body, None).await;
        let is_either = [StatusCode::CREATED, StatusCode::UNPROCESSABLE_ENTITY];
        assert!(is_either.contains(&answer.status), "{answer:?}");
        let is_made = answer.status == StatusCode::CREATED;
        self.notes(|notes| notes.made += usize::from(is_made));
    }

    async fn look(&mut self) {
        let path = format!("/v1/policies/benefit/subjects/{}", self.subject());
        let answer = self.app().get(&path).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }

    async fn put_override(&mut self) {
        let (app, subject) = (self.app(), self.subject());
        let answer = match self.dice.percent(30) {
            true => app.delete_override(&subject).await,
            false => {
                let seconds = self.dice.between(1, 60).cast_signed();
                let until = self.fleet.clock.now() + TimeDelta::seconds(seconds);
                let body = json!({
                    "limits": [{ "max": self.dice.between(0, 30), "per": "day" }],
                    "until": self.dice.percent(50).then_some(until),
                    "reason": "a test",
                });
                app.put_override(&subject, body).await
            }
        };
        // Nothing to delete, or its end came while it was on its way.
        let is_fine = answer.status.is_success()
            || [StatusCode::NOT_FOUND, StatusCode::UNPROCESSABLE_ENTITY].contains(&answer.status);
        assert!(is_fine, "{answer:?}");
    }

    async fn put(&mut self) {
        let zones = ["GMT+8", "UTC", "America/New_York", "Australia/Lord_Howe"];
        let max = self.dice.between(4, 24);
        let limits = match self.dice.below(3) {
            0 => json!([{ "max": max, "per": "day" }]),
            1 => json!([{ "max": max, "per": "day" }, { "max": 3 * max, "per": "week" }]),
            _ => json!([{ "max": max, "per": "day" }, { "max": max, "per": "minute" }]),
        };
        let body = json!({
            "time_zone": zones[self.dice.below(zones.len())],
            "limits": limits,
            "mode": if self.dice.percent(30) { "observe" } else { "enforce" },
            "effective": if self.dice.percent(20) { "next_window" } else { "now" },
            "reason": "a test",
        });
        let answer = self.app().put_policy("benefit", body).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }
}

/// Everybody acts, and afterwards the holds that are over have lapsed: a decision of each account
/// says so. Returns what was told.
async fn act_at_once(fleet: Arc<Fleet>, seed: u64) -> Told {
    let told = Arc::new(Mutex::new(Told::default()));
    let client = |number| Client {
        number,
        fleet: fleet.clone(),
        told: told.clone(),
        dice: Dice::of(seed, number),
    };
    all_at_once(CLIENTS, |number| {
        let mut client = client(number);
        async move {
            for _ in 0..ACTS {
                client.act().await;
            }
        }
    })
    .await;
    fleet.clock.advance(TimeDelta::minutes(1));
    for subject in 0..SUBJECTS {
        let answer = fleet
            .app(subject)
            .claim(&format!("member-{subject}"), None)
            .await;
        client(subject).note_claim(answer.status.as_u16(), &answer.json());
    }
    std::mem::take(&mut told.lock().expect("nobody panicked"))
}

async fn everything_at_once(stack: Stack) {
    let fleet = Arc::new(Fleet::start(stack, instant(NOON)).await);
    fleet
        .put("GMT+8", json!([{ "max": 12, "per": "day" }]))
        .await;
    let seed = Uuid::new_v4().as_u64_pair().0;
    println!("seed {seed}");
    let told = act_at_once(fleet.clone(), seed).await;
    let (mut granted, mut reversed) = (BTreeSet::new(), BTreeSet::new());
    let (mut confirmed, mut lapsed) = (BTreeSet::new(), BTreeSet::new());
    let mut made = 0;
    for entry in fleet.is_in_order().await.values().flatten() {
        let is_new = match entry.kind {
            EntryKind::Grant { .. } => granted.insert(entry.id.0),
            EntryKind::Confirmation { of } => confirmed.insert(of.0),
            EntryKind::Reversal { of } => reversed.insert(of.0),
            EntryKind::Lapse { of } => lapsed.insert(of.0),
            EntryKind::Adjustment(_) => true,
        };
        assert!(is_new, "twice: {entry:?}");
        let is_told = !matches!(
            entry.kind,
            EntryKind::Grant { .. } | EntryKind::Lapse { .. }
        );
        made += usize::from(is_told);
    }
    assert_eq!(granted, told.granted);
    assert!(reversed.iter().eq(told.reversed.keys()));
    assert!(confirmed.iter().eq(told.confirmed.keys()));
    assert_eq!(made, told.made);
    assert!(told.lapsed.is_subset(&lapsed), "{:?}", told.lapsed);
    assert!(lapsed.is_disjoint(&reversed));
    assert!(lapsed.is_disjoint(&confirmed));
}
