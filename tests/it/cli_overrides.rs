//! `perdiem override`, and `perdiem policy put`, `pause`, `resume` and `archive`, as somebody at a
//! terminal meets them.

use serde_json::Value;

use crate::support::app::{App, Stack};
use crate::support::terminal::Said;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_is_put_shown_listed_and_deleted() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "GMT+8").await;
    let whom = ["benefit", "a/b"];
    let run = async |args: &[&str]| Said::by(&app, args).await;
    let put = ["override", "put", "benefit", "a/b", "--limit", "10 per day"];
    let until = "2026-12-01T00:00:00Z";
    let said = run(&[&put[..], &["--until", until]].concat()).await.well(0);
    let line = format!("{:<32} version 1    10 per day  (until {until})\n", "a/b");
    assert_eq!(said, line);
    let show = [&["override", "show"][..], &whom].concat();
    assert_eq!(run(&show).await.well(0), line);
    assert_eq!(run(&["override", "list", "benefit"]).await.well(0), line);
    let usage = run(&["usage", "benefit", "a/b"]).await.well(0);
    assert!(usage.contains("0 of 10 used"), "{usage}");
    assert!(
        usage.ends_with("by an override, until 2026-12-01T08:00:00+08:00\n"),
        "{usage}"
    );
    let fault = run(&put).await.fault();
    assert!(fault.contains("#/reason"), "{fault}");
    let replace = ["--reason", "for good", "--if-version"];
    let stale = run(&[&put[..], &replace, &["7"]].concat()).await.fault();
    assert!(stale.contains("version 1"), "{stale}");
    let said = run(&[&put[..], &replace, &["1", "--json"]].concat()).await;
    let replaced: Value = said.json(0);
    assert_eq!(
        (&replaced["version"], &replaced["until"]),
        (&2.into(), &Value::Null)
    );
    let delete = [&["override", "delete"][..], &whom, &["--reason", "over"]].concat();
    assert_eq!(run(&delete).await.well(0), "deleted\n");
    assert!(run(&delete).await.fault().contains("no override"));
    assert_eq!(run(&["override", "list", "benefit"]).await.well(0), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_scheduled_observes_pauses_and_is_archived() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    let run = async |args: &[&str]| Said::by(&app, args).await;
    let put = async |limit: &str, options: &[&str]| {
        let args = [
            "policy",
            "put",
            "benefit",
            "--time-zone",
            "GMT+8",
            "--limit",
            limit,
        ];
        run(&[&args[..], &["--reason", "x"], options].concat()).await
    };
    let first = put("1 per day", &["--mode", "observe"]).await;
    first.well(0);
    let claim = ["claim", "benefit", "member-42"];
    assert!(run(&claim).await.well(0).starts_with("granted\n"));
    let granted = run(&claim).await.well(0);
    assert!(
        granted.starts_with("granted, and would be denied"),
        "{granted}"
    );
    assert!(granted.contains("2 of 1 used, 0 left"), "{granted}");

    let stop = |what: &'static str| ["policy", what, "benefit", "--reason", "x"];
    let paused = run(&stop("pause")).await.well(0);
    assert!(paused.contains("(paused)"), "{paused}");
    assert!(run(&claim).await.fault().contains("paused"));
    let shown: Value = run(&["policy", "show", "benefit", "--json"]).await.json(0);
    assert_eq!(
        (&shown["mode"], &shown["paused"]),
        (&"observe".into(), &true.into())
    );
    let resumed = run(&stop("resume")).await.well(0);
    assert!(!resumed.contains("(paused)"), "{resumed}");
    run(&claim).await.well(0);

    let scheduled = put("5 per day", &["--effective", "next_window"])
        .await
        .well(0);
    let words = "version 4    +08:00                   5 per day  (from 2026-11-22T00:00:00+08:00; \
                 until then version 3)";
    assert!(scheduled.contains(words), "{scheduled}");
    let fault = run(&stop("pause")).await.fault();
    assert!(
        fault.contains("version 4 waits until 2026-11-22T00:00:00+08:00"),
        "{fault}"
    );
    let fault = put("5 per day", &["--effective", "tomorrow"]).await.fault();
    assert!(fault.contains("#/effective"), "{fault}");
    run(&stop("archive")).await.well(0);
    assert_eq!(run(&["policy", "list"]).await.well(0), "");
    assert!(run(&claim).await.fault().contains("no policy benefit"));
}
