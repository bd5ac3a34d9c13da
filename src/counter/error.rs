//! Why counters cannot be used at all.

/// Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The URL cannot be parsed.
    #[error(
        "REDIS_URL cannot be read: {0}; write redis://host:6379, \
         redis+sentinel://sentinel:26379,another/name or redis+cluster://node:6379,another, \
         with rediss instead of redis for TLS"
    )]
    Url(String),
    /// The authority's certificates cannot be used.
    #[error("REDIS_CA_FILE cannot be used: {0}")]
    Ca(&'static str),
    /// The sentinels' user has no password.
    #[error("REDIS_SENTINEL_USER has no password: also set REDIS_SENTINEL_PASSWORD")]
    SentinelUser,
    /// There are no sentinels for this password.
    #[error(
        "REDIS_SENTINEL_PASSWORD is for sentinels, but REDIS_URL names no sentinel: begin it with \
         redis+sentinel or rediss+sentinel, or leave the password out"
    )]
    SentinelPassword,
    /// Redis would drop counters and keys silently.
    #[error(
        "the Redis at {place} may evict counters: its maxmemory-policy is {policy}; set it to noeviction \
         (CONFIG SET maxmemory-policy noeviction, and in redis.conf), or name another Redis in \
         REDIS_URL"
    )]
    Evicts {
        /// Host and port.
        place: String,
        /// The policy that Redis has.
        policy: String,
    },
}

impl CounterError {
    /// The setting that is wrong; `None` if Redis is to blame, which its owner can change.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Self::Url(_) => Some("REDIS_URL"),
            Self::Ca(_) => Some("REDIS_CA_FILE"),
            Self::SentinelUser => Some("REDIS_SENTINEL_USER"),
            Self::SentinelPassword => Some("REDIS_SENTINEL_PASSWORD"),
            Self::Evicts { .. } => None,
        }
    }
}
