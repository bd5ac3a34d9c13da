//! `perdiem-verify`, which an auditor runs where there is no ledger.

use std::fs;

use clap::Parser;
use perdiem::verify::program::{Verify, run};

use super::{Archivist, MIDDAY};
use crate::seals::verifier;
use crate::support::app::{Stack, eventually};

/// What the program says, in one text; or why it ends with a failure.
async fn said(arguments: &[&str]) -> Result<String, String> {
    let arguments = ["perdiem-verify"].iter().chain(arguments);
    let parsed = Verify::try_parse_from(arguments).map_err(|error| error.to_string())?;
    match run(parsed.given).await {
        Ok(told) => Ok(told.join("\n")),
        Err(error) => Err(format!("{error:#}")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_is_checked_where_no_ledger_is() {
    let (archivist, sealed) = Archivist::filled(Stack::Sqlite).await;
    archivist.archived(MIDDAY).await;
    let folder = archivist.folder.to_str().expect("a path");
    let key = verifier().to_string();
    let whole = format!("has the positions 1 to {sealed} of ");
    let signed = said(&["archive", folder, "--key", &key])
        .await
        .expect("valid");
    assert!(
        signed.contains(&whole) && !signed.contains("--key"),
        "{signed}"
    );
    let unsigned = said(&["archive", folder]).await.expect("valid");
    assert!(
        unsigned.contains(&whole) && unsigned.contains("add --key"),
        "{unsigned}"
    );
    // Another log's key.
    let other = perdiem::domain::seal::note::SealKey::new("other", [9; 32]).expect("a key");
    let other = other.verifier().to_string();
    let fault = said(&["archive", folder, "--key", &other]).await;
    assert!(fault.expect_err("a fault").contains("checkpoint-"));
    // A leaf that somebody changed.
    let name = format!("leaves-000000000001-{sealed:012}.ndjson");
    let path = archivist.folder.join(&name);
    let text = fs::read_to_string(&path).expect("a text");
    fs::write(&path, text.replacen("\"units\":1", "\"units\":2", 1)).expect("a file");
    let fault = said(&["archive", folder, "--key", &key]).await;
    let fault = fault.expect_err("a fault");
    assert!(
        fault.contains(&name) && fault.contains("is not what was sealed"),
        "{fault}"
    );
    // What is no archive, and what is no key.
    let outside = archivist.folder.parent().and_then(|it| it.to_str());
    let fault = said(&["archive", outside.expect("a path")]).await;
    assert!(fault.expect_err("a fault").contains("is no archive"));
    let fault = said(&["archive", folder, "--key", "a+b+c"]).await;
    assert!(fault.expect_err("a fault").contains("--key a+b+c"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_and_proofs_are_checked_where_no_ledger_is() {
    let (archivist, _) = Archivist::filled(Stack::Sqlite).await;
    let app = &archivist.app;
    let export = app.get("/v1/entries/export?format=csv").await;
    let link = export.header("link").expect("a link");
    let link = link.split(['<', '>']).nth(1).expect("a path").to_owned();
    let manifest = app.get(&link).await;
    let revision = manifest.json()["revision"].clone();
    let path = format!("/v1/changes/{revision}/proof");
    eventually("the export is sealed", || async {
        app.get(&path).await.status == 200
    })
    .await;
    let folder = archivist.folder.parent().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        path.to_str().expect("a path").to_owned()
    };
    let rows = write("e.csv", &export.text);
    let manifest = write("e.json", &manifest.text);
    let proof = write("e.tlog-proof", &app.get(&path).await.text);
    let key = verifier().to_string();
    let check = ["export", &rows, "--manifest", &manifest, "--key", &key];
    let told = said(&check).await.expect("valid");
    assert!(
        told.contains("matches its manifest") && told.contains("are among"),
        "{told}"
    );
    let told = said(&[&check[..], &["--proof", &proof]].concat())
        .await
        .expect("valid");
    assert!(told.contains("the proof belongs to this export"), "{told}");
    let told = said(&["proof", &proof, "--key", &key])
        .await
        .expect("valid");
    assert!(
        told.contains("a change:") && told.contains("\"export\""),
        "{told}"
    );
    // A row that somebody changed, and a file that is no proof.
    write("e.csv", &export.text.replacen("member-1", "member-9", 1));
    let fault = said(&check).await.expect_err("a fault");
    assert!(
        fault.contains("one of the two files was changed"),
        "{fault}"
    );
    let fault = said(&["proof", &rows, "--key", &key])
        .await
        .expect_err("a fault");
    assert!(fault.contains("e.csv"), "{fault}");
    let fault = said(&[&check[..4], &["--proof", &proof]].concat()).await;
    assert!(fault.expect_err("a fault").contains("--key"));
}
