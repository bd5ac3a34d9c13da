//! Connections, by the kind of work. Each kind of work has its own connections, so that no kind can
//! take the connections of another. Transactions begin and end here.

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Database, PgConnection, Postgres, Sqlite, SqlitePool, Transaction};

use super::connections::Connections;
use super::query::{Held, Session, query};
use super::sessions::{SessionPool, Sessions, answered};
use super::{Ledger, LedgerError, postgres};

/// A connection from a pool.
pub type Pooled = Held<PoolConnection<Postgres>, PoolConnection<Sqlite>>;

/// One consistent view of the entries, for an export or a backtest.
pub struct Snapshot(pub(super) Held<Transaction<'static, Postgres>, Transaction<'static, Sqlite>>);

/// How a transaction ends, and what it returns.
pub enum Ending<T> {
    Commit(T),
    Rollback(T),
}

impl<T> Ending<T> {
    async fn reach<D: Database>(self, transaction: Transaction<'_, D>) -> Result<T, sqlx::Error> {
        match self {
            Self::Commit(value) => {
                transaction.commit().await?;
                Ok(value)
            }
            Self::Rollback(value) => {
                transaction.rollback().await?;
                Ok(value)
            }
        }
    }
}

async fn held(pool: &SessionPool) -> Result<Pooled, LedgerError> {
    let session = pool.sessions.acquire().await?;
    Ok(Held::Postgres(session, pool.patience))
}

async fn held_file(pool: &SqlitePool) -> Result<Pooled, LedgerError> {
    Ok(Held::Sqlite(pool.acquire().await?))
}

/// Begins a transaction.
fn begun(pool: &SessionPool) -> BoxFuture<'_, Result<Transaction<'static, Postgres>, sqlx::Error>> {
    Box::pin(answered(pool.patience, pool.sessions.begin()))
}

// As in `query.rs`, boxes keep the code of connections in this crate.
impl Ledger {
    /// For reads that a request waits for, within the time limit for queries.
    pub(super) fn reads(&self) -> BoxFuture<'_, Result<Pooled, LedgerError>> {
        match self {
            Self::Postgres(store) => Box::pin(held(&store.reads)),
            Self::Sqlite(store) => Box::pin(held_file(&store.reads)),
        }
    }

    /// For the instance's own work.
    pub(super) fn own(&self) -> BoxFuture<'_, Result<Pooled, LedgerError>> {
        match self {
            Self::Postgres(store) => Box::pin(held(&store.own)),
            Self::Sqlite(store) => Box::pin(held_file(&store.own)),
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
        connections: impl FnOnce(&postgres::Store) -> &Connections<Sessions>,
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
            Self::Postgres(store) => {
                let pool = pool(store);
                let mut transaction = begun(pool).await?;
                let session = Session::Postgres(&mut transaction, pool.patience);
                let ending = statements(session).await?;
                Ok(answered(pool.patience, ending.reach(transaction)).await?)
            }
            Self::Sqlite(store) => {
                let write = async |mut transaction: Transaction<'_, Sqlite>| {
                    let ending = statements(Session::Sqlite(&mut transaction)).await?;
                    Ok(ending.reach(transaction).await?)
                };
                store.write(write).await
            }
        }
    }

    /// Begins one consistent view of the entries.
    pub async fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        let mut session = match self {
            Self::Postgres(store) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let SessionPool { sessions, patience } = &store.snapshots;
                let begun = answered(*patience, sessions.begin_with(begin)).await?;
                Held::Postgres(begun, *patience)
            }
            // In WAL mode a transaction sees what was committed when it first read.
            Self::Sqlite(store) => Held::Sqlite(store.snapshots.begin().await?),
        };
        // The view begins at the first read, not at BEGIN. So read something now.
        session
            .lend()
            .execute(query("SELECT id FROM ledger"))
            .await?;
        Ok(Snapshot(session))
    }
}
