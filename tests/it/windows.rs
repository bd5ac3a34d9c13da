//! Windows of every zone, against other people's code and against their own definition.

use std::collections::HashSet;
use std::sync::LazyLock;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Offset as _};
use chrono::{TimeDelta, TimeZone as _, Timelike as _, Utc, Weekday};
use perdiem::domain::window::{Calendar, Per, Window};
use perdiem::domain::zone::Zone;
use perdiem::domain::zones::Zones;
use proptest::prelude::*;

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

mod named_days {
    use super::*;

    #[test]
    fn cairo_skips_midnight() {
        let days = calendar("Africa/Cairo");
        assert_day(&days, "2024-04-25", "2024-04-24 22:00", "2024-04-25 22:00");
        assert_day(&days, "2024-04-26", "2024-04-25 22:00", "2024-04-26 21:00");
        // At midnight of 1 November clocks went back to 23:00.
        assert_day(&days, "2024-10-31", "2024-10-30 21:00", "2024-10-31 22:00");
        assert_day(&days, "2024-11-01", "2024-10-31 22:00", "2024-11-01 22:00");
    }

    #[test]
    fn beirut_skips_midnight() {
        let days = calendar("Asia/Beirut");
        assert_day(&days, "2024-03-30", "2024-03-29 22:00", "2024-03-30 22:00");
        assert_day(&days, "2024-03-31", "2024-03-30 22:00", "2024-03-31 21:00");
        assert_day(&days, "2024-10-26", "2024-10-25 21:00", "2024-10-26 22:00");
    }

    #[test]
    fn havana_skips_midnight_and_has_it_twice() {
        let days = calendar("America/Havana");
        assert_day(&days, "2024-03-10", "2024-03-10 05:00", "2024-03-11 04:00");
        assert_day(&days, "2024-11-02", "2024-11-02 04:00", "2024-11-03 04:00");
        assert_day(&days, "2024-11-03", "2024-11-03 04:00", "2024-11-04 05:00");
    }

    #[test]
    fn santiago_has_eleven_at_night_twice_and_skips_midnight() {
        let days = calendar("America/Santiago");
        assert_day(&days, "2024-04-06", "2024-04-06 03:00", "2024-04-07 04:00");
        assert_day(&days, "2024-09-08", "2024-09-08 04:00", "2024-09-09 03:00");
    }

    #[test]
    fn the_azores_skip_midnight_and_have_it_twice() {
        let days = calendar("Atlantic/Azores");
        assert_day(&days, "2024-03-31", "2024-03-31 01:00", "2024-04-01 00:00");
        assert_day(&days, "2024-10-26", "2024-10-26 00:00", "2024-10-27 00:00");
        assert_day(&days, "2024-10-27", "2024-10-27 00:00", "2024-10-28 01:00");
    }

    #[test]
    fn lord_howe_moves_its_clocks_by_half_an_hour() {
        let days = calendar("Australia/Lord_Howe");
        assert_day(&days, "2024-04-07", "2024-04-06 13:00", "2024-04-07 13:30");
        assert_day(&days, "2024-10-06", "2024-10-05 13:30", "2024-10-06 13:00");
    }

    #[test]
    fn apia_skips_a_date() {
        let days = calendar("Pacific/Apia");
        assert_day(&days, "2011-12-29", "2011-12-29 10:00", "2011-12-30 10:00");
        assert_day(&days, "2011-12-31", "2011-12-30 10:00", "2011-12-31 10:00");
        let (from, to) = (at("2011-12-29 10:00"), at("2011-12-31 10:00"));
        let dates: Vec<_> = days
            .windows(Per::Day, from, to)
            .map(|window| days.local_date(Per::Day, window))
            .collect();
        assert_eq!(dates, [date("2011-12-29"), date("2011-12-31")]);
    }

    #[test]
    fn a_skipped_date_keeps_the_hours_before_the_day_starts() {
        let days = Calendar {
            day_starts_at: time("02:30"),
            ..calendar("Pacific/Apia")
        };
        assert_day(&days, "2011-12-30", "2011-12-30 10:00", "2011-12-30 12:30");
    }

    #[test]
    fn sao_paulo_skips_midnight_and_has_eleven_at_night_twice() {
        let days = calendar("America/Sao_Paulo");
        assert_day(&days, "2018-02-17", "2018-02-17 02:00", "2018-02-18 03:00");
        assert_day(&days, "2018-11-04", "2018-11-04 03:00", "2018-11-05 02:00");
    }

    #[test]
    fn st_johns_went_back_to_the_day_before() {
        let days = calendar("America/St_Johns");
        assert_day(&days, "2010-03-14", "2010-03-14 03:30", "2010-03-15 02:30");
        // At 00:01 of the 7th clocks went back to 23:01 of the 6th: still the 7th.
        assert_day(&days, "2010-11-06", "2010-11-06 02:30", "2010-11-07 02:30");
        assert_day(&days, "2010-11-07", "2010-11-07 02:30", "2010-11-08 03:30");
        let evening_of_the_6th = at("2010-11-07 03:00");
        assert_eq!(
            days.window(Per::Day, evening_of_the_6th).start,
            at("2010-11-07 02:30")
        );
        // In 1988 it was two hours.
        assert_day(&days, "1988-10-30", "1988-10-30 01:30", "1988-10-31 03:30");
    }

    #[test]
    fn toronto_skipped_half_an_hour_on_either_side_of_midnight() {
        let days = calendar("America/Toronto");
        assert_day(&days, "1919-03-30", "1919-03-30 05:00", "1919-03-31 04:30");
        assert_day(&days, "1919-03-31", "1919-03-31 04:30", "1919-04-01 04:00");
    }

    #[test]
    fn new_york_has_days_of_23_and_25_hours() {
        let days = calendar("America/New_York");
        assert_day(&days, "2024-03-10", "2024-03-10 05:00", "2024-03-11 04:00");
        assert_day(&days, "2024-11-03", "2024-11-03 04:00", "2024-11-04 05:00");
    }

    #[test]
    fn a_day_that_starts_inside_a_gap_begins_at_the_change() {
        let days = Calendar {
            day_starts_at: time("02:30"),
            ..calendar("America/New_York")
        };
        assert_day(&days, "2024-03-10", "2024-03-10 07:00", "2024-03-11 06:30");
    }

    #[test]
    fn a_day_that_starts_inside_a_fold_begins_at_the_first_time() {
        let days = Calendar {
            day_starts_at: time("01:30"),
            ..calendar("America/New_York")
        };
        assert_day(&days, "2024-11-03", "2024-11-03 05:30", "2024-11-04 06:30");
    }

    #[test]
    fn gmt_plus_8_is_ahead_of_utc() {
        for name in ["GMT+8", "+08:00", "UTC+8", "Etc/GMT-8", "Asia/Shanghai"] {
            let days = calendar(name);
            assert_day(&days, "2024-02-29", "2024-02-28 16:00", "2024-02-29 16:00");
            assert_day(&days, "2024-03-01", "2024-02-29 16:00", "2024-03-01 16:00");
        }
    }
}

mod other_lengths {
    use super::*;

    #[track_caller]
    fn assert_window(calendar: &Calendar, per: Per, instant: &str, start: &str, end: &str) {
        let window = calendar.window(per, at(instant));
        assert_eq!((window.start, window.end), (at(start), at(end)));
        assert_is_a_window(calendar, per, window);
    }

    #[test]
    fn an_hour_that_comes_twice_is_one_window() {
        let new_york = calendar("America/New_York");
        for instant in ["2024-11-03 05:30", "2024-11-03 06:30"] {
            let (start, end) = ("2024-11-03 05:00", "2024-11-03 07:00");
            assert_window(&new_york, Per::Hour, instant, start, end);
        }
    }

    #[test]
    fn no_minute_begins_until_clocks_have_caught_up() {
        let new_york = calendar("America/New_York");
        for instant in ["2024-11-03 05:59", "2024-11-03 06:30"] {
            let (start, end) = ("2024-11-03 05:59", "2024-11-03 07:00");
            assert_window(&new_york, Per::Minute, instant, start, end);
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
        for (per, start, end, on) in [
            (
                Per::Minute,
                "2026-07-31 22:29",
                "2026-07-31 22:30",
                "2026-08-01",
            ),
            (
                Per::Hour,
                "2026-07-31 22:00",
                "2026-07-31 23:00",
                "2026-08-01",
            ),
            (
                Per::Day,
                "2026-07-30 22:30",
                "2026-07-31 22:30",
                "2026-07-31",
            ),
            (
                Per::Week,
                "2026-07-25 22:30",
                "2026-08-01 22:30",
                "2026-07-26",
            ),
            (
                Per::Month,
                "2026-06-30 22:30",
                "2026-07-31 22:30",
                "2026-07-01",
            ),
            (
                Per::Year,
                "2025-12-31 22:30",
                "2026-12-31 22:30",
                "2026-01-01",
            ),
        ] {
            assert_window(&gmt_plus_8, per, instant, start, end);
            let window = gmt_plus_8.window(per, at(instant));
            assert_eq!(gmt_plus_8.local_date(per, window), date(on), "{per}");
        }
    }
}

/// CPython's windows, made by scripts/make-window-fixture.
#[test]
fn every_window_of_the_fixture_is_ours() {
    let text = include_str!("../fixtures/windows.csv");
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

const DAY_STARTS: [&str; 5] = ["00:00", "00:30", "02:30", "06:00", "23:45"];

/// A calendar of the zone, with another start of the day and week for every `turn`.
fn calendar_by_turns(zone: &Zone, turn: usize) -> Calendar {
    Calendar {
        zone: zone.clone(),
        day_starts_at: time(DAY_STARTS[turn % DAY_STARTS.len()]),
        week_starts_on: Weekday::try_from((turn % 7) as u8).unwrap(),
    }
}

/// The instants in `(from, to]` at which an offset, in seconds, changes; two changes within a
/// week that cancel each other go unseen.
fn changes(
    offset: impl Fn(DateTime<Utc>) -> i32,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Vec<DateTime<Utc>> {
    let mut found = Vec::new();
    let mut here = (from, offset(from));
    while here.0 < to {
        let then = to.min(here.0 + TimeDelta::days(7));
        let next = (then, offset(then));
        if next.1 != here.1 {
            let (mut before, mut after) = (here.0, next.0);
            while after - before > TimeDelta::seconds(1) {
                let middle = before + TimeDelta::seconds((after - before).num_seconds() / 2);
                if offset(middle) == here.1 {
                    before = middle;
                } else {
                    after = middle;
                }
            }
            found.push(after);
        }
        here = next;
    }
    found
}

fn seconds_ahead(zone: &Zone, instant: DateTime<Utc>) -> i32 {
    zone.offset(instant).local_minus_utc()
}

/// Windows that touch `[from, to)`: in order, gapless, each its instants' own, with dates that
/// only grow.
fn assert_windows_tile(calendar: &Calendar, per: Per, from: DateTime<Utc>, to: DateTime<Utc>) {
    let mut last: Option<Window> = None;
    for window in calendar.windows(per, from, to) {
        assert_is_a_window(calendar, per, window);
        match last {
            None => assert!(window.contains(from)),
            Some(last) => {
                assert_eq!(last.end, window.start);
                let (before, after) = (
                    calendar.local_date(per, last),
                    calendar.local_date(per, window),
                );
                assert!(before < after || (per < Per::Day && before == after));
            }
        }
        last = Some(window);
    }
    assert!(last.is_some_and(|last| last.start < to && to <= last.end));
}

/// `first_instant(local)` is what it says, as far as some instants of the days before it tell.
fn assert_is_first_instant(zone: &Zone, local: NaiveDateTime) {
    let first = zone.first_instant(local);
    assert!(zone.local(first) >= local, "{zone:?} {local}");
    let before = std::iter::once(1).chain((3600..26 * 3600).step_by(3600));
    for seconds in before {
        let earlier = first - TimeDelta::seconds(seconds);
        assert!(zone.local(earlier) < local, "{zone:?} {local} {earlier}");
    }
}

/// Every zone of the bundled tz database, and of the system's as far as it has other rules: all
/// years of two centuries, and the shorter windows around each change of the clocks.
#[test]
fn windows_of_every_zone_tile_time() {
    let (from, to) = (year(1900), year(2100));
    let mut seen = HashSet::new();
    let system = Zones::system();
    let zones = BUNDLED.names().map(|name| BUNDLED.get(name));
    let system_zones = system.names().map(|name| system.get(name));
    let mut walked = 0;
    for (turn, zone) in zones.chain(system_zones).enumerate() {
        let zone = zone.unwrap();
        let changes = changes(|instant| seconds_ahead(&zone, instant), from, to);
        let offsets: Vec<i32> = std::iter::once(&from)
            .chain(&changes)
            .map(|instant| seconds_ahead(&zone, *instant))
            .collect();
        if !seen.insert((changes.clone(), offsets)) {
            continue;
        }
        walked += 1;
        let calendar = calendar_by_turns(&zone, turn);
        assert_windows_tile(&calendar, Per::Year, from, to);
        for (turn, change) in changes.into_iter().enumerate() {
            // Rules without an end repeat themselves.
            if change.year() > 2030 && turn % 20 > 1 {
                continue;
            }
            let near = |span: TimeDelta| (change - span, change + span);
            for (per, span) in [
                (Per::Minute, TimeDelta::minutes(1)),
                (Per::Hour, TimeDelta::hours(1)),
                (Per::Day, TimeDelta::days(1)),
                (Per::Week, TimeDelta::days(1)),
                (Per::Month, TimeDelta::days(1)),
            ] {
                let (from, to) = near(span);
                assert_windows_tile(&calendar_by_turns(&zone, turn), per, from, to);
            }
            let (before, after) = near(TimeDelta::seconds(1));
            for instant in [before, change, after] {
                assert_is_first_instant(&zone, zone.local(instant));
            }
        }
    }
    assert!(walked > 300);
}

/// chrono-tz's changes of a year, if the zone has the same offset each week, and near each
/// change; and if they are all in whole minutes.
fn changes_in_both(theirs: chrono_tz::Tz, ours: &Zone, of_year: i32) -> Option<Vec<DateTime<Utc>>> {
    let (from, to) = (year(of_year), year(of_year + 1));
    let their_offset = |instant: DateTime<Utc>| {
        let offset = theirs.offset_from_utc_datetime(&instant.naive_utc());
        offset.fix().local_minus_utc()
    };
    let changes = changes(their_offset, from, to);
    let weeks = (0..53).map(|week| from + TimeDelta::weeks(week));
    let near_changes = changes.iter().flat_map(|change| {
        [-259_200, -1, 0, 259_200].map(|seconds| *change + TimeDelta::seconds(seconds))
    });
    let same = weeks.chain(near_changes).all(|instant| {
        let offset = their_offset(instant);
        offset == seconds_ahead(ours, instant) && offset % 60 == 0
    });
    let in_minutes = changes.iter().all(|change| change.timestamp() % 60 == 0);
    (same && in_minutes).then_some(changes)
}

/// Where windows begin by their definition: at the instants that show a later minute, hour or
/// day than all instants before. `shown` are instants with what their clocks show.
fn starts<K: PartialOrd>(
    shown: &[(DateTime<Utc>, NaiveDateTime)],
    window_of: impl Fn(NaiveDateTime) -> K,
) -> Vec<DateTime<Utc>> {
    let mut latest = window_of(shown[0].1);
    let mut starts = Vec::new();
    for (instant, local) in shown {
        let window = window_of(*local);
        if window > latest {
            latest = window;
            starts.push(*instant);
        }
    }
    starts
}

/// chrono-tz is a second opinion where its data, which is older, is the same. Of each zone ten
/// years are looked at, minute by minute around each change.
#[test]
fn windows_begin_where_chrono_tz_shows_them_first() {
    let mut compared = 0;
    for (turn, theirs) in chrono_tz::TZ_VARIANTS.into_iter().enumerate() {
        let Ok(ours) = BUNDLED.get(theirs.name()) else {
            continue;
        };
        let calendar = calendar_by_turns(&ours, turn);
        let into_day = calendar.day_starts_at - MIDNIGHT;
        let years = (1900 + turn as i32 % 20..2100).step_by(20);
        for change in years
            .filter_map(|year| changes_in_both(theirs, &ours, year))
            .flatten()
        {
            compared += 1;
            let (from, to) = (change - TimeDelta::days(1), change + TimeDelta::days(1));
            // A day more, for what clocks showed before.
            let shown: Vec<_> = (-2 * 1440..1440)
                .map(|minute| change + TimeDelta::minutes(minute))
                .map(|instant| (instant, instant.with_timezone(&theirs).naive_local()))
                .collect();
            for (per, expected) in [
                (
                    Per::Hour,
                    starts(&shown, |local| (local.date(), local.hour())),
                ),
                (Per::Day, starts(&shown, |local| (local - into_day).date())),
            ] {
                let expected = expected.into_iter().filter(|start| from < *start);
                let found = calendar.windows(per, from, to).map(|window| window.start);
                let found = found.filter(|start| from < *start);
                assert!(expected.eq(found), "{calendar:?} {per} {change}");
            }
            let minutes = starts(&shown, |local| local);
            for start in minutes
                .into_iter()
                .filter(|start| from < *start)
                .step_by(60)
            {
                let window = calendar.window(Per::Minute, start);
                assert_eq!(window.start, start, "{calendar:?} {change}");
            }
        }
    }
    assert!(compared > 2500, "{compared}");
}

fn any_zone() -> impl Strategy<Value = Zone> {
    let names: Vec<String> = BUNDLED.names().map(str::to_owned).collect();
    let offset = (-18 * 60..=18 * 60).prop_map(|minutes: i32| {
        let sign = if minutes < 0 { '-' } else { '+' };
        format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
    });
    prop_oneof![9 => prop::sample::select(names), 1 => offset]
        .prop_map(|name| BUNDLED.get(&name).unwrap())
}

fn any_calendar() -> impl Strategy<Value = Calendar> {
    (any_zone(), 0..1440_u32, 0..7_u8).prop_map(|(zone, minute, weekday)| Calendar {
        zone,
        day_starts_at: NaiveTime::from_hms_opt(minute / 60, minute % 60, 0).unwrap(),
        week_starts_on: Weekday::try_from(weekday).unwrap(),
    })
}

fn any_instant() -> impl Strategy<Value = DateTime<Utc>> {
    (year(1850).timestamp_micros()..year(9000).timestamp_micros())
        .prop_map(|micros| DateTime::from_timestamp_micros(micros).unwrap())
}

fn any_per() -> impl Strategy<Value = Per> {
    prop::sample::select(Per::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_instant_is_in_one_window(
        calendar in any_calendar(),
        per in any_per(),
        instant in any_instant(),
        seconds in -100_000_i64..100_000,
    ) {
        let window = calendar.window(per, instant);
        prop_assert!(window.contains(instant));
        assert_is_a_window(&calendar, per, window);
        let before = calendar.window(per, window.start - TimeDelta::nanoseconds(1));
        prop_assert_eq!(before.end, window.start);
        prop_assert_eq!(calendar.window(per, window.end).start, window.end);
        let other = instant + TimeDelta::seconds(seconds);
        prop_assert_eq!(calendar.window(per, other) == window, window.contains(other));
    }

    #[test]
    fn the_local_date_of_a_window_leads_back_to_it(
        calendar in any_calendar(),
        per in prop::sample::select(vec![Per::Day, Per::Week, Per::Month, Per::Year]),
        instant in any_instant(),
    ) {
        let window = calendar.window(per, instant);
        let start = calendar.local_date(per, window).and_time(calendar.day_starts_at);
        prop_assert_eq!(calendar.zone.first_instant(start), window.start);
        prop_assert!(start <= calendar.zone.local(window.start));
        let aligned = match per {
            Per::Week => start.weekday() == calendar.week_starts_on,
            Per::Month => start.day() == 1,
            Per::Year => start.ordinal() == 1,
            Per::Minute | Per::Hour | Per::Day => true,
        };
        prop_assert!(aligned);
    }

    #[test]
    fn the_latest_local_time_is_the_one_that_windows_wait_for(
        zone in any_zone(),
        instant in any_instant(),
        seconds in -200_000_i64..200_000,
    ) {
        let local = zone.local(instant).with_nanosecond(0).unwrap() + TimeDelta::seconds(seconds);
        let shown = local <= zone.latest_local(instant);
        prop_assert_eq!(shown, zone.first_instant(local) <= instant);
    }

    #[test]
    fn no_text_and_no_instant_panics(
        text in "(UTC|GMT|utc)?[-+]?[0-9:]{0,6}|\\PC{0,50}",
        calendar in any_calendar(),
        per in any_per(),
        seconds in -9_000_000_000_000_i64..9_000_000_000_000,
    ) {
        let _ = BUNDLED.get(&text);
        let outermost = if seconds < 0 { DateTime::<Utc>::MIN_UTC } else { DateTime::<Utc>::MAX_UTC };
        let instant = DateTime::from_timestamp(seconds, 0).unwrap_or(outermost);
        let window = calendar.window(per, instant);
        prop_assert!(window.start < window.end);
        calendar.local_date(per, Window { start: instant, end: instant });
        let _ = calendar.zone.local(instant);
        let _ = calendar.zone.latest_local(instant);
        let _ = calendar.zone.first_instant(instant.naive_utc());
    }
}
