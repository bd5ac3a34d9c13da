//! An archive that cannot be made: the message says why, and what to do.

use super::{Archivist, EVENING, MIDDAY, MORNING};
use crate::record::all_is_recorded;
use crate::seals::{ledger, seal_key};
use crate::support::app::{App, Ground, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::terminal::Said;
use perdiem::engine::restart_seals;
use perdiem::host::clock::Clock;

on_every_store!(
    what_is_not_sealed_is_refused,
    what_is_empty_is_said,
    a_folder_of_another_ledger_is_refused
);

async fn what_is_not_sealed_is_refused(stack: Stack) {
    let (mut archivist, _) = Archivist::filled(stack).await;
    let refusal = archivist.refusal("2026-01-06T00:00:00Z").await;
    assert!(refusal.contains("is in the future"), "{refusal}");
    // The log begins again. Only a small part of the new log is sealed.
    let app = std::mem::replace(&mut archivist.app, App::on(Stack::Sqlite).await);
    drop(app);
    let app = App::start_with(&archivist.ground, |options| {
        options.clock = Clock::Manual(archivist.clock.clone());
    })
    .await;
    app.claim("member-9", None).await;
    all_is_recorded(&app, &archivist.ground).await;
    drop(app);
    let ledger = ledger(&archivist.ground).await;
    let now = instant(MIDDAY);
    let restarted = restart_seals(&ledger, &seal_key(), "a test", now).await;
    restarted.expect("a restart").expect("a log before it");
    ledger.close().await;
    let refusal = archivist.refusal(EVENING).await;
    assert!(refusal.contains("and the newest seal has"), "{refusal}");
    assert!(refusal.contains("PERDIEM_SEAL_KEY_FILE"), "{refusal}");
    assert!(!archivist.folder.exists());
    // A ledger that was never sealed.
    archivist.ground = Ground::new(stack);
    archivist.app = App::start(&archivist.ground).await;
    let refusal = archivist.refusal(EVENING).await;
    assert!(refusal.contains("perdiem seal new-key"), "{refusal}");
}

async fn what_is_empty_is_said(stack: Stack) {
    let (archivist, _) = Archivist::filled(stack).await;
    let folder = archivist.folder.to_str().expect("a path");
    let url = &archivist.ground.database_url;
    let archive = |before| ["archive", folder, "--before", before, "--database-url", url];
    let said = Said::by(&archivist.app, &archive("2026-01-05")).await;
    let said = said.well(0);
    assert!(said.contains("nothing was recorded before"), "{said}");
    let said = Said::by(&archivist.app, &archive(MORNING)).await.well(0);
    assert!(said.contains("nothing to archive"), "{said}");
    assert!(!archivist.folder.exists());
    let said = Said::by(&archivist.app, &archive("soon")).await;
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stderr.contains("write a time"), "{said:?}");
    let verify = ["verify", "--archive", folder];
    let fault = Said::by(&archivist.app, &verify).await.fault();
    assert!(fault.contains("is no archive"), "{fault}");
}

async fn a_folder_of_another_ledger_is_refused(stack: Stack) {
    let (archivist, _) = Archivist::filled(stack).await;
    archivist.archived(MIDDAY).await;
    let (mut other, _) = Archivist::filled(stack).await;
    let before = archivist.files();
    other.folder = archivist.folder.clone();
    let refusal = other.refusal(MIDDAY).await;
    assert!(refusal.contains("name another folder"), "{refusal}");
    let folder = archivist.folder.to_str().expect("a path");
    let url = &other.ground.database_url;
    let verify = ["verify", "--archive", folder, "--database-url", url];
    let fault = Said::by(&other.app, &verify).await.fault();
    assert!(fault.contains("of another ledger"), "{fault}");
    assert_eq!(archivist.files(), before);
}
