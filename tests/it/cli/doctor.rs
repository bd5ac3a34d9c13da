//! `perdiem doctor`: each fault is made for real, and one line tells it.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{Process, SECRET, folder, get, migrate, run, sqlite_url};
use crate::support::app::{Answer, KEY, client};
use crate::support::servers::{self, Postgres, Redis, free_port};
use crate::support::waiting::eventually;
use crate::support::wall_clock::WallClock;

/// A server whose settings are those of the documents.
const DURABLE: [&str; 6] = [
    "fsync=on",
    "full_page_writes=on",
    "synchronous_commit=on",
    "shared_buffers=256MB",
    "max_wal_size=2GB",
    "autovacuum=on",
];
/// A server that does not answer is told within this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the doctor printed.
struct Told {
    code: i32,
    text: String,
}

impl Told {
    fn by(args: &[&str], settings: &[(&str, &str)]) -> Self {
        let said = run(&[&["doctor"], args].concat(), settings);
        for output in [&said.stdout, &said.stderr] {
            assert!(!output.contains("hunter2"), "{output}");
            assert!(!output.contains("panicked"), "{output}");
        }
        assert_eq!(said.stderr, "", "{}", said.stdout);
        Self {
            code: said.code,
            text: said.stdout,
        }
    }

    /// Asserts a line: how the thing was found, its name, and some words.
    #[track_caller]
    fn has(&self, condition: &str, about: &str, words: &[&str]) {
        let start = format!("{condition:<5}  {about:<21}  ");
        let mut lines = self.text.lines().filter(|line| line.starts_with(&start));
        let is_told = lines.any(|line| words.iter().all(|word| line.contains(word)));
        assert!(is_told, "{condition} {about} {words:?}:\n{}", self.text);
    }

    /// The lines that are not ok. The rules of time zones and the disk of this machine are not those of the test.
    fn faults(&self) -> Vec<&str> {
        let of_machine = ["look   time zone rules ", "look   disk "];
        let is_ok = |line: &&str| line.starts_with("ok     ");
        let lines = self.text.lines().filter(|line| !is_ok(line));
        let lines = lines.filter(|line| !of_machine.iter().any(|it| line.starts_with(it)));
        lines.collect()
    }

    /// Asserts that nothing is wrong, and that the exit code says so.
    #[track_caller]
    fn is_well(&self) {
        assert_eq!(self.faults(), Vec::<&str>::new());
        let has_looks = self.text.contains("\nlook ") || self.text.starts_with("look ");
        assert_eq!(self.code, i32::from(has_looks), "{}", self.text);
    }
}

/// A database that its owner migrated, and a user who serves it.
struct Cast {
    postgres: Postgres,
    name: String,
}

impl Cast {
    fn new(settings: &[&str]) -> Self {
        let postgres = Postgres::start_with(settings);
        let url = postgres.create_database();
        let name = url.rsplit('/').next().expect("a name").to_owned();
        for sql in [
            "CREATE ROLE perdiem_owner LOGIN CREATEROLE",
            "CREATE ROLE perdiem LOGIN",
            &format!("ALTER DATABASE {name} OWNER TO perdiem_owner"),
        ] {
            postgres.execute("postgres", sql);
        }
        Self { postgres, name }
    }

    fn migrated(settings: &[&str]) -> Self {
        let cast = Self::new(settings);
        migrate(&cast.url("perdiem_owner"));
        cast.execute("GRANT perdiem_service TO perdiem");
        cast
    }

    fn url(&self, user: &str) -> String {
        let url = self.postgres.url(&self.name);
        url.replace("//postgres@", &format!("//{user}@"))
    }

    fn execute(&self, sql: &str) {
        self.postgres.execute(&self.name, sql);
    }

    /// What the doctor says to the user who serves.
    fn told(&self, settings: &[(&str, &str)]) -> Told {
        let url = self.url("perdiem");
        let settings = [&[("DATABASE_URL", &*url)], settings].concat();
        Told::by(&[], &settings)
    }
}

async fn put_policy(url: &str, rule: Value) {
    let put = client().request(Method::PUT, format!("{url}/v1/policies/benefit"));
    let answer = Answer::of(put.bearer_auth(KEY).json(&rule)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_deployment_is_well() {
    let cast = Cast::migrated(&DURABLE);
    let redis = Redis::start_with(&["--appendonly", "yes"]);
    let place = folder();
    let key = place.path().join("seal.key");
    let key = key.to_str().expect("UTF-8");
    assert_eq!(run(&["seal", "new-key", key], &[]).code, 0);
    let admin = place.path().join("admin.key");
    fs::write(&admin, KEY).expect("a file");
    fs::set_permissions(&admin, Permissions::from_mode(0o600)).expect("a mode");
    let redis = redis.url();
    let settings = [
        ("REDIS_URL", &*redis),
        ("PERDIEM_SEAL_KEY_FILE", key),
        ("PERDIEM_ADMIN_KEY_FILE", admin.to_str().expect("UTF-8")),
    ];
    // Before the first start.
    let told = cast.told(&settings);
    told.is_well();
    told.has("ok", "schema", &["up to date"]);
    told.has("ok", "seals", &["nothing to seal yet"]);
    told.has("ok", "reconciliation", &["none has ended yet"]);
    // Beside an instance that has granted something.
    let url = cast.url("perdiem");
    let serving = [&[("DATABASE_URL", &*url)], &settings[..]].concat();
    let (server, url) = Process::serve(place.path(), &serving);
    put_policy(
        &url,
        json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }], "durability": "counted" }),
    )
    .await;
    let reconcile = [("PERDIEM_URL", &*url), ("PERDIEM_KEY", KEY)];
    run(&["reconcile"], &reconcile).well(0);
    eventually("the change is sealed", || async {
        let latest = get(&url, "/v1/seals/latest", KEY).await;
        latest.status == 200
    })
    .await;
    eventually("all is sealed", || async {
        cast.told(&settings).text.contains("; 0 of ")
    })
    .await;
    let told = cast.told(&settings);
    told.is_well();
    for (about, words) in [
        ("settings", &["fit together"][..]),
        ("files with secrets", &["2, none open"]),
        ("database", &["PostgreSQL ", "127.0.0.1:"]),
        ("clock of PostgreSQL", &["off by 0.0 s"]),
        ("database user", &["perdiem has the rights of the service"]),
        ("standbys", &["none"]),
        ("autovacuum", &["on, also for tables that only grow"]),
        ("PostgreSQL's settings", &["durable"]),
        ("connections", &["opens up to 33", "instances"]),
        ("disk", &["PostgreSQL does not tell"]),
        ("seals", &["the newest is ", " 0 of "]),
        ("reconciliation", &["the last one ended ", " ago"]),
        ("Redis' eviction", &["noeviction"]),
        ("Redis' persistence", &["appendonly is yes", "save is off"]),
        ("clock of Redis", &["off by 0.0 s"]),
        ("backup", &["--backup"]),
    ] {
        told.has("ok", about, words);
    }
    // As JSON.
    let settings = [&serving[..], &[("PERDIEM_RECONCILE_EVERY_SECONDS", "3600")]].concat();
    let said = run(&["doctor", "--json"], &settings);
    let found: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let lines = found["lines"].as_array().expect("lines");
    assert_eq!(lines.len(), told.text.lines().count());
    let schema = lines.iter().find(|line| line["about"] == "schema");
    let expected = json!({ "condition": "ok", "about": "schema", "text": "up to date" });
    assert_eq!(schema, Some(&expected));
    server.end();
}

#[test]
fn settings_of_postgres_that_lose_commits_are_wrong() {
    let cast = Cast::migrated(&["autovacuum=off", "synchronous_commit=off"]);
    let told = cast.told(&[]);
    assert_eq!(told.code, 2, "{}", told.text);
    let about = "PostgreSQL's settings";
    told.has("wrong", about, &["fsync is off", "write fsync = on"]);
    told.has("wrong", about, &["full_page_writes is off"]);
    told.has("look", about, &["synchronous_commit is off"]);
    told.has("look", about, &["max_wal_size is 1GB"]);
    told.has("look", "autovacuum", &["it is off", "set autovacuum = on"]);
    let cast = Cast::migrated(&["autovacuum=on"]);
    cast.execute("ALTER TABLE entries SET (autovacuum_enabled = false)");
    cast.execute("ALTER ROLE perdiem CONNECTION LIMIT 20");
    let told = cast.told(&[]);
    told.has("look", "autovacuum", &["off for entries"]);
    told.has(
        "look",
        "connections",
        &["at most 20", "raise max_connections"],
    );
}

#[test]
fn a_user_with_wrong_rights_is_told() {
    let cast = Cast::new(&DURABLE);
    // An empty database: its owner can make the tables, and nobody else.
    let owner = cast.url("perdiem_owner");
    let told = Told::by(&[], &[("DATABASE_URL", &owner)]);
    assert_eq!(told.code, 1, "{}", told.text);
    told.has("look", "schema", &["no tables yet", "run perdiem migrate"]);
    let told = cast.told(&[]);
    assert_eq!(told.code, 2, "{}", told.text);
    told.has(
        "wrong",
        "schema",
        &["perdiem may not make them", "as the owner"],
    );
    // A user without any right, then one that lacks one of them.
    migrate(&owner);
    let told = cast.told(&[]);
    assert_eq!(told.code, 2, "{}", told.text);
    told.has(
        "wrong",
        "schema",
        &["no right to the ledger", "perdiem migrate"],
    );
    cast.execute("GRANT perdiem_service TO perdiem");
    cast.execute("REVOKE INSERT ON key_uses FROM perdiem_service");
    cast.execute("REVOKE UPDATE (value) ON day_figures FROM perdiem_service");
    let told = cast.told(&[]);
    assert_eq!(told.code, 2, "{}", told.text);
    let missing = "INSERT on key_uses, UPDATE on day_figures";
    told.has(
        "wrong",
        "database user",
        &["perdiem lacks", missing, "run perdiem migrate"],
    );
    migrate(&owner);
    cast.told(&[]).is_well();
    // Users who can change entries.
    let told = Told::by(&[], &[("DATABASE_URL", &owner)]);
    assert_eq!(told.code, 1, "{}", told.text);
    told.has("look", "database user", &["perdiem_owner owns the tables"]);
    let told = Told::by(&[], &[("DATABASE_URL", &cast.url("postgres"))]);
    told.has("look", "database user", &["postgres is a superuser"]);
    // A newer perdiem migrated it.
    cast.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         SELECT 9999, 'later', true, checksum, 1 FROM _sqlx_migrations WHERE version = 1",
    );
    let told = cast.told(&[]);
    assert_eq!(told.code, 2, "{}", told.text);
    told.has("wrong", "schema", &["9999", "start the newer perdiem"]);
}

#[test]
fn databases_that_are_no_ledger_are_told() {
    let postgres = servers::postgres();
    let sql = "CREATE DATABASE doctor_ascii ENCODING 'SQL_ASCII' TEMPLATE template0";
    postgres.execute("postgres", sql);
    let told = Told::by(&[], &[("DATABASE_URL", &postgres.url("doctor_ascii"))]);
    told.has("wrong", "schema", &["SQL_ASCII", "UTF8"]);
    let url = postgres.create_database();
    let name = url.rsplit('/').next().expect("a name");
    postgres.execute(name, "CREATE TABLE orders (id integer)");
    let told = Told::by(&[], &[("DATABASE_URL", &url)]);
    told.has("wrong", "schema", &["not perdiem's"]);
    // A dump that was restored into another cluster: its numbers of transactions are higher.
    let url = postgres.create_database();
    let name = url.rsplit('/').next().expect("a name");
    migrate(&url);
    postgres.execute(
        name,
        "UPDATE ledger SET xact_offset = xact_offset - 5000000000",
    );
    let told = Told::by(&[], &[("DATABASE_URL", &url)]);
    told.has(
        "wrong",
        "schema",
        &["transaction numbers are lower", "perdiem migrate"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_are_told() {
    let cast = Cast::migrated(&DURABLE);
    let standby = cast.postgres.start_standby();
    eventually("the standby follows", || async {
        let count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        cast.postgres.execute("postgres", count) == "1"
    })
    .await;
    let told = cast.told(&[]);
    assert_eq!(told.code, 1, "{}", told.text);
    told.has(
        "look",
        "standbys",
        &["1, none of them synchronous", "synchronous_standby_names"],
    );
    let set = |names: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
        cast.postgres.execute("postgres", &set);
        cast.postgres.execute("postgres", "SELECT pg_reload_conf()");
    };
    // The user who serves may not see the state of standbys, and the superuser may.
    let superuser = cast.url("postgres");
    let told_to_superuser = || Told::by(&[], &[("DATABASE_URL", &superuser)]);
    for (names, condition, words) in [
        ("*", "ok", "1 synchronous of 1"),
        ("elsewhere", "wrong", "commits wait"),
    ] {
        set(names);
        eventually("the setting is in force", || async {
            told_to_superuser().text.contains(words)
        })
        .await;
        told_to_superuser().has(condition, "standbys", &[names, words]);
        cast.told(&[])
            .has("ok", "standbys", &["1 (", "may not see"]);
    }
    // The standby itself serves only an instance that reads.
    let url = standby.url(&cast.name).replace("//postgres@", "//perdiem@");
    let told = Told::by(&[], &[("DATABASE_URL", &url)]);
    assert_eq!(told.code, 2, "{}", told.text);
    told.has("wrong", "schema", &["is a standby", "name the primary"]);
    let reading = [("DATABASE_URL", &*url), ("PERDIEM_READ_ONLY", "true")];
    let told = Told::by(&[], &reading);
    told.has("ok", "database", &[", a standby"]);
    told.has("ok", "schema", &["up to date"]);
}

#[test]
fn a_server_that_does_not_answer_is_a_finding() {
    // One refuses connections, the other takes them and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address").port();
    for port in [free_port(), silent] {
        let database = format!("postgres://perdiem:{SECRET}@127.0.0.1:{port}/perdiem");
        let redis = format!("redis://:{SECRET}@127.0.0.1:{port}");
        let began = Instant::now();
        let told = Told::by(&[], &[("DATABASE_URL", &database), ("REDIS_URL", &redis)]);
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        assert_eq!(told.code, 2, "{}", told.text);
        let place = format!("127.0.0.1:{port}");
        told.has("wrong", "database", &[&place, "see that PostgreSQL runs"]);
        told.has("look", "Redis", &["cannot be asked", "see that Redis runs"]);
    }
    let said = run(&["doctor"], &[("DATABASE_URL", "mysql://hunter2@db/x")]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.stdout.contains("wrong  database"), "{said:?}");
    let told = Told::by(
        &[],
        &[("REDIS_URL", &format!("redis://:{SECRET}@redis:port"))],
    );
    told.has("wrong", "Redis", &["REDIS_URL cannot be read"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_redis_are_told() {
    let place = folder();
    let database = sqlite_url(&place.path().join("perdiem.db"));
    let told_of = |redis: &Redis| {
        let url = redis.url();
        Told::by(&[], &[("DATABASE_URL", &database), ("REDIS_URL", &url)])
    };
    let evicts = Redis::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let told = told_of(&evicts);
    assert_eq!(told.code, 2, "{}", told.text);
    told.has(
        "wrong",
        "Redis' eviction",
        &["allkeys-lru", "set it to noeviction"],
    );
    // Without a ledger nobody knows whether a policy lets Redis decide.
    let redis = Redis::start_with(&["--maxmemory", "900kb"]);
    let told = told_of(&redis);
    told.has(
        "look",
        "Redis' persistence",
        &["appendonly is no", "set appendonly yes"],
    );
    told.has("look", "Redis' memory", &["raise maxmemory"]);
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &redis.port().to_string()]);
    told_of(&replica).has("look", "Redis", &["is a replica", "name the primary"]);
    // The policies of a ledger tell it.
    let plain = Redis::start();
    let redis = plain.url();
    let settings = [
        ("DATABASE_URL", &*database),
        ("REDIS_URL", &redis),
        ("PERDIEM_ADMIN_KEY", KEY),
    ];
    let (server, url) = Process::serve(place.path(), &settings);
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    put_policy(&url, rule.clone()).await;
    let told = told_of(&plain);
    told.has(
        "ok",
        "Redis' persistence",
        &["appendonly is no", "no policy lets Redis decide"],
    );
    let mut counted = rule;
    counted["durability"] = json!("counted");
    counted["reason"] = json!("a test");
    put_policy(&url, counted).await;
    let told = told_of(&plain);
    told.has(
        "look",
        "Redis' persistence",
        &["appendonly is no", "a policy lets Redis decide"],
    );
    let appends = Redis::start_with(&["--appendonly", "yes"]);
    told_of(&appends).has("ok", "Redis' persistence", &["appendonly is yes"]);
    // A user with the rights of the documents may not read the configuration.
    appends.command::<()>(&[
        "ACL",
        "SETUSER",
        "perdiem",
        "on",
        ">secret",
        "~perdiem:*",
        "+@read",
        "+@write",
        "+@scripting",
        "+@connection",
        "-@dangerous",
        "+info",
    ]);
    let url = format!("redis://perdiem:secret@127.0.0.1:{}", appends.port());
    let told = Told::by(&[], &[("DATABASE_URL", &database), ("REDIS_URL", &url)]);
    told.has(
        "ok",
        "Redis' persistence",
        &["appendonly is yes", "save is not known"],
    );
    server.end();
}

/// The files of a folder, with their contents. A reader of SQLite leaves an index of the log, and an empty log.
fn files(folder: &Path) -> Vec<(Vec<u8>, String)> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path().display().to_string());
    let files = paths.map(|path| (fs::read(&path).expect("a file"), path));
    let of_reader = |(text, path): &(Vec<u8>, String)| {
        path.ends_with("-shm") || path.ends_with("-wal") && text.is_empty()
    };
    let mut files: Vec<_> = files.filter(|file| !of_reader(file)).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_on_sqlite_is_looked_at_beside_its_server() {
    let place = folder();
    let file = place.path().join("perdiem.db");
    let database = sqlite_url(&file);
    let settings = [("DATABASE_URL", &*database)];
    // Before the first start, and nothing is made.
    let told = Told::by(&[], &settings);
    told.is_well();
    told.has("ok", "database", &["does not exist yet"]);
    told.has("ok", "disk", &["MB free of"]);
    assert!(files(place.path()).is_empty());
    let serving = [settings[0], ("PERDIEM_ADMIN_KEY", KEY)];
    let (server, url) = Process::serve(place.path(), &serving);
    put_policy(
        &url,
        json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] }),
    )
    .await;
    eventually("all is sealed", || async {
        Told::by(&[], &settings).text.contains("; 0 of ")
    })
    .await;
    let told = Told::by(&[], &settings);
    told.is_well();
    told.has("ok", "database", &["SQLite, in "]);
    told.has("ok", "clock", &["not behind the newest entries"]);
    told.has("ok", "Redis", &["not used"]);
    server.end();
    let before = files(place.path());
    Told::by(&[], &settings).is_well();
    assert!(files(place.path()) == before, "the doctor changed a file");
    // Other users may read it.
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("a mode");
    let told = Told::by(&[], &settings);
    assert_eq!(told.code, 1, "{}", told.text);
    told.has("look", "file permissions", &["perdiem.db", "run chmod o="]);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a mode");
    // The clock of the machine is behind the entries, or its key can be read by all.
    let clock = WallClock::new();
    clock.put(-3600);
    let behind = [&settings[..], &clock.settings()].concat();
    let told = Told::by(&[], &behind);
    assert_eq!(told.code, 1, "{}", told.text);
    told.has("look", "clock", &["in the future", "NTP"]);
    let key = place.path().join("perdiem.db.seal-key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("a mode");
    let told = Told::by(&[], &settings);
    assert_eq!(told.code, 2, "{}", told.text);
    told.has("wrong", "settings", &["perdiem.db.seal-key", "chmod o="]);
    fs::write(&file, "Dear Sir or Madam, ".repeat(100)).expect("a file");
    Told::by(&[], &settings).has("wrong", "database", &["not a database"]);
}

#[test]
fn clocks_that_differ_are_told() {
    let cast = Cast::migrated(&DURABLE);
    let redis = servers::redis().url();
    let clock = WallClock::new();
    for seconds in [-60, 60] {
        clock.put(seconds);
        let settings = [&[("REDIS_URL", &*redis)], &clock.settings()[..]].concat();
        let told = cast.told(&settings);
        assert_eq!(told.code, 2, "{}", told.text);
        let off = if seconds < 0 { "by -" } else { "by " };
        told.has(
            "wrong",
            "clock of PostgreSQL",
            &[off, "correct the clock that is wrong"],
        );
        told.has("look", "clock of Redis", &[off, "correct the clock"]);
    }
}

#[test]
fn files_and_settings_are_told() {
    let place = folder();
    let database = sqlite_url(&place.path().join("perdiem.db"));
    let path = |name: &str| place.path().join(name).display().to_string();
    let told = |args: &[&str], settings: &[(&str, &str)]| {
        Told::by(args, &[&[("DATABASE_URL", &*database)], settings].concat())
    };
    // A backup that is fresh, old, empty or missing.
    let backup = path("perdiem.dump");
    fs::write(&backup, "PGDMP").expect("a file");
    let args = ["--backup", &*backup];
    let found = told(&args, &[]);
    found.is_well();
    found.has("ok", "backup", &["perdiem.dump is ", "5 bytes"]);
    let file = File::options().write(true).open(&backup).expect("a file");
    let written_at = file.metadata().and_then(|about| about.modified());
    let two_days = Duration::from_secs(2 * 24 * 60 * 60);
    let older = written_at.expect("a time") - two_days;
    file.set_modified(older).expect("a time");
    let found = told(&args, &[]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.has("look", "backup", &["is 2 days old", "more than 26 h"]);
    told(&[&args[..], &["--backup-hours", "72"]].concat(), &[]).is_well();
    fs::write(&backup, "").expect("a file");
    told(&args, &[]).has("look", "backup", &["it is empty"]);
    told(&["--backup", &path("none")], &[]).has("look", "backup", &["cannot be read"]);
    // A secret that everybody may read, and settings that do not fit together.
    let admin = path("admin.key");
    fs::write(&admin, KEY).expect("a file");
    fs::set_permissions(&admin, Permissions::from_mode(0o644)).expect("a mode");
    let found = told(&[], &[("PERDIEM_ADMIN_KEY_FILE", &admin)]);
    found.has(
        "look",
        "files with secrets",
        &["admin.key", "PERDIEM_ADMIN_KEY_FILE", "chmod o="],
    );
    let found = told(&["--admin-key-file", &admin], &[]);
    found.has("look", "files with secrets", &["admin.key"]);
    let found = told(&[], &[("PERDIEM_ADMIN_KEY", "hunter2")]);
    assert_eq!(found.code, 2, "{}", found.text);
    found.has("wrong", "settings", &["16 characters"]);
    let found = told(&[], &[("PERDIEM_READ_ONLY", "true")]);
    found.has("wrong", "settings", &["PERDIEM_READ_ONLY", "PostgreSQL"]);
    let nowhere = place.path().join("nowhere").display().to_string();
    let files = [
        ("PERDIEM_TLS_CERTIFICATE_FILE", nowhere.as_str()),
        ("PERDIEM_TLS_KEY_FILE", &nowhere),
    ];
    let found = told(&[], &files);
    found.has(
        "wrong",
        "settings",
        &["PERDIEM_TLS_CERTIFICATE_FILE", "No such file"],
    );
    let found = told(&[], &[("PERDIEM_OIDC_CLIENT_ID", "perdiem")]);
    found.has("wrong", "settings", &["PERDIEM_OIDC_ISSUER", "is missing"]);
    let said = run(&["doctor", "--sandbox"], &[]);
    assert!(said.fault_of(2).contains("PERDIEM_SANDBOX"));
}
