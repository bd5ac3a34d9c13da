//! The load: sixteen clients claim for few subjects with small limits, and retry claims whose
//! outcome is unknown.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::judge::{Attempt, History, LostPart, Mark, Outcome, Why, Wish};
use crate::support::app::{KEY, client};
use crate::support::dice::Dice;

pub const CLIENTS: usize = 16;
/// After so many claims without a grant, another subject takes the slot.
const FAILURES: u32 = 6;
/// How many earlier subjects of a slot a client still claims for.
const GENERATIONS: usize = 12;
/// How long a client waits for an answer: longer than perdiem's own deadline.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a client avoids an instance that did not answer.
const SHUNNED: Duration = Duration::from_secs(1);
/// After this time a client leaves a claim for later and sends other claims.
const LEFT_AFTER: Duration = Duration::from_secs(1);
/// The longest time until every claim is decided, after all servers are up again.
const DECIDED_WITHIN: Duration = Duration::from_secs(60);

/// How clients behave.
#[derive(Debug, Clone)]
pub struct Habits {
    /// The least and the most milliseconds between a client's claims.
    pub pause: (u64, u64),
    /// How many of a hundred claims have no key. A claim without a key is never sent again.
    pub keyless: u64,
    /// How many of a hundred claims are sent to two instances at the same time.
    pub hasty: u64,
    /// How many of a hundred claims repeat a granted claim.
    pub repeats: u64,
    /// How many of a hundred attempts the client resets before they end.
    pub resets: u64,
    /// Whether the clients of each instance claim for their own subjects.
    pub apart: bool,
    /// The number of subjects that clients claim for at a time.
    pub slots: usize,
    /// How many of a hundred claims are holds, where the ledger decides.
    pub holds: u64,
    /// How many of a hundred claims are bundles, where the ledger decides.
    pub bundles: u64,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            pause: (5, 40),
            // Only these ask the counters, unless Redis may count.
            keyless: 25,
            hasty: 4,
            repeats: 5,
            resets: 0,
            apart: false,
            slots: 8,
            holds: 0,
            bundles: 0,
        }
    }
}

/// The clients.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

/// The instances that clients use, and the clients' habits.
pub struct Desk {
    /// Distinguishes this load's keys and subjects from another load's.
    pub name: String,
    /// The URLs of the instances.
    pub urls: Vec<String>,
    pub policies: Vec<(&'static str, Value)>,
    pub habits: Habits,
}

/// The state that all clients share.
pub struct Shared {
    desk: Desk,
    pub began: Instant,
    history: Mutex<History>,
    slots: Mutex<Vec<Slot>>,
    stopping: AtomicBool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    generation: usize,
    failures: u32,
}

impl Load {
    /// Starts the clients.
    pub fn start(desk: Desk, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            history: Mutex::default(),
            slots: Mutex::new(vec![Slot::default(); desk.habits.slots]),
            desk,
            stopping: AtomicBool::new(false),
        });
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let person = Person {
                shared: shared.clone(),
                http: client(),
                dice: Dice::of(seed, number),
                home: number,
                shunned_until: None,
                open: Vec::new(),
            };
            clients.spawn(person.claim_on_and_on());
        }
        Self { shared, clients }
    }

    /// Starts somebody else, who ends with the clients.
    pub fn start_beside<F>(&mut self, other: impl FnOnce(Arc<Shared>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.clients.spawn(other(self.shared.clone()));
    }

    /// The time since the beginning of the history.
    pub fn time(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// Notes an action on the servers.
    pub fn mark(&self, what: &str) {
        let at = self.time();
        let what = what.to_owned();
        self.shared.history().marks.push(Mark { at, what });
    }

    /// From now on, grants that Redis alone decided may be lost.
    pub fn redis_lost_data(&self) {
        self.shared.history().redis_lost_data = true;
    }

    /// A copy replaces the ledger now.
    pub fn ledger_lost_part(&self, copied: Duration) {
        let replaced = self.time();
        let part = LostPart { copied, replaced };
        self.shared.history().lost_parts.push(part);
    }

    /// The number of answered grants that Redis alone decided.
    pub fn provisional_grants(&self) -> usize {
        let history = self.shared.history();
        let grants = history.attempts.iter().filter(
            |attempt| matches!(&attempt.outcome, Outcome::Granted(told) if told.provisional),
        );
        grants.count()
    }

    /// The number of grants that each instance has answered.
    pub fn grants(&self) -> Vec<usize> {
        let mut grants = vec![0; self.shared.urls.len()];
        for attempt in &self.shared.history().attempts {
            if let Outcome::Granted(_) = attempt.outcome {
                grants[attempt.instance] += 1;
            }
        }
        grants
    }

    /// The number of claims that failed and may be sent again.
    pub fn unknown_claims(&self) -> usize {
        let history = self.shared.history();
        let mut known = HashSet::new();
        let mut unknown = HashSet::new();
        for attempt in &history.attempts {
            if attempt.outcome.is_known() {
                known.insert(attempt.wish)
            } else {
                history.wishes[attempt.wish].has_key && unknown.insert(attempt.wish)
            };
        }
        unknown.difference(&known).count()
    }

    /// Stops the clients. Each client retries until its last claim is decided.
    pub async fn end(mut self) -> Closing {
        self.shared.stopping.store(true, Ordering::SeqCst);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("no panic");
        }
        Closing {
            person: Person {
                shared: self.shared.clone(),
                http: client(),
                dice: Dice::new(0),
                home: 0,
                shunned_until: None,
                open: Vec::new(),
            },
        }
    }
}

/// One more client, which sends the last requests after the others have stopped.
pub struct Closing {
    person: Person,
}

impl Closing {
    /// A copy of the whole history.
    pub fn history(&self) -> History {
        self.person.shared.history().clone()
    }

    /// Notes that no earlier request is open.
    pub fn all_is_quiet(&self) {
        let now = self.person.shared.began.elapsed();
        self.person.shared.history().quiet_since = Some(now);
    }

    /// Sends a claim again.
    pub async fn repeat(&mut self, wish: usize) {
        self.person.decide(wish).await;
    }

    /// Sends a new claim for one unit. It has no key, so it may ask the counter.
    pub async fn claim(&mut self, policy: &str, subject: &str) {
        let mut wish = Wish::of(subject);
        wish.policy = policy.to_owned();
        let wish = self.person.shared.add(vec![wish]);
        self.person.decide(wish).await;
    }
}

impl std::ops::Deref for Shared {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

impl Shared {
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no panic")
    }

    /// Adds the wishes that are sent together: one, or those of a bundle. Returns the place of the first.
    fn add(&self, wishes: Vec<Wish>) -> usize {
        let mut history = self.history();
        let first = history.wishes.len();
        let bundle = (wishes.len() > 1).then_some(first);
        let wishes = wishes.into_iter().map(|wish| Wish { bundle, ..wish });
        history.wishes.extend(wishes);
        first
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The policy of a slot.
    pub fn policy(&self, slot: usize) -> &(&'static str, Value) {
        &self.policies[slot % self.policies.len()]
    }

    /// A slot's present subject, or an earlier one.
    pub fn subject(&self, slot: usize, back: usize) -> String {
        let generation = self.slots.lock().expect("no panic")[slot].generation;
        let generation = generation.saturating_sub(back);
        format!("{}-{slot}-{generation}", self.name)
    }

    /// Notes a claim without a grant: the subject has no room, or the claim cannot be decided now.
    fn note_failure(&self, slot: usize) {
        let mut slots = self.slots.lock().expect("no panic");
        let slot = &mut slots[slot];
        slot.failures += 1;
        if slot.failures >= FAILURES {
            slot.failures = 0;
            slot.generation += 1;
        }
    }
}

/// The answer to a request, or why there is none.
pub async fn answer_of(request: RequestBuilder) -> Result<(StatusCode, String), Why> {
    let why = |error: reqwest::Error| {
        if error.is_timeout() {
            Why::Silence
        } else {
            Why::Broken
        }
    };
    let response = request.timeout(PATIENCE).send().await.map_err(why)?;
    let status = response.status();
    Ok((status, response.text().await.map_err(why)?))
}

/// Whether Redis decides no claim alone, so that a rule has bundles, holds and top-ups.
pub fn is_of_ledger(rule: &Value) -> bool {
    rule["durability"].is_null() && rule["on_ledger_outage"].is_null()
}

/// A part of a calendar, or all of it.
pub fn any_calendar(dice: &mut Dice) -> Value {
    let zones = [
        "Asia/Kolkata",
        "America/St_Johns",
        "+14:00",
        "UTC",
        "Asia/Kathmandu",
    ];
    let zone = json!(zones[dice.below(zones.len())]);
    let anchor = json!(["2026-01-31", "2024-02-29", "2025-06-04"][dice.below(3)]);
    match dice.below(3) {
        0 => json!({ "time_zone": zone }),
        1 => json!({ "anchor": anchor }),
        _ => json!({ "time_zone": zone, "anchor": anchor }),
    }
}

struct Person {
    shared: Arc<Shared>,
    http: Client,
    dice: Dice,
    /// The instance that the client prefers.
    home: usize,
    /// Until when the client avoids that instance, because it did not answer.
    shunned_until: Option<Instant>,
    /// The claims that the client has left for later.
    open: Vec<usize>,
}

impl Person {
    async fn claim_on_and_on(mut self) {
        while !self.shared.is_stopping() {
            let (least, most) = self.shared.habits.pause;
            sleep(Duration::from_millis(self.dice.between(least, most))).await;
            if !self.open.is_empty() && self.dice.percent(15) {
                let wish = self.open.swap_remove(self.dice.below(self.open.len()));
                let instance = self.dice.below(self.shared.urls.len());
                if !self.attempt(wish, instance).await.is_known() {
                    self.open.push(wish);
                }
                continue;
            }
            if self.dice.percent(self.shared.habits.repeats) {
                if let Some(wish) = self.granted_before() {
                    self.decide(wish).await;
                }
                continue;
            }
            let slot = self.slot();
            let is_current = !self.dice.percent(20);
            let back = if is_current {
                0
            } else {
                self.dice.below(GENERATIONS)
            };
            let has_key = !self.dice.percent(self.shared.habits.keyless);
            let mut wishes = vec![self.wish(slot, back, has_key)];
            if is_of_ledger(&self.shared.policy(slot).1)
                && self.dice.percent(self.shared.habits.bundles)
            {
                for _ in 0..self.dice.between(1, 2) {
                    let other = self.slot();
                    if is_of_ledger(&self.shared.policy(other).1) {
                        wishes.push(self.wish(other, 0, has_key));
                    }
                }
            }
            let wish = self.shared.add(wishes);
            if self.decide(wish).await.told().is_none() && is_current {
                self.shared.note_failure(slot);
            }
        }
        for wish in std::mem::take(&mut self.open) {
            self.decide(wish).await;
        }
    }

    /// A new claim for a subject of a slot.
    fn wish(&mut self, slot: usize, back: usize, has_key: bool) -> Wish {
        let (policy, rule) = self.shared.policy(slot).clone();
        let is_hold = is_of_ledger(&rule) && self.dice.percent(self.shared.habits.holds);
        let tells_calendar = !rule["calendar"].is_null() && self.dice.percent(40);
        Wish {
            policy: policy.to_owned(),
            units: if self.dice.percent(15) { 2 } else { 1 },
            has_key,
            hold_seconds: is_hold.then(|| self.dice.between(1, 5)),
            calendar: tells_calendar.then(|| any_calendar(&mut self.dice)),
            ..Wish::of(&self.shared.subject(slot, back))
        }
    }

    /// The slot of the client's next claim.
    fn slot(&mut self) -> usize {
        let all = self.shared.habits.slots;
        let (first, every) = if self.shared.habits.apart {
            let count = self.shared.urls.len();
            (self.home % count, count)
        } else {
            (0, 1)
        };
        first + every * self.dice.below((all - first).div_ceil(every))
    }

    /// One of the latest granted claims that may be sent again.
    fn granted_before(&mut self) -> Option<usize> {
        let history = self.shared.history();
        let granted = history.attempts.iter().rev().take(400).filter(|attempt| {
            attempt.outcome.told().is_some() && history.wishes[attempt.wish].has_key
        });
        let granted: Vec<usize> = granted.map(|attempt| attempt.wish).collect();
        drop(history);
        match granted.len() {
            0 => None,
            count => Some(granted[self.dice.below(count)]),
        }
    }

    /// Sends a claim until it is decided, or until this client leaves it for later. A claim without
    /// a key is sent once.
    async fn decide(&mut self, wish: usize) -> Outcome {
        let has_key = self.shared.history().wishes[wish].has_key;
        let count = self.shared.urls.len();
        let home = self.home % count;
        let is_shunned = self
            .shunned_until
            .is_some_and(|until| Instant::now() < until);
        let mut instance = (home + usize::from(is_shunned)) % count;
        if has_key && self.dice.percent(self.shared.habits.hasty) {
            let (one, other) = tokio::join!(
                self.attempt(wish, instance),
                self.attempt(wish, (instance + 1) % count)
            );
            for outcome in [one, other] {
                if outcome.is_known() {
                    return outcome;
                }
            }
        }
        let began = Instant::now();
        loop {
            let outcome = if self.dice.percent(self.shared.habits.resets) {
                self.give_up_midway(wish, instance).await
            } else {
                self.attempt(wish, instance).await
            };
            if outcome.is_known() || !has_key {
                return outcome;
            }
            let is_stopping = self.shared.is_stopping();
            if is_stopping && began.elapsed() > DECIDED_WITHIN {
                return outcome;
            }
            if !is_stopping && began.elapsed() > LEFT_AFTER {
                self.open.push(wish);
                return outcome;
            }
            let is_down = matches!(outcome, Outcome::Unknown(Why::Silence | Why::Broken));
            if is_down && instance == home {
                self.shunned_until = Some(Instant::now() + SHUNNED);
            }
            instance = (instance + 1) % count;
            sleep(Duration::from_millis(self.dice.between(10, 100))).await;
        }
    }

    async fn attempt(&self, wish: usize, instance: usize) -> Outcome {
        let began = self.shared.began.elapsed();
        match answer_of(self.request(wish, instance)).await {
            Ok((status, text)) => {
                let outcomes = self.outcomes(wish, status, &text);
                self.note(wish, instance, began, outcomes)
            }
            Err(why) => self.note_unknown(wish, instance, began, why),
        }
    }

    /// The wishes that are sent in one request with a wish.
    fn together(&self, wish: usize) -> Range<usize> {
        let history = self.shared.history();
        let Some(first) = history.wishes[wish].bundle else {
            return wish..wish + 1;
        };
        let others = history.wishes[first..].iter();
        first
            ..first
                + others
                    .take_while(|other| other.bundle == Some(first))
                    .count()
    }

    /// The outcomes of the wishes of a request, by its answer.
    fn outcomes(&self, wish: usize, status: StatusCode, text: &str) -> Vec<Outcome> {
        let together = self.together(wish);
        if together.len() == 1 || status != StatusCode::OK {
            return vec![Outcome::of(status, text); together.len()];
        }
        let told: Value = serde_json::from_str(text).expect("JSON");
        let items = told["items"].as_array().expect("items").iter();
        let outcome = |item: &Value| {
            let status = item["status"].as_u64().expect("a status") as u16;
            Outcome::of(
                StatusCode::from_u16(status).expect("a status"),
                &item.to_string(),
            )
        };
        items.map(outcome).collect()
    }

    /// Sends a part or all of a request, and resets the connection (SO_LINGER 0) before the answer,
    /// during it, or after it.
    async fn give_up_midway(&mut self, wish: usize, instance: usize) -> Outcome {
        let began = self.shared.began.elapsed();
        let request = self.request(wish, instance).build().expect("a request");
        let address = self.shared.urls[instance].trim_start_matches("http://");
        let mut text = format!(
            "POST {} HTTP/1.1\r\nhost: {address}\r\n",
            request.url().path()
        );
        let body = request.body().and_then(reqwest::Body::as_bytes);
        let body = body.expect("a body in memory");
        for (name, value) in request.headers() {
            let value = value.to_str().expect("a text");
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        if self.dice.percent(25) {
            bytes.truncate(self.dice.below(bytes.len()));
        }
        let pause = Duration::from_micros(self.dice.between(0, 6000));
        if let Ok(mut stream) = TcpStream::connect(address).await {
            // The client does not know the outcome.
            let _ = stream.write_all(&bytes).await;
            sleep(pause).await;
            let _ = stream.set_zero_linger();
        }
        self.note_unknown(wish, instance, began, Why::Broken)
    }

    fn request(&self, wish: usize, instance: usize) -> RequestBuilder {
        let together = self.together(wish);
        let claim = self.shared.history().wishes[wish].clone();
        let (path, body) = if together.len() == 1 {
            (
                format!("policies/{}/claims", claim.policy),
                claim.body(wish),
            )
        } else {
            let history = self.shared.history();
            let claims = together.clone().map(|place| {
                let mut body = history.wishes[place].body(place);
                body["policy"] = json!(history.wishes[place].policy);
                body
            });
            let claims: Vec<Value> = claims.collect();
            (
                "claims".to_owned(),
                json!({ "claims": claims, "atomic": true }),
            )
        };
        let url = format!("{}/v1/{path}", self.shared.urls[instance]);
        let request = self.http.post(url).bearer_auth(KEY).json(&body);
        if claim.has_key {
            let key = format!("{}-{}", self.shared.name, together.start);
            request.header("Idempotency-Key", key)
        } else {
            request
        }
    }

    /// Notes the outcomes of the wishes of a request. Returns that of `wish`.
    fn note(
        &self,
        wish: usize,
        instance: usize,
        began: Duration,
        outcomes: Vec<Outcome>,
    ) -> Outcome {
        let together = self.together(wish);
        let ended = self.shared.began.elapsed();
        let own = outcomes[wish - together.start].clone();
        let attempts = together.zip(outcomes).map(|(wish, outcome)| Attempt {
            wish,
            instance,
            began,
            ended,
            outcome,
        });
        self.shared.history().attempts.extend(attempts);
        own
    }

    fn note_unknown(&self, wish: usize, instance: usize, began: Duration, why: Why) -> Outcome {
        let outcomes = vec![Outcome::Unknown(why); self.together(wish).len()];
        self.note(wish, instance, began, outcomes)
    }
}
