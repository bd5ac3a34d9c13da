//! The ledger on SQLite: embedded, one file, one process.

mod append;
mod entries;

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection, Sqlite, SqliteConnection, Transaction};

use super::connections::Connections;
use super::fence::{Fence, LedgerPlace};
use super::file::LedgerFile;
use super::query::Session;
use super::schema::{self, Applied, MigrationFile};
use super::{
    LedgerError, LedgerOptions, OpenError, Opening, READS_MOST, SNAPSHOTS_MOST, TimeBounds,
};
use crate::boxed;
use domain::identity::Identity;

pub use entries::last_lines;

pub const MIGRATIONS: &[MigrationFile] = &schema::migrations!("sqlite");

/// Connections for what claims and the instance itself read.
const OWN_CONNECTIONS: u32 = 6;
/// The number of pages in the write-ahead log at which the writer copies them into the file.
const CHECKPOINT_PAGES: &str = "4000";
/// The longest wait for other processes that open the same file.
const OPEN_PATIENCE: Duration = Duration::from_secs(30);
/// The pause before another attempt to connect.
const OPEN_PAUSE: Duration = Duration::from_millis(10);
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that emptying the log may block others.
const EMPTYING_PATIENCE: Duration = Duration::from_millis(100);
/// SQLite asks after this many instructions of its virtual machine whether to continue.
const INSTRUCTIONS: i32 = 10_000;
/// The longest time of a write. For a lock SQLite itself waits no longer than a claim may take.
const WRITE_PATIENCE: Duration = Duration::from_secs(90);

/// SQLite's codes for a file that stays unusable: SQLITE_READONLY, SQLITE_CANTOPEN and SQLITE_NOTADB.
const LASTING: [i32; 3] = [8, 14, 26];

/// A SQLite file. SQLite has one writer, so all writes share one connection and wait for it. Each
/// kind of read has its own connections, so that no kind can take those of another.
#[derive(Clone)]
pub struct Store {
    pub(super) writer: Connections<SqliteConnection>,
    pub(super) reads: SqlitePool,
    pub(super) snapshots: SqlitePool,
    pub(super) own: SqlitePool,
    pub(crate) bounds: Option<TimeBounds>,
    identity: Identity,
    place: LedgerPlace,
    /// For the connection that empties the log.
    emptying: Arc<SqliteConnectOptions>,
}

impl Store {
    pub async fn open(
        options: &LedgerOptions,
        opening: Opening,
        migrator: &Migrator,
        now: DateTime<Utc>,
    ) -> Result<Self, OpenError> {
        // 1. Find the file, or make it.
        let file = LedgerFile::of(&options.url)?;
        match opening {
            Opening::Make => file.make()?,
            Opening::Find | Opening::Read if file.is_missing() => {
                return Err(OpenError::Missing(file.place().to_owned()));
            }
            Opening::Find | Opening::Read => {}
        }
        let base = SqliteConnectOptions::from_str(&options.url)
            .map_err(|error| OpenError::InvalidUrl(error.to_string()))?
            .create_if_missing(opening == Opening::Make)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(options.claim_timeout);
        let place = file.place().to_owned();
        let failed = |source: LedgerError| OpenError::Failed {
            place: place.clone(),
            source,
        };
        let unreadable = |error: sqlx::Error| unreadable(&file, error);
        // 2. Connect. Others may open the same new file at the same time.
        let patient = base.clone().busy_timeout(OPEN_PATIENCE);
        let mut first = connect(&patient).await.map_err(unreadable)?;
        // 3. Check and migrate in one transaction. sqlx's migrator takes no lock on SQLite: of two
        //    processes that open a new file at once, one would fail.
        let mut transaction = first
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(unreadable)?;
        let (applied, has_tables) = survey(&mut transaction).await.map_err(unreadable)?;
        schema::check(migrator, &applied, has_tables, &place)?;
        if opening != Opening::Make {
            schema::check_made(migrator, &applied, &place)?;
        }
        if !applied.is_empty() {
            check_writable(&mut transaction).await.map_err(unreadable)?;
        }
        let migrating = migrator.run_direct(None, &mut *transaction, false);
        let migrated = schema::log_progress(migrator, &applied, migrating).await;
        migrated.map_err(|error| failed(LedgerError::Unavailable(error.into())))?;
        // 4. Read the identity of the ledger; a new ledger gets one.
        let identity = schema::identify(Session::Sqlite(&mut transaction), now);
        let identity = identity.await.map_err(failed)?;
        transaction
            .commit()
            .await
            .map_err(|error| failed(error.into()))?;
        first.close().await.map_err(|error| failed(error.into()))?;
        // 5. Set up the connections of each kind of work.
        file.tell_of_others();
        let writing = base
            .clone()
            .pragma("temp_store", "MEMORY")
            // Overwrite erased data in the file.
            .pragma("secure_delete", "ON")
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
        let emptying = Arc::new(base.clone().busy_timeout(EMPTYING_PATIENCE));
        let reading = base.create_if_missing(false).read_only(true);
        let query_timeout = options.query_timeout;
        let patience = query_timeout / 4;
        let reads = pool(READS_MOST, patience)
            .after_connect(move |connection, _| Box::pin(limit(connection, query_timeout)))
            .before_acquire(move |connection, _| {
                Box::pin(async move {
                    limit(connection, query_timeout).await?;
                    Ok(true)
                })
            });
        let snapshots = pool(SNAPSHOTS_MOST, patience);
        let own = pool(OWN_CONNECTIONS, ACQUIRE_TIMEOUT);
        Ok(Self {
            writer: Connections::new(writing, 1, WRITE_PATIENCE),
            reads: reads.connect_lazy_with(reading.clone()),
            snapshots: snapshots.connect_lazy_with(reading.clone()),
            own: own.connect_lazy_with(reading),
            bounds: None,
            place: LedgerPlace {
                started_at: now,
                file: identity.id.as_u64_pair().0.cast_signed(),
                erasures: 0,
            },
            identity,
            emptying,
        })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The fence of a file that has the entry with this `xact`. `xact` is the order of appending,
    /// so the file has all entries before it too.
    fn fence(&self, horizon: i64, erasures: i64) -> Fence {
        Fence {
            place: LedgerPlace {
                erasures,
                ..self.place
            },
            horizon,
        }
    }

    /// Writes in one transaction. No other writer can come in between. The statements end the
    /// transaction.
    async fn write<T>(
        &self,
        statements: impl AsyncFnOnce(Transaction<'_, Sqlite>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let write =
            async |connection: &mut SqliteConnection| statements(begin(connection).await?).await;
        self.writer.run(write).await
    }

    /// Copies the write-ahead log into the file, and empties it. If somebody reads the log at that
    /// moment, a part of it stays until the next time.
    pub async fn truncate_log(&self) -> Result<(), LedgerError> {
        let mut connection = SqliteConnection::connect_with(&self.emptying).await?;
        let truncate = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)");
        truncate.execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    pub async fn close(&self) {
        self.reads.close().await;
        self.snapshots.close().await;
        self.own.close().await;
        self.writer.close().await;
    }
}

#[boxed]
pub async fn begin<'c>(
    connection: &'c mut SqliteConnection,
) -> Result<Transaction<'c, Sqlite>, sqlx::Error> {
    connection.begin_with("BEGIN IMMEDIATE").await
}

/// A pool with at most this many connections, and the longest wait for one of them.
fn pool(most: u32, patience: Duration) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(most)
        .acquire_timeout(patience)
        .test_before_acquire(false)
}

/// Ends work on this connection that takes longer than `patience` from now. SQLite has no time
/// limit of its own.
async fn limit(connection: &mut SqliteConnection, patience: Duration) -> Result<(), sqlx::Error> {
    let ends_at = Instant::now() + patience;
    let goes_on = move || Instant::now() < ends_at;
    let mut handle = connection.lock_handle().await?;
    handle.set_progress_handler(INSTRUCTIONS, goes_on);
    Ok(())
}

/// Connects to a file, and turns on its write-ahead log. If several processes do this to a new file
/// at once, SQLite refuses some of them without a wait.
async fn connect(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let deadline = Instant::now() + OPEN_PATIENCE;
    loop {
        match SqliteConnection::connect_with(options).await {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// The error that SQLite cannot use the file.
pub fn unreadable(file: &LedgerFile, error: sqlx::Error) -> OpenError {
    let is_lasting = primary_code(&error).is_some_and(|code| LASTING.contains(&code));
    file.unreadable(error, is_lasting)
}

/// Whether another connection holds a lock: SQLITE_BUSY.
fn is_busy(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(5)
}

/// SQLite's code of an error, without the extension.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// The migrations that the database has run, and whether it has other tables.
pub async fn survey(
    connection: &mut SqliteConnection,
) -> Result<(Vec<Applied>, bool), sqlx::Error> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')
         AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
    )
    .fetch_all(&mut *connection)
    .await?;
    let applied = if tables.iter().any(|table| table == "_sqlx_migrations") {
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations")
            .fetch_all(&mut *connection)
            .await?
    } else {
        Vec::new()
    };
    let has_tables = tables.iter().any(|table| table != "_sqlx_migrations");
    Ok((applied, has_tables))
}

/// Checks that the file can be written, without changing anything. SQLite refuses it if the file is
/// read-only by its URL (`mode=ro`) or its permissions.
async fn check_writable(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let nothing = "UPDATE _sqlx_migrations SET version = version WHERE false";
    sqlx::query(nothing).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The query of this test never ends by itself.
    #[tokio::test]
    async fn what_takes_too_long_is_ended() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        limit(&mut connection, Duration::from_millis(50))
            .await
            .unwrap();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT MAX(i) FROM n";
        let ended = sqlx::query(endless).execute(&mut connection).await;
        assert!(ended.is_err());
        limit(&mut connection, Duration::from_secs(60))
            .await
            .unwrap();
        sqlx::query("SELECT 1")
            .execute(&mut connection)
            .await
            .unwrap();
    }
}
