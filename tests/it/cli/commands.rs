//! Commands that need no server, and those that call one.

use serde_json::json;

use super::{SECRET, fault, folder, run, sqlite_url};
use crate::support::app::{App, KEY, Stack};
use crate::support::command_line::{command, words};
use crate::support::servers::{self, free_port};
use crate::support::terminal::Said;

#[test]
fn migrate_makes_a_database_and_does_it_again() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    for (url, store) in [
        (sqlite_url(&path), "SQLite"),
        (servers::postgres().create_database(), "PostgreSQL"),
    ] {
        for _ in 0..2 {
            let said = run(&["migrate"], &[("DATABASE_URL", &url)]).well(0);
            assert_eq!(said, format!("the ledger on {store} is up to date\n"));
        }
    }
    assert!(path.is_file());
}

#[test]
fn openapi_prints_the_specification() {
    let said = run(&["openapi"], &[]).well(0);
    assert_eq!(said, perdiem::http::specification_yaml());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_put_shown_and_listed() {
    let app = App::on(Stack::Sqlite).await;
    let put = "policy put benefit --limit '3 per day' --time-zone GMT+8";
    let line = command(&app, put).await.well(0);
    for word in ["benefit", "version 1", "+08:00", "3 per day"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let more = "--limit '30 per month' --reason 'campaign 7' --if-version 1 --json";
    let policy = command(&app, &format!("{put} {more}")).await.json(0);
    assert_eq!(policy["version"], 2);
    assert_eq!(policy["limits"][1], json!({ "max": 30, "per": "month" }));
    assert_eq!(app.get("/v1/policies/benefit").await.json(), policy);
    assert_eq!(
        command(&app, "policy show benefit --json").await.json(0),
        policy
    );
    let shown = command(&app, "policy show benefit").await.well(0);
    assert!(shown.contains("3 per day, 30 per month"), "{shown}");
    let listed = command(&app, "policy list --json").await.json(0);
    assert_eq!(listed[0]["name"], policy["name"]);
    assert_eq!(listed[0]["version"], policy["version"]);
    assert_eq!(
        command(&app, "policy list").await.well(0).lines().count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_granted_rehearsed_repeated_and_denied() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    // Subjects that are like a name, and like a path.
    for subject in ["member-42", "a/b %2F?#"] {
        let claim = format!("claim benefit '{subject}'");
        let said = async |options: &str, code: i32| {
            command(&app, &format!("{claim} {options}"))
                .await
                .well(code)
        };
        let first = said("", 0).await;
        assert!(first.starts_with("granted\n"), "{first}");
        assert!(first.contains("1 of 3 used, 2 left until 2026-11-22T00:00:00+08:00"));
        let rehearsal = said("--units 3 --dry-run", 3).await;
        assert!(rehearsal.starts_with("denied"), "{rehearsal}");
        let keyed = format!("{claim} --units 2 --idempotency-key '{subject}' --json");
        let keyed = [words(&keyed), vec!["--metadata", r#"{"a":1}"#]].concat();
        let granted = Said::by(&app, &keyed).await.json(0);
        assert_eq!(granted["grant"]["metadata"], json!({ "a": 1 }));
        assert_eq!(Said::by(&app, &keyed).await.json(0), granted);
        let denied = said("", 3).await;
        for words in [
            "has used 3 of 3 for today under benefit",
            "the next window begins at 2026-11-22T00:00:00+08:00",
        ] {
            assert!(denied.contains(words), "{denied}");
        }
        assert!(
            denied.starts_with("denied: ") && !denied.contains('Z'),
            "{denied}"
        );
        let denied = command(&app, &format!("{claim} --json")).await.json(3);
        assert_eq!(denied["outcome"], "denied");
        assert_eq!(denied["limits"][0]["resets_at"], "2026-11-21T16:00:00Z");
        let usage = format!("usage benefit '{subject}'");
        let told = command(&app, &format!("{usage} --json")).await.json(0);
        assert_eq!(told["subject"], subject);
        assert_eq!(told["limits"][0]["used"], 3);
        let told = command(&app, &usage).await.well(0);
        assert!(
            told.contains("3 of 3 used, 0 left until 2026-11-22T00:00:00+08:00"),
            "{told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_say_what_is_wrong() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    // Not perdiem's own answer.
    let elsewhere = format!("{}/livez#", app.url);
    let here = (app.url.as_str(), KEY);
    #[rustfmt::skip]
    let rows = [
        ("claim nothing member-42", here, "no policy nothing"),
        ("claim benefit member-42 --units 0", here, "#/units: "),
        ("claim benefit member-42 --units 4", here, "max per day is 3"),
        ("claim benefit member-42 --metadata {", here, "--metadata is not JSON"),
        ("claim benefit ''", here, "#/subject: "),
        ("usage nothing member-42", here, "no policy nothing"),
        ("policy show nothing", here, "no policy nothing"),
        ("policy put a --limit '3 per day' --time-zone Asia/Shangai", here, "Asia/Shanghai"),
        ("policy list", (&app.url, SECRET), "valid key"),
        ("policy list", (&nowhere, SECRET), "PERDIEM_URL"),
        ("policy list", (&elsewhere, SECRET), "PERDIEM_URL"),
    ];
    for (line, (url, key), told) in rows {
        let settings = [("PERDIEM_URL", url), ("PERDIEM_KEY", key)];
        let said = fault(&words(line), &settings);
        assert!(said.contains(told) && !said.contains(KEY), "{line}: {said}");
    }
}
