//! Instances that only read, on a standby of PostgreSQL.

mod commands;
mod exports;
mod hosts;
mod lag;
mod lists;
mod refusals;
mod replay;

use std::sync::Arc;

use perdiem::host::clock::{Clock, ManualClock};
use serde_json::json;

use crate::http::v1::keys::{Made, make_role};
use crate::seals::{all_is_sealed, seal_key};
use crate::support::app::{App, Ground, NOON, eventually, instant};
use crate::support::servers::Postgres;

/// A primary with an instance that seals, and a standby with one that only reads. The clocks of both
/// instances show [`NOON`].
struct Pair {
    reader: App,
    writer: App,
    ground: Ground,
    standby: Postgres,
    primary: Postgres,
    /// The name of the database on both servers.
    database: String,
    /// A grant that was reversed.
    grant: String,
    /// A key with the role `audit`.
    auditor: Made,
}

impl Pair {
    /// Starts both, with entries and changes of many kinds. Returns when all is sealed.
    async fn start() -> Self {
        let primary = Postgres::start();
        primary.execute("postgres", READER);
        let ground = Ground::of_database(primary.create_database());
        let database = ground.database_url.rsplit('/').next().expect("a name");
        let database = database.to_owned();
        let writer = App::start_with(&ground, |options| {
            options.clock = Clock::Manual(ManualClock::at(instant(NOON)));
            options.seal_key = Some(Arc::new(seal_key()));
        });
        let writer = writer.await;
        let (grant, auditor) = fill(&writer).await;
        let standby = primary.start_standby();
        let reader = reader_of(&standby, &database).await;
        all_is_sealed(&writer, &ground).await;
        Self {
            reader,
            writer,
            ground,
            standby,
            primary,
            database,
            grant,
            auditor,
        }
    }

    /// Waits until the standby has what the primary has.
    async fn is_followed(&self) {
        eventually("the standby has followed", || async {
            let newest = "/v1/seals?limit=1";
            let ours = self.writer.get(newest).await.text;
            ours == self.reader.get(newest).await.text
        })
        .await;
    }
}

/// Makes a user that can only read.
const READER: &str = "CREATE ROLE perdiem_reader LOGIN IN ROLE pg_read_all_data";

/// An instance that only reads a database of a server, as a user that can only read.
async fn reader_of(server: &Postgres, database: &str) -> App {
    let url = server.url(database).replace("postgres@", "perdiem_reader@");
    let ground = Ground::of_database(url);
    let app = App::start_with(&ground, |options| {
        options.read_only = true;
        options.clock = Clock::Manual(ManualClock::at(instant(NOON)));
    });
    app.await
}

/// Makes entries and changes of many kinds. Returns a grant that was reversed, and an auditor's key.
async fn fill(app: &App) -> (String, Made) {
    app.benefit(3, "Asia/Shanghai").await;
    let auditor = make_role(app, "audit", None).await;
    let grant = app.claim("member-42", Some("order-1")).await.grant_id();
    app.claim("member-42", None).await.is(201);
    app.claim_body(json!({ "subject": "member-42", "units": 3 }), None)
        .await
        .is(429);
    app.reverse(&grant, "sent twice").await.is(201);
    let hold = json!({ "subject": "member-7", "hold_seconds": 3600 });
    let hold = app.claim_body(hold, None).await.grant_id();
    app.confirm(&hold).await.is(201);
    let body = json!({ "units": 1, "reason": "opening balance" });
    app.adjust("member-8", body, None).await.is(201);
    app.override_day("member-9", 9).await;
    app.block("member-10").await.is(201);
    app.tiers("benefit").await;
    app.put_tier("member-11", "gold", None).await.is(201);
    let report = app.ask("POST /v1/reconciliations", json!({})).await;
    assert!(report.status.is_success(), "{report:?}");
    (grant, auditor)
}
