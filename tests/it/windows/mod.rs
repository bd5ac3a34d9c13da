//! Windows of every zone, compared with the code of other projects and with the definition of a
//! window.

mod any;
mod every_zone;

use std::sync::LazyLock;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime};
use chrono::{TimeDelta, TimeZone as _, Utc, Weekday};
use perdiem::domain::limit::per::Per;
use perdiem::domain::window::Length;
use perdiem::domain::window::{Calendar, Division, PartOfDay, WeekRun, Window};
use perdiem::domain::zones::Zones;

/// The tz database of the fixtures.
static BUNDLED: LazyLock<Zones> = LazyLock::new(Zones::bundled);

const MIDNIGHT: NaiveTime = NaiveTime::MIN;

fn at(text: &str) -> DateTime<Utc> {
    let utc = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
    utc.and_utc()
}

fn date(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn time(text: &str) -> NaiveTime {
    text.parse().unwrap()
}

fn year(year: i32) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(year, 1, 1, 0, 0, 0).unwrap()
}

fn calendar(zone: &str) -> Calendar {
    Calendar {
        zone: BUNDLED.get(zone).unwrap(),
        day_starts_at: MIDNIGHT,
        week_starts_on: Weekday::Mon,
        anchor: None,
    }
}

/// Asserts that the window is the one of its first instant, of its last, and of one between, and
/// that it touches its neighbours.
fn assert_is_a_window(calendar: &Calendar, per: impl Into<Division>, window: Window) {
    let per = per.into();
    let last = window.end - TimeDelta::nanoseconds(1);
    let middle = window.start + (window.end - window.start) / 2;
    assert!(window.start < window.end, "{calendar:?} {per:?} {window:?}");
    for instant in [window.start, middle, last] {
        assert!(window.contains(instant));
        assert_eq!(
            calendar.window(per, instant),
            window,
            "{calendar:?} {per:?} {instant}"
        );
    }
}

/// The division of the calendar with a name. A run of weeks begins on the date.
fn division(per: &str, from: NaiveDate) -> Division {
    match per.parse().unwrap() {
        Per::Calendar(length) => length.into(),
        Per::Elapsed(part) => Division::PartOfDay(PartOfDay::new(part).unwrap()),
        Per::Weeks(weeks) => Division::Weeks(WeekRun { weeks, from }),
        Per::Ever => panic!("not of the calendar"),
    }
}

/// Asserts that the day `on` of the calendar lasts from `start` to `end`.
#[track_caller]
fn assert_day(calendar: &Calendar, on: &str, start: &str, end: &str) {
    let window = Window {
        start: at(start),
        end: at(end),
    };
    assert_eq!(calendar.window(Length::Day, window.start), window);
    assert_is_a_window(calendar, Length::Day, window);
    assert_eq!(calendar.local_date(Length::Day, window), date(on));
}

/// Asserts that the window of an instant lasts from `start` to `end`.
#[track_caller]
fn assert_window(calendar: &Calendar, per: Length, instant: &str, start: &str, end: &str) {
    let window = calendar.window(per, at(instant));
    assert_eq!((window.start, window.end), (at(start), at(end)));
    assert_is_a_window(calendar, per, window);
}

/// The fixture has the days that clock changes make longer or shorter.
#[test]
fn an_offset_has_many_names() {
    for name in ["GMT+8", "+08:00", "UTC+8", "Etc/GMT-8", "Asia/Shanghai"] {
        let days = calendar(name);
        assert_day(&days, "2024-02-29", "2024-02-28 16:00", "2024-02-29 16:00");
        assert_day(&days, "2024-03-01", "2024-02-29 16:00", "2024-03-01 16:00");
    }
}

/// The day starts at the first of the two times.
#[test]
fn a_day_may_start_at_a_time_that_comes_twice() {
    let mut days = calendar("America/New_York");
    days.day_starts_at = time("01:30");
    assert_day(&days, "2024-11-03", "2024-11-03 05:30", "2024-11-04 06:30");
}

#[test]
fn day_starts_at_moves_weeks_months_and_years_but_not_hours() {
    let gmt_plus_8 = Calendar {
        zone: BUNDLED.get("GMT+8").unwrap(),
        day_starts_at: time("06:30"),
        week_starts_on: Weekday::Sun,
        anchor: None,
    };
    let instant = "2026-07-31 22:29";
    #[rustfmt::skip]
    let rows = [
        (Length::Minute, "2026-07-31 22:29", "2026-07-31 22:30", "2026-08-01"),
        (Length::Hour, "2026-07-31 22:00", "2026-07-31 23:00", "2026-08-01"),
        (Length::Day, "2026-07-30 22:30", "2026-07-31 22:30", "2026-07-31"),
        (Length::Week, "2026-07-25 22:30", "2026-08-01 22:30", "2026-07-26"),
        (Length::Month, "2026-06-30 22:30", "2026-07-31 22:30", "2026-07-01"),
        (Length::Year, "2025-12-31 22:30", "2026-12-31 22:30", "2026-01-01"),
    ];
    for (per, start, end, on) in rows {
        assert_window(&gmt_plus_8, per, instant, start, end);
        let window = gmt_plus_8.window(per, at(instant));
        assert_eq!(gmt_plus_8.local_date(per, window), date(on), "{per}");
    }
}

/// CPython computed the fixture's windows, with scripts/make-window-fixture.
#[test]
fn every_window_of_the_fixture_is_ours() {
    let text = include_str!("../../fixtures/windows.csv");
    let (release, table) = text.split_once('\n').unwrap();
    assert_eq!(
        release,
        format!("# tzdata {}", BUNDLED.rules().version),
        "run scripts/make-window-fixture"
    );
    let mut rows = csv::Reader::from_reader(table.as_bytes());
    let mut empty = 0;
    for row in rows.records() {
        let row = row.unwrap();
        let local = NaiveDateTime::parse_from_str(&row[2], "%Y-%m-%dT%H:%M").unwrap();
        let window = Window {
            start: row[3].parse().unwrap(),
            end: row[4].parse().unwrap(),
        };
        let per = division(&row[1], local.date());
        let is_short = ["minute", "15m", "hour", "6h"].contains(&&row[1]);
        let calendar = Calendar {
            zone: BUNDLED.get(&row[0]).unwrap(),
            day_starts_at: if is_short { MIDNIGHT } else { local.time() },
            week_starts_on: local.weekday(),
            anchor: None,
        };
        assert_eq!(calendar.zone.name(), &row[0]);
        assert_eq!(calendar.zone.first_instant(local), window.start, "{row:?}");
        if window.start < window.end {
            assert_is_a_window(&calendar, per, window);
            assert_eq!(calendar.local_date(per, window), local.date(), "{row:?}");
        } else {
            empty += 1;
            assert_eq!(
                calendar.window(per, window.start).start,
                window.start,
                "{row:?}"
            );
        }
    }
    assert!(rows.position().line() > 3000);
    assert!(empty > 50);
}
