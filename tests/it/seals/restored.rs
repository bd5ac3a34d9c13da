//! A ledger that was restored from a backup reports this, and its seals begin again.

use std::fs;
use std::path::{Path, PathBuf};

use perdiem::domain::seal::note::Checkpoint;
use perdiem::engine::{SealTarget, restart_seals};
use tempfile::TempDir;

use super::{all_is_sealed, ledger, seal_key, sealing, verified, verifier};
use crate::support::app::{App, Ground, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::servers::postgres;

fn pushed(folder: &Path) -> Option<Checkpoint> {
    let note = fs::read_to_string(folder.join("checkpoint")).ok()?;
    Some(Checkpoint::parse(&note).expect("a checkpoint"))
}

on_every_store!(a_restored_ledger_is_behind_its_seal_until_a_restart);

/// A copy of a ledger that no process has open.
enum Backup {
    File(PathBuf),
    Database(Ground),
}

impl Backup {
    async fn of(ground: &Ground, stack: Stack, folder: &Path) -> Self {
        if stack == Stack::Postgres {
            let copy = Ground::empty(stack);
            postgres().dump_into(&ground.database_url, &copy.database_url);
            return Self::Database(copy);
        }
        ground.sql("PRAGMA wal_checkpoint(TRUNCATE)").await;
        let backup = folder.join("perdiem.db");
        fs::copy(file(ground), &backup).unwrap();
        Self::File(backup)
    }

    /// Restores the ledger.
    fn restore(self, ground: &Ground) -> Ground {
        let backup = match self {
            Self::Database(copy) => return copy,
            Self::File(backup) => backup,
        };
        let database = file(ground);
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{database}{end}"));
        }
        fs::copy(backup, database).unwrap();
        ground.clone()
    }
}

/// The file of a ledger in SQLite.
fn file(ground: &Ground) -> &str {
    ground.database_url.strip_prefix("sqlite:").unwrap()
}

async fn a_restored_ledger_is_behind_its_seal_until_a_restart(stack: Stack) {
    let outside = TempDir::new().unwrap();
    let kept = TempDir::new().unwrap();
    let seals = outside.path().to_owned();
    let ground = Ground::new(stack);
    let start = async |ground: &Ground| {
        App::start_with(ground, |options| {
            sealing(options);
            options.seal_to = Some(SealTarget::Folder(seals.clone()));
        })
        .await
    };
    let app = start(&ground).await;
    app.benefit(9, "UTC").await;
    app.claim("member-1", None).await;
    all_is_sealed(&app, &ground).await;
    drop(app);
    let backup = Backup::of(&ground, stack, kept.path()).await;
    let app = start(&ground).await;
    app.claim("member-1", None).await;
    let seal = all_is_sealed(&app, &ground).await;
    eventually("the seal is copied outside", || async {
        pushed(&seals).is_some_and(|pushed| pushed.size == seal.size)
    })
    .await;
    assert_eq!(pushed(&seals).unwrap().check(&verifier()), Ok(()));
    drop(app);
    let ground = backup.restore(&ground);
    let error = verified(&ground, Some(seal.clone()))
        .await
        .expect_err("the ledger is behind the seal");
    assert!(error.to_string().contains("later ones are gone"), "{error}");
    // The instance is ready and reports the trouble. Claims continue, and nothing is sealed.
    let app = start(&ground).await;
    let troubles = async || app.get("/readyz").await;
    eventually("the trouble is reported", || async {
        troubles().await.text.contains("perdiem seal restart")
    })
    .await;
    assert_eq!(troubles().await.status, 200);
    assert_eq!(app.claim("member-1", None).await.status, 201);
    let begun = instant("2026-11-21T09:00:00Z");
    let store = ledger(&ground).await;
    let next = restart_seals(&store, &seal_key(), "restored", begun).await;
    let next = next.unwrap().expect("another log");
    store.close().await;
    eventually("all is sealed again", || async {
        pushed(&seals).is_some_and(|pushed| pushed.origin == next.name)
    })
    .await;
    let again = all_is_sealed(&app, &ground).await;
    assert_eq!(again.origin, next.name);
    eventually("the trouble is over", || async {
        !troubles().await.text.contains("perdiem seal restart")
    })
    .await;
    verified(&ground, Some(again))
        .await
        .expect("nothing differs");
    let error = verified(&ground, Some(seal))
        .await
        .expect_err("another log");
    assert!(
        error
            .to_string()
            .contains("ended when seals were restarted"),
        "{error}"
    );
}
