//! How sessions of PostgreSQL begin, also behind a pooler such as PgBouncer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions, Postgres};
use sqlx::{AssertSqlSafe, Connection, Executor, Row, raw_sql};
use tokio::time::timeout;
use uuid::Uuid;

use super::OpenError;
use super::connections::{LIFETIME, Opener};
use super::hosts::{Hosts, takes_writes};

/// The longest time that a statement and its answer may be on their way.
const LONGEST_WAY: Duration = Duration::from_secs(5);

/// How often two connections are compared. A pooler that hands out the session that was used last
/// is found at once. The other attempts are for poolers that take turns.
const COMPARISONS: u32 = 3;

/// Where to begin sessions, and their settings.
///
/// Statements set the settings. A pooler refuses a connection whose start-up message has settings,
/// or ignores them, and gives sessions that another program has changed.
#[derive(Debug, Clone)]
pub struct Sessions {
    hosts: Arc<Hosts>,
    /// Whether a standby serves them as well as a primary.
    may_be_standby: bool,
    settings: Vec<(&'static str, String)>,
    /// How long a statement may stay without an answer. A server that can still be reached has ended the statement
    /// before.
    patience: Duration,
}

/// Sessions that are used again and again.
#[derive(Clone)]
pub struct SessionPool {
    pub sessions: PgPool,
    pub patience: Duration,
}

impl Sessions {
    /// The sessions of a URL, without settings.
    ///
    /// # Errors
    /// [`OpenError::InvalidUrl`].
    pub fn of(url: &str) -> Result<Self, OpenError> {
        Ok(Self {
            hosts: Arc::new(Hosts::of(url)?),
            may_be_standby: false,
            settings: Vec::new(),
            patience: Duration::MAX,
        })
    }

    /// Hosts, ports and database, without credentials.
    pub fn place(&self) -> String {
        self.hosts.place()
    }

    /// Sessions that change nothing.
    pub fn reading(self) -> Self {
        self.with("default_transaction_read_only", "on")
    }

    /// Sessions that a standby serves as well as a primary.
    pub fn on_any(mut self) -> Self {
        self.may_be_standby = true;
        self
    }

    /// With another setting.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// Commits reach the disk before they are answered, and no statement, lock or forgotten
    /// transaction blocks others for long.
    pub fn with_timeouts(mut self, timeout: Duration) -> Self {
        let millis = timeout.as_millis().to_string();
        self.patience = timeout + timeout.min(LONGEST_WAY);
        self.with("synchronous_commit", "on")
            .with("statement_timeout", &*millis)
            .with("lock_timeout", &*millis)
            .with("idle_in_transaction_session_timeout", millis)
    }

    /// A pool of at most so many sessions, and the longest wait for one of them. A session that was not used for
    /// `tested_after` is tested before it is used again.
    pub fn pool(&self, most: u32, wait: Duration, tested_after: Duration) -> PgPoolOptions {
        let begin: Arc<str> = self.beginning().into();
        let moved = self.hosts.moved();
        let hosts = self.hosts.clone();
        let may_be_standby = self.may_be_standby;
        PgPoolOptions::new()
            .max_connections(most)
            .max_lifetime(LIFETIME)
            .acquire_timeout(wait)
            .after_connect(move |session, _| {
                let begin = begin.clone();
                let must_write = hosts.must_write(may_be_standby);
                Box::pin(async move {
                    if must_write {
                        takes_writes(session).await?;
                    }
                    set(session, &begin).await
                })
            })
            // The test below is instead of this one: a host that served before may be gone, and not answer.
            .test_before_acquire(false)
            .before_acquire(move |session, used| {
                let is_of_before = moved.is_before(used.age);
                Box::pin(async move {
                    let is_fresh = used.idle_for < tested_after;
                    Ok(!is_of_before && (is_fresh || session.ping().await.is_ok()))
                })
            })
            // A session that does not answer would be waited for without end, and keep its place. One that still
            // runs a statement that nobody waits for is closed too.
            .after_release(|session, _| {
                Box::pin(async move { answered(LONGEST_WAY, session.ping()).await.map(|()| true) })
            })
    }

    /// Says which ledger it is: no host with another one serves.
    pub fn know(&self, ledger: Uuid) {
        self.hosts.know(ledger);
    }

    /// Finds the host that serves, if there are several.
    ///
    /// # Errors
    /// Those of all hosts.
    pub async fn look(&self) -> Result<(), sqlx::Error> {
        self.hosts.look(self.may_be_standby).await
    }

    /// Makes the first connection of a pool.
    pub async fn connect(&self, pool: PgPoolOptions) -> Result<PgPool, sqlx::Error> {
        let pool = pool.connect_with(self.hosts.current()).await?;
        self.hosts.lead(&pool);
        Ok(pool)
    }

    /// Makes the connections of a pool when they are needed.
    pub fn connect_lazy(&self, pool: PgPoolOptions) -> SessionPool {
        let pool = pool.connect_lazy_with(self.hosts.current());
        self.hosts.lead(&pool);
        self.bounded(pool)
    }

    /// The sessions of a pool, with the time within which they answer.
    pub fn bounded(&self, sessions: PgPool) -> SessionPool {
        SessionPool {
            sessions,
            patience: self.patience,
        }
    }

    /// The statement that sets the settings; empty if there are none.
    fn beginning(&self) -> String {
        let setting =
            |(name, value): &(&str, String)| format!("set_config('{name}', '{value}', false)");
        let settings: Vec<String> = self.settings.iter().map(setting).collect();
        if settings.is_empty() {
            String::new()
        } else {
            format!("SELECT {}", settings.join(", "))
        }
    }
}

impl Opener for Sessions {
    type Opened = PgConnection;

    fn open(&self) -> BoxFuture<'_, Result<PgConnection, sqlx::Error>> {
        Box::pin(async {
            let mut session = self.hosts.connect(self.may_be_standby).await?;
            set(&mut session, &self.beginning()).await?;
            Ok(session)
        })
    }
}

/// Waits for an answer as long as a server that can be reached may need for it. Nobody else ends the wait when a host
/// or a path is gone: a connection that only reads learns nothing of it.
///
/// # Errors
/// The answer's own, or [`sqlx::Error::Io`] when the time is over. Then the statement may have been committed, or
/// be committed later: no time of the server ends a commit that waits for a standby.
pub async fn answered<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout(patience, answer).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
    }
}

/// A wrong setting is an error here, and never a session without it.
async fn set(session: &mut PgConnection, beginning: &str) -> Result<(), sqlx::Error> {
    if !beginning.is_empty() {
        // Without a prepared statement: it is used once.
        session.execute(raw_sql(AssertSqlSafe(beginning))).await?;
    }
    Ok(())
}

/// What a pooler gives a session to, if it is less than a connection: settings and prepared
/// statements would then be those of another connection. `None` if each connection has its own session.
///
/// # Errors
/// The connections fail.
pub async fn shared_by(pool: &PgPool) -> Result<Option<&'static str>, sqlx::Error> {
    let mut one = pool.acquire().await?;
    let mut two = pool.acquire().await?;
    let mut own = process(&mut one, "").await?;
    for _ in 0..COMPARISONS {
        // While the second connection is in a transaction, no pooler gives its session to another.
        let theirs = match process(&mut two, "BEGIN;").await {
            Err(sqlx::Error::Database(error)) if error.message().contains("statement pool") => {
                // The pooler has closed it.
                drop(two.detach());
                return Ok(Some("statement"));
            }
            theirs => theirs?,
        };
        let now = process(&mut one, "").await?;
        two.execute(raw_sql("ROLLBACK")).await?;
        if own == theirs || now != own {
            return Ok(Some("transaction"));
        }
        own = now;
    }
    Ok(None)
}

/// The process of PostgreSQL that runs a connection's statements. Sent as text, because a prepared
/// statement may stay in another process.
async fn process(
    connection: &mut PoolConnection<Postgres>,
    before: &str,
) -> Result<String, sqlx::Error> {
    let ask = format!("{before} SELECT pg_backend_pid()::text");
    let row = connection.fetch_one(raw_sql(AssertSqlSafe(ask))).await?;
    row.try_get(0)
}
