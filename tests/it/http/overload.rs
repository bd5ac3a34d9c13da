//! More than can be done, and clients that take their time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::StatusCode;

use crate::support::app::{App, Ground, KEY, Stack, eventually, serve_options};
use crate::support::servers::Postgres;

/// All that the server sends until it closes the connection.
fn read_to_end(stream: &mut TcpStream) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    let mut bytes = Vec::new();
    stream
        .read_to_end(&mut bytes)
        .expect("the connection is closed in time");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn hasty(idle_time: Duration) -> (App, TcpStream) {
    let ground = Ground::new(Stack::Sqlite);
    let mut serve = serve_options();
    serve.request_time = Duration::from_millis(300);
    serve.idle_time = idle_time;
    let app = App::try_serve(&ground, serve, |_| {}).await;
    let app = app.expect("the application starts");
    app.benefit(3, "UTC").await;
    let address = app.url.trim_start_matches("http://").to_owned();
    let stream = TcpStream::connect(address).expect("a connection");
    (app, stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_head_is_cut() {
    let (_app, mut stream) = hasty(Duration::from_secs(60)).await;
    stream
        .write_all(b"POST /v1/policies/benefit/claims HTTP/1.1\r\nHost:")
        .expect("sent");
    let answer = read_to_end(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_body_is_cut() {
    let (app, mut stream) = hasty(Duration::from_secs(60)).await;
    let head = format!(
        "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: 25\r\n\r\n{{\"subject\":"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let answer = read_to_end(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("slow-request"), "{answer}");
    let usage = app.get("/v1/policies/benefit/subjects/member-42").await;
    assert_eq!(usage.json()["limits"][0]["used"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed() {
    let (_app, mut stream) = hasty(Duration::from_secs(1)).await;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n")
        .expect("sent");
    let answer = read_to_end(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Claims that wait for a ledger that hangs fill the house; the next one is told at once, and
/// those that waited are decided when the ledger goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_what_it_takes_on_the_answer_is_503() {
    let postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    let app = App::start_with(&ground, |options| options.claims_most = 4).await;
    app.benefit(100, "UTC").await;
    postgres.pause();
    let waiting = async {
        let subjects = ["member-1", "member-2", "member-3", "member-4"];
        join_all(subjects.map(|subject| app.claim(subject, None))).await
    };
    let one_too_many = async {
        eventually("the house is full", || async {
            let metrics = app.get("/metrics").await.text;
            metrics
                .lines()
                .any(|line| line == "perdiem_claims_under_way 4")
        })
        .await;
        let answer = app.claim("member-5", None).await;
        postgres.resume();
        answer
    };
    let (waited, refused) = tokio::join!(waiting, one_too_many);
    assert_eq!(
        refused.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{refused:?}"
    );
    assert_eq!(refused.header("Retry-After"), Some("1"));
    assert!(refused.text.contains("undecided"), "{refused:?}");
    for answer in waited {
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    }
}
