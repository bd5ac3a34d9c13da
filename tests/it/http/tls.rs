//! TLS: with a certificate that is replaced while perdiem runs, and clients that do not speak it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use perdiem::http::{ServeOptions, TlsFiles};
use reqwest::{Certificate, Client, tls};
use serde_json::json;
use tempfile::tempfile;

use crate::cli::setting_fault;
use crate::support::app::{
    Answer, App, Ground, KEY, Stack, client_builder, eventually, serve_options,
};
use crate::support::authority::Authority;
use crate::support::process::Process;
use crate::support::terminal::Said;

const DEADLINE: Duration = Duration::from_secs(30);

fn options(authority: &Authority) -> ServeOptions {
    ServeOptions {
        tls: Some(TlsFiles {
            certificate: authority.file("server.pem").into(),
            key: authority.file("server.key").into(),
        }),
        ..serve_options()
    }
}

async fn secure(authority: &Authority) -> App {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::try_serve(&ground, options(authority), |_| {}).await;
    app.expect("the application starts")
}

/// A client that trusts an authority.
fn trusting(authority: &Authority) -> reqwest::ClientBuilder {
    let pem = std::fs::read(authority.file("authority.pem")).expect("a certificate");
    let ca = Certificate::from_pem(&pem).expect("a certificate");
    client_builder().tls_certs_only([ca])
}

async fn get(client: &Client, app: &App, path: &str) -> Answer {
    let url = format!("{}{path}", app.url);
    Answer::of(client.get(url).bearer_auth(KEY)).await
}

fn connect(app: &App) -> TcpStream {
    let stream = TcpStream::connect(app.url.trim_start_matches("https://"));
    let stream = stream.expect("a connection");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a time limit");
    stream
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    String::from_utf8(bytes).expect("a text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_large_answers_come_through_tls() {
    let authority = Authority::new();
    let app = secure(&authority).await;
    assert!(app.url.starts_with("https://"), "{}", app.url);
    let versions = [tls::Version::TLS_1_2, tls::Version::TLS_1_3];
    for (number, version) in versions.into_iter().enumerate() {
        let client = trusting(&authority)
            .tls_version_min(version)
            .tls_version_max(version);
        let client = client.build().expect("a client");
        let at = |path: &str| format!("{}{path}", app.url);
        let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
        let put = client.put(at("/v1/policies/benefit")).bearer_auth(KEY);
        Answer::of(put.json(&rule)).await.is([201, 200][number]);
        let claims = at("/v1/policies/benefit/claims");
        for _ in 0..3 {
            let claim = client.post(&claims).bearer_auth(KEY);
            Answer::of(claim.json(&json!({ "subject": "member-42" })))
                .await
                .is(201);
        }
        // Larger than every buffer.
        let document = get(&client, &app, "/openapi.yaml").await;
        assert_eq!(
            document.text,
            std::fs::read_to_string("openapi.yaml").expect("a file")
        );
    }
}

/// Nobody has to restart perdiem when a certificate ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_taken_without_a_restart() {
    let old = Authority::new();
    let new = Authority::new();
    let app = secure(&old).await;
    let open = trusting(&old).build().expect("a client");
    assert_eq!(get(&open, &app, "/livez").await.status, 200);
    let is_trusted = async |authority: &Authority| {
        let client = trusting(authority).build().expect("a client");
        client
            .get(format!("{}/livez", app.url))
            .send()
            .await
            .is_ok()
    };
    assert!(is_trusted(&old).await && !is_trusted(&new).await);
    // 1. The certificate comes first, without its key: the one before stays.
    std::fs::copy(new.file("server.pem"), old.file("server.pem")).expect("a copy");
    assert!(is_trusted(&old).await);
    // 2. The key follows.
    std::fs::copy(new.file("server.key"), old.file("server.key")).expect("a copy");
    eventually("the new certificate is in use", async || {
        is_trusted(&new).await
    })
    .await;
    assert!(!is_trusted(&old).await);
    // 3. An open connection goes on.
    assert_eq!(get(&open, &app, "/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_tls_is_told() {
    let authority = Authority::new();
    let app = secure(&authority).await;
    for body in [0, 100_000] {
        let mut stream = connect(&app);
        let body = "a".repeat(body);
        let length = body.len();
        let head = format!(
            "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n"
        );
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .expect("the text is sent");
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 400 Ba");
        if length == 0 {
            let rest = read_to_end(stream);
            assert!(rest.contains("https:// instead of http://"), "{rest}");
        }
    }
    // What is neither ends without an answer.
    let mut stream = connect(&app);
    stream
        .write_all(&[22, 3, 1, 0, 5, 9, 9, 9, 9, 9])
        .expect("the bytes are sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
}

/// A handshake has the time of a head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_end_is_ended() {
    let authority = Authority::new();
    let mut options = options(&authority);
    options.request_time = Duration::from_millis(300);
    let ground = Ground::new(Stack::Sqlite);
    let app = App::try_serve(&ground, options, |_| {}).await;
    let app = app.expect("the application starts");
    for begun in [&b""[..], &[22, 3, 1]] {
        let mut stream = connect(&app);
        stream.write_all(begun).expect("the bytes are sent");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end");
        assert_eq!(rest, b"");
    }
}

/// By its settings, with its commands and its log, which failed handshakes do not fill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_speaks_tls() {
    let authority = Authority::new();
    let ground = Ground::new(Stack::Sqlite);
    let certificate = authority.file("server.pem");
    let key = authority.file("server.key");
    let settings = [
        ("PERDIEM_TLS_CERTIFICATE_FILE", certificate.as_str()),
        ("PERDIEM_TLS_KEY_FILE", &key),
    ];
    let log = tempfile().expect("a file");
    let into = log.try_clone().expect("a file");
    let process = Process::try_start_logging(&ground.database_url, &settings, into);
    let mut process = process.expect("the process starts");
    // 1. The commands trust the authority that the variable names.
    let ca = authority.file("authority.pem");
    let trusts = [("SSL_CERT_FILE", ca.as_str())];
    let said = Said::with_variables(&process.url, KEY, &["status"], &trusts).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = Said::with_key(&process.url, KEY, &["status"]).await;
    assert_ne!(said.code, 0);
    assert!(
        said.stderr.contains("certificate is not accepted"),
        "{said:?}"
    );
    let plain = process.url.replace("https", "http");
    let said = Said::with_key(&plain, KEY, &["status"]).await;
    assert!(said.stderr.contains("https://"), "{said:?}");
    // 2. A new certificate without its key is told once.
    let lines = |mut log: &File| {
        let mut text = String::new();
        log.rewind().expect("a file");
        log.read_to_string(&mut text).expect("a log");
        text
    };
    authority.renew("other");
    std::fs::copy(authority.file("other.pem"), &certificate).expect("a copy");
    eventually("the fault is told", async || {
        lines(&log).contains("the one before stays")
    })
    .await;
    let url = process.url.trim_start_matches("https://").to_owned();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&url).expect("a connection");
        stream.write_all(b"nonsense").expect("the text is sent");
    }
    process.terminate();
    assert!(process.wait().success());
    let text = lines(&log);
    assert_eq!(text.matches("the one before stays").count(), 1, "{text}");
    assert!(text.contains("PERDIEM_TLS_KEY_FILE"), "{text}");
    assert!(text.lines().count() < 40, "{text}");
}

#[test]
fn files_that_cannot_be_used_stop_the_start() {
    let authority = Authority::new();
    let other = Authority::new();
    let certificate = authority.file("server.pem");
    let key = authority.file("server.key");
    let other_key = other.file("server.key");
    let nothing = authority.file("nothing");
    let nonsense = authority.file("nonsense.key");
    std::fs::write(&nonsense, "nonsense").expect("a file");
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&nonsense, closed).expect("the file's mode");
    let open = authority.file("open.key");
    std::fs::copy(&key, &open).expect("a copy");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&open, mode).expect("the file's mode");
    const CERTIFICATE: &str = "PERDIEM_TLS_CERTIFICATE_FILE";
    const PRIVATE_KEY: &str = "PERDIEM_TLS_KEY_FILE";
    for (with, words) in [
        ((&certificate, &nothing), [PRIVATE_KEY, "No such file"]),
        ((&nothing, &key), [CERTIFICATE, "No such file"]),
        (
            (&certificate, &other_key),
            [PRIVATE_KEY, "not that of the certificate"],
        ),
        ((&certificate, &nonsense), [PRIVATE_KEY, "no private key"]),
        ((&key, &key), [CERTIFICATE, "no certificate"]),
        ((&certificate, &open), [PRIVATE_KEY, "chmod o="]),
    ] {
        let settings = [
            (CERTIFICATE, with.0.as_str()),
            (PRIVATE_KEY, with.1.as_str()),
        ];
        setting_fault(&settings, &words);
    }
    setting_fault(&[(CERTIFICATE, &certificate)], &[PRIVATE_KEY]);
    setting_fault(&[(PRIVATE_KEY, &key)], &[CERTIFICATE]);
}
