//! Settings that stop the start of a server: one line names the setting and the remedy.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use super::{
    Process, SECRET, fault_of, folder, get, migrate, setting_fault, sqlite_url, start_fault,
    start_fault_of,
};
use crate::support::app::KEY;
use crate::support::servers::{self, Redis, free_port};

/// The migrations table after the migration of a later perdiem.
const LATER: &str = "INSERT INTO _sqlx_migrations
    (version, description, success, checksum, execution_time)
    SELECT 9999, 'later', true, checksum, 1 FROM _sqlx_migrations WHERE version = 1";

#[test]
fn a_setting_that_says_nothing_is_told() {
    let stores = ["sqlite:perdiem.db", "postgres://"].as_slice();
    let needs_file = &["needs a file"];
    let schemes = &["redis://"];
    let too_short = &["16 characters"];
    let no_header = &["space", "openssl rand -hex 24"];
    #[rustfmt::skip]
    let rows = [
        ("DATABASE_URL", "mysql://perdiem:hunter2-is-secret@db/perdiem", stores),
        ("DATABASE_URL", "perdiem.db", stores),
        ("DATABASE_URL", "", stores),
        ("DATABASE_URL", "hunter2", stores),
        ("DATABASE_URL", "postgres://perdiem:hunter2-is-secret@db:port/perdiem", &[]),
        ("DATABASE_URL", "sqlite:", needs_file),
        ("DATABASE_URL", "sqlite://", needs_file),
        ("DATABASE_URL", "sqlite:?mode=rwc", needs_file),
        ("DATABASE_URL", "sqlite::memory:", needs_file),
        ("DATABASE_URL", "sqlite://:memory:", needs_file),
        ("DATABASE_URL", "sqlite:file:a?mode=memory&cache=shared", needs_file),
        ("REDIS_URL", "redis://:hunter2-is-secret@redis:port", schemes),
        ("REDIS_URL", "http://:hunter2-is-secret@redis:6379", schemes),
        ("REDIS_URL", "redis", schemes),
        ("REDIS_URL", "", schemes),
        ("PERDIEM_ADMIN_KEY", "", too_short),
        ("PERDIEM_ADMIN_KEY", "hunter2", too_short),
        ("PERDIEM_ADMIN_KEY", "hunter2-is-weak", too_short),
        ("PERDIEM_ADMIN_KEY", "hunter2-is-secret indeed", no_header),
        ("PERDIEM_ADMIN_KEY", "hunter2-is-secret\tindeed", no_header),
        ("PERDIEM_ADMIN_KEY", "hunter2-is-secret\nindeed", no_header),
        ("PERDIEM_ADMIN_KEY", "hunter2-is-sécret-indeed", no_header),
        ("PERDIEM_BIND", "nowhere", &["nowhere"]),
    ];
    for (name, value, words) in rows {
        setting_fault(&[(name, value)], &[&[name][..], words].concat());
    }
}

/// Half a provider of accounts would let nobody in, or everybody.
#[test]
fn a_provider_of_accounts_is_set_whole() {
    let whole = [
        ("PERDIEM_OIDC_ISSUER", "https://id.example"),
        ("PERDIEM_OIDC_CLIENT_ID", "perdiem"),
        ("PERDIEM_OIDC_CLIENT_SECRET", "hunter2-is-secret"),
        ("PERDIEM_OIDC_ROLES", "admins=admin"),
        ("PERDIEM_CONSOLE_URL", "https://perdiem.example"),
    ];
    for (missing, _) in whole {
        let others = whole.into_iter().filter(|(name, _)| *name != missing);
        setting_fault(&others.collect::<Vec<_>>(), &[missing, "is missing"]);
    }
    for (wrong, value, word) in [
        ("PERDIEM_OIDC_ROLES", "admins=root", "admins=root"),
        ("PERDIEM_OIDC_ROLES", "helpdesk=support", "support:10:30"),
        ("PERDIEM_OIDC_SCOPES", "profile", "openid"),
        ("PERDIEM_CONSOLE_URL", "perdiem.example", "https://"),
        ("PERDIEM_CONSOLE_URL", "http://perdiem.example", "https://"),
        (
            "PERDIEM_CONSOLE_URL",
            "https://perdiem.example/?a=b",
            "https://",
        ),
        ("PERDIEM_OIDC_ISSUER", "http://id.example", "https://"),
        ("PERDIEM_OIDC_ISSUER", "", "https://"),
    ] {
        let others = whole.into_iter().filter(|(name, _)| *name != wrong);
        let settings: Vec<_> = others.chain([(wrong, value)]).collect();
        setting_fault(&settings, &[wrong, word]);
    }
}

#[test]
fn a_gate_is_set_whole() {
    let bind = ("PERDIEM_GATE_BIND", "127.0.0.1:0");
    let key = ("PERDIEM_GATE_KEY", "hunter2-is-secret");
    let public = ("PERDIEM_GATE_PUBLIC", "true");
    setting_fault(&[bind], &["PERDIEM_GATE_KEY", "is missing"]);
    setting_fault(&[key], &["PERDIEM_GATE_BIND", "is missing"]);
    setting_fault(&[public], &["PERDIEM_GATE_BIND", "is missing"]);
    let everywhere = ("PERDIEM_GATE_BIND", "0.0.0.0:0");
    setting_fault(
        &[everywhere, key],
        &["PERDIEM_GATE_BIND", "private address"],
    );
    let lines = ("PERDIEM_GATE_KEY", "gate claim\nsecret: hunter2-is-secret");
    setting_fault(&[bind, lines], &["PERDIEM_GATE_KEY", "only the secret"]);
    let nowhere = ("PERDIEM_GATE_BIND", "nowhere");
    setting_fault(&[nowhere, key], &["PERDIEM_GATE_BIND", "nowhere"]);
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    // The check of the address comes before every check of the ledger.
    start_fault(
        &[("PERDIEM_BIND", &address), ("DATABASE_URL", "nonsense")],
        &[&address, "in use", "PERDIEM_BIND"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blanks_around_the_admin_key_are_none_of_it() {
    let folder = folder();
    let key = format!("  {KEY}\r\n");
    let (_server, url) = Process::serve(folder.path(), &[("PERDIEM_ADMIN_KEY", &key)]);
    assert_eq!(get(&url, "/v1/policies", KEY).await.status, 200);
}

#[test]
fn a_sqlite_file_that_cannot_be_used_is_told() {
    let folder = folder();
    let of = |name: &str| sqlite_url(&folder.path().join(name));
    let letter = folder.path().join("letter.txt");
    let text = "Dear Sir or Madam, ".repeat(100);
    fs::write(&letter, &text).expect("a file");
    migrate(&of("old.db"));
    for (url, words) in [
        (
            of("no/such/folder/perdiem.db"),
            &["no/such/folder", "exists"][..],
        ),
        (sqlite_url(folder.path()), &["it is a folder"]),
        (of("letter.txt"), &["letter.txt", "not a database"]),
        (of("new.db?mode=ro"), &["new.db"]),
        (of("old.db?mode=ro"), &["old.db"]),
    ] {
        setting_fault(
            &[("DATABASE_URL", &url)],
            &[&["DATABASE_URL"][..], words].concat(),
        );
    }
    assert_eq!(fs::read_to_string(&letter).expect("a file"), text);
}

async fn sqlite(path: &Path, sql: &str) {
    let url = format!("{}?mode=rwc", sqlite_url(path));
    let mut connection = SqliteConnection::connect(&url).await.expect("a connection");
    let done = sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await;
    done.expect("the statement runs");
    connection.close().await.expect("the end of the connection");
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
        setting_fault(
            &[("DATABASE_URL", &url)],
            &[name, "not perdiem's", "DATABASE_URL"],
        );
        let line = fault_of(2, &["migrate"], &[("DATABASE_URL", &url)]);
        assert!(line.contains("not perdiem's"), "{line}");
        sqlite(&path, "CREATE TABLE entries (id INTEGER)").await;
    }
    let path = folder.path().join("perdiem.db");
    let url = sqlite_url(&path);
    migrate(&url);
    sqlite(&path, LATER).await;
    start_fault(
        &[("DATABASE_URL", &url)],
        &["perdiem.db", "9999", "newer perdiem"],
    );
}

#[test]
fn a_postgres_database_of_others_is_told() {
    let postgres = servers::postgres();
    let told = |code: i32, name: &str, words: &[&str]| {
        let url = postgres
            .url(name)
            .replace("postgres@", &format!("postgres:{SECRET}@"));
        start_fault_of(
            code,
            &[("DATABASE_URL", &url)],
            &[&[name][..], words].concat(),
        );
    };
    let create = || {
        let url = postgres.create_database();
        (url.rsplit('/').next().expect("a name").to_owned(), url)
    };
    for sql in [
        "CREATE TABLE orders (id integer)",
        "CREATE VIEW orders AS SELECT 1",
        "CREATE TABLE _sqlx_migrations (version bigint, checksum bytea);
         INSERT INTO _sqlx_migrations VALUES (1, '\\x00')",
    ] {
        let (name, _) = create();
        postgres.execute(&name, sql);
        told(2, &name, &["not perdiem's", "DATABASE_URL"]);
    }
    // Views of an extension are nobody's tables.
    let (name, url) = create();
    postgres.execute(&name, "CREATE EXTENSION pg_stat_statements");
    migrate(&url);
    let (name, url) = create();
    migrate(&url);
    postgres.execute(&name, LATER);
    told(1, &name, &["9999", "newer perdiem"]);
    let sql = "CREATE DATABASE in_sql_ascii ENCODING 'SQL_ASCII' TEMPLATE template0";
    postgres.execute("postgres", sql);
    told(2, "in_sql_ascii", &["SQL_ASCII", "UTF8"]);
    told(2, "no_such_database", &["does not exist"]);
}

#[test]
fn a_postgres_that_does_not_run_is_told() {
    let url = format!("postgres://perdiem:{SECRET}@127.0.0.1:{}/shop", free_port());
    let words = ["127.0.0.1", "/shop", "refused", "see that PostgreSQL runs"];
    start_fault(&[("DATABASE_URL", &url)], &words);
}

#[test]
fn a_redis_that_may_evict_is_told() {
    for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
        let redis = Redis::start_with(&["--maxmemory-policy", policy, "--requirepass", SECRET]);
        let url = format!("redis://:{SECRET}@127.0.0.1:{}", redis.port());
        let port = redis.port().to_string();
        start_fault(
            &[("REDIS_URL", &url)],
            &[policy, &port, "noeviction", "REDIS_URL"],
        );
    }
}
