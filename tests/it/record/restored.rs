//! A dump is restored into another cluster, where transactions have lower numbers.

use serde_json::json;

use super::{all_is_recorded, follow, is_the_table};
use crate::support::app::{App, Ground};
use crate::support::servers::Postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_goes_on_in_another_cluster() {
    let postgres = Postgres::start();
    let ground = Ground::of_database(postgres.create_database());
    // So many transactions that a new cluster has lower numbers.
    let burn = "DO $$ BEGIN FOR i IN 1..3000 LOOP
        PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";
    postgres.execute("postgres", burn);
    let app = App::start(&ground).await;
    app.benefit(100, "UTC").await;
    for _ in 0..3 {
        app.claim("a", None).await;
    }
    let before = all_is_recorded(&app, &ground).await;
    let mut seen = Vec::new();
    follow(&app, 0, 0, &mut seen).await;
    drop(app);
    let other = Postgres::start();
    let copy = Ground::of_database(other.create_database());
    postgres.dump_into(&ground.database_url, &copy.database_url);
    let app = App::start(&copy).await;
    app.claim("a", None).await;
    app.override_day("a", 50).await;
    app.claim("b", None).await;
    all_is_recorded(&app, &copy).await;
    follow(&app, before, 0, &mut seen).await;
    is_the_table(&seen, &copy).await;
    let subjects: Vec<_> = seen[3..].iter().map(|item| &item["subject"]).collect();
    assert_eq!(subjects, [&json!("a"), &json!("b")]);
    assert_eq!(seen[4]["position"], before + 3);

    // The default of the column is lost, as in a restore of the data alone.
    drop(app);
    let database = copy.database_url.rsplit('/').next().expect("a name");
    let raise = "UPDATE ledger SET xact_offset = xact_offset + 5000000000";
    other.execute(database, raise);
    let added = "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
        WHERE adrelid = 'entries'::regclass AND pg_get_expr(adbin, adrelid) LIKE '%xact%'";
    let app = App::start(&copy).await;
    let after = app.claim("c", None).await;
    assert_eq!(after.status, 201, "{after:?}");
    all_is_recorded(&app, &copy).await;
    let first = other.execute(database, added);
    assert!(first.contains("::bigint + '5000"), "{first}");
    // One repair is enough.
    drop(app);
    let app = App::start(&copy).await;
    let listed = app.get("/v1/entries?subject=c").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(other.execute(database, added), first);
}
