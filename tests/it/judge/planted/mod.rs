//! The judge is tested too: what is planted is found, and nothing else.

mod corrections;
mod rows;

use std::time::Duration;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use uuid::Uuid;

use super::history::{Attempt, History, LostPart, Outcome, Told, Why, Wish};
use super::stores::{Counter, Entry, Kind, Provisional, Rule, Stores, Total};
use super::windows::{Calendar, Zone};
use super::{Breach, judge};
use crate::support::app::instant;

/// The start of the day of all entries, in GMT+8: 2026-11-21.
const DAY: i64 = 1_795_190_400;
const MAX: u64 = 3;

fn account() -> Uuid {
    Uuid::from_u128(0xa)
}

fn id(number: u64) -> Uuid {
    Uuid::from_u128(0x1d00 + u128::from(number))
}

fn at(number: u64) -> DateTime<Utc> {
    DateTime::from_timestamp(DAY + 3600 + number as i64, 0).expect("an instant")
}

fn wish() -> Wish {
    Wish::of("member-42").with_key()
}

fn total(used: u64) -> Total {
    Total {
        per: "day".to_owned(),
        max: MAX,
        used,
        start: DAY,
        end: DAY + 86_400,
    }
}

/// The entry that grants the wish of the number before it.
fn entry(number: u64) -> Entry {
    Entry {
        account: account(),
        policy: "benefit".to_owned(),
        subject: "member-42".to_owned(),
        number: number as i64,
        id: id(number),
        at: at(number),
        counted_at: at(number),
        kind: Kind::Grant,
        of: None,
        held_until: None,
        lapses_at: None,
        provisional: None,
        would_deny: false,
        units: 1,
        policy_version: 1,
        wish: Some(number as usize - 1),
        totals: vec![total(number)],
        line: format!("line {number}"),
    }
}

fn told(number: u64) -> Told {
    Told {
        id: id(number),
        limits: vec![("day".to_owned(), MAX, number)],
        provisional: false,
    }
}

fn attempt(wish: usize, second: u64, outcome: Outcome) -> Attempt {
    Attempt {
        wish,
        instance: 0,
        began: Duration::from_secs(second),
        ended: Duration::from_millis(second * 1000 + 500),
        outcome,
    }
}

/// Three grants of three, the second of which was heard of only when it was sent again, a
/// denial, and a counter that follows. All is well.
fn sound() -> (History, Stores) {
    let history = History {
        wishes: vec![wish(); 4],
        attempts: vec![
            attempt(0, 1, Outcome::Granted(told(1))),
            attempt(1, 2, Outcome::Unknown(Why::Broken)),
            attempt(1, 3, Outcome::Repeated(told(2))),
            attempt(2, 4, Outcome::Denied),
            attempt(2, 5, Outcome::Granted(told(3))),
            attempt(3, 6, Outcome::Denied),
        ],
        quiet_since: Some(Duration::from_secs(7)),
        ..History::default()
    };
    let rule = Rule {
        calendar: Calendar {
            zone: Zone::parse("GMT+8"),
            day_starts_at: NaiveTime::MIN,
            week_starts_on: Weekday::Mon,
        },
        limits: vec![("day".to_owned(), MAX)],
        observes: false,
    };
    let stores = Stores {
        entries: (1..=3).map(entry).collect(),
        rules: [(("benefit".to_owned(), 1), rule)].into(),
        counters: vec![Counter {
            account: account(),
            number: "3".to_owned(),
            line: "line 3".to_owned(),
        }],
        ..Stores::default()
    };
    (history, stores)
}

/// Plants something in the sound history and stores, and returns what is found.
fn plant(change: impl FnOnce(&mut History, &mut Stores)) -> Vec<Breach> {
    let (mut history, mut stores) = sound();
    change(&mut history, &mut stores);
    judge(&history, &stores)
}

/// Whether something like this was found.
macro_rules! assert_found {
    ($found:expr, $like:pat) => {
        let found = $found;
        assert!(
            found.iter().any(|breach| matches!(breach, $like)),
            "{found:?}"
        );
    };
}
use assert_found;

#[test]
fn the_day_is_the_day() {
    assert_eq!(DAY, instant("2026-11-20T16:00:00Z").timestamp());
}

#[test]
fn what_is_sound_is_found_sound() {
    assert_eq!(plant(|_, _| {}), []);
}

#[test]
fn a_grant_over_the_limit() {
    let grant = |history: &mut History, stores: &mut Stores| {
        history
            .attempts
            .push(attempt(3, 8, Outcome::Granted(told(4))));
        stores.entries.push(entry(4));
        stores.counters.clear();
    };
    assert_found!(plant(grant), Breach::Over { .. });
    // Also when its total hides it.
    let forged = plant(|history, stores| {
        grant(history, stores);
        stores.entries[3].totals[0].used = 3;
    });
    assert_found!(&forged, Breach::NotTheSum { sum: 4, .. });
    assert_found!(&forged, Breach::Over { .. });
    // And when its limit is none that the policy had.
    let raised = plant(|history, stores| {
        grant(history, stores);
        stores.entries[3].totals[0].max = 4;
    });
    assert_found!(raised, Breach::NotTheRule { .. });
    // And when its window is none of the zone's.
    let moved = plant(|history, stores| {
        grant(history, stores);
        let total = &mut stores.entries[3].totals[0];
        (total.start, total.used) = (at(4).timestamp(), 1);
    });
    assert_found!(moved, Breach::NotTheWindow { .. });
    let elsewhere = plant(|history, stores| {
        grant(history, stores);
        let total = &mut stores.entries[3].totals[0];
        (total.start, total.end, total.used) = (DAY + 86_400, DAY + 2 * 86_400, 0);
    });
    assert_found!(elsewhere, Breach::NotTheWindow { .. });
}

#[test]
fn a_provisional_grant() {
    let plant_provisional = |provisional, told_as| {
        plant(|history, stores| {
            let mut told = told(4);
            told.provisional = told_as;
            history.attempts.push(attempt(3, 8, Outcome::Granted(told)));
            let mut entry = entry(4);
            entry.provisional = provisional;
            stores.entries.push(entry);
            stores.counters.clear();
        })
    };
    // It may go over, if it says so.
    assert_eq!(plant_provisional(Some(Provisional::Over), true), []);
    assert_found!(
        plant_provisional(Some(Provisional::Within), true),
        Breach::Marked { .. }
    );
    assert_found!(
        plant_provisional(Some(Provisional::Over), false),
        Breach::Altered { .. }
    );
    assert_found!(plant_provisional(None, true), Breach::Over { .. });
    assert_found!(plant_provisional(None, false), Breach::Over { .. });
    let not_over = plant(|_, stores| stores.entries[2].provisional = Some(Provisional::Over));
    assert_found!(not_over, Breach::Marked { .. });
    // It counts when it was granted: the day before, which was full, and not in the day of
    // its line.
    let late = |mark| {
        plant(|history, stores| {
            for entry in &mut stores.entries {
                (entry.at, entry.counted_at) = (at(0), at(0));
            }
            let mut told = told(4);
            told.provisional = true;
            history.attempts.push(attempt(3, 8, Outcome::Granted(told)));
            let mut entry = entry(4);
            entry.at = at(0) + TimeDelta::days(1);
            (entry.counted_at, entry.provisional) = (at(1), Some(mark));
            let total = &mut entry.totals[0];
            (total.start, total.end, total.used) = (DAY + 86_400, DAY + 2 * 86_400, 0);
            stores.entries.push(entry);
            stores.counters.clear();
        })
    };
    assert_eq!(late(Provisional::Over), []);
    assert_found!(late(Provisional::Within), Breach::Marked { .. });
    // Only where Redis lost data it may be lost.
    let lost = |redis_lost_data| {
        plant(|history, _| {
            let mut told = told(4);
            told.provisional = true;
            history.attempts.push(attempt(3, 8, Outcome::Granted(told)));
            history.redis_lost_data = redis_lost_data;
        })
    };
    assert_found!(lost(false), Breach::Lost { wish: 3, .. });
    assert_eq!(lost(true), []);
}

#[test]
fn a_lost_row() {
    let last = plant(|_, stores| {
        stores.entries.pop();
    });
    assert_found!(&last, Breach::Lost { wish: 2, .. });
    assert_found!(&last, Breach::Drift { .. });
    let middle = plant(|_, stores| {
        stores.entries.remove(1);
    });
    assert_found!(&middle, Breach::Lost { wish: 1, .. });
    assert_found!(&middle, Breach::Gap { number: 3, .. });
    assert_found!(&middle, Breach::NotTheSum { .. });
}

/// The third grant, told between 5.0 and 5.5 s, was in the lost part only. Returns what is found
/// if that part may be all that was answered in these milliseconds.
fn plant_lost(
    copied: u64,
    replaced: u64,
    change: impl FnOnce(&mut History, &mut Stores),
) -> Vec<Breach> {
    plant(|history, stores| {
        stores.entries.pop();
        stores.counters.clear();
        history.lost_parts.push(LostPart {
            copied: Duration::from_millis(copied),
            replaced: Duration::from_millis(replaced),
        });
        change(history, stores);
    })
}

#[test]
fn a_grant_of_a_lost_part() {
    assert_eq!(plant_lost(4900, 5600, |_, _| {}), []);
    // One that was answered before the copy was made is in it, and so is one that was asked for
    // after the copy took the ledger's place.
    for (copied, replaced) in [(5600, 7000), (4000, 4900)] {
        let found = plant_lost(copied, replaced, |_, _| {});
        assert_found!(&found, Breach::Lost { wish: 2, .. });
        assert_eq!(found.len(), 1);
    }
    // It may be denied, or granted once more, but not twice.
    let again = |number| {
        let told = Told {
            id: id(number),
            ..told(3)
        };
        attempt(2, 6, Outcome::Granted(told))
    };
    let granted_again = |history: &mut History, stores: &mut Stores| {
        history.attempts.push(attempt(2, 6, Outcome::Denied));
        history.attempts.push(again(9));
        let mut entry = entry(3);
        entry.id = id(9);
        stores.entries.push(entry);
    };
    assert_eq!(plant_lost(4900, 5600, granted_again), []);
    let twice = plant_lost(4900, 5600, |history, stores| {
        granted_again(history, stores);
        history.attempts.push(again(8));
    });
    assert_found!(&twice, Breach::Lost { wish: 2, .. });
    assert_found!(&twice, Breach::TwoGrants { wish: 2, .. });
    // What Redis alone decided may have been appended after the copy was made.
    let counted = |second| {
        plant_lost(4900, 5600, |history, _| {
            let mut told = told(4);
            told.provisional = true;
            let told = attempt(3, second, Outcome::Granted(told));
            history.attempts.push(told);
            history.attempts.remove(5);
        })
    };
    assert_eq!(counted(1), []);
    assert_found!(counted(6), Breach::Lost { wish: 3, .. });
}

#[test]
fn what_a_lost_part_does_not_excuse() {
    let everything = |change: fn(&mut History, &mut Stores)| plant_lost(1600, 5600, change);
    let after_a_lost_line = everything(|_, stores| {
        let mut entry = entry(4);
        entry.wish = Some(2);
        stores.entries.push(entry);
    });
    assert_found!(&after_a_lost_line, Breach::Gap { number: 4, .. });
    assert_found!(&after_a_lost_line, Breach::NotTheSum { .. });
    let over = everything(|_, stores| {
        stores.entries[1].units = 3;
        stores.entries[1].totals[0].used = 4;
    });
    assert_found!(over, Breach::Over { .. });
    let altered = everything(|_, stores| stores.entries[0].totals[0].used = 2);
    assert_found!(altered, Breach::Altered { wish: 0, .. });
    let doubled = everything(|_, stores| {
        let mut copy = entry(3);
        copy.wish = Some(1);
        stores.entries.push(copy);
    });
    assert_found!(doubled, Breach::Doubled { wish: 1, .. });
    let forgotten = everything(|history, _| {
        history.attempts.push(attempt(0, 6, Outcome::Denied));
    });
    assert_eq!(forgotten, [Breach::Forgotten { wish: 0 }]);
}

#[test]
fn a_doubled_row() {
    let doubled = plant(|_, stores| {
        let mut copy = entry(4);
        (copy.wish, copy.totals[0].max) = (Some(1), 4);
        stores.entries.push(copy);
    });
    assert_found!(doubled, Breach::Doubled { wish: 1, .. });
}

#[test]
fn a_foreign_row() {
    for wish in [None, Some(99), Some(3)] {
        let foreign = plant(|_, stores| {
            let mut row = entry(4);
            row.wish = wish;
            stores.entries.push(row);
        });
        // The fourth wish was denied, and nobody heard otherwise.
        assert_found!(foreign, Breach::Foreign { .. });
    }
}

#[test]
fn a_row_that_differs_from_the_claim_or_the_answer() {
    let subject = plant(|_, stores| stores.entries[0].subject = "member-43".to_owned());
    assert_found!(subject, Breach::Altered { wish: 0, .. });
    let units = plant(|_, stores| stores.entries[0].units = 2);
    assert_found!(units, Breach::Altered { wish: 0, .. });
    let used = plant(|history, _| {
        let mut other = told(1);
        other.limits[0].2 = 2;
        history.attempts[0].outcome = Outcome::Granted(other);
    });
    assert_found!(used, Breach::Altered { wish: 0, .. });
}

#[test]
fn another_grant_for_the_same_key() {
    let other = plant(|history, _| {
        history
            .attempts
            .push(attempt(0, 7, Outcome::Repeated(told(2))));
    });
    assert_found!(other, Breach::TwoGrants { wish: 0, .. });
    let new_again = plant(|history, _| {
        history
            .attempts
            .push(attempt(0, 7, Outcome::Granted(told(1))));
    });
    assert_found!(new_again, Breach::TwoGrants { wish: 0, .. });
}

#[test]
fn a_grant_that_was_forgotten() {
    let after_the_answer = plant(|history, _| {
        history.attempts.push(attempt(0, 2, Outcome::Denied));
    });
    assert_eq!(after_the_answer, [Breach::Forgotten { wish: 0 }]);
    let after_all = plant(|history, _| {
        history.attempts[2].outcome = Outcome::Unknown(Why::Silence);
        history.attempts.push(attempt(1, 8, Outcome::Denied));
    });
    assert_eq!(after_all, [Breach::Forgotten { wish: 1 }]);
    let meanwhile = plant(|history, _| {
        let mut overlapping = attempt(0, 1, Outcome::Denied);
        overlapping.ended = Duration::from_secs(3);
        history.attempts.push(overlapping);
    });
    assert_eq!(meanwhile, []);
}

#[test]
fn a_claim_that_is_never_decided() {
    let silent = plant(|history, _| {
        history.attempts[5].outcome = Outcome::Unknown(Why::Undecided);
    });
    assert_eq!(silent, [Breach::Undecided { wish: 3 }]);
    let keyless = plant(|history, _| {
        history.wishes[3].has_key = false;
        history.attempts[5].outcome = Outcome::Unknown(Why::Undecided);
    });
    assert_eq!(keyless, []);
    let unsent = plant(|history, _| history.wishes.push(wish()));
    assert_eq!(unsent, []);
}

#[test]
fn time_or_versions_that_run_backwards() {
    let time = plant(|_, stores| stores.entries[2].at = at(1));
    assert_eq!(time, [Breach::Backwards { entry: id(3) }]);
    let version = plant(|_, stores| {
        let rule = stores.rules.values().next().cloned().expect("a rule");
        stores.rules.insert(("benefit".to_owned(), 2), rule);
        stores.entries[1].policy_version = 2;
    });
    assert_eq!(version, [Breach::Backwards { entry: id(3) }]);
}

#[test]
fn counters_that_stand_elsewhere() {
    for (number, line) in [("2", "line 2"), ("4", "line 3"), ("3", "line 2"), ("", "")] {
        let found = plant(|_, stores| {
            stores.counters[0].number = number.to_owned();
            stores.counters[0].line = line.to_owned();
        });
        assert_found!(found, Breach::Drift { .. });
    }
    let nobodys = plant(|_, stores| stores.counters[0].account = Uuid::nil());
    assert_found!(nobodys, Breach::Drift { .. });
    let queue = plant(|_, stores| stores.others.push("a queue".to_owned()));
    assert_eq!(queue, [Breach::Left("a queue".to_owned())]);
}

#[test]
fn answers_that_are_none() {
    let wrong = plant(|history, _| {
        history.attempts[5].outcome = Outcome::Wrong("500".to_owned());
    });
    assert_found!(wrong, Breach::Wrong { wish: 3, .. });
}
