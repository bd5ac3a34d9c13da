//! The commands of the binary on a standby.

use std::fs;
use std::time::Duration;

use perdiem::ledger::{Ledger, LedgerOptions, Opening};
use reqwest::Method;

use super::Pair;
use crate::cli::{self, setting_fault, start_fault_of};
use crate::support::app::{Answer, KEY, NOON, eventually, instant};
use crate::support::process::Process;
use crate::support::servers::Postgres;
use crate::support::terminal::Said;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_told_at_the_start() {
    let primary = Postgres::start();
    let url = primary.create_database();
    let database = url.rsplit('/').next().expect("a name");
    cli::migrate(&url);
    let standby = primary.start_standby();
    let url = standby.url(database);
    let settings = [("DATABASE_URL", url.as_str())];
    let words = [
        "is a standby",
        "name the primary",
        "perdiem serve --read-only",
    ];
    start_fault_of(1, &settings, &words);
    let line = cli::fault(&["migrate"], &settings);
    assert!(line.contains("is a standby"), "{line}");
}

/// The program on the standby is newer than the ledger.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_not_migrated() {
    let primary = Postgres::start();
    let url = primary.create_database();
    let database = url.rsplit('/').next().expect("a name");
    cli::migrate(&url);
    let standby = primary.start_standby();
    let options = LedgerOptions {
        url: standby.url(database),
        claim_timeout: Duration::from_secs(30),
        query_timeout: Duration::from_secs(30),
    };
    let next = "CREATE TABLE next (id integer)";
    let opened = Ledger::open_with_next(&options, Opening::Read, next, instant(NOON));
    let Err(refused) = opened.await.map(drop) else {
        panic!("the older ledger was opened")
    };
    let told = refused.to_string();
    for word in ["perdiem migrate first", "on the primary"] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn settings_of_a_reader_that_do_not_fit_are_told() {
    let reading = ("PERDIEM_READ_ONLY", "true");
    setting_fault(&[reading], &["PERDIEM_READ_ONLY", "PostgreSQL"]);
    let postgres = ("DATABASE_URL", "postgres://127.0.0.1:1/perdiem");
    let redis = ("REDIS_URL", "redis://127.0.0.1:1");
    setting_fault(&[reading, postgres, redis], &["REDIS_URL", "no Redis"]);
    let seals = ("PERDIEM_SEAL_TO", "file:seals");
    setting_fault(
        &[reading, postgres, seals],
        &["PERDIEM_SEAL_TO", "seals nothing"],
    );
    let reads = ("PERDIEM_RECORD_READS", "true");
    setting_fault(
        &[reading, postgres, reads],
        &["PERDIEM_RECORD_READS", "records nothing"],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_read_a_standby() {
    let pair = Pair::start().await;
    pair.is_followed().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| {
        let path = folder.path().join(name);
        path.to_str().expect("a path").to_owned()
    };
    // 1. A check of the whole ledger.
    let verify = |url: String| cli::run(&["verify"], &[("DATABASE_URL", &url)]).well(0);
    let standby = pair.standby.url(&pair.database);
    let primary = &pair.ground.database_url;
    eventually("both find the same", || async {
        verify(standby.clone()) == verify(primary.clone())
    })
    .await;
    // 2. An export, which the primary records.
    let rows = file("entries.csv");
    let export = ["export", &rows, "--csv", "--policy", "benefit"];
    let refused = Said::by(&pair.reader, &export).await.fault();
    assert!(refused.contains("--record-at"), "{refused}");
    let recorded = [&export[..], &["--record-at", &pair.writer.url]].concat();
    Said::by(&pair.reader, &recorded).await.well(0);
    let text = fs::read_to_string(&rows).expect("a file");
    assert!(text.contains("member-42"), "{text}");
    // 3. A check of the export, against the standby.
    let manifest = format!("{rows}.manifest.json");
    let check = ["verify", "--export", &rows, "--manifest", &manifest];
    let settings = [("DATABASE_URL", standby.as_str()), ("PERDIEM_KEY", KEY)];
    cli::run(&check, &settings).well(0);
    // 4. A server, with the clock of the standby.
    let server = Process::start(&standby, &[("PERDIEM_READ_ONLY", "true")]);
    let ready = Answer::of(server.request(Method::GET, "/readyz")).await;
    let ready = ready.is(200);
    assert_eq!(
        (&ready["read_only"], &ready["status"]),
        (&true.into(), &"ready".into())
    );
    let usage = "/v1/policies/benefit/subjects/member-8";
    let usage = Answer::of(server.request(Method::GET, usage)).await;
    usage.is(200);
    drop(server);
    // 5. A claim is not tried again.
    let claim = Said::by(&pair.reader, &["claim", "benefit", "member-1"]);
    let refused = claim.await.fault();
    assert!(refused.contains("only reads"), "{refused}");
}
