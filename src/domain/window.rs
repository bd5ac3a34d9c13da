//! Windows: how the local calendar of a policy divides time.

use std::fmt;
use std::str::FromStr;

use chrono::{
    DateTime, Datelike, Days, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike,
    Utc, Weekday,
};

use super::elapsed::Elapsed;
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

/// How the calendar divides local time into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// By a length that has a name.
    Length(Length),
    /// Into equal parts of each local day.
    PartOfDay(PartOfDay),
    /// Into runs of several weeks.
    Weeks(WeekRun),
}

/// Equal parts of a local day, such as `15m` or `6h`. The first begins with the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOfDay(Elapsed);

impl PartOfDay {
    const DAY_SECONDS: u32 = 24 * 60 * 60;

    /// Parts of this time on the clock.
    ///
    /// # Errors
    /// [`NoPartOfDay`]: whole parts do not fill 24 hours, or a length has a name.
    pub fn new(part: Elapsed) -> Result<Self, NoPartOfDay> {
        let named = match part.seconds() {
            60 => Some(Length::Minute),
            Self::DAY_SECONDS => Some(Length::Day),
            _ => None,
        };
        match named {
            Some(word) => Err(NoPartOfDay::HasName { part, word }),
            None if Self::DAY_SECONDS.is_multiple_of(part.seconds()) => Ok(Self(part)),
            None => Err(NoPartOfDay::Uneven { part }),
        }
    }

    /// The time that a part takes on the clock.
    pub fn elapsed(self) -> Elapsed {
        self.0
    }
}

/// A duration does not divide a day into windows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPartOfDay {
    #[error("write per as \"{word}\": this is the name of windows of {part}")]
    HasName { part: Elapsed, word: Length },
    #[error(
        "{part} does not divide a day of 24h into whole windows: write a duration that does, such as 15m or 6h, \
         or another kind"
    )]
    Uneven { part: Elapsed },
}

/// Runs of several weeks, before and after a date on which one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeekRun {
    pub weeks: Weeks,
    /// The first day of one run.
    pub from: NaiveDate,
}

/// The number of weeks in a run: 2 to 52.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weeks(u8);

impl Weeks {
    /// `None` outside the bounds.
    pub fn new(weeks: u8) -> Option<Self> {
        (2..=52).contains(&weeks).then_some(Self(weeks))
    }

    pub fn get(self) -> u8 {
        self.0
    }

    fn days(self) -> i64 {
        7 * i64::from(self.0)
    }
}

impl From<Length> for Division {
    fn from(length: Length) -> Self {
        Self::Length(length)
    }
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
/// (from `week_starts_on`), runs of weeks, months (from the 1st), quarters and years (from 1 January) are
/// runs of such days.
///
/// Minutes and hours follow the local clock in the same way, and do not depend on `day_starts_at`:
/// the hour `H` starts at the first instant whose local date-time is `H:00` or later. If clocks are
/// set back, the hour that comes twice is one window of two hours. No minute starts until clocks
/// have caught up, so the last minute before the change is longer too. Parts of a day follow the local
/// clock like hours, but from `day_starts_at` on: each day has whole parts.
///
/// Invariant: for each division the windows are contiguous, none is empty, and none overlaps another.
/// Each instant is in exactly one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    /// The zone of the local clocks.
    pub zone: Zone,
    /// The start of a day, in whole minutes.
    pub day_starts_at: NaiveTime,
    /// The first day of a week.
    pub week_starts_on: Weekday,
    /// The day on which windows of one subject begin, and before and after which they are counted: weeks have
    /// its weekday, and months, quarters and years its day of the month. A month that is too short for it begins
    /// on its last day. `None` for the calendar of a policy.
    pub anchor: Option<NaiveDate>,
}

impl Calendar {
    /// The window that contains `at`.
    ///
    /// An `at` outside the years 0 to 9999 gets the window of the nearest instant inside.
    pub fn window(&self, division: impl Into<Division>, at: DateTime<Utc>) -> Window {
        let (start, end) = self.span(division.into(), self.zone.latest_local(in_range(at)));
        Window {
            start: self.zone.first_instant(start),
            end: self.zone.first_instant(end),
        }
    }

    /// The local date of a window of this calendar. For a day: its own date, even if clocks jump
    /// over its start into the next date. For several days: the date of the first. For a minute or
    /// an hour: the date that clocks show at its start. For a part of a day: the date that they show there, or would
    /// show if they did not jump over it.
    pub fn local_date(&self, division: impl Into<Division>, window: Window) -> NaiveDate {
        // At the start of a window clocks show more than ever before: `local` equals
        // `latest_local`.
        let (start, _) = self.span(division.into(), self.zone.local(in_range(window.start)));
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
        division: impl Into<Division>,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> impl Iterator<Item = Window> {
        let division = division.into();
        let first = (from < to).then(|| self.window(division, from));
        std::iter::successors(first, move |last| {
            let next = self.window(division, last.end);
            (next.start == last.end).then_some(next)
        })
        .take_while(move |window| window.start < to)
    }

    /// The run of months that contains a day: its first day, and that of the next run.
    fn months(&self, day: NaiveDate, number: i32) -> (NaiveDate, NaiveDate) {
        let anchor = self.anchor.unwrap_or(FIRST_DAY);
        let months = |date: NaiveDate| 12 * date.year() + date.month0().cast_signed();
        let run = (months(day) - months(anchor)).div_euclid(number);
        let begins = |run: i32| months_after(anchor, number * run);
        // In its month the day of the anchor may be still to come.
        let first = run - i32::from(day < begins(run));
        (begins(first), begins(first + 1))
    }

    /// The local start and end of the window that contains `local`.
    fn span(&self, division: Division, local: NaiveDateTime) -> (NaiveDateTime, NaiveDateTime) {
        let day = (local - (self.day_starts_at - NaiveTime::MIN)).date();
        let begin = |date: NaiveDate| date.and_time(self.day_starts_at);
        let days = |first: NaiveDate, next: NaiveDate| (begin(first), begin(next));
        let months = |number| {
            let (first, next) = self.months(day, number);
            days(first, next)
        };
        match division {
            Division::Length(Length::Minute) => clock_span(local, TimeDelta::minutes(1)),
            Division::Length(Length::Hour) => clock_span(local, TimeDelta::hours(1)),
            Division::Length(Length::Day) => days(day, day + Days::new(1)),
            Division::Length(Length::Week) => {
                let begins_on = self.anchor.map_or(self.week_starts_on, |day| day.weekday());
                let first = day.week(begins_on).first_day();
                days(first, first + Days::new(7))
            }
            Division::Length(Length::Month) => months(1),
            Division::Length(Length::Quarter) => months(3),
            Division::Length(Length::Year) => months(12),
            Division::PartOfDay(PartOfDay(part)) => {
                let part = part.delta();
                let parts = (local - begin(day)).num_seconds() / part.num_seconds();
                let start = begin(day) + TimeDelta::seconds(parts * part.num_seconds());
                (start, start + part)
            }
            Division::Weeks(WeekRun { weeks, from }) => {
                let since = (day - self.anchor.unwrap_or(from)).num_days();
                let first = day - TimeDelta::days(since.rem_euclid(weeks.days()));
                days(first, first + TimeDelta::days(weeks.days()))
            }
        }
    }
}

/// A date some months after another one; in a month that is too short for it, the last day.
fn months_after(date: NaiveDate, months: i32) -> NaiveDate {
    let number = Months::new(months.unsigned_abs());
    if months < 0 {
        date - number
    } else {
        date + number
    }
}

/// The minute or hour of the local clock that contains `local`.
fn clock_span(local: NaiveDateTime, length: TimeDelta) -> (NaiveDateTime, NaiveDateTime) {
    let seconds = i64::from(local.num_seconds_from_midnight());
    let start = seconds - seconds % length.num_seconds();
    let start = local.date().and_time(NaiveTime::MIN) + TimeDelta::seconds(start);
    (start, start + length)
}

/// The nearest instant in the years 0 to 9999: all dates near it are in the range of chrono.
fn in_range(instant: DateTime<Utc>) -> DateTime<Utc> {
    instant.clamp(FIRST, LAST)
}

const FIRST_DAY: NaiveDate = NaiveDate::from_yo_opt(0, 1).unwrap();
const FIRST: DateTime<Utc> = FIRST_DAY.and_time(NaiveTime::MIN).and_utc();
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
            anchor: None,
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
            anchor: None,
        };
        let weeks = Division::Weeks(WeekRun {
            weeks: Weeks::new(52).unwrap(),
            from: NaiveDate::MIN,
        });
        let divisions = Length::ALL.map(Division::Length);
        for division in divisions.into_iter().chain([weeks, part("6h")]) {
            let windows = calendar.windows(division, LAST, DateTime::<Utc>::MAX_UTC);
            assert!(windows.count() <= 2);
        }
    }

    fn part(text: &str) -> Division {
        Division::PartOfDay(PartOfDay::new(text.parse().unwrap()).unwrap())
    }

    #[test]
    fn parts_divide_a_day() {
        for text in ["1s", "15m", "90m", "1h", "6h", "12h", "48m"] {
            part(text);
        }
        for (text, says) in [
            ("60s", "write per as \"minute\""),
            ("24h", "write per as \"day\""),
            ("7h", "7h does not divide a day"),
            ("48h", "48h does not divide a day"),
            ("7s", "7s does not divide a day"),
        ] {
            let error = PartOfDay::new(text.parse().unwrap()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        for weeks in [0, 1, 53] {
            assert_eq!(Weeks::new(weeks), None);
        }
    }

    /// Parts begin with the day, and runs of weeks on their date, also before it.
    #[test]
    fn parts_and_weeks_have_their_starts() {
        let calendar = Calendar {
            zone: Zone::parse("+08:00").unwrap(),
            day_starts_at: NaiveTime::from_hms_opt(4, 30, 0).unwrap(),
            week_starts_on: Weekday::Sun,
            anchor: None,
        };
        let weeks = Division::Weeks(WeekRun {
            weeks: Weeks::new(2).unwrap(),
            from: "2026-11-02".parse().unwrap(),
        });
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        for (division, instant, start, end) in [
            (
                part("6h"),
                "2026-11-02T20:29:59Z",
                "2026-11-02T14:30:00Z",
                "2026-11-02T20:30:00Z",
            ),
            (
                part("6h"),
                "2026-11-02T20:30:00Z",
                "2026-11-02T20:30:00Z",
                "2026-11-03T02:30:00Z",
            ),
            (
                part("15m"),
                "2026-11-02T00:00:00Z",
                "2026-11-02T00:00:00Z",
                "2026-11-02T00:15:00Z",
            ),
            (
                weeks,
                "2026-11-01T20:30:00Z",
                "2026-11-01T20:30:00Z",
                "2026-11-15T20:30:00Z",
            ),
            (
                weeks,
                "2026-11-01T20:29:59Z",
                "2026-10-18T20:30:00Z",
                "2026-11-01T20:30:00Z",
            ),
            (
                weeks,
                "2025-11-02T20:29:59Z",
                "2025-10-19T20:30:00Z",
                "2025-11-02T20:30:00Z",
            ),
        ] {
            let window = Window {
                start: at(start),
                end: at(end),
            };
            assert_eq!(calendar.window(division, at(instant)), window, "{instant}");
        }
    }
}
