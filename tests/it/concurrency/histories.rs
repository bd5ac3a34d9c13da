//! Random histories through HTTP, against a plain model that sums grants.
//!
//! Redis is tampered with all the while: its counters are lost, set too high, set back to
//! what they were, or overwritten with junk. None of that may change an answer.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::domain::identity::Identity;
use perdiem::domain::policy::{LimitDraft, PolicyName, Rule, RuleDraft};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::app::{Answer, NOON, Stack, instant, on_every_stack};
use crate::support::books::Books;
use crate::support::crowd::Fleet;

on_every_stack!(random_histories_are_what_the_model_says);

const SUBJECTS: usize = 3;
const KEYS: usize = 6;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    Claim {
        subject: usize,
        units: u64,
        key: Option<usize>,
        instance: usize,
    },
    Usage {
        subject: usize,
    },
    Rule {
        zone: usize,
        limits: usize,
        max: u64,
        day_starts_at: usize,
    },
    Wait {
        seconds: i64,
    },
    Tamper(Tampering),
}

/// What happens to Redis.
#[derive(Debug, Clone, Copy)]
enum Tampering {
    /// Every counter of the ledger is gone.
    Flush,
    /// One counter is gone.
    Forget(usize),
    /// A counter claims more entries and units than there are; nobody confirmed it lately.
    TooHigh(usize),
    /// The counters are kept, to be brought back later.
    Remember,
    /// They are what they were then, as after a fail-over.
    RollBack,
    /// A line with another instant, an older one or one to come.
    OtherInstant(usize, i64),
    /// A field that nobody can read.
    Junk(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let claim = (
        0..SUBJECTS,
        prop_oneof![6 => Just(1u64), 3 => 2u64..4, 1 => 4u64..9],
        prop::option::weighted(0.5, 0..KEYS),
        0..2usize,
    );
    let claim = claim.prop_map(|(subject, units, key, instance)| Step::Claim {
        subject,
        units,
        key,
        instance,
    });
    let rule = (0..ZONES.len(), 0..4usize, 1u64..12, 0..3usize);
    let rule = rule.prop_map(|(zone, limits, max, day_starts_at)| Step::Rule {
        zone,
        limits,
        max,
        day_starts_at,
    });
    let wait = prop_oneof![
        3 => 0i64..10,
        2 => 600i64..20_000,
        1 => 50_000i64..200_000,
    ];
    prop_oneof![
        24 => claim,
        3 => (0..SUBJECTS).prop_map(|subject| Step::Usage { subject }),
        3 => rule,
        4 => wait.prop_map(|seconds| Step::Wait { seconds }),
        4 => tampering().prop_map(Step::Tamper),
    ]
}

fn tampering() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        1 => Just(Tampering::Flush),
        2 => (0..SUBJECTS).prop_map(Tampering::Forget),
        2 => (0..SUBJECTS).prop_map(Tampering::TooHigh),
        2 => Just(Tampering::Remember),
        3 => Just(Tampering::RollBack),
        2 => (0..SUBJECTS, -100_000i64..100_000)
            .prop_map(|(subject, seconds)| Tampering::OtherInstant(subject, seconds)),
        1 => (0..SUBJECTS, 0..4usize)
            .prop_map(|(subject, field)| Tampering::Junk(subject, field)),
    ]
}

const ZONES: [&str; 5] = [
    "GMT+8",
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
];

fn limits(choice: usize, max: u64) -> Vec<(u64, &'static str)> {
    match choice {
        0 => vec![(max, "day")],
        1 => vec![(max, "day"), (2 * max, "week")],
        2 => vec![(max, "hour"), (2 * max, "day"), (20, "month")],
        _ => vec![(2 * max, "week"), (max, "minute")],
    }
}

fn rule_body(zone: usize, choice: usize, max: u64, day_starts_at: usize) -> Value {
    let limits: Vec<Value> = limits(choice, max)
        .into_iter()
        .map(|(max, per)| json!({ "max": max, "per": per }))
        .collect();
    let day_starts_at = ["00:00", "06:00", "17:30"][day_starts_at];
    json!({
        "time_zone": ZONES[zone],
        "limits": limits,
        "day_starts_at": day_starts_at,
        "reason": "a test",
    })
}

fn rule_of(body: &Value) -> Rule {
    let limits = body["limits"].as_array().expect("limits").iter();
    let limits = limits.map(|limit| LimitDraft {
        max: limit["max"].as_i64().expect("a max").into(),
        per: limit["per"].as_str().expect("a length").to_owned(),
    });
    let draft = RuleDraft {
        time_zone: body["time_zone"].as_str().expect("a zone").to_owned(),
        limits: limits.collect(),
        day_starts_at: body["day_starts_at"].as_str().map(str::to_owned),
        ..RuleDraft::default()
    };
    draft.check().expect("a rule")
}

/// A grant as the model remembers it.
#[derive(Debug, Clone)]
struct Granted {
    subject: usize,
    units: u64,
    at: DateTime<Utc>,
    id: Value,
    limits: Value,
}

/// The whole truth: a list of grants and one rule.
struct Model {
    rule: Rule,
    grants: Vec<Granted>,
    keys: HashMap<usize, usize>,
}

impl Model {
    /// What each limit's window holds of a subject.
    fn used(&self, subject: usize, now: DateTime<Utc>) -> Vec<(u64, u64)> {
        let limits = self.rule.limits.iter();
        let used = limits.map(|limit| {
            let window = self.rule.calendar.window(limit.per, now);
            let grants = self.grants.iter();
            let inside =
                grants.filter(|grant| grant.subject == subject && window.contains(grant.at));
            (limit.max, inside.map(|grant| grant.units).sum())
        });
        used.collect()
    }

    /// Checks the answer to a claim, and takes it down.
    fn check(
        &mut self,
        subject: usize,
        units: u64,
        key: Option<usize>,
        now: DateTime<Utc>,
        answer: &Answer,
    ) -> Result<(), TestCaseError> {
        let known = key.and_then(|key| self.keys.get(&key));
        if let Some(grant) = known.map(|number| &self.grants[*number]) {
            let may_be_forgotten = now - grant.at > TimeDelta::hours(48);
            if may_be_forgotten && answer.status == StatusCode::TOO_MANY_REQUESTS {
                return Ok(());
            }
            if grant.subject != subject || grant.units != units {
                // A counter without room may deny it before the ledger sees the key.
                let status = answer.status;
                let refused = [
                    StatusCode::UNPROCESSABLE_ENTITY,
                    StatusCode::TOO_MANY_REQUESTS,
                ];
                prop_assert!(refused.contains(&status), "{:?}", answer);
                return Ok(());
            }
            prop_assert_eq!(answer.status, StatusCode::OK, "{:?}", answer);
            prop_assert_eq!(&answer.json()["grant"]["id"], &grant.id);
            prop_assert_eq!(&answer.json()["limits"], &grant.limits);
            return Ok(());
        }
        let used = self.used(subject, now);
        if used.iter().any(|(max, _)| units > *max) {
            prop_assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
            return Ok(());
        }
        let fits = used.iter().all(|(max, used)| used + units <= *max);
        let taken = if fits { units } else { 0 };
        let status = match fits {
            true => StatusCode::CREATED,
            false => StatusCode::TOO_MANY_REQUESTS,
        };
        prop_assert_eq!(answer.status, status, "{:?}; used: {:?}", answer, used);
        let told = answer.json()["limits"].clone();
        for (number, (max, used)) in used.iter().enumerate() {
            prop_assert_eq!(&told[number]["max"], *max);
            prop_assert_eq!(&told[number]["used"], used + taken, "{:?}", answer);
        }
        if fits {
            if let Some(key) = key {
                self.keys.insert(key, self.grants.len());
            }
            self.grants.push(Granted {
                subject,
                units,
                at: now,
                id: answer.json()["grant"]["id"].clone(),
                limits: told,
            });
        }
        Ok(())
    }
}

/// A hand in Redis.
struct Tamperer {
    connection: redis::aio::MultiplexedConnection,
    identity: Identity,
    remembered: Vec<(String, Vec<u8>)>,
}

impl Tamperer {
    async fn new(fleet: &Fleet, books: &Books) -> Option<Self> {
        let url = fleet.ground.redis_url.clone()?;
        let client = redis::Client::open(url).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        Some(Self {
            connection: connection.expect("a connection"),
            identity: books.ledger.identity().clone(),
            remembered: Vec::new(),
        })
    }

    async fn run<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command
            .query_async(&mut self.connection)
            .await
            .expect("an answer")
    }

    async fn names(&mut self) -> Vec<String> {
        let pattern = format!("perdiem:{{{}:*", self.identity.id.simple());
        self.run(&[b"KEYS", pattern.as_bytes()]).await
    }

    async fn name_of(&mut self, subject: usize) -> Option<String> {
        let policy = PolicyName::new("benefit").expect("a name");
        let subject = perdiem::domain::claim::Subject::new(&subject_text(subject));
        let account = self.identity.account(&policy, &subject.expect("a subject"));
        let end = format!(":{}", account.0.simple());
        self.names()
            .await
            .into_iter()
            .find(|name| name.ends_with(&end))
    }

    async fn tamper(&mut self, tampering: Tampering, now: DateTime<Utc>) {
        match tampering {
            Tampering::Flush => {
                for name in self.names().await {
                    self.run::<()>(&[b"DEL", name.as_bytes()]).await;
                }
            }
            Tampering::Forget(subject) => {
                if let Some(name) = self.name_of(subject).await {
                    self.run::<()>(&[b"DEL", name.as_bytes()]).await;
                }
            }
            Tampering::Remember => {
                self.remembered.clear();
                for name in self.names().await {
                    if let Some(dump) = self.run(&[b"DUMP", name.as_bytes()]).await {
                        self.remembered.push((name, dump));
                    }
                }
            }
            Tampering::RollBack => {
                for (name, dump) in self.remembered.clone() {
                    let words: [&[u8]; 5] = [b"RESTORE", name.as_bytes(), b"0", &dump, b"REPLACE"];
                    self.run::<()>(&words).await;
                }
            }
            Tampering::TooHigh(subject) => {
                let Some((name, number, at, version, mut totals)) = self.read(subject).await else {
                    return;
                };
                for total in totals.as_array_mut().expect("totals") {
                    total[2] = json!(total[1].as_u64().expect("a max") + 1);
                }
                let line = format!("{at} {version} {totals}");
                let number = (number + 7).to_string();
                let long_ago = (now - TimeDelta::seconds(4)).timestamp_millis().to_string();
                let name = name.as_bytes();
                let words: [&[u8]; 8] = [
                    b"HSET",
                    name,
                    b"number",
                    number.as_bytes(),
                    b"line",
                    line.as_bytes(),
                    b"confirmed",
                    long_ago.as_bytes(),
                ];
                self.run::<()>(&words).await;
            }
            Tampering::OtherInstant(subject, seconds) => {
                let Some((name, _, at, version, totals)) = self.read(subject).await else {
                    return;
                };
                let line = format!("{} {version} {totals}", at + seconds * 1_000_000);
                let words: [&[u8]; 6] = [
                    b"HSET",
                    name.as_bytes(),
                    b"line",
                    line.as_bytes(),
                    b"confirmed",
                    b"0",
                ];
                self.run::<()>(&words).await;
            }
            Tampering::Junk(subject, field) => {
                let Some(name) = self.name_of(subject).await else {
                    return;
                };
                let field: &[u8] = [&b"number"[..], b"line", b"confirmed", b"keys"][field];
                self.run::<()>(&[b"HSET", name.as_bytes(), field, b"junk"])
                    .await;
            }
        }
    }

    /// A counter's name, number, instant, version and totals.
    async fn read(&mut self, subject: usize) -> Option<(String, u64, i64, u32, Value)> {
        let name = self.name_of(subject).await?;
        let words: [&[u8]; 4] = [b"HMGET", name.as_bytes(), b"number", b"line"];
        let (number, line): (String, String) = self.run(&words).await;
        let mut parts = line.splitn(3, ' ');
        let at = parts.next()?.parse().ok()?;
        let version = parts.next()?.parse().ok()?;
        let totals = serde_json::from_str(parts.next()?).ok()?;
        Some((name, number.parse().ok()?, at, version, totals))
    }
}

fn subject_text(subject: usize) -> String {
    format!("member-{subject}")
}

async fn play(stack: Stack, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let fleet = Fleet::start(stack, instant(NOON)).await;
    let books = Books::open(&fleet.ground).await;
    let mut tamperer = Tamperer::new(&fleet, &books).await;
    let mut body = rule_body(0, 0, 3, 0);
    let put = async |body: &Value| {
        let answer = fleet.apps[0].put_policy("benefit", body.clone()).await;
        assert!(answer.status.is_success(), "{answer:?}");
        let version = answer.json()["version"].as_u64().expect("a version");
        fleet.everybody_knows(version).await;
    };
    put(&body).await;
    let mut model = Model {
        rule: rule_of(&body),
        grants: Vec::new(),
        keys: HashMap::new(),
    };
    for (number, step) in steps.into_iter().enumerate() {
        let now = fleet.clock.now();
        match step {
            Step::Claim {
                subject,
                units,
                key,
                instance,
            } => {
                let body = json!({ "subject": subject_text(subject), "units": units });
                let text = key.map(|key| format!("order-{key}"));
                let app = fleet.app(instance);
                let answer = app.claim_body(body, text.as_deref()).await;
                let checked = model.check(subject, units, key, now, &answer);
                checked.map_err(|error| TestCaseError::fail(format!("step {number}: {error}")))?;
            }
            Step::Usage { subject } => {
                let path = format!("/v1/policies/benefit/subjects/{}", subject_text(subject));
                let usage = fleet.app(number).get(&path).await.json();
                for (limit, (max, used)) in model.used(subject, now).iter().enumerate() {
                    prop_assert_eq!(&usage["limits"][limit]["max"], *max);
                    prop_assert_eq!(&usage["limits"][limit]["used"], *used);
                }
            }
            Step::Rule {
                zone,
                limits,
                max,
                day_starts_at,
            } => {
                body = rule_body(zone, limits, max, day_starts_at);
                put(&body).await;
                model.rule = rule_of(&body);
            }
            Step::Wait { seconds } => fleet.clock.advance(TimeDelta::seconds(seconds)),
            Step::Tamper(tampering) => {
                if let Some(tamperer) = &mut tamperer {
                    tamperer.tamper(tampering, now).await;
                }
            }
        }
    }
    let accounts = books.audit().await;
    let grants: usize = accounts.values().map(Vec::len).sum();
    prop_assert_eq!(grants, model.grants.len());
    // A claim at each subject heals its counter, whatever was done to it: each is asked for
    // more than fits, since a denial is confirmed too.
    fleet.clock.advance(TimeDelta::seconds(10));
    for subject in 0..SUBJECTS {
        while {
            let answer = fleet.app(subject).claim(&subject_text(subject), None).await;
            answer.status == StatusCode::CREATED
        } {}
    }
    books.audit().await;
    books.counters_follow().await;
    Ok(())
}

async fn random_histories_are_what_the_model_says(stack: Stack) {
    let cases = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => 24,
        Stack::Postgres | Stack::RedisAndPostgres => 6,
    };
    let handle = tokio::runtime::Handle::current();
    let played = tokio::task::spawn_blocking(move || {
        let config = Config {
            cases,
            max_shrink_iters: 60,
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new(config);
        runner.run(&prop::collection::vec(step(), 20..120), |steps| {
            handle.block_on(play(stack, steps))
        })
    });
    if let Err(error) = played.await.expect("it is played") {
        panic!("{error}");
    }
}
