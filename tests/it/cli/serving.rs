//! The process of a server: its first start, its end and its log.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::{Process, SECRET, folder, get, run, sqlite_url};
use crate::support::app::{Answer, KEY, client, eventually, instant};
use crate::support::servers::{self, Postgres};

const POLICY: &str = "/v1/policies/benefit";
const CLAIMS: &str = "/v1/policies/benefit/claims";

fn rule() -> Value {
    json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] })
}

/// The key that a first start wrote into a file, with the path of the file.
fn key_in_file(stdout: &str) -> (String, String) {
    let told = stdout
        .lines()
        .find_map(|line| line.strip_prefix("admin key, in a file "));
    let path = told
        .and_then(|told| told.rsplit(": ").next())
        .expect("a path");
    let text = fs::read_to_string(path).expect("the file of the key");
    (text.trim_end().to_owned(), path.to_owned())
}

/// Many people can read the log of a service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_start_writes_a_key_to_a_file_and_prints_a_line_that_works() {
    let folder = folder();
    let (first, url) = Process::serve(folder.path(), &[]);
    let curl = first.wait_for("stdout", |line| line.trim().starts_with("curl "));
    let (secret, path) = key_in_file(&first.output("stdout"));
    let secret = secret.as_str();
    let path = path.as_str();
    assert!(secret.starts_with("perdiem_"), "{path}");
    assert_eq!(
        Path::new(path).file_name(),
        Some("first-admin.key".as_ref())
    );
    let about = fs::metadata(path).expect("the file of the key");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    // The command does not contain the secret, because a shell keeps commands in its history.
    assert!(!curl.contains(secret), "{curl}");
    let pasted = Command::new("sh")
        .args(["-c", &format!("{curl} --silent --show-error")])
        .env("PERDIEM_KEY", secret)
        .output()
        .expect("a shell");
    let answer: Value =
        serde_json::from_slice(&pasted.stdout).unwrap_or_else(|_| panic!("{curl}: {pasted:?}"));
    assert_eq!(answer["version"], 1, "{answer}");
    assert_eq!(get(&url, POLICY, secret).await.status, 200);
    let ended = first.end();
    for output in [&ended.stdout, &ended.stderr] {
        assert!(!output.contains(secret), "{ended:?}");
    }
    let file = fs::read(folder.path().join("perdiem.db")).expect("the ledger");
    let text = String::from_utf8_lossy(&file);
    assert!(
        !text.contains(secret),
        "the ledger must store only a hash of the secret"
    );

    let (second, url) = Process::serve(folder.path(), &[]);
    assert_eq!(get(&url, POLICY, secret).await.status, 200);
    assert_eq!(get(&url, POLICY, "perdiem_").await.status, 401);
    // A server with a key in its settings makes no key.
    let other = super::folder();
    let (third, url) = Process::serve(other.path(), &[("PERDIEM_ADMIN_KEY", KEY)]);
    assert_eq!(get(&url, POLICY, KEY).await.status, 404);
    for ended in [second.end(), third.end()] {
        let shown = ended.stdout + &ended.stderr;
        for words in ["admin key", "perdiem_", KEY] {
            assert!(!shown.contains(words), "{shown}");
        }
    }
    assert!(!other.path().join("first-admin.key").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_on_sqlite_is_sealed_with_a_key_beside_it() {
    let folder = folder();
    let file = folder.path().join("perdiem.db.seal-key");
    let (first, url) = Process::serve(folder.path(), &[("PERDIEM_ADMIN_KEY", KEY)]);
    let key = fs::read_to_string(&file).expect("the key");
    let about = fs::metadata(&file).expect("the file of the key");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    assert_eq!(get(&url, "/readyz", KEY).await.json()["seals"], "sealed");
    let put = client()
        .put(format!("{url}{POLICY}"))
        .bearer_auth(KEY)
        .json(&rule());
    assert_eq!(Answer::of(put).await.status, 201);
    let latest = || async { get(&url, "/v1/seals/latest", KEY).await };
    eventually("a seal", || async { latest().await.status == 200 }).await;
    let said = first.end();
    assert_eq!(said.stderr.matches("keep a copy").count(), 1, "{said:?}");
    assert!(!(said.stdout + &said.stderr).contains(key.trim()));
    // The next start seals with the same key, and says nothing of it.
    let (second, url) = Process::serve(folder.path(), &[("PERDIEM_ADMIN_KEY", KEY)]);
    let ready = get(&url, "/readyz", KEY).await.json();
    assert_eq!(
        (&ready["seals"], &ready["troubles"]),
        (&json!("sealed"), &json!([]))
    );
    assert_eq!(fs::read_to_string(&file).expect("the key"), key);
    let said = second.end();
    assert!(!said.stderr.contains("keep a copy"), "{said:?}");
    // A file that everybody can read is refused.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("a mode");
    let ended = Process::start(folder.path(), &["serve"], &[]).ended();
    let line = ended.fault_of(2);
    assert!(
        line.contains("perdiem.db.seal-key") && line.contains("chmod o="),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_start_at_a_terminal_shows_a_key_once() {
    let folder = folder();
    let serve = ["serve", "--bind", "127.0.0.1:0"];
    let server = Process::start_at_terminal(folder.path(), &serve, &[]);
    server.wait_for("stdout", |line| line.trim().starts_with("curl "));
    let stdout = server.output("stdout");
    let mut words = stdout.split_whitespace();
    let mut word = |beginning: &str| {
        let found = words.find(|word| word.starts_with(beginning));
        found.unwrap_or_else(|| panic!("{stdout}"))
    };
    let url = word("http://");
    let secret = word("perdiem_");
    assert_eq!(stdout.matches(secret).count(), 1, "{stdout}");
    assert!(stdout.contains("read -rs PERDIEM_KEY"), "{stdout}");
    assert_eq!(get(url, "/v1/policies", secret).await.status, 200);
    assert!(!folder.path().join("first-admin.key").exists());
}

/// Otherwise the ledger would have a key that nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_write_its_first_key_makes_none() {
    let place = folder();
    let url = sqlite_url(&place.path().join("perdiem.db"));
    let settings = [("DATABASE_URL", &*url), ("PERDIEM_BIND", "127.0.0.1:0")];
    // Every name of a file is taken.
    for number in 1..=100 {
        let name = match number {
            1 => "first-admin.key".to_owned(),
            _ => format!("first-admin-{number}.key"),
        };
        fs::write(place.path().join(name), "of another ledger").expect("a file");
    }
    let ended = Process::start(place.path(), &["serve"], &settings).ended();
    assert_eq!(ended.code, 2, "{ended:?}");
    for words in ["first admin key", "PERDIEM_ADMIN_KEY_FILE"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
    let elsewhere = folder();
    let (server, url) = Process::serve(elsewhere.path(), &settings[..1]);
    server.wait_for("stdout", |line| line.trim().starts_with("curl "));
    let (secret, _) = key_in_file(&server.output("stdout"));
    assert_eq!(get(&url, "/v1/policies", &secret).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_flight_is_finished_after_sigterm() {
    let postgres = servers::postgres();
    let database = postgres.create_database();
    let name = database.rsplit('/').next().expect("a name");
    let folder = folder();
    let settings = [
        ("DATABASE_URL", database.as_str()),
        ("PERDIEM_ADMIN_KEY", KEY),
        ("PERDIEM_CLAIM_DEADLINE_MS", "60000"),
        ("PERDIEM_DRAIN_SECONDS", "60"),
    ];
    let (server, url) = Process::serve(folder.path(), &settings);
    let policy = client().put(format!("{url}{POLICY}")).bearer_auth(KEY);
    assert_eq!(Answer::of(policy.json(&rule())).await.status, 201);

    let mut held = PgConnection::connect(&database)
        .await
        .expect("a connection");
    for sql in ["BEGIN", "LOCK TABLE entries IN EXCLUSIVE MODE"] {
        sqlx::query(sql).execute(&mut held).await.expect("the lock");
    }
    let claim = client().post(format!("{url}{CLAIMS}")).bearer_auth(KEY);
    let claim = tokio::spawn(Answer::of(claim.json(&json!({ "subject": "member-42" }))));
    eventually("the claim waits for the lock", async || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted
                       AND relation = 'entries'::regclass";
        postgres.execute(name, waiting) != "0"
    })
    .await;
    server.terminate();
    server.wait_for("stderr", |line| {
        line.contains("finishing the requests in progress")
    });
    let released = sqlx::query("ROLLBACK").execute(&mut held).await;
    released.expect("the end of the lock");
    let answer = claim.await.expect("an answer");
    assert_eq!(answer.status, 201, "{answer:?}");
    let ended = server.ended();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(postgres.execute(name, "SELECT count(*) FROM entries"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_json_with_request_ids_and_without_secrets() {
    const SUBJECT: &str = "jane.roe@example.org";
    const ORDER: &str = "order-of-jane-roe";
    let mut postgres = Postgres::start();
    let database = postgres.create_database();
    let database = database.replace("postgres@", &format!("postgres:{SECRET}@"));
    let folder = folder();
    let settings = [
        ("DATABASE_URL", database.as_str()),
        ("PERDIEM_ADMIN_KEY", KEY),
        ("PERDIEM_LOG", "info"),
        ("PERDIEM_LOG_FORMAT", "json"),
        ("PERDIEM_CLAIM_DEADLINE_MS", "3000"),
        ("PERDIEM_DRAIN_SECONDS", "5"),
    ];
    let (server, url) = Process::serve(folder.path(), &settings);
    let send = async |method: &str, path: &str, id: &str, body: Value| {
        let method: Method = method.parse().expect("a method");
        let request = client().request(method, format!("{url}{path}"));
        let request = request.bearer_auth(KEY).header("X-Request-Id", id);
        let request = request.header("Idempotency-Key", ORDER).json(&body);
        Answer::of(request).await.status.as_u16()
    };
    let usage = format!("{POLICY}/subjects/{SUBJECT}");
    let claim = json!({ "subject": SUBJECT, "metadata": { "name": SUBJECT } });
    #[rustfmt::skip]
    let rows = [
        ("PUT", POLICY, rule(), 201),
        ("POST", CLAIMS, claim.clone(), 201),
        ("POST", CLAIMS, claim.clone(), 200),
        ("POST", CLAIMS, json!({ "subject": SUBJECT, "units": 2 }), 422),
        ("POST", CLAIMS, json!({ "subject": format!("{SUBJECT}\n") }), 422),
        ("POST", CLAIMS, json!({ SUBJECT: 1 }), 400),
        ("GET", &usage, Value::Null, 200),
        ("GET", &format!("{usage}%0A"), Value::Null, 422),
        ("GET", &format!("/v1/grants?subject={SUBJECT}&state={SUBJECT}"), Value::Null, 422),
        ("GET", &format!("/v1/nothing/{SUBJECT}"), Value::Null, 404),
    ];
    for (method, path, body, status) in rows {
        assert_eq!(send(method, path, "id-1", body).await, status, "{path}");
    }
    assert_eq!(get(&url, &usage, SECRET).await.status, 401);
    postgres.kill();
    let batch = json!({ "claims": [{ "policy": "benefit", "subject": SUBJECT }] });
    for (method, path, id, body, status) in [
        ("POST", CLAIMS, "id-of-the-claim", claim, 503),
        ("POST", "/v1/claims", "id-of-the-batch", batch, 200),
        ("GET", &usage, "id-of-the-usage", Value::Null, 503),
    ] {
        assert_eq!(send(method, path, id, body).await, status, "{path}");
    }
    server.wait_for("stderr", |line| line.contains("id-of-the-usage"));
    let stderr = server.end().stderr;
    let line =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    let lines: Vec<Value> = stderr.lines().map(line).collect();
    let of_request = |id: &str, level: Option<&str>| {
        let is_wanted = |line: &&Value| {
            line["span"]["request_id"] == id && level.is_none_or(|level| line["level"] == level)
        };
        let found = lines.iter().find(is_wanted);
        found.unwrap_or_else(|| panic!("{id}: {stderr}"))
    };
    for id in ["id-of-the-claim", "id-of-the-usage"] {
        let failed = of_request(id, Some("ERROR"));
        assert_eq!(failed["status"], 503, "{failed}");
        let path = failed["path"].as_str().expect("a path");
        assert!(path.contains("{policy}"), "{failed}");
        assert_ne!(failed["cause"].as_str().expect("a cause"), "", "{failed}");
    }
    assert_eq!(of_request("id-of-the-batch", None)["claims"], 1);
    for line in &lines {
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
        for secret in [KEY, SECRET, SUBJECT, ORDER, "jane"] {
            assert!(!line.to_string().contains(secret), "{secret}: {line}");
        }
    }
}

/// A sandbox needs nothing, leaves nothing, and takes no other ledger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_needs_nothing_and_leaves_nothing() {
    let folder = folder();
    let serve = ["serve", "--sandbox", "--bind", "127.0.0.1:0"];
    let temporary = self::folder();
    let place = temporary.path().to_str().expect("a text");
    let process = Process::start(folder.path(), &serve, &[("TMPDIR", place)]);
    let line = process.wait_for("stdout", |line| line.starts_with("perdiem listens on "));
    let url = line.split(' ').find(|word| word.starts_with("http://"));
    let url = url.expect("a URL").to_owned();
    let key = process.wait_for("stdout", |line| {
        line.starts_with("admin key, shown this once: ")
    });
    let key = key.rsplit(' ').next().expect("a key").to_owned();
    process.wait_for("stdout", |line| line.starts_with("sandbox: "));
    let ready = get(&url, "/readyz", &key).await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.header("perdiem-sandbox"), Some("true"));
    assert_eq!(get(&url, "/v1/sandbox/clock", &key).await.status, 200);
    let clock = |words: &[&str]| {
        let words = [&["sandbox", "clock", "--url", &url], words].concat();
        let told = run(&words, &[("PERDIEM_KEY", key.as_str())]).well(0);
        instant(told.trim())
    };
    let before = clock(&[]);
    let moved = clock(&["+1d"]) - before;
    assert!(
        moved >= TimeDelta::days(1) && moved < TimeDelta::days(2),
        "{moved}"
    );
    process.end();
    for left in [folder.path(), temporary.path()] {
        assert_eq!(fs::read_dir(left).expect("a folder").count(), 0, "{left:?}");
    }
    let ledger = sqlite_url(folder.path());
    for setting in [
        ("DATABASE_URL", ledger.as_str()),
        ("REDIS_URL", "redis://127.0.0.1:1"),
    ] {
        let refused = Process::start(folder.path(), &serve, &[setting]).ended();
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("--sandbox"), "{refused:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}
