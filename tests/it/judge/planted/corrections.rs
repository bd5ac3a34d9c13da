//! Planted in corrections, in limits that overrides change, and in windows.

use chrono::{TimeDelta, Weekday};
use serde_json::Value;
use uuid::Uuid;

use super::super::Breach;
use super::super::history::{Correction, History, Outcome};
use super::super::stores::{Entry, Kind, Stores};
use super::super::windows::{Calendar, Zone};
use super::{assert_found, at, attempt, entry, id, plant, told, total};
use crate::support::app::instant;

/// The first grant was a hold that was confirmed and reversed, the second one lapsed, and units were
/// entered by hand. All is well.
fn corrected(change: impl FnOnce(&mut History, &mut Stores)) -> Vec<Breach> {
    let held_until = Some(at(60));
    let correction = |number, kind, of: u64, used| Entry {
        kind,
        of: (of > 0).then(|| id(of)),
        counted_at: if of > 0 { at(of) } else { at(number) },
        wish: None,
        totals: vec![total(used)],
        ..entry(number)
    };
    let mut entries: Vec<Entry> = (1..=3).map(entry).collect();
    for hold in &mut entries[..2] {
        hold.held_until = held_until;
        hold.lapses_at = held_until;
    }
    entries[2].lapses_at = held_until;
    let mut confirmation = correction(4, Kind::Confirmation, 1, 3);
    confirmation.lapses_at = held_until;
    let mut reversal = correction(5, Kind::Reversal, 1, 2);
    reversal.lapses_at = held_until;
    let lapse = correction(60, Kind::Lapse, 2, 1);
    let up = correction(61, Kind::AdjustmentUp, 0, 5);
    entries.extend([confirmation, reversal]);
    entries.extend([Entry { number: 6, ..lapse }]);
    let (number, units) = (7, 4);
    entries.extend([Entry {
        number,
        units,
        ..up
    }]);
    let told = |kind, of: u64| Correction {
        kind,
        of: id(of),
        is_new: kind != Kind::Lapse,
        answer: Value::Null,
    };
    plant(|history, stores| {
        for wish in [0, 1] {
            history.wishes[wish].hold_seconds = Some(60);
        }
        history.corrections = vec![
            told(Kind::Confirmation, 1),
            told(Kind::Reversal, 1),
            told(Kind::Lapse, 2),
            told(Kind::AdjustmentUp, 61),
        ];
        stores.counters.clear();
        stores.entries = entries;
        change(history, stores);
    })
}

#[test]
fn corrections() {
    assert_eq!(corrected(|_, _| {}), []);
    let entry = |place: usize, change: fn(&mut Entry)| {
        corrected(|_, stores| change(&mut stores.entries[place]))
    };
    // Another grant's units, another account's grant, a grant that was given back.
    for change in [
        |reversal: &mut Entry| reversal.units = 2,
        |reversal: &mut Entry| reversal.of = Some(id(9)),
    ] {
        assert_found!(entry(4, change), Breach::NotItsGrant { .. });
    }
    let twice = entry(5, |lapse| lapse.of = Some(id(1)));
    assert_found!(twice, Breach::NotItsGrant { .. });
    // A confirmation that is late, a lapse that is early, a hold that should have lapsed, and one
    // whose end no line tells.
    let late = entry(3, |confirmation| confirmation.at = at(60));
    assert_found!(late, Breach::NotInTime { .. });
    let early = entry(5, |lapse| lapse.at = at(59));
    assert_found!(early, Breach::NotInTime { .. });
    let due = entry(4, |reversal| reversal.at = at(60));
    assert_found!(due, Breach::NotInTime { .. });
    let untold = entry(2, |grant| grant.lapses_at = Some(at(61)));
    assert_eq!(untold, [Breach::NotInTime { entry: id(3) }]);
    // Units that a correction takes away or adds count.
    let sum = entry(6, |up| up.units = 3);
    assert_found!(sum, Breach::NotTheSum { sum: 4, .. });
    let plain = entry(0, |hold| hold.held_until = None);
    assert_found!(plain, Breach::Altered { wish: 0, .. });
}

#[test]
fn corrections_that_differ_from_what_was_told() {
    let lost = corrected(|history, _| history.corrections[1].of = id(3));
    assert_found!(&lost, Breach::CorrectionLost { .. });
    // And nobody was told of the one that there is.
    assert_found!(&lost, Breach::Foreign { .. });
    let again = |is_new, answer: Value| {
        corrected(|history, _| {
            let first = history.corrections[0].clone();
            history.corrections.push(Correction {
                is_new,
                answer,
                ..first
            });
        })
    };
    assert_eq!(again(false, Value::Null), []);
    for (is_new, answer) in [(true, Value::Null), (false, Value::Bool(true))] {
        let found = again(is_new, answer);
        assert_found!(found, Breach::CorrectionDiffers { .. });
    }
    let old = corrected(|history, _| history.corrections[3].is_new = false);
    assert_found!(old, Breach::CorrectionDiffers { .. });
}

#[test]
fn an_override_and_an_observing_policy() {
    let fourth = |change: fn(&mut Entry, &mut Stores)| {
        plant(|history, stores| {
            let mut told = told(4);
            let mut entry = entry(4);
            change(&mut entry, stores);
            told.limits[0].1 = entry.totals[0].max;
            history.attempts.push(attempt(3, 8, Outcome::Granted(told)));
            stores.entries.push(entry);
            stores.counters.clear();
        })
    };
    let raise = |entry: &mut Entry, stores: &mut Stores| {
        entry.totals[0].max = 5;
        let limits = vec![("day".to_owned(), 5)];
        stores.overrides.push((entry.account, limits));
    };
    assert_eq!(fourth(raise), []);
    let of_another = fourth(|entry, stores| {
        entry.totals[0].max = 5;
        let limits = vec![("day".to_owned(), 5)];
        stores.overrides.push((Uuid::nil(), limits));
    });
    assert_found!(of_another, Breach::NotTheRule { .. });
    let marked = fourth(|entry, stores| {
        entry.would_deny = true;
        stores
            .rules
            .values_mut()
            .for_each(|rule| rule.observes = true);
    });
    assert_eq!(marked, []);
    // One over the limit that the observing policy did not mark.
    let unmarked = fourth(|_, stores| {
        let rules = stores.rules.values_mut();
        rules.for_each(|rule| rule.observes = true);
    });
    assert_found!(unmarked, Breach::Over { .. } | Breach::Marked { .. });
    let unasked = fourth(|entry, _| entry.would_deny = true);
    assert_found!(unasked, Breach::Marked { .. });
    let within = plant(|_, stores| {
        stores.entries[2].would_deny = true;
        stores
            .rules
            .values_mut()
            .for_each(|rule| rule.observes = true);
    });
    assert_found!(within, Breach::Marked { .. });
}

#[test]
fn windows_of_a_calendar() {
    let calendar = |zone: &str, day_starts_at: &str, week_starts_on| Calendar {
        zone: Zone::parse(zone),
        day_starts_at: day_starts_at.parse().expect("a time"),
        week_starts_on,
    };
    let gmt8 = calendar("+08:00", "00:00:00", Weekday::Mon);
    let late = calendar("GMT+8", "06:00:00", Weekday::Sun);
    let new_york = calendar("America/New_York", "00:00:00", Weekday::Mon);
    for (calendar, per, start, end) in [
        (
            &gmt8,
            "minute",
            "2026-11-20T16:00:00Z",
            "2026-11-20T16:01:00Z",
        ),
        (&gmt8, "day", "2026-11-20T16:00:00Z", "2026-11-21T16:00:00Z"),
        (
            &gmt8,
            "week",
            "2026-11-15T16:00:00Z",
            "2026-11-22T16:00:00Z",
        ),
        (
            &gmt8,
            "month",
            "2026-10-31T16:00:00Z",
            "2026-11-30T16:00:00Z",
        ),
        (
            &late,
            "hour",
            "2026-11-20T16:00:00Z",
            "2026-11-20T17:00:00Z",
        ),
        (
            &late,
            "week",
            "2026-11-14T22:00:00Z",
            "2026-11-21T22:00:00Z",
        ),
        (
            &late,
            "year",
            "2025-12-31T22:00:00Z",
            "2026-12-31T22:00:00Z",
        ),
        // A day of 25 hours.
        (
            &new_york,
            "day",
            "2026-11-01T04:00:00Z",
            "2026-11-02T05:00:00Z",
        ),
    ] {
        let (start, end) = (instant(start), instant(end));
        assert!(calendar.has_window(per, start, end), "{per} from {start}");
        let part = TimeDelta::seconds(30);
        for (start, end) in [
            (start + part, end),
            (start, end - part),
            (start, end + part),
        ] {
            assert!(!calendar.has_window(per, start, end), "{per} {start} {end}");
        }
    }
}
