//! Ledgers that an older perdiem made, and their migration.

use std::path::Path;

use perdiem::domain::identity::{AccountId, EntryId};
use perdiem::domain::limit::total::{LimitState, Total, WindowUse};
use perdiem::domain::window::Length;
use perdiem::domain::window::Window;
use perdiem::ledger::Look;
use sqlx::migrate::Migrator;
use sqlx::{PgPool, SqlitePool};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::app::{Ground, Stack, instant};
use crate::support::desk::{another_ledger, on_every_store};

on_every_store!(totals_of_an_older_ledger_are_written_anew);

/// Makes a ledger with the migrations before `last`, and inserts rows.
pub async fn older_ledger(ground: &Ground, stack: Stack, last: &str, statements: Vec<String>) {
    let url = &ground.database_url;
    let is_postgres = stack == Stack::Postgres;
    let store = if is_postgres { "postgres" } else { "sqlite" };
    let folder = older_migrations(store, last);
    let migrator = Migrator::new(folder.path()).await.expect("migrations");
    if is_postgres {
        let pool = PgPool::connect(url).await.expect("a pool");
        migrator.run(&pool).await.expect("the ledger is migrated");
        pool.close().await;
    } else {
        let pool = SqlitePool::connect(&format!("{url}?mode=rwc")).await;
        let pool = pool.expect("a pool");
        migrator.run(&pool).await.expect("the ledger is migrated");
        pool.close().await;
    }
    ground.sql(&statements.join(";\n")).await;
}

/// The migrations up to a version, in their own folder.
fn older_migrations(store: &str, last: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("migrations")
        .join(store);
    for file in std::fs::read_dir(migrations).expect("a folder") {
        let file = file.expect("a file");
        if file.file_name().to_str().expect("a name") < last {
            std::fs::copy(file.path(), folder.path().join(file.file_name())).expect("a copy");
        }
    }
    folder
}

async fn totals_of_an_older_ledger_are_written_anew(stack: Stack) {
    let ground = Ground::new(stack);
    let account = AccountId(Uuid::from_u128(1));
    let id = |number: u128| EntryId(Uuid::from_u128(number));
    // The literals for ids and instants, as each store writes them.
    let is_postgres = stack == Stack::Postgres;
    let written = |id: Uuid| {
        if is_postgres {
            format!("'{id}'")
        } else {
            format!("x'{}'", id.simple())
        }
    };
    let at = if is_postgres {
        "'2026-11-21T03:04:05Z'"
    } else {
        "1795230245000000"
    };
    let row = |number: u64, totals: &str| {
        format!(
            "INSERT INTO entries (number, at, units, policy, policy_version, kind, account, id,
                 totals) VALUES ({number}, {at}, 1, 1, 1, 1, {}, {}, '{totals}')",
            written(account.0),
            written(id(number.into()).0)
        )
    };
    let statements = vec![
        row(1, r#"[["minute",9007199254740991,1,-60,0]]"#),
        row(
            2,
            r#"[["month",30,2,1761955200,1764547200],["minute",3,1,1795230240,1795230300]]"#,
        ),
    ];
    older_ledger(&ground, stack, "0007", statements).await;

    let ledger = another_ledger(&ground).await;
    let look = Look {
        accounts: vec![account],
        entries: vec![id(1)],
        ..Look::default()
    };
    let seen = ledger.look(&look).await.expect("a look");
    let at = |minute: &str| instant(&format!("{minute}:00Z"));
    let total = |length, max, used, start: &str, end: &str| Total {
        max,
        state: LimitState::Calendar(WindowUse {
            length: Some(length),
            used,
            window: Window {
                start: at(start),
                end: at(end),
            },
        }),
    };
    let most = (1 << 53) - 1;
    let first = [total(
        Length::Minute,
        most,
        1,
        "1969-12-31T23:59",
        "1970-01-01T00:00",
    )];
    assert_eq!(seen.entries[0].line.totals[..], first);
    let last = [
        total(Length::Month, 30, 2, "2025-11-01T00:00", "2025-12-01T00:00"),
        total(Length::Minute, 3, 1, "2026-11-21T03:04", "2026-11-21T03:05"),
    ];
    assert_eq!(seen.lines[&account].totals[..], last);
}
