//! `/v1/stats`, `/v1/stats/quarters`, and the first denials of a day.

mod denials;
mod guarded;
mod quarters;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use perdiem::host::clock::{Clock, ManualClock};
use serde_json::{Value, json};

use crate::http::{all_items, items, replace};
use crate::record::all_is_recorded;
use crate::support::app::{App, Ground, NOON, Stack, eventually, instant};
use crate::support::desk::on_every_store;
use crate::support::direct::Direct;

on_every_store!(
    figures_are_sums_of_the_entries,
    corrections_are_told_by_the_day_recorded,
    a_sum_that_is_too_high_stays_at_the_highest,
    a_day_comes_into_the_record_an_hour_after_it,
    what_failed_is_made_good,
);

/// The figures that can be computed from the entries.
const SUMS: [&str; 12] = [
    "grants",
    "units",
    "reversed_grants",
    "reversed_units",
    "lapsed_grants",
    "lapsed_units",
    "adjusted_up_units",
    "adjusted_down_units",
    "resets",
    "net_units",
    "subjects",
    "subjects_at_limit",
];

type Sums = BTreeMap<(String, String), [i64; SUMS.len()]>;

/// The figures that an auditor's script computes from the entries, by policy and day.
fn sums(entries: &[Value]) -> Sums {
    let mut sums = Sums::new();
    let mut claimed = BTreeSet::new();
    let mut at_limit = BTreeSet::new();
    for entry in entries {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let day = (text("policy"), text("counted_on"));
        let units = entry["units"].as_i64().expect("units");
        let sums = sums.entry(day.clone()).or_default();
        let mut add = |name: &str, number: i64| {
            sums[SUMS.iter().position(|sum| *sum == name).expect("a sum")] += number;
        };
        add("net_units", units);
        match (entry["kind"].as_str().expect("a kind"), units) {
            ("grant", _) => {
                add("grants", 1);
                add("units", units);
                let subject = (day, text("subject"));
                add("subjects", claimed.insert(subject.clone()).into());
                let mut limits = entry["limits"].as_array().into_iter().flatten();
                if limits.any(|limit| limit["remaining"] == 0) {
                    add("subjects_at_limit", at_limit.insert(subject).into());
                }
            }
            ("reversal", _) => {
                add("reversed_grants", 1);
                add("reversed_units", -units);
            }
            ("partial_reversal", _) => add("reversed_units", -units),
            ("reset", _) => add("resets", 1),
            ("lapse", _) => {
                add("lapsed_grants", 1);
                add("lapsed_units", -units);
            }
            ("adjustment", 1..) => add("adjusted_up_units", units),
            ("adjustment", _) => add("adjusted_down_units", -units),
            _ => {}
        }
    }
    // A day that has only a confirmation has no row.
    sums.retain(|_, sums| sums.iter().any(|sum| *sum != 0));
    sums
}

/// The same figures as the service shows them.
fn told(days: &[Value]) -> Sums {
    let days = days.iter().map(|day| {
        let text = |name: &str| day[name].as_str().expect("a text").to_owned();
        let sums = SUMS.map(|sum| day[sum].as_i64().expect("a number"));
        ((text("policy"), text("date")), sums)
    });
    let days = days.filter(|(_, sums)| sums.iter().any(|sum| *sum != 0));
    days.collect()
}

/// Waits until the figures cover all entries, and compares the figures with the script's. Entries may
/// get positions meanwhile: both are read of one moment.
pub async fn are_sums_of_the_entries(app: &App) -> Vec<Value> {
    let as_of = async |path: &str| {
        let list = app.get(path).await;
        assert_eq!(list.status, 200, "{list:?}");
        list.json()["as_of"].as_u64().expect("a position")
    };
    let moment = async || (as_of("/v1/stats").await, as_of("/v1/entries?limit=1").await);
    let read = Cell::new((Vec::new(), Vec::new()));
    eventually("the figures are made", || async {
        let (counted, recorded) = moment().await;
        if counted != recorded {
            return false;
        }
        let days = all_items(app, "/v1/stats?limit=2").await;
        read.set((days, all_items(app, "/v1/entries?limit=1000").await));
        moment().await == (counted, recorded)
    })
    .await;
    let (days, entries) = read.into_inner();
    assert_eq!(told(&days), sums(&entries));
    days
}

/// Waits until all entries have positions.
async fn all_have_positions(app: &App, entries: usize) {
    eventually("the entries have positions", || async {
        all_items(app, "/v1/entries?limit=1000").await.len() == entries
    })
    .await;
}

/// Claims on several days, then corrects and compares. The days include a day of 23 hours, a day of
/// 25 hours, a change of the zone, an override, a reversal on the next day and an adjustment. At
/// the end the figures are computed again from the start.
async fn figures_are_sums_of_the_entries(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant("2027-03-13T17:00:00Z"));
    let app = App::start_at(&ground, &clock).await;
    app.benefit(3, "America/New_York").await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy("sms", rule).await;
    app.override_day("vip", 5).await;
    let denied = Cell::new(0);
    let claim = async |subject: &str| {
        let answer = app.claim(subject, None).await;
        denied.set(denied.get() + u64::from(answer.status == 429));
    };
    // The clocks go forward on 14 March 2027, and back on 7 November 2027.
    for day in [
        "2027-03-13",
        "2027-03-14",
        "2027-11-06",
        "2027-11-07",
        "2027-11-08",
    ] {
        let noon: DateTime<Utc> = instant(&format!("{day}T17:00:00Z"));
        clock.set(noon);
        for (subject, claims) in [("a", 4), ("b", 1), ("vip", 6)] {
            for _ in 0..claims {
                claim(subject).await;
            }
        }
        app.claim_under("sms", json!({ "subject": "a" }), None)
            .await;
        // One and a half hours before local midnight, then just after midnight.
        let midnight = match day {
            "2027-03-13" | "2027-11-07" | "2027-11-08" => "05:00:00Z",
            _ => "04:00:00Z",
        };
        let next: NaiveDate = day
            .parse::<NaiveDate>()
            .expect("a date")
            .succ_opt()
            .expect("a date");
        let midnight = instant(&format!("{next}T{midnight}"));
        clock.set(midnight - TimeDelta::minutes(90));
        let late = app.claim("late", None).await.grant_id();
        let held = json!({ "subject": "held", "hold_seconds": 60 });
        app.claim_body(held, None).await;
        clock.set(midnight + TimeDelta::minutes(1));
        app.reverse(&late, "the next day").await;
        // The hold lapses with the next decision.
        claim("held").await;
    }
    replace(&app, json!({ "time_zone": "Asia/Shanghai" })).await;
    claim("a").await;
    clock.advance(TimeDelta::hours(20));
    claim("a").await;
    let adjusted = json!({ "units": 2, "at": "2027-03-14T04:59:59Z", "reason": "found later" });
    app.adjust("c", adjusted, None).await;
    let back = json!({ "units": -1, "at": "2027-11-08T04:59:59Z", "reason": "found later" });
    assert_eq!(app.adjust("a", back, None).await.status, 201);
    all_is_recorded(&app, &ground).await;
    eventually("the denials are counted", || async {
        let days = all_items(&app, "/v1/stats").await;
        let counts = days.iter().map(|day| day["denied_claims"].as_u64());
        counts.sum::<Option<u64>>() == Some(denied.get())
    })
    .await;
    let days = are_sums_of_the_entries(&app).await;
    let lengths: BTreeMap<&str, i64> = days
        .iter()
        .filter(|day| day["policy"] == "benefit")
        .map(|day| {
            let at = |name: &str| instant(day[name].as_str().expect("an instant"));
            let date = day["date"].as_str().expect("a date");
            (date, (at("ends_at") - at("starts_at")).num_hours())
        })
        .collect();
    assert_eq!((lengths["2027-03-13"], lengths["2027-03-14"]), (24, 23));
    assert_eq!((lengths["2027-11-06"], lengths["2027-11-07"]), (24, 25));
    let one = items(
        &app.get("/v1/stats?policy=benefit&from=2027-11-07&to=2027-11-08")
            .await,
    );
    assert_eq!(one.len(), 1);
    assert!(days.contains(&one[0]));
    assert_eq!(
        (&one[0]["subjects"], &one[0]["subjects_at_limit"]),
        (&json!(5), &json!(2))
    );
    ground.make_figures_again().await;
    assert_eq!(are_sums_of_the_entries(&app).await, days);
}

async fn corrections_are_told_by_the_day_recorded(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(3, "Asia/Shanghai").await;
    let grant = app.claim("a", None).await.grant_id();
    app.claim("b", None).await;
    all_have_positions(&app, 2).await;
    clock.advance(TimeDelta::days(2));
    app.reverse(&grant, "a test").await;
    let adjusted = json!({ "units": 5, "at": NOON, "reason": "a test" });
    app.adjust("c", adjusted, None).await;
    all_have_positions(&app, 4).await;
    are_sums_of_the_entries(&app).await;
    let figures = async |filter: &str| {
        let days = items(&app.get(&format!("/v1/stats?policy=benefit{filter}")).await);
        let figures = [
            "grants",
            "reversed_units",
            "adjusted_up_units",
            "net_units",
            "subjects",
        ];
        let of_day = |day: &Value| figures.map(|figure| day[figure].as_i64().expect("a number"));
        days.iter().map(of_day).collect::<Vec<_>>()
    };
    assert_eq!(figures("").await, [[2, 1, 5, 6, 2]]);
    assert_eq!(figures("&recorded_to=2026-11-23").await, [[2, 0, 0, 2, 2]]);
    assert_eq!(
        figures("&recorded_from=2026-11-22").await,
        [[0, 1, 5, 4, 0]]
    );
    assert!(figures("&recorded_from=2026-11-24").await.is_empty());
    assert!(figures("&from=2026-11-22").await.is_empty());
}

/// The figures of other policies continue.
async fn a_sum_that_is_too_high_stays_at_the_highest(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "UTC").await;
    app.claim("a", None).await;
    all_is_recorded(&app, &ground).await;
    are_sums_of_the_entries(&app).await;
    let sql = "UPDATE day_figures SET value = 9223372036854775807 WHERE figure = 'units'";
    Direct::to(&ground).await.execute(sql, sql).await;
    app.claim("b", None).await;
    let rule = json!({ "time_zone": "UTC", "limits": [{ "max": 3, "per": "day" }] });
    app.put_policy("sms", rule).await;
    app.claim_under("sms", json!({ "subject": "a" }), None)
        .await;
    eventually("the figures are made", || async {
        let days = items(&app.get("/v1/stats").await);
        let figures = |name: &str| {
            let mut days = days.iter().filter(|day| day["policy"] == name);
            let day = days.next()?;
            Some((day["grants"].as_u64()?, day["units"].as_u64()?))
        };
        let most = i64::MAX.cast_unsigned();
        figures("benefit") == Some((2, most)) && figures("sms") == Some((1, 1))
    })
    .await;
}

/// An act has the figures of a day one hour after the day's end, and again one hour after a
/// correction.
async fn a_day_comes_into_the_record_an_hour_after_it(stack: Stack) {
    let (app, clock) = App::with_clock(stack).await;
    app.benefit(1, "Asia/Shanghai").await;
    app.claim("a", None).await;
    app.claim("a", None).await;
    app.claim("b", None).await;
    let days = async || {
        let acts = all_items(&app, "/v1/changes?kind=day&limit=1").await;
        let days = acts.iter().map(|act| {
            assert_eq!(act["by"], "perdiem");
            act["after"].clone()
        });
        days.collect::<Vec<Value>>()
    };
    let is_counted = async |denied: u64| {
        let list = app.get("/v1/stats").await;
        let as_of = app.get("/v1/entries").await.json()["as_of"].clone();
        let figures = items(&list)
            .iter()
            .any(|day| day["denied_claims"] == denied);
        figures && list.json()["as_of"] == as_of
    };
    // The day ends at 16:00 UTC. The record has a day that ended earlier first.
    let earlier = json!({ "units": 1, "at": "2026-11-10T00:00:00Z", "reason": "a test" });
    app.adjust("c", earlier, None).await;
    all_have_positions(&app, 3).await;
    eventually("the figures are made", || is_counted(1)).await;
    clock.set(instant("2026-11-21T16:59:59Z"));
    let told = |date: &str, ends_at: &str, figures: Value| json!({ "policy": "benefit", "date": date, "ends_at": ends_at, "figures": figures });
    let of_10th = told(
        "2026-11-10",
        "2026-11-10T16:00:00Z",
        json!({ "adjustments": 1, "adjusted_up_units": 1 }),
    );
    eventually("the record has the earlier day", || async {
        days().await == [of_10th.clone()]
    })
    .await;
    clock.advance(TimeDelta::seconds(2));
    let figures = json!({
        "grants": 2, "units": 2, "subjects": 2, "subjects_at_limit": 2, "denied_claims": 1,
    });
    let mut of_21st = told("2026-11-21", "2026-11-21T16:00:00Z", figures);
    eventually("the record has the day", || async {
        days().await == [of_21st.clone(), of_10th.clone()]
    })
    .await;
    let adjusted = json!({ "units": 5, "at": NOON, "reason": "found later" });
    app.adjust("c", adjusted, None).await;
    all_have_positions(&app, 4).await;
    eventually("the figures are made", || is_counted(1)).await;
    clock.advance(TimeDelta::minutes(61));
    let first = of_21st.clone();
    of_21st["figures"]["adjustments"] = json!(1);
    of_21st["figures"]["adjusted_up_units"] = json!(5);
    eventually("the record has the day again", || async {
        days().await == [of_21st.clone(), first.clone(), of_10th.clone()]
    })
    .await;
    let unasked = all_items(&app, "/v1/changes").await;
    assert!(unasked.iter().all(|change| change["kind"] == "policy"));
}

/// The lag of the figures behind the record, in seconds.
async fn figures_lag(app: &App) -> f64 {
    let metrics = app.get("/metrics").await;
    let mut lines = metrics.text.lines();
    let lag = lines.find_map(|line| line.strip_prefix("perdiem_figures_lag_seconds "));
    lag.expect("the metric").parse().expect("a number")
}

/// The figures cannot be written for a while. A failed step counts nothing, neither in the table
/// nor in the subjects that the follower remembers. Meanwhile the lag grows.
async fn what_failed_is_made_good(stack: Stack) {
    let ground = Ground::new(stack);
    let clock = ManualClock::at(instant(NOON));
    let app = App::start_with(&ground, |options| options.clock = Clock::Manual(clock)).await;
    app.benefit(2, "GMT+8").await;
    app.claim("a", None).await;
    are_sums_of_the_entries(&app).await;
    let away = "ALTER TABLE day_figures RENAME TO figures_away";
    ground.sql(away).await;
    for subject in ["a", "b", "b", "c"] {
        app.claim(subject, None).await;
    }
    all_is_recorded(&app, &ground).await;
    eventually("the figures are late", || async {
        figures_lag(&app).await > 3.0
    })
    .await;
    let back = "ALTER TABLE figures_away RENAME TO day_figures";
    ground.sql(back).await;
    let days = are_sums_of_the_entries(&app).await;
    assert_eq!(days[0]["subjects"], 3, "{days:?}");
    assert_eq!(days[0]["subjects_at_limit"], 2, "{days:?}");
    eventually("the figures are not late", || async {
        figures_lag(&app).await < 3.0
    })
    .await;
}
