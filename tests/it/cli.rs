//! The binary, as somebody at a terminal or a supervisor meets it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::support::app::{Answer, App, KEY, Stack, client, eventually};
use crate::support::servers::{self, Postgres, Redis, free_port};

const DEADLINE: Duration = Duration::from_secs(60);
/// What must not be shown, in the URLs and keys of these tests.
const SECRET: &str = "hunter2-is-secret";

/// A process of the binary. It is killed when this is dropped.
pub struct Process {
    child: Child,
    output: Arc<Mutex<Output>>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default, Clone)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts the binary in a folder, with no settings but these.
    pub fn start(folder: &Path, args: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
        for (name, _) in std::env::vars() {
            let is_setting = ["PERDIEM_", "DATABASE_URL", "REDIS_"]
                .iter()
                .any(|beginning| name.starts_with(beginning));
            if is_setting || name.contains("_proxy") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(args)
            .envs(settings.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = Arc::new(Mutex::new(Output::default()));
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        let readers = vec![
            read_to(stdout, output.clone(), |output| &mut output.stdout),
            read_to(stderr, output.clone(), |output| &mut output.stderr),
        ];
        Self {
            child,
            output,
            readers,
        }
    }

    /// A server on a free port, and its URL once it listens.
    pub fn serve(folder: &Path, settings: &[(&str, &str)]) -> (Self, String) {
        let process = Self::start(folder, &["serve", "--bind", "127.0.0.1:0"], settings);
        let line = process.wait_for(|output| {
            let lines = output.stdout.lines();
            lines
                .map(str::to_owned)
                .find(|line| line.starts_with("perdiem listens on "))
        });
        let url = line.split(' ').find(|word| word.starts_with("http://"));
        (process, url.expect("a URL").to_owned())
    }

    pub fn output(&self) -> Output {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until something can be found in its output.
    #[track_caller]
    pub fn wait_for<T>(&self, find: impl Fn(&Output) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let output = self.output();
            if let Some(found) = find(&output) {
                return found;
            }
            assert!(Instant::now() < deadline, "not in time: {output:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end, as a supervisor does.
    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &pid])
            .status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(mut self) -> Ended {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on: {:?}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        };
        for reader in self.readers.drain(..) {
            reader.join().expect("the pipe is read");
        }
        let Output { stdout, stderr } = self.output();
        Ended {
            status,
            stdout,
            stderr,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_to(
    pipe: impl Read + Send + 'static,
    output: Arc<Mutex<Output>>,
    part: fn(&mut Output) -> &mut String,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            part(&mut output).push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

pub fn run(args: &[&str], settings: &[(&str, &str)]) -> Ended {
    let folder = folder();
    Process::start(folder.path(), args, settings).ended()
}

/// The one line that a command says before it fails.
#[track_caller]
pub fn fault(args: &[&str], settings: &[(&str, &str)]) -> String {
    let ended = run(args, settings);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(ended.stdout, "", "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let [line] = lines.as_slice() else {
        panic!("one line is wanted: {}", ended.stderr);
    };
    assert!(line.starts_with("perdiem: "), "{line}");
    assert!(!line.contains(SECRET), "{line}");
    // Nothing is said twice.
    let mut parts: Vec<&str> = line.split([':', ';']).map(str::trim).collect();
    let count = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), count, "{line}");
    (*line).to_owned()
}

/// What a server says that cannot start with these settings.
#[track_caller]
pub fn start_fault(settings: &[(&str, &str)], words: &[&str]) {
    let mut all = vec![("PERDIEM_BIND", "127.0.0.1:0"), ("PERDIEM_ADMIN_KEY", KEY)];
    all.extend_from_slice(settings);
    let line = fault(&["serve"], &all);
    for word in words {
        assert!(line.contains(word), "{word}: {line}");
    }
}

pub fn sqlite_url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

async fn sqlite(path: &Path, sql: &str) {
    let url = format!("{}?mode=rwc", sqlite_url(path));
    let mut connection = SqliteConnection::connect(&url).await.expect("a connection");
    let done = sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await;
    done.expect("it is done");
    connection.close().await.expect("the end of the connection");
}

pub fn migrate(url: &str) {
    let ended = run(&["migrate"], &[("DATABASE_URL", url)]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

/// As a later perdiem's migration leaves it.
const LATER: &str = "INSERT INTO _sqlx_migrations
    (version, description, success, checksum, execution_time)
    SELECT 9999, 'later', true, checksum, 1 FROM _sqlx_migrations WHERE version = 1";

#[test]
fn a_sqlite_file_that_cannot_be_read_is_told() {
    let folder = folder();
    let missing = sqlite_url(&folder.path().join("no/such/folder/perdiem.db"));
    start_fault(
        &[("DATABASE_URL", &missing)],
        &["no/such/folder", "DATABASE_URL", "exists"],
    );
    let is_folder = sqlite_url(folder.path());
    start_fault(
        &[("DATABASE_URL", &is_folder)],
        &["it is a folder", "DATABASE_URL"],
    );
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear Sir or Madam, ".repeat(100)).expect("a file");
    let letter = sqlite_url(&path);
    start_fault(
        &[("DATABASE_URL", &letter)],
        &["letter.txt", "not a database", "DATABASE_URL"],
    );
    let unchanged = std::fs::read_to_string(&path).expect("a file");
    assert!(unchanged.starts_with("Dear Sir"));
}

#[test]
fn a_sqlite_file_that_cannot_be_written_is_told() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    let read_only = format!("{}?mode=ro", sqlite_url(&path));
    start_fault(
        &[("DATABASE_URL", &read_only)],
        &["perdiem.db", "DATABASE_URL"],
    );
    migrate(&sqlite_url(&path));
    start_fault(
        &[("DATABASE_URL", &read_only)],
        &["perdiem.db", "DATABASE_URL"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_database_of_others_is_told_and_left_alone() {
    let folder = folder();
    for (name, sql) in [
        ("shop.db", "CREATE TABLE orders (id INTEGER)"),
        ("view.db", "CREATE VIEW orders AS SELECT 1"),
        (
            "sqlx.db",
            "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT,
                 installed_on TIMESTAMP, success BOOLEAN, checksum BLOB, execution_time BIGINT);
             INSERT INTO _sqlx_migrations VALUES (1, 'orders', '', true, x'00', 1)",
        ),
    ] {
        let path = folder.path().join(name);
        sqlite(&path, sql).await;
        let url = sqlite_url(&path);
        start_fault(
            &[("DATABASE_URL", &url)],
            &[name, "not perdiem's", "DATABASE_URL"],
        );
        let line = fault(&["migrate"], &[("DATABASE_URL", &url)]);
        assert!(line.contains("not perdiem's"), "{line}");
        sqlite(&path, "CREATE TABLE entries (id INTEGER)").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_database_of_a_newer_perdiem_is_told() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    migrate(&sqlite_url(&path));
    sqlite(&path, LATER).await;
    let url = sqlite_url(&path);
    start_fault(
        &[("DATABASE_URL", &url)],
        &["perdiem.db", "9999", "newer perdiem"],
    );
}

#[test]
fn a_postgres_database_of_others_is_told() {
    let postgres = servers::postgres();
    let with_secret = |url: &str| url.replace("postgres@", &format!("postgres:{SECRET}@"));
    let name = |url: &str| url.rsplit('/').next().expect("a name").to_owned();
    for sql in [
        "CREATE TABLE orders (id integer)",
        "CREATE VIEW orders AS SELECT 1",
        "CREATE TABLE _sqlx_migrations (version bigint, checksum bytea);
         INSERT INTO _sqlx_migrations VALUES (1, '\\x00')",
    ] {
        let url = postgres.create_database();
        postgres.execute(&name(&url), sql);
        let words = [&name(&url), "not perdiem's", "DATABASE_URL"];
        start_fault(&[("DATABASE_URL", &with_secret(&url))], &words);
    }
    let url = postgres.create_database();
    migrate(&url);
    postgres.execute(&name(&url), LATER);
    let words = [&name(&url), "9999", "newer perdiem"];
    start_fault(&[("DATABASE_URL", &with_secret(&url))], &words);
    let ascii = "in_sql_ascii";
    let sql = format!("CREATE DATABASE {ascii} ENCODING 'SQL_ASCII' TEMPLATE template0");
    postgres.execute("postgres", &sql);
    let url = with_secret(&postgres.url(ascii));
    start_fault(&[("DATABASE_URL", &url)], &[ascii, "SQL_ASCII", "UTF8"]);
    let url = with_secret(&postgres.url("no_such_database"));
    start_fault(
        &[("DATABASE_URL", &url)],
        &["no_such_database", "does not exist"],
    );
}

#[test]
fn a_postgres_that_does_not_run_is_told() {
    let url = format!("postgres://perdiem:{SECRET}@127.0.0.1:{}/shop", free_port());
    let words = ["127.0.0.1", "/shop", "refused", "see that PostgreSQL runs"];
    start_fault(&[("DATABASE_URL", &url)], &words);
}

#[test]
fn a_database_url_that_says_nothing_is_told() {
    for url in [
        "mysql://perdiem:hunter2-is-secret@db/perdiem",
        "perdiem.db",
        "",
        "hunter2",
    ] {
        start_fault(
            &[("DATABASE_URL", url)],
            &["DATABASE_URL", "sqlite:perdiem.db", "postgres://"],
        );
    }
    let bad_port = format!("postgres://perdiem:{SECRET}@db:port/perdiem");
    start_fault(&[("DATABASE_URL", &bad_port)], &["DATABASE_URL"]);
    for url in [
        "sqlite:",
        "sqlite://",
        "sqlite:?mode=rwc",
        "sqlite::memory:",
        "sqlite://:memory:",
        "sqlite:file:a?mode=memory&cache=shared",
    ] {
        start_fault(&[("DATABASE_URL", url)], &["needs a file", "DATABASE_URL"]);
    }
}

#[test]
fn a_redis_that_may_evict_is_told() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let redis = Redis::start_with(&["--maxmemory-policy", policy, "--requirepass", SECRET]);
        let url = format!("redis://:{SECRET}@127.0.0.1:{}", redis.port());
        let port = redis.port().to_string();
        let words = [policy, &port, "noeviction", "REDIS_URL"];
        start_fault(&[("REDIS_URL", &url)], &words);
    }
}

#[test]
fn a_redis_url_that_says_nothing_is_told() {
    for url in [
        format!("redis://:{SECRET}@redis:port"),
        format!("http://:{SECRET}@redis:6379"),
        "redis".to_owned(),
        String::new(),
    ] {
        start_fault(&[("REDIS_URL", &url)], &["REDIS_URL", "redis://"]);
    }
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    // Before anything is done to the ledger, or found wrong with it.
    start_fault(
        &[("PERDIEM_BIND", &address), ("DATABASE_URL", "nonsense")],
        &[&address, "in use", "PERDIEM_BIND"],
    );
    start_fault(&[("PERDIEM_BIND", "nowhere")], &["nowhere", "PERDIEM_BIND"]);
}

#[test]
fn a_weak_key_is_told() {
    for key in ["", "hunter2"] {
        start_fault(
            &[("PERDIEM_ADMIN_KEY", key)],
            &["PERDIEM_ADMIN_KEY", "16 characters"],
        );
    }
    let line = fault(
        &["serve"],
        &[
            ("PERDIEM_BIND", "127.0.0.1:0"),
            ("PERDIEM_ADMIN_KEY", "hunter2-is-weak"),
        ],
    );
    assert!(!line.contains("hunter2"), "{line}");
}

#[test]
fn a_key_that_no_header_carries_is_told() {
    for key in [
        "hunter2-is-secret indeed",
        "hunter2-is-secret\tindeed",
        "hunter2-is-secret\nindeed",
        "hunter2-is-sécret-indeed",
    ] {
        start_fault(
            &[("PERDIEM_ADMIN_KEY", key)],
            &["PERDIEM_ADMIN_KEY", "blank", "openssl rand -hex 24"],
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blanks_around_the_admin_key_are_none_of_it() {
    let folder = folder();
    let key = format!("  {KEY}\r\n");
    let (server, url) = Process::serve(folder.path(), &[("PERDIEM_ADMIN_KEY", &key)]);
    let list = client().get(format!("{url}/v1/policies")).bearer_auth(KEY);
    assert_eq!(Answer::of(list).await.status, StatusCode::OK);
    drop(server);
}

#[test]
fn a_filter_of_logs_that_cannot_be_read_is_told() {
    start_fault(&[("PERDIEM_LOG", "perdiem=loud")], &["PERDIEM_LOG", "info"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_start_shows_a_key_once_and_a_line_that_works() {
    let folder = folder();
    let (first, url) = Process::serve(folder.path(), &[]);
    let curl = first.wait_for(|output| {
        let whole = output.stdout.ends_with('\n');
        let line = output
            .stdout
            .lines()
            .find(|line| line.trim().starts_with("curl "));
        line.filter(|_| whole).map(|line| line.trim().to_owned())
    });
    let stdout = first.output().stdout;
    let secret = stdout
        .split_whitespace()
        .find(|word| word.starts_with("perdiem_"))
        .expect("a key")
        .to_owned();
    // The secret is no word of a command: those stay in a shell's history.
    assert!(!curl.contains(&secret), "{curl}");
    let shown = stdout.matches(&secret).count();
    assert_eq!(shown, 1, "{stdout}");
    assert!(stdout.contains("read -rs PERDIEM_KEY"), "{stdout}");
    let pasted = Command::new("sh")
        .args(["-c", &format!("{curl} --silent --show-error")])
        .env("PERDIEM_KEY", &secret)
        .output();
    let pasted = pasted.expect("a shell");
    let answer: Value =
        serde_json::from_slice(&pasted.stdout).unwrap_or_else(|_| panic!("{curl}: {pasted:?}"));
    assert_eq!(answer["version"], 1, "{answer}");
    assert!(folder.path().join("perdiem.db").is_file());
    let get = async |url: &str, secret: &str| {
        let url = format!("{url}/v1/policies/benefit");
        Answer::of(client().get(url).bearer_auth(secret)).await
    };
    assert_eq!(get(&url, &secret).await.status, StatusCode::OK);
    first.terminate();
    let ended = first.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!ended.stderr.contains(&secret), "{ended:?}");
    let file = std::fs::read(folder.path().join("perdiem.db")).expect("the ledger");
    let text = String::from_utf8_lossy(&file);
    assert!(!text.contains(&secret), "only a hash of it is stored");

    let (second, url) = Process::serve(folder.path(), &[]);
    let answer = get(&url, &secret).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(get(&url, "perdiem_").await.status, StatusCode::UNAUTHORIZED);
    second.terminate();
    let ended = second.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    for shown in [&ended.stdout, &ended.stderr] {
        assert!(
            !shown.contains("admin key") && !shown.contains("perdiem_"),
            "{ended:?}"
        );
    }
    // With a key in the settings none is made.
    let other = tempfile::tempdir().expect("a temporary folder");
    let (third, url) = Process::serve(other.path(), &[("PERDIEM_ADMIN_KEY", KEY)]);
    assert_eq!(get(&url, KEY).await.status, StatusCode::NOT_FOUND);
    third.terminate();
    let ended = third.ended();
    assert!(
        !ended.stdout.contains("perdiem_") && !ended.stdout.contains(KEY),
        "{ended:?}"
    );
}

#[test]
fn migrate_makes_a_database_and_does_it_again() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    for (url, store) in [
        (sqlite_url(&path), "SQLite"),
        (servers::postgres().create_database(), "PostgreSQL"),
    ] {
        for _ in 0..2 {
            let ended = run(&["migrate"], &[("DATABASE_URL", &url)]);
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
            assert_eq!(
                ended.stdout,
                format!("the ledger on {store} is up to date\n")
            );
            assert_eq!(ended.stderr, "");
        }
    }
    assert!(path.is_file());
}

#[test]
fn openapi_prints_the_specification() {
    let ended = run(&["openapi"], &[]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(ended.stdout, perdiem::http::specification_yaml());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_call_a_server() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let settings = [("PERDIEM_URL", app.url.as_str()), ("PERDIEM_KEY", KEY)];
    let said = |args: &[&str], code: i32| -> String {
        let ended = run(args, &settings);
        assert_eq!(ended.status.code(), Some(code), "{args:?}: {ended:?}");
        assert!(!ended.stderr.contains(KEY), "{ended:?}");
        assert_eq!(ended.stderr, "", "{args:?}");
        ended.stdout
    };
    let json = |args: &[&str], code: i32| -> Value {
        let args = [args, &["--json"]].concat();
        serde_json::from_str(&said(&args, code)).expect("JSON")
    };
    let put = [
        "policy",
        "put",
        "benefit",
        "--limit",
        "3 per day",
        "--time-zone",
        "GMT+8",
    ];
    let line = said(&put, 0);
    for word in ["benefit", "version 1", "+08:00", "3 per day"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let more = [
        "--limit",
        "30 per month",
        "--reason",
        "campaign 7",
        "--if-version",
        "1",
    ];
    let policy = json(&[&put[..], &more].concat(), 0);
    assert_eq!(policy["version"], 2);
    assert_eq!(policy["limits"][1], json!({ "max": 30, "per": "month" }));
    assert_eq!(app.get("/v1/policies/benefit").await.json(), policy);
    assert_eq!(json(&["policy", "show", "benefit"], 0), policy);
    assert!(said(&["policy", "show", "benefit"], 0).contains("3 per day, 30 per month"));
    let listed = json(&["policy", "list"], 0);
    assert_eq!(
        (&listed[0]["name"], &listed[0]["version"]),
        (&policy["name"], &policy["version"])
    );
    assert_eq!(said(&["policy", "list"], 0).lines().count(), 1);

    // A subject like an option, and like a path.
    for subject in ["member-42", "a/b %2F?#"] {
        let claim = ["claim", "benefit", subject];
        let said_first = said(&claim, 0);
        assert!(said_first.starts_with("granted\n"), "{said_first}");
        assert!(said_first.contains("1 of 3 used, 2 left until 2026-11-22T00:00:00+08:00"));
        let rehearsal = said(
            &["claim", "benefit", subject, "--units", "3", "--dry-run"],
            3,
        );
        assert!(rehearsal.starts_with("denied"), "{rehearsal}");
        let keyed = [
            "--units",
            "2",
            "--idempotency-key",
            subject,
            "--metadata",
            r#"{"a":1}"#,
        ];
        let keyed = [&claim[..], &keyed].concat();
        let granted = json(&keyed, 0);
        assert_eq!(granted["grant"]["metadata"], json!({ "a": 1 }));
        assert_eq!(json(&keyed, 0), granted);
        let denied = said(&claim, 3);
        assert!(denied.starts_with("denied: "), "{denied}");
        assert!(
            denied.contains("has used 3 of 3 for today under benefit"),
            "{denied}"
        );
        assert!(
            denied.contains("the next window begins at 2026-11-22T00:00:00+08:00"),
            "{denied}"
        );
        assert!(!denied.contains("Z"), "{denied}");
        let denied = json(&claim, 3);
        assert_eq!(denied["outcome"], "denied");
        assert_eq!(denied["limits"][0]["resets_at"], "2026-11-21T16:00:00Z");
        let usage = json(&["usage", "benefit", subject], 0);
        assert_eq!(
            (&usage["subject"], &usage["limits"][0]["used"]),
            (&json!(subject), &json!(3))
        );
        let usage = said(&["usage", "benefit", subject], 0);
        assert!(
            usage.contains("3 of 3 used, 0 left until 2026-11-22T00:00:00+08:00"),
            "{usage}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_say_what_is_wrong() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let settings = [("PERDIEM_URL", app.url.as_str()), ("PERDIEM_KEY", KEY)];
    let put = [
        "policy",
        "put",
        "benefit",
        "--limit",
        "3 per day",
        "--time-zone",
        "Asia/Shangai",
    ];
    for (args, words) in [
        (&["claim", "nothing", "member-42"][..], "no policy nothing"),
        (
            &["claim", "benefit", "member-42", "--units", "0"],
            "#/units: ",
        ),
        (
            &["claim", "benefit", "member-42", "--units", "4"],
            "max per day is 3",
        ),
        (
            &["claim", "benefit", "member-42", "--metadata", "{"],
            "--metadata is not JSON",
        ),
        (&["claim", "benefit", ""], "#/subject: "),
        (&["usage", "nothing", "member-42"], "no policy nothing"),
        (&["policy", "show", "nothing"], "no policy nothing"),
        (&put, "Asia/Shanghai"),
    ] {
        let line = fault(args, &settings);
        assert!(line.contains(words), "{args:?}: {line}");
    }
    let wrong_key = [("PERDIEM_URL", app.url.as_str()), ("PERDIEM_KEY", SECRET)];
    assert!(fault(&["policy", "list"], &wrong_key).contains("valid key"));
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let nowhere = [("PERDIEM_URL", nowhere.as_str()), ("PERDIEM_KEY", SECRET)];
    assert!(fault(&["policy", "list"], &nowhere).contains("PERDIEM_URL"));
    // Not perdiem's own answer.
    let elsewhere = format!("{}/livez#", app.url);
    let elsewhere = [("PERDIEM_URL", elsewhere.as_str()), ("PERDIEM_KEY", SECRET)];
    assert!(fault(&["policy", "list"], &elsewhere).contains("PERDIEM_URL"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_flight_is_finished_after_sigterm() {
    let postgres = servers::postgres();
    let database = postgres.create_database();
    let folder = folder();
    let settings = [
        ("DATABASE_URL", database.as_str()),
        ("PERDIEM_ADMIN_KEY", KEY),
        ("PERDIEM_CLAIM_DEADLINE_MS", "60000"),
        ("PERDIEM_DRAIN_SECONDS", "60"),
    ];
    let (server, url) = Process::serve(folder.path(), &settings);
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    let policy = client()
        .put(format!("{url}/v1/policies/benefit"))
        .bearer_auth(KEY);
    assert_eq!(
        Answer::of(policy.json(&rule)).await.status,
        StatusCode::CREATED
    );

    let mut held = PgConnection::connect(&database)
        .await
        .expect("a connection");
    for sql in ["BEGIN", "LOCK TABLE entries IN EXCLUSIVE MODE"] {
        sqlx::query(sql).execute(&mut held).await.expect("the lock");
    }
    let claim = client()
        .post(format!("{url}/v1/policies/benefit/claims"))
        .bearer_auth(KEY);
    let claim = Answer::of(claim.json(&json!({ "subject": "member-42" })));
    let claim = tokio::spawn(claim);
    let name = database.rsplit('/').next().expect("a name").to_owned();
    eventually("the claim waits for the lock", async || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted
                       AND relation = 'entries'::regclass";
        postgres.execute(&name, waiting) != "0"
    })
    .await;
    server.terminate();
    server.wait_for(|output| {
        output
            .stderr
            .contains("finishing what is in flight")
            .then_some(())
    });
    sqlx::query("ROLLBACK")
        .execute(&mut held)
        .await
        .expect("the end of the lock");
    let answer = claim.await.expect("an answer");
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(postgres.execute(&name, "SELECT count(*) FROM entries"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_json_with_request_ids_and_without_secrets() {
    const SUBJECT: &str = "jane.roe@example.org";
    const ORDER: &str = "order-of-jane-roe";
    let mut postgres = Postgres::start();
    let database = postgres
        .create_database()
        .replace("postgres@", &format!("postgres:{SECRET}@"));
    let folder = folder();
    let settings = [
        ("DATABASE_URL", database.as_str()),
        ("PERDIEM_ADMIN_KEY", KEY),
        ("PERDIEM_LOG", "info"),
        ("PERDIEM_LOG_FORMAT", "json"),
        ("PERDIEM_CLAIM_DEADLINE_MS", "300"),
        ("PERDIEM_DRAIN_SECONDS", "5"),
    ];
    let (server, url) = Process::serve(folder.path(), &settings);
    let send = async |method: reqwest::Method, path: &str, id: &str, body: Value| {
        let request = client()
            .request(method, format!("{url}{path}"))
            .bearer_auth(KEY);
        let request = request
            .header("X-Request-Id", id)
            .header("Idempotency-Key", ORDER);
        Answer::of(request.json(&body)).await.status.as_u16()
    };
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    let policy = "/v1/policies/benefit";
    let claims = "/v1/policies/benefit/claims";
    let usage = format!("{policy}/subjects/{SUBJECT}");
    let claim = json!({ "subject": SUBJECT, "metadata": { "name": SUBJECT } });
    let (get, put, post) = (
        reqwest::Method::GET,
        reqwest::Method::PUT,
        reqwest::Method::POST,
    );
    assert_eq!(send(put, policy, "id-1", rule).await, 201);
    for (method, path, body, status) in [
        (&post, claims, claim.clone(), 201),
        (&post, claims, claim.clone(), 200),
        (
            &post,
            claims,
            json!({ "subject": SUBJECT, "units": 2 }),
            422,
        ),
        (
            &post,
            claims,
            json!({ "subject": format!("{SUBJECT}\n") }),
            422,
        ),
        (&post, claims, json!({ SUBJECT: 1 }), 400),
        (&get, usage.as_str(), Value::Null, 200),
        (
            &get,
            &format!("{policy}/subjects/{SUBJECT}%0A"),
            Value::Null,
            422,
        ),
        (
            &get,
            &format!("/v1/grants?subject={SUBJECT}&state={SUBJECT}"),
            Value::Null,
            422,
        ),
        (&get, &format!("/v1/nothing/{SUBJECT}"), Value::Null, 404),
    ] {
        assert_eq!(
            send(method.clone(), path, "id-2", body).await,
            status,
            "{path}"
        );
    }
    let wrong = client().get(format!("{url}{usage}")).bearer_auth(SECRET);
    assert_eq!(Answer::of(wrong).await.status, StatusCode::UNAUTHORIZED);
    postgres.kill();
    assert_eq!(
        send(post.clone(), claims, "id-of-the-claim", claim.clone()).await,
        503
    );
    let batch = json!({ "claims": [{ "policy": "benefit", "subject": SUBJECT }] });
    assert_eq!(
        send(post, "/v1/claims", "id-of-the-batch", batch).await,
        200
    );
    assert_eq!(send(get, &usage, "id-of-the-usage", Value::Null).await, 503);
    server.wait_for(|output| output.stderr.contains("id-of-the-usage").then_some(()));
    server.terminate();
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let lines: Vec<Value> = ended
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    for id in ["id-of-the-claim", "id-of-the-usage"] {
        let mut of_request = lines.iter().filter(|line| line["span"]["request_id"] == id);
        let failed = of_request.find(|line| line["level"] == "ERROR");
        let failed = failed.unwrap_or_else(|| panic!("{id}: {}", ended.stderr));
        assert_eq!(failed["status"], 503, "{failed}");
        assert!(
            failed["path"]
                .as_str()
                .is_some_and(|path| path.contains("{policy}")),
            "{failed}"
        );
        assert!(
            failed["cause"]
                .as_str()
                .is_some_and(|cause| !cause.is_empty()),
            "{failed}"
        );
    }
    let of_batch = |line: &Value| line["span"]["request_id"] == "id-of-the-batch";
    let of_batch = lines.iter().find(|line| of_batch(line)).expect("a line");
    assert_eq!(of_batch["claims"], 1, "{of_batch}");
    for line in lines {
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
        let text = line.to_string();
        for secret in [KEY, SECRET, SUBJECT, ORDER, "jane"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
