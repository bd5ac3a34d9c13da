//! The wall clock of an instance steps while clients claim. PostgreSQL and the test keep the right
//! time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use perdiem::host::clock::Clock;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{DAY, YEAR, claim, claim_of, grants, put, readiness, start};
use crate::judge::judge_ledger;
use crate::support::app::{Answer, Ground, Stack, eventually};
use crate::support::desk::on_every_store;
use crate::support::process::Process;
use crate::support::wall_clock::WallClock;

on_every_store!(
    the_wall_clock_steps_while_clients_claim,
    holds_stay_open_while_the_wall_clock_steps,
);

/// Where the wall clock steps to, in seconds ahead of the right time.
const STEPS: [i64; 9] = [3600, 0, -3600, DAY, 0, -DAY, YEAR, -YEAR, 0];
/// How long the wall clock stays at each place. An instance looks at the clocks every 250 ms.
const STAY: Duration = Duration::from_millis(400);
const CLIENTS: usize = 8;
const SUBJECTS: usize = 16;
/// The units of each subject under `benefit`, in all its days: a limit that a day resets is a local
/// day's, and two such days can be in the test.
const MAX: u64 = 10;
/// The default of PERDIEM_CLOCK_TOLERANCE_SECONDS.
const TOLERANCE: TimeDelta = TimeDelta::seconds(10);

/// A grant that a client was told, and the right time before and after its request.
struct Told {
    granted_at: DateTime<Utc>,
    span: (DateTime<Utc>, DateTime<Utc>),
}

/// Clients claim at several instances until they are told to stop. Each answer must be a decision.
/// Returns the grants of each subject.
async fn claim_until(processes: &[&Process], is_over: &AtomicBool) -> BTreeMap<String, Vec<Told>> {
    let clock = Clock::system();
    let client = async |client: usize| {
        let mut told = Vec::new();
        for turn in 0.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let process = processes[(client + turn) % processes.len()];
            let subject = format!("member-{}", (client * 5 + turn) % SUBJECTS);
            let began = clock.now();
            let answer = claim_of(process, &subject).await;
            match answer.status {
                StatusCode::CREATED => {
                    let granted_at = instant_of(&answer.json()["grant"]["granted_at"]);
                    let span = (began, clock.now());
                    told.push((subject, Told { granted_at, span }));
                }
                StatusCode::TOO_MANY_REQUESTS => {}
                _ => panic!("not decided: {answer:?}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
        told
    };
    let told = join_all((0..CLIENTS).map(client)).await;
    let mut grants: BTreeMap<String, Vec<Told>> = BTreeMap::new();
    for (subject, told) in told.into_iter().flatten() {
        grants.entry(subject).or_default().push(told);
    }
    grants
}

fn instant_of(text: &Value) -> DateTime<Utc> {
    text.as_str().expect("a text").parse().expect("an instant")
}

/// Steps a wall clock, and then ends the clients.
async fn step(wall: &WallClock, is_over: &AtomicBool) {
    sleep(STAY).await;
    for seconds in STEPS {
        wall.put(seconds);
        sleep(STAY).await;
    }
    is_over.store(true, Ordering::SeqCst);
}

/// Checks the promises after the steps: the instants are right, no subject got more than its units,
/// and everybody can still claim.
async fn check(ground: &Ground, process: &Process, told: &BTreeMap<String, Vec<Told>>) {
    // 1. The instants that clients were told, and those in the ledger.
    let grants = || told.values().flatten();
    for Told { granted_at, span } in grants() {
        let is_right = (span.0 - TOLERANCE..=span.1 + TOLERANCE).contains(granted_at);
        assert!(is_right, "{granted_at} {span:?}");
    }
    let first = grants().map(|told| told.span.0).min().expect("grants");
    let last = grants().map(|told| told.span.1).max().expect("grants");
    let stores = ground.stores().await;
    for entry in &stores.entries {
        let is_right = (first - TOLERANCE..=last + TOLERANCE).contains(&entry.at);
        assert!(is_right, "{entry:?}");
    }
    // 2. Nobody got a unit twice.
    assert_eq!(judge_ledger(&stores), []);
    for (subject, told) in told {
        let granted = told.len() as u64;
        assert!(granted <= MAX, "{subject}: {granted} of {MAX}");
        let usage = format!("/v1/policies/benefit/subjects/{subject}");
        let usage = Answer::of(process.request(Method::GET, &usage)).await;
        assert_eq!(usage.json()["limits"][0]["used"], granted, "{usage:?}");
    }
    // 3. The others are granted what is left, and no more.
    for number in 0..SUBJECTS {
        let subject = format!("member-{number}");
        let granted = told.get(&subject).map_or(0, Vec::len) as u64;
        for _ in granted..MAX {
            super::grants(process, &subject).await;
        }
        let denied = claim_of(process, &subject).await;
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
    }
}

/// A limit whose window does not end during the test, whatever the hour.
fn limits() -> Value {
    json!([{ "max": MAX, "per": "12h", "kind": "sliding" }])
}

async fn the_wall_clock_steps_while_clients_claim(stack: Stack) {
    let ground = Ground::new(stack);
    let wall = WallClock::new();
    let process = start(&ground, &wall);
    put(&process, "benefit", limits()).await;
    let is_over = AtomicBool::new(false);
    let processes = [&process];
    let (told, ()) = tokio::join!(claim_until(&processes, &is_over), step(&wall, &is_over));
    check(&ground, &process, &told).await;
    eventually("nothing is wrong any more", || async {
        readiness(&process).await == (true, "[]".to_owned())
    })
    .await;
}

/// The wall clock of one of two instances steps. The other one serves the same subjects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wall_clock_of_one_of_two_instances_steps() {
    let ground = Ground::new(Stack::Postgres);
    let stepping = WallClock::new();
    let still = WallClock::new();
    let [one, other] = [start(&ground, &stepping), start(&ground, &still)];
    put(&one, "benefit", limits()).await;
    eventually("the other instance knows the policy", || async {
        claim_of(&other, "nobody").await.status == StatusCode::CREATED
    })
    .await;
    let is_over = AtomicBool::new(false);
    let processes = [&one, &other];
    let (told, ()) = tokio::join!(claim_until(&processes, &is_over), step(&stepping, &is_over));
    check(&ground, &other, &told).await;
}

/// A step is told, and stops nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_wall_clock_is_a_warning() {
    let ground = Ground::new(Stack::Sqlite);
    let wall = WallClock::new();
    let process = start(&ground, &wall);
    put(&process, "benefit", limits()).await;
    for (seconds, words) in [(YEAR, "ahead of"), (-DAY, "behind")] {
        wall.put(seconds);
        eventually("the step is told", || async {
            let (is_ready, troubles) = readiness(&process).await;
            assert!(is_ready, "{troubles}");
            let words = ["wall clock", words, "NTP", "restart perdiem"];
            words.iter().all(|words| troubles.contains(words))
        })
        .await;
        grants(&process, "member-1").await;
        wall.put(0);
        eventually("nothing is wrong any more", || async {
            readiness(&process).await.1 == "[]"
        })
        .await;
    }
}

/// Holds are opened and confirmed while the wall clock steps, and one long hold waits.
async fn holds_stay_open_while_the_wall_clock_steps(stack: Stack) {
    let ground = Ground::new(stack);
    let wall = WallClock::new();
    let process = start(&ground, &wall);
    put(&process, "held", json!([{ "max": 1, "per": "ever" }])).await;
    put(&process, "busy", json!([{ "max": 100_000, "per": "ever" }])).await;
    let hold = async |policy, subject: &str, seconds| {
        let body = json!({ "subject": subject, "hold_seconds": seconds });
        let held = claim(&process, policy, body).await;
        assert_eq!(held.status, StatusCode::CREATED, "{held:?}");
        held.grant_id()
    };
    let confirm = async |grant: &str| {
        let path = format!("/v1/grants/{grant}/confirmation");
        let confirmed = Answer::of(process.request(Method::POST, &path)).await;
        assert!(confirmed.status.is_success(), "{confirmed:?}");
    };
    // 1. A hold of an hour: nobody else gets its unit.
    let long = hold("held", "member-1", 3600).await;
    let is_over = AtomicBool::new(false);
    let waits = async {
        while !is_over.load(Ordering::SeqCst) {
            let denied = claim(&process, "held", json!({ "subject": "member-1" })).await;
            assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{denied:?}");
            sleep(Duration::from_millis(5)).await;
        }
    };
    // 2. The step comes between a hold and its confirmation.
    let confirms = async |client: usize| {
        let subject = format!("member-{client}");
        while !is_over.load(Ordering::SeqCst) {
            let grant = hold("busy", &subject, 60).await;
            sleep(Duration::from_millis(20)).await;
            confirm(&grant).await;
        }
    };
    let clients = join_all((0..CLIENTS - 1).map(confirms));
    let (_, (), ()) = tokio::join!(clients, waits, step(&wall, &is_over));
    // 3. The long hold is still open.
    confirm(&long).await;
    assert_eq!(judge_ledger(&ground.stores().await), []);
}
