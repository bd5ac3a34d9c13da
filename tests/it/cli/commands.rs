//! Commands that need no server, and commands that call a server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{SECRET, fault, folder, run, sqlite_url};
use crate::house::files_below;
use crate::support::app::{App, Ground, KEY, Stack};
use crate::support::command_line::{command, words};
use crate::support::servers::{self, Postgres, free_port};
use crate::support::terminal::Said;

#[test]
fn the_program_tells_its_name_and_version() {
    let said = run(&["--version"], &[]).well(0);
    assert_eq!(said, format!("perdiem {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(&["--help"], &[]).well(0);
    let begins = "A daily-quota service with a persistent ledger\n\nUsage: perdiem <COMMAND>";
    assert!(help.starts_with(begins), "{help}");
    let rights = run(&["rights"], &[]).well(0);
    assert_eq!(rights, include_str!("../../../docs/rights.md"));
}

#[test]
fn migrate_makes_a_database_and_does_it_again() {
    let folder = folder();
    let path = folder.path().join("perdiem.db");
    for (url, told) in [
        (sqlite_url(&path), "the ledger on SQLite is up to date\n"),
        (
            servers::postgres().create_database(),
            "the ledger on PostgreSQL is up to date\n\
             the role perdiem_service has the rights that the service needs\n",
        ),
    ] {
        for _ in 0..2 {
            let said = run(&["migrate"], &[("DATABASE_URL", &url)]).well(0);
            assert_eq!(said, told);
        }
    }
    assert!(path.is_file());
}

/// The ledger is up to date with and without the role, and its owner can serve without the role.
#[test]
fn an_owner_who_may_not_make_the_role_is_told_who_may() {
    let postgres = servers::postgres();
    let url = postgres.create_database();
    let database = url.rsplit('/').next().expect("a name");
    let owner = format!("owner_of_{database}");
    let give = format!("CREATE ROLE {owner} LOGIN");
    postgres.execute("postgres", &give);
    let give = format!("ALTER DATABASE {database} OWNER TO {owner}");
    postgres.execute("postgres", &give);
    let url = url.replace("//postgres@", &format!("//{owner}@"));
    let settings = [
        ("DATABASE_URL", url.as_str()),
        ("PERDIEM_SERVICE_ROLE", "the tills"),
    ];
    let said = run(&["migrate"], &settings);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.stdout, "the ledger on PostgreSQL is up to date\n");
    let remedy = "CREATE ROLE \"the tills\" NOLOGIN";
    assert!(said.stderr.contains(remedy), "{said:?}");
    postgres.execute("postgres", remedy);
    let done = run(&["migrate"], &settings).well(0);
    assert!(done.contains("the role \"the tills\" has"), "{done}");
    // An owner and a superuser keep their rights, so perdiem refuses both roles.
    for mighty in [&owner, "postgres"] {
        let settings = [settings[0], ("PERDIEM_SERVICE_ROLE", mighty)];
        let said = run(&["migrate"], &settings);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.stderr.contains("name another one"), "{said:?}");
    }
}

#[test]
fn openapi_prints_the_specification() {
    let said = run(&["openapi"], &[]).well(0);
    assert_eq!(said, perdiem::http::specification_yaml());
}

/// `--json` works with every command that prints lines in the sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_prints_json_on_demand() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let told = async |line: &str, code: i32| {
        let line = format!("{line} --json");
        command(&app, &line).await.json(code)
    };
    let put = "policy put benefit --limit '3 per day' --time-zone GMT+8";
    let policy = told(put, 0).await;
    assert_eq!(app.get("/v1/policies/benefit").await.is(200), policy);
    assert_eq!(told("policy show benefit", 0).await, policy);
    assert_eq!(told("policy list", 0).await, json!([policy]));
    let claim = "claim benefit a --units 2 --idempotency-key 'order 1' --json";
    let claim = [words(claim), vec!["--metadata", r#"{"a":1}"#]].concat();
    let granted = Said::by(&app, &claim).await.json(0);
    assert_eq!(granted["grant"]["metadata"], json!({ "a": 1 }));
    assert_eq!(Said::by(&app, &claim).await.json(0), granted);
    let denied = told("claim benefit a --units 2", 3).await;
    assert_eq!(denied["outcome"], "denied");
    assert_eq!(denied["limits"][0]["resets_at"], "2026-11-21T16:00:00Z");
    let usage = told("usage benefit a", 0).await;
    assert_eq!(usage["subject"], "a");
    assert_eq!(usage["limits"], denied["limits"]);
    let overridden = told("override put benefit a --limit '10 per day'", 0).await;
    let path = "/v1/policies/benefit/overrides/a";
    assert_eq!(app.get(path).await.is(200), overridden);
    let mut key = told("key create root --role admin", 0).await;
    assert!(key["secret"].take().is_string());
    key.as_object_mut().expect("an object").remove("secret");
    assert_eq!(told("key list", 0).await, json!([key]));
    let own = told("whoami", 0).await;
    assert_eq!(app.get("/v1/keys/me").await.is(200), own);
    let end = "key end x --until 2100-01-01";
    assert_eq!(command(&app, end).await.code, 2, "a reason is required");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_say_what_is_wrong() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    // The answer at this URL does not come from perdiem's API.
    let elsewhere = format!("{}/livez#", app.url);
    let here = (app.url.as_str(), KEY);
    #[rustfmt::skip]
    let rows = [
        ("claim nothing member-42", here, "no policy nothing"),
        ("claim benefit member-42 --units 0", here, "--units: "),
        ("claim benefit member-42 --units 4", here, "at most 3 fit per day"),
        ("claim benefit member-42 --metadata {", here, "--metadata is not a JSON object"),
        ("claim benefit ''", here, "SUBJECT: "),
        ("usage nothing member-42", here, "no policy nothing"),
        ("policy show nothing", here, "no policy nothing"),
        ("policy put a --limit '3 per day' --time-zone Asia/Shangai", here, "Asia/Shanghai"),
        ("policy list", (&app.url, SECRET), "valid key"),
        ("policy list", (&elsewhere, SECRET), "PERDIEM_URL"),
    ];
    for (line, (url, key), told) in rows {
        let settings = [("PERDIEM_URL", url), ("PERDIEM_KEY", key)];
        let said = fault(&words(line), &settings);
        assert!(said.contains(told) && !said.contains(KEY), "{line}: {said}");
    }
}

/// A server that does not run, and an answer of 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_succeed_later_has_a_code_of_its_own() {
    let mut postgres = Postgres::start();
    let ground = Ground::of_database(postgres.create_database());
    let app = App::start_with(&ground, |options| {
        options.answer_time = Duration::from_secs(1)
    })
    .await;
    postgres.kill();
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let folder = folder();
    let file = folder.path().join("entries");
    let export = format!("export {} --csv", file.display());
    for (url, told) in [(&nowhere, "PERDIEM_URL"), (&app.url, "perdiem: ")] {
        for line in ["policy list", "claim benefit member-42", &export] {
            let said = Said::with_key(url, KEY, &words(line)).await;
            assert_eq!(said.code, 75, "{line}: {said:?}");
            assert!(said.stderr.contains(told), "{line}: {said:?}");
            // Support finds the request in the log.
            let has_id = said
                .stderr
                .contains("the server's log has this request as ");
            assert_eq!(has_id, *url == app.url, "{line}: {said:?}");
        }
    }
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
    let wrong = Said::with_key("here", KEY, &["policy", "list"]).await;
    assert!(wrong.fault_of(2).contains("PERDIEM_URL"));
}

/// The commands below this one that do something, each with its help.
fn commands_below(words: &[&str]) -> Vec<(String, String)> {
    let help = run(&[words, &["--help"]].concat(), &[]).well(0);
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        return vec![(words.join(" "), help)];
    };
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names = names.filter(|name| *name != "help");
    names
        .flat_map(|name| commands_below(&[words, &[name]].concat()))
        .collect()
}

/// A new command is in the table of commands. One that calls a server is in a session or among the commands
/// that read answers of other versions; any other one is in some test.
#[test]
fn every_command_is_listed_and_tried() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| fs::read_to_string(path).expect("a text");
    let table = read(&root.join("docs/command-line.md"));
    let tests = root.join("tests/it");
    let texts = |ends: &str| -> String {
        let files = files_below(&tests).into_iter();
        let files = files.filter(|file| file.to_string_lossy().ends_with(ends));
        // What this test says of commands is no test of them.
        let own = "fn every_command_is_listed_and_tried";
        let before = |text: String| text.split(own).next().unwrap_or_default().to_owned();
        files.map(|file| before(read(&tests.join(file)))).collect()
    };
    let sessions = texts(".txt");
    let versions = texts("cli/versions.rs");
    let rust = texts(".rs");
    let commands = commands_below(&[]);
    assert!(commands.len() > 40, "{}", commands.len());
    for (command, help) in commands {
        let row = format!("\n| `perdiem {command}` |");
        assert!(
            table.contains(&row),
            "{command}: no row in docs/command-line.md"
        );
        // A proof needs a ledger with seals: see `seals`.
        let is_tried = if help.contains("--url ") && command != "proof" {
            let ends = [" ", "\n"].map(|end| format!("$ {command}{end}"));
            ends.iter().any(|line| sessions.contains(line))
                || versions.contains(&format!("\"{command}"))
        } else {
            let as_words = format!("\"{}\"", command.replace(' ', "\", \""));
            rust.contains(&as_words) || rust.contains(&format!("\"{command} "))
        };
        assert!(is_tried, "{command}: no test types it");
    }
}
