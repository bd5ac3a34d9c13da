//! The record: one order of all entries and changes, which a follower can trust.

mod feed;
mod late;
mod lists;
mod plans;
mod restored;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::app::{App, Ground, eventually};
use crate::support::direct::Direct;

/// The ids of all entries in the ledger, read without perdiem.
async fn ids_in_the_table(ground: &Ground) -> BTreeSet<String> {
    let sql = if ground.database_url.starts_with("sqlite:") {
        "SELECT lower(hex(id)) FROM entries"
    } else {
        "SELECT replace(id::text, '-', '') FROM entries"
    };
    let ids = Direct::to(ground).await.texts(sql).await;
    ids.into_iter().collect()
}

/// How many changes the ledger has.
async fn changes_in_the_table(ground: &Ground) -> u64 {
    let sql = "SELECT CAST(revision AS text) FROM ledger";
    let revision = Direct::to(ground).await.texts(sql).await;
    revision[0].parse().expect("a number")
}

/// Waits until every row of the ledger has a position.
pub async fn all_is_recorded(app: &App, ground: &Ground) -> u64 {
    eventually("everything has a position", || async {
        let entries = ids_in_the_table(ground).await.len() as u64;
        newest(app).await == entries + changes_in_the_table(ground).await
    })
    .await;
    newest(app).await
}

async fn newest(app: &App) -> u64 {
    let list = app.get("/v1/entries?limit=1").await;
    assert_eq!(list.status, 200, "{list:?}");
    list.json()["as_of"].as_u64().expect("a position")
}

/// Reads on in a list, and waits up to `wait` seconds for the first entry. Returns where the next
/// read begins.
async fn follow(app: &App, after: u64, wait: u32, seen: &mut Vec<Value>) -> u64 {
    let path = format!("/v1/entries?after={after}&limit=50");
    let mut page = app.get(&format!("{path}&wait={wait}")).await;
    loop {
        assert_eq!(page.status, 200, "{page:?}");
        let list = page.json();
        seen.extend(list["items"].as_array().expect("items").iter().cloned());
        let Some(cursor) = list["next_cursor"].as_str() else {
            return list["as_of"].as_u64().expect("a position");
        };
        page = app
            .get(&format!("{path}&wait={wait}&cursor={cursor}"))
            .await;
    }
}

/// Asserts that the seen entries equal the table: each entry once, in the order of positions, with
/// changes at the positions between them.
async fn is_the_table(seen: &[Value], ground: &Ground) {
    let ids = seen.iter().map(|item| item["id"].as_str().expect("an id"));
    let ids: Vec<String> = ids.map(|id| id.replace('-', "")).collect();
    let once: BTreeSet<String> = ids.iter().cloned().collect();
    assert_eq!(once.len(), ids.len(), "an entry was seen twice");
    assert_eq!(once, ids_in_the_table(ground).await);
    let positions = seen
        .iter()
        .map(|item| item["position"].as_u64().expect("a position"));
    let positions: Vec<u64> = positions.collect();
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
}
