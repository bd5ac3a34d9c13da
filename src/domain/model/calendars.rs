//! Compares windows that follow the calendar of a subject with a plain model: all movements, summed again in
//! the window that the calendar of then has.

use std::sync::Arc;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::sample::Index;

use super::MICROSECOND;
use crate::account::{UnitsAsked, Verdict, instant_after};
use crate::account_totals::totals_asked;
use crate::backtest::{Backtest, DayRange, Replayed};
use crate::claim::Units;
use crate::course::Course;
use crate::exceptions::ExceptionHistory;
use crate::forecast::{Foreknown, HoldsAhead, foresee};
use crate::grant::{Direction, Entry, EntryKind};
use crate::histories::{History, What, any_calendar};
use crate::limit::per::Per;
use crate::limit::shape::Limit;
use crate::own_calendar::{CalendarOwner, OwnCalendar};
use crate::policy::Policy;
use crate::samples::policy_of;
use crate::window::{Length, Window};
use crate::zone::Zone;

const LIMITS: [&str; 6] = [
    "3 per day",
    "5 per week",
    "7 per month",
    "9 per quarter",
    "6 per 2 weeks from 2026-10-19",
    "3 per 6h calendar",
];

/// A month has this many days.
fn days_of(year: i32, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The first days of the windows of several days around a date.
fn first_days(per: &str, anchor: Option<NaiveDate>, around: NaiveDate) -> Vec<NaiveDate> {
    let of_policy = if per == "2 weeks" {
        "2026-10-19"
    } else {
        "2001-01-01"
    };
    let anchor = anchor.unwrap_or(of_policy.parse().unwrap());
    let days = |every: i64| {
        let near = (around - anchor).num_days() / every;
        (near - 2..near + 3)
            .map(|run| anchor + TimeDelta::days(every * run))
            .collect()
    };
    let months = |every: i32| {
        let near = 12 * (around.year() - anchor.year()) / every;
        let runs = near - 16..near + 17;
        let first = runs.map(|run| {
            let month = anchor.month0() as i32 + every * run;
            let year = anchor.year() + month.div_euclid(12);
            let month = month.rem_euclid(12) as u32 + 1;
            let day = anchor.day().min(days_of(year, month));
            NaiveDate::from_ymd_opt(year, month, day).unwrap()
        });
        first.collect()
    };
    match per {
        "day" => days(1),
        "week" => days(7),
        "2 weeks" => days(14),
        "month" => months(1),
        "quarter" => months(3),
        _ => panic!("{per}"),
    }
}

/// The window of a limit that contains an instant, by the definition.
fn window_of(per: &str, zone: &Zone, anchor: Option<NaiveDate>, at: DateTime<Utc>) -> Window {
    let around = zone.local(at).date();
    let starts: Vec<DateTime<Utc>> = if per == "6h" {
        let days = (-1..3).map(|day| around + TimeDelta::days(day));
        let parts = days.flat_map(|day| {
            [0, 6, 12, 18].map(|hour| day.and_time(NaiveTime::from_hms_opt(hour, 0, 0).unwrap()))
        });
        parts.map(|local| zone.first_instant(local)).collect()
    } else {
        let first = first_days(per, anchor, around);
        first
            .into_iter()
            .map(|day| zone.first_instant(day.and_time(NaiveTime::MIN)))
            .collect()
    };
    let next = starts.iter().position(|start| *start > at).unwrap();
    Window {
        start: starts[next - 1],
        end: starts[next],
    }
}

#[derive(Debug, Clone)]
struct CalendarStep {
    hours: i64,
    units: u64,
    what: What,
}

fn calendar_steps() -> impl Strategy<Value = Vec<CalendarStep>> {
    let index = any::<Index>;
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    let hours = || prop_oneof![3 => 0i64..8, 2 => 0i64..200, 1 => 0i64..2000];
    let what = prop_oneof![
        6 => Just(What::Grant),
        4 => any_calendar().prop_map(What::GrantIn),
        2 => any_calendar().prop_map(What::MoveTo),
        2 => index().prop_map(What::Reverse),
        1 => direction.prop_map(|direction| What::Adjust(direction, TimeDelta::zero())),
        1 => proptest::option::of(index()).prop_map(What::Reset),
    ];
    let step = (hours(), 1u64..4, what);
    let step = step.prop_map(|(hours, units, what)| CalendarStep { hours, units, what });
    proptest::collection::vec(step, 1..60)
}

/// The plain model of an account.
struct PlainAccount {
    history: History,
    own: OwnCalendar,
    /// The window of each limit at the last entry.
    begun: Vec<(Per, Window)>,
    owner: CalendarOwner,
}

impl PlainAccount {
    /// What the account has of its own at its next entry.
    fn own_then(&self, zone: &Zone, asked: Option<&OwnCalendar>, at: DateTime<Utc>) -> OwnCalendar {
        let mut own = self.own.clone();
        if self.owner == CalendarOwner::Policy {
            return own;
        }
        if let Some(asked) = asked {
            own.zone = asked.zone.clone().or(own.zone);
            own.anchor = asked.anchor.or(own.anchor);
        }
        if self.owner == CalendarOwner::FirstGrant && own.anchor.is_none() {
            let zone = own.zone.as_ref().unwrap_or(zone);
            own.anchor = Some(zone.latest_local(at).date());
        }
        own
    }

    fn window(&self, per: Per, zone: &Zone, own: &OwnCalendar, at: DateTime<Utc>) -> Window {
        let begun = self.begun.iter().find(|(of, _)| *of == per);
        match begun.filter(|(_, window)| window.contains(at)) {
            _ if self.owner == CalendarOwner::Policy => window_of(&per.to_string(), zone, None, at),
            Some((_, window)) => *window,
            None => {
                let zone = own.zone.as_ref().unwrap_or(zone);
                window_of(&per.to_string(), zone, own.anchor, at)
            }
        }
    }

    fn used(&self, per: Per, window: Window) -> u64 {
        let entries = self.history.entries.iter();
        let is_reset = |entry: &&Entry| entry.kind.resets(per) && window.contains(entry.line.at);
        let reset_at = entries.clone().rfind(is_reset).map(|entry| entry.line.at);
        let counts = |entry: &&Entry| {
            window.contains(entry.counted_at()) && reset_at <= Some(entry.counted_at())
        };
        entries.filter(counts).fold(0, |used: u64, entry| {
            used.saturating_add_signed(entry.units_added())
        })
    }

    fn has_room(
        &self,
        policy: &Policy,
        asked: Option<&OwnCalendar>,
        units: u64,
        at: DateTime<Utc>,
    ) -> bool {
        let zone = &policy.rule.calendar.zone;
        let own = self.own_then(zone, asked, at);
        let mut limits = policy.rule.limits.iter();
        limits.all(|limit| {
            let window = self.window(limit.per(), zone, &own, at);
            self.used(limit.per(), window) + units <= limit.max
        })
    }
}

proptest! {
    #[test]
    fn each_calendar_is_what_the_plain_model_says(
        steps in calendar_steps(),
        before in proptest::sample::subsequence(LIMITS.to_vec(), 1..=4),
        limits in proptest::sample::subsequence(LIMITS.to_vec(), 1..=4),
        shared_for in prop_oneof![1 => Just(0), 2 => 0usize..12],
        from_first_grant in any::<bool>(),
        zones in proptest::collection::vec(0usize..3, 60),
    ) {
        let mut account = PlainAccount {
            history: History::default(),
            own: OwnCalendar::default(),
            begun: Vec::new(),
            owner: CalendarOwner::Policy,
        };
        let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
        let mut version = 1;
        for (number, (step, zone)) in steps.iter().zip(zones).enumerate() {
            now += TimeDelta::hours(step.hours);
            // The policy changes its zone seldom.
            let zone = ["UTC", "UTC", "Asia/Kolkata"][zone];
            version += 1;
            // At first the policy may have other limits, and one calendar for all.
            let is_shared = number < shared_for;
            let mut policy = policy_of(version, zone, if is_shared { &before } else { &limits });
            account.owner = match (is_shared, from_first_grant) {
                (true, _) => CalendarOwner::Policy,
                (false, true) => CalendarOwner::FirstGrant,
                (false, false) => CalendarOwner::Subject,
            };
            policy.rule.calendar_owner = account.owner;
            let what = match &step.what {
                What::GrantIn(_) | What::MoveTo(_) if is_shared => &What::Grant,
                what => what,
            };
            let asked = match what {
                What::GrantIn(own) | What::MoveTo(own) => Some(own),
                _ => None,
            };
            let units = Units::new(step.units.into()).unwrap();
            let at = instant_after(account.history.last(), now);
            let fits = account.has_room(&policy, asked, step.units, at);
            let known = account.history.entries.len();
            let zone = policy.rule.calendar.zone.clone();
            let own = account.own_then(&zone, asked, at);
            let verdict = account.history.step(&policy, units, what, now);
            // 1. A claim is granted if every window of the model has room.
            match verdict {
                Some(Verdict::Granted(_)) => prop_assert!(fits),
                Some(_) => {
                    prop_assert!(!fits);
                    is_granted_then(&account, &policy, asked, units, at)?;
                }
                None => {}
            }
            // 2. The line of each entry has the sums of the model, and the calendar.
            let policy_limits: Vec<Limit> = policy.rule.limits.clone();
            for entry in account.history.entries.clone().into_iter().skip(known) {
                let told = entry.line.calendar.as_deref().cloned().unwrap_or_default();
                prop_assert_eq!(&told, &own);
                account.own = own.clone();
                let mut begun = Vec::new();
                for (limit, total) in policy_limits.iter().zip(entry.line.totals.iter()) {
                    let window = account.window(limit.per(), &zone, &own, entry.line.at);
                    prop_assert_eq!(total.window(), Some(window), "{:?} {:?}", limit, step);
                    prop_assert_eq!(total.used(), account.used(limit.per(), window), "{:?}", limit);
                    begun.push((limit.per(), window));
                }
                account.begun = begun;
            }
        }
    }

    /// A backtest of a policy on its own entries denies none of them.
    #[test]
    fn a_backtest_follows_the_calendars(
        steps in calendar_steps(),
        limits in proptest::sample::subsequence(LIMITS.to_vec(), 1..=4),
        from_first_grant in any::<bool>(),
        less in 0u64..3,
    ) {
        let mut now: DateTime<Utc> = "2026-10-20T00:00:00Z".parse().unwrap();
        let mut history = History::default();
        let mut policy = policy_of(1, "UTC", &limits);
        policy.rule.calendar_owner = if from_first_grant {
            CalendarOwner::FirstGrant
        } else {
            CalendarOwner::Subject
        };
        for step in &steps {
            now += TimeDelta::hours(step.hours) + MICROSECOND;
            let units = Units::new(step.units.into()).unwrap();
            // An adjustment takes off what the draft may not have granted.
            let what = match &step.what {
                What::Adjust(..) => What::Grant,
                what => what.clone(),
            };
            history.step(&policy, units, &what, now);
        }
        let draft = policy.with_max(|per| {
            let own = policy.rule.limits.iter().find(|limit| limit.per() == per);
            own.map(|limit| limit.max.saturating_sub(less).max(1))
        });
        let from: NaiveDate = "2026-10-20".parse().unwrap();
        let days = (now.date_naive() - from).num_days() + 2;
        prop_assume!(days < 400);
        let range = DayRange::new(from, from + TimeDelta::days(days)).unwrap();
        let mut backtest = Backtest::new(draft.rule.clone(), range, ExceptionHistory::default());
        // The plain model of what the draft grants.
        let mut account = PlainAccount {
            history: History::default(),
            own: OwnCalendar::default(),
            begun: Vec::new(),
            owner: draft.rule.calendar_owner,
        };
        let zone = draft.rule.calendar.zone.clone();
        let mut denied = 0;
        // Whether an old grant was denied is forgotten when it can count no more.
        let is_old = |entry: &&Entry| {
            let age = entry.line.at - entry.counted_at();
            entry.kind.gives_back().is_some() && age > TimeDelta::days(2)
        };
        for entry in history.entries.iter().filter(|entry| !is_old(entry)) {
            let mut others = history.entries.iter();
            backtest.meet(&Replayed {
                account: entry.account,
                id: entry.id,
                kind: entry.kind,
                units: entry.units,
                is_given_back: others.any(|it| it.kind.gives_back() == Some(entry.id)),
                calendar: entry.line.calendar.clone(),
                top_ups: entry.line.top_ups.clone(),
            });
            let at = entry.line.at;
            let own = entry.line.calendar.as_deref().cloned().unwrap_or_default();
            let is_grant = matches!(entry.kind, EntryKind::Grant { .. });
            if is_grant && !account.has_room(&draft, Some(&own), entry.units.get(), at) {
                denied += 1;
                continue;
            }
            let mut kept = account.history.entries.iter();
            if entry.kind.of().is_some_and(|of| kept.all(|kept| kept.id != of)) {
                continue;
            }
            let limits = draft.rule.limits.iter();
            let begun = limits.map(|limit| (limit.per(), account.window(limit.per(), &zone, &own, at)));
            account.begun = begun.collect();
            account.own = own;
            account.history.entries.push(entry.clone());
        }
        prop_assert_eq!(backtest.report().total.denied_grants, denied);
        if less == 0 && !history.entries.iter().any(|entry| is_old(&entry)) {
            prop_assert_eq!(denied, 0);
        }
    }
}

/// A denied claim is granted at the instant that is foretold, and not before.
fn is_granted_then(
    account: &PlainAccount,
    policy: &Policy,
    calendar: Option<&OwnCalendar>,
    units: Units,
    at: DateTime<Utc>,
) -> Result<(), TestCaseError> {
    let course = Course::of(Arc::new(policy.clone()), at);
    let asked = UnitsAsked {
        units,
        calendar: calendar.cloned().map(Arc::new),
    };
    let last = account.history.last();
    let holds = Some(HoldsAhead::default());
    let forecast = account.history.ask(|past| {
        let known = Foreknown {
            past: past.clone(),
            holds: holds.clone(),
            ..Foreknown::default()
        };
        foresee(&course, last, &known, Some(&asked.clone().into()), at)
    });
    let fits_at = forecast.fits_at.unwrap();
    let room = |at| account.has_room(policy, calendar, units.get(), at);
    prop_assert!(room(fits_at), "no room at {fits_at}");
    prop_assert!(!room(fits_at - MICROSECOND), "room before {fits_at}");
    // Whatever is told of a limit happens then, and not before.
    let zone = &policy.rule.calendar.zone;
    let totals = account
        .history
        .ask(|past| totals_asked(policy, calendar, last, past, at));
    for total in totals.iter().filter(|total| total.used() > 0) {
        let window_at = |at| {
            let own = account.own_then(zone, calendar, at);
            account.window(total.per(), zone, &own, at)
        };
        let used_at = |at| account.used(total.per(), window_at(at));
        let has_more = |later| {
            let left = total.max.saturating_sub(used_at(later));
            left > total.remaining() || left > 0 && window_at(later).start > at
        };
        let returns = forecast.returns_of(total);
        let resets_at = returns.resets_at.unwrap();
        prop_assert_eq!(used_at(resets_at), 0);
        prop_assert!(used_at(resets_at - MICROSECOND) > 0);
        let more_at = returns.more_at.unwrap();
        prop_assert!(has_more(more_at) && !has_more(more_at - MICROSECOND));
    }
    Ok(())
}

#[test]
fn a_month_from_the_31st_returns_to_the_31st() {
    let anchor: NaiveDate = "2028-01-31".parse().unwrap();
    let mut policy = policy_of(1, "UTC", &["1 per month", "2 per year"]);
    policy.rule.calendar_owner = CalendarOwner::Subject;
    let almanac = policy.rule.almanac(Some(&OwnCalendar {
        zone: None,
        anchor: Some(anchor),
    }));
    let starts: Vec<String> = almanac
        .windows(
            Length::Month,
            "2027-01-31T00:00:00Z".parse().unwrap(),
            "2028-05-01T00:00:00Z".parse().unwrap(),
        )
        .map(|window| window.start.date_naive().to_string())
        .collect();
    assert_eq!(
        starts[..6],
        [
            "2027-01-31",
            "2027-02-28",
            "2027-03-31",
            "2027-04-30",
            "2027-05-31",
            "2027-06-30"
        ]
    );
    assert_eq!(starts[13], "2028-02-29");
    // A year from 29 February.
    let almanac = policy.rule.almanac(Some(&OwnCalendar {
        zone: None,
        anchor: Some("2028-02-29".parse().unwrap()),
    }));
    let year = almanac.windows(
        Length::Year,
        "2026-03-01T00:00:00Z".parse().unwrap(),
        "2033-01-01T00:00:00Z".parse().unwrap(),
    );
    let starts: Vec<String> = year
        .map(|window| window.start.date_naive().to_string())
        .collect();
    assert_eq!(
        starts,
        [
            "2026-02-28",
            "2027-02-28",
            "2028-02-29",
            "2029-02-28",
            "2030-02-28",
            "2031-02-28",
            "2032-02-29"
        ]
    );
}
