//! Breaches in corrections, in limits that overrides change, and in windows.

use std::time::Duration;

use chrono::{TimeDelta, Weekday};
use serde_json::Value;
use uuid::Uuid;

use super::super::Breach::*;
use super::super::history::{Correction, History};
use super::super::judge;
use super::super::stores::{Entry, Kind, Stores};
use super::super::windows::{Calendar, Zone};
use super::{account, at, entry, fourth, id, lose, planted, sound, total};
use crate::support::app::instant;

/// A correct history. The first grant is a hold that was confirmed and reversed. The second grant
/// is a hold that lapsed. An adjustment adds units.
fn corrected() -> (History, Stores) {
    let held_until = Some(at(60));
    let line = |number: u64, used| Entry {
        lapses_at: held_until.filter(|_| number < 6),
        totals: vec![total(used)],
        ..entry(number)
    };
    let correction = |number, kind, of: u64, used| Entry {
        kind,
        of: Some(id(of)),
        counted_at: at(of),
        wish: None,
        ..line(number, used)
    };
    let hold = |number| Entry {
        held_until,
        ..line(number, number)
    };
    let (mut history, mut stores) = sound();
    stores.counters.clear();
    stores.entries = vec![
        hold(1),
        hold(2),
        line(3, 3),
        correction(4, Kind::Confirmation, 1, 3),
        correction(5, Kind::Reversal, 1, 2),
        Entry {
            at: at(60),
            ..correction(6, Kind::Lapse, 2, 1)
        },
        Entry {
            at: at(61),
            of: None,
            units: 4,
            ..correction(7, Kind::AdjustmentUp, 61, 5)
        },
    ];
    for wish in [0, 1] {
        history.wishes[wish].hold_seconds = Some(60);
    }
    let told = |kind, of: u64| Correction {
        began: Duration::from_secs(1),
        ended: Duration::from_secs(2),
        kind,
        of: id(of),
        reason: "a test".to_owned(),
        is_new: kind != Kind::Lapse,
        answer: Value::Null,
    };
    history.corrections = vec![
        told(Kind::Confirmation, 1),
        told(Kind::Reversal, 1),
        told(Kind::Lapse, 2),
        told(Kind::AdjustmentUp, 7),
    ];
    (history, stores)
}

/// The answer to the first correction arrives once more.
fn tell_again(history: &mut History, is_new: bool, answer: Value) {
    let first = history.corrections[0].clone();
    history.corrections.push(Correction {
        is_new,
        answer,
        ..first
    });
}

planted! { in corrected;
    corrections {
        |_, _| {} => { nothing }
        // The units of another grant, the grant of another account, and a grant that was already
        // reversed.
        |_, stores| stores.entries[4].units = 2 => { NotItsGrant { .. } }
        |_, stores| stores.entries[4].of = Some(id(9)) => { NotItsGrant { .. } }
        |_, stores| stores.entries[5].of = Some(id(1)) => { NotItsGrant { .. } }
        // A late confirmation, an early lapse, a hold that should have lapsed, and a hold whose end
        // is in no line.
        |_, stores| stores.entries[3].at = at(60) => { NotInTime { .. } }
        |_, stores| stores.entries[5].at = at(59) => { NotInTime { .. } }
        |_, stores| stores.entries[4].at = at(60) => { NotInTime { .. } }
        |_, stores| stores.entries[2].lapses_at = Some(at(61)) => { only NotInTime { .. } }
        // The units that a correction takes off or adds count.
        |_, stores| stores.entries[6].units = 3 => { NotTheSum { sum: 4, .. } }
        |_, stores| stores.entries[0].held_until = None => { Altered { wish: 0, .. } }
    }
    corrections_that_differ_from_what_was_told {
        // No client was told of the correction that exists.
        |history, _| history.corrections[1].of = id(3) => { CorrectionLost { .. }, Foreign { .. } }
        |history, _| tell_again(history, false, Value::Null) => { nothing }
        |history, _| tell_again(history, true, Value::Null) => { CorrectionDiffers { .. } }
        |history, _| tell_again(history, false, Value::Bool(true)) => { CorrectionDiffers { .. } }
        |history, _| history.corrections[3].is_new = false => { CorrectionDiffers { .. } }
    }
    corrections_in_a_lost_part {
        // The copy lacks what was told in the second second, and not what was told before it was made.
        |history, stores| lose(history, stores, 1500, 5000) => { nothing }
        |history, stores| lose(history, stores, 2500, 5000) => { CorrectionLost { .. } }
        // It can be entered once more under another id, and it can be new once more.
        |history, stores| {
            let reason = Some("a test".to_owned());
            let again = Entry { id: id(8), reason, ..stores.entries[6].clone() };
            lose(history, stores, 1500, 5000);
            stores.entries.push(again);
        } => { nothing }
        |history, stores| {
            lose(history, stores, 1500, 5000);
            tell_again(history, true, Value::Null);
        } => { nothing }
    }
}

/// A history with a reset of one limit, or of all, after three grants. Then a unit is granted.
fn reset(per: Option<&str>) -> (History, Stores) {
    let (mut history, mut stores) = sound();
    stores.counters.clear();
    fourth(&mut history, &mut stores, |told, entry| {
        entry.number = 5;
        entry.totals[0].used = 1;
        told.limits[0].2 = 1;
    });
    let reset = Entry {
        number: 4,
        at: at(3) + TimeDelta::microseconds(1),
        counted_at: at(3) + TimeDelta::microseconds(1),
        id: id(99),
        kind: Kind::Reset,
        per: per.map(str::to_owned),
        wish: None,
        totals: vec![total(0)],
        ..entry(3)
    };
    stores.entries.insert(3, reset);
    (history, stores)
}

fn a_reset_of_all() -> (History, Stores) {
    reset(None)
}

planted! { in a_reset_of_all;
    resets {
        |_, _| {} => { nothing }
        |_, stores| stores.entries[3].per = Some("day".to_owned()) => { nothing }
        // The limit goes on, as if another one had been reset.
        |_, stores| stores.entries[3].totals[0].used = 3 => { NotTheSum { sum: 0, .. } }
        |_, stores| stores.entries[3].per = Some("hour".to_owned()) => {
            NotTheSum { sum: 3, .. }, NotTheSum { sum: 4, .. }, Over { .. }
        }
        // It is not later than the grant before it.
        |_, stores| stores.entries[3].at = at(3) => { Backwards { .. } }
    }
}

fn observe(stores: &mut Stores) {
    let rules = stores.rules.values_mut();
    rules.for_each(|rule| rule.observes = true);
}

fn watch(stores: &mut Stores, level: u64) {
    let rules = stores.rules.values_mut();
    rules.for_each(|rule| rule.warn_at = vec![level]);
}

fn raise(history: &mut History, stores: &mut Stores, of: Uuid) {
    fourth(history, stores, |told, entry| {
        entry.totals[0].max = 5;
        told.limits[0].1 = 5;
    });
    stores.overrides.push((of, vec![("day".to_owned(), 5)]));
}

planted! {
    an_override {
        |history, stores| raise(history, stores, account()) => { nothing }
        |history, stores| raise(history, stores, Uuid::nil()) => { NotTheRule { .. } }
    }
    levels_of_use {
        // The third entry uses the last unit.
        |_, stores| {
            watch(stores, 100);
            stores.entries[2].crossed = vec![100];
        } => { nothing }
        |_, stores| watch(stores, 100) => { NotItsLevels { .. } }
        |_, stores| stores.entries[2].crossed = vec![100] => { NotItsLevels { .. } }
        |_, stores| {
            watch(stores, 60);
            stores.entries[1].crossed = vec![60];
            stores.entries[2].crossed = vec![60];
        } => { NotItsLevels { .. } }
    }
    an_observing_policy {
        |history, stores| {
            fourth(history, stores, |_, entry| entry.would_deny = true);
            observe(stores);
        } => { nothing }
        // A grant over the limit without its mark.
        |history, stores| {
            fourth(history, stores, |_, _| {});
            observe(stores);
        } => { Marked { .. } }
        |history, stores| fourth(history, stores, |_, entry| entry.would_deny = true)
            => { Marked { .. } }
        |_, stores| {
            stores.entries[2].would_deny = true;
            observe(stores);
        } => { Marked { .. } }
    }
}

#[test]
fn windows_of_a_calendar() {
    let calendar = |zone: &str, day_starts_at: &str, week_starts_on| Calendar {
        zone: Zone::parse(zone),
        day_starts_at: day_starts_at.parse().expect("a time"),
        week_starts_on,
        anchor: None,
    };
    let gmt8 = calendar("+08:00", "00:00:00", Weekday::Mon);
    let late = calendar("GMT+8", "06:00:00", Weekday::Sun);
    let joined = Calendar {
        anchor: "2026-01-31".parse().ok(),
        ..gmt8.clone()
    };
    let new_york = calendar("America/New_York", "00:00:00", Weekday::Mon);
    // The last case is a day of 25 hours.
    for (calendar, per, start, end) in [
        (&gmt8, "minute", "11-20T16:00", "11-20T16:01"),
        (&gmt8, "day", "11-20T16:00", "11-21T16:00"),
        (&gmt8, "week", "11-15T16:00", "11-22T16:00"),
        (&gmt8, "month", "10-31T16:00", "11-30T16:00"),
        (&joined, "week", "11-20T16:00", "11-27T16:00"),
        (&joined, "month", "10-30T16:00", "11-29T16:00"),
        (&joined, "month", "02-27T16:00", "03-30T16:00"),
        (&joined, "quarter", "04-29T16:00", "07-30T16:00"),
        (&late, "hour", "11-20T16:00", "11-20T17:00"),
        (&late, "week", "11-14T22:00", "11-21T22:00"),
        (&late, "month", "10-31T22:00", "11-30T22:00"),
        (&new_york, "day", "11-01T04:00", "11-02T05:00"),
    ] {
        let of_this_year = |text| instant(&format!("2026-{text}:00Z"));
        let start = of_this_year(start);
        let end = of_this_year(end);
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
