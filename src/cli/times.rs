//! Times as people write them: `14:03`, `today`, `-30m`, a date, or an instant.
//!
//! A time is read in two steps. Its text comes first, because a wrong text is a wrong argument. Then a policy's
//! calendar and the present instant say which instant it is. The server does the second step itself for a date,
//! wherever it takes dates.

use std::str::FromStr;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, TimeDelta, Timelike, Utc};

use api::instant::written;
use domain::window::{Calendar, Length};
use domain::zones::ZoneError;

/// A time that may need a calendar and the present instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenTime {
    /// It was written with its offset from UTC.
    Instant(DateTime<Utc>),
    /// So long after now, or before now.
    FromNow(TimeDelta),
    /// The start of a local day.
    Day(GivenDay),
    /// What clocks show on a date.
    Clock(GivenDay, NaiveTime),
}

/// A local day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenDay {
    Date(NaiveDate),
    /// So many days after today, or before it.
    FromToday(i64),
}

/// A place in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenPlace {
    Position(u64),
    /// The last position of that time.
    Time(GivenTime),
}

/// A time, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrNone {
    Time(GivenTime),
    /// It takes away a time that was set.
    None,
}

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectTime {
    /// The next local day of the policy.
    NextWindow,
    Time(GivenTime),
}

/// A text that is no time.
#[derive(Debug, thiserror::Error)]
#[error(
    "write a time such as 14:03, today, yesterday, tomorrow, now, +2h, -30m, -1d, 2026-12-01, \
     2026-12-01T14:03 or 2026-12-01T14:03:00Z"
)]
pub struct NoTime;

/// A text that is no day.
#[derive(Debug, thiserror::Error)]
#[error("write a day: today, yesterday, tomorrow, or a date such as 2026-12-01")]
pub struct NoDay;

/// A text that is no place.
#[derive(Debug, thiserror::Error)]
#[error("write a position such as 1842, or a time such as today, 14:03 or 2026-12-01")]
pub struct NoPlace;

/// Why a time is no instant.
#[derive(Debug, thiserror::Error)]
pub enum Unplaced {
    #[error("this time is not in the years 0 to 9999: write another one")]
    TooFar,
    #[error("{0}; or write the time with its offset, such as 2026-12-01T14:03:00Z")]
    UnknownZone(#[from] ZoneError),
}

impl GivenTime {
    pub const NOW: Self = Self::FromNow(TimeDelta::zero());

    /// Whether it is another instant tomorrow.
    pub fn is_of_now(self) -> bool {
        match self {
            Self::FromNow(_) => true,
            Self::Instant(_) => false,
            Self::Day(day) | Self::Clock(day, _) => matches!(day, GivenDay::FromToday(_)),
        }
    }

    /// Whether a calendar says which instant it is.
    pub fn needs_calendar(self) -> bool {
        match self {
            Self::Instant(_) | Self::FromNow(_) => false,
            Self::Day(_) | Self::Clock(..) => true,
        }
    }
}

impl GivenPlace {
    /// The time, unless the place is a position.
    pub fn time(self) -> Option<GivenTime> {
        match self {
            Self::Position(_) => None,
            Self::Time(time) => Some(time),
        }
    }
}

impl TimeOrNone {
    pub fn time(self) -> Option<GivenTime> {
        match self {
            Self::Time(time) => Some(time),
            Self::None => None,
        }
    }
}

impl FromStr for TimeOrNone {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        match text {
            "none" => Ok(Self::None),
            _ => text.parse().map(Self::Time),
        }
    }
}

impl FromStr for EffectTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        match text {
            "next_window" => Ok(Self::NextWindow),
            _ => text.parse().map(Self::Time),
        }
    }
}

impl FromStr for GivenTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        let instant = |text| DateTime::parse_from_rfc3339(text).ok();
        let found = match text {
            "now" => Some(Self::NOW),
            _ => span(text)
                .map(Self::FromNow)
                .or_else(|| Some(Self::Instant(instant(text)?.to_utc())))
                .or_else(|| Some(Self::Day(text.parse().ok()?)))
                .or_else(|| Some(Self::Clock(GivenDay::FromToday(0), clock(text)?)))
                .or_else(|| {
                    let (day, time) = text.split_once(['T', ' '])?;
                    Some(Self::Clock(day.parse().ok()?, clock(time)?))
                }),
        };
        found.ok_or(NoTime)
    }
}

impl FromStr for GivenDay {
    type Err = NoDay;

    fn from_str(text: &str) -> Result<Self, NoDay> {
        match text {
            "yesterday" => Ok(Self::FromToday(-1)),
            "today" => Ok(Self::FromToday(0)),
            "tomorrow" => Ok(Self::FromToday(1)),
            _ => date(text).map(Self::Date).ok_or(NoDay),
        }
    }
}

impl FromStr for GivenPlace {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let position = text.parse().map(Self::Position);
        match position {
            Ok(position) if is_made_of(text, "") => Ok(position),
            _ => text.parse().map(Self::Time).map_err(|_| NoPlace),
        }
    }
}

/// Whether a text has only digits and these characters.
fn is_made_of(text: &str, others: &str) -> bool {
    let mut characters = text.chars();
    characters.all(|character| character.is_ascii_digit() || others.contains(character))
}

/// A date in ISO 8601. chrono alone would accept blanks, and years of other lengths.
fn date(text: &str) -> Option<NaiveDate> {
    let is_shaped = text.len() == 10 && is_made_of(text, "-") && !text.starts_with('-');
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    date.filter(|_| is_shaped)
}

/// `14:03` or `14:03:05`.
fn clock(text: &str) -> Option<NaiveTime> {
    let forms = ["%H:%M", "%H:%M:%S"].into_iter();
    let mut times = forms.filter_map(|form| NaiveTime::parse_from_str(text, form).ok());
    // chrono reads 23:59:60 as a leap second.
    let time = times.next().filter(|time| time.nanosecond() == 0);
    time.filter(|_| is_made_of(text, ":"))
}

/// `+2h` or `-30m`. A day has 24 hours here, and a week has seven such days.
fn span(text: &str) -> Option<TimeDelta> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (count, unit) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    let count: i64 = count.parse().ok().filter(|_| is_made_of(count, ""))?;
    TimeDelta::try_seconds(sign * count.checked_mul(seconds)?)
}

/// The calendar in which times are read, and the present instant.
#[derive(Debug)]
pub struct LocalNow {
    /// This machine may not know the zone. It matters only to times that need it.
    pub calendar: Result<Calendar, ZoneError>,
    pub now: DateTime<Utc>,
}

impl LocalNow {
    /// Which instant a time is.
    ///
    /// If clocks show the time twice on that date, it is the first time. If clocks skip it, it is the instant of
    /// the change. A day starts as the calendar says, so a date that the zone skipped starts with the next date.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn instant(&self, given: GivenTime) -> Result<DateTime<Utc>, Unplaced> {
        let found = match given {
            GivenTime::Instant(instant) => Some(instant),
            GivenTime::FromNow(span) => self.now.checked_add_signed(span),
            GivenTime::Day(day) => Some(self.calendar()?.day_start(self.date(day)?)),
            GivenTime::Clock(day, time) => {
                let zone = &self.calendar()?.zone;
                let date = from(zone.local(self.now).date(), day)?;
                Some(zone.first_instant(date.and_time(time)))
            }
        };
        let found = found.filter(|instant| (0..=9999).contains(&instant.year()));
        found.ok_or(Unplaced::TooFar)
    }

    /// An instant as the server takes it, if a time was given.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn instant_text(&self, given: Option<GivenTime>) -> Result<Option<String>, Unplaced> {
        let instant = given.map(|given| self.instant(given)).transpose()?;
        Ok(instant.map(written))
    }

    /// The date of a local day. Today is the day that the calendar is in: before the time at which a day begins,
    /// it is the date before that of clocks.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn date(&self, day: GivenDay) -> Result<NaiveDate, Unplaced> {
        if let GivenDay::Date(date) = day {
            return Ok(date);
        }
        let calendar = self.calendar()?;
        let window = calendar.window(Length::Day, self.now);
        from(calendar.local_date(Length::Day, window), day)
    }

    /// The bound of a list, if one was given. The server knows when the local days of a policy begin, so a day of a
    /// policy stays a date.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn bound(
        &self,
        given: Option<GivenTime>,
        is_of_policy: bool,
    ) -> Result<Option<String>, Unplaced> {
        match given {
            Some(GivenTime::Day(day)) if is_of_policy => Ok(Some(self.date(day)?.to_string())),
            given => self.instant_text(given),
        }
    }

    /// When a change takes effect, as the server takes it.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn effect(&self, given: EffectTime) -> Result<String, Unplaced> {
        match given {
            EffectTime::NextWindow => Ok("next_window".to_owned()),
            EffectTime::Time(GivenTime::NOW) => Ok("now".to_owned()),
            EffectTime::Time(GivenTime::Day(day)) => Ok(self.date(day)?.to_string()),
            EffectTime::Time(time) => Ok(written(self.instant(time)?)),
        }
    }

    /// A place as the server takes it, if one was given.
    ///
    /// # Errors
    /// [`Unplaced`].
    pub fn place(&self, given: Option<GivenPlace>) -> Result<Option<String>, Unplaced> {
        match given {
            Some(GivenPlace::Position(position)) => Ok(Some(position.to_string())),
            given => self.instant_text(given.and_then(GivenPlace::time)),
        }
    }

    fn calendar(&self) -> Result<&Calendar, ZoneError> {
        self.calendar.as_ref().map_err(Clone::clone)
    }
}

/// A day, where this is today.
fn from(today: NaiveDate, day: GivenDay) -> Result<NaiveDate, Unplaced> {
    match day {
        GivenDay::Date(date) => Ok(date),
        GivenDay::FromToday(days) => {
            let days = TimeDelta::days(days);
            today.checked_add_signed(days).ok_or(Unplaced::TooFar)
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::Weekday;
    use proptest::prelude::*;

    use super::*;
    use domain::zone::Zone;

    /// Now, in a zone where a day begins at an hour.
    fn local(zone: &str, hour: u32, now: &str) -> LocalNow {
        LocalNow {
            calendar: Ok(Calendar {
                zone: Zone::parse(zone).unwrap(),
                day_starts_at: NaiveTime::from_hms_opt(hour, 0, 0).unwrap(),
                week_starts_on: Weekday::Mon,
                anchor: None,
            }),
            now: now.parse().unwrap(),
        }
    }

    fn told(local: &LocalNow, text: &str) -> String {
        written(local.instant(text.parse().unwrap()).unwrap())
    }

    #[test]
    fn times_are_read_in_the_calendar() {
        // It is 02:04 on the 22nd in Shanghai.
        let now = local("Asia/Shanghai", 0, "2026-11-21T18:04:05Z");
        for (text, instant) in [
            ("now", "2026-11-21T18:04:05Z"),
            ("+2h", "2026-11-21T20:04:05Z"),
            ("-30m", "2026-11-21T17:34:05Z"),
            ("-1d", "2026-11-20T18:04:05Z"),
            ("+1w", "2026-11-28T18:04:05Z"),
            ("-5s", "2026-11-21T18:04:00Z"),
            ("today", "2026-11-21T16:00:00Z"),
            ("yesterday", "2026-11-20T16:00:00Z"),
            ("tomorrow", "2026-11-22T16:00:00Z"),
            ("14:03", "2026-11-22T06:03:00Z"),
            ("9:05", "2026-11-22T01:05:00Z"),
            ("14:03:05", "2026-11-22T06:03:05Z"),
            ("yesterday 14:03", "2026-11-21T06:03:00Z"),
            ("2026-12-01", "2026-11-30T16:00:00Z"),
            ("2026-12-01T14:03", "2026-12-01T06:03:00Z"),
            ("2026-12-01 14:03", "2026-12-01T06:03:00Z"),
            ("2026-12-01T14:03:00Z", "2026-12-01T14:03:00Z"),
            ("2026-12-01T14:03:00.5+01:00", "2026-12-01T13:03:00.500Z"),
        ] {
            assert_eq!(told(&now, text), instant, "{text}");
        }
    }

    /// `today` is a day of the policy. A time of the clock is on the date that clocks show.
    #[test]
    fn a_day_begins_where_the_policy_says() {
        let now = local("Asia/Shanghai", 6, "2026-11-21T18:04:05Z");
        assert_eq!(told(&now, "today"), "2026-11-20T22:00:00Z");
        assert_eq!(told(&now, "2026-12-01"), "2026-11-30T22:00:00Z");
        assert_eq!(told(&now, "14:03"), "2026-11-22T06:03:00Z");
        let bound = |text: &str| now.bound(text.parse().ok(), true).unwrap().unwrap();
        assert_eq!(bound("today"), "2026-11-21");
        assert_eq!(bound("tomorrow"), "2026-11-22");
        assert_eq!(bound("2026-12-01"), "2026-12-01");
        assert_eq!(bound("14:03"), "2026-11-22T06:03:00Z");
    }

    /// Clocks in Berlin skip 02:00 to 03:00 on 29 March 2026, and show this hour twice on 25 October.
    #[test]
    fn a_skipped_time_is_the_change_and_a_time_that_comes_twice_is_the_first() {
        let now = local("Europe/Berlin", 0, "2026-03-29T12:00:00Z");
        for (text, instant) in [
            ("01:59", "2026-03-29T00:59:00Z"),
            ("02:00", "2026-03-29T01:00:00Z"),
            ("02:30", "2026-03-29T01:00:00Z"),
            ("03:00", "2026-03-29T01:00:00Z"),
            ("2026-10-25T02:30", "2026-10-25T00:30:00Z"),
            ("2026-10-25T03:00", "2026-10-25T02:00:00Z"),
            ("-1d", "2026-03-28T12:00:00Z"),
        ] {
            assert_eq!(told(&now, text), instant, "{text}");
        }
        // Clocks in Santiago skip midnight of 6 September 2026: the day begins at the change.
        let now = local("America/Santiago", 0, "2026-09-06T12:00:00Z");
        assert_eq!(told(&now, "today"), "2026-09-06T04:00:00Z");
        // Apia skipped 30 December 2011.
        let now = local("Pacific/Apia", 0, "2026-09-06T12:00:00Z");
        assert_eq!(told(&now, "2011-12-30"), told(&now, "2011-12-31"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for wrong in [
            "",
            "soon",
            "Today",
            "24:00",
            "14:60",
            "23:59:60",
            " 9:05",
            "1403",
            "2026-12-1",
            "2026-02-30",
            "+2026-12-01",
            "2026-12-01T",
            "T14:03",
            "now 14:03",
            "2h",
            "+h",
            "+-2h",
            "+2",
            "+2y",
            "+2.5h",
            "+9223372036854775807w",
            "+é",
        ] {
            assert!(wrong.parse::<GivenTime>().is_err(), "{wrong}");
        }
        for wrong in ["", "14:03", "now", "-1d", "2026-12-01T14:03:00Z"] {
            assert!(wrong.parse::<GivenDay>().is_err(), "{wrong}");
        }
        let now = local("Asia/Shanghai", 0, "2026-11-21T18:04:05Z");
        for far in [
            "+9000000d",
            "-9000000d",
            "0000-01-01",
            "9999-12-31T23:59:59-00:01",
        ] {
            assert!(now.instant(far.parse().unwrap()).is_err(), "{far}");
        }
    }

    #[test]
    fn an_unknown_zone_matters_to_those_who_need_it() {
        let now = LocalNow {
            calendar: Err(Zone::parse("Asia/Shangai").unwrap_err()),
            now: "2026-11-21T18:04:05Z".parse().unwrap(),
        };
        assert_eq!(told(&now, "-1d"), "2026-11-20T18:04:05Z");
        assert_eq!(
            now.date(date("2026-12-01").map(GivenDay::Date).unwrap())
                .unwrap()
                .to_string(),
            "2026-12-01"
        );
        for needs in ["14:03", "today", "2026-12-01"] {
            let fault = now.instant(needs.parse().unwrap()).unwrap_err().to_string();
            assert!(fault.contains("did you mean Asia/Shanghai"), "{fault}");
        }
    }

    #[test]
    fn a_change_takes_effect_at_a_word_a_date_or_an_instant() {
        let now = local("Asia/Shanghai", 6, "2026-11-21T18:04:05Z");
        let told = |text: &str| now.effect(text.parse().unwrap()).unwrap();
        for (text, effect) in [
            ("now", "now"),
            ("next_window", "next_window"),
            ("tomorrow", "2026-11-22"),
            ("2026-12-01", "2026-12-01"),
            ("23:00", "2026-11-22T15:00:00Z"),
        ] {
            assert_eq!(told(text), effect, "{text}");
        }
        assert!("soon".parse::<EffectTime>().is_err());
        assert_eq!("none".parse::<TimeOrNone>().unwrap().time(), None);
    }

    #[test]
    fn a_place_is_a_position_or_a_time() {
        let now = local("Asia/Shanghai", 0, "2026-11-21T18:04:05Z");
        let told = |text: &str| now.place(text.parse().ok()).unwrap().unwrap();
        assert_eq!(told("1842"), "1842");
        assert_eq!(told("today"), "2026-11-21T16:00:00Z");
        for wrong in ["", "-1", "+1", "x", "99999999999999999999"] {
            assert!(wrong.parse::<GivenPlace>().is_err(), "{wrong}");
        }
    }

    proptest! {
        /// What clocks show is read as an instant at which they show it, unless they skip it.
        #[test]
        fn a_clock_time_is_shown_by_clocks_at_its_instant(
            zone in prop_oneof![
                Just("Europe/Berlin"), Just("America/New_York"), Just("Australia/Lord_Howe"),
                Just("Africa/Casablanca"), Just("Asia/Kathmandu"), Just("UTC"),
            ],
            minute in 0..60_i64 * 24 * 365 * 12,
        ) {
            let start: DateTime<Utc> = "2020-01-01T00:00:00Z".parse().unwrap();
            let local = local(zone, 0, "2026-11-21T18:04:05Z");
            let shown = (start + TimeDelta::minutes(minute)).naive_utc();
            let text = shown.format("%Y-%m-%dT%H:%M").to_string();
            let instant = local.instant(text.parse().unwrap()).unwrap();
            let zone = &local.calendar().unwrap().zone;
            let before = instant - TimeDelta::nanoseconds(1);
            prop_assert!(zone.local(instant) >= shown);
            prop_assert!(zone.latest_local(before) < shown);
            let is_change = zone.offset(before) != zone.offset(instant);
            prop_assert!(is_change || zone.local(instant) == shown);
        }

        /// Every instant is read as itself, and every text is read or refused, without a panic.
        #[test]
        fn an_instant_is_read_as_itself(seconds in -62_000_000_000_i64..253_000_000_000) {
            let local = local("Asia/Shanghai", 6, "2026-11-21T18:04:05Z");
            let instant = DateTime::from_timestamp(seconds, 0).unwrap();
            prop_assert_eq!(told(&local, &written(instant)), written(instant));
        }

        #[test]
        fn no_text_breaks_it(text in "[-+0-9a-zT: é]{0,24}") {
            let local = local("America/Santiago", 6, "2026-09-06T12:00:00Z");
            if let Ok(given) = text.parse::<GivenTime>() {
                let _ = local.instant(given);
                let _ = local.bound(Some(given), true);
            }
        }
    }
}
