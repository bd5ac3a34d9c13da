//! A drop without the record of a cut is found.

use perdiem::ledger::CutText;

use super::act_of;
use super::dropping::{NEW_YEAR, is_sealed, with_years};
use crate::seals::{ledger, verified};
use crate::support::app::{Ground, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(
    what_no_cut_records_is_found,
    a_cut_of_young_entries_is_found
);

/// Takes away what keeps the owner of the tables from mistakes.
pub async fn drop_triggers(ground: &Ground, stack: Stack) {
    let sql = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => {
            "SELECT 'DROP TRIGGER ' || name FROM sqlite_master WHERE type = 'trigger'"
        }
        Stack::Postgres | Stack::RedisAndPostgres => {
            "SELECT 'DROP TRIGGER ' || tgname || ' ON ' || tgrelid::regclass::text
             FROM pg_trigger WHERE NOT tgisinternal"
        }
    };
    let triggers = Direct::to(ground).await.texts(sql).await;
    for statement in triggers {
        ground.sql(&statement).await;
    }
}

async fn what_no_cut_records_is_found(stack: Stack) {
    let (archivist, grants) = with_years(stack).await;
    archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    let ground = archivist.ground.clone();
    let literal = |id: &str| ground.literal(id.parse().expect("an id"));
    let kept = literal(&grants[2]);
    let later = literal(&grants[3]);
    drop(archivist);
    verified(&ground, None).await.expect("valid");
    drop_triggers(&ground, stack).await;
    let fault = async || {
        let fault = verified(&ground, None).await;
        fault.expect_err("a fault").to_string()
    };
    ground
        .sql("CREATE TABLE kept AS SELECT * FROM entries")
        .await;
    let put_back = async || {
        ground.sql("DELETE FROM entries").await;
        ground.sql("INSERT INTO entries SELECT * FROM kept").await;
    };
    // The deleted entry has no row in `dropped_entries`.
    ground
        .sql(&format!("DELETE FROM entries WHERE id = {kept}"))
        .await;
    let found = fault().await;
    assert!(found.starts_with("position "), "{found}");
    put_back().await;
    // It has a row. The cut of that row has the entry's position, but kept the entry.
    let note = |id: &str| {
        format!(
            "INSERT INTO dropped_entries (xact, id, revision, policy)
             SELECT xact, id, (SELECT max(revision) FROM acts WHERE kind = 'cut'), policy
             FROM entries WHERE id = {id}"
        )
    };
    ground.sql(&note(&kept)).await;
    ground
        .sql(&format!("DELETE FROM entries WHERE id = {kept}"))
        .await;
    let found = fault().await;
    assert!(found.contains("others were dropped"), "{found}");
    put_back().await;
    verified(&ground, None).await.expect("valid");
    // It has a row, but no cut has its position.
    ground.sql(&note(&later)).await;
    ground
        .sql(&format!("DELETE FROM entries WHERE id = {later}"))
        .await;
    let found = fault().await;
    assert!(found.contains("no sealed cut"), "{found}");
    put_back().await;
    // The rows of the real cut are deleted.
    ground
        .sql("DELETE FROM dropped_entries WHERE id NOT IN (SELECT id FROM entries)")
        .await;
    let found = fault().await;
    assert!(found.starts_with("position "), "{found}");
}

/// The owner of the tables records a cut that `perdiem archive` never makes, and an instance seals
/// it.
async fn a_cut_of_young_entries_is_found(stack: Stack) {
    let (archivist, _) = with_years(stack).await;
    let writing = ledger(&archivist.ground).await;
    let newest = writing.record().last_mark().await.expect("a mark").position;
    // Also a position within a mark, and a position that no row has.
    for last_position in [newest, newest - 1, newest + 1000] {
        let text = CutText {
            before: instant("2025-06-01T00:00:00Z"),
            age_days: 400,
            last_position,
            kept_entries: 0,
            origin: "an archive".to_owned(),
            root: "a root".to_owned(),
        };
        // The forger's clock is ahead. The record has its own clock.
        let act = act_of(&text, "2099-01-01T00:00:00Z");
        let day = text.before.date_naive();
        let cut = writing.record().add_cut(&act, day, u64::MAX >> 1).await;
        cut.expect("a change").expect("a cut");
        is_sealed(&archivist).await;
        let found = verified(&archivist.ground, None).await;
        let found = found.expect_err("a fault").to_string();
        assert!(found.contains("not 400 days older"), "{found}");
    }
    writing.close().await;
    // The tables refuse a drop that names this cut.
    let note = "INSERT INTO dropped_entries (xact, id, revision, policy)
        SELECT xact, id, (SELECT max(revision) FROM acts WHERE kind = 'cut'), policy FROM entries";
    let mut direct = Direct::to(&archivist.ground).await;
    direct
        .try_execute(note, note)
        .await
        .expect_err("the entries are too young");
}
