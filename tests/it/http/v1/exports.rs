//! Exports of grants as CSV and NDJSON, streamed from one snapshot.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::http::{all_items, problem};
use crate::support::app::{Answer, App, Ground, Stack};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;
use crate::support::servers::Postgres;

const COLUMNS: &str = "id,policy,policy_version,subject,units,state,granted_at,metadata,\
    provisional,over,would_deny,held_until,reversed_at,reversal_reason,returned_units,crossed,bundle,\
    topped_up_units";

fn rule(max: u64) -> Value {
    json!({ "time_zone": "UTC", "limits": [{ "max": max, "per": "year" }], "reason": "a test" })
}

/// Copies the only grant: adds entries with the same account and instant, numbered from `first`.
/// The ids of the copies begin like the grant's id. With `below`, they are lower than every id that
/// perdiem makes.
pub async fn copy_grant(ground: &Ground, first: u64, count: u64, below: bool) {
    let last = first + count - 1;
    let (postgres_head, sqlite_head) = if below {
        (
            "'00000000-0000-7000-8000-'",
            "unhex('00000000000070008000')",
        )
    } else {
        ("substr(id::text, 1, 24)", "substr(id, 1, 10)")
    };
    let columns = "at, units, policy, policy_version, kind, flags, account, totals, metadata";
    let postgres = format!(
        "INSERT INTO entries (number, id, {columns})
         SELECT i, ({postgres_head} || lpad(to_hex(i), 12, '0'))::uuid, {columns}
         FROM entries, generate_series({first}, {last}) AS n(i) WHERE number = 1"
    );
    let sqlite = format!(
        "WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})
         INSERT INTO entries (number, id, {columns})
         SELECT i, CAST({sqlite_head} || unhex(printf('%012x', i)) AS BLOB), {columns}
         FROM entries, n WHERE number = 1"
    );
    let mut connection = Direct::to(ground).await;
    assert_eq!(connection.execute(&postgres, &sqlite).await, count);
}

/// More grants than sockets and queues can hold.
const COUNT: u64 = 12_000;

/// Makes this number of grants, with four kilobytes each.
pub async fn fill(app: &App, ground: &Ground, count: u64) {
    app.put_policy("benefit", rule(1_000_000)).await;
    let metadata = json!({ "padding": "x".repeat(4000) });
    let body = json!({ "subject": "member-42", "metadata": metadata });
    assert_eq!(app.claim_body(body, None).await.status, 201);
    copy_grant(ground, 2, count - 1, false).await;
}

fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(text.as_bytes());
    let row = |row: csv::StringRecord| row.iter().map(str::to_owned).collect();
    reader
        .records()
        .map(|record| row(record.expect("a row")))
        .collect()
}

/// The CSV cell of a JSON value.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn export(app: &App, format: &str, query: &str) -> Answer {
    let answer = app
        .get(&format!("/v1/grants/export?format={format}&{query}"))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let disposition = format!("attachment; filename=\"grants.{format}\"");
    assert_eq!(
        answer.header("content-disposition"),
        Some(disposition.as_str())
    );
    let kind = answer.header("content-type").expect("a type").to_owned();
    match format {
        "csv" => assert!(kind.starts_with("text/csv; charset=utf-8"), "{kind}"),
        _ => assert_eq!(kind, "application/x-ndjson"),
    }
    answer
}

on_every_store!(exports_equal_the_list);

async fn exports_equal_the_list(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.put_policy("one", rule(1000)).await;
    app.put_policy("two", rule(1000)).await;
    let subjects = [
        "member-1",
        "a,b",
        "\"quoted\"",
        "a;b",
        "ä/😀",
        "pad  ded",
        "'apostrophe",
        "=1+1",
        "＋1",
        "－1",
        "＠A1",
    ];
    for (minute, subject) in subjects.iter().cycle().take(20).enumerate() {
        let policy = if minute % 3 == 0 { "one" } else { "two" };
        let metadata = match minute % 4 {
            0 => Value::Null,
            1 => json!({}),
            2 => json!({ "note": "a,\"b\"\r\nc", "n": [1, 2.5, null] }),
            _ => json!({ "=1+1": "=1+1" }),
        };
        let hold = (minute % 5 == 2).then_some(3600);
        let body = json!({
            "subject": subject, "units": minute + 1, "metadata": metadata, "hold_seconds": hold,
        });
        let key = format!("key-{minute}");
        let answer = app.claim_under(policy, body, Some(&key)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        if minute % 7 == 3 {
            app.reverse(&answer.grant_id(), "no, \"no\"").await.is(201);
        }
        clock.advance(chrono::TimeDelta::minutes(1));
    }
    let from = "2026-11-21T03:09:05.678901Z";
    for query in [
        "",
        "policy=one",
        "subject=a%2Cb",
        "policy=two&subject=member-1&state=granted",
        &format!("from={from}"),
        &format!("to={from}&policy=two"),
        "idempotency_key=key-7",
        "state=reversed",
        "subject=nobody",
    ] {
        let list = all_items(&app, &format!("/v1/grants?{query}")).await;
        let ndjson = export(&app, "ndjson", query).await.text;
        assert!(ndjson.is_empty() || ndjson.ends_with('\n'));
        let lines: Vec<Value> = ndjson
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines, list, "{query}");

        let csv = export(&app, "csv", query).await.text;
        let header = COLUMNS.replace(',', "\",\"");
        assert!(csv.starts_with(&format!("\"{header}\"\r\n")), "{csv}");
        for line in csv.trim_end().split("\r\n") {
            // Every cell is quoted, also an empty cell.
            assert!(line.starts_with('"') && line.ends_with('"'), "{line}");
            assert!(!line.contains(",,"), "{line}");
        }
        assert!(csv.ends_with("\r\n"));
        let rows = csv_rows(&csv);
        assert_eq!(rows.len(), list.len() + 1);
        for (row, grant) in rows[1..].iter().zip(&list) {
            let wanted: Vec<String> = COLUMNS.split(',').map(|name| cell(&grant[name])).collect();
            assert_eq!(row[..7], wanted[..7]);
            let metadata = match row[7].as_str() {
                "" => Value::Null,
                json => serde_json::from_str(json).expect("JSON"),
            };
            assert_eq!(metadata, grant["metadata"]);
            assert_eq!(row[8..11], ["false", "false", "false"]);
            assert_eq!(row[11], cell(&grant["held_until"]));
            assert_eq!(row[12], cell(&grant["reversal"]["at"]));
            assert_eq!(row[13], cell(&grant["reversal"]["reason"]));
            let returned = grant["returned_units"].as_u64().unwrap_or(0);
            assert_eq!(row[14], returned.to_string());
            assert_eq!(row[17], "0");
        }
    }
    let answer = app.get("/v1/grants/export?format=csv&policy=nothing").await;
    problem(&answer, 404, "unknown-policy");
}

on_every_store!(many_rows_come_whole_and_in_order);

async fn many_rows_come_whole_and_in_order(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.put_policy("benefit", rule(1_000_000)).await;
    app.claim("member-42", None).await;
    // Exactly three pages of the ledger, and one row more.
    for (first, count, total) in [(2, 2999, 3000), (3001, 1, 3001)] {
        copy_grant(&ground, first, count, false).await;
        for query in ["", "policy=benefit", "subject=member-42"] {
            let ndjson = export(&app, "ndjson", query).await.text;
            let ids: Vec<String> = ndjson
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
                .map(|grant| grant["id"].as_str().expect("an id").to_owned())
                .collect();
            assert_eq!(ids.len(), total, "{query}");
            assert!(ids.is_sorted_by(|newer, older| newer > older));
            let rows = csv_rows(&export(&app, "csv", query).await.text);
            assert!(rows[1..].iter().map(|row| &row[0]).eq(&ids));
        }
        let list = all_items(&app, "/v1/grants?limit=1000").await;
        assert_eq!(list.len(), total);
    }
}

/// Starts an export, and reads nothing of its body.
async fn open(app: &App) -> reqwest::Response {
    let path = "/v1/grants/export?format=ndjson";
    let request = app.request(reqwest::Method::GET, path);
    request.send().await.expect("an answer")
}

on_every_store!(an_export_is_one_view_while_grants_come_in);

/// Sockets and queues cannot hold the whole export. New grants come in while the client still
/// reads: one has the highest id, and 500 have the lowest ids.
async fn an_export_is_one_view_while_grants_come_in(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    fill(&app, &ground, COUNT).await;

    let mut response = open(&app).await;
    let piece = response.chunk().await.expect("a piece");
    let mut bytes = piece.expect("a piece").to_vec();
    copy_grant(&ground, COUNT + 1, 500, true).await;
    assert_eq!(app.claim("member-43", None).await.status, 201);
    while let Some(piece) = response.chunk().await.expect("a piece") {
        bytes.extend_from_slice(&piece);
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    let ids: BTreeSet<&str> = text.lines().map(|line| &line[..50]).collect();
    assert_eq!(text.lines().count() as u64, COUNT);
    assert_eq!(ids.len() as u64, COUNT);
    assert!(!text.contains("00000000-0000-7000-8000-"));
    assert!(!text.contains("member-43"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_breaks_off_has_no_end() {
    let mut postgres = Postgres::start();
    let mut ground = Ground::new(Stack::Sqlite);
    ground.database_url = postgres.create_database();
    let app = App::start(&ground).await;
    fill(&app, &ground, COUNT).await;
    let mut response = open(&app).await;
    response.chunk().await.expect("a piece");
    postgres.kill();
    let broke_off = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broke_off, "a client must see that rows are missing");
}
