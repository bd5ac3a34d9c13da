//! Windows by their definition: all instants with the same name in local time. chrono-tz has the
//! rules of the zones.

use chrono::{
    DateTime, Datelike, Days, FixedOffset, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta,
    Timelike as _, Utc, Weekday,
};
use chrono_tz::Tz;

use super::totals::micros;

/// The start of a policy's windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    pub zone: Zone,
    pub day_starts_at: NaiveTime,
    pub week_starts_on: Weekday,
    /// The day from which windows of several days are counted.
    pub anchor: Option<NaiveDate>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Zone {
    Fixed(FixedOffset),
    Named(Tz),
}

impl Zone {
    /// Parses the name of a zone, such as `+08:00`, `GMT+8`, `UTC` and `Asia/Kolkata`.
    pub fn parse(name: &str) -> Self {
        if let Ok(zone) = name.parse() {
            return Self::Named(zone);
        }
        let offset = name.trim_start_matches("GMT").trim_start_matches("UTC");
        let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "0"));
        let number = |text: &str| text.parse::<i32>().expect("a zone");
        let sign = if hours.starts_with('-') { -1 } else { 1 };
        let seconds = number(hours) * 3600 + sign * number(minutes) * 60;
        Self::Fixed(FixedOffset::east_opt(seconds).expect("an offset"))
    }

    fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        match self {
            Self::Fixed(offset) => at.with_timezone(offset).naive_local(),
            Self::Named(zone) => at.with_timezone(zone).naive_local(),
        }
    }
}

/// The number of a window of several days that is counted from a day.
fn number_after(anchor: NaiveDate, per: &str, date: NaiveDate) -> Option<i64> {
    let days = (date - anchor).num_days();
    // How many times the day of the month has come since then: on the last day of a month that is too short.
    let months = || {
        let last = date.with_day(1).expect("a day") + Months::new(1) - Days::new(1);
        let has_come = date.day() >= anchor.day().min(last.day());
        let months = |date: NaiveDate| i64::from(date.year()) * 12 + i64::from(date.month0());
        months(date) - months(anchor) - i64::from(!has_come)
    };
    match per {
        "week" => Some(days.div_euclid(7)),
        "month" => Some(months()),
        "quarter" => Some(months().div_euclid(3)),
        "year" => Some(months().div_euclid(12)),
        other => {
            let (weeks, _) = other.split_once(" weeks from ")?;
            let weeks: i64 = weeks.parse().expect("a number");
            Some(days.div_euclid(7 * weeks))
        }
    }
}

/// The zone and the anchor that an account has of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Own {
    pub zone: Option<Zone>,
    pub anchor: Option<NaiveDate>,
}

impl Own {
    /// Reads what stands before the totals of a line, and the totals.
    pub fn parse(line: &str) -> (Self, &str) {
        let Some((own, totals)) = line.strip_prefix('@').and_then(|line| line.split_once(';'))
        else {
            return (Self::default(), line);
        };
        let (zone, anchor) = own.split_once(',').expect("a zone and an anchor");
        let anchor = (!anchor.is_empty()).then(|| anchor.parse().expect("days"));
        let own = Self {
            zone: (!zone.is_empty()).then(|| Zone::parse(zone)),
            anchor: anchor.and_then(NaiveDate::from_epoch_days),
        };
        (own, totals)
    }
}

impl Calendar {
    /// The calendar of an account that has something of its own.
    pub fn of(&self, own: &Own) -> Self {
        Self {
            zone: own.zone.unwrap_or(self.zone),
            anchor: own.anchor,
            ..self.clone()
        }
    }

    /// The name of a window: equal for all instants of the window, and different for all others.
    pub fn name(&self, per: &str, at: DateTime<Utc>) -> i64 {
        let local = self.zone.local(at);
        let seconds = local.and_utc().timestamp();
        let date = self.date(at);
        let days = i64::from(date.num_days_from_ce());
        if let Some(anchor) = self.anchor
            && let Some(number) = number_after(anchor, per, date)
        {
            return number;
        }
        match per {
            "minute" => seconds.div_euclid(60),
            "hour" => seconds.div_euclid(3600),
            "day" => days,
            // Day 1 of the common era was a Monday.
            "week" => {
                (days - 1 - i64::from(self.week_starts_on.num_days_from_monday())).div_euclid(7)
            }
            "month" => i64::from(date.year()) * 12 + i64::from(date.month0()),
            "quarter" => i64::from(date.year()) * 4 + i64::from(date.month0() / 3),
            "year" => i64::from(date.year()),
            "ever" => 0,
            other => match other.split_once(" weeks from ") {
                Some((weeks, from)) => {
                    let from: i64 = from.parse().expect("a day");
                    let weeks: i64 = weeks.parse().expect("a number");
                    let since_1970 = i64::from(date.to_epoch_days());
                    (since_1970 - from).div_euclid(7 * weeks)
                }
                None => {
                    let part = micros(other).expect("a part of a day") / 1_000_000;
                    let into_day =
                        seconds - i64::from(self.day_starts_at.num_seconds_from_midnight());
                    into_day.div_euclid(part)
                }
            },
        }
    }

    /// The local date at an instant.
    pub fn date(&self, at: DateTime<Utc>) -> NaiveDate {
        (self.zone.local(at) - (self.day_starts_at - NaiveTime::MIN)).date()
    }

    /// Whether a span of instants is exactly one window.
    pub fn has_window(&self, per: &str, start: DateTime<Utc>, end: DateTime<Utc>) -> bool {
        let name = |at| self.name(per, at);
        let moment = TimeDelta::microseconds(1);
        let own = name(start);
        name(end - moment) == own && name(start - moment) != own && name(end) != own
    }
}
