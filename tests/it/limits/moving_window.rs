//! Exact sliding limits, compared with the moving window of the Python package `limits`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Counting, Outcome, at, limit};
use crate::support::dice::Dice;

const HISTORIES: usize = 400;
const TAKES: usize = 80;

/// Instants and units. No two instants differ by exactly a whole second. The reason: at the instant
/// at which perdiem returns a unit, the package still counts it.
fn takes(dice: &mut Dice, seconds: u64) -> Vec<(i64, u64)> {
    let mut micros = 1_000_000_000;
    let mut next = || {
        let milliseconds = match dice.below(3) {
            0 => 0,
            1 => dice.between(0, 300 * seconds),
            // As near as possible to the return of a unit.
            _ => 1000 * dice.between(0, seconds),
        };
        micros += i64::try_from(milliseconds * 1000 + 1).expect("a time");
        (micros, dice.between(1, 3))
    };
    (0..TAKES).map(|_| next()).collect()
}

/// The package's results.
fn second_opinion(histories: &Value) -> Vec<Vec<bool>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let python = folder.expect("target").join("test-python/bin/python");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/limits/moving_window.py"
    );
    let mut asked = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python runs: scripts/install-test-tools makes its environment");
    let mut questions = asked.stdin.take().expect("a pipe");
    let written = questions.write_all(histories.to_string().as_bytes());
    written.expect("Python reads its input");
    drop(questions);
    let said = asked.wait_with_output().expect("Python ends");
    assert!(said.status.success(), "scripts/install-test-tools");
    serde_json::from_slice(&said.stdout).expect("verdicts")
}

#[test]
fn an_exact_sliding_limit_decides_as_another_moving_window() {
    let mut histories = Vec::new();
    let mut own = Vec::new();
    for number in 0..HISTORIES {
        let mut dice = Dice::of(17, number);
        let max = dice.between(1, 12);
        let seconds = dice.between(1, 20);
        let draft = limit(max.into(), &format!("{seconds}s"), Some("sliding"));
        let mut counting = Counting::of(draft);
        let takes = takes(&mut dice, seconds);
        let verdicts = takes.iter().map(|(micros, units)| {
            matches!(counting.claim(*units, at(*micros)), Outcome::Granted(_))
        });
        own.push(verdicts.collect::<Vec<bool>>());
        histories.push(json!([max, seconds, takes]));
    }
    let granted = own.iter().flatten().filter(|granted| **granted).count();
    let least = HISTORIES * TAKES / 10;
    let most = HISTORIES * TAKES * 9 / 10;
    assert!((least..most).contains(&granted), "{granted}");
    let theirs = second_opinion(&histories.clone().into());
    for ((history, own), theirs) in histories.iter().zip(&own).zip(&theirs) {
        assert_eq!(own, theirs, "{history}");
    }
    assert_eq!(theirs.len(), HISTORIES);
}
