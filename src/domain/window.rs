//! Windows: how the local calendar of a policy divides time.

use std::fmt;
use std::str::FromStr;

use chrono::{
    DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike,
    Utc, Weekday,
};

use super::zone::Zone;

/// The length of a window of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Length {
    /// A minute of the local clock.
    Minute,
    /// An hour of the local clock.
    Hour,
    /// A local day.
    Day,
    /// Seven local days.
    Week,
    /// The local days of a month.
    Month,
    /// The local days of January to March, April to June, July to September, or October to December.
    Quarter,
    /// The local days of a year.
    Year,
}

impl Length {
    /// All lengths, the shortest first.
    pub const ALL: [Length; 7] = [
        Length::Minute,
        Length::Hour,
        Length::Day,
        Length::Week,
        Length::Month,
        Length::Quarter,
        Length::Year,
    ];

    /// The name: `minute`, `hour`, `day`, `week`, `month`, `quarter` or `year`.
    pub fn as_str(self) -> &'static str {
        match self {
            Length::Minute => "minute",
            Length::Hour => "hour",
            Length::Day => "day",
            Length::Week => "week",
            Length::Month => "month",
            Length::Quarter => "quarter",
            Length::Year => "year",
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Length {
    type Err = UnknownLength;

    /// Reads a name of [`Length::as_str`], in lower case.
    fn from_str(text: &str) -> Result<Length, UnknownLength> {
        Length::ALL
            .into_iter()
            .find(|per| per.as_str() == text)
            .ok_or_else(|| UnknownLength {
                given: text.to_owned(),
            })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the window length {given:?} is unknown; write minute, hour, day, week, month, quarter or year"
)]
pub struct UnknownLength {
    pub given: String,
}

/// A half-open span of instants: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    pub start: DateTime<Utc>,
    pub end: DateTime<Utc>,
}

impl Window {
    /// The window without an end: all instants that perdiem supports.
    pub const EVER: Self = Self {
        start: FIRST,
        end: LAST,
    };

    /// Whether `instant` lies in the window.
    pub fn contains(&self, instant: DateTime<Utc>) -> bool {
        self.start <= instant && instant < self.end
    }
}

/// The calendar that divides the local time of a policy into windows.
///
/// The day `d` starts at the first instant whose local date-time is `d` at `day_starts_at` or
/// later. It ends where `d + 1` starts. So a day that loses or gains an hour by a clock change is
/// one day. If the change skips the start of a day, the day starts at the change. If the start
/// comes twice, the day starts at the first time. A date that the zone skipped has no day. Weeks
/// (from `week_starts_on`), months (from the 1st), quarters and years (from 1 January) are runs of such days.
///
/// Minutes and hours follow the local clock in the same way, and do not depend on `day_starts_at`:
/// the hour `H` starts at the first instant whose local date-time is `H:00` or later. If clocks are
/// set back, the hour that comes twice is one window of two hours. No minute starts until clocks
/// have caught up, so the last minute before the change is longer too.
///
/// Invariant: for each `per` the windows are contiguous, none is empty, and none overlaps another.
/// Each instant is in exactly one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// The zone of the local clocks.
    pub zone: Zone,
    /// The start of a day, in whole minutes.
    pub day_starts_at: NaiveTime,
    /// The first day of a week.
    pub week_starts_on: Weekday,
}

impl Calendar {
    /// The window that contains `at`.
    ///
    /// An `at` outside the years 0 to 9999 gets the window of the nearest instant inside.
    pub fn window(&self, per: Length, at: DateTime<Utc>) -> Window {
        let (start, end) = self.span(per, self.zone.latest_local(in_range(at)));
        Window {
            start: self.zone.first_instant(start),
            end: self.zone.first_instant(end),
        }
    }

    /// The local date of a window of this calendar. For a day: its own date, even if clocks jump
    /// over its start into the next date. For a week, month, quarter or year: the date of its first day. For
    /// a minute or hour: the date that clocks show at its start.
    pub fn local_date(&self, per: Length, window: Window) -> NaiveDate {
        // At the start of a window clocks show more than ever before: `local` equals
        // `latest_local`.
        let (start, _) = self.span(per, self.zone.local(in_range(window.start)));
        start.date()
    }

    /// The start of the day of a local date. For a date that the zone skipped, the start of the
    /// next day.
    pub fn day_start(&self, date: NaiveDate) -> DateTime<Utc> {
        self.zone.first_instant(date.and_time(self.day_starts_at))
    }

    /// All windows with an instant in `[from, to)`, in order.
    pub fn windows(
        &self,
        per: Length,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> impl Iterator<Item = Window> {
        let first = (from < to).then(|| self.window(per, from));
        std::iter::successors(first, move |last| {
            let next = self.window(per, last.end);
            (next.start == last.end).then_some(next)
        })
        .take_while(move |window| window.start < to)
    }

    /// The local start and end of the window that contains `local`.
    fn span(&self, per: Length, local: NaiveDateTime) -> (NaiveDateTime, NaiveDateTime) {
        let midnight = local.date().and_time(NaiveTime::MIN);
        let hour = midnight + TimeDelta::hours(local.hour().into());
        let minute = hour + TimeDelta::minutes(local.minute().into());
        let day = (local - (self.day_starts_at - NaiveTime::MIN)).date();
        let days = |first: NaiveDate, next: NaiveDate| {
            (
                first.and_time(self.day_starts_at),
                next.and_time(self.day_starts_at),
            )
        };
        match per {
            Length::Minute => (minute, minute + TimeDelta::minutes(1)),
            Length::Hour => (hour, hour + TimeDelta::hours(1)),
            Length::Day => days(day, day + Days::new(1)),
            Length::Week => {
                let first = day.week(self.week_starts_on).first_day();
                days(first, first + Days::new(7))
            }
            Length::Month => {
                let first = day - Days::new(day.day0().into());
                days(first, first + Months::new(1))
            }
            Length::Quarter => {
                let month = day - Days::new(day.day0().into());
                let first = month - Months::new(day.month0() % 3);
                days(first, first + Months::new(3))
            }
            Length::Year => {
                let first = day - Days::new(day.ordinal0().into());
                days(first, first + Months::new(12))
            }
        }
    }
}

/// The nearest instant in the years 0 to 9999: all dates near it are in the range of chrono.
fn in_range(instant: DateTime<Utc>) -> DateTime<Utc> {
    instant.clamp(FIRST, LAST)
}

const FIRST: DateTime<Utc> = NaiveDate::from_yo_opt(0, 1)
    .unwrap()
    .and_time(NaiveTime::MIN)
    .and_utc();
const LAST: DateTime<Utc> = NaiveDate::from_yo_opt(9999, 365)
    .unwrap()
    .and_time(NaiveTime::MIN)
    .and_utc();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_it_is_written() {
        for per in Length::ALL {
            assert_eq!(per.to_string().parse(), Ok(per));
        }
        let error = "Daily".parse::<Length>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the window length \"Daily\" is unknown; write minute, hour, day, week, month, quarter or year"
        );
    }

    #[test]
    fn a_window_has_its_start_and_not_its_end() {
        let window = Window {
            start: FIRST,
            end: LAST,
        };
        assert!(window.contains(FIRST));
        assert!(!window.contains(LAST));
    }

    #[test]
    fn windows_are_those_that_touch_the_span() {
        let calendar = Calendar {
            zone: Zone::parse("+08:00").unwrap(),
            day_starts_at: NaiveTime::MIN,
            week_starts_on: Weekday::Mon,
        };
        let midnight: DateTime<Utc> = "2026-08-04T16:00:00Z".parse().unwrap();
        let day = |n| midnight + TimeDelta::days(n);
        let starts = |from, to| {
            let windows = calendar.windows(Length::Day, from, to);
            windows.map(|window| window.start).collect::<Vec<_>>()
        };
        let second = TimeDelta::seconds(1);
        assert_eq!(starts(midnight, day(2)), [midnight, day(1)]);
        assert_eq!(starts(midnight - second, day(0)), [day(-1)]);
        assert_eq!(starts(midnight, midnight + second), [midnight]);
        assert!(starts(midnight, midnight).is_empty());
        assert!(starts(day(1), midnight).is_empty());
    }

    #[test]
    fn windows_end_with_the_year_9999() {
        let calendar = Calendar {
            zone: Zone::parse("Pacific/Apia").unwrap(),
            day_starts_at: NaiveTime::MIN,
            week_starts_on: Weekday::Mon,
        };
        for per in Length::ALL {
            let windows = calendar.windows(per, LAST, DateTime::<Utc>::MAX_UTC);
            assert!(windows.count() <= 2);
        }
    }
}
