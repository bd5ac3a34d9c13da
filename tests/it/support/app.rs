//! Running applications, and requests to them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use perdiem::counter::RedisAccess;
use perdiem::domain::four_eyes::FourEyes;
use perdiem::engine::EngineOptions;
use perdiem::host::clock::{Clock, ManualClock};
use perdiem::http::{Application, ConsoleSettings, ServeError, ServeOptions};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::migrated;
use super::operations::is_said;
use super::servers;
pub use super::waiting::eventually;
use crate::judge::Stores;

/// The key that every test application accepts.
pub const KEY: &str = "the-admin-key-of-the-tests";

/// The time of tests that stop the clock: 11:04 in Shanghai.
pub const NOON: &str = "2026-11-21T03:04:05.678901Z";

/// The stores of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    Sqlite,
    Postgres,
    RedisAndSqlite,
    RedisAndPostgres,
}

/// Turns a scenario (`async fn name(stack: Stack)`) into one test for each of the given stacks.
macro_rules! tests_on {
    ($scenario:ident: $($test:ident $stack:ident),*) => {
        mod $scenario {
            use crate::support::app::Stack;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$scenario(Stack::$stack).await;
                }
            )*
        }
    };
}
pub(crate) use tests_on;

/// Turns each scenario into one test for each stack.
macro_rules! on_every_stack {
    ($($scenario:ident),* $(,)?) => {
        $(
            $crate::support::app::tests_on!($scenario: sqlite Sqlite, postgres Postgres,
                redis_and_sqlite RedisAndSqlite, redis_and_postgres RedisAndPostgres);
        )*
    };
}
pub(crate) use on_every_stack;

/// Turns each scenario into tests on each store alone and on Redis with PostgreSQL. These are all
/// the code paths of a claim, if the path through Redis does not depend on the store behind it.
macro_rules! on_every_way {
    ($($scenario:ident),* $(,)?) => {
        $(
            $crate::support::app::tests_on!($scenario: sqlite Sqlite, postgres Postgres,
                redis_and_postgres RedisAndPostgres);
        )*
    };
}
pub(crate) use on_every_way;

/// Turns each scenario about counters into one test for each store with Redis.
macro_rules! on_every_store_with_redis {
    ($($scenario:ident),* $(,)?) => {
        $(
            $crate::support::app::tests_on!($scenario:
                redis_and_sqlite RedisAndSqlite, redis_and_postgres RedisAndPostgres);
        )*
    };
}
pub(crate) use on_every_store_with_redis;

/// A new ledger, optionally with counters, that several applications can share. Its folder is
/// removed when it is dropped.
#[derive(Clone)]
pub struct Ground {
    pub database_url: String,
    pub redis_url: Option<String>,
    _folder: Arc<TempDir>,
}

impl Ground {
    /// A ledger whose migrations have run.
    pub fn new(stack: Stack) -> Self {
        Self::with(stack, migrated::in_sqlite, migrated::in_postgres)
    }

    /// A database in which no migration has run.
    pub fn empty(stack: Stack) -> Self {
        let postgres = || servers::postgres().create_database();
        Self::with(stack, |_file| {}, postgres)
    }

    fn with(
        stack: Stack,
        make_file: impl FnOnce(&Path),
        make_database: impl FnOnce() -> String,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let database_url = match stack {
            Stack::Sqlite | Stack::RedisAndSqlite => {
                let file = folder.path().join("perdiem.db");
                make_file(&file);
                format!("sqlite:{}", file.display())
            }
            Stack::Postgres | Stack::RedisAndPostgres => make_database(),
        };
        let redis_url = match stack {
            Stack::Sqlite | Stack::Postgres => None,
            Stack::RedisAndSqlite | Stack::RedisAndPostgres => Some(servers::redis().url()),
        };
        Self {
            database_url,
            redis_url,
            _folder: Arc::new(folder),
        }
    }

    /// A ledger in a database, without counters.
    pub fn of_database(database_url: String) -> Self {
        Self {
            database_url,
            redis_url: None,
            _folder: Arc::new(tempfile::tempdir().expect("a temporary folder")),
        }
    }

    /// The content of the stores.
    pub async fn stores(&self) -> Stores {
        let stores = Stores::read(&self.database_url, self.redis_url.as_slice()).await;
        stores.expect("the stores can be read")
    }

    fn is_sqlite(&self) -> bool {
        self.database_url.starts_with("sqlite:")
    }

    /// Runs SQL that the store understands.
    pub async fn sql(&self, text: &str) {
        macro_rules! run {
            ($connection:ty) => {{
                let connection = <$connection>::connect(&self.database_url).await;
                let mut connection = connection.expect("a connection");
                let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection);
                let done = done.await;
                done.unwrap_or_else(|error| panic!("{text}: {error}"));
                connection.close().await.expect("the connection's end");
            }};
        }
        if self.is_sqlite() {
            run!(SqliteConnection)
        } else {
            run!(PgConnection)
        }
    }

    /// An id as an SQL literal.
    pub fn literal(&self, id: Uuid) -> String {
        if self.is_sqlite() {
            format!("x'{}'", id.simple())
        } else {
            format!("'{id}'::uuid")
        }
    }

    /// Permits changes of entries, as a person with the database can.
    pub async fn open_the_ledger(&self) {
        let triggers = if self.is_sqlite() {
            "DROP TRIGGER entries_are_append_only_update;
                 DROP TRIGGER entries_are_append_only_delete"
        } else {
            "DROP TRIGGER entries_are_append_only ON entries;
                 DROP TRIGGER entries_can_be_dropped ON entries;
                 DROP TRIGGER entries_can_be_erased ON entries"
        };
        self.sql(triggers).await;
    }

    /// Permits changes of figures and denials, as a person with the database can.
    pub async fn open_the_figures(&self) {
        let triggers = if self.is_sqlite() {
            "DROP TRIGGER day_figures_grow_insert; DROP TRIGGER day_figures_grow_update;
                 DROP TRIGGER day_figures_are_kept; DROP TRIGGER denied_claims_grow_update"
        } else {
            "DROP TRIGGER day_figures_only_grow ON day_figures;
                 DROP TRIGGER day_figures_begin_on_open_days ON day_figures;
                 DROP TRIGGER day_figures_grow_on_open_days ON day_figures;
                 DROP TRIGGER day_figures_are_kept ON day_figures;
                 DROP TRIGGER denied_claims_grow ON denied_claims"
        };
        self.sql(triggers).await;
    }

    /// The figures go, and are made again.
    pub async fn make_figures_again(&self) {
        self.sql("UPDATE day_figures_mark SET position = 0").await;
    }

    /// The options of an engine on this ground, with the machine's clock and the defaults.
    pub fn options(&self) -> EngineOptions {
        EngineOptions {
            database_url: self.database_url.clone(),
            read_only: false,
            redis_url: self.redis_url.clone(),
            redis_access: RedisAccess::default(),
            admin_key: Some(KEY.to_owned()),
            claim_deadline: Duration::from_secs(30),
            answer_time: Duration::from_secs(30),
            redis_timeout: Duration::from_secs(10),
            claims_most: 10_000,
            clock_tolerance: None,
            reconcile_every: None,
            record_lapses_after: None,
            seal_key: None,
            make_seal_key: None,
            seal_to: None,
            record_reads: false,
            policy_metrics: 0,
            four_eyes: FourEyes::default(),
            clock: Clock::system(),
        }
    }
}

/// A running application, with its own thread and runtime. It stops when it is dropped.
pub struct App {
    pub url: String,
    /// Where proxies find the gate, if there is one.
    pub gate_url: Option<String>,
    /// The address of the rate limit service, if there is one.
    pub rate_limits: Option<SocketAddr>,
    client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _ground: Ground,
}

impl App {
    /// An application on its own ground.
    pub async fn on(stack: Stack) -> Self {
        Self::start(&Ground::new(stack)).await
    }

    /// An application on its own ground, whose clock stands at [`NOON`].
    pub async fn with_clock(stack: Stack) -> (Self, ManualClock) {
        let clock = ManualClock::at(instant(NOON));
        let app = Self::start_at(&Ground::new(stack), &clock).await;
        (app, clock)
    }

    /// Starts an application with a clock on a ground.
    pub async fn start_at(ground: &Ground, clock: &ManualClock) -> Self {
        Self::start_with(ground, |options| {
            options.clock = Clock::Manual(clock.clone())
        })
        .await
    }

    /// Starts an application on a ground. Several applications can share a ground.
    pub async fn start(ground: &Ground) -> Self {
        Self::start_with(ground, |_| {}).await
    }

    /// An application with some options changed.
    pub async fn start_with(ground: &Ground, change: impl FnOnce(&mut EngineOptions)) -> Self {
        let app = Self::try_start(ground, change).await;
        app.expect("the application starts")
    }

    pub async fn try_start(
        ground: &Ground,
        change: impl FnOnce(&mut EngineOptions),
    ) -> Result<Self, ServeError> {
        Self::try_serve(ground, serve_options(), change).await
    }

    /// An application with other serve options.
    pub async fn try_serve(
        ground: &Ground,
        serve: ServeOptions,
        change: impl FnOnce(&mut EngineOptions),
    ) -> Result<Self, ServeError> {
        let mut options = ground.options();
        change(&mut options);
        let (stop, stopped) = oneshot::channel();
        let (started, starts) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                match Application::build(serve, options).await {
                    Err(error) => drop(started.send(Err(error))),
                    Ok(application) => {
                        let urls = (
                            application.url(),
                            application.gate_url(),
                            application.rate_limits(),
                        );
                        drop(started.send(Ok(urls)));
                        let stop = Box::pin(async { drop(stopped.await) });
                        application.run(stop).await.expect("the application runs");
                    }
                }
            });
        });
        let urls = starts.await.expect("the application's thread lives");
        let (url, gate_url, rate_limits) = urls?;
        Ok(Self {
            url,
            gate_url,
            rate_limits,
            client: client(),
            stop: Some(stop),
            thread: Some(thread),
            _ground: ground.clone(),
        })
    }

    /// A request with the admin key.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare_request(method, path).bearer_auth(KEY)
    }

    /// A request without a key.
    pub fn bare_request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn put_policy(&self, name: &str, body: Value) -> Answer {
        Answer::of(
            self.request(Method::PUT, &format!("/v1/policies/{name}"))
                .json(&body),
        )
        .await
    }

    /// Puts a policy `benefit` with one limit per day.
    pub async fn benefit(&self, max: u64, time_zone: &str) -> Answer {
        let body = json!({
            "time_zone": time_zone,
            "limits": [{ "max": max, "per": "day" }],
            "reason": "a test",
        });
        let answer = self.put_policy("benefit", body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer
    }

    /// Puts an override of `benefit`. The subject must need no escapes in a URL.
    pub async fn put_override(&self, subject: &str, body: Value) -> Answer {
        let path = format!("/v1/policies/benefit/overrides/{subject}");
        Answer::of(self.request(Method::PUT, &path).json(&body)).await
    }

    /// Gives a subject another `max` per day under `benefit`.
    pub async fn override_day(&self, subject: &str, max: u64) {
        let limits = json!([{ "max": max, "per": "day" }]);
        let body = json!({ "limits": limits, "reason": "a test" });
        let answer = self.put_override(subject, body).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }

    pub async fn delete_override(&self, subject: &str) -> Answer {
        let path = format!("/v1/policies/benefit/overrides/{subject}?reason=a+test");
        Answer::of(self.request(Method::DELETE, &path)).await
    }

    /// Pauses `benefit`, or ends its pause.
    pub async fn pause(&self, paused: bool) -> Answer {
        let path = "/v1/policies/benefit/pause";
        let request = if paused {
            self.request(Method::PUT, path)
                .json(&json!({ "reason": "a test" }))
        } else {
            self.request(Method::DELETE, &format!("{path}?reason=a+test"))
        };
        Answer::of(request).await
    }

    /// Blocks a subject under `benefit`.
    pub async fn block(&self, subject: &str) -> Answer {
        let path = format!("/v1/policies/benefit/blocks/{subject}");
        let body = json!({ "reason": "a test" });
        Answer::of(self.request(Method::PUT, &path).json(&body)).await
    }

    /// Removes a subject's block under `benefit`.
    pub async fn remove_block(&self, subject: &str) -> Answer {
        let path = format!("/v1/policies/benefit/blocks/{subject}?reason=a+test");
        Answer::of(self.request(Method::DELETE, &path)).await
    }

    /// Gives a policy with a limit per day the tier `gold`.
    pub async fn tiers(&self, policy: &str) {
        let tiers = json!([{ "name": "gold", "limits": [{ "max": 9, "per": "day" }] }]);
        let path = format!("/v1/policies/{policy}");
        let body = json!({ "tiers": tiers, "reason": "a test" });
        let answer = Answer::of(self.request(Method::PATCH, &path).json(&body)).await;
        answer.is(200);
    }

    /// Puts a subject into a tier of `benefit`.
    pub async fn put_tier(
        &self,
        subject: &str,
        tier: &str,
        until: Option<chrono::DateTime<chrono::Utc>>,
    ) -> Answer {
        let path = format!("/v1/policies/benefit/tiers/{subject}");
        let body = json!({ "tier": tier, "until": until, "reason": "a test" });
        Answer::of(self.request(Method::PUT, &path).json(&body)).await
    }

    /// Takes a subject out of its tier of `benefit`.
    pub async fn end_tier(&self, subject: &str) -> Answer {
        let path = format!("/v1/policies/benefit/tiers/{subject}?reason=a+test");
        Answer::of(self.request(Method::DELETE, &path)).await
    }

    /// Claims one unit under `benefit`.
    pub async fn claim(&self, subject: &str, key: Option<&str>) -> Answer {
        self.claim_body(json!({ "subject": subject }), key).await
    }

    /// Claims under `benefit`, with the whole body.
    pub async fn claim_body(&self, body: Value, key: Option<&str>) -> Answer {
        self.claim_under("benefit", body, key).await
    }

    /// Claims one unit under `benefit` with a key, until there is a decision. A deadline of
    /// milliseconds can end a claim undecided when the machine is busy.
    pub async fn decided(&self, subject: &str, key: &str) -> Answer {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.claim(subject, Some(key)).await;
            // The earlier claim with this key may still be in progress.
            let is_open = [503, 409].contains(&answer.status.as_u16());
            if !is_open {
                return answer;
            }
            assert!(Instant::now() < deadline, "{answer:?}");
        }
    }

    pub async fn claim_under(&self, policy: &str, body: Value, key: Option<&str>) -> Answer {
        let path = format!("/v1/policies/{policy}/claims");
        let mut request = self.request(Method::POST, &path).json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        Answer::of(request).await
    }

    pub async fn reverse(&self, grant: &str, reason: &str) -> Answer {
        let path = format!("/v1/grants/{grant}/reversal");
        let body = json!({ "reason": reason });
        Answer::of(self.request(Method::POST, &path).json(&body)).await
    }

    /// Reverses some units of a grant.
    pub async fn reverse_units(&self, grant: &str, units: u64, reason: &str, key: &str) -> Answer {
        let path = format!("/v1/grants/{grant}/reversal");
        let body = json!({ "reason": reason, "units": units });
        let request = self.request(Method::POST, &path).json(&body);
        Answer::of(request.header("Idempotency-Key", key)).await
    }

    pub async fn confirm(&self, grant: &str) -> Answer {
        self.confirm_units(grant, None).await
    }

    /// Confirms some units of a hold, or all.
    pub async fn confirm_units(&self, grant: &str, units: Option<u64>) -> Answer {
        let path = format!("/v1/grants/{grant}/confirmation");
        let request = self.request(Method::POST, &path);
        Answer::of(match units {
            Some(units) => request.json(&json!({ "units": units })),
            None => request,
        })
        .await
    }

    /// Makes an adjustment under `benefit`.
    pub async fn adjust(&self, subject: &str, body: Value, key: Option<&str>) -> Answer {
        let path = format!("/v1/policies/benefit/subjects/{subject}/adjustments");
        let mut request = self.request(Method::POST, &path).json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        Answer::of(request).await
    }

    /// Resets a limit of a subject, or all.
    pub async fn reset(&self, subject: &str, per: Option<&str>, key: Option<&str>) -> Answer {
        let path = format!("/v1/policies/benefit/subjects/{subject}/resets");
        let body = json!({ "per": per, "reason": "a reset" });
        let mut request = self.request(Method::POST, &path).json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        Answer::of(request).await
    }
}

/// Serve options with a free port and short waits.
pub fn serve_options() -> ServeOptions {
    ServeOptions {
        bind: "127.0.0.1:0".to_owned(),
        tls: None,
        sign_on: None,
        gate: None,
        drain_time: Duration::from_secs(10),
        request_time: Duration::from_secs(30),
        idle_time: Duration::from_secs(60),
        stall_time: Duration::from_secs(30),
        open_metrics: false,
        console: Some(ConsoleSettings::default()),
        first_key_folder: None,
    }
}

/// A client with its own connections.
pub fn client() -> reqwest::Client {
    client_builder().build().expect("a client")
}

/// As [`client`], with more settings. No client reads the certificates of the system: that would
/// take longer than many a test, and no test uses TLS here.
pub fn client_builder() -> reqwest::ClientBuilder {
    // Another test may have set it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([])
}

impl Drop for App {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the application ends well");
            }
        }
    }
}

/// An answer with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        let (client, request) = request.build_split();
        let request = request.expect("a request");
        let method = request.method().clone();
        let path = request.url().path().to_owned();
        let response = client.execute(request).await.expect("an answer");
        is_said(&method, &path, response.status().as_u16());
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            text: response.text().await.expect("a whole answer"),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("JSON: {self:?}"))
    }

    /// The id of the grant in the answer.
    pub fn grant_id(&self) -> String {
        let grant = self.json()["grant"]["id"].as_str().map(str::to_owned);
        grant.unwrap_or_else(|| panic!("a grant: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a text"))
    }
}

/// Parses an instant.
pub fn instant(text: &str) -> chrono::DateTime<chrono::Utc> {
    text.parse().expect("an instant")
}
