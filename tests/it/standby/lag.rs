//! How far a standby is behind, and what becomes of its reader when the primary is gone.

use serde_json::Value;

use super::Pair;
use crate::http::problem;
use crate::seals::{figure, told};
use crate::support::app::{App, eventually};

async fn lag(app: &App) -> f64 {
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    let ready = ready.json();
    assert_eq!(ready["read_only"], true);
    ready["lag_seconds"].as_f64().expect("a lag")
}

async fn used(app: &App) -> Value {
    let usage = app.get("/v1/policies/benefit/subjects/member-1").await;
    usage.at("/limits/0/used")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_tells_its_age() {
    let pair = Pair::start().await;
    let reader = &pair.reader;
    let writer = &pair.writer;
    pair.is_followed().await;
    let replay = |sql: &str| pair.standby.execute("postgres", sql);
    // 1. Nothing happens here for a while. The standby is still up to date.
    eventually("the lag is small", || async { lag(reader).await < 1.0 }).await;
    // 2. While the replay stands still, the age grows, and the answers are old.
    replay("SELECT pg_wal_replay_pause()");
    writer.claim("member-1", None).await.is(201);
    eventually("the lag grows", || async { lag(reader).await > 2.0 }).await;
    assert_eq!(used(reader).await, 0);
    assert_eq!(used(writer).await, 1);
    assert!(figure(reader, "perdiem_standby_lag_seconds").await > 2.0);
    let list = reader.get("/v1/entries").await;
    let age = list.header("perdiem-lag").expect("an age");
    assert!(age.parse::<f64>().expect("a number") > 2.0, "{age}");
    // 3. Then the standby catches up.
    replay("SELECT pg_wal_replay_resume()");
    eventually("the standby catches up", || async {
        lag(reader).await < 1.0 && used(reader).await == 1
    })
    .await;
    assert_eq!(figure(writer, "perdiem_standby_lag_seconds").await, 0.0);
    assert!(figure(reader, "perdiem_record_lag_seconds").await.is_nan());
    // 4. A request here can wait for an entry that the primary makes.
    let newest = reader.get("/v1/entries?limit=1").await.at("/as_of");
    let path = format!("/v1/entries?after={newest}&wait=30");
    let (list, claim) = tokio::join!(reader.get(&path), writer.claim("member-1", None));
    claim.is(201);
    assert_eq!(list.at("/items/0/subject"), "member-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_reads_on_after_a_promotion() {
    let pair = Pair::start().await;
    pair.is_followed().await;
    pair.standby.cut_off().await;
    told(&pair.reader, "is not connected to its primary").await;
    eventually("the lag grows", || async { lag(&pair.reader).await > 1.0 }).await;
    pair.standby.promote();
    told(&pair.reader, "is not a standby").await;
    let claim = pair.reader.claim("member-1", None).await;
    problem(&claim, 503, "read-only");
    assert_eq!(pair.reader.get("/v1/entries").await.status, 200);
    // No worker has written, and no other session may.
    let seen = || {
        let sql = "SELECT (SELECT count(*) FROM instances), (SELECT max(revision) FROM acts),
             (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdiem'
                 AND backend_xid IS NOT NULL)";
        pair.standby.execute(&pair.database, sql)
    };
    let before = seen();
    assert!(
        before.starts_with("1|") && before.ends_with("|0"),
        "{before}"
    );
    eventually("the reader looks again", || async {
        lag(&pair.reader).await < 1.0
    })
    .await;
    assert_eq!(seen(), before);
}

/// A primary serves too. Nothing is written there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_primary_says_so() {
    let pair = Pair::start().await;
    let reader = super::reader_of(&pair.primary, &pair.database).await;
    told(&reader, "is not a standby").await;
    assert_eq!(
        reader.get("/v1/entries").await.text,
        pair.writer.get("/v1/entries").await.text
    );
    problem(&reader.claim("member-1", None).await, 503, "read-only");
}
