//! The windows of a policy.

use serde_json::{Value, json};

use crate::http::{all_items, invalid_places, problem, replace};
use crate::support::app::{App, Stack};

const WINDOWS: &str = "/v1/policies/benefit/windows";

/// Each window as `start end local-date`.
async fn windows(app: &App, query: &str) -> Vec<String> {
    let items = all_items(app, &format!("{WINDOWS}?{query}")).await;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let line = |item: &Value| {
        let [start, end, date] = ["start", "end", "local_date"].map(|name| text(&item[name]));
        format!("{start} {end} {date}")
    };
    items.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_span_it_is_the_present_window() {
    let (app, _clock) = App::with_clock(Stack::Sqlite).await;
    problem(&app.get(WINDOWS).await, 404, "unknown-policy");
    replace(&app, json!({})).await;
    let day = "2026-11-20T16:00:00Z 2026-11-21T16:00:00Z 2026-11-21";
    assert_eq!(windows(&app, "").await, [day]);
    assert_eq!(windows(&app, "per=day").await, [day]);
    let month = "2026-10-31T16:00:00Z 2026-11-30T16:00:00Z 2026-11-01";
    assert_eq!(windows(&app, "per=month").await, [month]);
    let hour = "2026-11-21T03:00:00Z 2026-11-21T04:00:00Z 2026-11-21";
    assert_eq!(windows(&app, "per=hour").await, [hour]);
    // With `to` alone, the span begins now. With `from` alone, the answer has one window.
    let two = windows(&app, "to=2026-11-21T16:00:00.000001Z").await;
    assert_eq!(two.len(), 2);
    let past = windows(&app, "from=2026-01-01T00:00:00Z").await;
    assert_eq!(
        past,
        ["2025-12-31T16:00:00Z 2026-01-01T16:00:00Z 2026-01-01"]
    );
    let offset = windows(&app, "from=2026-01-01T00:00:00%2B08:00").await;
    assert_eq!(offset, past);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_clocks_makes_short_and_long_windows() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "America/New_York").await;
    // In March 02:00 is skipped. In November the hour of 01:00 lasts two hours.
    #[rustfmt::skip]
    let rows = [
        ("day", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z 2026-03-09T04:00:00Z 2026-03-08"),
        ("hour", "2026-03-08T06:30:00Z", "2026-03-08T06:00:00Z 2026-03-08T07:00:00Z 2026-03-08"),
        ("hour", "2026-03-08T07:30:00Z", "2026-03-08T07:00:00Z 2026-03-08T08:00:00Z 2026-03-08"),
        ("hour", "2026-11-01T06:30:00Z", "2026-11-01T05:00:00Z 2026-11-01T07:00:00Z 2026-11-01"),
        ("month", "2026-03-31T12:00:00Z", "2026-03-01T05:00:00Z 2026-04-01T04:00:00Z 2026-03-01"),
    ];
    for (per, from, expected) in rows {
        let found = windows(&app, &format!("per={per}&from={from}")).await;
        assert_eq!(found, [expected], "{per} {from}");
    }
}

/// A limit's name says which windows, if the policy has such a limit of the calendar.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_day_and_weeks_have_the_names_of_limits() {
    let app = App::on(Stack::Sqlite).await;
    let limits = json!([
        { "max": 3, "per": "6h", "kind": "calendar" },
        { "max": 3, "per": "24h", "kind": "sliding" },
        { "max": 9, "per": "2 weeks", "from": "2026-01-08" },
    ]);
    replace(
        &app,
        json!({ "time_zone": "America/New_York", "limits": limits }),
    )
    .await;
    #[rustfmt::skip]
    let rows = [
        ("6h", "2026-03-08T06:00:00Z", "2026-03-08T05:00:00Z 2026-03-08T10:00:00Z 2026-03-08"),
        ("360m", "2026-11-01T06:30:00Z", "2026-11-01T04:00:00Z 2026-11-01T11:00:00Z 2026-11-01"),
        ("2%20weeks", "2026-03-08T06:00:00Z", "2026-03-05T05:00:00Z 2026-03-19T04:00:00Z 2026-03-05"),
        ("2%20weeks", "2025-12-26T00:00:00Z", "2025-12-25T05:00:00Z 2026-01-08T05:00:00Z 2025-12-25"),
    ];
    for (per, from, expected) in rows {
        let found = windows(&app, &format!("per={per}&from={from}")).await;
        assert_eq!(found, [expected], "{per} {from}");
    }
    // Each window is of a version that was in force then, and had it.
    let weeks = json!([{ "max": 9, "per": "2 weeks", "from": "2026-01-09" }]);
    let later = json!({
        "time_zone": "America/New_York", "limits": weeks, "effective": "2030-01-01T00:00:00Z",
    });
    replace(&app, later).await;
    let now = "2026-03-08T06:00:00Z";
    let expected = "2026-03-08T05:00:00Z 2026-03-08T10:00:00Z 2026-03-08";
    assert_eq!(
        windows(&app, &format!("per=6h&from={now}")).await,
        [expected]
    );
    let expected = "2026-03-05T05:00:00Z 2026-03-19T04:00:00Z 2026-03-05";
    assert_eq!(
        windows(&app, &format!("per=2%20weeks&from={now}")).await,
        [expected]
    );
    let change = "from=2029-12-31T12:00:00Z&to=2030-01-01T12:00:00Z";
    #[rustfmt::skip]
    let both = [
        "2029-12-20T05:00:00Z 2030-01-03T05:00:00Z 2029-12-20",
        "2029-12-21T05:00:00Z 2030-01-04T05:00:00Z 2029-12-21",
    ];
    for limit in [1, 9] {
        let query = format!("per=2%20weeks&{change}&limit={limit}");
        assert_eq!(windows(&app, &query).await, both);
    }
    assert_eq!(windows(&app, &format!("per=6h&{change}")).await.len(), 3);
    assert!(
        windows(&app, "per=6h&from=2030-01-01T00:00:00Z")
            .await
            .is_empty()
    );
    for per in ["24h", "15m", "3%20weeks", "ever"] {
        let answer = app.get(&format!("{WINDOWS}?per={per}")).await;
        assert_eq!(invalid_places(&answer), ["per"], "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_windows_of_a_year_leave_no_gap() {
    let app = App::on(Stack::Sqlite).await;
    app.benefit(3, "Europe/Berlin").await;
    let year = "from=2025-12-31T23:00:00Z&to=2026-12-31T23:00:00Z";
    let whole = windows(&app, &format!("{year}&limit=1000")).await;
    assert_eq!(whole.len(), 365);
    assert!(whole[0].ends_with("2026-01-01") && whole[364].ends_with("2026-12-31"));
    for pair in whole.windows(2) {
        let end = pair[0].split(' ').nth(1);
        assert_eq!(end, pair[1].split(' ').next());
    }
    assert_eq!(windows(&app, year).await, whole);
}
