//! Seals that are copied outside the ledger: into a folder, and to a program.

use std::fs;
use std::path::Path;

use perdiem::domain::seal::note::Checkpoint;
use perdiem::engine::{SealTarget, restart_seals};
use tempfile::TempDir;

use super::{all_is_sealed, all_is_well, figure, ledger, seal_key, sealing, told, verifier};
use crate::support::app::{App, Ground, Stack, eventually, instant};
use crate::support::desk::on_every_store;

on_every_store!(
    a_damaged_file_outside_is_told_and_heals,
    a_program_gets_each_seal
);

async fn start(ground: &Ground, target: &SealTarget) -> App {
    App::start_with(ground, |options| {
        sealing(options);
        options.seal_to = Some(target.clone());
    })
    .await
}

async fn arrives(file: &Path, seal: &Checkpoint) {
    eventually("the seal is copied outside", || async {
        fs::read_to_string(file).is_ok_and(|note| note == seal.note)
    })
    .await;
}

async fn a_damaged_file_outside_is_told_and_heals(stack: Stack) {
    let outside = TempDir::new().expect("a folder");
    let folder = outside.path().join("seals");
    let newest = folder.join("checkpoint");
    let ground = Ground::new(stack);
    let target = SealTarget::Folder(folder.clone());
    // A missing folder may be an unmounted one. Nothing is sealed, and no folder is made.
    let app = start(&ground, &target).await;
    app.benefit(9, "UTC").await;
    told(&app, "make it, or mount its disk").await;
    assert!(!folder.exists());
    fs::create_dir(&folder).expect("a folder");
    all_is_well(&app).await;
    let seal = all_is_sealed(&app, &ground).await;
    arrives(&newest, &seal).await;
    drop(app);
    // The newest file is damaged. The file of the log has the same checkpoint, or else the file of
    // the day.
    fs::write(&newest, "").expect("a file");
    let app = start(&ground, &target).await;
    app.claim("member-1", None).await;
    let seal = all_is_sealed(&app, &ground).await;
    arrives(&newest, &seal).await;
    drop(app);
    let (_, ledger_id) = seal.origin.rsplit_once('/').expect("an origin");
    let own = folder.join(format!("{ledger_id}.checkpoint"));
    fs::write(&newest, "half of it").expect("a file");
    fs::remove_file(&own).expect("a file");
    let app = start(&ground, &target).await;
    app.claim("member-1", None).await;
    let seal = all_is_sealed(&app, &ground).await;
    arrives(&newest, &seal).await;
    drop(app);
    // No other file exists. This is reported until a restart begins another log.
    for file in fs::read_dir(&folder).expect("files") {
        fs::write(file.expect("a file").path(), "").expect("a file");
    }
    let app = start(&ground, &target).await;
    told(&app, "is damaged").await;
    told(&app, "perdiem seal restart").await;
    let store = ledger(&ground).await;
    let begun = instant("2026-11-21T09:00:00Z");
    let next = restart_seals(&store, &seal_key(), "damaged", begun).await;
    let next = next.expect("a restart").expect("another log");
    store.close().await;
    all_is_well(&app).await;
    let seal = all_is_sealed(&app, &ground).await;
    assert_eq!(seal.origin, next.name);
    arrives(&newest, &seal).await;
    let files = fs::read_dir(&folder).expect("files");
    let names: Vec<_> = files
        .map(|file| file.expect("a file").file_name())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| !name.to_string_lossy().ends_with(".part")),
        "{names:?}"
    );
    // The last checkpoint of each log is kept.
    let begun = begun.timestamp();
    let own = fs::read_to_string(folder.join(format!("{ledger_id}-{begun}.checkpoint")));
    assert_eq!(own.expect("a file"), seal.note);
}

async fn a_program_gets_each_seal(stack: Stack) {
    let outside = TempDir::new().expect("a folder");
    let script = outside.path().join("push");
    let got = outside.path().join("got");
    let write = |text: String| fs::write(&script, text).expect("a script");
    let words = vec![script.to_str().expect("a path").to_owned()];
    let target = SealTarget::Program("sh".to_owned(), words);
    // The program fails, and is tried again.
    write("exit 1".to_owned());
    let ground = Ground::new(stack);
    let app = start(&ground, &target).await;
    app.benefit(9, "UTC").await;
    let seal = all_is_sealed(&app, &ground).await;
    eventually("a failure is counted", || async {
        figure(&app, "perdiem_seal_push_failures").await > 0.0
    })
    .await;
    assert!(!got.exists());
    write(format!(
        "cat > '{0}.part' && mv '{0}.part' '{0}'",
        got.display()
    ));
    arrives(&got, &seal).await;
    app.claim("member-1", None).await;
    let seal = all_is_sealed(&app, &ground).await;
    arrives(&got, &seal).await;
    assert_eq!(seal.check(&verifier()), Ok(()));
}
