//! Windows of every zone, against other people's code and against their own definition.

mod any;
mod every_zone;

use std::sync::LazyLock;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime};
use chrono::{TimeDelta, TimeZone as _, Utc, Weekday};
use perdiem::domain::window::{Calendar, Per, Window};
use perdiem::domain::zones::Zones;

/// The tz database that fixtures are pinned to.
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
    }
}

/// The window is the one of its first instant, its last, and one between; and its neighbours'
/// bounds are its own.
fn assert_is_a_window(calendar: &Calendar, per: Per, window: Window) {
    let last = window.end - TimeDelta::nanoseconds(1);
    let middle = window.start + (window.end - window.start) / 2;
    assert!(window.start < window.end, "{calendar:?} {per} {window:?}");
    for instant in [window.start, middle, last] {
        assert!(window.contains(instant));
        assert_eq!(
            calendar.window(per, instant),
            window,
            "{calendar:?} {per} {instant}"
        );
    }
}

/// The day `on` of the calendar lasts from `start` to `end`.
#[track_caller]
fn assert_day(calendar: &Calendar, on: &str, start: &str, end: &str) {
    let window = Window {
        start: at(start),
        end: at(end),
    };
    assert_eq!(calendar.window(Per::Day, window.start), window);
    assert_is_a_window(calendar, Per::Day, window);
    assert_eq!(calendar.local_date(Per::Day, window), date(on));
}

/// The window that has an instant lasts from `start` to `end`.
#[track_caller]
fn assert_window(calendar: &Calendar, per: Per, instant: &str, start: &str, end: &str) {
    let window = calendar.window(per, at(instant));
    assert_eq!((window.start, window.end), (at(start), at(end)));
    assert_is_a_window(calendar, per, window);
}

#[test]
fn days_are_those_of_the_local_calendar() {
    #[rustfmt::skip]
    let days = [
        // Clocks skip midnight. At midnight of 1 November they went back to 23:00.
        ("Africa/Cairo", "2024-04-25", "2024-04-24 22:00", "2024-04-25 22:00"),
        ("Africa/Cairo", "2024-04-26", "2024-04-25 22:00", "2024-04-26 21:00"),
        ("Africa/Cairo", "2024-10-31", "2024-10-30 21:00", "2024-10-31 22:00"),
        ("Africa/Cairo", "2024-11-01", "2024-10-31 22:00", "2024-11-01 22:00"),
        ("Asia/Beirut", "2024-03-30", "2024-03-29 22:00", "2024-03-30 22:00"),
        ("Asia/Beirut", "2024-03-31", "2024-03-30 22:00", "2024-03-31 21:00"),
        ("Asia/Beirut", "2024-10-26", "2024-10-25 21:00", "2024-10-26 22:00"),
        // They skip midnight, and have it twice.
        ("America/Havana", "2024-03-10", "2024-03-10 05:00", "2024-03-11 04:00"),
        ("America/Havana", "2024-11-02", "2024-11-02 04:00", "2024-11-03 04:00"),
        ("America/Havana", "2024-11-03", "2024-11-03 04:00", "2024-11-04 05:00"),
        ("Atlantic/Azores", "2024-03-31", "2024-03-31 01:00", "2024-04-01 00:00"),
        ("Atlantic/Azores", "2024-10-26", "2024-10-26 00:00", "2024-10-27 00:00"),
        ("Atlantic/Azores", "2024-10-27", "2024-10-27 00:00", "2024-10-28 01:00"),
        // They skip midnight, and have eleven at night twice.
        ("America/Santiago", "2024-04-06", "2024-04-06 03:00", "2024-04-07 04:00"),
        ("America/Santiago", "2024-09-08", "2024-09-08 04:00", "2024-09-09 03:00"),
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17 02:00", "2018-02-18 03:00"),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00", "2018-11-05 02:00"),
        // Clocks move by half an hour.
        ("Australia/Lord_Howe", "2024-04-07", "2024-04-06 13:00", "2024-04-07 13:30"),
        ("Australia/Lord_Howe", "2024-10-06", "2024-10-05 13:30", "2024-10-06 13:00"),
        // The 30th was skipped.
        ("Pacific/Apia", "2011-12-29", "2011-12-29 10:00", "2011-12-30 10:00"),
        ("Pacific/Apia", "2011-12-31", "2011-12-30 10:00", "2011-12-31 10:00"),
        // At 00:01 of the 7th clocks went back to 23:01 of the 6th: still the 7th.
        ("America/St_Johns", "2010-03-14", "2010-03-14 03:30", "2010-03-15 02:30"),
        ("America/St_Johns", "2010-11-06", "2010-11-06 02:30", "2010-11-07 02:30"),
        ("America/St_Johns", "2010-11-07", "2010-11-07 02:30", "2010-11-08 03:30"),
        // In 1988 it was two hours.
        ("America/St_Johns", "1988-10-30", "1988-10-30 01:30", "1988-10-31 03:30"),
        // Half an hour was skipped on either side of midnight.
        ("America/Toronto", "1919-03-30", "1919-03-30 05:00", "1919-03-31 04:30"),
        ("America/Toronto", "1919-03-31", "1919-03-31 04:30", "1919-04-01 04:00"),
        // Days of 23 and 25 hours.
        ("America/New_York", "2024-03-10", "2024-03-10 05:00", "2024-03-11 04:00"),
        ("America/New_York", "2024-11-03", "2024-11-03 04:00", "2024-11-04 05:00"),
    ];
    for (zone, on, start, end) in days {
        assert_day(&calendar(zone), on, start, end);
    }
    let evening_of_the_6th = at("2010-11-07 03:00");
    let window = calendar("America/St_Johns").window(Per::Day, evening_of_the_6th);
    assert_eq!(window.start, at("2010-11-07 02:30"));
    for name in ["GMT+8", "+08:00", "UTC+8", "Etc/GMT-8", "Asia/Shanghai"] {
        let days = calendar(name);
        assert_day(&days, "2024-02-29", "2024-02-28 16:00", "2024-02-29 16:00");
        assert_day(&days, "2024-03-01", "2024-02-29 16:00", "2024-03-01 16:00");
    }
}

#[test]
fn a_skipped_date_has_no_day() {
    let days = calendar("Pacific/Apia");
    let (from, to) = (at("2011-12-29 10:00"), at("2011-12-31 10:00"));
    let windows = days.windows(Per::Day, from, to);
    let dates: Vec<_> = windows
        .map(|window| days.local_date(Per::Day, window))
        .collect();
    assert_eq!(dates, [date("2011-12-29"), date("2011-12-31")]);
}

/// It keeps the hours of a skipped date before the start of its day; a day that starts inside a
/// gap begins at the change, and inside a fold at the first time.
#[test]
fn a_day_may_start_at_another_time() {
    #[rustfmt::skip]
    let rows = [
        ("Pacific/Apia", "02:30", "2011-12-30", "2011-12-30 10:00", "2011-12-30 12:30"),
        ("America/New_York", "02:30", "2024-03-10", "2024-03-10 07:00", "2024-03-11 06:30"),
        ("America/New_York", "01:30", "2024-11-03", "2024-11-03 05:30", "2024-11-04 06:30"),
    ];
    for (zone, starts_at, on, start, end) in rows {
        let mut days = calendar(zone);
        days.day_starts_at = time(starts_at);
        assert_day(&days, on, start, end);
    }
}

/// An hour that comes twice is one window, and no minute begins until clocks have caught up.
#[test]
fn hours_and_minutes_follow_the_local_clock() {
    let new_york = calendar("America/New_York");
    for (per, instant, start) in [
        (Per::Hour, "2024-11-03 05:30", "2024-11-03 05:00"),
        (Per::Hour, "2024-11-03 06:30", "2024-11-03 05:00"),
        (Per::Minute, "2024-11-03 05:59", "2024-11-03 05:59"),
        (Per::Minute, "2024-11-03 06:30", "2024-11-03 05:59"),
    ] {
        assert_window(&new_york, per, instant, start, "2024-11-03 07:00");
    }
}

#[test]
fn day_starts_at_moves_weeks_months_and_years_but_not_hours() {
    let gmt_plus_8 = Calendar {
        zone: BUNDLED.get("GMT+8").unwrap(),
        day_starts_at: time("06:30"),
        week_starts_on: Weekday::Sun,
    };
    let instant = "2026-07-31 22:29";
    #[rustfmt::skip]
    let rows = [
        (Per::Minute, "2026-07-31 22:29", "2026-07-31 22:30", "2026-08-01"),
        (Per::Hour, "2026-07-31 22:00", "2026-07-31 23:00", "2026-08-01"),
        (Per::Day, "2026-07-30 22:30", "2026-07-31 22:30", "2026-07-31"),
        (Per::Week, "2026-07-25 22:30", "2026-08-01 22:30", "2026-07-26"),
        (Per::Month, "2026-06-30 22:30", "2026-07-31 22:30", "2026-07-01"),
        (Per::Year, "2025-12-31 22:30", "2026-12-31 22:30", "2026-01-01"),
    ];
    for (per, start, end, on) in rows {
        assert_window(&gmt_plus_8, per, instant, start, end);
        let window = gmt_plus_8.window(per, at(instant));
        assert_eq!(gmt_plus_8.local_date(per, window), date(on), "{per}");
    }
}

/// CPython's windows, made by scripts/make-window-fixture.
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
        let per: Per = row[1].parse().unwrap();
        let local = NaiveDateTime::parse_from_str(&row[2], "%Y-%m-%dT%H:%M").unwrap();
        let window = Window {
            start: row[3].parse().unwrap(),
            end: row[4].parse().unwrap(),
        };
        let calendar = Calendar {
            zone: BUNDLED.get(&row[0]).unwrap(),
            day_starts_at: if per < Per::Day {
                MIDNIGHT
            } else {
                local.time()
            },
            week_starts_on: local.weekday(),
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
