//! The settings: each is a flag and an environment variable of the same name. One that holds a
//! secret can also name a file that it stands in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use clap::{Args, ValueEnum};

use crate::clock::Clock;
use crate::counter::RedisAccess;
use crate::domain::seal::note::SealKey;
use crate::engine::{EngineOptions, SealTarget};
use crate::http::ServeOptions;
use crate::ledger::RoleName;

/// Where the ledger is, if nobody says so.
const DATABASE_URL_DEFAULT: &str = "sqlite:perdiem.db";

/// Where the ledger is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// The ledger: sqlite:… or postgres://… [default: sqlite:perdiem.db]
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        conflicts_with = "database_url_file"
    )]
    database_url: Option<String>,

    /// A file with the ledger's URL
    #[arg(long, env = "DATABASE_URL_FILE", value_name = "FILE", value_parser = read_secret)]
    database_url_file: Option<String>,
}

/// How to migrate.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// Where the ledger is.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// On PostgreSQL, the role whose members serve. It is made if it is missing, and gets the rights
    /// that the service needs, and no others
    #[arg(
        long,
        env = "PERDIEM_SERVICE_ROLE",
        value_name = "ROLE",
        default_value = "perdiem_service"
    )]
    pub service_role: RoleName,
}

/// How to serve.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Where the ledger is.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// The counters: redis://, redis+sentinel:// or redis+cluster://, with rediss for TLS; without
    /// it the ledger decides alone
    #[arg(
        long,
        env = "REDIS_URL",
        hide_env_values = true,
        conflicts_with = "redis_url_file"
    )]
    pub redis_url: Option<String>,

    /// A file with the counters' URL
    #[arg(long, env = "REDIS_URL_FILE", value_name = "FILE", value_parser = read_secret)]
    pub redis_url_file: Option<String>,

    /// A file with the certificates (PEM) that rediss trusts in the place of the public authorities
    #[arg(long, env = "REDIS_CA_FILE", value_name = "FILE", value_parser = read_secret)]
    pub redis_ca_file: Option<String>,

    /// Who the sentinels are asked as, where they know users
    #[arg(long, env = "REDIS_SENTINEL_USER")]
    pub redis_sentinel_user: Option<String>,

    /// The sentinels' own password; the one in the URL is the primary's
    #[arg(
        long,
        env = "REDIS_SENTINEL_PASSWORD",
        hide_env_values = true,
        conflicts_with = "redis_sentinel_password_file"
    )]
    pub redis_sentinel_password: Option<String>,

    /// A file with the sentinels' own password
    #[arg(long, env = "REDIS_SENTINEL_PASSWORD_FILE", value_name = "FILE",
        value_parser = read_secret)]
    pub redis_sentinel_password_file: Option<String>,

    /// Where to listen; port 0 takes a free one
    #[arg(long, env = "PERDIEM_BIND", default_value = "127.0.0.1:8080")]
    pub bind: String,

    /// An admin key to accept from the start. Without it, and with no key in the database, the
    /// first start makes one and prints it once
    #[arg(
        long,
        env = "PERDIEM_ADMIN_KEY",
        hide_env_values = true,
        conflicts_with = "admin_key_file"
    )]
    pub admin_key: Option<String>,

    /// A file with the admin key
    #[arg(long, env = "PERDIEM_ADMIN_KEY_FILE", value_name = "FILE", value_parser = read_secret)]
    pub admin_key_file: Option<String>,

    /// The longest that a claim may take, in milliseconds
    #[arg(long, env = "PERDIEM_CLAIM_DEADLINE_MS", default_value_t = 2000,
        value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub claim_deadline_ms: u64,

    /// The longest that Redis may take to answer before the ledger decides without it, in
    /// milliseconds
    #[arg(long, env = "PERDIEM_REDIS_TIMEOUT_MS", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub redis_timeout_ms: u64,

    /// How many claims may be under way at once; one key may have half of them; beyond them the
    /// answer is 503
    #[arg(long, env = "PERDIEM_CLAIMS_MOST", default_value_t = 4000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub claims_most: u32,

    /// How far this machine's clock may be off the ledger's before it decides nothing, in
    /// seconds; 0 does not look
    #[arg(long, env = "PERDIEM_CLOCK_TOLERANCE_SECONDS", default_value_t = 10)]
    pub clock_tolerance_seconds: u32,

    /// How often counters are compared with the ledger, and healed, and the ledger is checked, in
    /// seconds; 0 never does it
    #[arg(long, env = "PERDIEM_RECONCILE_EVERY_SECONDS", default_value_t = 3600)]
    pub reconcile_every_seconds: u32,

    /// A file with the key that signs seals, as `perdiem seal new-key` makes it; without it nothing
    /// is sealed
    #[arg(long, env = "PERDIEM_SEAL_KEY_FILE", value_name = "FILE", value_parser = read_seal_key)]
    pub seal_key_file: Option<Arc<SealKey>>,

    /// Where each seal is pushed to: file:FOLDER, or command:PROGRAM ARGUMENTS, which gets it on its
    /// standard input
    #[arg(long, env = "PERDIEM_SEAL_TO", value_name = "TARGET", value_parser = SealTarget::parse,
        requires = "seal_key_file")]
    pub seal_to: Option<SealTarget>,

    /// How long a request's head may take to arrive, and its body again, in seconds
    #[arg(long, env = "PERDIEM_REQUEST_SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub request_seconds: u64,

    /// How long a connection may be idle before it is closed, in seconds
    #[arg(long, env = "PERDIEM_IDLE_SECONDS", default_value_t = 75,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub idle_seconds: u64,

    /// How long an answer may wait for a client that does not read, in seconds; then its
    /// connection is closed
    #[arg(long, env = "PERDIEM_STALL_SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub stall_seconds: u64,

    /// How long anything but a claim may take to be answered, in seconds; then the answer is 503
    #[arg(long, env = "PERDIEM_ANSWER_SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub answer_seconds: u64,

    /// Whether /metrics is open to all, and not only to those with a key
    #[arg(long, env = "PERDIEM_OPEN_METRICS")]
    pub open_metrics: bool,

    /// How long claims in flight may take to end after SIGTERM, in seconds
    #[arg(long, env = "PERDIEM_DRAIN_SECONDS", default_value_t = 10)]
    pub drain_seconds: u32,

    /// What to log, and how.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What to log, and how.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// How log lines look, on standard error
    #[arg(long, env = "PERDIEM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Human)]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug or trace, also by module (info,perdiem=debug)
    #[arg(
        long,
        env = "PERDIEM_LOG",
        default_value = "info,actix_server=warn,sqlx=warn"
    )]
    pub log: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What everybody may do with a file, in its mode.
const OTHERS: u32 = 0o007;

/// Reads a secret from a file. The newline that editors write at its end is none of it.
///
/// # Errors
/// Why there is no secret in the file.
pub fn read_secret(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    let secret = text.strip_suffix('\n').unwrap_or(&text);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    match secret.is_empty() {
        true => Err("it is empty: write the secret into it".to_owned()),
        false => Ok(secret.to_owned()),
    }
}

/// Reads the key that signs seals. Its group may read the file, as where an orchestrator mounts it.
///
/// # Errors
/// Why there is no key in the file, or why it is no secret.
pub fn read_seal_key(path: &str) -> Result<Arc<SealKey>, String> {
    let key = SealKey::parse(&read_secret(path)?);
    let metadata = fs::metadata(path).map_err(|error| format!("it cannot be read: {error}"))?;
    if metadata.is_file() && metadata.permissions().mode() & OTHERS != 0 {
        return Err(format!(
            "every user of this machine may read or write it, and it is secret: chmod o= {path}"
        ));
    }
    key.map(Arc::new).map_err(|error| error.to_string())
}

impl DatabaseArgs {
    /// Where the ledger is.
    pub fn url(&self) -> &str {
        self.named().unwrap_or(DATABASE_URL_DEFAULT)
    }

    /// Where the ledger is said to be.
    pub fn named(&self) -> Option<&str> {
        let named = self.database_url_file.as_ref();
        named.or(self.database_url.as_ref()).map(String::as_str)
    }
}

impl ServeArgs {
    /// What the engine is built from, on the machine's clock.
    pub fn engine_options(&self) -> EngineOptions {
        let tolerance = TimeDelta::seconds(self.clock_tolerance_seconds.into());
        let reconcile_every = Duration::from_secs(self.reconcile_every_seconds.into());
        let either = |file: &Option<String>, given: &Option<String>| file.clone().or(given.clone());
        EngineOptions {
            database_url: self.database.url().to_owned(),
            redis_url: either(&self.redis_url_file, &self.redis_url),
            redis_access: RedisAccess {
                ca: self.redis_ca_file.clone(),
                sentinel_user: self.redis_sentinel_user.clone(),
                sentinel_password: either(
                    &self.redis_sentinel_password_file,
                    &self.redis_sentinel_password,
                ),
            },
            admin_key: either(&self.admin_key_file, &self.admin_key),
            claim_deadline: Duration::from_millis(self.claim_deadline_ms),
            answer_time: Duration::from_secs(self.answer_seconds),
            redis_timeout: Duration::from_millis(self.redis_timeout_ms),
            claims_most: self.claims_most as usize,
            clock_tolerance: Some(tolerance).filter(|tolerance| !tolerance.is_zero()),
            reconcile_every: Some(reconcile_every).filter(|every| !every.is_zero()),
            seal_key: self.seal_key_file.clone(),
            seal_to: self.seal_to.clone(),
            clock: Clock::system(),
        }
    }

    /// How to serve.
    pub fn serve_options(&self) -> ServeOptions {
        ServeOptions {
            bind: self.bind.clone(),
            drain_time: Duration::from_secs(self.drain_seconds.into()),
            request_time: Duration::from_secs(self.request_seconds),
            idle_time: Duration::from_secs(self.idle_seconds),
            stall_time: Duration::from_secs(self.stall_seconds),
            open_metrics: self.open_metrics,
        }
    }
}
