//! What Redis says of itself, read without a change: for `perdiem doctor`.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use redis::{InfoDict, RedisError, cmd};
use tokio::time::timeout;

use super::RedisAccess;
use super::address::Address;
use super::error::CounterError;

/// The longest wait for a connection and for each answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why Redis could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum CheckupError {
    /// The settings are wrong.
    #[error(transparent)]
    Setting(#[from] CounterError),
    /// Redis does not answer, or refuses the question.
    #[error("{0}")]
    Redis(#[from] RedisError),
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// What is known of one primary.
#[derive(Debug, Clone)]
pub struct RedisFacts {
    /// Host and port, or `the cluster`.
    pub place: String,
    pub version: String,
    /// Its setting `maxmemory-policy`.
    pub policy: String,
    pub used_bytes: u64,
    /// 0 for no limit.
    pub bytes_most: u64,
    /// Its setting `appendonly`.
    pub is_append_only: bool,
    /// Its setting `save`. `None` if the user of perdiem may not see it.
    pub saves: Option<String>,
    /// Whether the last write to its own disk failed.
    pub disk_fails: bool,
    /// Whether it only follows a primary.
    pub is_replica: bool,
    pub replicas: u64,
    /// Whether it refuses writes while it has too few replicas (`min-replicas-to-write`).
    pub needs_replicas: bool,
    /// How far the machine's clock was ahead of its clock when it was asked. `None` if it does not tell the time.
    pub clock_offset: Option<TimeDelta>,
    /// How long the answer took.
    pub took: TimeDelta,
}

impl RedisFacts {
    /// Asks the primaries of a URL. `now` is the machine's clock.
    ///
    /// # Errors
    /// [`CheckupError`].
    pub async fn read(
        url: &str,
        access: &RedisAccess,
        now: impl Fn() -> DateTime<Utc>,
    ) -> Result<Vec<Self>, CheckupError> {
        let address = Address::parse(url, access, PATIENCE)?;
        let (link, place) = timeout(PATIENCE, address.connect(PATIENCE))
            .await
            .map_err(|_| CheckupError::Silent)??;
        let asked_at = now();
        let asking = timeout(PATIENCE, link.ask_primaries::<InfoDict>(cmd("INFO")));
        let found = asking.await.map_err(|_| CheckupError::Silent)??;
        let took = now() - asked_at;
        let mut config = cmd("CONFIG");
        config.arg("GET").arg("save");
        let saves = timeout(PATIENCE, link.ask_primaries::<Vec<String>>(config)).await;
        // A user with the rights of the documents may not ask for it.
        let saves = saves.ok().and_then(Result::ok).unwrap_or_default();
        let facts = found.iter().enumerate().map(|(index, info)| {
            let saves = saves.get(index).and_then(|pair| pair.get(1)).cloned();
            Self::of(&place, info, saves, asked_at, took)
        });
        Ok(facts.collect())
    }

    fn of(
        place: &str,
        info: &InfoDict,
        saves: Option<String>,
        asked_at: DateTime<Utc>,
        took: TimeDelta,
    ) -> Self {
        let text = |name: &str| info.get::<String>(name).unwrap_or_default();
        let number = |name: &str| info.get::<u64>(name).unwrap_or_default();
        let fails = |name: &str| info.get::<String>(name).is_some_and(|told| told != "ok");
        let offset = |micros: i64| Some(asked_at - DateTime::from_timestamp_micros(micros)?);
        Self {
            place: place.to_owned(),
            version: text("redis_version"),
            policy: text("maxmemory_policy"),
            used_bytes: number("used_memory"),
            bytes_most: number("maxmemory"),
            is_append_only: number("aof_enabled") == 1,
            saves,
            disk_fails: fails("rdb_last_bgsave_status") || fails("aof_last_write_status"),
            is_replica: text("role") == "slave",
            replicas: number("connected_slaves"),
            needs_replicas: info.get::<u64>("min_slaves_good_slaves").is_some(),
            clock_offset: info.get::<i64>("server_time_usec").and_then(offset),
            took,
        }
    }
}
