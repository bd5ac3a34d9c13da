//! A change in an archive is found and named.

use std::fs;

use perdiem::domain::seal::leaf::hex;
use perdiem::domain::seal::note::{SealKey, encode_hash};
use perdiem::domain::seal::tree::{GrowingTree, leaf_hash};
use perdiem::engine::compare_archive;
use perdiem::verify::index::ArchiveIndex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Archivist, MIDDAY};
use crate::seals::ledger;
use crate::support::app::Stack;
use crate::support::desk::on_every_store;

on_every_store!(
    a_changed_byte_is_found_and_named,
    a_changed_ledger_is_found_and_named
);

/// The distance between the changed bytes, so that the test ends soon.
const EVERY: usize = 37;

async fn a_changed_byte_is_found_and_named(stack: Stack) {
    let (archivist, sealed) = Archivist::filled(stack).await;
    archivist.more().await;
    archivist.archived(MIDDAY).await;
    let whole = archivist.files();
    for (name, bytes) in &whole {
        let path = archivist.folder.join(name);
        for index in (0..bytes.len()).step_by(EVERY).chain([bytes.len() - 1]) {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            fs::write(&path, &changed).expect("a changed file");
            let fault = archivist.fault().await;
            assert!(fault.contains(name), "{name} {index}: {fault}");
            if name.starts_with("leaves-") {
                let line = bytes[..index].iter().filter(|byte| **byte == b'\n').count();
                let position = format!("position {}:", line + 1);
                assert!(fault.contains(&position), "{index}: {fault}");
            }
        }
        // One byte fewer, one byte more, and no byte.
        for changed in [&bytes[..bytes.len() - 1], &[bytes, &b"\n"[..]].concat()] {
            fs::write(&path, changed).expect("a changed file");
            let fault = archivist.fault().await;
            assert!(fault.contains(name), "{name}: {fault}");
        }
        fs::remove_file(&path).expect("the file is removed");
        let fault = archivist.fault().await;
        assert!(fault.contains(name), "{name}: {fault}");
        fs::write(&path, bytes).expect("the file");
    }
    assert_eq!(archivist.check().await.expect("valid").index.last, sealed);
    made_again(&archivist).await;
}

/// All files are made again with a changed leaf. Such an archive cannot exist without the secret
/// key.
async fn made_again(archivist: &Archivist) {
    let files = archivist.files();
    let mut index: Value = serde_json::from_slice(&files["archive.json"]).expect("JSON");
    let mut archive = index["archive"].take();
    let name = |archive: &Value, of: &str| {
        let name = archive["spans"][0][of]["name"].as_str().expect("a name");
        archivist.folder.join(name)
    };
    let leaves = fs::read_to_string(name(&archive, "leaves")).expect("leaves");
    let leaves = leaves.replacen("\"units\":1", "\"units\":2", 1);
    let mut tree = GrowingTree::default();
    let mut hashes = Vec::new();
    for line in leaves.lines() {
        let hash = leaf_hash(line.as_bytes());
        tree.push(hash);
        hashes.extend(hash);
    }
    for (of, bytes) in [("leaves", leaves.as_bytes()), ("hashes", &hashes)] {
        fs::write(name(&archive, of), bytes).expect("a file");
        archive["spans"][0][of]["sha256"] = hex(&Sha256::digest(bytes)).into();
    }
    let write = |archive: &Value| {
        let index: ArchiveIndex = serde_json::from_value(archive.clone()).expect("an index");
        let text = index.text().expect("JSON");
        fs::write(archivist.folder.join("archive.json"), text).expect("an index");
    };
    write(&archive);
    let fault = archivist.fault().await;
    assert!(fault.contains("do not have the root"), "{fault}");
    let root = encode_hash(&tree.root());
    archive["root"] = root.into();
    write(&archive);
    let fault = archivist.fault().await;
    assert!(
        fault.contains("are not the first ones of checkpoint-"),
        "{fault}"
    );
    // A checkpoint that the forger signs has another key.
    let origin = archive["origin"].as_str().expect("an origin");
    let other = SealKey::new("perdiem", [8; 32]).expect("a key");
    let size = tree.size();
    let note = other.sign(origin, size, &tree.root());
    let checkpoint = format!("checkpoint-{size:012}.note");
    fs::write(archivist.folder.join(&checkpoint), &note).expect("a note");
    let sha256 = hex(&Sha256::digest(&note));
    archive["checkpoint"] = json!({ "name": checkpoint, "sha256": sha256 });
    archive["consistency"] = json!([]);
    write(&archive);
    let fault = archivist.fault().await;
    assert!(fault.contains("not signed by the key"), "{fault}");
    for (name, bytes) in &files {
        fs::write(archivist.folder.join(name), bytes).expect("a file");
    }
}

async fn a_changed_ledger_is_found_and_named(stack: Stack) {
    let (archivist, _) = Archivist::filled(stack).await;
    archivist.archived(MIDDAY).await;
    let checked = archivist.check().await.expect("valid");
    let compared = async || {
        let ledger = ledger(&archivist.ground).await;
        let compared = compare_archive(&ledger, &archivist.folder, &checked, |_, _| ()).await;
        ledger.close().await;
        compared.map_err(|error| error.to_string())
    };
    assert_eq!(compared().await, Ok(()));
    archivist.ground.open_the_ledger().await;
    let newest = "(SELECT max(id) FROM entries)";
    let newest = if archivist.ground.database_url.starts_with("sqlite:") {
        newest.to_owned()
    } else {
        newest.replace("max(id)", "max(id::text)::uuid")
    };
    let sql = format!("UPDATE entries SET units = units + 1 WHERE id = {newest}");
    archivist.ground.sql(&sql).await;
    let fault = compared().await.expect_err("a fault");
    assert!(fault.starts_with("position "), "{fault}");
    assert!(fault.contains("the entry "), "{fault}");
    // A changed row is not archived.
    let mut other = archivist;
    other.folder = other.folder.with_file_name("other");
    let refusal = other.refusal(MIDDAY).await;
    assert!(
        refusal.contains("is not what was sealed there"),
        "{refusal}"
    );
    assert!(!other.folder.join("archive.json").exists());
}
