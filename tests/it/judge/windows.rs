//! Windows by their definition: all instants with the same name in local time. chrono-tz has the
//! rules of the zones.

use chrono::{
    DateTime, Datelike, FixedOffset, NaiveDateTime, NaiveTime, TimeDelta, Timelike as _, Utc,
    Weekday,
};
use chrono_tz::Tz;

use super::totals::micros;

/// The start of a policy's windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    pub zone: Zone,
    pub day_starts_at: NaiveTime,
    pub week_starts_on: Weekday,
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

impl Calendar {
    /// The name of a window: equal for all instants of the window, and different for all others.
    pub fn name(&self, per: &str, at: DateTime<Utc>) -> i64 {
        let local = self.zone.local(at);
        let seconds = local.and_utc().timestamp();
        let date = (local - (self.day_starts_at - NaiveTime::MIN)).date();
        let days = i64::from(date.num_days_from_ce());
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

    /// Whether a span of instants is exactly one window.
    pub fn has_window(&self, per: &str, start: DateTime<Utc>, end: DateTime<Utc>) -> bool {
        let name = |at| self.name(per, at);
        let moment = TimeDelta::microseconds(1);
        let own = name(start);
        name(end - moment) == own && name(start - moment) != own && name(end) != own
    }
}
