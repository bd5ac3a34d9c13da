//! Entries and changes that are older than the record.

use serde_json::json;

use super::{all_is_recorded, follow, is_the_table};
use crate::support::app::{App, Ground, Stack};
use crate::support::servers;

/// The old entries come first, in the order of ids; they are more than the follower reads in a
/// step. Then the old changes come, and then all new rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_come_first() {
    let ground = Ground::new(Stack::Postgres);
    let app = App::start(&ground).await;
    app.benefit(1_000_000, "UTC").await;
    let claim =
        |index: usize| json!({ "policy": "benefit", "subject": format!("m-{}", index % 70) });
    for _ in 0..5 {
        let body = json!({ "claims": (0..1000).map(claim).collect::<Vec<_>>() });
        let request = app.request(reqwest::Method::POST, "/v1/claims").json(&body);
        assert_eq!(request.send().await.expect("an answer").status(), 200);
    }
    drop(app);
    // The state after the migration.
    let database = ground.database_url.rsplit('/').next().expect("a name");
    let sql = "DROP TRIGGER entries_can_be_erased ON entries;
        DROP TRIGGER record_marks_are_append_only ON record_marks;
        UPDATE entries SET xact = 0; UPDATE policy_versions SET xact = 0; DELETE FROM record_marks";
    servers::postgres().execute(database, sql);
    let app = App::start(&ground).await;
    app.claim("m-0", None).await;
    all_is_recorded(&app, &ground).await;
    let mut seen = Vec::new();
    follow(&app, 0, 0, &mut seen).await;
    is_the_table(&seen, &ground).await;
    let newest = seen.last().expect("an entry");
    assert_eq!(newest["subject"], "m-0");
    // The old change has a position between the old entries and the new one.
    assert_eq!(newest["position"], 5002);
    assert_eq!(seen[4999]["position"], 5000);
}
