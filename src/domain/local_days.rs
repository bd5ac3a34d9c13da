//! The local days of a policy whose zone, or start of the day, changed.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::policy::Policy;
use super::window::{Calendar, Length};
use super::zone::Zone;

/// The local days of a policy, past and future. Each day follows the version that was active then.
///
/// A date starts at the first instant at which the active version shows it, or a later date.
/// Invariant: days are contiguous, and no date comes twice. If a change sets the local clock back,
/// the day of the change is longer.
pub struct LocalDays<'p> {
    /// The calendars with their times, oldest first.
    lived: Vec<Lived<&'p Calendar>>,
}

/// What versions had in common from an instant up to another.
#[derive(Debug, Clone, Copy)]
pub struct Lived<T> {
    pub from: DateTime<Utc>,
    pub until: DateTime<Utc>,
    pub common: T,
}

/// A version that was active from an instant up to another.
#[derive(Debug, Clone, Copy)]
pub struct InForce<'p> {
    pub from: DateTime<Utc>,
    pub until: DateTime<Utc>,
    pub version: &'p Policy,
}

impl<'p> InForce<'p> {
    /// The versions that were or will be active, oldest first, without gaps. `versions` are all
    /// versions of a policy, oldest first. The first version also counts for the time before it was
    /// created.
    pub fn of(versions: &'p [Policy]) -> Vec<Self> {
        let mut until = DateTime::<Utc>::MAX_UTC;
        let mut in_force = Vec::new();
        for (index, version) in versions.iter().enumerate().rev() {
            let from = match index {
                0 => DateTime::<Utc>::MIN_UTC,
                _ => version.effective_at,
            };
            if from < until {
                in_force.push(Self {
                    from,
                    until,
                    version,
                });
                until = from;
            }
        }
        in_force.reverse();
        in_force
    }
}

impl<T: PartialEq> Lived<T> {
    /// What neighbouring versions have in common, oldest first. Versions without it leave a gap.
    pub fn of<'p>(versions: &'p [Policy], common: impl Fn(&'p Policy) -> Option<T>) -> Vec<Self> {
        let mut lived: Vec<Self> = Vec::new();
        for InForce {
            from,
            until,
            version,
        } in InForce::of(versions)
        {
            let Some(common) = common(version) else {
                continue;
            };
            match lived.last_mut() {
                Some(last) if last.until == from && last.common == common => last.until = until,
                _ => lived.push(Self {
                    from,
                    until,
                    common,
                }),
            }
        }
        lived
    }
}

impl<'p> LocalDays<'p> {
    /// The days of a policy with these versions, oldest first. Without versions, no day starts.
    pub fn of(versions: &'p [Policy]) -> Self {
        let calendar =
            |version: &'p Policy| -> Option<&'p Calendar> { Some(&version.rule.calendar) };
        Self {
            lived: Lived::of(versions, calendar),
        }
    }

    /// The time zone that was active at an instant. Without versions there is none.
    pub fn zone(&self, at: DateTime<Utc>) -> Option<&'p Zone> {
        let begun = self.lived.iter().rev().find(|lived| lived.from <= at);
        begun.map(|lived| &lived.common.zone)
    }

    /// The first instant of a local day. A skipped date starts with the next date.
    pub fn start(&self, date: NaiveDate) -> DateTime<Utc> {
        let begins = |lived: &Lived<&Calendar>| {
            let start = lived.common.day_start(date).max(lived.from);
            (start < lived.until).then_some(start)
        };
        let starts = self.lived.iter().filter_map(begins);
        starts.min().unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// The end of a local day: the start of the next day.
    pub fn end(&self, date: NaiveDate) -> DateTime<Utc> {
        date.succ_opt()
            .map_or(DateTime::<Utc>::MAX_UTC, |next| self.start(next))
    }

    pub fn date(&self, at: DateTime<Utc>) -> NaiveDate {
        let shown = self.lived.iter().filter(|lived| lived.from <= at);
        let dates = shown.map(|lived| {
            let calendar = lived.common;
            let at = at.min(lived.until - TimeDelta::microseconds(1));
            calendar.local_date(Length::Day, calendar.window(Length::Day, at))
        });
        dates.max().unwrap_or_default()
    }
}

/// A local day, from its start up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalDay {
    pub date: NaiveDate,
    pub start: DateTime<Utc>,
    pub end: DateTime<Utc>,
}

impl LocalDay {
    pub fn contains(&self, at: DateTime<Utc>) -> bool {
        self.start <= at && at < self.end
    }
}

/// The days of many instants. Each day is computed once, because zones make that slow.
pub struct KnownDays<'p> {
    days: LocalDays<'p>,
    /// The days by their starts.
    known: BTreeMap<DateTime<Utc>, LocalDay>,
}

impl<'p> KnownDays<'p> {
    pub fn of(days: LocalDays<'p>) -> Self {
        Self {
            days,
            known: BTreeMap::new(),
        }
    }

    /// The day of an instant.
    pub fn day(&mut self, at: DateTime<Utc>) -> LocalDay {
        let begun = self.known.range(..=at).next_back();
        if let Some((_, day)) = begun
            && day.contains(at)
        {
            return *day;
        }
        let date = self.days.date(at);
        let day = LocalDay {
            date,
            start: self.days.start(date),
            end: self.days.end(date),
        };
        self.known.insert(day.start, day);
        day
    }
}

#[cfg(test)]
mod tests {
    use chrono::Days;
    use proptest::prelude::*;

    use super::*;
    use crate::samples::policy;

    const ZONES: [&str; 6] = [
        "+14:00",
        "America/New_York",
        "Asia/Shanghai",
        "-12:00",
        "Pacific/Apia",
        "UTC",
    ];

    fn at(minutes: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_793_491_200 + minutes * 60, 0).unwrap()
    }

    proptest! {
        #[test]
        fn each_instant_is_in_the_day_that_it_is_told(
            history in prop::collection::vec((0usize..6, 0i64..6000), 1..5),
            minutes in prop::collection::vec(0i64..8000, 1..20),
        ) {
            let mut versions = Vec::new();
            for (number, (zone, effective)) in (1..).zip(history) {
                versions.push(Policy {
                    effective_at: at(effective),
                    ..policy(number, ZONES[zone], &[(3, "day")])
                });
            }
            let days = LocalDays::of(&versions);
            let mut known = KnownDays::of(LocalDays::of(&versions));
            for minute in minutes {
                let date = days.date(at(minute));
                let start = days.start(date);
                let end = days.start(date + Days::new(1));
                prop_assert!(start <= at(minute) && at(minute) < end);
                prop_assert_eq!(known.day(at(minute)), LocalDay { date, start, end });
            }
        }
    }

    #[test]
    fn a_day_is_longer_where_the_clock_is_set_back() {
        let noon: DateTime<Utc> = "2026-11-03T12:00:00Z".parse().unwrap();
        let versions = [
            policy(1, "+14:00", &[(3, "day")]),
            Policy {
                effective_at: noon,
                ..policy(2, "-10:00", &[(3, "day")])
            },
        ];
        let days = LocalDays::of(&versions);
        let date = |text: &str| text.parse::<NaiveDate>().unwrap();
        // At noon UTC it was the 4th at +14:00, and it is the 3rd at -10:00.
        assert_eq!(days.date(noon - TimeDelta::seconds(1)), date("2026-11-04"));
        assert_eq!(days.date(noon), date("2026-11-04"));
        let zone = |at| days.zone(at).map(Zone::name);
        assert_eq!(zone(noon - TimeDelta::microseconds(1)), Some("+14:00"));
        assert_eq!(zone(noon), Some("-10:00"));
        let start = |text: &str| days.start(date(text)).to_rfc3339();
        assert_eq!(start("2026-11-04"), "2026-11-03T10:00:00+00:00");
        assert_eq!(start("2026-11-05"), "2026-11-05T10:00:00+00:00");
    }
}
