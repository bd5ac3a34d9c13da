//! Connections that one batch after another takes.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

/// How long a connection may take to make. Nobody waits so long for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before a server is tried again that takes no connections just now.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// How long one is used: a server's address may mean another server by then.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// Connections to take turns at, the one that was used last first. sqlx's pool asks the store
/// after each use whether a connection still lives, which is dear beside a small batch; here one
/// is used again if what it carried ended well.
pub struct Connections<C: Connection> {
    options: Arc<C::Options>,
    patience: Duration,
    most: u32,
    turns: Arc<Semaphore>,
    free: Arc<Mutex<Vec<Made<C>>>>,
}

/// A connection, and when it was made.
struct Made<C> {
    connection: C,
    at: Instant,
}

/// One of the connections. It is free again when this is dropped.
struct Lease<C: Connection> {
    made: Option<Made<C>>,
    connections: Connections<C>,
    _turn: OwnedSemaphorePermit,
}

impl<C: Connection + 'static> Connections<C> {
    /// None yet, and `most` at most: each is made when it is needed.
    pub fn new(options: C::Options, most: u32, patience: Duration) -> Self {
        Self {
            options: Arc::new(options),
            patience,
            most,
            turns: Arc::new(Semaphore::new(most as usize)),
            free: Arc::default(),
        }
    }

    /// Runs statements on one of them. It is waited for a third of the patience, and for the
    /// statements all of it. A connection that does not answer in time, or with an error, is
    /// given up, and so are those that are free: their path may be dead. What it carried may or
    /// may not have been committed.
    ///
    /// # Errors
    /// What the statements make of it, or that there is no connection, or no answer in time.
    pub async fn run<T, E: From<sqlx::Error>>(
        &self,
        statements: impl AsyncFnOnce(&mut C) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = timeout(self.patience / 3, self.lease()).await;
        let mut lease = lease.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        // Whoever stops waiting for the statements drops the connection with them.
        let mut made = lease.made.take().ok_or(sqlx::Error::PoolClosed)?;
        let result = match timeout(self.patience, statements(&mut made.connection)).await {
            Ok(result) => result,
            Err(elapsed) => Err(sqlx::Error::Io(io::Error::from(elapsed)).into()),
        };
        match &result {
            Ok(_) => lease.made = Some(made),
            Err(_) => self.free().clear(),
        }
        result
    }

    /// To make a connection goes on when nobody waits for it any more: otherwise there would
    /// never be one where that takes longer.
    async fn lease(&self) -> Result<Lease<C>, sqlx::Error> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|_| sqlx::Error::PoolClosed)?;
        let mut lease = Lease {
            made: self.take_young(),
            connections: self.clone(),
            _turn: turn,
        };
        if lease.made.is_some() {
            return Ok(lease);
        }
        let making = tokio::spawn(async move {
            let connecting = connect::<C>(&lease.connections.options);
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

    /// Waits until all are free, and closes them. There are no more after that.
    pub async fn close(&self) {
        let all = self.turns.acquire_many(self.most).await;
        self.turns.close();
        drop(all);
        let free = std::mem::take(&mut *self.free());
        for made in free {
            if let Err(error) = made.connection.close().await {
                tracing::debug!(%error, "a connection did not close well");
            }
        }
    }
}

/// Connects, as soon as the server takes connections.
async fn connect<C: Connection>(options: &C::Options) -> Result<C, sqlx::Error> {
    loop {
        match C::connect_with(options).await {
            Err(error) if is_passing(&error) => sleep(CONNECT_PAUSE).await,
            connected => return connected,
        }
    }
}

/// Whether a server that cannot be connected to is most likely starting, ending or full.
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

impl<C: Connection> Connections<C> {
    fn free(&self) -> MutexGuard<'_, Vec<Made<C>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connection> Clone for Connections<C> {
    fn clone(&self) -> Self {
        Self {
            options: self.options.clone(),
            patience: self.patience,
            most: self.most,
            turns: self.turns.clone(),
            free: self.free.clone(),
        }
    }
}

impl<C: Connection> Drop for Lease<C> {
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            self.connections.free().push(made);
        }
    }
}
