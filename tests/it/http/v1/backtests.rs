//! Backtests of drafts.

use chrono::TimeDelta;
use perdiem::clock::{Clock, ManualClock};
use perdiem::domain::identity::EntryId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::{archive, invalid_places, problem, replace, send};
use crate::support::app::{Answer, App, Ground, NOON, Stack, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

const BACKTEST: &str = "/v1/policies/benefit/backtest";

/// A draft of some limits in GMT+8.
fn draft(limits: &[(u64, &str)]) -> Value {
    let limits: Vec<Value> = limits
        .iter()
        .map(|(max, per)| json!({ "max": max, "per": per }))
        .collect();
    json!({ "time_zone": "GMT+8", "limits": limits })
}

async fn try_backtest(app: &App, draft: &Value, from: &str, to: &str) -> Answer {
    let body = json!({ "policy": draft, "from": from, "to": to });
    send(app, Method::POST, BACKTEST, body.to_string()).await
}

async fn backtest(app: &App, limits: &[(u64, &str)], from: &str, to: &str) -> Value {
    let answer = try_backtest(app, &draft(limits), from, to).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
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

/// Each subject that was denied first as `subject grants`.
fn first_denied(answer: &Value) -> Vec<String> {
    let denied = answer["first_denied"].as_array().expect("subjects").iter();
    let line = |denied: &Value| format!("{} {}", denied["subject"], denied["denied_grants"]);
    denied.map(line).collect()
}

/// An application whose clock stands at [`NOON`], and the ground that it is on.
async fn on_a_ground(stack: Stack) -> (Ground, App, ManualClock) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(&ground, |options| {
        options.clock = Clock::Manual(clock.clone());
    });
    let app = app.await;
    (ground, app, clock)
}

async fn claim(app: &App, subject: &str, units: u64) -> String {
    let body = json!({ "subject": subject, "units": units });
    let answer = app.claim_body(body, None).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.json()["grant"]["id"].clone();
    id.as_str().expect("an id").to_owned()
}

/// Three days of November, of which the first lies before the range of most tests.
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
    let (from, to) = ("2026-11-20", "2026-11-23");

    let same = backtest(&app, &[(100, "day")], from, to).await;
    assert_eq!(
        days(&same),
        [
            "2026-11-20 5/8 0/0",
            "2026-11-21 5/8 0/0",
            "2026-11-22 0/0 0/0"
        ]
    );
    assert_eq!(
        same["total"],
        json!({ "grants": 10, "units": 16, "denied_grants": 0, "denied_units": 0, "denied_subjects": 0 })
    );
    assert_eq!(same["first_denied"], json!([]));
    let day = &same["days"][1];
    assert_eq!(day["start"], "2026-11-20T16:00:00Z");
    assert_eq!(day["end"], "2026-11-21T16:00:00Z");

    // What does not fit takes nothing.
    let less = backtest(&app, &[(2, "day")], from, to).await;
    assert_eq!(
        days(&less)[..2],
        ["2026-11-20 5/8 1/3", "2026-11-21 5/8 1/3"]
    );
    assert_eq!(first_denied(&less), ["\"a\" 2"]);
    assert_eq!(less["first_denied"][0]["first_grant"], ids[9].as_str());
    assert_eq!(
        less["first_denied"][0]["first_denied_at"],
        "2026-11-20T02:00:04Z"
    );
    let least = backtest(&app, &[(1, "day")], from, to).await;
    assert_eq!(first_denied(&least), ["\"b\" 2", "\"a\" 4"]);
    assert_eq!(least["total"]["denied_subjects"], 2);
    assert_eq!(least["total"]["denied_units"], 12);

    // The month began before the range.
    let month = backtest(&app, &[(10, "day"), (6, "month")], from, to).await;
    assert_eq!(
        days(&month)[..2],
        ["2026-11-20 5/8 2/4", "2026-11-21 5/8 3/5"]
    );
    assert_eq!(first_denied(&month), ["\"a\" 5"]);
    let month = backtest(&app, &[(6, "month")], "2026-11-19", "2026-11-20").await;
    assert_eq!(month["total"]["denied_grants"], 0);

    // Nothing was changed.
    let version = app.get("/v1/policies/benefit").await.json()["version"].clone();
    assert_eq!(version, 1);
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
    let (from, to) = ("2026-11-20", "2026-11-23");
    let shanghai = backtest(&app, &[(1, "day")], from, to).await;
    assert_eq!(shanghai["total"]["denied_grants"], 0);
    let mut draft = draft(&[(1, "day")]);
    draft["time_zone"] = json!("America/New_York");
    let new_york = try_backtest(&app, &draft, from, to).await.json();
    assert_eq!(days(&new_york)[1], "2026-11-21 2/2 1/1");
    draft["day_starts_at"] = json!("11:00");
    let later = try_backtest(&app, &draft, from, to).await.json();
    assert_eq!(
        days(&later)[..2],
        ["2026-11-20 1/1 0/0", "2026-11-21 1/1 0/0"]
    );
    // A date that a zone skipped is no day.
    draft["time_zone"] = json!("Pacific/Apia");
    draft["day_starts_at"] = Value::Null;
    let apia = try_backtest(&app, &draft, "2011-12-30", "2011-12-31").await;
    assert_eq!(apia.json()["days"], json!([]));
}

on_every_store!(only_limits_count_and_archived_policies_too);

async fn only_limits_count_and_archived_policies_too(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    three_days(&app, &clock).await;
    archive(&app).await;
    let mut draft = draft(&[(2, "day")]);
    draft["paused"] = json!(true);
    draft["active_from"] = json!("2030-01-01T00:00:00Z");
    draft["reason"] = json!("a test");
    let answer = try_backtest(&app, &draft, "2026-11-20", "2026-11-22").await;
    assert_eq!(answer.json()["total"]["denied_grants"], 2);
    // Another policy's grants are not met.
    app.put_policy(
        "other",
        json!({ "time_zone": "UTC", "limits": [{ "max": 9, "per": "day" }] }),
    )
    .await;
    let body = json!({ "policy": draft, "from": "2026-11-20", "to": "2026-11-22" });
    let path = "/v1/policies/other/backtest";
    let other = send(&app, Method::POST, path, body.to_string()).await;
    assert_eq!(other.json()["total"]["grants"], 0);
}

on_every_store!(an_erased_subject_has_no_name);

async fn an_erased_subject_has_no_name(stack: Stack) {
    let (ground, app, clock) = on_a_ground(stack).await;
    three_days(&app, &clock).await;
    let sql = "UPDATE accounts SET subject = NULL WHERE subject = 'b'";
    let mut direct = Direct::to(&ground).await;
    assert_eq!(direct.execute(sql, sql).await, 1);
    let answer = backtest(&app, &[(1, "day")], "2026-11-20", "2026-11-22").await;
    assert_eq!(first_denied(&answer), ["null 2", "\"a\" 4"]);
}

/// Adds an entry of another kind to the account of a grant, so many seconds after [`NOON`].
async fn add_entry(ground: &Ground, kind: u8, grant: &str, seconds: i64) {
    let number = 1_000 + seconds;
    let at = instant(NOON) + TimeDelta::seconds(seconds);
    let id = EntryId::new(at, number.cast_unsigned(), 0).0;
    let columns = "at, flags, units, policy, policy_version, account, totals";
    let insert = |id: String, grant: String| {
        format!(
            "INSERT INTO entries (number, id, kind, {columns})
             SELECT {number}, {id}, {kind}, {columns} FROM entries WHERE id = {grant}"
        )
    };
    let details = |id: String, grant: String| {
        format!(
            "INSERT INTO entry_details (account, number, id, kind, of_grant)
             SELECT account, {number}, {id}, {kind}, id FROM entries WHERE id = {grant}"
        )
    };
    let text = |id: &str| format!("'{id}'");
    let hex = |id: &str| format!("unhex('{}')", id.replace('-', ""));
    let id = id.to_string();
    let mut direct = Direct::to(ground).await;
    let postgres = insert(text(&id), text(grant));
    let sqlite = insert(hex(&id), hex(grant));
    assert_eq!(direct.execute(&postgres, &sqlite).await, 1);
    if (2..=4).contains(&kind) {
        let postgres = details(text(&id), text(grant));
        let sqlite = details(hex(&id), hex(grant));
        assert_eq!(direct.execute(&postgres, &sqlite).await, 1);
    }
}

on_every_store!(units_that_were_given_back_or_adjusted_count);

async fn units_that_were_given_back_or_adjusted_count(stack: Stack) {
    let (ground, app, clock) = on_a_ground(stack).await;
    replace(&app, json!({ "limits": [{ "max": 100, "per": "day" }] })).await;
    let mut ids = Vec::new();
    for (seconds, subject) in [
        (0, "a"),
        (10, "a"),
        (20, "b"),
        (50, "a"),
        (60, "b"),
        (61, "b"),
    ] {
        clock.set(instant(NOON) + TimeDelta::seconds(seconds));
        ids.push(claim(&app, subject, 1).await);
    }
    let denied = async |max| {
        let limits = [(max, "day"), (100, "month")];
        let answer = backtest(&app, &limits, "2026-11-21", "2026-11-22").await;
        first_denied(&answer)
    };
    assert_eq!(denied(1).await, ["\"a\" 2", "\"b\" 2"]);
    assert_eq!(denied(2).await, ["\"a\" 1", "\"b\" 1"]);

    // A confirmation moves nothing; a reversal or a lapse gives back from its instant on, but
    // not what would have been denied.
    add_entry(&ground, 2, &ids[1], 30).await;
    assert_eq!(denied(2).await, ["\"a\" 1", "\"b\" 1"]);
    for (kind, grant, seconds) in [(3, 1, 40), (4, 4, 60)] {
        add_entry(&ground, kind, &ids[grant], seconds).await;
    }
    assert_eq!(denied(2).await, Vec::<String>::new());
    assert_eq!(denied(1).await, ["\"a\" 2", "\"b\" 2"]);

    // What was entered by hand counts, whether or not it fits, and is no grant.
    for seconds in [21, 22] {
        add_entry(&ground, 5, &ids[2], seconds).await;
    }
    assert_eq!(denied(2).await, ["\"b\" 2"]);
    for seconds in [23, 24] {
        add_entry(&ground, 6, &ids[2], seconds).await;
    }
    assert_eq!(denied(2).await, Vec::<String>::new());
    let answer = backtest(&app, &[(100, "day")], "2026-11-21", "2026-11-22").await;
    assert_eq!(days(&answer), ["2026-11-21 6/6 0/0"]);
}

on_every_store!(many_entries_are_met_once_each);

/// More than two pages of the ledger's.
async fn many_entries_are_met_once_each(stack: Stack) {
    const COUNT: u64 = 12_000;
    let (ground, app, _clock) = on_a_ground(stack).await;
    replace(&app, json!({})).await;
    claim(&app, "a", 1).await;
    crate::http::v1::exports::copy_grant(&ground, 2, COUNT - 1, false).await;
    let answer = backtest(&app, &[(5000, "day")], "2026-11-21", "2026-11-22").await;
    assert_eq!(days(&answer), ["2026-11-21 12000/12000 7000/7000"]);
    assert_eq!(first_denied(&answer), ["\"a\" 7000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_told() {
    let app = App::on(Stack::Sqlite).await;
    let good = draft(&[(3, "day")]);
    let answer = try_backtest(&app, &good, "2026-11-20", "2026-11-22").await;
    problem(&answer, 404, "unknown-policy");
    replace(&app, json!({})).await;

    let mut wrong = draft(&[(0, "fortnight")]);
    wrong["time_zone"] = json!("Asia/Shangai");
    wrong["active_from"] = json!("soon");
    wrong["durability"] = json!("counted");
    let answer = try_backtest(&app, &wrong, "20. 11.", "2026-02-30").await;
    assert_eq!(
        invalid_places(&answer),
        [
            "#/from",
            "#/to",
            "#/policy/active_from",
            "#/policy/time_zone",
            "#/policy/limits/0/max",
            "#/policy/limits/0/per",
        ]
    );
    let mut counted = good.clone();
    counted["durability"] = json!("counted");
    let answer = try_backtest(&app, &counted, "2026-11-20", "2026-11-22").await;
    assert_eq!(invalid_places(&answer), ["#/policy/durability"]);
    for (from, to) in [
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20", "2026-11-19"),
        ("2026-01-01", "2027-02-06"),
        ("0000-01-01", "9999-12-31"),
    ] {
        let answer = try_backtest(&app, &good, from, to).await;
        assert_eq!(invalid_places(&answer), ["#/to"], "{from} {to}");
    }
    // The ends of the calendar are days like others.
    for (from, to) in [
        ("0000-01-01", "0000-12-31"),
        ("9999-01-01", "9999-12-31"),
        ("1969-12-31", "1970-01-02"),
    ] {
        for zone in ["GMT+14", "GMT-12"] {
            let mut draft = draft(&[(3, "day"), (3, "year")]);
            draft["time_zone"] = json!(zone);
            let answer = try_backtest(&app, &draft, from, to).await;
            assert_eq!(answer.status, 200, "{from} {to}: {answer:?}");
        }
    }
    let day = ("2026-11-20", "2026-11-21");
    for body in [
        json!({}),
        json!({ "policy": good, "from": day.0 }),
        json!({ "policy": [], "from": day.0, "to": day.1 }),
        json!({ "policy": good, "from": 20_261_120, "to": day.1 }),
        json!({ "policy": good, "from": day.0, "to": day.1, "limits": [] }),
        json!({ "policy": { "time_zone": "UTC", "limit": [] }, "from": day.0, "to": day.1 }),
    ] {
        let answer = send(&app, Method::POST, BACKTEST, body.to_string()).await;
        problem(&answer, 400, "malformed");
    }
    let answer = send(&app, Method::POST, "/v1/policies/Benefit/backtest", "{}").await;
    problem(&answer, 400, "malformed");
}
