//! The circuit breaker: while Redis does not answer, no claim waits for it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{Cmd, ErrorKind, InfoDict, RedisError, ServerErrorKind, cmd};
use tokio::time::{Instant, sleep};

use super::address::{Address, RedisAccess};
use super::error::CounterError;
use super::link::{Link, first_failure};

/// The pause before another attempt: the first, doubled each time up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(1);
/// How often to ask the sentinels whether the primary in use is still the primary. An old primary
/// that was cut off still answers.
const LOOK_FOR_PRIMARY: Duration = Duration::from_secs(2);

/// Has the connection while Redis answers. When Redis does not answer, the breaker opens: there is
/// no connection until a check in the background succeeds.
pub struct Breaker {
    address: Address,
    timeout: Duration,
    /// Keys to write in a check: one in each slot that counters have.
    probes: [String; 256],
    connected: ArcSwapOption<Connected>,
}

/// A connection to a Redis that passed the check.
pub struct Connected {
    pub link: Link,
    place: String,
    /// What Redis had before this instant may have been lost or rolled back since.
    pub since: Instant,
}

enum ConnectTrouble {
    Redis(RedisError),
    Unfit(CounterError),
}

impl From<RedisError> for ConnectTrouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl Breaker {
    /// Connects, or starts to try in the background.
    ///
    /// # Errors
    /// [`CounterError`]. A Redis that does not answer is no error.
    pub async fn open(
        url: &str,
        access: &RedisAccess,
        timeout: Duration,
        probes: [String; 256],
    ) -> Result<Arc<Self>, CounterError> {
        let breaker = Arc::new(Self {
            address: Address::parse(url, access, timeout)?,
            timeout,
            probes,
            connected: ArcSwapOption::empty(),
        });
        match breaker.connect().await {
            Ok(connected) => breaker.connected.store(Some(Arc::new(connected))),
            Err(ConnectTrouble::Unfit(error)) => return Err(error),
            Err(ConnectTrouble::Redis(error)) => breaker.begin_to_retry(&error),
        }
        if matches!(breaker.address, Address::Sentinel(_)) {
            breaker.begin_to_look_for_primary();
        }
        Ok(breaker)
    }

    /// The connection; `None` while the breaker is open.
    pub fn connected(&self) -> Option<Arc<Connected>> {
        self.connected.load_full()
    }

    /// Opens the breaker because of an error.
    pub fn trip(self: &Arc<Self>, error: &RedisError) {
        // Many callers see the connection fail. One of them removes it and starts the attempts.
        if self.connected.swap(None).is_some() {
            self.begin_to_retry(error);
        }
    }

    fn begin_to_retry(self: &Arc<Self>, error: &RedisError) {
        tracing::warn!(
            %error,
            "Redis is unavailable: the ledger decides all claims until Redis is back"
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
                    Ok(connected) => {
                        tracing::info!(place = connected.place, "Redis is available again");
                        breaker.connected.store(Some(Arc::new(connected)));
                        return;
                    }
                    Err(ConnectTrouble::Unfit(error)) => tracing::error!("{error}"),
                    Err(ConnectTrouble::Redis(error)) => {
                        tracing::debug!(%error, "Redis is still unavailable")
                    }
                }
                pause = RETRY_LAST.min(pause * 2);
            }
        });
    }

    fn begin_to_look_for_primary(self: &Arc<Self>) {
        let breaker = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep(LOOK_FOR_PRIMARY).await;
                let Some(breaker) = breaker.upgrade() else {
                    return;
                };
                let Some(present) = breaker.address.present_place().await else {
                    continue;
                };
                let connected = breaker.connected.load_full();
                if connected.is_some_and(|connected| connected.place != present) {
                    let moved = (ErrorKind::Server(ServerErrorKind::ReadOnly), "it moved");
                    breaker.trip(&moved.into());
                }
            }
        });
    }

    /// Connects and checks Redis: it must be a primary that takes writes and never evicts.
    async fn connect(&self) -> Result<Connected, ConnectTrouble> {
        let (link, place) = self.address.connect(self.timeout).await?;
        let mut info = cmd("INFO");
        info.arg("memory");
        for memory in link.ask_primaries::<InfoDict>(info).await? {
            let policy: Option<String> = memory.get("maxmemory_policy");
            if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
                return Err(ConnectTrouble::Unfit(CounterError::Evicts {
                    place,
                    policy,
                }));
            }
        }
        // A replica, a full memory, a full disk and a missing shard all refuse a write.
        let answers = link.send(self.probes(&link)).await;
        match first_failure(&answers, |_| false) {
            Some(error) => Err(ConnectTrouble::Redis(error.clone())),
            None => Ok(Connected {
                link,
                place,
                since: Instant::now(),
            }),
        }
    }

    /// Writes that leave nothing behind, because their keys have expired already. One server takes
    /// all of them or none.
    fn probes(&self, link: &Link) -> Vec<Cmd> {
        let keys = if link.is_cluster() {
            &self.probes[..]
        } else {
            &self.probes[..1]
        };
        let write = |key: &String| {
            let mut set = cmd("SET");
            set.arg(key).arg("").arg("PXAT").arg(1);
            set
        };
        keys.iter().map(write).collect()
    }
}
