//! An erasure does not change the log and its proofs, the figures, and the files of other subjects.

use std::fs;

use chrono::TimeDelta;
use perdiem::domain::seal::note::Checkpoint;
use perdiem::domain::seal::proof::{LogProof, Proven};
use perdiem::host::clock::{Clock, ManualClock};
use reqwest::Method;
use serde_json::{Value, json};

use super::{all_are_past, erase};
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::http::{all_items, problem};
use crate::judge::judge_ledger;
use crate::seals::proofs::python;
use crate::seals::{all_is_sealed, bundle, sealing, verified, verifier};
use crate::support::app::{Answer, App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;

on_every_store!(an_erasure_leaves_the_log_the_figures_and_others_files);

const GONE: &str = "member-42";
const OTHER: &str = "member-7";
/// The number of denied claims in the history.
const DENIED: u64 = 3;
/// The number of policies with entries on the day.
const DAYS: usize = 3;

/// A file of entries, as of a position.
struct ExportedFile {
    /// The request that makes the file.
    path: String,
    text: String,
    /// The path of its manifest.
    manifest: String,
}

/// The documents that an auditor kept before the erasure.
struct KeptRecord {
    seal: Checkpoint,
    bundle: Vec<u8>,
    /// The grants of the erased subject and of another subject, with their proofs.
    proofs: [(String, String); 2],
    days: Vec<Value>,
    files: Vec<ExportedFile>,
}

/// Makes entries of every kind under three policies. The erased subject is in two of them. Returns
/// a grant of the erased subject, and a grant of another subject.
async fn history(app: &App, clock: &ManualClock) -> [String; 2] {
    app.benefit(2, "UTC").await;
    for policy in ["sms", "tea"] {
        let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
        app.put_policy(policy, rule).await.is(201);
    }
    let mut grants = Vec::new();
    for subject in [GONE, OTHER] {
        let body = json!({ "subject": subject, "metadata": { "order": format!("of {subject}") } });
        let granted = app
            .claim_body(body, Some(&format!("key of {subject}")))
            .await;
        grants.push(
            granted.is(201)["grant"]["id"]
                .as_str()
                .expect("an id")
                .to_owned(),
        );
        let second = app.claim(subject, None).await.grant_id();
        app.claim(subject, None).await.is(429);
        let reason = format!("{subject} did not come");
        app.reverse(&second, &reason).await.is(201);
        for units in [2, -1] {
            let body = json!({ "units": units, "reason": format!("{subject} wrote") });
            app.adjust(subject, body, None).await.is(201);
        }
        for max in [5, 6] {
            let limits = json!([{ "max": max, "per": "day" }]);
            let body = json!({ "limits": limits, "reason": format!("{subject} asked") });
            let put = app.put_override(subject, body).await;
            assert!(put.status.is_success(), "{put:?}");
        }
        let held = json!({ "subject": subject, "hold_seconds": 60 });
        let confirmed = app.claim_body(held.clone(), None).await.grant_id();
        app.confirm(&confirmed).await.is(201);
        app.claim_body(held, None).await.is(201);
        app.claim_under("sms", json!({ "subject": subject }), None)
            .await
            .is(201);
    }
    app.claim_under("tea", json!({ "subject": OTHER }), None)
        .await
        .is(201);
    app.claim_body(json!({ "subject": GONE, "units": 6 }), None)
        .await
        .is(429);
    // The holds lapse with the next decisions.
    clock.advance(TimeDelta::minutes(2));
    for subject in [GONE, OTHER] {
        app.claim(subject, None).await.is(201);
    }
    grants.try_into().expect("two grants")
}

async fn export(app: &App, query: &str) -> ExportedFile {
    let answer = app
        .get(&format!("/v1/entries/export?format=csv&{query}"))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let as_of = answer.header("perdiem-as-of").expect("a position");
    let link = answer.header("link").expect("a link");
    let manifest = link.split(['<', '>']).nth(1).expect("a URL");
    ExportedFile {
        path: format!("/v1/entries/export?format=csv&{query}&as_of={as_of}"),
        manifest: manifest.to_owned(),
        text: answer.text,
    }
}

async fn proof(app: &App, grant: &str) -> String {
    let proof = app.get(&format!("/v1/grants/{grant}/proof")).await;
    assert_eq!(proof.status, 200, "{proof:?}");
    proof.text
}

/// Checks a proof with perdiem, and with a program that shares no code with perdiem.
fn proven(proof: &str) -> Proven {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("one.tlog-proof");
    fs::write(&file, proof).expect("a file");
    let (is_good, said) = python(&file, &verifier().to_string());
    assert!(is_good, "{said}");
    let proof = LogProof::parse(proof).expect("a proof");
    proof.check(&verifier()).expect("the proof is valid")
}

/// The days in the record, after all figures are made.
async fn days(app: &App) -> Vec<Value> {
    eventually("the denials are counted", || async {
        let days = all_items(app, "/v1/stats").await;
        let denied = days.iter().map(|day| day["denied_claims"].as_u64());
        denied.sum::<Option<u64>>() == Some(DENIED)
    })
    .await;
    are_sums_of_the_entries(app).await
}

impl KeptRecord {
    async fn of(app: &App, ground: &Ground, grants: [String; 2]) -> Self {
        let mut files = Vec::new();
        for query in [&format!("subject={OTHER}"), "policy=tea"] {
            files.push(export(app, query).await);
        }
        let seal = all_is_sealed(app, ground).await;
        let [gone, other] = grants;
        let proofs = [proof(app, &gone).await, proof(app, &other).await];
        let [of_gone, of_other] = proofs;
        Self {
            bundle: bundle(app, seal.size).await,
            proofs: [(gone, of_gone), (other, of_other)],
            days: days(app).await,
            files,
            seal,
        }
    }

    /// Compares each kept document with the service's present answer. `later_acts` is the number of
    /// acts that were recorded since then.
    async fn is_unchanged(&self, app: &App, ground: &Ground, later_acts: usize) {
        // 1. The ledger equals its seals, also the seal that was kept.
        eventually("the days are shown", || async {
            all_items(app, "/v1/changes?kind=day").await.len() == later_acts
        })
        .await;
        let newest = all_is_sealed(app, ground).await;
        let unchanged = verified(ground, Some(self.seal.clone())).await;
        let unchanged = unchanged.expect("nothing differs");
        assert_eq!((unchanged.sealed, unchanged.unsealed), (newest.size, 0));
        // 2. The leaves have the same bytes.
        assert!(bundle(app, self.seal.size).await == self.bundle);
        // 3. Old proofs are valid, and new proofs have the same leaves. Only those of other
        //    subjects open.
        let [gone, other] = &self.proofs;
        for (is_open, (grant, kept)) in [(false, gone), (true, other)] {
            let before = proven(kept);
            let after = proven(&proof(app, grant).await);
            assert_eq!(before.leaf, after.leaf);
            assert!(before.private.is_some());
            assert_eq!(after.private, before.private.filter(|_| is_open));
        }
        // 4. The figures are the same.
        assert_eq!(days(app).await, self.days);
        // 5. The files of other subjects are the same.
        for file in &self.files {
            let manifest = app.get(&file.manifest).await.is(200);
            assert_eq!(manifest["rows_erased"], 0);
            let again = app.get(&file.path).await;
            assert_eq!(again.status, 200, "{again:?}");
            assert!(again.text == file.text, "{}", file.path);
            let link = again.header("link").expect("a link");
            let link = link.split(['<', '>']).nth(1).expect("a URL").to_owned();
            let again = app.get(&link).await.is(200);
            assert_eq!(again["sha256"], manifest["sha256"]);
        }
    }
}

async fn an_erasure_leaves_the_log_the_figures_and_others_files(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(&ground, |options| {
        sealing(options);
        options.clock = Clock::Manual(clock.clone());
    })
    .await;
    let grants = history(&app, &clock).await;
    all_is_sealed(&app, &ground).await;
    let of_gone = export(&app, &format!("subject={GONE}")).await;
    let with_gone = export(&app, "policy=benefit").await;
    let kept = KeptRecord::of(&app, &ground, grants).await;
    kept_opens(&kept);

    // 1. The texts are erased.
    let erased = erase(&app, GONE, "request 118").await;
    assert_eq!(erased.is(200)["accounts"], 2);
    kept.is_unchanged(&app, &ground, 0).await;
    problem(&app.get(&of_gone.manifest).await, 404, "not-found");
    let manifest = app.get(&with_gone.manifest).await.is(200);
    assert_ne!(manifest["rows_erased"], 0);

    // 2. The accounts get random ids.
    clock.advance(TimeDelta::hours(26));
    all_are_past(&ground, 3, &clock).await;
    kept.is_unchanged(&app, &ground, DAYS).await;

    // 3. The keys are deleted, and the erasure ends.
    clock.advance(TimeDelta::hours(48));
    all_are_past(&ground, 4, &clock).await;
    kept.is_unchanged(&app, &ground, DAYS).await;
    assert_eq!(judge_ledger(&ground.stores().await), []);
    let check = app.request(Method::POST, "/v1/reconciliations");
    let report = Answer::of(check.json(&json!({ "apply": false }))).await;
    assert_eq!(report.json()["difference_count"], 0, "{report:?}");

    // 4. The figures are made again, from entries without names.
    ground.make_figures_again().await;
    assert_eq!(days(&app).await, kept.days);
}

/// The kept documents name the subject, and the files of other subjects do not.
fn kept_opens(kept: &KeptRecord) {
    for ((_, proof), subject) in kept.proofs.iter().zip([GONE, OTHER]) {
        let private = proven(proof).private.expect("the private fields");
        assert_eq!(private["subject"], subject);
    }
    assert!(kept.files.iter().all(|file| !file.text.contains(GONE)));
    assert!(kept.files.iter().all(|file| file.text.contains(OTHER)));
}
