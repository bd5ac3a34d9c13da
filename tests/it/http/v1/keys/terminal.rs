//! Keys and the log.

use crate::support::app::{Ground, KEY, Stack, client, eventually};
use crate::support::command_line::command_with;
use crate::support::process::Process;

/// The log at its most detailed level shows no secret, whether the secret is right or wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_logged() {
    let ground = Ground::new(Stack::Sqlite);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log");
    let log = std::fs::File::create(&path).expect("a file");
    let process = Process::try_start_logging(
        &ground.database_url,
        &[(
            "PERDIEM_LOG",
            "perdiem=trace,actix_web=debug,actix_http=debug",
        )],
        log,
    );
    let process = process.expect("the process starts");
    let create = "key create shop --role audit --json";
    let made = command_with(&process.url, KEY, create).await.json(0);
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    let listed = command_with(&process.url, &text("secret"), "key list").await;
    listed.well(0);
    let wrong = "perdiem_a-wrong-secret";
    let requests = (0..12).map(|_| {
        let request = client().get(format!("{}/v1/keys", process.url));
        request.bearer_auth(wrong).send()
    });
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!(answer.expect("an answer").status(), 401);
    }
    let revoke = format!("key revoke {} --reason x", text("id"));
    command_with(&process.url, KEY, &revoke).await.well(0);
    let read = || std::fs::read_to_string(&path).expect("a text");
    eventually("the wrong keys are in the log", || async {
        read().contains("wrong keys again and again")
    })
    .await;
    drop(process);
    let log = read();
    for secret in [KEY, wrong, &text("secret"), "perdiem_"] {
        assert!(!log.contains(secret), "{log}");
    }
}
