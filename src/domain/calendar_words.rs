//! How days, times of the day and weekdays are written.

use chrono::{NaiveDate, NaiveTime, Timelike, Weekday};

/// Reads `YYYY-MM-DD`. Other forms of a date are not written again as they were.
pub fn parse_date(text: &str) -> Option<NaiveDate> {
    let date: NaiveDate = text.parse().ok()?;
    (date.to_string() == text).then_some(date)
}

/// Reads `HH:MM`.
pub fn parse_minute(text: &str) -> Option<NaiveTime> {
    let shaped = text.len() == 5 && text.as_bytes()[2] == b':';
    shaped
        .then(|| NaiveTime::parse_from_str(text, "%H:%M").ok())
        .flatten()
}

/// Reads the English name of a weekday, in lower case.
pub fn parse_weekday(text: &str) -> Option<Weekday> {
    WEEKDAYS
        .into_iter()
        .find_map(|(weekday, name)| (name == text).then_some(weekday))
}

/// `HH:MM`.
pub fn format_minute(time: NaiveTime) -> String {
    format!("{:02}:{:02}", time.hour(), time.minute())
}

/// The English name of a weekday, in lower case.
pub fn weekday_name(weekday: Weekday) -> &'static str {
    WEEKDAYS[weekday.num_days_from_monday() as usize].1
}

/// The weekdays from Monday on, with their English names in lower case.
pub const WEEKDAYS: [(Weekday, &str); 7] = [
    (Weekday::Mon, "monday"),
    (Weekday::Tue, "tuesday"),
    (Weekday::Wed, "wednesday"),
    (Weekday::Thu, "thursday"),
    (Weekday::Fri, "friday"),
    (Weekday::Sat, "saturday"),
    (Weekday::Sun, "sunday"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(
            parse_date("2024-02-29"),
            NaiveDate::from_ymd_opt(2024, 2, 29)
        );
        for wrong in [
            "2026-1-5",
            "2026-02-30",
            "+2026-01-05",
            " 2026-01-05",
            "monday",
            "",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_of_day() {
        assert_eq!(parse_minute("06:30"), NaiveTime::from_hms_opt(6, 30, 0));
        for wrong in [
            "6:30", "24:00", "06:60", "06:30:00", "+6:30", "0630", "é:30",
        ] {
            assert_eq!(parse_minute(wrong), None, "{wrong}");
        }
        assert_eq!(format_minute(parse_minute("23:59").unwrap()), "23:59");
    }
}
