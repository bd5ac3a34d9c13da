//! `/livez` and `/readyz`: whether an instance runs, and whether the instance is ready.

use serde_json::json;

use crate::support::app::{App, Stack, on_every_stack};

on_every_stack!(a_ready_instance_says_what_it_stands_on);

async fn a_ready_instance_says_what_it_stands_on(stack: Stack) {
    let (app, _clock) = App::with_clock(stack).await;
    let live = app.get("/livez").await;
    assert_eq!((live.status.as_u16(), live.text.as_str()), (200, "ok\n"));
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    let ready = ready.json();
    let (ledger, counters) = match stack {
        Stack::Sqlite => ("SQLite", false),
        Stack::Postgres => ("PostgreSQL", false),
        Stack::RedisAndSqlite => ("SQLite", true),
        Stack::RedisAndPostgres => ("PostgreSQL", true),
    };
    assert_eq!(
        ready,
        json!({
            "status": "ready", "version": env!("CARGO_PKG_VERSION"), "troubles": [],
            "ledger": ledger, "counters": counters,
            "seals": "not sealed", "read_only": false, "lag_seconds": null,
            "zone_rules": ready["zone_rules"],
        })
    );
    let rules = ready["zone_rules"].as_str().expect("a text");
    assert!(
        rules.ends_with("(system)") || rules.ends_with("(bundled)"),
        "{rules}"
    );
}
