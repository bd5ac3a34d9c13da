//! Random zones, calendars, instants and texts.

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, TimeDelta, Timelike as _, Utc, Weekday};
use perdiem::domain::window::{Calendar, Division, Length, Window};
use perdiem::domain::zone::Zone;
use proptest::prelude::*;

use super::{BUNDLED, assert_is_a_window, division, year};

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
        anchor: None,
    })
}

fn any_instant() -> impl Strategy<Value = DateTime<Utc>> {
    (year(1850).timestamp_micros()..year(9000).timestamp_micros())
        .prop_map(|micros| DateTime::from_timestamp_micros(micros).unwrap())
}

fn any_per() -> impl Strategy<Value = Division> {
    let lengths = Length::ALL.map(Division::Length);
    let parts = ["1s", "15m", "48m", "6h", "12h"].map(|per| division(per, NaiveDate::MIN));
    let weeks = (2..=52, -40_000..1_000_000)
        .prop_map(|(weeks, day)| (weeks, NaiveDate::from_epoch_days(day).unwrap()))
        .prop_map(|(weeks, from)| division(&format!("{weeks} weeks"), from));
    prop_oneof![
        6 => prop::sample::select(lengths.to_vec()),
        3 => prop::sample::select(parts.to_vec()),
        1 => weeks,
    ]
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
        per in prop::sample::select(vec![Length::Day, Length::Week, Length::Month, Length::Quarter, Length::Year]),
        instant in any_instant(),
        (weeks, day) in (2..=52, -40_000..1_000_000),
    ) {
        let from = NaiveDate::from_epoch_days(day).unwrap();
        let run = division(&format!("{weeks} weeks"), from);
        let first = calendar.local_date(run, calendar.window(run, instant));
        prop_assert_eq!((first - from).num_days() % (7 * i64::from(weeks)), 0);
        let window = calendar.window(per, instant);
        let start = calendar.local_date(per, window).and_time(calendar.day_starts_at);
        prop_assert_eq!(calendar.zone.first_instant(start), window.start);
        prop_assert!(start <= calendar.zone.local(window.start));
        let aligned = match per {
            Length::Week => start.weekday() == calendar.week_starts_on,
            Length::Month => start.day() == 1,
            Length::Quarter => start.day() == 1 && start.month0() % 3 == 0,
            Length::Year => start.ordinal() == 1,
            Length::Minute | Length::Hour | Length::Day => true,
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
