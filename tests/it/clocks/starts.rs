//! The wall clock is wrong when an instance starts.

use std::process::Command;

use reqwest::StatusCode;
use serde_json::json;

use super::{DAY, claim_of, grants, put, readiness, start, start_with, stop};
use crate::support::app::{Ground, Stack, eventually};
use crate::support::desk::on_every_store;
use crate::support::process::Process;
use crate::support::wall_clock::WallClock;

on_every_store!(a_wall_clock_that_is_behind_at_the_start_decides_nothing);

/// Nothing is decided, and `/readyz` says these words.
async fn decides_nothing(process: &Process, words: &[&str]) {
    for _ in 0..3 {
        let answer = claim_of(process, "member-1").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    }
    let (is_ready, troubles) = readiness(process).await;
    assert!(!is_ready, "{troubles}");
    for words in words {
        assert!(troubles.contains(words), "{words}: {troubles}");
    }
}

/// An operator corrects the wall clock. The instance decides then, without a restart.
async fn a_wall_clock_that_is_behind_at_the_start_decides_nothing(stack: Stack) {
    let ground = Ground::new(stack);
    let wall = WallClock::new();
    let process = start(&ground, &wall);
    put(&process, "benefit", json!([{ "max": 3, "per": "ever" }])).await;
    for number in 0..5 {
        grants(&process, &format!("member-{number}")).await;
    }
    stop(process);
    for seconds in [-3 * 3600, -DAY] {
        wall.put(seconds);
        let process = start(&ground, &wall);
        decides_nothing(&process, &["clock is off", "NTP"]).await;
        wall.put(0);
        eventually("the instance decides again", || async {
            claim_of(&process, "nobody").await.status == StatusCode::CREATED
                || claim_of(&process, "nobody").await.status == StatusCode::TOO_MANY_REQUESTS
        })
        .await;
        eventually("nothing is wrong any more", || async {
            readiness(&process).await == (true, "[]".to_owned())
        })
        .await;
        stop(process);
    }
}

/// A command that adds to the record compares the clocks too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_at_a_wrong_clock_records_nothing() {
    let ground = Ground::new(Stack::Postgres);
    let wall = WallClock::new();
    stop(start(&ground, &wall));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let archive = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
        let command = command.arg("archive").arg(folder.path());
        let command = command.args(["--before", "2026-01-01", "--reason", "a test"]);
        let command = command.env("DATABASE_URL", &ground.database_url);
        let ended = command.envs(wall.settings()).output();
        let ended = ended.expect("the command runs");
        (
            ended.status.success(),
            String::from_utf8_lossy(&ended.stderr).into_owned(),
        )
    };
    for seconds in [DAY, -3600] {
        wall.put(seconds);
        let (is_done, told) = archive();
        assert!(!is_done, "{told}");
        let offset = "off the ledger's clock";
        assert!(told.contains(offset) && told.contains("NTP"), "{told}");
    }
    wall.put(0);
    let (_, told) = archive();
    assert!(!told.contains("clock"), "{told}");
}

/// A whole session ran with a wrong wall clock. The remedy that is printed works: the machine's clock
/// is right now, so the check is switched off until two subjects have claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_of_a_clock_that_was_ahead_is_served_again() {
    let ground = Ground::new(Stack::Sqlite);
    let wall = WallClock::new();
    wall.put(DAY);
    let process = start(&ground, &wall);
    put(&process, "benefit", json!([{ "max": 3, "per": "day" }])).await;
    for number in 0..5 {
        grants(&process, &format!("member-{number}")).await;
    }
    stop(process);
    wall.put(0);
    let process = start(&ground, &wall);
    let remedy = "PERDIEM_CLOCK_TOLERANCE_SECONDS=0";
    decides_nothing(&process, &["clock is off", remedy]).await;
    stop(process);
    let (name, value) = remedy.split_once('=').expect("a setting");
    let process = start_with(&ground, &wall, &[(name, value)]);
    for subject in ["new-1", "new-2", "member-1"] {
        grants(&process, subject).await;
    }
    stop(process);
    let process = start(&ground, &wall);
    grants(&process, "new-3").await;
    assert!(readiness(&process).await.0);
}
