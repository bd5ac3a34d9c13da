//! `perdiem status`.

use serde_json::json;

use super::run;
use crate::support::app::Ground;
use crate::support::app::{App, Stack, eventually};
use crate::support::command_line::{command, command_with};
use crate::support::servers::{Postgres, free_port};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_tells_its_state() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    // The rules of time zones of this machine may be old.
    let troubles = app.get("/readyz").await.at("/troubles");
    let code = i32::from(troubles != json!([]));
    let told = command(&app, "status").await.well(code);
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        &format!("ready                perdiem {version} on SQLite, without Redis\n"),
        "reconciliation       none has ended yet\n",
        "seals                this instance seals nothing",
        "provisional grants   0 wait for the ledger\n",
        "time zone rules      ",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    command(&app, "reconcile").await.well(0);
    let told = command(&app, "status").await.well(code);
    assert!(
        told.contains("reconciliation       no differences at 20"),
        "{told}"
    );
    let state = command(&app, "status --json").await.json(code);
    assert_eq!(state["health"], app.get("/readyz").await.is(200));
    assert_eq!(state["health"]["version"], version);
    assert_eq!(state["reconciliation"]["difference_count"], 0);
}

/// Health is for everybody. The rest needs a key, and a role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_key_may_not_read_is_left_out() {
    let app = App::on(Stack::Sqlite).await;
    let made = command(&app, "key create shop --role claim --json")
        .await
        .json(0);
    let key = made["secret"].as_str().expect("a secret");
    let told = command_with(&app.url, key, "status").await.stdout;
    assert!(
        told.contains("reconciliation       a key with the role claim may not"),
        "{told}"
    );
    assert!(told.contains("0 wait for the ledger"), "{told}");
    let told = run(&["status", "--url", &app.url], &[]).stdout;
    assert!(told.starts_with("ready "), "{told}");
    assert!(
        told.contains("reconciliation       PERDIEM_KEY is not set"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_is_not_ready_is_asked_later() {
    let mut postgres = Postgres::start();
    let ground = Ground::of_database(postgres.create_database());
    let app = App::start(&ground).await;
    postgres.kill();
    eventually("the instance is not ready", || async {
        app.get("/readyz").await.status == 503
    })
    .await;
    let said = command(&app, "status").await;
    assert_eq!(said.code, 75, "{said:?}");
    assert!(said.stdout.starts_with("not ready "), "{said:?}");
    assert!(
        said.stdout
            .contains("\ntrouble              the ledger does not answer"),
        "{said:?}"
    );
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    assert_eq!(command_with(&nowhere, "x", "status").await.code, 75);
}
