//! Slow clients, and clients that send no HTTP: the bounds of a connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perdiem::http::ServeOptions;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::tempfile;

use crate::support::app::{Answer, App, Ground, KEY, Stack, serve_options};
use crate::support::process::Process;

/// Longer than every time limit of these tests, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);

async fn hasty(change: impl FnOnce(&mut ServeOptions)) -> App {
    hasty_on(&Ground::new(Stack::Sqlite), change).await
}

async fn hasty_on(ground: &Ground, change: impl FnOnce(&mut ServeOptions)) -> App {
    let mut serve = serve_options();
    serve.request_time = Duration::from_millis(300);
    change(&mut serve);
    let app = App::try_serve(ground, serve, |_| {}).await;
    app.expect("the application starts")
}

/// A ground where 3 per day are granted. The short time limits of these tests are for slow clients. A busy machine
/// could make the client slow that puts the policy.
async fn with_benefit() -> Ground {
    let ground = Ground::new(Stack::Sqlite);
    App::start(&ground).await.benefit(3, "UTC").await;
    ground
}

fn connect(url: &str) -> TcpStream {
    let address = url.trim_start_matches("http://");
    let stream = TcpStream::connect(address).expect("a connection");
    stream
        .set_read_timeout(Some(DEADLINE))
        .expect("a time limit");
    stream
}

fn sent(app: &App, text: &str) -> TcpStream {
    let mut stream = connect(&app.url);
    stream.write_all(text.as_bytes()).expect("the text is sent");
    stream
}

/// Everything that the server sends until the server closes the connection.
fn read_to_end(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        // The server can close the connection while the client still sends.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        read => drop(read.expect("the connection is closed in time")),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[track_caller]
fn has_status(answer: &str, status: u16) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
}

/// Sends a piece again and again until the connection closes. Returns the answer.
fn trickle(app: &App, head: &str, piece: &str) -> String {
    let stream = sent(app, head);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Instant::now() + DEADLINE;
            let mut to = &stream;
            while !is_over.load(Ordering::SeqCst) && Instant::now() < deadline {
                if to.write_all(piece.as_bytes()).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        let answer = read_to_end(&stream);
        is_over.store(true, Ordering::SeqCst);
        answer
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_head_or_body_is_cut() {
    let ground = with_benefit().await;
    let app = hasty_on(&ground, |_| {}).await;
    let head = "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost:";
    let body = format!(
        "{head} here\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: 25\r\n\r\n{{\"subject\":"
    );
    for begun in [head, &body] {
        let answer = read_to_end(&sent(&app, begun));
        has_status(&answer, 408);
        explained(&answer, "slow-request");
    }
    drop(app);
    let patient = App::start(&ground).await;
    let used = crate::http::used(&patient, "benefit", "member-42").await;
    assert_eq!(used, [0]);
}

/// The slow head is the second one of its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_trickles_is_cut() {
    let app = hasty(|_| {}).await;
    let head = "GET /livez HTTP/1.1\r\nHost: here\r\n\r\nGET /livez HTTP/1.1\r\n";
    let answer = trickle(&app, head, "x: y\r\n");
    has_status(&answer, 200);
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

/// The slow head came together with a whole claim, which the connection answers itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_head_after_a_claim_is_cut() {
    let ground = with_benefit().await;
    let app = hasty_on(&ground, |serve| serve.idle_time = 2 * DEADLINE).await;
    let body = r#"{"subject":"member-42"}"#;
    let claim = format!(
        "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for begun in ["GET /livez HT", "\r\n"] {
        let answer = read_to_end(&sent(&app, &format!("{claim}{begun}")));
        has_status(&answer, 201);
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
}

/// The server cuts a slow body, whether or not a handler reads the body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_trickles_is_cut() {
    let app = hasty(|_| {}).await;
    let with_key = format!("Authorization: Bearer {KEY}\r\n");
    for (request, fields, status) in [
        ("POST /v1/policies/benefit/claims", "", 401),
        ("POST /v1/policies/benefit/claims", with_key.as_str(), 408),
        ("POST /nowhere", "", 404),
        ("GET /livez", "", 200),
        ("GET /v1/policies", with_key.as_str(), 200),
        ("DELETE /v1/policies/benefit?reason=over", "", 401),
    ] {
        let head = format!("{request} HTTP/1.1\r\nHost: here\r\n{fields}");
        let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        let sized = format!("{head}Content-Length: 60000\r\n\r\n");
        for (head, piece) in [(chunked, "1\r\n \r\n"), (sized, " ")] {
            let answer = trickle(&app, &head, piece);
            has_status(&answer, status);
        }
    }
}

/// An idle connection, and a connection on which the rest of a body does not come after the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_on_which_nothing_moves_is_closed() {
    let app = hasty(|serve| serve.idle_time = Duration::from_millis(300)).await;
    for (head, status) in [
        ("GET /livez HTTP/1.1\r\nHost: here\r\n\r\n", 200),
        (
            "POST /nowhere HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n",
            404,
        ),
    ] {
        let answer = read_to_end(&sent(&app, head));
        has_status(&answer, status);
    }
}

/// Checks the problem document of an answer that comes from no handler, and returns the document.
fn explained(answer: &str, kind: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains("\r\nx-request-id: "), "{answer}");
    assert!(head.contains("\r\ncache-control: no-store\r\n"), "{answer}");
    assert!(head.contains("application/problem+json"), "{answer}");
    let problem: Value = serde_json::from_str(body).expect("a problem");
    let type_of = problem["type"].as_str().expect("a type");
    assert_eq!(type_of.rsplit('#').next(), Some(kind), "{answer}");
    problem
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_http_is_told_so() {
    let app = hasty(|_| {}).await;
    let many: String = (0..200).map(|field| format!("x-{field}: 1\r\n")).collect();
    let long = "x".repeat(200_000);
    #[rustfmt::skip]
    let rows = [
        ("nonsense\r\n\r\n".to_owned(), 400, "malformed"),
        ("GET / HTTP/1.1\r\nHost here\r\n\r\n".to_owned(), 400, "malformed"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431, "too-large"),
        (
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(),
            400,
            "malformed",
        ),
        (format!("GET / HTTP/1.1\r\nx: {long}"), 431, "too-large"),
    ];
    for (request, status, kind) in rows {
        let stream = connect(&app.url);
        // The server can close the connection before it has read everything.
        let _ = (&stream).write_all(request.as_bytes());
        let answer = read_to_end(&stream);
        has_status(&answer, status);
        let problem = explained(&answer, kind);
        assert_eq!(problem["status"], status);
    }
}

/// nginx asks in HTTP/1.0 unless it is told otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_client_gets_no_chunks() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(9, "UTC").await;
    let grant = app.claim("member-42", None).await.grant_id();
    let path = "/v1/grants/export?format=csv";
    let ask = |version: &str, fields: &str| {
        let head =
            format!("GET {path} HTTP/{version}\r\nAuthorization: Bearer {KEY}\r\n{fields}\r\n\r\n");
        read_to_end(&sent(&app, &head))
    };
    let newer = ask("1.1", "Host: here\r\nConnection: close");
    assert!(newer.contains("transfer-encoding: chunked"), "{newer}");
    let answer = ask("1.0", "Connection: keep-alive");
    assert!(answer.contains(" 200 OK\r\n"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let mut lines = body.lines();
    assert!(
        lines.next().is_some_and(|line| line.contains("subject")),
        "{answer}"
    );
    assert!(
        lines.next().is_some_and(|line| line.contains(&grant)),
        "{answer}"
    );
    assert_eq!(lines.next(), None, "{answer}");
}

/// A reader stops. The server closes the connection in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_reads_is_given_up() {
    let app = hasty(|serve| serve.stall_time = Duration::from_millis(300)).await;
    let request =
        format!("GET /openapi.yaml HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {KEY}\r\n\r\n");
    let stream = connect(&app.url);
    let deadline = Instant::now() + DEADLINE;
    // No system's buffers can hold all these answers.
    while (&stream).write_all(request.as_bytes()).is_ok() {
        assert!(Instant::now() < deadline, "the connection is still open");
    }
}

/// Bytes that arrive while the process is stopped arrive in time: a whole request on a new
/// connection, the rest of a head, and a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_waits_for_nobody() {
    let ground = Ground::new(Stack::Sqlite);
    let settings = [
        ("PERDIEM_REQUEST_SECONDS", "1"),
        ("PERDIEM_IDLE_SECONDS", "1"),
        // The claim's deadline begins when the process continues. A slow disk must not fail this
        // test.
        ("PERDIEM_CLAIM_DEADLINE_MS", "60000"),
    ];
    let process = Process::start(&ground.database_url, &settings);
    let body = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    let put = process.request(Method::PUT, "/v1/policies/benefit");
    assert_eq!(Answer::of(put.json(&body)).await.status, 201);
    let body = r#"{"subject": "member-42"}"#;
    let head = format!(
        "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
         Authorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // The stop is longer than the process's time limits.
    let stopped_for = Duration::from_secs(3);

    let begun = connect(&process.url);
    (&begun)
        .write_all(head.as_bytes())
        .expect("the head is sent");
    let waiting = connect(&process.url);
    (&waiting)
        .write_all(&head.as_bytes()[..20])
        .expect("a part is sent");
    process.pause();
    let stopped_at = Instant::now();
    let new = connect(&process.url);
    (&new)
        .write_all((head.clone() + body).as_bytes())
        .expect("the request is sent");
    (&begun)
        .write_all(body.as_bytes())
        .expect("the body is sent");
    let rest = head[20..].to_owned() + body;
    (&waiting)
        .write_all(rest.as_bytes())
        .expect("the rest is sent");
    while stopped_at.elapsed() < stopped_for {
        thread::sleep(Duration::from_millis(20));
    }
    process.resume();
    for stream in [&begun, &waiting, &new] {
        let answer = read_to_end(stream);
        has_status(&answer, 201);
    }
}

/// The readers stop. The process ends before its drain time of 600 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ending_process_waits_for_no_reader_that_stopped() {
    let ground = Ground::new(Stack::Sqlite);
    let settings = [
        ("PERDIEM_STALL_SECONDS", "1"),
        ("PERDIEM_DRAIN_SECONDS", "600"),
    ];
    let mut process = Process::start(&ground.database_url, &settings);
    let mut stream = connect(&process.url);
    let request = "GET /openapi.yaml HTTP/1.1\r\nHost: here\r\n\r\n".repeat(200);
    stream
        .write_all(request.as_bytes())
        .expect("the text is sent");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a head");
    process.terminate();
    assert!(process.wait().success());
}

/// Requests that are not HTTP do not fill the log, however many arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_does_not_fill_the_log() {
    let ground = Ground::new(Stack::Sqlite);
    let mut log = tempfile().expect("a file");
    let into = log.try_clone().expect("a file");
    let process = Process::try_start_logging(&ground.database_url, &[], into);
    let process = process.expect("the process starts");
    let began = Instant::now();
    for _ in 0..500 {
        let mut stream = connect(&process.url);
        stream
            .write_all(b"nonsense\r\n\r\n")
            .expect("the text is sent");
        let answer = read_to_end(&stream);
        has_status(&answer, 400);
    }
    let seconds = began.elapsed().as_secs() + 2;
    drop(process);
    let mut text = String::new();
    std::io::Seek::rewind(&mut log).expect("a file");
    log.read_to_string(&mut text).expect("a log");
    let lines = text.matches("stream error").count() as u64;
    assert!(lines <= 10 * seconds, "{lines} in {seconds} s");
}
