//! The opening of a ledger, its id, and the changes that its tables refuse.

use chrono::TimeDelta;
use perdiem::ledger::{Ledger, LedgerOptions};
use sqlx::Connection;
use std::time::Duration;
use uuid::Uuid;

use crate::support::app::{App, Ground, NOON, Stack, instant};
use crate::support::desk::{Desk, another_ledger, on_every_store};
use crate::support::direct::Direct;
use crate::support::servers::postgres;

on_every_store!(
    a_ledger_is_the_same_when_it_is_opened_again,
    a_fresh_database_is_migrated_by_several_at_once,
    entries_are_append_only,
    instances_know_of_one_another,
);

/// `.cargo/config.toml` says why.
#[tokio::test]
async fn sqlite_is_built_without_locks_that_all_connections_share() {
    let mut sqlite = sqlx::SqliteConnection::connect("sqlite::memory:").await;
    let sqlite = sqlite.as_mut().expect("a database in memory");
    let options = sqlx::query_scalar("PRAGMA compile_options");
    let options: Vec<String> = options.fetch_all(sqlite).await.expect("the options");
    assert!(options.contains(&"DEFAULT_MEMSTATUS=0".to_owned()));
    assert!(!options.contains(&"ENABLE_MEMORY_MANAGEMENT".to_owned()));
}

/// Servers with another storage may have no part of a fence. Claims are decided there as everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shows_no_fence_guards_every_append() {
    for function in [
        "pg_postmaster_start_time() RETURNS timestamptz",
        "pg_relation_filepath(text) RETURNS text",
    ] {
        let mut ground = Ground::new(Stack::Sqlite);
        ground.database_url = postgres().create_database();
        let name = ground.database_url.rsplit('/').next().expect("a name");
        let without = format!(
            "CREATE FUNCTION public.{function} LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             ALTER DATABASE {name} SET search_path = public, pg_catalog"
        );
        postgres().execute(name, &without);
        let app = App::start(&ground).await;
        app.benefit(2, "UTC").await;
        for (key, status) in [("a", 201), ("a", 200), ("b", 201), ("c", 429)] {
            app.claim("ann", Some(key)).await.is(status);
        }
    }
}

async fn a_ledger_is_the_same_when_it_is_opened_again(stack: Stack) {
    let desk = Desk::open(stack).await;
    let line = desk.append(desk.draft("a", None, 2)).await;
    desk.ledger.close().await;
    let again = another_ledger(&desk.ground).await;
    assert_eq!(again.identity().id, desk.ledger.identity().id);
    let subject = perdiem::domain::claim::Subject::new("a").expect("a subject");
    let account = again.identity().account(&desk.policy.name, &subject);
    assert_eq!(account, desk.account("a"));
    let look = perdiem::ledger::Look {
        accounts: vec![account],
        ..Default::default()
    };
    let seen = again.claims().look(&look).await.expect("a look");
    assert_eq!(seen.lines.get(&account), Some(&line));
}

async fn a_fresh_database_is_migrated_by_several_at_once(stack: Stack) {
    for _ in 0..3 {
        let ground = Ground::empty(stack);
        let mut openings = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let options = LedgerOptions {
                url: ground.database_url.clone(),
                claim_timeout: Duration::from_secs(30),
                query_timeout: Duration::from_secs(30),
            };
            openings.spawn(async move { Ledger::open(&options, instant(NOON)).await });
        }
        let mut ids = Vec::new();
        for opened in openings.join_all().await {
            let ledger = opened.unwrap_or_else(|error| panic!("{error:?}"));
            ids.push(ledger.identity().id);
            ledger.close().await;
        }
        ids.dedup();
        assert_eq!(ids.len(), 1, "all handles have the same ledger id");
    }
}

/// The database itself refuses to change an entry.
async fn entries_are_append_only(stack: Stack) {
    let desk = Desk::open(stack).await;
    desk.append(desk.draft("a", None, 3)).await;
    let mut direct = Direct::to(&desk.ground).await;
    for sql in [
        "UPDATE entries SET units = 2",
        "DELETE FROM entries",
        "TRUNCATE entries",
    ] {
        // SQLite has no TRUNCATE.
        if stack == Stack::Sqlite && sql.starts_with("TRUNCATE") {
            continue;
        }
        let result = direct.try_execute(sql, sql).await;
        let error = result.expect_err(sql).to_string();
        assert!(error.contains("append-only"), "{sql}: {error}");
    }
    assert_eq!(desk.entries("a").await, 3);
}

async fn instances_know_of_one_another(stack: Stack) {
    let desk = Desk::open(stack).await;
    let other = another_ledger(&desk.ground).await;
    let one = Uuid::from_u128(1);
    let two = Uuid::from_u128(2);
    let three = Uuid::from_u128(3);
    let now = instant(NOON);
    let report = async |ledger: &Ledger, id, rules: &str, now| {
        let forget = now - TimeDelta::seconds(30);
        let mut others = ledger
            .report_instance(id, rules, now, forget)
            .await
            .expect("a report");
        others.sort();
        others
    };
    assert!(report(&desk.ledger, one, "2026a", now).await.is_empty());
    assert_eq!(report(&other, two, "2026b", now).await, ["2026a"]);
    assert_eq!(
        report(&other, three, "2026c", now).await,
        ["2026a", "2026b"]
    );
    let later = now + TimeDelta::seconds(30);
    // The second instance was silent for 30 seconds and is still listed. A moment later it is gone.
    assert_eq!(
        report(&desk.ledger, one, "2026a", later).await,
        ["2026b", "2026c"]
    );
    let later = later + TimeDelta::microseconds(1);
    assert!(report(&desk.ledger, one, "2026a", later).await.is_empty());
    let again = report(&other, two, "2026b", later).await;
    assert_eq!(again, ["2026a"]);
}
