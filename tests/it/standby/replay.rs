//! Reads that stand in the way of the replay.

use super::{READER, fill, reader_of};
use crate::http::problem;
use crate::support::app::{App, Ground, eventually};
use crate::support::servers::Postgres;

/// Makes each read of first denials fail as a conflict with the replay, while a condition holds.
fn conflict(primary: &Postgres, database: &str, condition: &str) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION meets_the_replay() RETURNS boolean STABLE LANGUAGE plpgsql AS $$
         BEGIN
             IF {condition} THEN
                 PERFORM pg_try_advisory_lock(4711);
                 RAISE 'canceling statement due to conflict with recovery'
                     USING ERRCODE = 'serialization_failure';
             END IF;
             RETURN true;
         END $$"
    );
    primary.execute(database, &sql);
}

/// A conflict is raised by a view, with the code that PostgreSQL gives: a real one depends on the
/// moment of a vacuum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_with_the_replay_is_tried_again_once() {
    let primary = Postgres::start();
    primary.execute("postgres", READER);
    let ground = Ground::of_database(primary.create_database());
    let database = ground.database_url.rsplit('/').next().expect("a name");
    let writer = App::start(&ground).await;
    fill(&writer).await;
    // At its end it writes the denials.
    drop(writer);
    let once = "NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711)";
    conflict(&primary, database, once);
    for sql in [
        "ALTER TABLE first_denials RENAME TO kept_denials",
        "CREATE VIEW first_denials AS SELECT * FROM kept_denials WHERE meets_the_replay()",
    ] {
        primary.execute(database, sql);
    }
    let standby = primary.start_standby();
    let reader = reader_of(&standby, database).await;
    let path = "/v1/policies/benefit/subjects/member-42/denials";
    // 1. The first read meets the replay, and the second one does not.
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711";
    assert_eq!(standby.execute(database, locks), "0");
    let denials = reader.get(path).await.is(200);
    assert_eq!(denials["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(standby.execute(database, locks), "1");
    // 2. Both reads meet it. Another request can succeed.
    conflict(&primary, database, "true");
    eventually("the standby has followed", || async {
        reader.get(path).await.status == 503
    })
    .await;
    let answer = reader.get(path).await;
    problem(&answer, 503, "unavailable");
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
}
