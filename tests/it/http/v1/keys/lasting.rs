//! Requests that last longer than their key: polls, exports, and answers that are read slowly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::{Made, end, make, make_role, revoke, with};
use crate::http::problem;
use crate::http::v1::exports::fill;
use crate::support::app::{Answer, App, Ground, KEY, NOON, Stack, eventually, serve_options};
use crate::support::desk::on_every_store;

/// How long a key that lost its rights may go on reading: a second, and much time for a machine that
/// is busy with other tests. The requests of these tests would last longer.
const SOON: Duration = Duration::from_secs(15);

on_every_store!(a_poll_ends_with_its_key, an_export_ends_with_its_key);

async fn waiting_at(app: &App) -> String {
    app.benefit(3, "UTC").await;
    let newest = app.get("/v1/entries").await.is(200)["as_of"].clone();
    format!("/v1/entries?after={newest}&wait=30")
}

/// A poll that waits, as a task.
fn poll(app: &App, key: &Made, path: &str) -> tokio::task::JoinHandle<(Answer, Instant)> {
    let request = with(app, &key.secret, Method::GET, path);
    tokio::spawn(async move { (Answer::of(request).await, Instant::now()) })
}

async fn a_poll_ends_with_its_key(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let path = waiting_at(&app).await;
    let ends_at = "2026-11-21T04:00:00Z";
    let body = json!({ "name": "a guest", "role": "audit", "ends_at": ends_at });
    let guest = make(&app, body).await;
    let [revoked, ended, kept] = [(); 3].map(|()| make_role(&app, "audit", None));
    let revoked = revoked.await;
    let ended = ended.await;
    let kept = kept.await;
    let all = [&revoked, &ended, &guest, &kept];
    let [of_revoked, of_ended, of_guest, of_kept] = all.map(|key| poll(&app, key, &path));
    eventually("all of them wait", || async {
        let metrics = app.get("/metrics").await.text;
        metrics.contains("\nperdiem_requests_waiting 4\n")
    })
    .await;

    let began = Instant::now();
    assert_eq!(revoke(&app, KEY, &revoked.id).await.status, 200);
    assert_eq!(
        end(&app, KEY, &ended.id, Some("2026-11-21T03:30:00Z"))
            .await
            .status,
        200
    );
    clock.set(crate::support::app::instant(ends_at));
    for (name, waiting) in [
        ("revoked", of_revoked),
        ("ended", of_ended),
        ("guest", of_guest),
    ] {
        let (answer, at) = waiting.await.expect("an answer");
        problem(&answer, 401, "unauthorized");
        assert!(
            answer.text.contains("while the request was in progress"),
            "{answer:?}"
        );
        assert!(at - began < SOON, "{name}: {:?}", at - began);
    }
    // Another key goes on, and gets the next entry.
    app.claim("member-42", None).await.is(201);
    let (answer, _) = of_kept.await.expect("an answer");
    let items = answer.is(200)["items"].clone();
    assert_eq!(items.as_array().map(Vec::len), Some(1), "{items}");
    assert!(NOON < ends_at);
}

/// An export whose client reads one piece at a time.
async fn exporting(app: &App, key: &Made, path: &str) -> Response {
    let response = with(app, &key.secret, Method::GET, path).send().await;
    let response = response.expect("an export");
    assert_eq!(response.status(), 200);
    response
}

async fn an_export_ends_with_its_key(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    fill(&app, &ground, 8001).await;
    eventually("the entries have positions", || async {
        let newest = app.get("/v1/entries?limit=1").await.json();
        newest["as_of"].as_u64() > Some(8001)
    })
    .await;
    for path in ["/v1/entries/export", "/v1/grants/export"] {
        let key = make_role(&app, "audit", None).await;
        let mut export = exporting(&app, &key, &format!("{path}?format=ndjson")).await;
        let mut length = 0;
        for _ in 0..3 {
            length += export
                .chunk()
                .await
                .expect("a piece")
                .map_or(0, |it| it.len());
        }
        assert_eq!(revoke(&app, KEY, &key.id).await.status, 200);
        let began = Instant::now();
        let mut text = String::new();
        let ended = loop {
            match export.chunk().await {
                Ok(Some(piece)) => {
                    length += piece.len();
                    text.push_str(&String::from_utf8_lossy(&piece));
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(
            ended.is_err(),
            "{path} came to its end after {length} bytes"
        );
        assert!(!text.contains("{\"manifest\""), "{path}");
        assert!(began.elapsed() < SOON, "{path}: {:?}", began.elapsed());
    }
}

/// The client reads a little of its answer now and then, and never too little for the time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_read_slowly_ends_with_its_key() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::try_serve(&ground, serve_options(), |_| {}).await;
    let app = app.expect("the application starts");
    fill(&app, &ground, 1001).await;
    let key = make_role(&app, "audit", None).await;
    let address = app.url.trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).expect("a connection");
    socket2::SockRef::from(&stream)
        .set_recv_buffer_size(4096)
        .expect("a small buffer");
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).expect("a time limit");
    let request = format!(
        "GET /v1/grants?limit=1000 HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {}\r\n\r\n",
        key.secret
    );
    stream
        .write_all(request.as_bytes())
        .expect("the request is sent");
    let reading = thread::spawn(move || {
        let mut piece = [0; 1000];
        let mut read = 0;
        loop {
            thread::sleep(Duration::from_millis(20));
            match stream.read(&mut piece) {
                Ok(0) => return (Ok(()), read),
                Ok(length) => read += length,
                Err(error) => return (Err(error.kind()), read),
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(revoke(&app, KEY, &key.id).await.status, 200);
    let began = Instant::now();
    eventually("the connection is cut", || async { reading.is_finished() }).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let (ended, read) = reading.join().expect("the reader ends");
    assert_eq!(ended, Err(ErrorKind::ConnectionReset));
    assert!(read < 1_000_000, "{read} bytes of some megabytes");
    assert_eq!(
        app.get("/v1/keys").await.is(200)["next_cursor"],
        Value::Null
    );
}
