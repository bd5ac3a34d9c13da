//! Instants and dates, as a page shows them: all of a page in one zone.

use chrono::{
    DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Timelike, Utc,
    Weekday,
};
use maud::{Markup, html};

use api::instant::shown_within;
use api::policies::PolicyAnswer;
use domain::window::{Calendar, Division, Length, Window};
use domain::zone::Zone;

/// The time that clocks show in a zone.
#[derive(Debug, Clone)]
pub struct Local {
    calendar: Calendar,
    name: String,
    now: DateTime<Utc>,
}

impl Local {
    pub fn utc(now: DateTime<Utc>) -> Self {
        Self::of("UTC", now)
    }

    /// The time of a zone; UTC if this machine does not know the zone.
    pub fn of(time_zone: &str, now: DateTime<Utc>) -> Self {
        let zone = Zone::parse(time_zone).or_else(|_| Zone::parse("UTC"));
        let zone = zone.expect("UTC is known everywhere");
        Self {
            name: zone.name().to_owned(),
            calendar: Calendar {
                zone,
                day_starts_at: NaiveTime::MIN,
                week_starts_on: Weekday::Mon,
                anchor: None,
            },
            now,
        }
    }

    /// The same where days and weeks begin as those of a policy.
    pub fn with_calendar_of(mut self, policy: &PolicyAnswer) -> Self {
        let starts = NaiveTime::parse_from_str(&policy.day_starts_at, "%H:%M");
        self.calendar.day_starts_at = starts.unwrap_or(NaiveTime::MIN);
        let weekday = policy.week_starts_on.parse();
        self.calendar.week_starts_on = weekday.unwrap_or(Weekday::Mon);
        self
    }

    /// The name of the zone.
    pub fn zone(&self) -> &str {
        &self.name
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// The local date of the present day.
    pub fn today(&self) -> NaiveDate {
        self.date_of(self.now)
    }

    /// The local date of the day that contains an instant.
    pub fn date_of(&self, instant: DateTime<Utc>) -> NaiveDate {
        let day = self.calendar.window(Length::Day, instant);
        self.calendar.local_date(Length::Day, day)
    }

    /// The day that contains an instant.
    pub fn day(&self, instant: DateTime<Utc>) -> Window {
        self.calendar.window(Length::Day, instant)
    }

    /// The last days, the present one at the end.
    pub fn last_days(&self, count: u64) -> Vec<NaiveDate> {
        let today = self.today();
        let days = (0..count).rev();
        days.filter_map(|back| today.checked_sub_days(Days::new(back)))
            .collect()
    }

    /// The day with a local date.
    pub fn day_on(&self, date: NaiveDate) -> Window {
        Window {
            start: self.calendar.day_start(date),
            end: self.calendar.day_start(date + Days::new(1)),
        }
    }

    /// The end of the window of a calendar limit that contains the present instant.
    pub fn window_end(&self, division: Division) -> DateTime<Utc> {
        self.calendar.window(division, self.now).end
    }

    /// The first instant at which clocks show a time or a later one.
    pub fn instant(&self, local: NaiveDateTime) -> DateTime<Utc> {
        self.calendar.zone.first_instant(local)
    }

    /// The hour of the local clock, from 0 to 23.
    pub fn hour(&self, instant: DateTime<Utc>) -> u32 {
        self.calendar.zone.local(instant).hour()
    }

    /// Such as `2026-11-25 14:03:11 +08:00`; without the date if it is today's.
    pub fn text(&self, instant: DateTime<Utc>) -> String {
        let local = instant.with_timezone(&self.calendar.zone.offset(instant));
        let now = self.now.with_timezone(&self.calendar.zone.offset(self.now));
        let form = if local.date_naive() == now.date_naive() {
            "%H:%M:%S %:z"
        } else {
            "%Y-%m-%d %H:%M:%S %:z"
        };
        local.format(form).to_string()
    }

    pub fn show(&self, instant: DateTime<Utc>) -> Markup {
        let utc = instant.format("%Y-%m-%d %H:%M:%S UTC").to_string();
        html! {
            time datetime=(instant.to_rfc3339_opts(SecondsFormat::Secs, true)) title=(utc) { (self.text(instant)) }
        }
    }

    /// The time of day alone.
    pub fn show_time(&self, instant: DateTime<Utc>) -> Markup {
        let local = instant.with_timezone(&self.calendar.zone.offset(instant));
        let utc = instant.format("%Y-%m-%d %H:%M:%S UTC").to_string();
        html! {
            time datetime=(instant.to_rfc3339_opts(SecondsFormat::Secs, true)) title=(utc) {
                (local.format("%H:%M:%S").to_string())
            }
        }
    }

    /// Such as `in 4 h 12 min` or `12 min ago`.
    pub fn distance(&self, instant: DateTime<Utc>) -> String {
        let delta = instant - self.now;
        match duration(delta.abs()) {
            text if delta > TimeDelta::zero() => format!("in {text}"),
            text => format!("{text} ago"),
        }
    }

    /// A text of an answer, in which each instant is shown in the zone.
    pub fn within(&self, text: &str) -> String {
        shown_within(text, |instant| self.text(instant))
    }
}

/// The two largest units of a length of time.
pub fn duration(delta: TimeDelta) -> String {
    let seconds = delta.num_seconds();
    let two = |large: i64, first: &str, small: i64, second: &str| match small {
        0 => format!("{large} {first}"),
        small => format!("{large} {first} {small} {second}"),
    };
    match seconds {
        ..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min", seconds / 60),
        3600..=86_399 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(zone: &str) -> Local {
        Local::of(zone, "2026-11-25T06:03:11Z".parse().unwrap())
    }

    #[test]
    fn instants_of_today_have_no_date() {
        let local = local("+08:00");
        let at = |text: &str| local.text(text.parse().unwrap());
        assert_eq!(at("2026-11-25T01:02:03Z"), "09:02:03 +08:00");
        assert_eq!(at("2026-11-24T16:00:00Z"), "00:00:00 +08:00");
        assert_eq!(at("2026-11-24T15:59:59Z"), "2026-11-24 23:59:59 +08:00");
        let shown = local.show("2026-11-25T01:02:03Z".parse().unwrap());
        assert_eq!(
            shown.into_string(),
            "<time datetime=\"2026-11-25T01:02:03Z\" title=\"2026-11-25 01:02:03 UTC\">09:02:03 +08:00</time>"
        );
    }

    #[test]
    fn distances_have_two_units_at_most() {
        let local = local("UTC");
        let told = |text: &str| local.distance(text.parse().unwrap());
        assert_eq!(told("2026-11-25T06:03:12Z"), "in 1 s");
        assert_eq!(told("2026-11-25T05:51:11Z"), "12 min ago");
        assert_eq!(told("2026-11-25T10:15:30Z"), "in 4 h 12 min");
        assert_eq!(told("2026-11-24T06:03:11Z"), "1 d ago");
        assert_eq!(told("2026-12-02T09:04:11Z"), "in 7 d 3 h");
    }

    #[test]
    fn the_instants_of_a_text_are_shown_in_the_zone() {
        let text = "used 3 of 3; the next window begins at 2026-11-25T16:00:00Z, not before";
        let shown = local("+08:00").within(text);
        assert_eq!(
            shown,
            "used 3 of 3; the next window begins at 2026-11-26 00:00:00 +08:00, not before"
        );
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let local = Local::of("Europe/Berlin", "2026-03-29T12:00:00Z".parse().unwrap());
        assert_eq!(local.today().to_string(), "2026-03-29");
        let day = local.day(local.now());
        assert_eq!((day.end - day.start).num_hours(), 23);
        assert_eq!(local.day_on(local.today()), day);
        let days = local.last_days(3);
        assert_eq!(days.len(), 3);
        assert_eq!(days[0].to_string(), "2026-03-27");
    }
}
