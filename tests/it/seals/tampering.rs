//! A change by hand in the database is found and named.

use reqwest::Method;
use serde_json::{Value, json};

use super::{all_is_sealed, leaves, sealing, verified};
use crate::http::v1::keys::make_role;
use crate::support::app::{Answer, App, Ground, Stack};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(every_change_by_hand_is_found_and_named);

/// The tables that are saved before a change by hand, and restored after it.
const TABLES: [&str; 12] = [
    "ledger",
    "entries",
    "entry_details",
    "accounts",
    "policy_versions",
    "key_versions",
    "override_versions",
    "overrides",
    "acts",
    "record_marks",
    "seal_hashes",
    "seals",
];

/// A ledger with rows of every kind.
async fn filled(ground: &Ground) -> App {
    let app = App::start_with(ground, sealing).await;
    app.benefit(5, "UTC").await;
    let body = |order: &str| json!({ "subject": "member-1", "metadata": { "order": order } });
    let first = app.claim_body(body("A"), Some("key-1")).await.grant_id();
    app.claim_body(body("B"), None).await;
    app.claim("member-2", None).await;
    app.claim("member-2", None).await;
    assert_eq!(app.reverse(&first, "a mistake").await.status, 201);
    let adjustment = json!({ "units": 1, "reason": "by hand" });
    assert_eq!(app.adjust("member-3", adjustment, None).await.status, 201);
    app.reset("member-3", Some("day"), None).await.is(201);
    app.override_day("member-1", 9).await;
    app.override_day("member-1", 8).await;
    make_role(&app, "audit", None).await;
    app.benefit(4, "UTC").await;
    let export = app.request(Method::GET, "/v1/entries/export?format=csv");
    assert_eq!(Answer::of(export).await.status, 200);
    app.claim("member-4", None).await;
    app.claim("member-4", None).await;
    app
}

/// A change by hand, and the leaf at whose position it is found.
struct Tampering {
    what: &'static str,
    sql: String,
    is_found_at: fn(&Value) -> bool,
}

fn is_entry(leaf: &Value, kind: &str, number: u64) -> bool {
    leaf["kind"] == kind && leaf["number"] == number
}

/// The condition that finds the entry of a leaf.
fn with_id(ground: &Ground, leaf: &Value) -> String {
    let id = leaf["id"].as_str().and_then(|id| id.parse().ok());
    format!("id = {}", ground.literal(id.expect("an id")))
}

fn tamperings(ground: &Ground, leaves: &[Value]) -> Vec<Tampering> {
    let find = |is_it: fn(&Value) -> bool| {
        let found = leaves.iter().find(|leaf| is_it(leaf));
        with_id(ground, found.expect("a leaf"))
    };
    // Member 1's first and second grant, its reversal, member 2's first grant, and the two newest.
    let first: fn(&Value) -> bool = |leaf| leaf["position"] == 2;
    let second: fn(&Value) -> bool = |leaf| leaf["position"] == 3;
    let reversal: fn(&Value) -> bool = |leaf| leaf["kind"] == "reversal";
    let adjustment: fn(&Value) -> bool = |leaf| leaf["kind"] == "adjustment_up";
    let reset: fn(&Value) -> bool = |leaf| leaf["kind"] == "reset";
    let stranger: fn(&Value) -> bool = |leaf| leaf["position"] == 4;
    let newest = leaves.len() - 1;
    let newest_two = [&leaves[newest - 1], &leaves[newest]].map(|leaf| with_id(ground, leaf));
    let last: fn(&Value) -> bool = |leaf| is_entry(leaf, "grant", 2) && leaf["version"] == 2;
    let last_but_one: fn(&Value) -> bool =
        |leaf| is_entry(leaf, "grant", 1) && leaf["version"] == 2;
    let policy: fn(&Value) -> bool = |leaf| leaf["type"] == "policy" && leaf["version"] == 1;
    let exception: fn(&Value) -> bool = |leaf| leaf["type"] == "override" && leaf["version"] == 1;
    let key: fn(&Value) -> bool = |leaf| leaf["type"] == "key";
    let act: fn(&Value) -> bool = |leaf| leaf["type"] == "act";
    let any: fn(&Value) -> bool = |leaf| leaf["position"] == 1;
    let one = find(first);
    let two = find(second);
    let account = |id: &str| format!("account = (SELECT account FROM entries WHERE {id})");
    let hers = find(stranger);
    let theirs = find(reversal);
    let by_hand = find(adjustment);
    let begun_again = find(reset);
    let zero = ground.literal(uuid::Uuid::nil());
    let forged = ground.literal(uuid::Uuid::from_u128(1 << 120));
    let tamper = |what, sql: String, is_found_at| Tampering {
        what,
        sql,
        is_found_at,
    };
    let entry = |set: &str, id: &str| format!("UPDATE entries SET {set} WHERE {id}");
    let detail = |set: &str, id: &str| format!("UPDATE entry_details SET {set} WHERE {id}");
    let version = |table: &str, set: &str| format!("UPDATE {table} SET {set} WHERE version = 1");
    vec![
        tamper(
            "the newest entry deleted",
            format!("DELETE FROM entries WHERE {}", newest_two[1]),
            last,
        ),
        tamper(
            "the newest two deleted",
            format!(
                "DELETE FROM entries WHERE {}; DELETE FROM entries WHERE {}",
                newest_two[0], newest_two[1]
            ),
            last_but_one,
        ),
        tamper(
            "an account deleted",
            format!("DELETE FROM entries WHERE {}", account(&hers)),
            stranger,
        ),
        tamper(
            "a reversal deleted",
            format!("DELETE FROM entry_details WHERE {theirs}; DELETE FROM entries WHERE {theirs}"),
            reversal,
        ),
        tamper(
            "units and totals changed",
            entry("units = 2, totals = replace(totals, '5,2,', '5,3,')", &two),
            second,
        ),
        tamper(
            "a forged grant",
            format!(
                "INSERT INTO entries (xact, number, at, units, policy, policy_version, kind, flags,
                     account, id, totals)
                 SELECT 0, number + 50, at, units, policy, policy_version, kind, flags, account,
                     {forged}, totals FROM entries WHERE {one}"
            ),
            any,
        ),
        tamper(
            "a grant forged before the record",
            format!(
                "INSERT INTO entries (xact, number, at, units, policy, policy_version, kind, flags,
                     account, id, totals)
                 SELECT -1, number + 50, at, units, policy, policy_version, kind, flags, account,
                     {forged}, totals FROM entries WHERE {one}"
            ),
            any,
        ),
        tamper(
            "max",
            entry("totals = replace(totals, 'd5,', 'd6,')", &two),
            second,
        ),
        tamper("a version", entry("policy_version = 2", &two), second),
        tamper(
            "metadata",
            entry("metadata = '{\"order\":\"X\"}'", &two),
            second,
        ),
        tamper(
            "metadata swapped",
            format!(
                "{}; {}",
                entry("metadata = '{\"order\":\"B\"}'", &one),
                entry("metadata = '{\"order\":\"A\"}'", &two)
            ),
            first,
        ),
        tamper("a key removed", entry("key = NULL", &one), first),
        tamper("another key", entry("claimed_by = 77", &one), first),
        tamper(
            "an hour",
            entry("at = (SELECT max(at) FROM entries)", &one),
            first,
        ),
        tamper(
            "who corrected",
            detail("made_by = 'nobody'", &by_hand),
            adjustment,
        ),
        tamper(
            "which limit was reset",
            detail("per = NULL", &begun_again),
            reset,
        ),
        tamper("why", detail("reason = 'because'", &theirs), reversal),
        tamper(
            "what was reversed",
            detail(&format!("of_grant = {zero}"), &theirs),
            reversal,
        ),
        tamper(
            "the id of details",
            detail(&format!("id = {zero}"), &theirs),
            reversal,
        ),
        tamper("the kind of details", detail("kind = 4", &theirs), reversal),
        tamper(
            "a flag that nobody knows",
            entry("flags = flags + 64", &two),
            second,
        ),
        tamper(
            "an account's policy",
            format!(
                "UPDATE accounts SET policy = policy + 1 WHERE id = (
                     SELECT account FROM entries WHERE {one}
                 )"
            ),
            first,
        ),
        tamper(
            "a subject",
            format!(
                "UPDATE accounts SET subject = 'member-9' WHERE id = (
                     SELECT account FROM entries WHERE {one}
                 )"
            ),
            first,
        ),
        tamper(
            "a rule",
            version(
                "policy_versions",
                "rule = replace(rule, '\"max\":5', '\"max\":6')",
            ),
            policy,
        ),
        tamper(
            "when a version took effect",
            version(
                "policy_versions",
                "effective_at = (SELECT max(effective_at) FROM policy_versions)",
            ),
            policy,
        ),
        tamper(
            "an override's limits",
            version("override_versions", "limits = replace(limits, '9', '7')"),
            exception,
        ),
        tamper(
            "an override's reason",
            version("override_versions", "reason = 'another'"),
            exception,
        ),
        tamper(
            "an override's history",
            "DELETE FROM override_versions WHERE version = 1".to_owned(),
            exception,
        ),
        tamper(
            "a key's reason",
            version("key_versions", "reason = 'another'"),
            key,
        ),
        tamper(
            "a key's role",
            version("key_versions", "role = 'admin'"),
            key,
        ),
        tamper(
            "a key's policies",
            version("key_versions", "policies = '[]'"),
            key,
        ),
        tamper("an act", "UPDATE acts SET about = '{}'".to_owned(), act),
        tamper(
            "an act's time",
            "UPDATE acts SET changed_at = (SELECT min(changed_at) FROM policy_versions)".to_owned(),
            act,
        ),
    ]
}

async fn keep(ground: &Ground) {
    for table in TABLES {
        ground
            .sql(&format!(
                "CREATE TABLE kept_{table} AS SELECT * FROM {table}"
            ))
            .await;
    }
}

async fn put_back(ground: &Ground, stack: Stack) {
    for table in TABLES {
        ground.sql(&format!("DELETE FROM {table}")).await;
    }
    // Tables that others refer to are restored first.
    for table in TABLES.into_iter().rev() {
        let columns = columns_of(ground, stack, table).await.join(", ");
        ground
            .sql(&format!(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM kept_{table}"
            ))
            .await;
    }
}

/// The columns of a table that it does not compute.
async fn columns_of(ground: &Ground, stack: Stack, table: &str) -> Vec<String> {
    let sql = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => {
            format!("SELECT name FROM pragma_table_info('{table}')")
        }
        Stack::Postgres | Stack::RedisAndPostgres => format!(
            "SELECT attname::text FROM pg_attribute
            WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
        ),
    };
    Direct::to(ground).await.texts(&sql).await
}

/// Removes the triggers and foreign keys that would prevent the change.
pub async fn open_all(ground: &Ground, stack: Stack) {
    let sql = match stack {
        Stack::Sqlite | Stack::RedisAndSqlite => {
            "SELECT 'DROP TRIGGER ' || name FROM sqlite_master WHERE type = 'trigger'"
        }
        Stack::Postgres | Stack::RedisAndPostgres => {
            "SELECT 'DROP TRIGGER ' || tgname || ' ON ' || tgrelid::regclass::text
             FROM pg_trigger WHERE NOT tgisinternal
             UNION ALL SELECT 'ALTER TABLE override_versions DROP CONSTRAINT ' || conname
             FROM pg_constraint
             WHERE contype = 'f' AND conrelid = 'override_versions'::regclass"
        }
    };
    for statement in Direct::to(ground).await.texts(sql).await {
        ground.sql(&statement).await;
    }
}

async fn every_change_by_hand_is_found_and_named(stack: Stack) {
    let ground = Ground::new(stack);
    let app = filled(&ground).await;
    let seal = all_is_sealed(&app, &ground).await;
    let leaves = leaves(&app, seal.size).await;
    assert_eq!(leaves.len() as u64, seal.size);
    drop(app);
    let well = verified(&ground, Some(seal.clone()))
        .await
        .expect("nothing differs");
    assert_eq!((well.sealed, well.unsealed), (seal.size, 0));
    open_all(&ground, stack).await;
    keep(&ground).await;
    for tampering in tamperings(&ground, &leaves) {
        let what = tampering.what;
        ground.sql(&tampering.sql).await;
        let found = leaves.iter().find(|leaf| (tampering.is_found_at)(leaf));
        let position = &found.expect("a leaf")["position"];
        let error = verified(&ground, None).await.expect_err(what).to_string();
        let named = format!("position {position}:");
        assert!(error.starts_with(&named), "{what}: {named} {error}");
        put_back(&ground, stack).await;
    }
    for (what, sql, named) in [
        (
            "a hash of the log",
            match stack {
                Stack::Sqlite | Stack::RedisAndSqlite => {
                    "UPDATE seal_hashes SET hashes = zeroblob(length(hashes))"
                }
                Stack::Postgres | Stack::RedisAndPostgres => {
                    "UPDATE seal_hashes SET hashes = set_byte(hashes, 0, get_byte(hashes, 0) # 1)"
                }
            },
            "position 1:",
        ),
        (
            "the hashes gone",
            "DELETE FROM seal_hashes WHERE first > 0 OR first = 0",
            "hashes|position",
        ),
        (
            "a checkpoint",
            "UPDATE seals SET note = replace(note, 'perdiem/', 'perdiem/x')",
            "the checkpoint of",
        ),
        (
            "all checkpoints gone",
            "DELETE FROM seals",
            "the log has no checkpoint",
        ),
        (
            "the ledger's id",
            match stack {
                Stack::Sqlite | Stack::RedisAndSqlite => "UPDATE ledger SET id = zeroblob(16)",
                Stack::Postgres | Stack::RedisAndPostgres => {
                    "UPDATE ledger SET id = '00000000-0000-0000-0000-000000000000'"
                }
            },
            "the ledger's id is 00000000",
        ),
        (
            "when it was recorded",
            "UPDATE record_marks SET recorded_at = (SELECT min(changed_at) FROM policy_versions)
             WHERE after = 0",
            "position 1:",
        ),
    ] {
        ground.sql(sql).await;
        let error = verified(&ground, Some(seal.clone())).await;
        let error = error.expect_err(what).to_string();
        let is_named = named.split('|').any(|named| error.starts_with(named));
        assert!(is_named, "{what}: {error}");
        put_back(&ground, stack).await;
    }
    verified(&ground, Some(seal))
        .await
        .expect("the ledger is restored");
}
