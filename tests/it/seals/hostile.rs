//! An attacker who owns the database cannot get a changed ledger sealed, and `/readyz` reports the
//! change.

use std::sync::Arc;

use perdiem::engine::restart_seals;

use super::tampering::open_all;
use super::{
    all_is_sealed, all_is_well, figure, ledger, seal_key, seal_key_of, sealing, told, verified,
};
use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(
    a_log_that_was_deleted_never_begins_again,
    an_unsealed_entry_that_is_deleted_is_named,
    an_entry_above_all_transactions_is_named,
    another_key_with_the_same_name_begins_a_log_of_its_own,
    a_log_that_cannot_be_read_is_late,
);

/// A ledger with some claims, all of them sealed.
async fn sealed(ground: &Ground) -> App {
    let app = App::start_with(ground, sealing).await;
    app.benefit(9, "UTC").await;
    for _ in 0..3 {
        app.claim("member-1", None).await;
    }
    all_is_sealed(&app, ground).await;
    app
}

async fn count(ground: &Ground, table: &str) -> String {
    let sql = format!("SELECT CAST(count(*) AS text) FROM {table}");
    Direct::to(ground).await.texts(&sql).await.remove(0)
}

/// Begins another log, as `perdiem seal restart` does.
async fn restart(ground: &Ground, seed: u8, now: &str) -> String {
    let store = ledger(ground).await;
    let begun = restart_seals(&store, &seal_key_of(seed), "a test", instant(now)).await;
    store.close().await;
    begun.expect("a restart").expect("another log").name
}

async fn a_log_that_was_deleted_never_begins_again(stack: Stack) {
    let ground = Ground::new(stack);
    drop(sealed(&ground).await);
    open_all(&ground, stack).await;
    for table in ["seals", "seal_hashes"] {
        let keep = format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}");
        ground.sql(&keep).await;
    }
    let newest = "first = (SELECT max(first) FROM seal_hashes WHERE level = 0)";
    let all = "DELETE FROM seal_hashes".to_owned();
    let last = format!("DELETE FROM seal_hashes WHERE {newest}");
    for (what, sql, says) in [
        (
            "all of it",
            format!("DELETE FROM seals; {all}"),
            "has no checkpoint",
        ),
        (
            "its checkpoints",
            "DELETE FROM seals".to_owned(),
            "has no checkpoint",
        ),
        ("its hashes", all, "positions, but only 0 positions"),
        ("its last hashes", last, "has a checkpoint of"),
    ] {
        ground.sql(&sql).await;
        let before = count(&ground, "seal_hashes").await;
        let app = App::start_with(&ground, sealing).await;
        told(&app, "the log of seals is gone").await;
        told(&app, says).await;
        assert!(verified(&ground, None).await.is_err(), "{what}");
        // A later entry is not sealed, and is reported as late.
        app.claim("member-1", None).await;
        all_is_recorded(&app, &ground).await;
        eventually("the trouble is reported", || async {
            figure(&app, "perdiem_seal_lag_seconds").await > 0.0
        })
        .await;
        assert_eq!(count(&ground, "seal_hashes").await, before, "{what}");
        // The trouble ends when its cause ends.
        for table in ["seal_hashes", "seals"] {
            ground
                .sql(&format!(
                    "DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}"
                ))
                .await;
        }
        all_is_well(&app).await;
        all_is_sealed(&app, &ground).await;
        drop(app);
        for table in ["seals", "seal_hashes"] {
            let again =
                format!("DELETE FROM kept_{table}; INSERT INTO kept_{table} SELECT * FROM {table}");
            ground.sql(&again).await;
        }
        verified(&ground, None).await.expect("nothing differs");
    }
    // While an instance runs, with the log's origin.
    let app = App::start_with(&ground, sealing).await;
    all_is_sealed(&app, &ground).await;
    let origins = "DELETE FROM seals; DELETE FROM seal_hashes; DELETE FROM seal_origins";
    ground.sql(origins).await;
    told(&app, "is gone").await;
    assert_eq!(count(&ground, "seal_origins").await, "0");
}

async fn an_unsealed_entry_that_is_deleted_is_named(stack: Stack) {
    let ground = Ground::new(stack);
    drop(sealed(&ground).await);
    let app = App::start(&ground).await;
    app.claim("member-1", None).await;
    let newest = app.claim("member-1", None).await.grant_id();
    let last = all_is_recorded(&app, &ground).await;
    drop(app);
    let well = verified(&ground, None).await.expect("nothing differs");
    assert_eq!((well.sealed, well.unsealed), (last - 2, 2));
    open_all(&ground, stack).await;
    let newest = ground.literal(newest.parse().expect("an id"));
    ground
        .sql(&format!("DELETE FROM entries WHERE id = {newest}"))
        .await;
    let error = verified(&ground, None)
        .await
        .expect_err("a deleted entry is found")
        .to_string();
    assert!(
        error.starts_with("position ") && error.contains(&format!("up to {last}")),
        "{error}"
    );
    let app = App::start_with(&ground, sealing).await;
    told(&app, &format!("up to {last}")).await;
}

async fn an_entry_above_all_transactions_is_named(stack: Stack) {
    let ground = Ground::new(stack);
    let app = sealed(&ground).await;
    let forged = uuid::Uuid::from_u128(1 << 120);
    let entry = format!(
        "INSERT INTO entries (xact, number, at, units, policy, policy_version, kind, flags, account, id,
             totals)
         SELECT 4000000000000000, number + 50, at, units, policy, policy_version, kind, flags, account,
             {}, totals FROM entries WHERE number = 1",
        ground.literal(forged)
    );
    let change = "UPDATE policy_versions SET xact = 4000000000000000 WHERE version = 1";
    match stack {
        // A running instance on the file would give the entry a position.
        Stack::Sqlite | Stack::RedisAndSqlite => drop(app),
        Stack::Postgres | Stack::RedisAndPostgres => {
            ground.sql(&entry).await;
            told(&app, &format!("{forged} (transaction 4000000000000000)")).await;
            told(&app, "added by hand").await;
            // Sealing continues during this.
            app.claim("member-1", None).await;
            let sealed = figure(&app, "perdiem_seal_lag_seconds").await;
            assert!(sealed < 600.0, "{sealed}");
            open_all(&ground, stack).await;
            ground.sql("DELETE FROM entries WHERE number > 50").await;
            all_is_well(&app).await;
            all_is_sealed(&app, &ground).await;
            drop(app);
        }
    }
    verified(&ground, None).await.expect("nothing differs");
    ground.sql(&entry).await;
    let error = verified(&ground, None)
        .await
        .expect_err("a forged entry is found")
        .to_string();
    assert!(
        error.contains(&forged.to_string()) && error.contains("by hand"),
        "{error}"
    );
    if stack == Stack::Sqlite {
        open_all(&ground, stack).await;
    }
    ground.sql("DELETE FROM entries WHERE number > 50").await;
    ground.sql(change).await;
    assert!(verified(&ground, None).await.is_err());
}

async fn another_key_with_the_same_name_begins_a_log_of_its_own(stack: Stack) {
    let ground = Ground::new(stack);
    drop(sealed(&ground).await);
    let app = App::start_with(&ground, |options| {
        options.seal_key = Some(Arc::new(seal_key_of(8)));
    })
    .await;
    told(&app, "it is not signed by the key").await;
    told(&app, "perdiem seal restart").await;
    let name = restart(&ground, 8, "2026-11-21T09:00:00Z").await;
    all_is_well(&app).await;
    let seal = all_is_sealed(&app, &ground).await;
    assert_eq!(seal.origin, name);
    assert_eq!(seal.check(&seal_key_of(8).verifier()), Ok(()));
    assert!(seal.check(&seal_key().verifier()).is_err());
    drop(app);
    // The name of the log contains the ledger's id.
    let zero = ground.literal(uuid::Uuid::nil());
    ground.sql(&format!("UPDATE ledger SET id = {zero}")).await;
    let app = App::start_with(&ground, |options| {
        options.seal_key = Some(Arc::new(seal_key_of(8)));
    })
    .await;
    told(&app, "the id was changed").await;
}

async fn a_log_that_cannot_be_read_is_late(stack: Stack) {
    let ground = Ground::new(stack);
    let app = sealed(&ground).await;
    ground.sql("ALTER TABLE seal_hashes RENAME TO away").await;
    let lag = async || figure(&app, "perdiem_seal_lag_seconds").await;
    eventually("the trouble is reported", || async { lag().await > 0.0 }).await;
    ground.sql("ALTER TABLE away RENAME TO seal_hashes").await;
    eventually("the trouble is over", || async { lag().await == 0.0 }).await;
}

/// Just after a restart the log has a checkpoint, also when no instance seals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_seals_at_once() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start(&ground).await;
    let store = ledger(&ground).await;
    let none = restart_seals(
        &store,
        &seal_key(),
        "a test",
        instant("2026-11-21T08:00:00Z"),
    )
    .await;
    assert_eq!(none.expect("an answer"), None);
    store.close().await;
    app.benefit(9, "UTC").await;
    all_is_recorded(&app, &ground).await;
    let name = restart(&ground, 7, "2026-11-21T09:00:00Z").await;
    let well = verified(&ground, None).await.expect("nothing differs");
    assert_eq!((well.origin, well.sealed, well.seals), (name, 1, 1));
}
