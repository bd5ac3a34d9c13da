//! `perdiem key`, as somebody at a terminal meets it, and what the log shows of it.

use crate::support::app::{App, Ground, KEY, Stack, client, eventually};
use crate::support::command_line::{command, command_with};
use crate::support::process::Process;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_lives_at_the_terminal() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let well = async |line: &str| command(&app, line).await.well(0);
    let create = "key create shop --role claim --policy benefit --reason 'a shop'";
    let created = well(create).await;
    let (line, rest) = created.split_once('\n').expect("two lines");
    let (id, _) = line.split_once(' ').expect("an id");
    assert_eq!(
        line,
        format!("{id} claim  shop                     benefit")
    );
    let secret = rest
        .strip_prefix("secret, shown this once: ")
        .expect("a secret")
        .trim();

    let claim = "claim benefit member-42";
    let granted = command_with(&app.url, secret, claim).await.well(0);
    assert!(granted.starts_with("granted"), "{granted}");
    let fault = command_with(&app.url, secret, "policy list").await.fault();
    for words in ["role claim", "audit or admin"] {
        assert!(fault.contains(words), "{fault}");
    }
    assert_eq!(well("key list").await, format!("{line}\n"));
    assert_eq!(well(&format!("key show {id}")).await, format!("{line}\n"));
    let until = format!("key end {id} --at 2100-01-01T00:00:00Z");
    let ended = well(&format!("{until} --reason 'a contract'")).await;
    assert_eq!(ended, format!("{line}  (until 2100-01-01T00:00:00Z)\n"));
    let never = format!("key end {id} --never --reason renewed --if-version 2");
    assert_eq!(well(&never).await, format!("{line}\n"));
    assert_eq!(command(&app, &until).await.code, 2, "a reason is required");
    let revoke = format!("key revoke {id} --reason leaked");
    let fault = command(&app, &format!("{revoke} --if-version 1"))
        .await
        .fault();
    assert!(fault.contains("version 3"), "{fault}");
    assert_eq!(well(&revoke).await, format!("{line}  (revoked)\n"));
    let fault = command_with(&app.url, secret, claim).await.fault();
    assert!(
        fault.contains("no valid key") && !fault.contains(secret),
        "{fault}"
    );

    let made = command(&app, "key create root --role admin --json")
        .await
        .json(0);
    assert!(made["secret"].is_string());
    let listed = command(&app, "key list --json").await.json(0);
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert!(listed[0].get("secret").is_none());
    let id = made["id"].as_str().expect("an id");
    #[rustfmt::skip]
    let rows = [
        (&format!("key revoke {id} --reason x"), ["last admin key"; 2]),
        (&"key create x --role root --policy A".to_owned(), ["#/role", "#/policies/0"]),
    ];
    for (line, told) in rows {
        let fault = command(&app, line).await.fault();
        assert!(told.iter().all(|words| fault.contains(words)), "{fault}");
    }
}

/// As a supervisor sees it: the most talkative log, and no secret in it, right or wrong.
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
    let process = process.expect("it starts");
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
