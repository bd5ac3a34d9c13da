//! The views are the same on both stores, as docs/operations/views.md lists them.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::app::{App, Ground, Stack};
use crate::support::desk::{another_ledger, on_every_store};
use crate::support::direct::Direct;

on_every_store!(
    the_views_are_those_of_the_page,
    the_views_show_what_the_ledger_has,
);

const PAGE: &str = include_str!("../../../docs/operations/views.md");

/// The views of the page with their columns: each is a row of a table.
fn views_of_the_page() -> BTreeMap<String, Vec<String>> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (view, rest) = row.split_once('`').expect("a name");
        let columns = rest.split('`').skip(1).step_by(2);
        (view.to_owned(), columns.map(str::to_owned).collect())
    })
    .collect()
}

async fn the_views_are_those_of_the_page(stack: Stack) {
    let ground = Ground::new(stack);
    another_ledger(&ground).await;
    let columns = match stack {
        Stack::Postgres | Stack::RedisAndPostgres => {
            "SELECT c.table_name || ' ' || c.column_name FROM information_schema.columns AS c
             JOIN information_schema.views AS v USING (table_schema, table_name)
             WHERE c.table_schema = 'public' ORDER BY c.table_name, c.ordinal_position"
        }
        Stack::Sqlite | Stack::RedisAndSqlite => {
            "SELECT v.name || ' ' || c.name FROM sqlite_schema AS v
             JOIN pragma_table_info(v.name) AS c WHERE v.type = 'view' ORDER BY v.name, c.cid"
        }
    };
    let mut views: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column in Direct::to(&ground).await.texts(columns).await {
        let (view, column) = column.split_once(' ').expect("two words");
        views
            .entry(view.to_owned())
            .or_default()
            .push(column.to_owned());
    }
    assert_eq!(views, views_of_the_page());
}

async fn the_views_show_what_the_ledger_has(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(30, "UTC").await;
    app.override_day("vip", 40).await;
    app.ask(
        "PUT /v1/policies/benefit/blocks/thief",
        json!({ "reason": "a test" }),
    )
    .await;
    let key = json!({ "name": "a till", "role": "claim", "reason": "a test" });
    app.ask("POST /v1/keys", key).await.is(201);
    app.claim("granted", Some("order-1")).await;
    let reversed = app.claim("reversed", None).await.grant_id();
    assert_eq!(app.reverse(&reversed, "a test").await.status, 201);
    let hold = |subject: &str| json!({ "subject": subject, "units": 5, "hold_seconds": 600 });
    app.claim_body(hold("held"), None).await;
    let confirmed = app.claim_body(hold("confirmed"), None).await.grant_id();
    assert!(app.confirm(&confirmed).await.status.is_success());
    let part = app.reverse_units(&confirmed, 2, "a test", "part-1").await;
    assert!(part.status.is_success(), "{part:?}");
    let up = json!({ "units": 3, "reason": "a test" });
    assert_eq!(app.adjust("adjusted", up, None).await.status, 201);
    app.reset("adjusted", None, None).await.is(201);

    let mut direct = Direct::to(&ground).await;
    for view in views_of_the_page().into_keys() {
        let read = format!("SELECT CAST(count(*) AS text) FROM (SELECT * FROM {view}) AS found");
        assert_ne!(direct.texts(&read).await, ["0"], "{view}");
    }
    let grants =
        "SELECT subject || ' ' || policy || ' ' || state || ' ' || units || ' ' || returned || ' '
            || parts || ' ' || COALESCE(closed_by, '-') FROM grant_rows ORDER BY id";
    assert_eq!(
        direct.texts(grants).await,
        [
            "granted benefit granted 1 0 0 -",
            "reversed benefit reversed 1 0 0 PERDIEM_ADMIN_KEY",
            "held benefit held 5 0 0 -",
            "confirmed benefit granted 5 2 1 -",
        ]
    );
    let states = "SELECT COALESCE(ended_as, '-') FROM grant_states ORDER BY id";
    assert_eq!(
        direct.texts(states).await,
        ["-", "reversed", "-", "granted"]
    );
    let counted = "SELECT CAST(count(*) AS text) FROM listed_entries AS e
        JOIN counted_entries AS c ON c.id = e.id AND c.counted_id = e.counted_id";
    assert_eq!(direct.texts(counted).await, ["9"]);
    let changes = "SELECT kind FROM change_rows WHERE kind <> 'day' ORDER BY revision";
    assert_eq!(
        direct.texts(changes).await,
        ["policy", "override", "block", "key"]
    );
    let blocks = "SELECT subject FROM override_rows WHERE kind = 'block'";
    assert_eq!(direct.texts(blocks).await, ["thief"]);
}
