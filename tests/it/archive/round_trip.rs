//! An archive has exactly the sealed leaves, and can be checked on any machine.

use std::process::Command;

use serde_json::Value;

use super::{Archivist, EVENING, MIDDAY};
use crate::seals::{leaves, verifier};
use crate::support::app::Stack;
use crate::support::desk::on_every_store;
use crate::support::terminal::Said;

on_every_store!(
    leaves_are_archived_and_checked,
    the_next_archive_goes_on,
    another_program_finds_the_same
);

/// The acts of archives, newest first.
async fn acts(archivist: &Archivist) -> Vec<Value> {
    let list = archivist.app.get("/v1/changes?kind=archive").await.json();
    list["items"].as_array().expect("items").clone()
}

async fn leaves_are_archived_and_checked(stack: Stack) {
    let (archivist, sealed) = Archivist::filled(stack).await;
    let folder = archivist.folder.to_str().expect("a path");
    let url = &archivist.ground.database_url;
    let key = verifier().to_string();
    let archive = [
        "archive",
        folder,
        "--before",
        MIDDAY,
        "--reason",
        "a new year",
        "--key",
        &key,
        "--database-url",
        url,
    ];
    let said = Said::by(&archivist.app, &archive).await.well(0);
    assert!(
        said.contains(&format!("the positions 1 to {sealed} of perdiem/")),
        "{said}"
    );
    // Every leaf is a line, and no line has personal data.
    let files = archivist.files();
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let span = format!("000000000001-{sealed:012}");
    let wanted = [
        "archive.json".to_owned(),
        format!("checkpoint-{sealed:012}.note"),
        format!("hashes-{span}.bin"),
        format!("leaves-{span}.ndjson"),
    ];
    assert_eq!(names, wanted);
    let text = String::from_utf8(files[&wanted[3]].clone()).expect("UTF-8");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines, leaves(&archivist.app, sealed).await);
    for private in ["member-", "order-", "a mistake", "by hand", "key-1"] {
        for (name, bytes) in &files {
            let is_there = bytes
                .windows(private.len())
                .any(|part| part == private.as_bytes());
            assert!(!is_there, "{name} has {private}");
        }
    }
    // The check uses the folder alone, and then also the ledger.
    let check = ["verify", "--archive", folder, "--key", &key];
    let said = Said::by(&archivist.app, &check).await.well(0);
    assert!(said.contains("not compared with the ledger"), "{said}");
    let check = [&check[..], &["--database-url", url]].concat();
    let said = Said::by(&archivist.app, &check).await.well(0);
    assert!(said.contains("the ledger has the same positions"), "{said}");
    // An act records the archive.
    let acts = acts(&archivist).await;
    let [act] = &acts[..] else {
        panic!("{acts:?}");
    };
    assert_eq!(
        (&act["by"], &act["reason"]),
        (&"perdiem".into(), &"a new year".into())
    );
    let about = &act["after"];
    assert_eq!(about["last_position"], sealed);
    let index: Value = serde_json::from_slice(&files["archive.json"]).expect("JSON");
    assert_eq!(about["root"], index["archive"]["root"]);
    let span = &index["archive"]["spans"][0];
    assert_eq!(about["files"][0], span["leaves"]);
    assert_eq!(about["files"][1], span["hashes"]);
}

async fn the_next_archive_goes_on(stack: Stack) {
    let (archivist, first) = Archivist::filled(stack).await;
    let archived = archivist.archived(MIDDAY).await;
    assert_eq!((archived.last, archived.added), (first, first));
    let before = archivist.files();
    // Nothing was recorded since then. Therefore nothing changes, not even the record.
    let revision = acts(&archivist).await[0]["revision"].clone();
    assert_eq!(archivist.archived(MIDDAY).await.added, 0);
    assert_eq!(archivist.files(), before);
    assert_eq!(acts(&archivist).await[0]["revision"], revision);
    // The next positions include the act of the first archive.
    let second = archivist.more().await;
    let archived = archivist.archived(EVENING).await;
    assert_eq!((archived.last, archived.added), (second, second - first));
    let after = archivist.files();
    let kept = |name: &str| before[name] == after[name];
    assert!(kept(&format!("leaves-000000000001-{first:012}.ndjson")));
    assert_eq!(after.len(), 6, "{:?}", after.keys());
    assert_eq!(archivist.check().await.expect("valid").index.last, second);
    assert_eq!(acts(&archivist).await.len(), 2);
    // Later seals do not change an archive of an earlier instant.
    let mut earlier = archivist;
    earlier.folder = earlier.folder.with_file_name("earlier");
    assert_eq!(earlier.archived(MIDDAY).await.last, first);
    let checked = earlier.check().await.expect("valid");
    assert!(checked.checkpoint.size > first && !checked.index.consistency.is_empty());
}

/// The program is sixty lines of Python. It uses RFC 6962 and no code of perdiem.
async fn another_program_finds_the_same(stack: Stack) {
    let (archivist, _) = Archivist::filled(stack).await;
    archivist.more().await;
    archivist.archived(MIDDAY).await;
    let run = |folder: &str| {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/archive/check_archive.py"
        );
        let output = Command::new("python3").args([script, folder]).output();
        let output = output.expect("python3 runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        (output.status.success(), text)
    };
    let folder = archivist.folder.to_str().expect("a path");
    let (is_right, said) = run(folder);
    assert!(is_right && said.contains("consistent"), "{said}");
}
