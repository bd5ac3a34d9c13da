//! Claims that the connection answers itself: the answers are those of the usual way, and no bytes of
//! another request are taken for a claim.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::v1::keys::make_role;
use super::{replace, used};
use crate::support::app::{App, Ground, KEY, Stack, eventually};
use crate::support::direct::Direct;

/// Longer than every answer takes, also on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(30);
/// A field with which a claim goes the usual way. It changes nothing else.
const USUAL: &str = "Content-Encoding: identity\r\n";

/// A client's connection.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer without what differs from answer to answer.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    status: String,
    fields: Vec<String>,
    body: String,
}

impl Client {
    fn of(app: &App) -> Self {
        Self::at(&app.url)
    }

    fn at(url: &str) -> Self {
        let address = url.trim_start_matches("http://");
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let most = Some(DEADLINE);
        stream.set_read_timeout(most).expect("a time limit");
        let read = Vec::new();
        Self { stream, read }
    }

    fn send(&mut self, text: &str) {
        self.stream
            .write_all(text.as_bytes())
            .expect("the text is sent");
    }

    /// Reads one answer.
    fn read(&mut self) -> Told {
        let end = self.read_until(|read| position(read, b"\r\n\r\n"));
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("a head in ASCII");
        let mut lines = head.trim_end().lines().map(str::to_owned);
        let status = lines.next().expect("a status line");
        let mut fields: Vec<String> = lines.collect();
        fields.sort();
        let length = fields
            .iter()
            .find_map(|it| it.strip_prefix("content-length: "));
        let length = length.expect("a length").parse().expect("a number");
        self.read_until(|read| (read.len() >= length).then_some(length));
        let body: Vec<u8> = self.read.drain(..length).collect();
        let body = String::from_utf8(body).expect("a body in UTF-8");
        Told {
            status,
            fields,
            body,
        }
        .without_accidents()
    }

    fn read_until(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> usize {
        loop {
            if let Some(end) = end(&self.read) {
                return end;
            }
            let mut space = [0; 4096];
            let length = self.stream.read(&mut space).expect("more of the answer");
            assert!(length > 0, "{}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&space[..length]);
        }
    }

    /// Reads until the server closes the connection.
    fn read_to_end(mut self) -> String {
        // A server that has bytes left of the client resets the connection.
        let _ = self.stream.read_to_end(&mut self.read);
        String::from_utf8_lossy(&self.read).into_owned()
    }

    fn exchange(&mut self, text: &str) -> Told {
        self.send(text);
        self.read()
    }
}

impl Told {
    /// The grant's id, the request's id if perdiem chose it, and the `Date` differ.
    fn without_accidents(mut self) -> Self {
        for field in &mut self.fields {
            let (name, value) = field.split_once(": ").expect("a field");
            let is_chosen = name == "x-request-id" && value.len() == 36;
            if name == "date" || is_chosen {
                *field = format!("{name}: {} bytes", value.len());
            }
        }
        let json: Value = serde_json::from_str(&self.body).unwrap_or_default();
        if let Some(id) = json["grant"]["id"].as_str() {
            self.body = self.body.replace(id, "(id)");
        }
        let id = json["request_id"].as_str().filter(|id| id.len() == 36);
        if let Some(id) = id {
            self.body = self.body.replace(id, "(id)");
        }
        self
    }
}

/// Lets some time pass, so that the server reads what was sent.
async fn pass(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|it| it == wanted)
}

/// A claim under `benefit` with the admin key and more fields.
fn claim(fields: &str, body: &str) -> String {
    let fields = format!("Authorization: Bearer {KEY}\r\n{fields}");
    post("/v1/policies/benefit/claims", &fields, body)
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: here\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

/// Every claim that the specification speaks of, with keys that may claim and keys that may not.
fn claims(secrets: &[(&str, String)]) -> Vec<String> {
    let key = |key: &str| format!("Idempotency-Key: {key}\r\n");
    let own_id = |id: &str| format!("X-Request-ID: {id}\r\n");
    let trace = |version: &str| {
        let ids = format!("{}-{}", "ab".repeat(16), "cd".repeat(8));
        format!("traceparent: {version}-{ids}-01\r\n")
    };
    let mut claims = vec![
        claim("", r#"{"subject":"a"}"#),
        claim(&key("k1"), r#"{"subject":"a"}"#),
        claim(&key("k1"), r#"{"subject":"a"}"#),
        claim(&key("\"k1\""), r#"{"subject":"a"}"#),
        claim(&key("k1"), r#"{"subject":"a","units":2}"#),
        claim(
            &own_id("mine-1"),
            r#"{"subject":"b","units":2,"metadata":{"b":1.50,"a":"é"}}"#,
        ),
        claim(&own_id("not mine"), r#"{"subject":"b","units":2}"#),
        claim(&trace("00"), r#"{"subject":"b","units":99}"#),
        claim(&trace("00"), r#"{"subject":"c","units":3}"#),
        claim(&trace("ff"), r#"{"subject":"c","units":3}"#),
        claim("", r#"{"subject":"b","units":99}"#),
        claim("", r#"{"subject":"b","dry_run":true}"#),
        claim("", r#"{"subject":"b","units":3,"dry_run":true}"#),
        claim("", r#"{"subject":"c","hold_seconds":600}"#),
        claim("", r#"{"subject":"c","hold_seconds":600,"units":3}"#),
        claim("", r#"{"subject":"blocked"}"#),
        claim("", r#"{"subject":"raised","units":9}"#),
        claim("", r#"{"subject":"\u00e9\"\\"}"#),
        claim(&key("k2"), r#"{"subject":"d","units":1.0}"#),
        claim(&key(""), r#"{"subject":"d"}"#),
        claim(&key(&"k".repeat(256)), r#"{"subject":"d"}"#),
        claim(&(key("k3") + &key("k4")), r#"{"subject":"d"}"#),
        post("/v1/policies/benefit/claims", "", r#"{"subject":"e"}"#),
        post(
            "/v1/policies/benefit/claims",
            "Authorization: Basic a\r\n",
            "{}",
        ),
    ];
    for body in [
        "",
        " ",
        "{}",
        "[]",
        "null",
        "{",
        "\u{0}",
        r#"{"subject":1}"#,
        r#"{"subject":""}"#,
        r#"{"subject":"a\nb"}"#,
        r#"{"subject":"f","subject":"g"}"#,
        r#"{"subject":"f","unit":1}"#,
        r#"{"subject":"f","units":0}"#,
        r#"{"subject":"f","units":-1}"#,
        r#"{"subject":"f"} {}"#,
        r#"{"subject":"f","units":1e99}"#,
        r#"{"subject":"f","hold_seconds":0}"#,
        r#"{"subject":"f","metadata":[]}"#,
        r#"{"subject":"f","dry_run":1}"#,
    ] {
        claims.push(claim("", body));
    }
    for path in [
        "/v1/policies/unknown/claims",
        "/v1/policies/Benefit/claims",
        "/v1/policies//claims",
        "/v1/policies/b%65nefit/claims",
        "/v1/policies/benefit/claims?units=2",
        "/v1/policies/benefit/claims/",
        "/v1/policies/paused/claims",
    ] {
        for (_, secret) in secrets {
            let fields = format!("authorization: bearer {secret}\r\n");
            claims.push(post(path, &fields, r#"{"subject":"h"}"#));
        }
    }
    for (_, secret) in secrets {
        let fields = format!("authorization: bearer  {secret} \r\n");
        claims.push(post(
            "/v1/policies/benefit/claims",
            &fields,
            r#"{"subject":"h"}"#,
        ));
    }
    claims
}

/// Two applications get the same requests; at one of them each goes the usual way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ways_give_the_same_answers() {
    let mut told = Vec::new();
    for usual in ["", USUAL] {
        let (app, _clock) = App::with_clock(Stack::Sqlite).await;
        replace(&app, json!({})).await;
        let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
        assert_eq!(app.put_policy("paused", rule).await.status, 201);
        let paused = app.ask(
            "PUT /v1/policies/paused/pause",
            json!({ "reason": "a test" }),
        );
        paused.await.is(200);
        app.block("blocked").await;
        app.override_day("raised", 9).await;
        let secrets = [
            ("admin", KEY.to_owned()),
            ("claim", make_role(&app, "claim", None).await.secret),
            (
                "confined",
                make_role(&app, "claim", Some("benefit")).await.secret,
            ),
            (
                "elsewhere",
                make_role(&app, "claim", Some("paused")).await.secret,
            ),
            ("audit", make_role(&app, "audit", None).await.secret),
            ("wrong", "perdiem_wrong".to_owned()),
        ];
        let answers = claims(&secrets).into_iter().map(|claim| {
            let host = "Host: here\r\n";
            let sent = claim.replacen(host, &format!("{host}{usual}"), 1);
            // A server that has not read a body closes the connection.
            (claim, Client::of(&app).exchange(&sent))
        });
        told.push(answers.collect::<Vec<_>>());
    }
    let usual = told.pop().expect("the usual way");
    let plain = told.pop().expect("the short way");
    let mut statuses = Vec::new();
    for ((claim, plain), (_, usual)) in plain.into_iter().zip(usual) {
        assert_eq!(plain, usual, "{claim}");
        statuses.push(plain.status["HTTP/1.1 ".len()..][..3].to_owned());
    }
    statuses.sort();
    statuses.dedup();
    let expected = [
        "200", "201", "400", "401", "403", "404", "409", "422", "429",
    ];
    assert_eq!(statuses, expected);
}

/// The process aborts at its third plain claim. Claims in the usual way come before.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_claim_goes_the_short_way() {
    use reqwest::Method;

    use crate::support::app::Answer;
    use crate::support::process::Process;

    let ground = Ground::new(Stack::Sqlite);
    let points = [("FAILPOINTS", "http.plain_claim=2*off->return")];
    let mut process = Process::start(&ground.database_url, &points);
    let put = process.request(Method::PUT, "/v1/policies/benefit");
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    assert_eq!(Answer::of(put.json(&rule)).await.status, 201);
    let mut client = Client::at(&process.url);
    for fields in [USUAL, "", USUAL, USUAL, ""] {
        let told = client.exchange(&claim(fields, r#"{"subject":"a"}"#));
        assert!(told.status.contains("201"), "{told:?}");
    }
    // A client's library sends the request at once too.
    let path = "/v1/policies/benefit/claims";
    let claimed = process
        .request(Method::POST, path)
        .json(&json!({ "subject": "a" }));
    assert!(claimed.send().await.is_err());
    assert!(!process.wait().success());
}

/// Java's client offers HTTP/2 with the first request of each connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_of_another_protocol_is_not_taken() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(9, "UTC").await;
    let offer =
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let body = r#"{"subject":"a"}"#;
    // 1. A claim keeps its connection.
    let mut client = Client::of(&app);
    for _ in 0..2 {
        let told = client.exchange(&claim(offer, body));
        assert!(told.status.contains("201"), "{told:?}");
        let has_option = |field: &String| field.starts_with("connection");
        assert!(!told.fields.iter().any(has_option), "{told:?}");
    }
    // 2. Every other request ends it, and says so.
    for request in [
        format!("GET /livez HTTP/1.1\r\nHost: here\r\n{offer}\r\n"),
        claim(&format!("{offer}{USUAL}"), body),
    ] {
        let mut client = Client::of(&app);
        client.send(&request);
        let answer = client.read_to_end();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(!answer.contains("upgrade"), "{answer}");
    }
    assert_eq!(used(&app, "benefit", "a").await, [3]);
}

/// Requests of all kinds in one write: the answers come in the order of the requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_on_one_connection_are_answered_in_order() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1000, "UTC").await;
    let mut text = String::new();
    for number in 0..40 {
        let id = format!("X-Request-Id: number-{number}\r\n");
        let body = r#"{"subject":"a"}"#;
        text += &match number % 4 {
            0 | 1 => claim(&id, body),
            2 => claim(&format!("{id}{USUAL}"), body),
            _ => format!("GET /livez HTTP/1.1\r\nHost: here\r\n{id}\r\n"),
        };
    }
    // The pieces end in the middle of heads and of bodies.
    for piece in [1, 7, 100, 1000, text.len()] {
        let mut client = Client::of(&app);
        for piece in text.as_bytes().chunks(piece) {
            client.stream.write_all(piece).expect("a piece is sent");
        }
        for number in 0..40 {
            let told = client.read();
            let id = format!("x-request-id: number-{number}");
            assert!(told.fields.contains(&id), "{piece}: {told:?}");
            let status = if number % 4 == 3 { "200" } else { "201" };
            assert!(told.status.contains(status), "{piece}: {told:?}");
        }
    }
    assert_eq!(used(&app, "benefit", "a").await, [150]);
}

/// Bytes that look like a claim, and belong to another request: a body that nobody reads, and what
/// follows a request that cannot be read, or that is the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_of_another_request_is_a_claim() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1000, "UTC").await;
    let hidden = claim("", r#"{"subject":"hidden"}"#);
    let length = hidden.len();
    let key = format!("Authorization: Bearer {KEY}\r\n");
    let chunk = format!("{length:x}\r\n{hidden}\r\n0\r\n\r\n");
    let claims = "POST /v1/policies/benefit/claims HTTP/1.1\r\nHost: here\r\n";
    // Each head with what follows it.
    let cases = [
        ("GET /livez HTTP/1.1\r\n\r\n".to_owned(), &hidden),
        (
            format!("POST /nowhere HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n"),
            &hidden,
        ),
        (
            format!("GET /livez HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n"),
            &hidden,
        ),
        (format!("{claims}Content-Length: {length}\r\n\r\n"), &hidden),
        (
            format!("{claims}{key}Content-Length: {length}\r\n\r\n"),
            &hidden,
        ),
        (
            format!("{claims}Content-Length: {}\r\n\r\n", length + 1),
            &hidden,
        ),
        (
            "POST /nowhere HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            &chunk,
        ),
        (
            format!("{claims}{key}Transfer-Encoding: chunked\r\n\r\n"),
            &chunk,
        ),
        (
            "GET /livez HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".to_owned(),
            &hidden,
        ),
        ("GET /livez HTTP/1.0\r\n\r\n".to_owned(), &hidden),
        (
            "GET /livez HTTP/1.1\r\nbad field\r\n\r\n".to_owned(),
            &hidden,
        ),
        ("GET /li vez HTTP/1.1\r\n\r\n".to_owned(), &hidden),
        (
            "GET /livez HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\n\r\n".to_owned(),
            &hidden,
        ),
        (
            "CONNECT here:80 HTTP/1.1\r\nHost: here\r\n\r\n".to_owned(),
            &hidden,
        ),
        ("\r".to_owned(), &hidden),
        (
            "POST /nowhere HTTP/1.1\r\nHost: here\r\nContent-Length: x\r\n\r\n".to_owned(),
            &hidden,
        ),
        (
            format!(
                "POST /nowhere HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nContent-Length: {length}\r\n\r\n"
            ),
            &hidden,
        ),
    ];
    for (head, rest) in cases {
        // At once, and the rest when the head is answered, or the server waits for it.
        for pause in [Duration::ZERO, Duration::from_millis(50)] {
            let mut client = Client::of(&app);
            client.send(&head);
            pass(pause).await;
            // The server may have closed the connection.
            let _ = client.stream.write_all(rest.as_bytes());
            let _ = client.stream.shutdown(std::net::Shutdown::Write);
            let read = client.read_to_end();
            assert!(!read.contains("granted"), "{head}: {read}");
            assert_eq!(read.matches("x-request-id: ").count(), 1, "{head}: {read}");
        }
    }
    assert_eq!(used(&app, "benefit", "hidden").await, [0]);
    // After a body that is read the connection goes on.
    let mut client = Client::of(&app);
    let told = client.exchange(&claim("", &hidden));
    assert!(told.status.contains("400"), "{told:?}");
    let told = client.exchange(&claim("", r#"{"subject":"seen"}"#));
    assert!(told.status.contains("201"), "{told:?}");
}

/// Empty lines before a request belong to nothing, however they are divided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_lines_before_requests_are_skipped() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(1000, "UTC").await;
    let mut client = Client::of(&app);
    let claim = claim("", r#"{"subject":"a"}"#);
    let livez = "GET /livez HTTP/1.1\r\nHost: here\r\n\r\n";
    for (lines, request) in [("\r", "\n"), ("\r\n", "\r\n"), ("\n\r", "\n")] {
        client.send(lines);
        pass(Duration::from_millis(50)).await;
        let told = client.exchange(&format!("{request}{claim}"));
        assert!(told.status.contains("201"), "{told:?}");
        let told = client.exchange(livez);
        assert!(told.status.contains("200"), "{told:?}");
    }
    let lines = "\r\n".repeat(800);
    for _ in 0..100 {
        let told = client.exchange(&format!("{claim}{lines}"));
        assert!(told.status.contains("201"), "{told:?}");
    }
    assert_eq!(used(&app, "benefit", "a").await, [103]);
}

/// A claim in progress is answered when the application stops, however long it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_a_plain_claim() {
    let ground = Ground::new(Stack::Postgres);
    let app = App::start(&ground).await;
    app.benefit(3, "UTC").await;
    let mut locker = Direct::to(&ground).await;
    locker.execute("BEGIN", "").await;
    let lock = "LOCK TABLE entries IN EXCLUSIVE MODE";
    locker.execute(lock, "").await;
    let mut client = Client::of(&app);
    client.send(&claim("", r#"{"subject":"a"}"#));
    eventually("the claim waits for the ledger", || async {
        let metrics = app.get("/metrics").await.text;
        metrics.contains("perdiem_claims_under_way 1")
    })
    .await;
    let address = app.url.trim_start_matches("http://").to_owned();
    let stopping = std::thread::spawn(move || drop(app));
    // Longer than actix lingers.
    pass(Duration::from_millis(1500)).await;
    assert!(!stopping.is_finished());
    assert!(TcpStream::connect(&address).is_err());
    locker.execute("ROLLBACK", "").await;
    let told = client.read();
    assert!(told.status.contains("201"), "{told:?}");
    assert!(told.fields.contains(&"connection: close".to_owned()));
    assert_eq!(client.read_to_end(), "");
    stopping.join().expect("the application ends");
}
