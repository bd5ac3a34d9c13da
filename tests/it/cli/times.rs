//! Times on the command line, and the zone in which instants are shown.

use chrono::{NaiveDate, TimeDelta, Timelike};
use perdiem::host::clock::Clock;
use serde_json::json;

use crate::http::all_items;
use crate::support::app::{App, Stack, eventually};
use crate::support::command_line::command;

/// A zone in which it is about noon, so that no test runs over midnight; and the date there.
fn noon() -> (String, NaiveDate) {
    let now = Clock::system().now();
    // UTC itself would be shown as Z.
    let hours = match 12 - i64::from(now.hour()) {
        0 => 1,
        hours => hours,
    };
    let sign = if hours < 0 { '-' } else { '+' };
    let zone = format!("{sign}{:02}:00", hours.abs());
    (zone, (now + TimeDelta::hours(hours)).date_naive())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_are_read_in_the_zone_of_the_policy() {
    let (zone, today) = noon();
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, &zone).await;
    let grant = app.claim("member-42", None).await.grant_id();
    eventually("the entry has a position", || async {
        all_items(&app, "/v1/entries").await.len() == 1
    })
    .await;
    // Lists: whether the grant is in them.
    for (line, has) in [
        ("entries benefit --from today", true),
        ("entries benefit --from tomorrow", false),
        ("entries benefit --until today", false),
        ("entries benefit --on today", true),
        ("entries benefit --on yesterday", false),
        ("entries benefit --from yesterday --until tomorrow", true),
        ("entries benefit --from 00:01", true),
        ("entries benefit --from 23:59", false),
        ("entries benefit --from -1h", true),
        ("entries benefit --until -1h", false),
        ("entries benefit --from +1h", false),
        (
            "entries benefit --recorded-from -1h --recorded-until +1h",
            true,
        ),
        ("entries benefit --recorded-to -1h", false),
        ("entries --policy benefit --from today", true),
        (
            "entries --policy benefit --subject member-42 --from today",
            true,
        ),
        ("entries benefit member-42 --from today", true),
        ("entries --subject member-42 --from -1h", true),
        ("entries --from -1h --to +1h", true),
        ("entries benefit --as-of now", true),
        ("entries benefit --as-of -1h", false),
    ] {
        let said = command(&app, line).await.well(0);
        assert_eq!(said.contains(&grant), has, "{line}: {said}");
    }
    // Explanations, and the flags of before.
    let explained = command(&app, "explain benefit member-42 --at now")
        .await
        .well(0);
    assert!(explained.starts_with("granted at "), "{explained}");
    assert!(explained.contains(&zone), "{explained}");
    let unseen = command(&app, "explain benefit nobody").await.well(0);
    let begins = "nobody was never seen under benefit\ngranted at ";
    assert!(unseen.starts_with(begins), "{unseen}");
    let morning = command(&app, "explain benefit member-42 --at 00:00")
        .await
        .well(0);
    assert!(morning.contains("T00:00:00"), "{morning}");
    let known = format!("explain {grant} --known-at now");
    assert!(command(&app, &known).await.well(0).contains(&grant));
    // Ends of overrides and blocks, shown in the zone; as UTC on demand.
    let tomorrow = today + TimeDelta::days(1);
    let until = format!("(until {tomorrow}T00:00:00{zone})");
    let block = command(&app, "block put benefit a --reason x --until tomorrow")
        .await
        .well(0);
    assert!(block.contains(&until), "{block}");
    let listed = command(&app, "block list benefit").await.well(0);
    assert!(listed.contains(&until), "{listed}");
    let listed = command(&app, "block list benefit --utc").await.well(0);
    assert!(listed.trim_end().ends_with("Z)"), "{listed}");
    let json = command(&app, "block list benefit --json").await.json(0);
    assert!(
        json[0]["until"]
            .as_str()
            .is_some_and(|until| until.ends_with('Z')),
        "{json}"
    );
    // An adjustment, with its id.
    let adjusted = command(&app, "adjust benefit b --units 1 --at yesterday --reason x");
    let adjusted = adjusted.await.well(0);
    let id = adjusted
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("entered "));
    let entries = command(&app, "entries benefit b").await.well(0);
    assert!(entries.contains(id.expect("an id")), "{entries}");
    let changes = command(&app, "changes benefit --limit 1").await.well(0);
    assert!(changes.contains(&zone), "{changes}");
    let changes = command(&app, "changes --limit 1").await.well(0);
    assert!(
        changes
            .split(' ')
            .next()
            .is_some_and(|at| at.ends_with('Z')),
        "{changes}"
    );
}

/// The policy's day begins at 06:00, so `today` and a date are what the server takes for a local day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_date_is_a_local_day_of_the_policy() {
    let app = App::on(Stack::Sqlite).await;
    let rule = json!({
        "time_zone": noon().0, "day_starts_at": "06:00", "limits": [{ "max": 3, "per": "day" }],
    });
    app.put_policy("night", rule).await;
    let block = command(&app, "block put night a --reason x --until tomorrow --json");
    let until = block.await.json(0)["until"].clone();
    let windows = "/v1/policies/night/windows?per=day&limit=1";
    assert_eq!(until, app.get(windows).await.at("/items/0/end"));
    // An archived policy has its zone, too.
    command(&app, "policy archive night --reason x")
        .await
        .well(0);
    command(&app, "entries night --from today").await.well(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_without_a_policy_is_one_of_utc() {
    let app = App::on(Stack::Sqlite).await;
    let until = "2100-01-01T00:00:00Z";
    for line in [
        "key create a --role audit --until 2100-01-01",
        "key create b --role audit --ends-at 2100-01-01T08:00:00+08:00",
    ] {
        let said = command(&app, line).await.well(0);
        assert!(said.contains(&format!("(until {until})")), "{line}: {said}");
    }
    let put = "policy put new --limit '3 per day' --time-zone GMT+8";
    let line = format!("{put} --from 2100-01-01 --until 2100-02-01T14:03 --json");
    let made = command(&app, &line).await.json(0);
    assert_eq!(made["active_from"], "2099-12-31T16:00:00Z");
    assert_eq!(made["active_until"], "2100-02-01T06:03:00Z");
    let before = format!("{put} --active-from {until} --active-until 2100-03-01 --reason x");
    let changed = command(&app, &before).await.well(0);
    let line = "active_from: 2100-01-01T00:00:00+08:00 → 2100-01-01T08:00:00+08:00";
    assert!(changed.contains(line), "{changed}");
    for wrong in [
        "entries --from soon",
        "entries --from --json",
        "explain new a --at 25:00",
        "key end x --until 2026-13-01 --reason x",
        "policy backtest new -f x --from now --until tomorrow",
    ] {
        let said = command(&app, wrong).await;
        assert_eq!(said.code, 2, "{wrong}: {said:?}");
        assert!(said.stderr.contains("write a "), "{wrong}: {said:?}");
    }
}
