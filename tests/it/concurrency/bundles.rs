//! Bundles on shared accounts, while they are reversed and confirmed as a whole and in parts, and while their holds
//! lapse: each one is granted whole, and corrected whole.

use std::collections::BTreeSet;
use std::sync::Mutex;

use chrono::TimeDelta;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::judge::{Outcome, Wish};
use crate::support::app::{Answer, Stack, instant, on_every_stack};
use crate::support::crowd::{Fleet, all_at_once};
use crate::support::dice::Dice;

on_every_stack!(bundles_stay_whole);

const CLIENTS: usize = 12;
const ACTS: usize = 30;
const SUBJECTS: usize = 3;

/// A bundle that a client was told.
struct Told {
    id: String,
    grants: BTreeSet<String>,
    was_reversed: bool,
    was_confirmed: bool,
}

struct Client<'a> {
    number: usize,
    fleet: &'a Fleet,
    told: &'a Mutex<Vec<Told>>,
    dice: Dice,
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

impl Client<'_> {
    async fn act(&mut self) {
        match self.dice.below(100) {
            0..45 => self.claim().await,
            45..60 => self.correct("reversal").await,
            60..80 => self.correct("confirmation").await,
            80..92 => self.reverse_one().await,
            _ => {
                let seconds = self.dice.between(0, 6).cast_signed();
                self.fleet.clock.advance(TimeDelta::seconds(seconds));
            }
        }
    }

    /// Claims for several subjects, at both instances at the same time if the batch has a key.
    async fn claim(&mut self) {
        let seconds = self.dice.percent(60).then_some(self.dice.between(1, 20));
        let count = self.dice.between(2, 4);
        let wish = |dice: &mut Dice| Wish {
            hold_seconds: seconds,
            ..Wish::of(&format!("member-{}", dice.below(SUBJECTS)))
        };
        let wishes: Vec<Wish> = (0..count).map(|_| wish(&mut self.dice)).collect();
        let wishes = self.fleet.wishes(wishes);
        let body = self.fleet.batch(&wishes);
        let key = Uuid::new_v4().to_string();
        let key = self.dice.percent(50).then_some(key.as_str());
        let began = self.fleet.time();
        let answers = all_at_once(if key.is_some() { 2 } else { 1 }, |client| {
            let app = self.fleet.app(self.number + client);
            let request = app.request(Method::POST, "/v1/claims").json(&body);
            Answer::of(match key {
                Some(key) => request.header("Idempotency-Key", key),
                None => request,
            })
        });
        let mut bundles = BTreeSet::new();
        for answer in answers.await {
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            let told = answer.json();
            let items = told["items"].as_array().expect("items");
            let status = |item: &Value| item["status"].as_u64().expect("a status") as u16;
            let count = |statuses: &[u16]| {
                let is_it = |item: &&Value| statuses.contains(&status(item));
                items.iter().filter(is_it).count()
            };
            let granted = count(&[200, 201]);
            // What was granted before may have ended since.
            let ended = if count(&[200]) > 0 {
                count(&[409, 410])
            } else {
                0
            };
            let is_whole = [0, items.len()].contains(&(granted + ended));
            assert!(is_whole, "{answer:?}");
            assert_eq!(
                told["bundle"].is_string(),
                granted == items.len(),
                "{answer:?}"
            );
            for (item, wish) in items.iter().zip(&wishes) {
                let status = StatusCode::from_u16(status(item)).expect("a status");
                let outcome = Outcome::of(status, &item.to_string());
                self.fleet.note(self.number, *wish, began, outcome);
            }
            if granted < items.len() {
                continue;
            }
            let id = text(&told["bundle"]);
            let of_bundle = items
                .iter()
                .all(|item| item["grant"]["bundle"] == told["bundle"]);
            assert!(of_bundle, "{answer:?}");
            if bundles.insert(id.clone()) {
                let grants = items.iter().map(|item| text(&item["grant"]["id"]));
                self.told.lock().expect("no panic").push(Told {
                    id,
                    grants: grants.collect(),
                    was_reversed: false,
                    was_confirmed: false,
                });
            }
        }
        assert!(bundles.len() <= 1, "{bundles:?}");
    }

    /// One of the newest bundles.
    fn choose(&mut self) -> Option<usize> {
        let back = self.dice.below(6);
        let count = self.told.lock().expect("no panic").len();
        count.checked_sub(back + 1)
    }

    async fn correct(&mut self, how: &str) {
        let Some(place) = self.choose() else { return };
        let id = self.told.lock().expect("no panic")[place].id.clone();
        let is_reversal = how == "reversal";
        let body = if is_reversal {
            json!({ "reason": "a test" })
        } else {
            json!({})
        };
        let app = self.fleet.app(self.number);
        let answer = app.ask(&format!("POST /v1/bundles/{id}/{how}"), body).await;
        match answer.status.as_u16() {
            200 | 201 => {
                let told = &mut self.told.lock().expect("no panic")[place];
                told.was_reversed |= is_reversal;
                told.was_confirmed |= !is_reversal;
            }
            409 | 410 => assert!(!is_reversal, "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
    }

    async fn reverse_one(&mut self) {
        let Some(place) = self.choose() else { return };
        let grant = self.told.lock().expect("no panic")[place]
            .grants
            .first()
            .cloned();
        let app = self.fleet.app(self.number);
        let answer = app.reverse(&grant.expect("a grant"), "a test").await;
        assert!(
            [200, 201, 410].contains(&answer.status.as_u16()),
            "{answer:?}"
        );
    }
}

async fn bundles_stay_whole(stack: Stack) {
    let fleet = &Fleet::start_sweeping(stack, instant("2026-11-21T15:59:00Z")).await;
    fleet
        .put("GMT+8", json!([{ "max": 12, "per": "day" }]))
        .await;
    let seed = Uuid::new_v4().as_u64_pair().0;
    println!("seed {seed}");
    let told = &Mutex::new(Vec::new());
    all_at_once(CLIENTS, |number| async move {
        let dice = Dice::of(seed, number);
        let mut client = Client {
            number,
            fleet,
            told,
            dice,
        };
        for _ in 0..ACTS {
            client.act().await;
        }
    })
    .await;
    let told = std::mem::take(&mut *told.lock().expect("no panic"));
    assert!(told.len() > 20, "{}", told.len());
    for one in &told {
        let shown = fleet.apps[0]
            .get(&format!("/v1/bundles/{}", one.id))
            .await
            .is(200);
        let grants = shown["grants"].as_array().expect("grants");
        let ids: BTreeSet<String> = grants.iter().map(|grant| text(&grant["id"])).collect();
        assert_eq!(ids, one.grants, "{shown}");
        let is = |grant: &Value, states: &[&str]| states.contains(&&*text(&grant["state"]));
        let ended = grants
            .iter()
            .all(|grant| is(grant, &["reversed", "lapsed"]));
        assert!(ended || !one.was_reversed, "{shown}");
        // A hold lapses if it is not confirmed; one that was confirmed can be reversed.
        let confirmed = grants
            .iter()
            .filter(|grant| grant["confirmation"].is_object());
        let confirmed = confirmed.count();
        assert!(confirmed == 0 || confirmed == grants.len(), "{shown}");
        assert!(confirmed > 0 || !one.was_confirmed, "{shown}");
    }
    fleet.finds_nothing().await;
    fleet.tells_one_story().await;
}
