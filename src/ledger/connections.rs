//! Connections that carry one batch after another.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// The longest time to make a connection. A claim waits less than this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before another attempt at a server that takes no connections at the moment.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// How long a connection is used. After that the server's address may mean another server.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// Opens connections of one kind.
pub trait Opener: Send + Sync + 'static {
    type Opened;

    fn open(&self) -> BoxFuture<'_, Result<Self::Opened, sqlx::Error>>;
}

impl Opener for SqliteConnectOptions {
    type Opened = SqliteConnection;

    fn open(&self) -> BoxFuture<'_, Result<SqliteConnection, sqlx::Error>> {
        SqliteConnection::connect_with(self).boxed()
    }
}

/// Connections that batches share; the one that was used last comes first. sqlx's pool asks the
/// store after each use whether the connection still works, which is expensive beside a small
/// batch. Here a connection is used again if its last statements ended well.
pub struct Connections<C> {
    // A trait object, as all that uses sqlx: see `Held`.
    lender: Arc<dyn Lender<C>>,
    pub patience: Duration,
}

/// Lends connections.
trait Lender<C>: Send + Sync {
    /// A connection, within so much time.
    fn lend(&self, wait: Duration) -> BoxFuture<'_, Result<Box<dyn Lent<C>>, sqlx::Error>>;

    /// Drops the free connections.
    fn forget(&self);

    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A connection that is lent. It is dropped with this, unless it is given back.
trait Lent<C>: Send {
    fn connection(&mut self) -> &mut C;

    fn give_back(self: Box<Self>);
}

struct Lending<C> {
    opener: Arc<dyn Opener<Opened = C>>,
    most: u32,
    turns: Arc<Semaphore>,
    free: Arc<Mutex<Vec<Made<C>>>>,
}

/// A connection, and when it was made.
struct Made<C> {
    connection: C,
    at: Instant,
}

/// A borrowed connection. Dropping the lease frees it.
struct Lease<C> {
    made: Option<Made<C>>,
    lending: Lending<C>,
    _turn: OwnedSemaphorePermit,
}

/// A lease whose connection is in use.
struct InUse<C> {
    made: Made<C>,
    lease: Lease<C>,
}

impl<C: Send> Lent<C> for InUse<C> {
    fn connection(&mut self) -> &mut C {
        &mut self.made.connection
    }

    fn give_back(self: Box<Self>) {
        let Self { made, mut lease } = *self;
        lease.made = Some(made);
    }
}

impl<C: Connection + 'static> Connections<C> {
    /// No connection yet, and `most` at most: each is made when it is needed.
    pub fn new(opener: impl Opener<Opened = C>, most: u32, patience: Duration) -> Self {
        Self {
            lender: Arc::new(Lending {
                opener: Arc::new(opener),
                most,
                turns: Arc::new(Semaphore::new(most as usize)),
                free: Arc::default(),
            }),
            patience,
        }
    }

    /// Runs statements on a connection. The wait for a connection takes at most a third of
    /// `patience`, the statements at most all of it. If a connection does not answer in time, or
    /// answers with an error, it is dropped, and so are the free ones: their network path may be
    /// dead too. The dropped connection's statements may or may not have been committed.
    ///
    /// # Errors
    /// The error of the statements; or there is no connection, or no answer in time.
    pub async fn run<T, E: From<sqlx::Error>>(
        &self,
        statements: impl AsyncFnOnce(&mut C) -> Result<T, E>,
    ) -> Result<T, E> {
        // A caller that stops waiting drops the connection with the statements.
        let mut lent = self.lender.lend(self.patience / 3).await?;
        let result = match timeout(self.patience, statements(lent.connection())).await {
            Ok(result) => result,
            Err(elapsed) => Err(sqlx::Error::Io(elapsed.into()).into()),
        };
        match &result {
            Ok(_) => lent.give_back(),
            Err(_) => self.lender.forget(),
        }
        result
    }

    /// Waits until all connections are free, and closes them. No connection is made after that.
    pub async fn close(&self) {
        self.lender.close().await;
    }
}

impl<C: Connection + 'static> Lender<C> for Lending<C> {
    fn lend(&self, wait: Duration) -> BoxFuture<'_, Result<Box<dyn Lent<C>>, sqlx::Error>> {
        Box::pin(async move {
            let lease = timeout(wait, self.lease()).await;
            let mut lease = lease.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
            let made = lease.made.take().ok_or(sqlx::Error::PoolClosed)?;
            let lent: Box<dyn Lent<C>> = Box::new(InUse { made, lease });
            Ok(lent)
        })
    }

    fn forget(&self) {
        self.free().clear();
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let all = self.turns.acquire_many(self.most).await;
            self.turns.close();
            drop(all);
            let free = std::mem::take(&mut *self.free());
            for made in free {
                if let Err(error) = made.connection.close().await {
                    tracing::debug!(%error, "a connection did not close cleanly");
                }
            }
        })
    }
}

impl<C: Connection + 'static> Lending<C> {
    /// A connection is made even if its caller stops waiting. Otherwise a slow server would never
    /// get one.
    async fn lease(&self) -> Result<Lease<C>, sqlx::Error> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|_| sqlx::Error::PoolClosed)?;
        let mut lease = Lease {
            made: self.take_young(),
            lending: self.clone(),
            _turn: turn,
        };
        if lease.made.is_some() {
            return Ok(lease);
        }
        let making = tokio::spawn(async move {
            let connecting = connect(&*lease.lending.opener);
            let connecting = timeout(CONNECT_TIMEOUT, connecting).await;
            let connection = connecting.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
            let at = Instant::now();
            lease.made = Some(Made { connection, at });
            Ok(lease)
        });
        making.await.unwrap_or(Err(sqlx::Error::PoolClosed))
    }

    fn take_young(&self) -> Option<Made<C>> {
        let mut free = self.free();
        free.retain(|made| made.at.elapsed() < LIFETIME);
        free.pop()
    }
}

/// Connects as soon as the server takes connections.
async fn connect<C: 'static>(opener: &dyn Opener<Opened = C>) -> Result<C, sqlx::Error> {
    loop {
        match opener.open().await {
            Err(error) if is_passing(&error) => sleep(CONNECT_PAUSE).await,
            connected => return connected,
        }
    }
}

/// Whether a server that refuses connections is probably starting, ending or full.
fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
        ),
        sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
        _ => false,
    }
}

impl<C> Lending<C> {
    fn free(&self) -> MutexGuard<'_, Vec<Made<C>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Clone for Connections<C> {
    fn clone(&self) -> Self {
        Self {
            lender: self.lender.clone(),
            patience: self.patience,
        }
    }
}

impl<C> Clone for Lending<C> {
    fn clone(&self) -> Self {
        Self {
            opener: self.opener.clone(),
            most: self.most,
            turns: self.turns.clone(),
            free: self.free.clone(),
        }
    }
}

impl<C> Drop for Lease<C> {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            self.lending.free().push(made);
        }
    }
}
