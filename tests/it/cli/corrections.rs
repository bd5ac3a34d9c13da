//! `perdiem adjust` with a file, as a person at a terminal uses the command.

use std::fs;

use crate::support::app::{App, Stack};
use crate::support::command_line::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_balances_come_from_a_file_and_are_entered_once() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
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
    // A file that cannot be read enters nothing. The message names the line.
    for (text, told) in [
        ("subject,units\nmember-1,2\nmember-2,two\n", "line 3"),
        ("subject,units\nmember-1,2\nmember-2,0\n", "line 3"),
        ("subject,units\nmember-1,2\nmember-1,3\n", "line 3"),
        ("member,units\nmember-1,2\n", "line 1, column 1"),
        ("Subject;Units\r\nmember-1;2,5\r\n", "line 2, column units"),
    ] {
        let fault = run(text).await.fault();
        assert!(fault.contains(told), "{fault}");
    }
    assert_eq!(used("member-1").await.as_deref(), Some("0"));
    let other = "\"member,2\",1,2026-11-21T00:00:00Z\n";
    let both = format!("subject,units,at\nmember-1,2,\n{other}");
    assert_eq!(run(&both).await.well(0), "entered 2, already entered 0\n");
    let reordered = format!("subject,units,at\n{other}member-3,1,\nmember-1,2,\n");
    assert_eq!(
        run(&reordered).await.well(0),
        "entered 1, already entered 2\n"
    );
    assert_eq!(used("member-1").await.as_deref(), Some("2"));
    assert_eq!(used("member,2").await.as_deref(), Some("1"));
    // The command stops at a line that the server refuses. The message says how many lines were
    // entered.
    let fault = run("subject,units\nmember-4,1\nmember-5,-1\nmember-6,1\n")
        .await
        .fault();
    for told in [
        "stopped at line 3",
        "column units: ",
        "before it: entered 1, already entered 0",
    ] {
        assert!(fault.contains(told), "{fault}");
    }
    assert_eq!(used("member-4").await.as_deref(), Some("1"));
    assert_eq!(used("member-6").await.as_deref(), Some("0"));
}
