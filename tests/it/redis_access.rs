//! A Redis with a certificate of a private authority, and sentinels with their own password.

use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::cli::setting_fault;
use crate::support::app::{Answer, Ground, Stack, eventually};
use crate::support::authority::Authority;
use crate::support::process::Process;
use crate::support::servers::{Redis, free_port};

const PASSWORD: &str = "the-primarys-own";
const SENTINEL_PASSWORD: &str = "the-sentinels-own";
const SENTINEL_USER: &str = "perdiem";
const SENTINEL_USER_PASSWORD: &str = "the-users-own";

/// A server's settings: its certificate, and a port for TLS beside the plain one.
fn tls_settings(authority: &Authority, port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("tls-port", port.to_string()),
        ("tls-cert-file", authority.file("server.pem")),
        ("tls-key-file", authority.file("server.key")),
        ("tls-ca-cert-file", authority.file("authority.pem")),
        ("tls-auth-clients", "no".to_owned()),
    ]
}

/// A server, and its port for TLS.
fn encrypted(authority: &Authority, settings: &[&str]) -> (Redis, u16) {
    let port = free_port();
    let words = tls_settings(authority, port).into_iter();
    let words = words.flat_map(|(name, value)| [format!("--{name}"), value]);
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .chain(settings.iter().copied())
        .collect();
    (Redis::start_with(&words), port)
}

/// Starts perdiem, and checks whether Redis works for it.
async fn is_served(settings: &[(&str, &str)], is_served: bool) {
    let ground = Ground::new(Stack::Sqlite);
    let process = Process::start(&ground.database_url, settings);
    // A busy machine may answer late.
    eventually("Redis works, or does not", async || {
        let ready = Answer::of(process.request(Method::GET, "/readyz")).await;
        let is_missed = ready.text.contains("Redis is unavailable");
        assert!(is_served || is_missed, "{ready:?}");
        is_served != is_missed
    })
    .await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
    let put = process.request(Method::PUT, "/v1/policies/benefit");
    let put = Answer::of(put.json(&rule)).await;
    assert_eq!(put.status, StatusCode::CREATED, "{put:?}");
    for status in [StatusCode::CREATED, StatusCode::TOO_MANY_REQUESTS] {
        let claim = process.request(Method::POST, "/v1/policies/benefit/claims");
        let claim = Answer::of(claim.json(&json!({ "subject": "member-42" }))).await;
        assert_eq!(claim.status, status, "{claim:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_authority_is_trusted_where_it_is_named() {
    let ours = Authority::new();
    let others = Authority::new();
    let (redis, port) = encrypted(&ours, &["--requirepass", PASSWORD]);
    let url = format!("rediss://:{PASSWORD}@127.0.0.1:{port}");
    is_served(&[("REDIS_URL", &url)], false).await;
    let ca = ours.file("authority.pem");
    let other_ca = others.file("authority.pem");
    is_served(&[("REDIS_URL", &url), ("REDIS_CA_FILE", &other_ca)], false).await;
    is_served(&[("REDIS_URL", &url), ("REDIS_CA_FILE", &ca)], true).await;
    drop(redis);
}

/// A cluster of one node, which has all slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_of_a_private_authority() {
    let authority = Authority::new();
    let settings = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let settings = [&settings[..], &["--cluster-announce-ip", "127.0.0.1"]].concat();
    let (redis, port) = encrypted(&authority, &settings);
    redis.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let url = format!("rediss+cluster://127.0.0.1:{port}");
    let ca = authority.file("authority.pem");
    is_served(&[("REDIS_URL", &url)], false).await;
    is_served(&[("REDIS_URL", &url), ("REDIS_CA_FILE", &ca)], true).await;
}

/// A sentinel that watches a primary, with its own password and user.
fn sentinel(primary: u16, more: &[(&str, String)]) -> Redis {
    let mut configuration = format!(
        "bind 127.0.0.1\n\
         requirepass {SENTINEL_PASSWORD}\n\
         user {SENTINEL_USER} on >{SENTINEL_USER_PASSWORD} allchannels +@all\n\
         sentinel monitor perdiem 127.0.0.1 {primary} 1\n\
         sentinel auth-pass perdiem {PASSWORD}\n",
    );
    for (name, value) in more {
        configuration.push_str(&format!("{name} {value}\n"));
    }
    Redis::start_sentinel(&configuration)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_are_asked_with_a_password_of_their_own() {
    let redis = Redis::start_with(&["--requirepass", PASSWORD]);
    let sentinel = sentinel(redis.port(), &[]);
    let url = format!(
        "redis+sentinel://:{PASSWORD}@127.0.0.1:{}/perdiem",
        sentinel.port()
    );
    is_served(&[("REDIS_URL", &url)], false).await;
    let password = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_SENTINEL_PASSWORD", SENTINEL_PASSWORD),
    ];
    is_served(&password, true).await;
    let user = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_SENTINEL_USER", SENTINEL_USER),
        ("REDIS_SENTINEL_PASSWORD", SENTINEL_USER_PASSWORD),
    ];
    is_served(&user, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_their_primary_are_of_a_private_authority() {
    let authority = Authority::new();
    let (_redis, primary) = encrypted(&authority, &["--requirepass", PASSWORD]);
    let port = free_port();
    let mut more = tls_settings(&authority, port);
    // With this setting it connects to the primary over TLS.
    more.push(("tls-replication", "yes".to_owned()));
    let _sentinel = sentinel(primary, &more);
    let url = format!("rediss+sentinel://:{PASSWORD}@127.0.0.1:{port}/perdiem");
    let password = authority.file("password");
    std::fs::write(&password, SENTINEL_PASSWORD).expect("a file");
    let ca = authority.file("authority.pem");
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_SENTINEL_PASSWORD_FILE", &password),
        ("REDIS_CA_FILE", &ca),
    ];
    is_served(&settings[..2], false).await;
    is_served(&settings, true).await;
}

#[test]
fn what_the_url_makes_no_use_of_is_told() {
    let authority = Authority::new();
    let ca = authority.file("authority.pem");
    let key = authority.file("server.key");
    let plain = ("REDIS_URL", "redis://127.0.0.1:1");
    let encrypted = ("REDIS_URL", "rediss://127.0.0.1:1");
    let password = ("REDIS_SENTINEL_PASSWORD", SENTINEL_PASSWORD);
    let user = ("REDIS_SENTINEL_USER", SENTINEL_USER);
    #[rustfmt::skip]
    let rows = [
        ([plain, ("REDIS_CA_FILE", ca.as_str())], ["REDIS_CA_FILE", "rediss"]),
        ([encrypted, ("REDIS_CA_FILE", &key)], ["REDIS_CA_FILE", "no certificate"]),
        ([encrypted, password], ["REDIS_SENTINEL_PASSWORD", "redis+sentinel"]),
        ([plain, user], ["REDIS_SENTINEL_USER", "REDIS_SENTINEL_PASSWORD"]),
    ];
    for (settings, words) in rows {
        setting_fault(&settings, &words);
    }
}
