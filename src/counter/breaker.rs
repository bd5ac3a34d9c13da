//! The circuit breaker: while Redis does not answer, nobody waits for it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, InfoDict, RedisError, ServerErrorKind};
use tokio::time::sleep;

/// How long to wait before Redis is tried again: from the first to the last, doubling.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(1);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why counters cannot be used at all. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The URL cannot be read.
    #[error(
        "REDIS_URL cannot be read: {0}; write redis://host:6379, or rediss:// for one with TLS"
    )]
    Url(String),
    /// Redis would drop counters and keys without a word.
    #[error(
        "the Redis at {place} may evict: its maxmemory-policy is {policy}; set it to noeviction \
         (CONFIG SET maxmemory-policy noeviction, and in redis.conf), or name another Redis in \
         REDIS_URL"
    )]
    Evicts {
        /// Host and port.
        place: String,
        /// The policy that was found.
        policy: String,
    },
}

/// Holds the connection while Redis answers. Once it does not, the breaker is open: there is
/// no connection until Redis, tried again in the background, is found well.
pub struct Breaker {
    client: Client,
    config: AsyncConnectionConfig,
    connection: ArcSwapOption<MultiplexedConnection>,
}

enum Trouble {
    Redis(RedisError),
    Unfit(CounterError),
}

impl Breaker {
    /// Connects, or begins to try.
    ///
    /// # Errors
    /// [`CounterError`]; a Redis that cannot be reached is none.
    pub async fn open(url: &str, timeout: Duration) -> Result<Arc<Self>, CounterError> {
        let client = Client::open(url).map_err(|error| CounterError::Url(error.to_string()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(timeout));
        let breaker = Arc::new(Self {
            client,
            config,
            connection: ArcSwapOption::empty(),
        });
        match breaker.connect().await {
            Ok(connection) => breaker.connection.store(Some(Arc::new(connection))),
            Err(Trouble::Unfit(error)) => return Err(error),
            Err(Trouble::Redis(error)) => breaker.begin_to_retry(&error),
        }
        Ok(breaker)
    }

    /// The connection; `None` while the breaker is open.
    pub fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.load().as_deref().cloned()
    }

    /// Opens the breaker because of an error.
    pub fn trip(self: &Arc<Self>, error: &RedisError) {
        // Of all who saw the connection fail, one takes it out and looks for a new one.
        if self.connection.swap(None).is_some() {
            self.begin_to_retry(error);
        }
    }

    fn begin_to_retry(self: &Arc<Self>, error: &RedisError) {
        tracing::warn!(
            %error,
            "Redis does not serve: the ledger decides alone until it does"
        );
        let breaker = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = RETRY_FIRST;
            loop {
                sleep(pause).await;
                let Some(breaker) = breaker.upgrade() else {
                    return;
                };
                match breaker.connect().await {
                    Ok(connection) => {
                        breaker.connection.store(Some(Arc::new(connection)));
                        tracing::info!("Redis serves again");
                        return;
                    }
                    Err(Trouble::Unfit(error)) => tracing::error!("{error}"),
                    Err(Trouble::Redis(error)) => {
                        tracing::debug!(%error, "Redis does not serve yet")
                    }
                }
                pause = RETRY_LAST.min(pause * 2);
            }
        });
    }

    /// Connects and sees that Redis is fit: a primary that answers and never evicts.
    async fn connect(&self) -> Result<MultiplexedConnection, Trouble> {
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&self.config)
            .await
            .map_err(Trouble::Redis)?;
        let (memory, replication, _): (InfoDict, InfoDict, String) = redis::pipe()
            .cmd("INFO")
            .arg("memory")
            .cmd("INFO")
            .arg("replication")
            .cmd("PING")
            .query_async(&mut connection)
            .await
            .map_err(Trouble::Redis)?;
        let role: Option<String> = replication.get("role");
        if role.is_some_and(|role| role != "master") {
            let error = (
                ErrorKind::Server(ServerErrorKind::ReadOnly),
                "this is a replica",
            );
            return Err(Trouble::Redis(error.into()));
        }
        let policy: Option<String> = memory.get("maxmemory_policy");
        match policy {
            Some(policy) if policy != "noeviction" => Err(Trouble::Unfit(CounterError::Evicts {
                place: self.client.get_connection_info().addr().to_string(),
                policy,
            })),
            _ => Ok(connection),
        }
    }
}
