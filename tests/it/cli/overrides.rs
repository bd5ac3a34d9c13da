//! `perdiem override`, and `perdiem policy put`, `pause`, `resume` and `archive`, as somebody at a
//! terminal meets them.

use crate::support::app::{App, Stack};
use crate::support::command_line::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_is_put_shown_listed_and_deleted() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let put = "override put benefit a/b --limit '10 per day'";
    let until = "2026-12-01T00:00:00Z";
    let line = format!("{:<32} version 1    10 per day  (until {until})\n", "a/b");
    for shows in [
        &format!("{put} --until {until}"),
        "override show benefit a/b",
        "override list benefit",
    ] {
        assert_eq!(command(&app, shows).await.well(0), line);
    }
    let usage = command(&app, "usage benefit a/b").await.well(0);
    assert!(usage.contains("0 of 10 used"), "{usage}");
    let end = "by an override, until 2026-12-01T08:00:00+08:00\n";
    assert!(usage.ends_with(end), "{usage}");
    for (options, told) in [("", "#/reason"), ("--reason x --if-version 7", "version 1")] {
        let fault = command(&app, &format!("{put} {options}")).await.fault();
        assert!(fault.contains(told), "{fault}");
    }
    let replace = format!("{put} --reason 'for good' --if-version 1 --json");
    let replaced = command(&app, &replace).await.json(0);
    assert_eq!(replaced["version"], 2);
    assert_eq!(replaced["until"], serde_json::Value::Null);
    let delete = "override delete benefit a/b --reason over";
    assert_eq!(command(&app, delete).await.well(0), "deleted\n");
    let fault = command(&app, delete).await.fault();
    assert!(fault.contains("no override"), "{fault}");
    assert_eq!(command(&app, "override list benefit").await.well(0), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_scheduled_observes_pauses_and_is_archived() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let put = "policy put benefit --time-zone GMT+8 --reason x --limit";
    let well = async |line: &str| command(&app, line).await.well(0);
    let fails = async |line: &str, told: &str| {
        let fault = command(&app, line).await.fault();
        assert!(fault.contains(told), "{line}: {fault}");
    };
    well(&format!("{put} '1 per day' --mode observe")).await;
    let claim = "claim benefit member-42";
    assert!(well(claim).await.starts_with("granted\n"));
    let granted = well(claim).await;
    assert!(
        granted.starts_with("granted, and would be denied"),
        "{granted}"
    );
    assert!(granted.contains("2 of 1 used, 0 left"), "{granted}");

    let paused = well("policy pause benefit --reason x").await;
    assert!(paused.contains("(paused)"), "{paused}");
    fails(claim, "paused").await;
    let shown = command(&app, "policy show benefit --json").await.json(0);
    assert_eq!(shown["mode"], "observe");
    assert_eq!(shown["paused"], true);
    let resumed = well("policy resume benefit --reason x").await;
    assert!(!resumed.contains("(paused)"), "{resumed}");
    well(claim).await;

    let scheduled = well(&format!("{put} '5 per day' --effective next_window")).await;
    let words = "version 4    +08:00                   5 per day  (from 2026-11-22T00:00:00+08:00; \
                 until then version 3)";
    assert!(scheduled.contains(words), "{scheduled}");
    let waits = "version 4 waits until 2026-11-22T00:00:00+08:00";
    fails("policy pause benefit --reason x", waits).await;
    fails(
        &format!("{put} '5 per day' --effective tomorrow"),
        "#/effective",
    )
    .await;
    well("policy archive benefit --reason x").await;
    assert_eq!(well("policy list").await, "");
    fails(claim, "no policy benefit").await;
}
