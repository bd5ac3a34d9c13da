//! Clients without a key, and clients that do not read: what they may cost.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::http::{CLAIMS, used};
use crate::support::app::{Answer, App, Ground, KEY, Stack, eventually, serve_options};
use crate::support::process::Process;

/// A connection from an address of this machine, with a small receive buffer.
fn connect_from(last: [u8; 2], url: &str) -> TcpStream {
    let address: SocketAddr = url
        .trim_start_matches("http://")
        .parse()
        .expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let from = SocketAddr::from(([127, 7, last[0], last[1]], 0));
    socket.bind(&from.into()).expect("an address");
    socket.connect(&address.into()).expect("a connection");
    let stream = TcpStream::from(socket);
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).expect("a time limit");
    stream
}

/// The memory of a process, and of the system's TCP buffers, in bytes.
fn memory(process: &Process) -> (u64, u64) {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    let statm = fs::read_to_string(format!("/proc/{}/statm", process.id())).expect("a process");
    let resident = number(statm.split(' ').nth(1)).expect("pages");
    let stats = fs::read_to_string("/proc/net/sockstat").expect("statistics");
    let of_tcp = stats.lines().find(|line| line.starts_with("TCP:"));
    let mut words = of_tcp
        .expect("a line")
        .split(' ')
        .skip_while(|word| *word != "mem");
    let buffers = number(words.nth(1)).expect("pages");
    (resident * 4096, buffers * 4096)
}

/// 150 clients send 15 requests each for a document, and read nothing. Without bounds this takes
/// 0.6 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_cost_little() {
    let ground = Ground::new(Stack::Sqlite);
    let process = Process::start(&ground.database_url, &[("PERDIEM_STALL_SECONDS", "600")]);
    let limits = json!([{ "max": 1000, "per": "year" }]);
    let put = process.request(Method::PUT, "/v1/policies/benefit");
    let put = put.json(&json!({ "time_zone": "UTC", "limits": limits }));
    Answer::of(put).await.is(201);
    Answer::of(process.request(Method::GET, "/openapi.yaml")).await;
    let (resident, buffers) = memory(&process);
    let text = "GET /openapi.yaml HTTP/1.1\r\nHost: here\r\n\r\n".repeat(15);
    let flood = (0..150).map(|_| {
        let mut stream = connect_from([1, 1], &process.url);
        stream
            .write_all(text.as_bytes())
            .expect("the requests are sent");
        stream
    });
    let flood: Vec<_> = flood.collect();
    let mut most_resident = 0;
    let mut most_buffers = 0;
    for _ in 0..100 {
        let claim = process.request(Method::POST, CLAIMS);
        Answer::of(claim.json(&json!({ "subject": "member-42" })))
            .await
            .is(201);
        let (now_resident, now_buffers) = memory(&process);
        most_resident = most_resident.max(now_resident.saturating_sub(resident));
        most_buffers = most_buffers.max(now_buffers.saturating_sub(buffers));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(flood);
    assert!(
        most_resident < 40_000_000,
        "{most_resident} bytes of the process"
    );
    // Other tests run at the same time, and have buffers too.
    assert!(
        most_buffers < 150_000_000,
        "{most_buffers} bytes of buffers"
    );
}

/// The second request of a connection is a claim. It begins when the first answer is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_request_waits_for_the_answer_before_it() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "UTC").await;
    let body = r#"{"subject": "member-42"}"#;
    let requests = format!(
        "GET /openapi.yaml HTTP/1.1\r\nHost: here\r\n\r\n\
         POST {CLAIMS} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Length: {}\r\n\r\n{body}GET /livez HTTP/1.1\r\nHost: here\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    // In one piece, and byte by byte.
    for (piece, count) in [(requests.len(), 1), (1, 2)] {
        let mut stream = connect_from([1, 2], &app.url);
        stream.set_nodelay(true).expect("no delay");
        for piece in requests.as_bytes().chunks(piece) {
            stream.write_all(piece).expect("the requests are sent");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(used(&app, "benefit", "member-42").await, [count - 1]);
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("all answers");
        let end = &text[text.len() - 1500..];
        assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{end}");
        assert_eq!(text.matches("HTTP/1.1 201").count(), 1);
        assert!(text.ends_with("ok\n"));
        assert_eq!(used(&app, "benefit", "member-42").await, [count]);
    }
}

/// A client that is gone frees what its request in progress holds, although nothing reads ahead of
/// the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_ends_a_request_that_waits() {
    let app = App::on(Stack::Sqlite).await;
    let waits = async |text: &str| {
        let metrics = app.get("/metrics").await.text;
        metrics.contains(text)
    };
    let stream = connect_from([1, 3], &app.url);
    let request = format!(
        "GET /v1/entries?wait=30 HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    (&stream)
        .write_all(request.as_bytes())
        .expect("the request is sent");
    eventually("the request waits", || {
        waits("perdiem_requests_waiting 1\n")
    })
    .await;
    let reset = socket2::SockRef::from(&stream);
    reset.set_linger(Some(Duration::ZERO)).expect("a reset");
    drop(stream);
    let reset_at = Instant::now();
    eventually("nobody waits", || waits("perdiem_requests_waiting 0\n")).await;
    assert!(reset_at.elapsed() < Duration::from_secs(20));
}

fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a mode");
    match { stream }.read(&mut [0]) {
        Ok(0) => true,
        Ok(_) => panic!("an answer to nothing"),
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// One address opens more connections than it may have. The oldest ones without a key are closed. A
/// connection that has shown a key stays, and so do those of other addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_key_are_few() {
    let mut serve = serve_options();
    serve.request_time = Duration::from_secs(60);
    serve.idle_time = Duration::from_secs(60);
    let app = App::try_serve(&Ground::new(Stack::Sqlite), serve, |_| {}).await;
    let app = app.expect("the application starts");
    app.benefit(3, "UTC").await;
    let answer = |stream: &mut TcpStream, key: &str| {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        while !text.ends_with(b"# EOF\n") && !text.ends_with(b"}") {
            let length = stream.read(&mut piece).expect("an answer");
            assert!(length > 0, "{}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&text[9..12]).into_owned()
    };
    let mut with_key = connect_from([2, 1], &app.url);
    assert_eq!(answer(&mut with_key, KEY), "200");
    let mut with_wrong_key = connect_from([2, 1], &app.url);
    assert_eq!(answer(&mut with_wrong_key, "a-wrong-key"), "401");
    let other = connect_from([2, 2], &app.url);
    // Connections that ask nothing cost little: they are not in the way of the others.
    let silent: Vec<_> = (0..300).map(|_| connect_from([2, 1], &app.url)).collect();
    let crowd = (0..300).map(|_| {
        let mut stream = connect_from([2, 1], &app.url);
        let request = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).expect("a request");
        let mut text = Vec::new();
        let mut piece = [0; 512];
        while !text.ends_with(b"ok\n") {
            let length = stream.read(&mut piece).expect("an answer");
            text.extend_from_slice(&piece[..length]);
        }
        stream
    });
    let crowd: Vec<_> = crowd.collect();
    eventually("the oldest are closed", || async {
        crowd.iter().filter(|stream| is_closed(stream)).count() == 44
    })
    .await;
    assert!(crowd[..44].iter().all(is_closed));
    assert!(!silent.iter().any(is_closed));
    assert!(is_closed(&with_wrong_key));
    assert!(!is_closed(&other));
    with_key.set_nonblocking(false).expect("a mode");
    assert_eq!(answer(&mut with_key, KEY), "200");
    let began = Instant::now();
    app.claim("member-42", None).await.is(201);
    assert!(began.elapsed() < Duration::from_secs(15));
}
