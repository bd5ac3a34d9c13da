//! Exports at a standby: the primary records them.

use reqwest::{Method, header};

use super::Pair;
use crate::http::v1::keys::{make_role, with};
use crate::http::{invalid_places, problem};
use crate::support::app::{Answer, App, eventually};

const EXPORT: &str = "/v1/entries/export";

/// Records an export without reading it. Returns its revision.
async fn record(pair: &Pair, secret: &str, query: &str) -> String {
    let path = format!("{EXPORT}?{query}");
    let answer = Answer::of(with(&pair.writer, secret, Method::HEAD, &path)).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""));
    let link = answer.headers[header::LINK].to_str().expect("a text");
    let manifest = link.split(['<', '>']).nth(1).expect("a URL");
    manifest.rsplit('/').next().expect("a number").to_owned()
}

async fn get(app: &App, secret: &str, path: &str) -> Answer {
    Answer::of(with(app, secret, Method::GET, path)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_recorded_before_it_is_read() {
    let pair = Pair::start().await;
    pair.is_followed().await;
    let reader = &pair.reader;
    let auditor = pair.auditor.secret.as_str();
    let query = "format=csv&policy=benefit";
    // 1. A reader cannot record.
    let answer = get(reader, auditor, &format!("{EXPORT}?{query}")).await;
    let detail = problem(&answer, 503, "read-only")["detail"].to_string();
    assert!(
        detail.contains("HEAD") && detail.contains("export="),
        "{detail}"
    );
    // 2. A reader shows the rows of a recorded export, and its manifest.
    let revision = record(&pair, auditor, query).await;
    let again = format!("{EXPORT}?export={revision}");
    eventually("the reader knows the export", || async {
        let answer = get(reader, auditor, &again).await;
        assert!(answer.status == 200 || answer.header("retry-after") == Some("1"));
        answer.status == 200
    })
    .await;
    let rows = get(reader, auditor, &again).await;
    assert_eq!(rows.text, get(&pair.writer, auditor, &again).await.text);
    assert!(rows.text.contains("member-42"), "{rows:?}");
    let manifest = format!("/v1/exports/{revision}");
    let theirs = get(reader, auditor, &manifest).await.is(200);
    let ours = get(&pair.writer, auditor, &manifest).await.is(200);
    assert_eq!(ours["sha256"], theirs["sha256"]);
    assert_eq!(
        rows.header("perdiem-as-of"),
        Some(&*theirs["as_of"].to_string())
    );
    // 3. The rows after a position are the end of the file, also with the same filters.
    let lines: Vec<&str> = rows.text.split_inclusive("\r\n").collect();
    let second = lines[2].split('"').nth(1).expect("a position");
    let rest = get(reader, auditor, &format!("{again}&after={second}&{query}")).await;
    assert_eq!(rest.text, [lines[0], &lines[3..].concat()].concat());
    // 4. It is that export, and of that key.
    for other in [
        "format=ndjson",
        "policy=other",
        "subject=member-42",
        "as_of=1",
    ] {
        let answer = get(reader, auditor, &format!("{again}&{other}")).await;
        assert_eq!(invalid_places(&answer), ["export"], "{other}");
    }
    let other = make_role(&pair.writer, "audit", None).await;
    eventually("the reader knows the key", || async {
        get(reader, &other.secret, "/v1/entries").await.status == 200
    })
    .await;
    problem(&get(reader, &other.secret, &again).await, 403, "forbidden");
    let of_change = format!("{EXPORT}?export=1");
    problem(&get(reader, auditor, &of_change).await, 404, "not-found");
    // 5. The record tells of one export.
    let changes = get(&pair.writer, auditor, "/v1/changes?kind=export").await;
    let changes = changes.is(200)["items"].as_array().expect("items").len();
    assert_eq!(changes, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_left_out_stay_left_out() {
    let pair = Pair::start().await;
    let auditor = pair.auditor.secret.as_str();
    let all = get(&pair.writer, auditor, &format!("{EXPORT}?format=csv")).await;
    let second = all.text.lines().nth(2).expect("two rows");
    let second = second.split('"').nth(1).expect("a position");
    let revision = record(&pair, auditor, &format!("format=csv&after={second}")).await;
    let again = format!("{EXPORT}?export={revision}&after=0");
    let rows = get(&pair.writer, auditor, &again).await;
    assert_eq!(rows.text.lines().count(), all.text.lines().count() - 2);
}
