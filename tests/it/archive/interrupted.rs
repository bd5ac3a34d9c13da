//! An interrupted archive continues, and its files have the same bytes at the end.

use std::fs::{self, File};

use super::{Archivist, EVENING, MIDDAY};
use crate::seals::all_is_sealed;
use crate::support::app::Stack;
use crate::support::desk::on_every_store;

on_every_store!(an_interrupted_archive_goes_on);

async fn an_interrupted_archive_goes_on(stack: Stack) {
    let (archivist, first) = Archivist::filled(stack).await;
    archivist.more().await;
    archivist.archived(MIDDAY).await;
    // The same archive again, under a seal that has the act of the first one. No later seal is
    // made.
    all_is_sealed(&archivist.app, &archivist.ground).await;
    fs::remove_dir_all(&archivist.folder).expect("the folder is removed");
    archivist.archived(MIDDAY).await;
    let whole = archivist.files();
    let leaves = format!("leaves-000000000001-{first:012}.ndjson");
    let hashes = format!("hashes-000000000001-{first:012}.bin");
    let path = |name: &str| archivist.folder.join(name);
    let part = |name: &str| archivist.folder.join(format!("{name}.part"));
    // Interrupted while it writes leaves: some lines, the last one incomplete.
    let half = &whole[&leaves][..whole[&leaves].len() / 2];
    // With one damaged line.
    let mut damaged = whole[&leaves].clone();
    damaged[whole[&leaves].len() / 3] ^= 1;
    for left in [half, &damaged, b"", b"\n\n\n"] {
        fs::remove_file(path("archive.json")).expect("the index is removed");
        fs::remove_file(path(&leaves)).expect("the leaves are removed");
        fs::rename(path(&hashes), part(&hashes)).expect("a part");
        fs::write(part(&leaves), left).expect("a part");
        let fault = archivist.fault().await;
        assert!(fault.contains("run that again"), "{fault}");
        assert_eq!(archivist.archived(MIDDAY).await.added, first);
        assert_eq!(archivist.files(), whole);
    }
    // Interrupted while it renames its files.
    fs::rename(path("archive.json"), part("archive.json")).expect("a part");
    fs::rename(path(&hashes), part(&hashes)).expect("a part");
    archivist.archived(MIDDAY).await;
    assert_eq!(archivist.files(), whole);
    // The instant differs from that of the interrupted archive. Therefore its partial files are not
    // used.
    let leaves = part("leaves-x.ndjson");
    let hashes = part("hashes-x.bin");
    for name in [&leaves, &hashes] {
        fs::write(name, "something").expect("a part");
    }
    all_is_sealed(&archivist.app, &archivist.ground).await;
    archivist.archived(EVENING).await;
    assert!(!leaves.exists() && !hashes.exists());
    archivist.check().await.expect("valid");
    // Two archives at the same time are refused.
    let lock = File::open(&archivist.folder).expect("the folder");
    lock.lock().expect("a lock");
    let refusal = archivist.refusal(MIDDAY).await;
    assert!(refusal.contains("another perdiem archive"), "{refusal}");
}
