//! Every request has a deadline, and every key has a share: no client blocks the others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use perdiem::http::ServeOptions;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::http::v1::exports::fill;
use crate::http::v1::keys::{make_role, revoke, with};
use crate::http::{CLAIMS, problem};
use crate::support::app::{Answer, App, Ground, KEY, Stack, eventually, serve_options};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

/// Longer than any request of these tests may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// A policy whose max no test reaches.
async fn wide(app: &App) {
    let limits = json!([{ "max": 1_000_000, "per": "year" }]);
    let rule = json!({ "time_zone": "UTC", "limits": limits });
    app.put_policy("benefit", rule).await.is(201);
}

async fn hold(app: &App) -> String {
    let body = json!({ "subject": "member-42", "hold_seconds": 3600 });
    app.claim_body(body, None).await.grant_id()
}

/// The answer to a request. The answer must come in time, even while something delays the request.
async fn answer(request: RequestBuilder) -> Answer {
    let answer = timeout(DEADLINE, Answer::of(request)).await;
    answer.expect("an answer within its deadline")
}

/// The entries are locked. Every request is answered in time. A request that needs the entries gets
/// 503. Changes and keys do not need the entries, however many reversals wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_waits_for_a_lock_for_long() {
    let ground = Ground::new(Stack::Postgres);
    let app = App::start_with(&ground, |options| {
        options.claim_deadline = Duration::from_secs(1);
        options.answer_time = Duration::from_secs(4);
    })
    .await;
    wide(&app).await;
    let grant = hold(&app).await;
    let key = make_role(&app, "claim", None).await;
    let mut locker = Direct::to(&ground).await;
    locker.execute("BEGIN", "").await;
    let lock = "LOCK TABLE entries IN ACCESS EXCLUSIVE MODE";
    locker.execute(lock, "").await;

    let reversal = format!("/v1/grants/{grant}/reversal");
    let reverse = || {
        let request = with(&app, &key.secret, Method::POST, &reversal);
        answer(request.json(&json!({ "reason": "a test" })))
    };
    let waiting = join_all((0..20).map(|_| reverse()));
    let others = async {
        let of_keys = app.get("/v1/keys").await;
        let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 1, "per": "day" }] });
        let edit = app.put_policy("other", rule).await;
        let made = make_role(&app, "claim", None).await;
        let changes = app.get("/v1/changes").await;
        let live = app.get("/livez").await;
        let revoked = revoke(&app, KEY, &made.id).await;
        let refused = with(&app, &made.secret, Method::GET, "/metrics");
        assert_eq!(answer(refused).await.status, 401);
        [of_keys, edit, changes, live, revoked]
    };
    let (reversed, others) = tokio::join!(waiting, others);
    for other in others {
        assert!(other.status.is_success(), "{other:?}");
    }
    for reversed in reversed {
        assert_eq!(reversed.status, 503, "{reversed:?}");
    }
    let claim = json!({ "subject": "member-42" });
    let reason = json!({ "reason": "a test" });
    let rehearsal = json!({ "subject": "member-42", "dry_run": true });
    let adjustment = json!({ "units": 1, "reason": "a test" });
    let account = "/v1/policies/benefit/subjects/member-42";
    for (line, body) in [
        (format!("POST {CLAIMS}"), claim),
        (format!("POST {CLAIMS}"), rehearsal),
        (format!("POST {reversal}"), reason.clone()),
        (format!("POST /v1/grants/{grant}/confirmation"), Value::Null),
        (format!("GET /v1/grants/{grant}"), Value::Null),
        ("GET /v1/grants".to_owned(), Value::Null),
        (format!("GET {account}"), Value::Null),
        (format!("GET {account}/entries"), Value::Null),
        (format!("POST {account}/adjustments"), adjustment),
        (format!("POST {account}/resets"), reason),
    ] {
        let answer = answer(app.line(KEY, &line, &body)).await;
        assert_eq!(answer.status, 503, "{line}: {answer:?}");
        assert_eq!(answer.header("Retry-After"), Some("1"), "{line}");
    }
    let list = app.get("/v1/grants").await;
    let problem = problem(&list, 503, "unavailable");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("ask for less"), "{detail}");
    locker.execute("ROLLBACK", "").await;
    let reversed = app.reverse(&grant, "a test").await;
    assert!(reversed.status.is_success(), "{reversed:?}");
}

/// Sends a request and reads only the beginning of the head.
fn unread(app: &App, secret: &str, path: &str) -> TcpStream {
    let address = app.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {secret}\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("the request is sent");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a head");
    stream
}

async fn with_much_to_read(stack: Stack, change: impl FnOnce(&mut ServeOptions)) -> App {
    let ground = Ground::new(stack);
    let app = hasty(&ground, change).await;
    fill(&app, &ground, 8001).await;
    app
}

/// Waits until an export of entries contains all of them.
async fn entries_have_positions(app: &App) {
    eventually("the entries have positions", || async {
        let newest = app.get("/v1/entries?limit=1").await.json();
        newest["as_of"].as_u64() > Some(8001)
    })
    .await;
}

/// An instance that refuses a request after two seconds.
async fn hasty(ground: &Ground, change: impl FnOnce(&mut ServeOptions)) -> App {
    let mut serve = serve_options();
    change(&mut serve);
    let app = App::try_serve(ground, serve, |options| {
        options.answer_time = Duration::from_secs(2);
    });
    app.await.expect("the application starts")
}

on_every_store!(readers_that_stop_take_no_more_than_their_share);

/// A key whose readers stop gets only its share of exports and lists. The share is free again when
/// the readers disconnect.
async fn readers_that_stop_take_no_more_than_their_share(stack: Stack) {
    let app = with_much_to_read(stack, |_| {}).await;
    let auditor = make_role(&app, "audit", None).await;
    let export = "/v1/grants/export?format=ndjson";
    let ask = |path: &'static str| answer(with(&app, &auditor.secret, Method::GET, path));

    let stalled = [export; 2].map(|path| unread(&app, &auditor.secret, path));
    let refused = ask(export).await;
    problem(&refused, 503, "unavailable");
    let others = app.get("/v1/grants/export?format=csv&from=2999-01-01T00:00:00Z");
    assert_eq!(others.await.status, 200);
    drop(stalled);
    eventually("an export has a place again", || async {
        let few = "/v1/grants/export?format=csv&from=2999-01-01T00:00:00Z";
        ask(few).await.status == 200
    })
    .await;

    let list = "/v1/grants?limit=1000";
    let stalled = [list; 4].map(|path| unread(&app, &auditor.secret, path));
    let refused = ask("/v1/grants?limit=1").await;
    problem(&refused, 503, "unavailable");
    assert_eq!(app.get("/v1/grants?limit=1").await.status, 200);
    drop(stalled);
    eventually("a list has a place again", || async {
        ask("/v1/grants?limit=1").await.status == 200
    })
    .await;
}

/// An export waits for a place, as other reads do. An export that gets none says so in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_waits_for_its_place() {
    let ground = Ground::new(Stack::Postgres);
    // The answers of a busy machine can take longer than two seconds.
    let patient = App::start(&ground).await;
    fill(&patient, &ground, 8001).await;
    entries_have_positions(&patient).await;
    let hasty = hasty(&ground, |_| {}).await;
    for path in ["/v1/grants/export", "/v1/entries/export"] {
        let path = format!("{path}?format=ndjson");
        let stalled = [(); 2].map(|()| unread(&hasty, KEY, &path));
        let began = Instant::now();
        let refused = hasty.get(&path).await;
        problem(&refused, 503, "unavailable");
        assert!(began.elapsed() > Duration::from_secs(2), "{path}");
        drop(stalled);
        let stalled = [(); 2].map(|()| unread(&patient, KEY, &path));
        let free = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(stalled);
        };
        let (answer, ()) = tokio::join!(patient.get(&path), free);
        assert_eq!(answer.status, 200, "{path}");
    }
}

/// The server closes the connections of readers that stop. These readers see no end of the export,
/// and their places are free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_are_given_up() {
    let app = with_much_to_read(Stack::Postgres, |serve| {
        serve.stall_time = Duration::from_millis(300);
    })
    .await;
    entries_have_positions(&app).await;
    for export in ["/v1/grants/export", "/v1/entries/export"] {
        let path = format!("{export}?format=ndjson");
        let stalled = [(); 2].map(|()| unread(&app, KEY, &path));
        for mut stream in stalled {
            eventually("the connection is reset", || async {
                stream.take_error().expect("a state").is_some()
            })
            .await;
            let mut read = Vec::new();
            stream
                .read_to_end(&mut read)
                .expect("the bytes before the reset");
            assert!(!read.ends_with(b"\r\n0\r\n\r\n"), "{export}");
            let text = String::from_utf8_lossy(&read);
            assert!(!text.contains("\n{\"manifest\""), "{export}");
        }
        eventually("an export has a place again", || async {
            let few = format!("{export}?format=csv&from=2999-01-01T00:00:00Z");
            app.get(&few).await.status == 200
        })
        .await;
    }
}

/// A key that sends as many batches as possible does not block the claims of another key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_noisy_key_does_not_starve_another() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start_with(&ground, |options| {
        options.claims_most = 64;
        options.claim_deadline = Duration::from_secs(2);
    });
    let app = Arc::new(app.await);
    wide(&app).await;
    let noisy = make_role(&app, "claim", None).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let batch: Vec<_> = (0..1000)
        .map(|member| json!({ "policy": "benefit", "subject": format!("member-{member}") }))
        .collect();
    let batch = json!({ "claims": batch });
    let noise = (0..4).map(|_| {
        let app = app.clone();
        let noisy = noisy.clone();
        let is_over = is_over.clone();
        let batch = batch.clone();
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let request = with(&app, &noisy.secret, Method::POST, "/v1/claims");
                Answer::of(request.json(&batch)).await.is(200);
            }
        })
    });
    let noise: Vec<_> = noise.collect();
    eventually("the noisy key has its share", || async {
        let metrics = app.get("/metrics").await.text;
        metrics.contains("\nperdiem_claims_under_way 32\n")
    })
    .await;
    for _ in 0..40 {
        app.claim("member-42", None).await.is(201);
    }
    is_over.store(true, Ordering::SeqCst);
    for noise in noise {
        noise.await.expect("the task ends");
    }
}

/// A batch is larger than its key's share. The instance takes the claims in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_takes_places_piece_by_piece() {
    let ground = Ground::new(Stack::Sqlite);
    let app = App::start_with(&ground, |options| options.claims_most = 8).await;
    wide(&app).await;
    let claims: Vec<_> = (0..300)
        .map(|member| json!({ "policy": "benefit", "subject": format!("member-{member}") }))
        .collect();
    let request = app.request(Method::POST, "/v1/claims");
    let answer = Answer::of(request.json(&json!({ "claims": claims }))).await;
    let answer = answer.json();
    let items = answer["items"].as_array().expect("items");
    assert_eq!(items.len(), 300);
    for (member, item) in items.iter().enumerate() {
        assert_eq!(item["status"], 201, "{item}");
        assert_eq!(item["grant"]["subject"], format!("member-{member}"));
    }
}
