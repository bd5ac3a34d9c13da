//! Ledgers whose migrations have run, and which no instance has opened yet. The migrations run once for
//! each store; a test gets a copy.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use perdiem::host::secret_file::owners_alone;
use sqlx::migrate::{Migrate, Migrator};
use sqlx::{Connection, PgConnection, SqliteConnection};

use super::servers;

/// The URL of a copy in the PostgreSQL cluster that all tests share.
pub fn in_postgres() -> String {
    const TEMPLATE: &str = "migrated";
    static MADE: OnceLock<()> = OnceLock::new();
    let postgres = servers::postgres();
    MADE.get_or_init(|| {
        let sql = format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0");
        postgres.execute("postgres", &sql);
        run_migrations::<PgConnection>("postgres", postgres.url(TEMPLATE));
    });
    postgres.copy_template(TEMPLATE, "")
}

/// Copies a ledger to this SQLite file.
pub fn in_sqlite(file: &Path) {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = folder.path().join("migrated.db");
        run_migrations::<SqliteConnection>("sqlite", format!("sqlite:{}?mode=rwc", made.display()));
        fs::read(made).expect("the ledger")
    });
    let copy = owners_alone().create_new(true).open(file);
    copy.and_then(|mut copy| copy.write_all(bytes))
        .expect("a copy");
}

/// Runs the migrations of a store in a new database. It has a runtime of its own, because tests that
/// need a copy call it from theirs.
fn run_migrations<C>(store: &str, url: String)
where
    C: Connection + Migrate,
{
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("migrations")
        .join(store);
    let running = async move {
        let migrator = Migrator::new(folder).await.expect("the migrations");
        let mut connection = C::connect(&url).await.expect("a connection");
        migrator
            .run_direct(None, &mut connection, false)
            .await
            .expect("they run");
        connection.close().await.expect("the connection's end");
    };
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let run = thread::spawn(move || runtime().expect("a runtime").block_on(running));
    run.join().expect("no panic");
}
