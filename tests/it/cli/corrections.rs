//! `perdiem reverse`, `confirm`, `adjust` and `entries`, as somebody at a terminal meets them.

use std::fs;

use crate::support::app::{App, Stack};
use crate::support::command_line::command;

async fn benefit() -> App {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    app
}

async fn grant(app: &App, options: &str) -> String {
    let claim = format!("claim benefit member-42 --json {options}");
    let answer = command(app, &claim).await.json(0);
    answer["grant"]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_reversed_and_a_hold_confirmed() {
    let app = benefit().await;
    let id = grant(&app, "--units 2").await;
    let reverse = format!("reverse {id} --reason 'SMS gateway refused'");
    let usage = "day     0 of 3 used, 3 left until 2026-11-22T00:00:00+08:00\n";
    for done in ["reversed", "reversed before"] {
        let said = command(&app, &reverse).await.well(0);
        assert_eq!(said, format!("{done}\n{usage}"));
    }
    let hold = grant(&app, "--hold-seconds 60").await;
    let said = command(&app, &format!("confirm {hold}")).await.well(0);
    assert!(said.starts_with("confirmed\nday     1 of 3 used"), "{said}");
    let fault = command(&app, &format!("confirm {id}")).await.fault();
    assert!(fault.contains("no hold"), "{fault}");
    let lines = command(&app, "entries benefit member-42").await.well(0);
    let words = lines.lines().map(str::split_whitespace);
    let kinds: Vec<&str> = words.filter_map(|mut words| words.nth(2)).collect();
    assert_eq!(kinds, ["confirmation", "grant", "reversal", "grant"]);
    let is_local = |line: &str| line.contains("+08:00 ");
    assert!(lines.lines().all(is_local), "{lines}");
    assert!(
        lines.contains("0 of 3 per day  (SMS gateway refused)"),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_are_entered_by_hand() {
    let app = benefit().await;
    let adjust = "adjust benefit member-42 --reason 'by phone' --units";
    for (units, used) in [(2, 2), (-1, 1)] {
        let said = command(&app, &format!("{adjust} {units}")).await.well(0);
        assert!(
            said.starts_with(&format!("entered\nday     {used} of 3 used")),
            "{said}"
        );
    }
    let fault = command(&app, &format!("{adjust} -2")).await.fault();
    assert!(
        fault.contains("#/units: more than the 1 that are used"),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_balances_come_from_a_file_and_are_entered_once() {
    let app = benefit().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("balances.csv");
    let file = path.to_str().expect("a text");
    let line = format!("adjust benefit --file {file} --name opening --reason 'moved over'");
    let run = async |text: &str| {
        fs::write(&path, text).expect("a file");
        command(&app, &line).await
    };
    let used = async |subject: &str| {
        let usage = command(&app, &format!("usage benefit {subject}"))
            .await
            .well(0);
        usage.split_whitespace().nth(1).map(str::to_owned)
    };
    // What cannot be read enters nothing, and says where.
    for (text, told) in [
        ("subject,units\nmember-1,2\nmember-2,two\n", "line 3"),
        ("subject,units\nmember-1,2\nmember-2,0\n", "line 3"),
        ("subject,units\nmember-1,2\nmember-1,3\n", "line 3"),
        ("member,units\nmember-1,2\n", "line 2"),
    ] {
        let fault = run(text).await.fault();
        assert!(fault.contains(told), "{fault}");
    }
    assert_eq!(used("member-1").await.as_deref(), Some("0"));
    let other = "\"member,2\",1,2026-11-21T00:00:00Z\n";
    let both = format!("subject,units,at\nmember-1,2,\n{other}");
    assert_eq!(run(&both).await.well(0), "entered 2, entered before 0\n");
    let reordered = format!("subject,units,at\n{other}member-3,1,\nmember-1,2,\n");
    assert_eq!(
        run(&reordered).await.well(0),
        "entered 1, entered before 2\n"
    );
    assert_eq!(used("member-1").await.as_deref(), Some("2"));
    assert_eq!(used("member,2").await.as_deref(), Some("1"));
    // What the server refuses stops there, and says what stands.
    let fault = run("subject,units\nmember-4,1\nmember-5,-1\nmember-6,1\n")
        .await
        .fault();
    for told in ["line 3 is refused", "the 1 before it"] {
        assert!(fault.contains(told), "{fault}");
    }
    assert_eq!(used("member-4").await.as_deref(), Some("1"));
    assert_eq!(used("member-6").await.as_deref(), Some("0"));
}
