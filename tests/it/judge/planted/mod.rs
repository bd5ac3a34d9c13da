//! Tests of the judge: it must find the planted breach, and nothing else.

mod corrections;
mod figures;
mod kinds;
mod rows;

use std::time::Duration;

use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use uuid::Uuid;

use super::history::{Attempt, History, LostPart, Outcome, Told, Why, Wish};
use super::stores::{Counter, Entry, Kind, Provisional, Rule, Stores};
use super::totals::{RuleLimit, RuleReturn, SharedRule, State, ToldTopUp, ToldTopUps, Total};
use super::windows::{Calendar, Own, Zone};
use super::{Breach::*, judge};
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
        state: day(0),
    }
}

/// The window that many days after [`DAY`].
fn day(later: i64) -> State {
    let start = DAY + later * 86_400;
    let end = start + 86_400;
    State::Window { start, end }
}

/// The entry that grants the wish with the number before it.
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
        crossed: Vec::new(),
        units: 1,
        policy_version: 1,
        wish: Some(number as usize - 1),
        totals: vec![total(number)],
        own: Own::default(),
        top_ups: ToldTopUps::default(),
        per: None,
        reason: None,
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

/// A correct history with a limit of three: three grants, a denial, and a counter that equals the
/// last line. The client knew of the second grant only after a retry.
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
        effective_at: at(0),
        calendar: Calendar {
            zone: Zone::parse("GMT+8"),
            day_starts_at: NaiveTime::MIN,
            week_starts_on: Weekday::Mon,
            anchor: None,
        },
        owner: "policy".to_owned(),
        limits: vec![RuleLimit {
            per: "day".to_owned(),
            max: MAX,
            returns: RuleReturn::Calendar,
        }],
        observes: false,
        warn_at: Vec::new(),
        tiers: Vec::new(),
        total: Vec::new(),
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

/// All subjects share this many units a day, since a version, and the ledger says that so many are used.
fn share(stores: &mut Stores, max: u64, since: i32, told: i64) {
    let start = DateTime::from_timestamp(DAY, 0).expect("an instant");
    let window = ("benefit".to_owned(), since, "day".to_owned(), start);
    stores.shared.insert(window, told);
    let rule = stores.rules.values_mut().next().expect("a version");
    rule.total.push(SharedRule {
        per: "day".to_owned(),
        max,
        since,
    });
}

fn tokyo() -> Own {
    Own {
        zone: Some(Zone::parse("Asia/Tokyo")),
        anchor: None,
    }
}

fn nobodys_top_up() -> ToldTopUp {
    ToldTopUp {
        id: Uuid::nil(),
        units: 1,
        left: 1,
        ends_at: DateTime::<Utc>::MAX_UTC,
    }
}

/// The policy takes the calendars of its subjects.
fn of_subjects(stores: &mut Stores) {
    let rule = stores.rules.values_mut().next().expect("a version");
    rule.owner = "subject".to_owned();
}

/// Grants the fourth wish, in an answer and in the ledger.
fn fourth(history: &mut History, stores: &mut Stores, change: impl FnOnce(&mut Told, &mut Entry)) {
    let mut told = told(4);
    let mut entry = entry(4);
    change(&mut told, &mut entry);
    tell(history, 3, 8, Outcome::Granted(told));
    stores.entries.push(entry);
    stores.counters.clear();
}

/// Adds an answer to a wish.
fn tell(history: &mut History, wish: usize, second: u64, outcome: Outcome) {
    history.attempts.push(attempt(wish, second, outcome));
}

/// Adds an answer that Redis alone granted the fourth wish.
fn tell_provisional(history: &mut History, second: u64) {
    let provisional = true;
    let told = Told {
        provisional,
        ..told(4)
    };
    tell(history, 3, second, Outcome::Granted(told));
}

/// Moves the last entry, the third grant that was answered between 5.0 and 5.5 s, to a lost part. `copied` and `replaced`
/// are in milliseconds and delimit that part.
fn lose(history: &mut History, stores: &mut Stores, copied: u64, replaced: u64) {
    stores.entries.pop();
    stores.counters.clear();
    history.lost_parts.push(LostPart {
        copied: Duration::from_millis(copied),
        replaced: Duration::from_millis(replaced),
    });
}

/// Makes two wishes a bundle.
fn bundle(history: &mut History, wishes: [usize; 2]) {
    for wish in wishes {
        history.wishes[wish].bundle = Some(wishes[0]);
    }
}

/// Grants the third wish once more, under another id.
fn grant_again(history: &mut History, number: u64) {
    let told = Told {
        id: id(number),
        ..told(3)
    };
    tell(history, 2, 6, Outcome::Granted(told));
}

/// Plants each case in a correct history (by default [`sound`]), and compares the breaches: none,
/// exactly one, or some among others.
macro_rules! planted {
    ($($(#[doc = $doc:literal])* $name:ident { $($plant:expr => { $($found:tt)* })+ })+) => {
        $crate::judge::planted::planted! { in $crate::judge::planted::sound;
            $($(#[doc = $doc])* $name { $($plant => { $($found)* })+ })+ }
    };
    (in $sound:path; $($(#[doc = $doc:literal])* $name:ident {
        $($plant:expr => { $($found:tt)* })+
    })+) => {$(
        $(#[doc = $doc])*
        #[test]
        fn $name() {
            $({
                let plant: fn(&mut History, &mut Stores) = $plant;
                let (mut history, mut stores) = $sound();
                plant(&mut history, &mut stores);
                let found = judge(&history, &stores);
                $crate::judge::planted::assert_found!(found, $($found)*);
            })+
        }
    )+};
}
use planted;

macro_rules! assert_found {
    ($found:expr, nothing) => {
        assert_eq!($found, []);
    };
    ($found:expr, only $like:pat) => {
        assert!(matches!($found[..], [$like]), "{:#?}", $found);
    };
    ($found:expr, $($like:pat),+) => {$(
        let is_found = $found.iter().any(|breach| matches!(breach, $like));
        assert!(is_found, "not {}: {:#?}", stringify!($like), $found);
    )+};
}
use assert_found;

#[test]
fn the_day_is_the_day() {
    assert_eq!(DAY, instant("2026-11-20T16:00:00Z").timestamp());
}

planted! {
    what_is_sound {
        |_, _| {} => { nothing }
    }
    what_all_subjects_share {
        |_, stores| share(stores, 3, 1, 3) => { nothing }
        |_, stores| share(stores, 3, 1, 2) => { only SharedDiffers { told: 2, sum: 3, .. } }
        |_, stores| share(stores, 2, 1, 3) => { only OverAll { used: 3, .. } }
        // What an earlier version decided does not count.
        |_, stores| share(stores, 2, 2, 0) => { nothing }
    }
    a_grant_over_the_limit {
        |history, stores| fourth(history, stores, |_, _| {}) => { Over { .. } }
        // Also when its total hides the breach.
        |history, stores| fourth(history, stores, |_, entry| entry.totals[0].used = 3)
            => { NotTheSum { sum: 4, .. }, Over { .. } }
        // Also when the policy never had its limit.
        |history, stores| fourth(history, stores, |_, entry| entry.totals[0].max = 4)
            => { NotTheRule { .. } }
        // Also when its window is not in the zone, or is another one.
        |history, stores| fourth(history, stores, |_, entry| {
            let total = &mut entry.totals[0];
            let start = at(4).timestamp();
            (total.state, total.used) = (State::Window { start, end: DAY + 86_400 }, 1);
        }) => { NotTheWindow { .. } }
        |history, stores| fourth(history, stores, |_, entry| {
            entry.totals[0] = Total { used: 0, ..tomorrow() };
        }) => { NotTheWindow { .. } }
    }
    calendars_of_subjects {
        |_, stores| stores.entries[2].own = tokyo() => { only NotItsCalendar { .. } }
        // A claim can tell one, and the day that has begun goes on.
        |_, stores| { of_subjects(stores); stores.entries[2].own = tokyo(); } => { nothing }
        // A day that begins is one of Tokyo.
        |_, stores| { of_subjects(stores); stores.entries.iter_mut().for_each(|it| it.own = tokyo()); }
            => { only NotTheWindow { .. } }
    }
    top_ups_on_lines {
        |_, stores| stores.entries[2].top_ups.each.push(nobodys_top_up())
            => { only NotItsTopUps { .. } }
        // The windows lack a unit then, too.
        |_, stores| stores.entries[2].top_ups.aside = 1 => { NotItsTopUps { .. } }
    }
    a_provisional_grant {
        // A marked grant may be over the limit.
        |history, stores| fourth(history, stores, |told, entry| {
            (told.provisional, entry.provisional) = (true, Some(Provisional::Over));
        }) => { nothing }
        |history, stores| fourth(history, stores, |told, entry| {
            (told.provisional, entry.provisional) = (true, Some(Provisional::Within));
        }) => { Marked { .. } }
        |history, stores| fourth(history, stores, |_, entry| {
            entry.provisional = Some(Provisional::Over);
        }) => { Altered { .. } }
        |history, stores| fourth(history, stores, |told, _| told.provisional = true)
            => { Over { .. } }
        |_, stores| stores.entries[2].provisional = Some(Provisional::Over) => { Marked { .. } }
        // A provisional grant may be lost only when Redis lost data.
        |history, _| tell_provisional(history, 8) => { Lost { wish: 3, .. } }
        |history, _| {
            tell_provisional(history, 8);
            history.redis_lost_data = true;
        } => { nothing }
    }
    /// A late provisional grant counts in the day before, which was full, and not in the day of its
    /// line.
    a_provisional_grant_that_is_late {
        |history, stores| late(history, stores, Provisional::Over) => { nothing }
        |history, stores| late(history, stores, Provisional::Within) => { Marked { .. } }
    }
    a_lost_row {
        |_, stores| drop(stores.entries.pop()) => { Lost { wish: 2, .. }, Drift { .. } }
        |_, stores| drop(stores.entries.remove(1))
            => { Lost { wish: 1, .. }, Gap { number: 3, .. }, NotTheSum { .. } }
    }
    a_grant_of_a_lost_part {
        |history, stores| lose(history, stores, 4900, 5600) => { nothing }
        // A grant that was answered before the copy was made is in the copy. A grant that was asked
        // for after the copy replaced the ledger is in the ledger.
        |history, stores| lose(history, stores, 5600, 7000) => { only Lost { wish: 2, .. } }
        |history, stores| lose(history, stores, 4000, 4900) => { only Lost { wish: 2, .. } }
        // The claim may be denied, or granted once more, but not twice.
        |history, stores| {
            lose(history, stores, 4900, 5600);
            tell(history, 2, 6, Outcome::Denied);
            grant_again(history, 9);
            stores.entries.push(Entry { id: id(9), ..entry(3) });
        } => { nothing }
        |history, stores| {
            lose(history, stores, 4900, 5600);
            grant_again(history, 9);
            grant_again(history, 8);
            stores.entries.push(Entry { id: id(9), ..entry(3) });
        } => { Lost { wish: 2, .. }, TwoGrants { wish: 2, .. } }
        // A grant that Redis alone decided may have been appended after the copy was made.
        |history, stores| {
            lose(history, stores, 4900, 5600);
            history.attempts.pop();
            tell_provisional(history, 1);
        } => { nothing }
        |history, stores| {
            lose(history, stores, 4900, 5600);
            history.attempts.pop();
            tell_provisional(history, 6);
        } => { Lost { wish: 3, .. } }
    }
    what_a_lost_part_does_not_excuse {
        |history, stores| {
            lose(history, stores, 1600, 5600);
            stores.entries.push(Entry { wish: Some(2), ..entry(4) });
        } => { Gap { number: 4, .. }, NotTheSum { .. } }
        |history, stores| {
            lose(history, stores, 1600, 5600);
            stores.entries[1].units = 3;
            stores.entries[1].totals[0].used = 4;
        } => { Over { .. } }
        |history, stores| {
            lose(history, stores, 1600, 5600);
            stores.entries[0].totals[0].used = 2;
        } => { Altered { wish: 0, .. } }
        |history, stores| {
            lose(history, stores, 1600, 5600);
            stores.entries.push(Entry { wish: Some(1), ..entry(3) });
        } => { Doubled { wish: 1, .. } }
        |history, stores| {
            lose(history, stores, 1600, 5600);
            tell(history, 0, 6, Outcome::Denied);
        } => { only Forgotten { wish: 0 } }
    }
    a_doubled_row {
        |_, stores| stores.entries.push(Entry { wish: Some(1), ..entry(4) })
            => { Doubled { wish: 1, .. } }
    }
    half_a_bundle {
        |history, _| bundle(history, [0, 1]) => { nothing }
        // The fourth wish was denied.
        |history, _| bundle(history, [2, 3]) => { only HalfBundle { wish: 2 } }
    }
    a_foreign_row {
        |_, stores| stores.entries.push(Entry { wish: None, ..entry(4) }) => { Foreign { .. } }
        |_, stores| stores.entries.push(Entry { wish: Some(99), ..entry(4) }) => { Foreign { .. } }
        // The fourth wish was denied in every answer.
        |_, stores| stores.entries.push(entry(4)) => { Foreign { .. } }
    }
    a_row_that_differs_from_the_claim_or_the_answer {
        |_, stores| stores.entries[0].subject = "member-43".to_owned() => { Altered { wish: 0, .. } }
        |_, stores| stores.entries[0].units = 2 => { Altered { wish: 0, .. } }
        |history, _| {
            let limits = vec![("day".to_owned(), MAX, 2)];
            history.attempts[0].outcome = Outcome::Granted(Told { limits, ..told(1) });
        } => { Altered { wish: 0, .. } }
    }
    another_grant_for_the_same_key {
        |history, _| tell(history, 0, 7, Outcome::Repeated(told(2))) => { TwoGrants { wish: 0, .. } }
        |history, _| tell(history, 0, 7, Outcome::Granted(told(1))) => { TwoGrants { wish: 0, .. } }
        |history, _| tell(history, 0, 7, Outcome::Ended) => { only NotEnded { wish: 0 } }
    }
    a_grant_that_was_forgotten {
        |history, _| tell(history, 0, 2, Outcome::Denied) => { only Forgotten { wish: 0 } }
        // No client was told of the grant, and no request is open.
        |history, _| {
            history.attempts[2].outcome = Outcome::Unknown(Why::Silence);
            tell(history, 1, 8, Outcome::Denied);
        } => { only Forgotten { wish: 1 } }
        // The denial was asked for before the grant was answered.
        |history, _| {
            let ended = Duration::from_secs(3);
            let denied = attempt(0, 1, Outcome::Denied);
            history.attempts.push(Attempt { ended, ..denied });
        } => { nothing }
    }
    a_claim_that_is_never_decided {
        |history, _| history.attempts[5].outcome = Outcome::Unknown(Why::Undecided)
            => { only Undecided { wish: 3 } }
        // A claim without a key is not sent again.
        |history, _| {
            history.wishes[3].has_key = false;
            history.attempts[5].outcome = Outcome::Unknown(Why::Undecided);
        } => { nothing }
        // A wish that nobody sent is no claim.
        |history, _| history.wishes.push(wish()) => { nothing }
    }
    time_or_versions_that_run_backwards {
        |_, stores| stores.entries[2].at = at(1) => { only Backwards { .. } }
        |_, stores| {
            let rule = stores.rules.values().next().cloned().expect("a rule");
            stores.rules.insert(("benefit".to_owned(), 2), rule);
            stores.entries[1].policy_version = 2;
        } => { only Backwards { .. } }
    }
    counters_that_stand_elsewhere {
        |_, stores| stores.counters[0].number = "2".to_owned() => { Drift { .. } }
        |_, stores| stores.counters[0].number = "4".to_owned() => { Drift { .. } }
        |_, stores| stores.counters[0].number = String::new() => { Drift { .. } }
        |_, stores| stores.counters[0].line = "line 2".to_owned() => { Drift { .. } }
        |_, stores| stores.counters[0].account = Uuid::nil() => { Drift { .. } }
        |_, stores| stores.others.push("a queue".to_owned()) => { only Left(_) }
    }
    an_answer_that_is_none {
        |history, _| history.attempts[5].outcome = Outcome::Wrong("500".to_owned())
            => { Wrong { wish: 3, .. } }
    }
}

/// The day after [`DAY`].
fn tomorrow() -> Total {
    Total {
        state: day(1),
        ..total(0)
    }
}

/// The fourth grant counts in a full day, and its line is in the next day.
fn late(history: &mut History, stores: &mut Stores, mark: Provisional) {
    for entry in &mut stores.entries {
        (entry.at, entry.counted_at) = (at(0), at(0));
    }
    fourth(history, stores, |told, entry| {
        told.provisional = true;
        entry.at = at(0) + TimeDelta::days(1);
        (entry.counted_at, entry.provisional) = (at(1), Some(mark));
        entry.totals[0] = tomorrow();
    });
}
