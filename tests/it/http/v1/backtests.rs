//! Backtests of drafts.

use chrono::TimeDelta;
use perdiem::host::clock::ManualClock;
use serde_json::{Value, json};

use crate::http::v1::exports::copy_grant;
use crate::http::{archive, problem, replace};
use crate::support::app::{App, Ground, NOON, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

/// A draft with these limits in GMT+8.
fn draft(limits: &[(u64, &str)]) -> Value {
    let limits: Vec<Value> = limits
        .iter()
        .map(|(max, per)| json!({ "max": max, "per": per }))
        .collect();
    json!({ "time_zone": "GMT+8", "limits": limits })
}

async fn backtest_of(app: &App, draft: &Value, from: &str, to: &str) -> Value {
    let body = json!({ "policy": draft, "from": from, "to": to });
    app.ask("POST /v1/policies/benefit/backtest", body)
        .await
        .is(200)
}

async fn backtest(app: &App, limits: &[(u64, &str)], from: &str, to: &str) -> Value {
    backtest_of(app, &draft(limits), from, to).await
}

/// Each day as `date grants/units denied/units`.
fn days(answer: &Value) -> Vec<String> {
    let days = answer["days"].as_array().expect("days").iter();
    let line = |day: &Value| {
        format!(
            "{} {}/{} {}/{}",
            day["local_date"].as_str().expect("a date"),
            day["grants"],
            day["units"],
            day["denied_grants"],
            day["denied_units"]
        )
    };
    days.map(line).collect()
}

/// Each subject in `first_denied`, as `subject denied-grants`.
fn first_denied(answer: &Value) -> Vec<String> {
    let denied = answer["first_denied"].as_array().expect("subjects").iter();
    let line = |denied: &Value| format!("{} {}", denied["subject"], denied["denied_grants"]);
    denied.map(line).collect()
}

/// An application whose clock shows [`NOON`], and its ground.
async fn on_a_ground(stack: Stack) -> (Ground, App, ManualClock) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_at(&ground, &clock);
    let app = app.await;
    (ground, app, clock)
}

async fn claim(app: &App, subject: &str, units: u64) -> String {
    let body = json!({ "subject": subject, "units": units });
    app.claim_body(body, None).await.grant_id()
}

/// Claims on three days of November. The first day is before the range of most tests.
async fn three_days(app: &App, clock: &ManualClock) -> Vec<String> {
    replace(app, json!({ "limits": [{ "max": 100, "per": "day" }] })).await;
    let mut ids = Vec::new();
    for day in ["2026-11-19", "2026-11-20", "2026-11-21"] {
        clock.set(instant(&format!("{day}T02:00:00Z")));
        for (subject, units) in [("a", 1), ("b", 2), ("a", 1), ("c", 1), ("a", 3)] {
            ids.push(claim(app, subject, units).await);
            clock.advance(TimeDelta::seconds(1));
        }
    }
    ids
}

on_every_store!(it_tells_what_a_draft_would_have_denied);

async fn it_tells_what_a_draft_would_have_denied(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    let ids = three_days(&app, &clock).await;
    let from = "2026-11-20";
    let to = "2026-11-23";
    // A grant that does not fit takes nothing. The month began before the range.
    #[rustfmt::skip]
    let rows = [
        (vec![(100, "day")], ["20 5/8 0/0", "21 5/8 0/0"], vec![]),
        (vec![(2, "day")], ["20 5/8 1/3", "21 5/8 1/3"], vec!["\"a\" 2"]),
        (vec![(1, "day")], ["20 5/8 3/6", "21 5/8 3/6"], vec!["\"b\" 2", "\"a\" 4"]),
        (vec![(10, "day"), (6, "month")], ["20 5/8 2/4", "21 5/8 3/5"], vec!["\"a\" 5"]),
    ];
    for (limits, expected, denied) in rows {
        let found = backtest(&app, &limits, from, to).await;
        let [first, second] = expected.map(|day| format!("2026-11-{day}"));
        let expected = [first, second, "2026-11-22 0/0 0/0".to_owned()];
        assert_eq!(days(&found), expected, "{limits:?}");
        assert_eq!(first_denied(&found), denied, "{limits:?}");
    }
    let less = backtest(&app, &[(2, "day")], from, to).await;
    let total = json!({
        "grants": 10, "units": 16, "denied_grants": 2, "denied_units": 6, "denied_subjects": 1,
    });
    assert_eq!(less["total"], total);
    let bounds = ["start", "end"].map(|name| &less["days"][1][name]);
    assert_eq!(bounds, ["2026-11-20T16:00:00Z", "2026-11-21T16:00:00Z"]);
    let first = &less["first_denied"][0];
    assert_eq!(first["first_grant"], ids[9].as_str());
    assert_eq!(first["first_denied_at"], "2026-11-20T02:00:04Z");
    let month = backtest(&app, &[(6, "month")], "2026-11-19", "2026-11-20").await;
    assert_eq!(month["total"]["denied_grants"], 0);
    // A backtest changes nothing.
    assert_eq!(app.get("/v1/policies/benefit").await.at("/version"), 1);
}

on_every_store!(the_days_are_those_of_the_draft);

async fn the_days_are_those_of_the_draft(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    replace(&app, json!({})).await;
    // 23:30 of the 21st in Shanghai, and half an hour later.
    for at in ["2026-11-21T15:30:00Z", "2026-11-21T16:00:00Z"] {
        clock.set(instant(at));
        claim(&app, "a", 1).await;
    }
    let draft_in = |time_zone: &str, day_starts_at: &str| {
        let limits = json!([{ "max": 1, "per": "day" }]);
        json!({ "time_zone": time_zone, "limits": limits, "day_starts_at": day_starts_at })
    };
    for (draft, expected) in [
        (
            draft_in("GMT+8", "00:00"),
            ["20 0/0 0/0", "21 1/1 0/0", "22 1/1 0/0"],
        ),
        (
            draft_in("America/New_York", "00:00"),
            ["20 0/0 0/0", "21 2/2 1/1", "22 0/0 0/0"],
        ),
        (
            draft_in("America/New_York", "11:00"),
            ["20 1/1 0/0", "21 1/1 0/0", "22 0/0 0/0"],
        ),
    ] {
        let found = backtest_of(&app, &draft, "2026-11-20", "2026-11-23").await;
        let expected = expected.map(|day| format!("2026-11-{day}"));
        assert_eq!(days(&found), expected, "{draft}");
    }
    // A date that a zone skipped is not a day of the answer.
    let draft = draft_in("Pacific/Apia", "00:00");
    let apia = backtest_of(&app, &draft, "2011-12-30", "2011-12-31").await;
    assert_eq!(apia["days"], json!([]));
    // The range can begin and end at the ends of the calendar.
    let ends = [("0000-01-01", "0000-12-31"), ("9999-01-01", "9999-12-31")];
    for (from, to) in ends.into_iter().chain([("1969-12-31", "1970-01-02")]) {
        for zone in ["GMT+14", "GMT-12"] {
            backtest_of(&app, &draft_in(zone, "00:00"), from, to).await;
        }
    }
}

on_every_store!(only_limits_count_and_archived_policies_and_erased_subjects_too);

async fn only_limits_count_and_archived_policies_and_erased_subjects_too(stack: Stack) {
    let (ground, app, clock) = on_a_ground(stack).await;
    let from = "2026-11-20";
    let to = "2026-11-22";
    let mut draft = draft(&[(1, "day")]);
    let body = json!({ "policy": draft, "from": from, "to": to });
    let line = "POST /v1/policies/benefit/backtest";
    problem(&app.ask(line, body.clone()).await, 404, "unknown-policy");
    three_days(&app, &clock).await;
    archive(&app).await;
    let sql = "UPDATE accounts SET subject = NULL WHERE subject = 'b'";
    let mut direct = Direct::to(&ground).await;
    assert_eq!(direct.execute(sql, sql).await, 1);
    draft["paused"] = json!(true);
    draft["active_from"] = json!("2030-01-01T00:00:00Z");
    draft["reason"] = json!("a test");
    let found = backtest_of(&app, &draft, from, to).await;
    assert_eq!(first_denied(&found), ["null 2", "\"a\" 4"]);
    // A backtest does not count the grants of another policy.
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] });
    app.put_policy("other", rule).await;
    let other = app.ask("POST /v1/policies/other/backtest", body).await;
    assert_eq!(other.at("/total/grants"), 0);
}

on_every_store!(units_that_were_given_back_or_adjusted_count);

async fn units_that_were_given_back_or_adjusted_count(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    replace(&app, json!({ "limits": [{ "max": 100, "per": "day" }] })).await;
    let hold = async |subject: &str, seconds: u64| {
        let body = json!({ "subject": subject, "hold_seconds": seconds });
        app.claim_body(body, None).await.grant_id()
    };
    let adjust = async |subject: &str, units: i64| {
        let body = json!({ "units": units, "reason": "a test" });
        app.adjust(subject, body, None).await.is(201);
        clock.advance(TimeDelta::seconds(1));
    };
    claim(&app, "a", 1).await;
    let held = hold("a", 3600).await;
    for subject in ["b", "c", "d"] {
        claim(&app, subject, 1).await;
    }
    adjust("c", 2).await;
    adjust("d", 1).await;
    adjust("d", -1).await;
    app.confirm(&held).await.is(201);
    app.reverse(&held, "a test").await.is(201);
    claim(&app, "a", 1).await;
    for subject in ["b", "c", "d"] {
        hold(subject, 1).await;
        clock.advance(TimeDelta::seconds(1));
        // This claim comes after the hold's lapse.
        claim(&app, subject, 1).await;
    }
    let denied = async |max| {
        let limits = [(max, "day"), (100, "month")];
        let answer = backtest(&app, &limits, "2026-11-21", "2026-11-22").await;
        assert_eq!(days(&answer)[0].split(' ').nth(1), Some("12/12"));
        first_denied(&answer)
    };
    // An adjustment counts, whether or not it fits, and is no grant. A confirmation changes no
    // units. A reversal or a lapse gives units back from its instant on, but not the units that the
    // draft would have denied.
    assert_eq!(
        denied(1).await,
        ["\"a\" 2", "\"b\" 2", "\"c\" 2", "\"d\" 2"]
    );
    assert_eq!(denied(2).await, ["\"c\" 2"]);
    assert_eq!(denied(100).await, Vec::<String>::new());
}

on_every_store!(many_entries_are_met_once_each);

/// The ledger reads these entries in more than two pages.
async fn many_entries_are_met_once_each(stack: Stack) {
    const COUNT: u64 = 12_000;
    let (ground, app, _clock) = on_a_ground(stack).await;
    replace(&app, json!({})).await;
    claim(&app, "a", 1).await;
    copy_grant(&ground, 2, COUNT - 1, false).await;
    let answer = backtest(&app, &[(5000, "day")], "2026-11-21", "2026-11-22").await;
    assert_eq!(days(&answer), ["2026-11-21 12000/12000 7000/7000"]);
    assert_eq!(first_denied(&answer), ["\"a\" 7000"]);
}
