//! The wrong values of a request, collected and reported at once, and the parsing of values.

use chrono::{DateTime, Datelike, NaiveDate, Utc};

use crate::answer::ApiError;
use api::problem::InvalidPart;
use domain::fault::Fault;
use domain::identity::to_micros;
use domain::policy::check_reason;
use domain::schedule::Effective;
use engine::Bound;

/// Collects the wrong values of parameters and bodies, so that one answer reports all of them.
#[derive(Default)]
pub struct Faults(Vec<InvalidPart>);

impl Faults {
    pub fn add(&mut self, part: InvalidPart) {
        self.0.push(part);
    }

    /// Parses a parameter, if it was given.
    pub fn parameter<T, E: ToString>(
        &mut self,
        name: &'static str,
        text: Option<&String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = parse(text?);
        parsed
            .map_err(|error| self.add(InvalidPart::parameter(name, error)))
            .ok()
    }

    /// Takes a part of the body, if it is right.
    pub fn body<T, E: ToString>(&mut self, pointer: &str, parsed: Result<T, E>) -> Option<T> {
        parsed
            .map_err(|error| self.add(InvalidPart::body(pointer, error)))
            .ok()
    }

    /// Takes a draft in the body that the domain has checked, if it is right.
    pub fn draft<T>(&mut self, checked: Result<T, Vec<Fault>>) -> Option<T> {
        checked
            .map_err(|wrong| self.0.extend(wrong.into_iter().map(InvalidPart::from)))
            .ok()
    }

    /// An instant in the body, if it was given and is right.
    pub fn body_instant(&mut self, pointer: &str, text: Option<&String>) -> Option<DateTime<Utc>> {
        let parsed = text.map(|text| parse_instant(text)).transpose();
        self.body(pointer, parsed).flatten()
    }

    /// An optional reason in the body.
    pub fn reason(&mut self, text: Option<&String>) {
        let checked = text.map_or(Ok(()), |text| check_reason(text));
        self.body("/reason", checked);
    }

    /// An instant in the query.
    pub fn instant(&mut self, name: &'static str, text: Option<&String>) -> Option<DateTime<Utc>> {
        self.parameter(name, text, parse_instant)
    }

    /// A day or an instant in the query.
    pub fn bound(&mut self, name: &'static str, text: Option<&String>) -> Option<Bound> {
        self.parameter(name, text, parse_bound)
    }

    /// The value that was made of the parts, unless a part was wrong.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] with every fault.
    pub fn or<T>(self, made: Option<T>) -> Result<T, ApiError> {
        match made {
            Some(made) if self.0.is_empty() => Ok(made),
            _ => Err(ApiError::Invalid(self.0)),
        }
    }
}

/// Parses a parameter that can only be `true`.
pub fn parse_true(text: &str) -> Result<(), &'static str> {
    match text {
        "true" => Ok(()),
        _ => Err("write true, or leave the parameter out"),
    }
}

/// An instant in RFC 3339, in UTC between the years 0 and 9999.
pub fn parse_instant(text: &str) -> Result<DateTime<Utc>, String> {
    let help = "write an instant in RFC 3339, such as 2026-11-21T00:00:00Z (in a query, write + \
                as %2B)";
    let instant = DateTime::parse_from_rfc3339(text).map_err(|_| help.to_owned())?;
    let instant = instant.to_utc();
    // The offset can move the instant out of the years that RFC 3339 can write.
    match instant.year() {
        0..=9999 => Ok(instant),
        _ => Err("write another instant: in UTC it is outside the years 0 to 9999".to_owned()),
    }
}

fn parse_bound(text: &str) -> Result<Bound, String> {
    let date = parse_date(text).map(Bound::Day);
    date.or_else(|date| {
        let instant = parse_instant(text).map(Bound::Instant);
        instant.map_err(|instant| format!("{instant}; or {date}"))
    })
}

/// When a change takes effect.
pub fn parse_effective(text: &str) -> Result<Effective, String> {
    match text {
        "now" => Ok(Effective::Now),
        "next_window" => Ok(Effective::NextWindow),
        _ => match parse_bound(text) {
            Ok(Bound::Day(date)) => Ok(Effective::Day(date)),
            Ok(Bound::Instant(at)) => Ok(Effective::At(to_micros(at))),
            Err(_) => Err(
                "write now, next_window, a local date such as 2026-12-01, or an instant \
                           such as 2026-12-01T00:00:00Z"
                    .to_owned(),
            ),
        },
    }
}

/// A position in the record, or a revision.
pub fn parse_position(text: &str) -> Result<u64, &'static str> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let position = text.parse().ok().filter(|_| is_number);
    position
        .filter(|position| i64::try_from(*position).is_ok())
        .ok_or("write a position, such as 1842")
}

/// A date in ISO 8601, of the years 0 to 9999.
pub fn parse_date(text: &str) -> Result<NaiveDate, &'static str> {
    // chrono would accept blanks before a number.
    let is_of_dates = |byte: u8| byte.is_ascii_digit() || byte == b'-';
    let is_shaped = text.len() == 10 && !text.starts_with('-') && text.bytes().all(is_of_dates);
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    date.filter(|_| is_shaped)
        .ok_or("write a date, such as 2026-11-21")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let date = parse_date("2028-02-29").unwrap();
        assert_eq!(date.to_string(), "2028-02-29");
        for wrong in [
            "",
            "2027-02-29",
            "2026-1-211",
            "+2026-1-2",
            "20261121",
            "2026-11-21T00:00:00Z",
            " 2026-1-2 ",
            "-001-01-01",
            "2026- 1- 1",
        ] {
            assert!(parse_date(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn instants() {
        for text in ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"] {
            assert!(parse_instant(text).is_ok(), "{text}");
        }
        for wrong in [
            "",
            "2026-11-21",
            "0000-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
        ] {
            assert!(parse_instant(wrong).is_err(), "{wrong}");
        }
    }
}
