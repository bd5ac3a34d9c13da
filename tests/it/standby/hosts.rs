//! A URL that names several hosts: the one that takes writes serves, also after it was another one.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{READER, reader_of};
use crate::cli::{migrate, run};
use crate::http::all_items;
use crate::support::app::{App, Ground, eventually};
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{Postgres, free_port};

fn name_of(database_url: &str) -> &str {
    database_url.rsplit('/').next().expect("a name")
}

async fn puts(app: &App, max: u64) -> bool {
    let limits = json!([{ "max": max, "per": "day" }]);
    let body = json!({ "time_zone": "UTC", "limits": limits, "reason": "a test" });
    app.put_policy("benefit", body).await.status.is_success()
}

/// Claims, changes, lists, exports and the instance's own work find the new primary, without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_work_follows_the_primary() {
    let mut primary = Postgres::start();
    let database_url = primary.create_database();
    let standby = primary.start_standby();
    let url = standby.url_or(primary.port(), name_of(&database_url));
    let app = App::start(&Ground::of_database(url)).await;
    assert!(puts(&app, 1000).await);
    for subject in ["a", "b", "c"] {
        app.claim(subject, None).await.is(201);
    }
    all_items(&app, "/v1/grants?policy=benefit").await;
    app.get("/v1/entries/export?format=csv").await;
    let written = "SELECT pg_current_wal_flush_lsn()";
    let written = primary.execute("postgres", written);
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
    eventually("the standby has followed", || async {
        standby.execute("postgres", &replayed) == "t"
    })
    .await;
    primary.kill();
    standby.promote();
    eventually("claims are decided", || async {
        app.claim("a", None).await.status == 201
    })
    .await;
    eventually("changes are made", || async { puts(&app, 2000).await }).await;
    eventually("lists are read", || async {
        app.get("/v1/grants?policy=benefit").await.status == 200
    })
    .await;
    eventually("the record goes on", || async {
        let usage = app.get("/v1/policies/benefit/subjects/a").await;
        let entries = app.get("/v1/entries?policy=benefit&limit=9").await;
        let entries = entries.json()["items"].as_array().map_or(0, Vec::len);
        usage.status == 200 && usage.at("/limits/0/used") == 2 && entries == 4
    })
    .await;
    eventually("exports are made", || async {
        app.get("/v1/entries/export?format=csv").await.status == 200
    })
    .await;
    assert_eq!(app.get("/readyz").await.status, 200);
}

/// One address can lead to a standby for a moment, such as a proxy's or a name's in the middle of a fail-over. No
/// session stays there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_stays_at_a_standby_behind_one_address() {
    let primary = Postgres::start();
    let database_url = primary.create_database();
    let standby = primary.start_standby();
    let proxy = Proxy::before(primary.port()).await;
    let app = App::start(&Ground::of_database(proxy.url(&database_url))).await;
    assert!(puts(&app, 1000).await);
    app.claim("a", None).await.is(201);
    // The connections are reset, and new ones go to the standby.
    proxy.set(Mode::Refuse);
    eventually("the instance has no connection", || async {
        app.get("/readyz").await.status == 503
    })
    .await;
    proxy.lead_to(standby.port());
    proxy.set(Mode::Pass);
    let changes = (0..6).map(|_| puts(&app, 1001));
    assert_eq!(join_all(changes).await, [false; 6]);
    eventually("claims get 503", || async {
        app.claim("a", None).await.status == 503
    })
    .await;
    // New ones go to the primary again, and those that were made meanwhile are not reset.
    proxy.lead_to(primary.port());
    eventually("claims are decided", || async {
        app.claim("a", None).await.status == 201
    })
    .await;
    eventually("changes are made", || async { puts(&app, 1002).await }).await;
    for round in 0..5 {
        let changes = (0..6).map(|change| puts(&app, 2000 + 6 * round + change));
        assert_eq!(join_all(changes).await, [true; 6]);
    }
}

/// A list without a primary says what each host is. A reader takes any host that answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_without_a_primary_says_what_each_host_is() {
    let primary = Postgres::start();
    primary.execute("postgres", READER);
    let ground = Ground::of_database(primary.create_database());
    let writer = App::start(&ground).await;
    assert!(puts(&writer, 3).await);
    let database = name_of(&ground.database_url);
    let standby = primary.start_standby();
    let nobody = free_port();
    let url = format!(
        "postgres://postgres@127.0.0.1:{nobody},127.0.0.1:{}/{database}",
        standby.port()
    );
    let said = run(&["migrate"], &[("DATABASE_URL", &url)]);
    assert_eq!(said.code, 1, "{said:?}");
    for part in [
        format!("127.0.0.1:{nobody}: "),
        format!("127.0.0.1:{}: this server is a standby", standby.port()),
    ] {
        assert!(said.stderr.contains(&part), "{part}: {said:?}");
    }
    let wrong = format!("postgres://postgres@127.0.0.1/{database}?host=a,b&port=1,2,3");
    let said = run(&["migrate"], &[("DATABASE_URL", &wrong)]);
    assert!(said.stderr.contains("a port for each of them"), "{said:?}");
    // The reader's support names its server; the list is made of it.
    let reader = reader_of(&standby, database).await;
    assert_eq!(reader.get("/v1/policies/benefit").await.at("/version"), 1);
    let url = url.replace("postgres@", "perdiem_reader@");
    let listed = Ground::of_database(url);
    let listed = App::start_with(&listed, |options| options.read_only = true).await;
    let policy: Value = listed.get("/v1/policies/benefit").await.json();
    assert_eq!(policy["version"], 1);
}

/// A host of the list that has a ledger of its own never takes the place of the one that served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_ledger_never_serves() {
    let mut primary = Postgres::start();
    let database_url = primary.create_database();
    let database = name_of(&database_url);
    let other = Postgres::start();
    other.execute("postgres", &format!("CREATE DATABASE {database}"));
    migrate(&other.url(database));
    let url = primary.url_or(other.port(), database);
    let app = App::start(&Ground::of_database(url)).await;
    assert!(puts(&app, 3).await);
    app.claim("a", None).await.is(201);
    primary.kill();
    eventually("the ledger is known to be away", || async {
        app.get("/readyz").await.status == 503
    })
    .await;
    let refused = app.claim("a", None).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    primary.restart();
    eventually("it serves again", || async {
        app.claim("a", None).await.status == 201
    })
    .await;
}
