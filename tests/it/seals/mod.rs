//! Seals: the log of leaves, its proofs, and the checks that find a changed ledger.

mod far;
mod figures;
mod hostile;
mod outside;
pub mod proofs;
mod restored;
mod strangers;
mod tampering;
mod together;

use std::sync::Arc;
use std::time::Duration;

use perdiem::domain::seal::note::{Checkpoint, SealKey, VerifierKey};
use perdiem::engine::{EngineOptions, GivenSeal, Verified, VerifyFailure, verify_ledger};
use perdiem::host::clock::{Clock, ManualClock};
use perdiem::ledger::{Ledger, LedgerOptions};
use reqwest::Method;
use serde_json::Value;

use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, NOON, eventually, instant};

/// The tests' seal key.
pub fn seal_key() -> SealKey {
    seal_key_of(7)
}

/// A key with the same name.
pub fn seal_key_of(seed: u8) -> SealKey {
    SealKey::new("perdiem", [seed; 32]).expect("a key")
}

pub fn verifier() -> VerifierKey {
    seal_key().verifier()
}

/// Makes an application seal.
pub fn sealing(options: &mut EngineOptions) {
    options.seal_key = Some(Arc::new(seal_key()));
}

/// An application that seals, at noon, and its clock.
pub async fn sealing_at_noon(ground: &Ground) -> (App, ManualClock) {
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(ground, |options| {
        options.clock = Clock::Manual(clock.clone());
        sealing(options);
    });
    (app.await, clock)
}

/// Waits until everything in the ledger is sealed. Returns the newest seal.
pub async fn all_is_sealed(app: &App, ground: &Ground) -> Checkpoint {
    let all = all_is_recorded(app, ground).await;
    eventually("everything is sealed", || async {
        let latest = app.get("/v1/seals/latest").await;
        latest.status == 200 && latest.json()["size"] == all
    })
    .await;
    let latest = app.get("/v1/seals/latest").await.json();
    Checkpoint::parse(latest["note"].as_str().expect("a note")).expect("a checkpoint")
}

pub async fn ledger(ground: &Ground) -> Ledger {
    let options = LedgerOptions {
        url: ground.database_url.clone(),
        claim_timeout: Duration::from_secs(30),
        query_timeout: Duration::from_secs(30),
    };
    let ledger = Ledger::open(&options, instant(NOON)).await;
    ledger.expect("the ledger opens")
}

/// Waits until `/readyz` reports a trouble. The instance must stay ready.
pub async fn told(app: &App, what: &str) {
    eventually(what, || async {
        let ready = app.get("/readyz").await;
        assert_eq!(ready.status, 200, "{ready:?}");
        ready.text.contains(what)
    })
    .await;
}

/// Waits until `/readyz` reports no trouble with the seals.
pub async fn all_is_well(app: &App) {
    eventually("no trouble", || async {
        let ready = app.get("/readyz").await.text;
        !ready.contains("is not sealed") && !ready.contains("added by hand")
    })
    .await;
}

/// The value of an instance's metric.
pub async fn figure(app: &App, name: &str) -> f64 {
    let metrics = app.get("/metrics").await.text;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.expect("a figure").parse().expect("a number")
}

/// Verifies a ledger with the tests' key, and optionally with a seal that was kept.
pub async fn verified(
    ground: &Ground,
    seal: Option<Checkpoint>,
) -> Result<Verified, VerifyFailure> {
    let ledger = ledger(ground).await;
    let given = GivenSeal {
        key: Some(verifier()),
        seal,
    };
    let verified = verify_ledger(&ledger, &given, |_, _| ()).await;
    ledger.close().await;
    verified
}

/// The served leaves of the log, which has fewer than 256.
pub async fn bundle(app: &App, size: u64) -> Vec<u8> {
    let path = format!("/v1/log/tile/entries/000.p/{size}");
    let bundle = app.request(Method::GET, &path).send().await;
    let bundle = bundle.expect("an answer");
    assert_eq!(bundle.status(), 200);
    bundle.bytes().await.expect("a bundle").into()
}

/// The leaves of the log, which has fewer than 256.
pub async fn leaves(app: &App, size: u64) -> Vec<Value> {
    let bundle = bundle(app, size).await;
    let mut rest = &bundle[..];
    let mut leaves = Vec::new();
    while let Some((length, more)) = rest.split_first_chunk() {
        let (leaf, more) = more.split_at(u16::from_be_bytes(*length).into());
        leaves.push(serde_json::from_slice(leaf).expect("a leaf"));
        rest = more;
    }
    leaves
}
