//! A drop that is not permitted is refused. The command drops the entries that may be dropped.

use std::fs;

use perdiem::engine::{ArchiveOrder, archive_ledger};

use super::dropping::{NEW_YEAR, rows, with_years};
use crate::seals::ledger;
use crate::support::app::{Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::terminal::Said;

on_every_store!(what_may_not_be_dropped_is_refused, the_command_drops);

async fn what_may_not_be_dropped_is_refused(stack: Stack) {
    let (archivist, _) = with_years(stack).await;
    let refusal = async |before: &str| {
        let refusal = archivist.drop_before(before).await;
        refusal.expect_err("a refusal").to_string()
    };
    let young = refusal("2024-06-01T00:00:00Z").await;
    assert!(young.contains("the latest date"), "{young}");
    assert!(young.contains("2024-05-27"), "{young}");
    assert!(!archivist.folder.exists());
    // With a clock that is ahead of the record.
    let ahead = archivist.drop_at("2024-06-01T00:00:00Z", instant("2099-01-01T00:00:00Z"));
    let ahead = ahead.await.expect_err("a refusal").to_string();
    assert!(
        ahead.contains("before the newest position of the record"),
        "{ahead}"
    );
    assert!(!archivist.folder.exists());
    // With the command line, whose clock is the real one.
    let folder = archivist.folder.to_str().expect("a path");
    let url = &archivist.ground.database_url;
    let tomorrow = [
        "archive",
        folder,
        "--before",
        "2999-01-01",
        "--drop",
        "--database-url",
        url,
    ];
    let fault = Said::by(&archivist.app, &tomorrow).await.fault();
    assert!(fault.contains("the latest date"), "{fault}");
    // With a damaged folder.
    let order = ArchiveOrder {
        folder: archivist.folder.clone(),
        before: instant(NEW_YEAR),
        reason: None,
        key: None,
    };
    let archiving = ledger(&archivist.ground).await;
    let archived = archive_ledger(&archiving, &order, archivist.clock.now(), |_, _| ());
    archived.await.expect("an archive");
    archiving.close().await;
    let files = archivist.files();
    let leaves = files.keys().find(|name| name.starts_with("leaves-"));
    let leaves = leaves.expect("leaves").clone();
    let mut damaged = files[&leaves].clone();
    damaged[100] ^= 1;
    fs::write(archivist.folder.join(&leaves), &damaged).expect("a file");
    let damage = refusal(NEW_YEAR).await;
    assert!(damage.contains("is not what was sealed"), "{damage}");
    fs::write(archivist.folder.join(&leaves), &files[&leaves]).expect("a file");
    // An entry that was changed in the ledger after the archive is not dropped.
    for table in ["dropped_entries", "cuts", "acts WHERE kind = 'cut'"] {
        assert_eq!(rows(&archivist, table).await, 0, "{table}");
    }
    // Rows cannot be deleted by hand.
    let mut direct = Direct::to(&archivist.ground).await;
    for sql in ["DELETE FROM entries", "DELETE FROM entry_details"] {
        direct.try_execute(sql, sql).await.expect_err(sql);
    }
    archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    for sql in [
        "DELETE FROM entries",
        "DELETE FROM entry_details",
        "DELETE FROM dropped_entries",
    ] {
        direct.try_execute(sql, sql).await.expect_err(sql);
    }
}

async fn the_command_drops(stack: Stack) {
    let (archivist, _) = with_years(stack).await;
    let folder = archivist.folder.to_str().expect("a path").to_owned();
    let url = archivist.ground.database_url.clone();
    let by_hand = async |command: &[&str]| {
        let database = ["--database-url", &url];
        Said::by(&archivist.app, &[command, &database].concat()).await
    };
    let before = by_hand(&["verify"]).await.well(0);
    assert!(!before.contains("dropped"), "{before}");
    let drop = ["archive", &*folder, "--before", "2024-01-01", "--drop"];
    let dropped = by_hand(&drop).await.well(0);
    assert!(dropped.contains("5 entries were dropped"), "{dropped}");
    let again = by_hand(&drop).await.well(0);
    assert!(again.contains("0 entries were dropped"), "{again}");
    // The command says what a check cannot see.
    let verified = by_hand(&["verify"]).await.well(0);
    assert!(verified.contains("5 of the positions up to"), "{verified}");
    let compared = by_hand(&["verify", "--archive", &*folder]).await.well(0);
    assert!(compared.contains("positions 1 to"), "{compared}");
}
