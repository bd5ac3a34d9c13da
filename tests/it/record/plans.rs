//! Each statement of a list has a plan that reads an index, whatever the ledger has.

use sqlx::{AssertSqlSafe, Row};

use crate::support::app::{App, Ground, Stack};
use crate::support::direct::Direct;

/// The values of $1 to $16 for lists of entries, as PostgreSQL writes them.
const OF_ENTRIES: [&str; 16] = [
    "0::bigint",
    ID,
    "9::bigint",
    ID,
    "100::bigint",
    "1::bigint",
    "3::bigint",
    "3::bigint",
    "NULL::bigint",
    ID,
    ID,
    "NULL::text",
    "NULL::text",
    IDS,
    "false",
    "16::smallint",
];
/// The values of $1 to $10 for lists of grants.
const OF_GRANTS: [&str; 10] = [
    ID,
    ID,
    "100::bigint",
    "NULL::text",
    "now()",
    "0::bigint",
    "NULL::bigint",
    "1::bigint",
    "NULL::text",
    "NULL::text",
];
/// The values of $1 to $7 for lists of denials.
const OF_DENIALS: [&str; 7] = [
    "now()",
    "now()",
    "now()",
    ID,
    "now()",
    "100::bigint",
    "1::bigint",
];
/// The values of $1 to $6 for lists of quarter hours.
const OF_QUARTERS: [&str; 6] = [
    "now()",
    "now()",
    "now()",
    "0::integer",
    "100::bigint",
    "1::bigint",
];
const ID: &str = "'0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42'::uuid";
const IDS: &str = "ARRAY['0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42'::uuid]";
/// What PostgreSQL adds to the cost of a way that is switched off. It takes such a way if there is no other.
const SWITCHED_OFF: f64 = 1e10;

/// What SQLite may read whole: values, the few kinds, and what another part of the statement has found.
const FOUND: [&str; 11] = [
    "CONSTANT",
    "json_each",
    "entry_kinds",
    "first",
    "last",
    "found",
    "placed",
    "e",
    "places",
    "n",
    "recent",
];

/// The text with values instead of its parameters.
fn filled(text: &str, values: &[&str]) -> String {
    let numbered = values.iter().enumerate().rev();
    numbered.fold(text.to_owned(), |text, (index, value)| {
        text.replace(&format!("${}", index + 1), value)
    })
}

/// The values of a statement. A list of accounts or keys has ids in the place of a policy.
fn values(name: &str) -> Vec<&'static str> {
    let mut of_accounts = OF_GRANTS;
    of_accounts[7] = IDS;
    match name {
        "bundle" => vec![ID],
        "positions" => vec![ID, ID, "'[[5, \"0198c0de7a117c0f8d3a5c1f0e7b9a42\", 0]]'"],
        "mark at" => vec![ID, ID, "0::bigint", "1::bigint"],
        "audited" => vec![ID, "0::bigint", ID, "100::bigint"],
        "recent" => vec!["0::bigint", ID, "9::bigint", ID],
        "opened" => vec![ID, ID, "100::bigint"],
        "subjects" => vec!["ARRAY['benefit']", "'a'", "'b'", "''", "100::bigint"],
        "entries since" => vec!["1::bigint", ID, "100::bigint", ID],
        "quarters of all" => OF_QUARTERS[..5].to_vec(),
        "quarters of policy" => OF_QUARTERS.to_vec(),
        "denials of all" => OF_DENIALS[..6].to_vec(),
        "denials of policy" => OF_DENIALS.to_vec(),
        _ if name.starts_with("grants of") => of_accounts.to_vec(),
        _ if name.starts_with("grants") => OF_GRANTS.to_vec(),
        _ => OF_ENTRIES.to_vec(),
    }
}

/// A statement without an order of its own: what it reads is in the order of an index.
fn is_bounded(name: &str) -> bool {
    name.ends_with(" count") || name.ends_with(" end")
}

#[tokio::test]
async fn postgres_reads_indexes() {
    let ground = Ground::new(Stack::Postgres);
    let _app = App::start(&ground).await;
    let mut direct = Direct::to(&ground).await;
    for (name, texts) in perdiem::ledger::list_texts() {
        for off in ["enable_seqscan", "enable_bitmapscan", "enable_sort"] {
            let is_on = match off {
                "enable_seqscan" => false,
                _ => !is_bounded(&name),
            };
            let set = format!("SET {off} = {is_on}");
            direct.execute(&set, "").await;
        }
        let text = filled(texts.postgres, &values(&name));
        let plan = direct.texts(&format!("EXPLAIN {text}")).await;
        let cost = plan[0]
            .split("..")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let cost: f64 = cost.expect("a cost").parse().expect("a number");
        assert!(cost < SWITCHED_OFF, "{name}: {text}\n{plan:#?}");
    }
}

#[tokio::test]
async fn sqlite_reads_indexes() {
    let ground = Ground::new(Stack::Sqlite);
    let _app = App::start(&ground).await;
    let Direct::Sqlite(mut direct) = Direct::to(&ground).await else {
        panic!("SQLite");
    };
    for (name, texts) in perdiem::ledger::list_texts() {
        let explain = format!("EXPLAIN QUERY PLAN {}", texts.sqlite);
        let rows = sqlx::query(AssertSqlSafe(explain))
            .fetch_all(&mut direct)
            .await;
        let steps = rows.expect("a plan");
        let steps: Vec<String> = steps.iter().map(|row| row.get("detail")).collect();
        let is_whole = |step: &&String| {
            let scanned = step.strip_prefix("SCAN ").unwrap_or_default();
            let name = scanned.split(' ').next().unwrap_or_default();
            let is_found = FOUND.contains(&name) || name.starts_with("(subquery");
            !(name.is_empty() || scanned.contains(" USING ") || is_found)
        };
        assert_eq!(steps.iter().find(is_whole), None, "{name}: {steps:#?}");
        // Entries that are read in turn have the name of the entries that were found.
        let found = steps.iter().filter(|step| *step == "SCAN e");
        assert!(found.count() <= 1, "{name}: {steps:#?}");
        let sorts = |step: &&String| step.as_str() == "USE TEMP B-TREE FOR ORDER BY";
        if is_bounded(&name) {
            assert_eq!(steps.iter().find(sorts), None, "{name}: {steps:#?}");
        }
    }
}
