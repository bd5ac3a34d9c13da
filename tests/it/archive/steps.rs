//! The command drops entries in many small transactions. Between two of them everything stays correct, and
//! an interrupted command goes on where it stopped.

use std::fs;
use std::process::{Child, Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Archivist;
use super::dropping::{
    NEW_YEAR, YEAR_ONE, YEAR_THREE, YEAR_TWO, figures_are_made, is_sealed, reconciled, rows,
};
use crate::http::{items, problem};
use crate::seals::verified;
use crate::support::app::{Answer, App, KEY, Stack, eventually, instant, tests_on};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::terminal::Said;

on_every_store!(
    a_drop_that_dies_between_two_transactions_goes_on,
    a_drop_that_is_told_to_stop_goes_on,
);

tests_on!(a_drop_whose_session_ends_goes_on: postgres Postgres);
tests_on!(an_export_that_meets_a_drop_breaks_off: sqlite Sqlite);

/// How many entries one transaction drops.
const STEP: u64 = 500;
/// The entries of the long account …
const LONG: usize = 1200;
/// … and the accounts with two entries each.
const PAIRS: usize = 300;
/// All but the last entry of each account, and of the account with an open hold the one before it.
const DROPPED: u64 = LONG as u64 - 1 + PAIRS as u64 + 1;

async fn claim_all(app: &App, subjects: impl Iterator<Item = String>) {
    let claim = |subject| json!({ "policy": "benefit", "subject": subject });
    let claims: Vec<Value> = subjects.map(claim).collect();
    for some in claims.chunks(1000) {
        let request = app.request(Method::POST, "/v1/claims");
        let body = json!({ "claims": some, "atomic": false });
        let granted = items(&Answer::of(request.json(&body)).await);
        assert!(
            granted.iter().all(|item| item["status"] == 201),
            "{granted:?}"
        );
    }
}

/// Lets two years pass.
async fn grow_old(archivist: &Archivist) {
    is_sealed(archivist).await;
    archivist.clock.set(instant(YEAR_TWO));
    archivist.app.claim("long", None).await.is(201);
    is_sealed(archivist).await;
    archivist.clock.set(instant(YEAR_THREE));
    archivist.app.override_day("member-9", 9).await;
    is_sealed(archivist).await;
    figures_are_made(archivist).await;
}

/// A ledger whose entries take three transactions.
async fn with_many(stack: Stack) -> Archivist {
    let archivist = Archivist::at(stack, YEAR_ONE).await;
    let app = &archivist.app;
    app.benefit(5000, "UTC").await.is(201);
    claim_all(app, (0..LONG).map(|_| "long".to_owned())).await;
    let pairs = (0..2 * PAIRS).map(|number| format!("pair-{}", number % PAIRS));
    claim_all(app, pairs).await;
    app.claim("keeper", None).await.is(201);
    let hold = json!({ "subject": "keeper", "hold_seconds": 600 });
    app.claim_body(hold, None).await.is(201);
    app.claim("keeper", None).await.is(201);
    grow_old(&archivist).await;
    archivist
}

/// The command that drops the entries of the first year.
fn drop_command(archivist: &Archivist, points: &str) -> Command {
    let folder = archivist.folder.to_str().expect("a path");
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdiem"));
    command
        .args(["archive", folder, "--before", "2024-01-01", "--drop"])
        .env("DATABASE_URL", &archivist.ground.database_url)
        .env("FAILPOINTS", points)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The exit code, if the command ended by itself; and all that it printed.
async fn ended(child: Child) -> (Option<i32>, String) {
    let run = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = run.await.expect("a thread").expect("the command ends");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let printed = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), printed)
}

/// Claims come while a command runs.
async fn beside_claims(archivist: &Archivist, child: Child) -> (Option<i32>, String) {
    let claims = async {
        for number in 0..20 {
            let subject = format!("pair-{number}");
            archivist.app.claim(&subject, None).await.is(201);
            archivist.app.claim("long", None).await.is(201);
        }
    };
    let (ended, ()) = tokio::join!(ended(child), claims);
    ended
}

/// What readers find while entries are missing.
async fn readers_are_right(archivist: &Archivist, dropped: u64) {
    let app = &archivist.app;
    assert_eq!(rows(archivist, "dropped_entries").await, dropped);
    is_sealed(archivist).await;
    let leaves = verified(&archivist.ground, None).await.expect("valid");
    let leaves = leaves.dropped.map_or(0, |dropped| dropped.leaves);
    assert_eq!(leaves, dropped);
    let report = reconciled(app).await;
    assert_eq!(report["alarm_count"], 0, "{report}");
    // The days before are as they were, and lists say that they may lack entries.
    let stats = app.get("/v1/stats?policy=benefit&to=2024-01-01").await;
    let grants = &items(&stats)[0]["grants"];
    assert_eq!(*grants, LONG as u64 + 2 * PAIRS as u64 + 3);
    problem(&app.get("/v1/entries").await, 410, "archived");
    let newest = app.claim("long", None).await.grant_id();
    let explained = app.get(&format!("/v1/grants/{newest}/explanation")).await;
    explained.is(200);
}

async fn a_drop_that_dies_between_two_transactions_goes_on(stack: Stack) {
    let archivist = with_many(stack).await;
    for (points, dropped) in [
        // Before the first transaction, in the second one, and after the next one.
        ("drop.found=return", 0),
        ("drop.deleted=1*off->return", STEP),
        ("drop.committed=return", 2 * STEP),
    ] {
        let child = drop_command(&archivist, points).spawn().expect("a child");
        let (code, printed) = beside_claims(&archivist, child).await;
        assert_eq!(code, None, "{points}: {printed}");
        readers_are_right(&archivist, dropped).await;
    }
    let child = drop_command(&archivist, "").spawn().expect("a child");
    let (code, printed) = beside_claims(&archivist, child).await;
    assert_eq!(code, Some(0), "{printed}");
    let last = printed.lines().last().expect("a line");
    let told = format!("{} entries were dropped", DROPPED - 2 * STEP);
    assert!(last.starts_with(&told), "{printed}");
    readers_are_right(&archivist, DROPPED).await;
    assert_eq!(rows(&archivist, "acts WHERE kind = 'cut'").await, 1);
    archivist.check().await.expect("valid");
}

/// Waits until a child has stopped itself.
async fn has_stopped(child: &Child) {
    let stat = format!("/proc/{}/stat", child.id());
    eventually("the command has stopped", || async {
        let stat = fs::read_to_string(&stat).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with('T'))
    })
    .await;
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &id])
        .status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

const GOES_ON: &str = "run the same command again, and it goes on where it stopped";

async fn a_drop_that_is_told_to_stop_goes_on(stack: Stack) {
    let archivist = with_many(stack).await;
    let mut command = drop_command(&archivist, "drop.committed=1*return(stop)");
    let child = command.spawn().expect("a child");
    has_stopped(&child).await;
    signal(&child, "TERM");
    signal(&child, "CONT");
    let (code, printed) = ended(child).await;
    assert_eq!(code, Some(75), "{printed}");
    assert!(
        printed.contains(&format!("interrupted: {GOES_ON}")),
        "{printed}"
    );
    let dropped = rows(&archivist, "dropped_entries").await;
    assert!((STEP..DROPPED).contains(&dropped), "{dropped}");
    readers_are_right(&archivist, dropped).await;
    let child = drop_command(&archivist, "").spawn().expect("a child");
    let (code, printed) = ended(child).await;
    assert_eq!(code, Some(0), "{printed}");
    readers_are_right(&archivist, DROPPED).await;
}

/// PostgreSQL ends a session whose transaction is idle for too long, and all sessions when it stops.
async fn a_drop_whose_session_ends_goes_on(stack: Stack) {
    let archivist = with_many(stack).await;
    let mut command = drop_command(&archivist, "drop.deleted=1*off->1*return(stop)");
    let child = command.spawn().expect("a child");
    has_stopped(&child).await;
    let ends = "SELECT CAST(pg_terminate_backend(pid) AS text) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'
            AND query LIKE 'DELETE FROM entries%'";
    let ended_sessions = Direct::to(&archivist.ground).await.texts(ends).await;
    assert_eq!(ended_sessions, ["true"]);
    signal(&child, "CONT");
    let (code, printed) = ended(child).await;
    assert_eq!(code, Some(75), "{printed}");
    assert!(printed.contains(GOES_ON), "{printed}");
    readers_are_right(&archivist, STEP).await;
    let child = drop_command(&archivist, "").spawn().expect("a child");
    let (code, printed) = ended(child).await;
    assert_eq!(code, Some(0), "{printed}");
    readers_are_right(&archivist, DROPPED).await;
    // A database that does not answer is not the end either.
    let nowhere = ["--database-url", "postgres://nobody@127.0.0.1:1/none"];
    let verify = Said::by(&archivist.app, &[&["verify"], &nowhere[..]].concat()).await;
    let fault = verify.fault_of(75);
    assert!(fault.contains("cannot open the ledger"), "{fault}");
}

/// An export that began before a cut, and whose reader is slow, does not end as if it had all entries.
async fn an_export_that_meets_a_drop_breaks_off(stack: Stack) {
    let archivist = Archivist::at(stack, YEAR_ONE).await;
    let app = &archivist.app;
    app.benefit(10_000, "UTC").await.is(201);
    // More than the pieces and the buffers of a connection hold.
    let text = "x".repeat(3000);
    let claim = json!({ "policy": "benefit", "subject": "long", "metadata": { "text": text } });
    for _ in 0..60 {
        let body = json!({ "claims": vec![&claim; 100], "atomic": false });
        let request = app.request(Method::POST, "/v1/claims").json(&body);
        Answer::of(request).await.is(200);
    }
    grow_old(&archivist).await;
    let mut export = slow_reader(app, "/v1/entries/export?format=ndjson").await;
    let mut read = vec![0; 12];
    export.read_exact(&mut read).await.expect("a status line");
    assert_eq!(read, b"HTTP/1.1 200");
    archivist
        .drop_before(NEW_YEAR)
        .await
        .expect("the drop succeeds");
    // The last piece of a whole answer is empty.
    let ended = export.read_to_end(&mut read).await;
    let broken = ended.is_err() || !read.ends_with(b"\r\n0\r\n\r\n");
    let read = String::from_utf8_lossy(&read);
    assert!(!read.contains("\"manifest\""), "{}", read.len());
    assert!(broken, "{}", read.len());
}

/// Asks for a document through a connection with a small receive buffer: systems let others grow to many
/// megabytes.
async fn slow_reader(app: &App, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let address = app.url.trim_start_matches("http://").parse();
    let connecting = socket.connect(address.expect("an address"));
    let mut stream = connecting.await.expect("a connection");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    );
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("the request is sent");
    stream
}
