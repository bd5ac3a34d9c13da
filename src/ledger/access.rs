//! Connections, by the kind of work. Each kind of work has its own connections, so that no kind can
//! take the connections of another. Transactions begin and end here.

use futures_util::future::BoxFuture;
use sqlx::{Database, PgConnection, Postgres, Sqlite, SqliteConnection, SqlitePool, Transaction};

use super::connections::Connections;
use super::query::{Held, OnPostgres, OnSqlite, Session, query};
use super::sessions::{SessionPool, answered};
use super::{Ledger, LedgerError, postgres, sqlite};
use crate::boxed;

/// A connection from a pool.
pub type Pooled = Box<dyn Held>;

/// One consistent view of the entries, for an export or a backtest.
pub struct Snapshot(pub(super) Box<dyn Held>);

/// How a transaction ends, and what it returns.
pub enum Ending<T> {
    Commit(T),
    Rollback(T),
}

impl<T> Ending<T> {
    /// The value, and whether to commit.
    fn parts(self) -> (T, bool) {
        match self {
            Self::Commit(value) => (value, true),
            Self::Rollback(value) => (value, false),
        }
    }
}

async fn held(pool: &SessionPool) -> Result<Pooled, LedgerError> {
    let session = pool.sessions.acquire().await?;
    Ok(Box::new(OnPostgres(session, pool.patience)))
}

async fn held_file(pool: &SqlitePool) -> Result<Pooled, LedgerError> {
    Ok(Box::new(OnSqlite(pool.acquire().await?)))
}

type Transacting<'c> = Box<dyn Begun<'c> + 'c>;

/// A transaction. Without an end it is rolled back.
trait Begun<'c>: Held {
    fn end(self: Box<Self>, commits: bool) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}

impl Begun<'static> for OnPostgres<Transaction<'static, Postgres>> {
    fn end(self: Box<Self>, commits: bool) -> BoxFuture<'static, Result<(), sqlx::Error>> {
        let Self(transaction, patience) = *self;
        Box::pin(answered(patience, ended(transaction, commits)))
    }
}

impl<'c> Begun<'c> for OnSqlite<Transaction<'c, Sqlite>> {
    fn end(self: Box<Self>, commits: bool) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(ended(self.0, commits))
    }
}

#[boxed]
async fn begin(pool: &SessionPool) -> Result<Transacting<'static>, LedgerError> {
    let transaction = answered(pool.patience, pool.sessions.begin()).await?;
    let begun: Transacting<'_> = Box::new(OnPostgres(transaction, pool.patience));
    Ok(begun)
}

#[boxed]
async fn begin_on_sqlite<'c>(
    connection: &'c mut SqliteConnection,
) -> Result<Transacting<'c>, LedgerError> {
    let begun: Transacting<'_> = Box::new(OnSqlite(sqlite::begin(connection).await?));
    Ok(begun)
}

async fn run<'c, T>(
    mut begun: Transacting<'c>,
    statements: impl AsyncFnOnce(Session<'_>) -> Result<Ending<T>, LedgerError>,
) -> Result<T, LedgerError> {
    let (value, commits) = statements(begun.lend()).await?.parts();
    begun.end(commits).await?;
    Ok(value)
}

async fn ended<D: Database>(
    transaction: Transaction<'_, D>,
    commits: bool,
) -> Result<(), sqlx::Error> {
    if commits {
        transaction.commit().await
    } else {
        transaction.rollback().await
    }
}

impl Ledger {
    /// For reads that a request waits for, within the time limit for queries.
    #[boxed]
    pub(super) async fn reads(&self) -> Result<Pooled, LedgerError> {
        match self {
            Self::Postgres(store) => held(&store.reads).await,
            Self::Sqlite(store) => held_file(&store.reads).await,
        }
    }

    /// For the instance's own work.
    #[boxed]
    pub(super) async fn own(&self) -> Result<Pooled, LedgerError> {
        match self {
            Self::Postgres(store) => held(&store.own).await,
            Self::Sqlite(store) => held_file(&store.own).await,
        }
    }

    /// For reads that a claim waits for.
    pub(super) async fn in_time<T>(
        &self,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.in_session(|store| &store.claims, statements).await
    }

    /// For the polls in which the instance looks for changes.
    pub(super) async fn polled<T>(
        &self,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.in_session(|store| &store.polls, statements).await
    }

    /// On SQLite both use the connections for the instance's own work.
    async fn in_session<T>(
        &self,
        connections: impl FnOnce(&postgres::Store) -> &Connections<PgConnection>,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        match self {
            Self::Postgres(store) => {
                let connections = connections(store);
                let run = async |connection: &mut PgConnection| {
                    match statements(Session::Postgres(connection, connections.patience)).await {
                        // The statements succeeded, so the connection can be used again.
                        Err(error @ (LedgerError::Corrupt(_) | LedgerError::Archived(_))) => {
                            Ok(Err(error))
                        }
                        ended => ended.map(Ok),
                    }
                };
                connections.run(run).await?
            }
            Self::Sqlite(_) => statements(self.own().await?.lend()).await,
        }
    }

    /// For writes of the instance about itself, without a transaction.
    pub(super) async fn noted<T>(
        &self,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        match self {
            Self::Postgres(_) => self.polled(statements).await,
            Self::Sqlite(store) => {
                let in_session =
                    async |connection: &mut _| statements(Session::Sqlite(connection)).await;
                store.writer.run(in_session).await
            }
        }
    }

    /// A transaction for an edit.
    pub(super) async fn edit<T>(
        &self,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<Ending<T>, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.transaction(|store| &store.edits, statements).await
    }

    /// A transaction for the instance's own work.
    pub(super) async fn own_edit<T>(
        &self,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<Ending<T>, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.transaction(|store| &store.own, statements).await
    }

    async fn transaction<T>(
        &self,
        pool: impl FnOnce(&postgres::Store) -> &SessionPool,
        statements: impl AsyncFnOnce(Session<'_>) -> Result<Ending<T>, LedgerError>,
    ) -> Result<T, LedgerError> {
        match self {
            Self::Postgres(store) => run(begin(pool(store)).await?, statements).await,
            Self::Sqlite(store) => {
                let write = async |connection: &mut SqliteConnection| {
                    run(begin_on_sqlite(connection).await?, statements).await
                };
                store.writer.run(write).await
            }
        }
    }

    /// Begins one consistent view of the entries.
    #[boxed]
    pub async fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        let mut session: Box<dyn Held> = match self {
            Self::Postgres(store) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let SessionPool { sessions, patience } = &store.snapshots;
                let begun = answered(*patience, sessions.begin_with(begin)).await?;
                Box::new(OnPostgres(begun, *patience))
            }
            // In WAL mode a transaction sees what was committed when it first read.
            Self::Sqlite(store) => Box::new(OnSqlite(store.snapshots.begin().await?)),
        };
        // The view begins at the first read, not at BEGIN. So read something now.
        session
            .lend()
            .execute(query("SELECT id FROM ledger"))
            .await?;
        Ok(Snapshot(session))
    }
}
