//! Every zone of the tz database, in all years, compared with the definition and with chrono-tz.

use std::collections::HashSet;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Offset as _, TimeDelta};
use chrono::{TimeZone as _, Timelike as _, Utc, Weekday};
use perdiem::domain::window::{Calendar, Division, Length, Window};
use perdiem::domain::zone::Zone;
use perdiem::host::zone_rules;

use super::{BUNDLED, MIDNIGHT, assert_is_a_window, division, time, year};

const DAY_STARTS: [&str; 5] = ["00:00", "00:30", "02:30", "06:00", "23:45"];

/// A calendar of the zone, with another start of the day and week for every `turn`.
fn calendar_by_turns(zone: &Zone, turn: usize) -> Calendar {
    Calendar {
        zone: zone.clone(),
        day_starts_at: time(DAY_STARTS[turn % DAY_STARTS.len()]),
        week_starts_on: Weekday::try_from((turn % 7) as u8).unwrap(),
        anchor: None,
    }
}

/// The instants in `(from, to]` at which an offset, in seconds, changes. Two changes within a week
/// that cancel each other are not found.
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
            let mut before = here.0;
            let mut after = next.0;
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

/// Asserts that the windows that touch `[from, to)` are in order and without gaps, contain their
/// instants, and have increasing dates.
fn assert_windows_tile(calendar: &Calendar, per: Division, from: DateTime<Utc>, to: DateTime<Utc>) {
    let is_short = matches!(
        per,
        Division::PartOfDay(_) | Division::Length(Length::Minute | Length::Hour)
    );
    let mut last: Option<Window> = None;
    for window in calendar.windows(per, from, to) {
        assert_is_a_window(calendar, per, window);
        match last {
            None => assert!(window.contains(from)),
            Some(last) => {
                assert_eq!(last.end, window.start);
                let before = calendar.local_date(per, last);
                let after = calendar.local_date(per, window);
                assert!(before < after || (is_short && before == after));
            }
        }
        last = Some(window);
    }
    assert!(last.is_some_and(|last| last.start < to && to <= last.end));
}

/// Asserts that `first_instant(local)` is the first one, by some instants of the days before it.
fn assert_is_first_instant(zone: &Zone, local: NaiveDateTime) {
    let first = zone.first_instant(local);
    assert!(zone.local(first) >= local, "{zone:?} {local}");
    let before = std::iter::once(1).chain((3600..26 * 3600).step_by(3600));
    for seconds in before {
        let earlier = first - TimeDelta::seconds(seconds);
        assert!(zone.local(earlier) < local, "{zone:?} {local} {earlier}");
    }
}

/// Every zone of the bundled tz database, and every zone of the system's that has other rules: all
/// years of two centuries, and the shorter windows around each change of the clocks.
#[test]
fn windows_of_every_zone_tile_time() {
    let from = year(1900);
    let to = year(2100);
    let mut seen = HashSet::new();
    let system = zone_rules::system();
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
        assert_windows_tile(&calendar, Length::Year.into(), from, to);
        for (turn, change) in changes.into_iter().enumerate() {
            // Rules without an end repeat.
            if change.year() > 2030 && turn % 20 > 1 {
                continue;
            }
            let near = |span: TimeDelta| (change - span, change + span);
            for (per, span) in [
                (Length::Minute.into(), TimeDelta::minutes(1)),
                (division("15m", NaiveDate::MIN), TimeDelta::minutes(15)),
                (Length::Hour.into(), TimeDelta::hours(1)),
                (division("6h", NaiveDate::MIN), TimeDelta::hours(6)),
                (Length::Day.into(), TimeDelta::days(1)),
                (Length::Week.into(), TimeDelta::days(1)),
                (division("2 weeks", change.date_naive()), TimeDelta::days(1)),
                (Length::Month.into(), TimeDelta::days(1)),
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

/// chrono-tz's changes of a year. Returns `None` if the zone has other offsets in perdiem (each
/// week and near each change), or if a change is not at a whole minute.
fn changes_in_both(theirs: chrono_tz::Tz, ours: &Zone, of_year: i32) -> Option<Vec<DateTime<Utc>>> {
    let from = year(of_year);
    let to = year(of_year + 1);
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

/// The starts of windows by their definition: the instants that show a later minute, hour or day
/// than all instants before. `shown` has instants with the local time at each.
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

/// chrono-tz is a second opinion where its older data is the same. The test reads ten years of each
/// zone, minute by minute around each change.
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
            let from = change - TimeDelta::days(1);
            let to = change + TimeDelta::days(1);
            // One more day, for the local time before it.
            let shown: Vec<_> = (-2 * 1440..1440)
                .map(|minute| change + TimeDelta::minutes(minute))
                .map(|instant| (instant, instant.with_timezone(&theirs).naive_local()))
                .collect();
            let into_part = |seconds| {
                move |local: NaiveDateTime| {
                    let shown = local - into_day;
                    (shown.date(), shown.num_seconds_from_midnight() / seconds)
                }
            };
            for (per, expected) in [
                (
                    Length::Hour.into(),
                    starts(&shown, |local| (local.date(), local.hour())),
                ),
                (
                    Length::Day.into(),
                    starts(&shown, |local| (local - into_day).date()),
                ),
                (
                    division("15m", NaiveDate::MIN),
                    starts(&shown, into_part(15 * 60)),
                ),
                (
                    division("6h", NaiveDate::MIN),
                    starts(&shown, into_part(6 * 3600)),
                ),
            ] {
                let expected = expected.into_iter().filter(|start| from < *start);
                let found = calendar.windows(per, from, to).map(|window| window.start);
                let found = found.filter(|start| from < *start);
                assert!(expected.eq(found), "{calendar:?} {per:?} {change}");
            }
            let minutes = starts(&shown, |local| local);
            for start in minutes
                .into_iter()
                .filter(|start| from < *start)
                .step_by(60)
            {
                let window = calendar.window(Length::Minute, start);
                assert_eq!(window.start, start, "{calendar:?} {change}");
            }
        }
    }
    assert!(compared > 2500, "{compared}");
}
