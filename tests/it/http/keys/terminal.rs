//! `perdiem key`, as somebody at a terminal meets it, and what the log shows of it.

use serde_json::Value;

use crate::support::app::{App, Ground, KEY, Stack, client, eventually};
use crate::support::process::Process;
use crate::support::terminal::Said;

/// Runs the command against a server.
async fn perdiem(url: &str, key: &str, args: &[&str]) -> (i32, String, String) {
    let said = Said::with_key(url, key, args).await;
    (said.code, said.stdout, said.stderr)
}

/// Runs a command that must work, and returns what it prints.
async fn works(url: &str, key: &str, args: &[&str]) -> String {
    Said::with_key(url, key, args).await.well(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_lives_at_the_terminal() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let args = [
        "key", "create", "shop", "--role", "claim", "--policy", "benefit", "--reason", "a shop",
    ];
    let created = works(&app.url, KEY, &args).await;
    let mut lines = created.lines();
    let line = lines.next().expect("a line");
    let id = line.split(' ').next().expect("an id").to_owned();
    assert_eq!(
        line,
        format!("{id} claim  shop                     benefit")
    );
    let secret = lines
        .next()
        .and_then(|line| line.strip_prefix("secret, shown this once: "));
    let secret = secret.expect("a secret");

    let claim = ["claim", "benefit", "member-42"];
    assert!(works(&app.url, secret, &claim).await.starts_with("granted"));
    let (code, _, stderr) = perdiem(&app.url, secret, &["policy", "list"]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("role claim") && stderr.contains("audit or admin"),
        "{stderr}"
    );

    assert_eq!(
        works(&app.url, KEY, &["key", "list"]).await,
        format!("{line}\n")
    );
    assert_eq!(
        works(&app.url, KEY, &["key", "show", &id]).await,
        format!("{line}\n")
    );
    let until = [
        "key",
        "end",
        &id,
        "--at",
        "2100-01-01T00:00:00Z",
        "--reason",
        "a contract",
    ];
    let ended = works(&app.url, KEY, &until).await;
    assert_eq!(ended, format!("{line}  (until 2100-01-01T00:00:00Z)\n"));
    let never = [
        "key",
        "end",
        &id,
        "--never",
        "--reason",
        "renewed",
        "--if-version",
        "2",
    ];
    assert_eq!(works(&app.url, KEY, &never).await, format!("{line}\n"));
    let (code, _, stderr) = perdiem(&app.url, KEY, &until[..5]).await;
    assert_eq!(code, 2, "a reason is required: {stderr}");
    let revoke = [
        "key",
        "revoke",
        &id,
        "--reason",
        "leaked",
        "--if-version",
        "1",
    ];
    let (code, _, stderr) = perdiem(&app.url, KEY, &revoke).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("version 3"), "{stderr}");
    let revoked = works(&app.url, KEY, &revoke[..5]).await;
    assert_eq!(revoked, format!("{line}  (revoked)\n"));
    let (code, _, stderr) = perdiem(&app.url, secret, &claim).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no valid key") && !stderr.contains(secret),
        "{stderr}"
    );

    let args = ["key", "create", "root", "--role", "admin", "--json"];
    let made: Value = serde_json::from_str(&works(&app.url, KEY, &args).await).expect("JSON");
    assert!(made["secret"].is_string());
    let listed = works(&app.url, KEY, &["key", "list", "--json"]).await;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert!(listed[0].get("secret").is_none());
    let id = made["id"].as_str().expect("an id");
    let revoke = ["key", "revoke", id, "--reason", "x"];
    let (code, _, stderr) = perdiem(&app.url, KEY, &revoke).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("last admin key"), "{stderr}");
    let wrong = ["key", "create", "x", "--role", "root", "--policy", "A"];
    let (code, _, stderr) = perdiem(&app.url, KEY, &wrong).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("#/role") && stderr.contains("#/policies/0"),
        "{stderr}"
    );
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
    let args = ["key", "create", "shop", "--role", "audit", "--json"];
    let made: Value = serde_json::from_str(&works(&process.url, KEY, &args).await).expect("JSON");
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    works(&process.url, &text("secret"), &["key", "list"]).await;
    let wrong = "perdiem_a-wrong-secret";
    let requests = (0..12).map(|_| {
        let request = client().get(format!("{}/v1/keys", process.url));
        request.bearer_auth(wrong).send()
    });
    for answer in futures_util::future::join_all(requests).await {
        assert_eq!(answer.expect("an answer").status(), 401);
    }
    let revoke = ["key", "revoke", &text("id"), "--reason", "x"];
    works(&process.url, KEY, &revoke).await;
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
