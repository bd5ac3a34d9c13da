//! The settings. Each is a flag and an environment variable of the same name. A setting with a
//! secret can also name a file that contains the secret.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use clap::builder::Resettable;
use clap::{Args, Command, FromArgMatches, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::gate_args::GateArgs;
use crate::setting::{WrongSetting, read_seal_key, read_secret};
use crate::sign_on_args::SignOnArgs;
use counter::RedisAccess;
use domain::four_eyes::FourEyes;
use domain::seal::note::SealKey;
use engine::{EngineOptions, SealTarget};
use host::clock::{Clock, SandboxClock};
use http::{ConsoleSettings, ServeOptions, TlsFiles};
use ledger::RoleName;

const DATABASE_URL_DEFAULT: &str = "sqlite:perdiem.db";
/// Decisions record the lapses of accounts in use. Other accounts wait a little, so that two writers seldom
/// meet.
const RECORD_LAPSES_AFTER: TimeDelta = TimeDelta::seconds(2);

#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// URL of the ledger: sqlite:… or postgres://… [default: sqlite:perdiem.db]
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        conflicts_with = "database_url_file"
    )]
    database_url: Option<String>,

    /// File that contains the ledger's URL
    #[arg(long, env = "DATABASE_URL_FILE", value_name = "FILE", value_parser = read_secret)]
    database_url_file: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// On PostgreSQL, the role whose members run the service. The command creates the role if it is
    /// missing, and gives it only the rights that the service needs
    #[arg(
        long,
        env = "PERDIEM_SERVICE_ROLE",
        value_name = "ROLE",
        default_value = "perdiem_service"
    )]
    pub service_role: RoleName,
}

#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Start a sandbox to develop against: its ledger is in a temporary folder, which goes with it, and
    /// `perdiem sandbox clock` moves its clock
    #[arg(
        long,
        env = "PERDIEM_SANDBOX",
        conflicts_with_all = [
            "database_url",
            "database_url_file",
            "redis_url",
            "redis_url_file",
            "read_only"
        ]
    )]
    pub sandbox: bool,

    /// Only read the ledger, which may be a standby of PostgreSQL: lists, exports, explanations and
    /// statistics. Claims and changes are answered with 503
    #[arg(long, env = "PERDIEM_READ_ONLY")]
    pub read_only: bool,

    /// URL of Redis, which keeps the counters: redis://, redis+sentinel:// or redis+cluster://,
    /// with rediss for TLS. Without Redis, the ledger decides alone
    #[arg(
        long,
        env = "REDIS_URL",
        hide_env_values = true,
        conflicts_with = "redis_url_file"
    )]
    pub redis_url: Option<String>,

    /// File that contains the URL of Redis
    #[arg(long, env = "REDIS_URL_FILE", value_name = "FILE", value_parser = read_secret)]
    pub redis_url_file: Option<String>,

    /// File with the certificates (PEM) that rediss trusts instead of the public authorities
    #[arg(long, env = "REDIS_CA_FILE", value_name = "FILE", value_parser = read_secret)]
    pub redis_ca_file: Option<String>,

    /// User name for the sentinels, if they require one
    #[arg(long, env = "REDIS_SENTINEL_USER")]
    pub redis_sentinel_user: Option<String>,

    /// Password of the sentinels. The password in the URL is that of the primary
    #[arg(
        long,
        env = "REDIS_SENTINEL_PASSWORD",
        hide_env_values = true,
        conflicts_with = "redis_sentinel_password_file"
    )]
    pub redis_sentinel_password: Option<String>,

    /// File that contains the password of the sentinels
    #[arg(long, env = "REDIS_SENTINEL_PASSWORD_FILE", value_name = "FILE",
        value_parser = read_secret)]
    pub redis_sentinel_password_file: Option<String>,

    /// Address and port to listen on; port 0 takes a free port
    #[arg(long, env = "PERDIEM_BIND", default_value = "127.0.0.1:8080")]
    pub bind: String,

    /// File with the certificate (PEM) with which perdiem speaks TLS, and with those of the
    /// authorities below the root. A new certificate in the file is taken without a restart
    #[arg(long, env = "PERDIEM_TLS_CERTIFICATE_FILE", value_name = "FILE")]
    pub tls_certificate_file: Option<PathBuf>,

    /// File with the private key (PEM) of this certificate
    #[arg(long, env = "PERDIEM_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,

    /// The console, pages for people at /console: on, read-only, or off
    #[arg(
        long,
        env = "PERDIEM_CONSOLE",
        default_value = "on",
        value_name = "on|read-only|off"
    )]
    pub console: ConsoleSetting,

    /// The name of the environment, such as production: the console shows it on every page
    #[arg(long, env = "PERDIEM_CONSOLE_NAME", value_name = "NAME")]
    pub console_name: Option<String>,

    #[command(flatten)]
    pub sign_on: SignOnArgs,

    #[command(flatten)]
    pub gate: GateArgs,

    /// An admin key that is accepted from the start. Without this setting, the first start on a
    /// database without keys creates an admin key. It prints the key on a terminal; otherwise it
    /// writes the key to the file first-admin.key in the working directory
    #[arg(
        long,
        env = "PERDIEM_ADMIN_KEY",
        hide_env_values = true,
        conflicts_with = "admin_key_file"
    )]
    pub admin_key: Option<String>,

    /// File that contains the admin key
    #[arg(long, env = "PERDIEM_ADMIN_KEY_FILE", value_name = "FILE", value_parser = read_secret)]
    pub admin_key_file: Option<String>,

    /// Longest time to decide a claim, in milliseconds
    #[arg(long, env = "PERDIEM_CLAIM_DEADLINE_MS", default_value_t = 2000,
        value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub claim_deadline_ms: u64,

    /// Longest wait for an answer of Redis, in milliseconds; then the ledger decides without Redis
    #[arg(long, env = "PERDIEM_REDIS_TIMEOUT_MS", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(5..=10_000))]
    pub redis_timeout_ms: u64,

    /// Most claims in progress at once. One key can have half of them; further claims are answered
    /// with 503
    #[arg(long, env = "PERDIEM_CLAIMS_MOST", default_value_t = 4000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub claims_most: u32,

    /// Largest difference between this machine's clock and the ledger's clock, in seconds. Beyond
    /// it, the instance decides no claims; 0 turns the check off
    #[arg(long, env = "PERDIEM_CLOCK_TOLERANCE_SECONDS", default_value_t = 10)]
    pub clock_tolerance_seconds: u32,

    /// Seconds between automatic reconciliations, which compare the counters with the ledger, heal
    /// them, and check the ledger; 0 turns them off
    #[arg(long, env = "PERDIEM_RECONCILE_EVERY_SECONDS", default_value_t = 3600)]
    pub reconcile_every_seconds: u32,

    /// File with the key that signs seals, written by `perdiem seal new-key`. Without this setting, a
    /// ledger on SQLite gets a key in a file beside it, and a ledger on PostgreSQL is not sealed
    #[arg(long, env = "PERDIEM_SEAL_KEY_FILE", value_name = "FILE", value_parser = read_seal_key)]
    pub seal_key_file: Option<Arc<SealKey>>,

    /// Where to send each seal: file:FOLDER, or command:PROGRAM ARGUMENTS, which reads the seal
    /// from its standard input
    #[arg(long, env = "PERDIEM_SEAL_TO", value_name = "TARGET", value_parser = SealTarget::parse)]
    pub seal_to: Option<SealTarget>,

    /// Record each read that shows a named subject, as an act: who looked at which subject, and when
    #[arg(long, env = "PERDIEM_RECORD_READS")]
    pub record_reads: bool,

    /// Policies whose changes wait until a second admin approves them: names with commas between them, or *
    /// for all. The same at all instances
    #[arg(long, env = "PERDIEM_FOUR_EYES", value_name = "POLICIES", value_parser = FourEyes::parse)]
    pub four_eyes: Option<FourEyes>,

    /// Longest time for the head of a request to arrive, and again for its body, in seconds
    #[arg(long, env = "PERDIEM_REQUEST_SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub request_seconds: u64,

    /// Longest idle time of a connection, in seconds; then the connection is closed
    #[arg(long, env = "PERDIEM_IDLE_SECONDS", default_value_t = 75,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub idle_seconds: u64,

    /// Longest wait for a client that does not read its answer, in seconds; then the connection is
    /// closed
    #[arg(long, env = "PERDIEM_STALL_SECONDS", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub stall_seconds: u64,

    /// Longest time to answer a request that is not a claim, in seconds; then the answer is 503
    #[arg(long, env = "PERDIEM_ANSWER_SECONDS", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=600))]
    pub answer_seconds: u64,

    /// Show /metrics to everyone, also without a key
    #[arg(long, env = "PERDIEM_OPEN_METRICS")]
    pub open_metrics: bool,

    /// How many policies /metrics names at most: those with the most units granted today, with their figures
    #[arg(long, env = "PERDIEM_POLICY_METRICS", default_value_t = 0, value_name = "POLICIES",
        value_parser = clap::value_parser!(u32).range(0..=200))]
    pub policy_metrics: u32,

    /// Longest time to finish the claims in progress after SIGTERM, in seconds
    #[arg(long, env = "PERDIEM_DRAIN_SECONDS", default_value_t = 10)]
    pub drain_seconds: u32,

    /// When the clock of a sandbox begins, if not now.
    #[arg(skip)]
    pub sandbox_begins_at: Option<DateTime<Utc>>,

    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Format of the log lines on standard error
    #[arg(long, env = "PERDIEM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Human)]
    pub log_format: LogFormat,

    /// Log level: error, warn, info, debug or trace; also by module, such as info,perdiem=debug
    #[arg(
        long,
        env = "PERDIEM_LOG",
        default_value = "info,actix_server=warn,sqlx=warn",
        value_parser = read_levels
    )]
    pub log: String,
}

/// Whether there is a console, and whether it changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConsoleSetting {
    On,
    ReadOnly,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object on each line.
    Json,
}

/// Checks log levels. The filter itself takes a word that is no level for the name of a module, and
/// then shows nothing else.
///
/// # Errors
/// A part is no level.
fn read_levels(text: &str) -> Result<String, String> {
    let reason = "write error, warn, info, debug, trace or off; for a module, such as \
                info,perdiem=debug";
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        // An empty level is `trace` to the filter.
        let is_of_span = part.contains(['[', '{']);
        if level.is_empty() || is_of_span || level.parse::<LevelFilter>().is_err() {
            return Err(reason.to_owned());
        }
    }
    let filter = text.parse::<Targets>();
    let filter = filter.map_err(|error| format!("{error}; {reason}"));
    filter.map(|_| text.to_owned())
}

impl DatabaseArgs {
    /// A ledger in a SQLite file in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            database_url: Some(format!("sqlite:{}", folder.join("perdiem.db").display())),
            database_url_file: None,
        }
    }

    pub fn url(&self) -> &str {
        self.named().unwrap_or(DATABASE_URL_DEFAULT)
    }

    /// The URL that the settings name; `None` where they name none.
    pub fn named(&self) -> Option<&str> {
        let named = self.database_url_file.as_ref();
        named.or(self.database_url.as_ref()).map(String::as_str)
    }
}

impl ServeArgs {
    /// The settings that flags name. Other settings have their defaults, whatever the environment says.
    ///
    /// # Errors
    /// clap's, if a flag is wrong.
    pub fn of_flags(flags: &[&str]) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new("serve").no_binary_name(true));
        let command = command.mut_args(|argument| argument.env(Resettable::Reset));
        Self::from_arg_matches(&command.try_get_matches_from(flags)?)
    }

    /// Checks the settings that need each other.
    ///
    /// # Errors
    /// One lacks the other.
    pub fn check(&self, may_seal: bool) -> Result<(), WrongSetting> {
        match (&self.seal_to, may_seal) {
            (Some(_), false) => {
                let reason = "needs a key for seals: also set PERDIEM_SEAL_KEY_FILE";
                Err(WrongSetting::new("PERDIEM_SEAL_TO", reason))
            }
            _ => Ok(()),
        }
    }

    /// Checks that an instance that only reads has no setting for what it does not do.
    ///
    /// # Errors
    /// It has one, or its ledger has no standby.
    pub fn check_read_only(&self) -> Result<(), WrongSetting> {
        let is_on_postgres = self.database.url().starts_with("postgres");
        let has_redis = self.redis_url.is_some() || self.redis_url_file.is_some();
        let (setting, reason) = match (is_on_postgres, has_redis, &self.seal_to) {
            _ if !self.read_only => return Ok(()),
            (true, false, None) if self.record_reads => (
                "PERDIEM_RECORD_READS",
                "cannot be used with PERDIEM_READ_ONLY: an instance that only reads records nothing",
            ),
            (true, false, None) => return Ok(()),
            (false, _, _) => (
                "PERDIEM_READ_ONLY",
                "needs a ledger on PostgreSQL: write DATABASE_URL=postgres://user@host/database",
            ),
            (true, true, _) => (
                "REDIS_URL",
                "cannot be used with PERDIEM_READ_ONLY: an instance that only reads uses no Redis",
            ),
            (true, false, Some(_)) => (
                "PERDIEM_SEAL_TO",
                "cannot be used with PERDIEM_READ_ONLY: an instance that only reads seals nothing",
            ),
        };
        Err(WrongSetting::new(setting, reason))
    }

    /// The options of the engine, with the machine's clock, or the clock of a sandbox.
    pub fn engine_options(&self, seal_key: Option<Arc<SealKey>>) -> EngineOptions {
        let tolerance = TimeDelta::seconds(self.clock_tolerance_seconds.into());
        let reconcile_every = Duration::from_secs(self.reconcile_every_seconds.into());
        let either = |file: &Option<String>, given: &Option<String>| file.clone().or(given.clone());
        EngineOptions {
            database_url: self.database.url().to_owned(),
            read_only: self.read_only,
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
            record_lapses_after: Some(RECORD_LAPSES_AFTER),
            seal_key,
            make_seal_key: None,
            seal_to: self.seal_to.clone(),
            record_reads: self.record_reads,
            policy_metrics: self.policy_metrics,
            four_eyes: self.four_eyes.clone().unwrap_or_default(),
            clock: self.clock(),
        }
    }

    fn clock(&self) -> Clock {
        if !self.sandbox {
            return Clock::system();
        }
        let begins_at = self.sandbox_begins_at;
        Clock::Sandbox(begins_at.map_or_else(SandboxClock::start, SandboxClock::starting_at))
    }

    /// What the console is like; `None` without a console.
    fn console_settings(&self, has_accounts: bool) -> Option<ConsoleSettings> {
        (self.console != ConsoleSetting::Off).then(|| ConsoleSettings {
            environment: self.console_name.clone(),
            is_read_only: self.console == ConsoleSetting::ReadOnly,
            has_accounts,
        })
    }

    /// The files of TLS; `None` without TLS.
    fn tls_files(&self) -> Result<Option<TlsFiles>, WrongSetting> {
        match (&self.tls_certificate_file, &self.tls_key_file) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            (Some(_), None) => {
                let reason = "is missing: name the private key of the certificate";
                Err(WrongSetting::new("PERDIEM_TLS_KEY_FILE", reason))
            }
            (None, Some(_)) => {
                let reason = "is missing: name the certificate of the private key";
                Err(WrongSetting::new("PERDIEM_TLS_CERTIFICATE_FILE", reason))
            }
        }
    }

    /// The options of the server. The first key goes to a file in the folder, if there is one.
    ///
    /// # Errors
    /// [`WrongSetting`].
    pub fn serve_options(
        &self,
        first_key_folder: Option<PathBuf>,
    ) -> Result<ServeOptions, WrongSetting> {
        let sign_on = self.sign_on.settings()?;
        Ok(ServeOptions {
            first_key_folder,
            bind: self.bind.clone(),
            gate: self.gate.options()?,
            tls: self.tls_files()?,
            console: self.console_settings(sign_on.is_some()),
            sign_on,
            drain_time: Duration::from_secs(self.drain_seconds.into()),
            request_time: Duration::from_secs(self.request_seconds),
            idle_time: Duration::from_secs(self.idle_seconds),
            stall_time: Duration::from_secs(self.stall_seconds),
            open_metrics: self.open_metrics,
        })
    }
}
