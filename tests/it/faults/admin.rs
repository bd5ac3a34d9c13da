//! An admin beside the clients, who enters top-ups and their ends, moves of calendars, adjustments and resets
//! by hand, and moves subjects between tiers. Each is sent again until its outcome is known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use perdiem::host::clock::Clock;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use super::load::{Shared, answer_of, any_calendar, is_of_ledger};
use super::setup::DEADLINE;
use crate::judge::{Correction, Kind};
use crate::support::app::{KEY, client};
use crate::support::dice::Dice;

/// How many of the last top-ups can be ended.
const ENDED_MOST: usize = 8;

pub struct Admin {
    shared: Arc<Shared>,
    http: Client,
    dice: Dice,
    /// The paths of the last top-ups.
    top_ups: Vec<String>,
    entered: usize,
}

/// A request of the admin.
struct Act {
    method: Method,
    path: String,
    body: Value,
    /// The kind of the entry, if there is one.
    kind: Option<Kind>,
}

impl Admin {
    pub fn new(shared: Arc<Shared>, dice: Dice) -> Self {
        Self {
            shared,
            http: client(),
            dice,
            top_ups: Vec::new(),
            entered: 0,
        }
    }

    pub async fn enter_on_and_on(mut self) {
        while !self.shared.is_stopping() {
            sleep(Duration::from_millis(self.dice.between(5, 60))).await;
            if let Some(act) = self.choose() {
                self.enter(act).await;
            }
        }
    }

    /// An act for the present subject of a slot. Where Redis decides alone there is none.
    fn choose(&mut self) -> Option<Act> {
        let slot = self.dice.below(self.shared.habits.slots);
        let (policy, rule) = self.shared.policy(slot).clone();
        if !is_of_ledger(&rule) {
            return None;
        }
        let subject = self.shared.subject(slot, 0);
        let of_subject = format!("policies/{policy}/subjects/{subject}");
        let has_tiers = !rule["tiers"].is_null();
        let takes_calendars = !rule["calendar"].is_null();
        let post = |path: String, body: Value, kind| {
            Some(Act {
                method: Method::POST,
                path,
                body,
                kind: Some(kind),
            })
        };
        match self.dice.below(100) {
            0..35 => {
                let seconds = [self.dice.between(1, 4), 3600][self.dice.below(2)];
                let until = Clock::system().now() + TimeDelta::seconds(seconds.cast_signed());
                let body = json!({ "units": self.dice.between(1, 4), "until": until });
                post(format!("{of_subject}/top-ups"), body, Kind::TopUp)
            }
            35..50 => {
                let place = self.dice.below(self.top_ups.len().max(1));
                let top_up = (place < self.top_ups.len()).then(|| self.top_ups.remove(place))?;
                post(format!("{top_up}/reversal"), json!({}), Kind::TopUpReversal)
            }
            50..65 => {
                let kinds = [Kind::AdjustmentUp, Kind::AdjustmentDown];
                let kind = kinds[self.dice.below(2)];
                let units = if kind == Kind::AdjustmentUp { 1 } else { -1 };
                let body = json!({ "units": units });
                post(format!("{of_subject}/adjustments"), body, kind)
            }
            65..75 => post(format!("{of_subject}/resets"), json!({}), Kind::Reset),
            75..90 if takes_calendars => {
                let body = any_calendar(&mut self.dice);
                post(format!("{of_subject}/calendar"), body, Kind::Calendar)
            }
            _ if has_tiers => Some(Act {
                method: Method::PUT,
                path: format!("policies/{policy}/tiers/{subject}"),
                body: json!({ "tier": "gold" }),
                kind: None,
            }),
            _ => None,
        }
    }

    /// Sends a request until its outcome is known, and notes its entry.
    async fn enter(&mut self, mut act: Act) {
        self.entered += 1;
        let name = format!("{}-by-hand-{}", self.shared.name, self.entered);
        act.body["reason"] = json!(name);
        // What ends a top-up needs no key.
        let has_key = act.kind.is_some_and(|kind| kind != Kind::TopUpReversal);
        let deadline = Instant::now() + DEADLINE;
        let mut is_sure = true;
        loop {
            let urls = &self.shared.urls;
            let url = format!("{}/v1/{}", urls[self.dice.below(urls.len())], act.path);
            let request = self.http.request(act.method.clone(), url);
            let request = request.bearer_auth(KEY).json(&act.body);
            let request = if has_key {
                request.header("Idempotency-Key", &name)
            } else {
                request
            };
            let began = self.shared.began.elapsed();
            match answer_of(request).await {
                Ok((status, text)) => match status.as_u16() {
                    200 | 201 => {
                        if let Some(kind) = act.kind {
                            let is_new = status == 201 || !is_sure;
                            self.note(&act, kind, began, is_new, &text);
                        }
                        return;
                    }
                    408 | 503 => is_sure = false,
                    409 if text.contains("in-progress") => is_sure = false,
                    // There is nothing to take off, or no such top-up in a copy of the ledger.
                    404 | 409 | 422 => return,
                    _ => panic!("{}: {status} {text}", act.path),
                },
                Err(_) => is_sure = false,
            }
            assert!(Instant::now() < deadline, "{} is not decided", act.path);
            sleep(Duration::from_millis(self.dice.between(10, 100))).await;
        }
    }

    fn note(&mut self, act: &Act, kind: Kind, began: Duration, is_new: bool, text: &str) {
        let told: Value = serde_json::from_str(text).expect("JSON");
        let id = |told: &Value| -> Uuid {
            let id = told.as_str().expect("an id");
            id.parse().expect("an id")
        };
        let of = match kind {
            Kind::TopUpReversal => id(&told["top_up"]["id"]),
            _ => id(&told["id"]),
        };
        if kind == Kind::TopUp {
            if self.top_ups.len() == ENDED_MOST {
                self.top_ups.remove(0);
            }
            self.top_ups.push(format!("{}/{of}", act.path));
        }
        let ended = self.shared.began.elapsed();
        self.shared.history().corrections.push(Correction {
            began,
            ended,
            kind,
            of,
            reason: act.body["reason"].as_str().expect("a text").to_owned(),
            is_new,
            answer: Value::Null,
        });
    }
}
