//! A ledger of the version before `entry_details`: today's code tells the same of it as of a
//! ledger that it wrote itself.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use perdiem::clock::{Clock, ManualClock};
use perdiem::ledger::{Ledger, LedgerError, LedgerOptions, OpenError};
use serde_json::{Value, json};

use super::older::older_ledger;
use crate::support::app::{
    App, Ground, NOON, Stack, eventually, instant, on_every_store_with_redis,
};
use crate::support::books::Books;
use crate::support::desk::{another_ledger, on_every_store};
use crate::support::direct::Direct;

const MIGRATION: &str = "0008";

/// Each table of the version before, its columns, and the rows that a ledger of today has for it.
const TABLES: [(&str, &str, &str); 9] = [
    ("ledger", "id, secret, revision, created_at", "ledger"),
    ("policies", "id, name", "policies"),
    (
        "policy_versions",
        "policy, version, revision, rule, archived, changed_at, changed_by, reason, effective_at",
        "policy_versions",
    ),
    ("accounts", "id, policy, subject", "accounts"),
    ("keys", "id, secret_hash, created_at", "keys"),
    (
        "key_versions",
        "key, version, revision, name, role, policies, ends_at, revoked, changed_at, changed_by, \
         reason",
        "key_versions",
    ),
    ("overrides", "account, policy, subject", "overrides"),
    (
        "override_versions",
        "account, version, revision, limits, until, changed_at, changed_by, reason",
        "override_versions",
    ),
    (
        "entries",
        "number, at, units, policy, policy_version, kind, account, id, key, totals, metadata, \
         provisional, of_grant, held_until, lapses_at, would_deny, made_by, reason",
        "(SELECT e.*, CASE WHEN e.flags & 1 <> 0 THEN (e.flags & 2) / 2 END AS provisional,
             d.of_grant, d.held_until, CASE WHEN e.flags & 4 <> 0 THEN true END AS would_deny,
             d.made_by, d.reason
          FROM entries AS e LEFT JOIN entry_details AS d
             ON d.account = e.account AND d.number = e.number) AS told",
    ),
];

/// Makes a ledger of the version before with all that a ledger of today has.
async fn copy_to_older(ground: &Ground, older: &Ground, stack: Stack) {
    let mut direct = Direct::to(ground).await;
    let mut statements = Vec::new();
    for (table, columns, rows) in TABLES {
        let overriding = match (stack, table) {
            (Stack::RedisAndPostgres, "policies") => "OVERRIDING SYSTEM VALUE",
            _ => "",
        };
        let insert = format!("INSERT INTO {table} ({columns}) {overriding} VALUES (");
        let quoted = match stack {
            Stack::RedisAndPostgres => "quote_nullable(",
            _ => "quote(",
        };
        let values: Vec<String> = columns
            .split(", ")
            .map(|column| format!("{quoted}{column})"))
            .collect();
        let values = values.join(" || ', ' || ");
        let text = format!("SELECT '{insert}' || {values} || ')' FROM {rows}");
        statements.extend(direct.texts(&text).await);
    }
    let store = match stack {
        Stack::RedisAndPostgres => Stack::Postgres,
        _ => Stack::Sqlite,
    };
    older_ledger(older, store, MIGRATION, statements).await;
}

async fn start(ground: &Ground, clock: &ManualClock) -> App {
    App::start_with(ground, |options| {
        options.clock = Clock::Manual(clock.clone());
    })
    .await
}

async fn granted(app: &App, policy: &str, body: Value, key: Option<&str>) -> String {
    let answer = app.claim_under(policy, body, key).await;
    answer.is(201);
    answer.grant_id()
}

async fn put(app: &App, name: &str, changes: Value) {
    let mut body = json!({
        "time_zone": "GMT+8",
        "limits": [{ "max": 20, "per": "day" }, { "max": 90, "per": "month" }],
        "reason": "a test",
    });
    for (name, value) in changes.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let answer = app.put_policy(name, body).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

/// Makes every kind of entry. Returns the ids of grants.
async fn make_every_kind(app: &App, clock: &ManualClock) -> Vec<String> {
    put(app, "benefit", json!({})).await;
    put(app, "watched", json!({ "mode": "observe" })).await;
    put(app, "counted", json!({ "durability": "counted" })).await;
    let key = json!({ "name": "shop", "role": "claim" });
    app.ask("POST /v1/keys", key).await.is(201);
    app.override_day("member-2", 30).await;
    let mut ids = Vec::new();
    let metadata = json!({ "order": "A-1" });
    let body = json!({ "subject": "member-1", "units": 2, "metadata": metadata });
    ids.push(granted(app, "benefit", body, Some("plain")).await);
    for (subject, units) in [("member-1", 1), ("member-2", 25), ("member-3", 1)] {
        clock.set(clock.now() + TimeDelta::milliseconds(1));
        let body = json!({ "subject": subject, "units": units });
        ids.push(granted(app, "benefit", body, None).await);
    }
    app.reverse(&ids[1], "a reversal").await.is(201);
    for seconds in [30, 60, 120, 3600] {
        let body = json!({ "subject": "member-1", "hold_seconds": seconds });
        ids.push(granted(app, "benefit", body, None).await);
    }
    app.confirm(&ids[4]).await.is(201);
    // The second hold lapses, and the next decision says so. Nothing says so of the third.
    clock.set(clock.now() + TimeDelta::seconds(60));
    for (direction, key) in [(4, None), (-1, Some("by hand"))] {
        let body = json!({ "units": direction, "reason": "a test" });
        app.adjust("member-1", body, key).await.is(201);
    }
    for _ in 0..2 {
        let body = json!({ "subject": "member-1", "units": 15 });
        ids.push(granted(app, "watched", body, None).await);
    }
    for _ in 0..2 {
        let body = json!({ "subject": "member-1" });
        ids.push(granted(app, "counted", body, None).await);
    }
    eventually("the counted grants are recorded", || async {
        let listed = app.get("/v1/grants?provisional=true").await.json();
        listed["items"].as_array().map(Vec::len) == Some(2)
    })
    .await;
    clock.set(clock.now() + TimeDelta::seconds(60));
    ids
}

/// All that an application tells of its ledger.
async fn told(app: &App, ids: &[String]) -> Vec<(String, Value)> {
    let scopes = ["", "&policy=benefit", "&policy=benefit&subject=member-1"];
    let states = [
        "",
        "&state=held",
        "&state=granted",
        "&state=reversed",
        "&state=lapsed",
    ];
    let list = |scope: &str, state: &str| format!("/v1/grants?limit=100{scope}{state}");
    let lists = scopes
        .iter()
        .flat_map(|scope| states.map(|state| list(scope, state)));
    let mut paths: Vec<String> = lists.collect();
    paths.extend(ids.iter().map(|id| format!("/v1/grants/{id}")));
    paths.extend(
        [
            "/v1/grants?provisional=true",
            "/v1/grants?would_deny=true",
            "/v1/grants?policy=watched&would_deny=true",
            "/v1/grants?policy=benefit&limit=2",
            "/v1/grants?policy=benefit&from=2026-11-21T03:04:06Z",
            "/v1/grants?policy=benefit&idempotency_key=plain",
            "/v1/grants/export?format=csv",
            "/v1/grants/export?format=ndjson",
            "/v1/policies/benefit/subjects/member-1/entries",
            "/v1/policies/benefit/subjects/member-1",
            "/v1/policies/benefit/subjects/member-2",
            "/v1/policies/watched/subjects/member-1",
            "/v1/keys",
            "/v1/changes",
        ]
        .map(str::to_owned),
    );
    let mut told = Vec::new();
    for path in paths {
        let answer = app.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        told.push((path, Value::String(answer.text)));
    }
    let path = "/v1/policies/benefit/backtest";
    let draft = json!({ "time_zone": "GMT+8", "limits": [{ "max": 2, "per": "day" }] });
    let body = json!({ "policy": draft, "from": "2026-11-21", "to": "2026-11-22" });
    let answer = app.ask(&format!("POST {path}"), body).await;
    told.push((path.to_owned(), answer.is(200)));
    told
}

on_every_store_with_redis!(a_ledger_of_the_version_before_tells_the_same);

async fn a_ledger_of_the_version_before_tells_the_same(stack: Stack) {
    let ground = Ground::new(stack);
    let older = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = start(&ground, &clock).await;
    let ids = make_every_kind(&app, &clock).await;
    copy_to_older(&ground, &older, stack).await;
    let migrated = start(&older, &clock).await;

    assert_eq!(told(&migrated, &ids).await, told(&app, &ids).await);
    let books = Books::open(&ground).await;
    let older_books = Books::open(&older).await;
    older_books.audit().await;
    let mut expected = books.entries().await;
    for entry in expected.values_mut().flatten() {
        entry.claimed_by = None;
    }
    assert_eq!(older_books.entries().await, expected);
    let equal = "SELECT CAST(count(*) - count(DISTINCT blind) AS text) FROM accounts";
    for ground in [&ground, &older] {
        let found = Direct::to(ground).await.texts(equal).await;
        assert_eq!(found, ["0"], "each account has a blind of its own");
    }

    // The ledger goes on: keys are known, grants are closed once, and numbers have no gap.
    let metadata = json!({ "order": "A-1" });
    let body = json!({ "subject": "member-1", "units": 2, "metadata": metadata });
    let again = migrated.claim_body(body, Some("plain")).await;
    again.is(200);
    assert_eq!(again.grant_id(), ids[0]);
    migrated.reverse(&ids[1], "once more").await.is(200);
    migrated.confirm(&ids[6]).await.is(410);
    migrated.confirm(&ids[7]).await.is(201);
    granted(&migrated, "benefit", json!({ "subject": "member-1" }), None).await;
    older_books.audit().await;
}

on_every_store!(
    a_migration_that_fails_leaves_the_older_ledger,
    an_older_perdiem_cannot_append,
);

/// An entry of the version before, as both stores take it.
fn older_entry(stack: Stack) -> String {
    let (id, at) = match stack {
        Stack::Postgres => (
            "'00000000-0000-0000-0000-000000000001'",
            "'2026-11-21T03:04:05Z'",
        ),
        _ => ("x'00000000000000000000000000000001'", "1795230245000000"),
    };
    format!(
        "INSERT INTO entries (account, number, id, at, kind, policy, policy_version, units, key,
             totals) VALUES ({id}, 1, {id}, {at}, 1, 1, 1, 1, NULL, 'd3,1,1763654400+86400')"
    )
}

async fn a_migration_that_fails_leaves_the_older_ledger(stack: Stack) {
    let ground = Ground::new(stack);
    // The name of an index that the migration makes late.
    let taken = match stack {
        Stack::Postgres => "entries_xact",
        _ => "entries_number",
    };
    let statements = vec![
        older_entry(stack),
        format!("CREATE TABLE {taken} (id integer)"),
    ];
    older_ledger(&ground, stack, MIGRATION, statements).await;
    let options = LedgerOptions {
        url: ground.database_url.clone(),
        claim_timeout: Duration::from_secs(30),
        query_timeout: Duration::from_secs(30),
    };
    let failed = Ledger::open(&options, instant(NOON)).await;
    let Err(OpenError::Failed {
        source: LedgerError::Unavailable(_),
        ..
    }) = failed.map(drop)
    else {
        panic!("the migration did not fail")
    };
    let rows = "SELECT COALESCE(made_by, totals) FROM entries";
    let mut direct = Direct::to(&ground).await;
    assert_eq!(direct.texts(rows).await, ["d3,1,1763654400+86400"]);
    let drop_table = format!("DROP TABLE {taken}");
    direct.execute(&drop_table, &drop_table).await;
    let ledger = another_ledger(&ground).await;
    let audited = ledger.audited(None, 10).await.expect("entries");
    assert_eq!(audited.len(), 1);
}

/// It may still run, and knows the columns that it inserts.
async fn an_older_perdiem_cannot_append(stack: Stack) {
    let ground = Ground::new(stack);
    let ledger = another_ledger(&ground).await;
    let sql = older_entry(stack);
    let refused = Direct::to(&ground).await.try_execute(&sql, &sql).await;
    let refused = refused.map_err(LedgerError::from);
    assert!(
        matches!(refused, Err(LedgerError::Refused(_))),
        "{refused:?}"
    );
    assert!(ledger.audited(None, 10).await.expect("entries").is_empty());
}

const ENTRIES: u32 = 1_000_000;

/// docs/operations/upgrading.md has these numbers. Run it with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn a_million_entries_are_migrated() {
    for stack in [Stack::Sqlite, Stack::Postgres] {
        migrate_many(stack).await;
    }
}

async fn migrate_many(stack: Stack) {
    let ground = Ground::new(stack);
    let columns = "(number, at, units, policy, policy_version, kind, account, id, key, totals)";
    let totals = "'d3,1,1763654400+86400'";
    let fill = match stack {
        Stack::Postgres => format!(
            "INSERT INTO entries {columns}
             SELECT 1 + i % 3, now(), 1, 1, 1, 1, md5('account' || i / 3)::uuid,
                 (lpad(to_hex(1763654400000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))
                 ::uuid, md5('key' || i)::uuid, {totals}
             FROM generate_series(0, {ENTRIES} - 1) AS i;
             INSERT INTO accounts SELECT DISTINCT account, 1, 'member' FROM entries"
        ),
        _ => format!(
            "CREATE TEMP TABLE account AS WITH RECURSIVE n(i) AS (
                 SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ENTRIES} / 3
             ) SELECT i, randomblob(16) AS id FROM n;
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {ENTRIES} - 1)
             INSERT INTO entries {columns}
             SELECT 1 + i % 3, 1763654400000000, 1, 1, 1, 1,
                 (SELECT id FROM account WHERE account.rowid = n.i / 3 + 1),
                 CAST(unhex(printf('%012x7000', 1763654400000 + i)) || randomblob(8) AS BLOB),
                 randomblob(16), {totals} FROM n;
             INSERT INTO accounts SELECT DISTINCT account, 1, 'member' FROM entries"
        ),
    };
    older_ledger(&ground, stack, MIGRATION, vec![fill]).await;
    let began = Instant::now();
    let ledger = another_ledger(&ground).await;
    println!("{stack:?}: {ENTRIES} entries, {:?}", began.elapsed());
    let count = "SELECT CAST(count(*) AS TEXT) FROM entries";
    let counted = Direct::to(&ground).await.texts(count).await;
    assert_eq!(counted, [ENTRIES.to_string()]);
    ledger.close().await;
}
