//! Proofs, checked by a program that shares no code with perdiem.

use std::fs;
use std::path::Path;
use std::process::Command;

use chrono::TimeDelta;
use perdiem::domain::seal::note::{Checkpoint, SealKey};
use perdiem::domain::seal::tree::joined;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use super::{all_is_sealed, seal_key, sealing, sealing_at_noon, verified, verifier};
use crate::http::v1::statistics::are_sums_of_the_entries;
use crate::http::{all_items, items, problem};
use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, Stack, eventually};
use crate::support::desk::on_every_store;
use crate::support::terminal::Said;

on_every_store!(
    a_grant_is_proved_to_strangers,
    one_file_proves_the_figures_of_a_day,
);

/// The other program's result for a proof.
pub fn python(file: &Path, key: &str) -> (bool, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/seals/check_proof.py");
    let said = Command::new("python3")
        .args([script, key])
        .arg(file)
        .output();
    let said = said.expect("python3 runs");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    (
        said.status.success(),
        text + &String::from_utf8_lossy(&said.stderr),
    )
}

/// The result of `perdiem verify`.
fn verify(arguments: &[&str]) -> (bool, String) {
    let said = Command::new(env!("CARGO_BIN_EXE_perdiem"))
        .arg("verify")
        .args(arguments)
        .output();
    let said = said.expect("perdiem runs");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    (
        said.status.success(),
        text + &String::from_utf8_lossy(&said.stderr),
    )
}

async fn a_grant_is_proved_to_strangers(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start_with(&ground, sealing).await;
    app.benefit(500, "UTC").await;
    let body = json!({ "subject": "member-42", "units": 2, "metadata": { "order": "A-17" } });
    let grant = app.claim_body(body, None).await.grant_id();
    // More leaves than one tile has.
    let claim = |index: usize| json!({ "policy": "benefit", "subject": format!("m-{index}") });
    let body = json!({ "claims": (0..300).map(claim).collect::<Vec<_>>() });
    let request = app.request(Method::POST, "/v1/claims").json(&body);
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    let seal = all_is_sealed(&app, &ground).await;
    assert_eq!(seal.check(&verifier()), Ok(()));
    let proof = app.get(&format!("/v1/grants/{grant}/proof")).await;
    assert_eq!(proof.status, 200, "{proof:?}");
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("one.tlog-proof");
    fs::write(&file, &proof.text).expect("a file");
    let key = verifier().to_string();
    let (is_good, said) = python(&file, &key);
    assert!(
        is_good && said.contains("member-42") && said.contains(&grant),
        "{said}"
    );
    let name = file.to_str().expect("a path");
    let (is_good, said) = verify(&["--proof", name, "--key", &key]);
    assert!(is_good && said.contains("member-42"), "{said}");
    // A proof with one changed byte, and another key.
    let changed = proof.text.replace("index ", "index 1");
    fs::write(&file, changed).expect("a file");
    assert!(!python(&file, &key).0);
    let (is_good, said) = verify(&["--proof", name, "--key", &key]);
    assert!(!is_good && said.contains("not in the tree"), "{said}");
    fs::write(&file, &proof.text).expect("a file");
    let other = SealKey::new("perdiem", [8; 32]).expect("a key").verifier();
    let (is_good, said) = verify(&["--proof", name, "--key", &other.to_string()]);
    assert!(!is_good && said.contains("not signed by the key"), "{said}");
    // The same log, read by its tiles.
    let tile = app.request(Method::GET, "/v1/log/tile/0/000").send().await;
    let tile = tile.expect("an answer").bytes().await.expect("a tile");
    assert_eq!(tile.len(), 256 * 32);
    let upper = app.get("/v1/log/tile/1/000.p/1").await;
    assert_eq!(upper.status, 200, "{upper:?}");
    // A full tile never changes.
    for (path, cached) in [
        ("tile/0/000", "private, max-age=31536000, immutable"),
        ("tile/entries/000", "private, max-age=31536000, immutable"),
        ("tile/1/000.p/1", "no-store"),
        ("checkpoint", "no-store"),
    ] {
        let answer = app
            .request(Method::GET, &format!("/v1/log/{path}"))
            .send()
            .await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.headers()["cache-control"], cached, "{path}");
    }
    for (path, status) in [
        ("1/000", 404),
        ("0/x001/000", 404),
        ("0/0", 422),
        ("a/b", 422),
    ] {
        let answer = app.get(&format!("/v1/log/tile/{path}")).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    assert_eq!(app.get("/v1/log/checkpoint").await.text, seal.note);
    let growth = app.get("/v1/seals/consistency?from=3").await;
    assert_eq!(growth.json()["to"], seal.size, "{growth:?}");
    let beyond = app.get("/v1/seals/consistency?from=3&to=100000").await;
    problem(&beyond, 409, "not-sealed");
    // The seals are listed in pages.
    app.claim("member-43", None).await.is(201);
    all_is_sealed(&app, &ground).await;
    let seals = all_items(&app, "/v1/seals").await;
    assert!(seals.len() > 1, "{seals:?}");
    assert_eq!(all_items(&app, "/v1/seals?limit=1").await, seals);
}

/// An hour after the end of a day, the proof of a change contains the day's figures.
async fn one_file_proves_the_figures_of_a_day(stack: Stack) {
    let ground = Ground::new(stack);
    let (app, clock) = sealing_at_noon(&ground).await;
    app.benefit(500, "UTC").await;
    app.claim_body(json!({ "subject": "a", "units": 480 }), None)
        .await;
    all_is_recorded(&app, &ground).await;
    are_sums_of_the_entries(&app).await;
    clock.advance(TimeDelta::days(1));
    let acts = "/v1/changes?kind=day";
    eventually("the figures of the day are shown", || async {
        items(&app.get(acts).await).len() == 1
    })
    .await;
    all_is_sealed(&app, &ground).await;
    let act = items(&app.get(acts).await).remove(0);
    let path = format!("/v1/changes/{}/proof", act["revision"]);
    let proof = app.get(&path).await;
    assert_eq!(proof.status, 200, "{proof:?}");
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("day.tlog-proof");
    fs::write(&file, &proof.text).expect("a file");
    let name = file.to_str().expect("a path");
    let (is_good, said) = verify(&["--proof", name, "--key", &verifier().to_string()]);
    let tells = ["benefit", "2026-11-21", r#"\"units\":480"#];
    assert!(
        is_good && tells.iter().all(|it| said.contains(it)),
        "{said}"
    );
    // The proof of another change, and a request without a change.
    let rule = app.get("/v1/changes/1/proof").await;
    assert_eq!(rule.status, 200, "{rule:?}");
    let none = app.get("/v1/changes/99/proof").await;
    problem(&none, 404, "not-found");
}

/// Without a key nothing is sealed, and every route says what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_nothing_is_sealed() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let grant = app.claim("member-1", None).await.grant_id();
    for path in [
        "/v1/seals".to_owned(),
        "/v1/seals/latest".to_owned(),
        "/v1/log/checkpoint".to_owned(),
        format!("/v1/grants/{grant}/proof"),
    ] {
        let answer = app.get(&path).await;
        problem(&answer, 409, "not-sealed");
        assert!(answer.text.contains("PERDIEM_SEAL_KEY_FILE"), "{answer:?}");
    }
}

/// An export names its seal, and can be checked without a server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_checked_by_its_manifest() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start_with(&ground, sealing).await;
    app.benefit(3, "UTC").await;
    app.claim("member-1", None).await;
    eventually("the grant has a position", || async {
        app.get("/v1/entries").await.json()["items"][0]["position"].is_u64()
    })
    .await;
    let export = app.get("/v1/entries/export?format=csv").await;
    let link = export.header("link").expect("a link");
    let link = link.split(['<', '>']).nth(1).expect("a path").to_owned();
    // The manifest waits for its seal.
    let manifest = app.get(&link).await.text;
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("e.csv");
    let beside = folder.path().join("e.json");
    fs::write(&file, &export.text).expect("a file");
    fs::write(&beside, &manifest).expect("a file");
    let key = verifier().to_string();
    let names = [&file, &beside].map(|path| path.to_str().expect("a path"));
    let arguments = ["--export", names[0], "--manifest", names[1], "--key", &key];
    let (is_good, said) = verify(&arguments);
    assert!(
        is_good && said.contains("its positions are among"),
        "{said}"
    );
    // The recorded export also is in the ledger, and in a proof of its change.
    let revision = app.get(&link).await.json()["revision"].clone();
    let path = format!("/v1/changes/{revision}/proof");
    eventually("the export is sealed", || async {
        app.get(&path).await.status == 200
    })
    .await;
    let proof = folder.path().join("e.tlog-proof");
    fs::write(&proof, app.get(&path).await.text).expect("a file");
    let proof = proof.to_str().expect("a path");
    let by_proof = [&arguments[..], &["--proof", proof]].concat();
    let url = ground.database_url.as_str();
    let by_ledger = [&arguments[..], &["--database-url", url]].concat();
    let (is_good, said) = verify(&by_proof);
    assert!(is_good && said.contains("belongs to this export"), "{said}");
    let (is_good, said) = verify(&by_ledger);
    assert!(is_good && said.contains("recorded this export"), "{said}");
    for (from, to, is_in_file) in [
        ("\"grant\":1", "\"grant\":2", true),
        ("\"units_taken\":1", "\"units_taken\":2", true),
        ("\"first_position\":", "\"first_position\":1", true),
        ("\"format\":\"csv\"", "\"format\":\"csw\"", false),
        ("\"revision\":", "\"revision\":1", false),
        ("\"as_of\":", "\"as_of\":1", false),
        ("\"filters\":{}", "\"filters\":{\"on\":\"2026\"}", false),
        ("\"exported_by\":\"P", "\"exported_by\":\"Q", false),
        ("\"exported_at\":\"2", "\"exported_at\":\"3", false),
    ] {
        assert!(manifest.contains(from), "{from}: {manifest}");
        fs::write(&beside, manifest.replacen(from, to, 1)).expect("a file");
        for with in [&arguments[..], &by_proof, &by_ledger] {
            let (is_good, said) = verify(with);
            let is_found = is_in_file || with.len() > arguments.len();
            assert_eq!(
                is_good,
                !is_found && !from.contains("as_of"),
                "{from}: {said}"
            );
        }
    }
    fs::write(&beside, &manifest).expect("a file");

    fs::write(&file, export.text.replacen("grant", "trant", 1)).expect("a file");
    let (is_good, said) = verify(&arguments);
    assert!(
        !is_good && said.contains("one of the two files was changed"),
        "{said}"
    );
    fs::write(&file, &export.text).expect("a file");
    fs::write(&beside, manifest.replacen("perdiem/", "perdiem/0", 1)).expect("a file");
    let (is_good, said) = verify(&arguments);
    assert!(!is_good && said.contains("not signed by the key"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workbook_is_checked_by_its_manifest() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start_with(&ground, sealing).await;
    app.benefit(3, "UTC").await;
    app.claim("member-1", None).await;
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("e.xlsx");
    let beside = folder.path().join("e.xlsx.manifest.json");
    let key = verifier().to_string();
    let names = [&file, &beside].map(|path| path.to_str().expect("a path"));
    Said::by(&app, &["export", names[0], "--xlsx"])
        .await
        .well(0);
    let arguments = ["--export", names[0], "--manifest", names[1], "--key", &key];
    let (is_good, said) = verify(&arguments);
    assert!(
        is_good && said.contains("its positions are among"),
        "{said}"
    );
    let mut workbook = fs::read(&file).expect("a file");
    workbook.push(0);
    fs::write(&file, workbook).expect("a file");
    let (is_good, said) = verify(&arguments);
    assert!(
        !is_good && said.contains("one of the two files was changed"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_to_verify_is_checked_first() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start_with(&ground, sealing).await;
    app.benefit(3, "UTC").await;
    let seal = all_is_sealed(&app, &ground).await;
    drop(app);
    for (key, says) in [
        ("missing.pub", "the file cannot be read"),
        ("perdiem+00000000+AAAA", "this is not a key"),
    ] {
        let (is_good, said) = verify(&["--key", key, "--database-url", &ground.database_url]);
        assert!(
            !is_good && said.contains(says) && said.contains(key),
            "{said}"
        );
    }
    let empty = seal_key().sign(&seal.origin, 0, &joined(&[]));
    let empty = Checkpoint::parse(&empty).expect("a checkpoint");
    let error = verified(&ground, Some(empty))
        .await
        .expect_err("an empty checkpoint is refused");
    assert!(error.to_string().contains("0 positions"), "{error}");
}
