//! Corrections, as a person at a terminal makes them: `perdiem adjust` with a file, and bundles.

use std::fs;

use serde_json::json;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_is_shown_confirmed_and_reversed() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let claim =
        |subject: &str| json!({ "policy": "benefit", "subject": subject, "hold_seconds": 60 });
    let claims = json!({ "atomic": true, "claims": [claim("phone"), claim("device")] });
    let granted = app.ask("POST /v1/claims", claims).await.is(200);
    let id = granted["bundle"].as_str().expect("an id");
    let told = async |line: &str, first: Option<&str>, state: &str| {
        let said = command(&app, &line.replace("ID", id)).await.well(0);
        let mut lines: Vec<&str> = said.lines().collect();
        let head = first.map(|first| format!("{first} {id}"));
        if let Some(head) = head {
            assert_eq!(lines.remove(0), head);
        }
        assert_eq!(lines.len(), 2, "{said}");
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[..2], ["2026-11-21T03:04:05.678901Z", "benefit"]);
            assert!(["phone", "device"].contains(&words[2]), "{line}");
            assert_eq!(words[3..5], ["1", state], "{line}");
        }
    };
    told("bundle show ID", None, "held").await;
    told("bundle confirm ID", Some("confirmed"), "granted").await;
    told("bundle confirm ID", Some("already confirmed"), "granted").await;
    let reverse = "bundle reverse ID --reason 'sent twice'";
    told(reverse, Some("reversed"), "reversed").await;
    told(reverse, Some("already reversed"), "reversed").await;
    let fault = command(&app, "bundle show order-17").await.fault();
    assert!(fault.contains("BUNDLE: a bundle's id is a UUID"), "{fault}");
    let fault = command(&app, &format!("bundle reverse {id} --reason ''"))
        .await
        .fault();
    assert!(fault.contains("--reason: "), "{fault}");
}
