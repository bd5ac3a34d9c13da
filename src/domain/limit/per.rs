//! `per`, the name of a limit: a word of the calendar, a number of weeks, or a duration.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::elapsed::Elapsed;
use crate::window::{Division, Length, Weeks};

/// The name of a limit. Invariant: no two limits of a policy have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Per {
    /// A window of the local calendar.
    Calendar(Length),
    /// A run of weeks, such as `2 weeks`.
    Weeks(Weeks),
    /// One window without an end.
    Ever,
    /// A duration: elapsed time, or parts of a local day.
    Elapsed(Elapsed),
}

impl Per {
    /// The word for the window without an end.
    pub const EVER: &'static str = "ever";

    /// What follows the number of weeks.
    const WEEKS: &'static str = " weeks";

    /// The name as text. The text of a duration or of weeks needs memory of its own.
    pub fn as_text(&self) -> Cow<'static, str> {
        match self {
            Self::Calendar(length) => length.as_str().into(),
            Self::Weeks(weeks) => format!("{}{}", weeks.get(), Self::WEEKS).into(),
            Self::Ever => Self::EVER.into(),
            Self::Elapsed(elapsed) => elapsed.to_string().into(),
        }
    }
}

impl fmt::Display for Per {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.as_text())
    }
}

impl Serialize for Per {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.as_text())
    }
}

impl<'de> Deserialize<'de> for Per {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl From<Length> for Per {
    fn from(length: Length) -> Self {
        Self::Calendar(length)
    }
}

impl From<Division> for Per {
    fn from(division: Division) -> Self {
        match division {
            Division::Length(length) => Self::Calendar(length),
            Division::PartOfDay(part) => Self::Elapsed(part.elapsed()),
            Division::Weeks(run) => Self::Weeks(run.weeks),
        }
    }
}

impl FromStr for Per {
    type Err = UnknownPer;

    /// Reads a word of the calendar in lower case, `ever`, a number of weeks, or a duration.
    fn from_str(text: &str) -> Result<Self, UnknownPer> {
        if text == Self::EVER {
            return Ok(Self::Ever);
        }
        let calendar = || text.parse().map(Self::Calendar).ok();
        let weeks = || {
            let number = text.strip_suffix(Self::WEEKS)?;
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| number.parse().ok()).flatten()?;
            Weeks::new(number).map(Self::Weeks)
        };
        let elapsed = || text.parse().map(Self::Elapsed).ok();
        let per = calendar().or_else(weeks).or_else(elapsed);
        per.ok_or_else(|| UnknownPer {
            given: text.to_owned(),
        })
    }
}

/// The text names no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no limit is per {given:?}; write minute, hour, day, week, month, quarter, year or ever, 2 weeks to 52 \
     weeks, or a duration from 1s to 400d, such as 24h"
)]
pub struct UnknownPer {
    given: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_in_one_way() {
        for (given, written) in [
            ("day", "day"),
            ("ever", "ever"),
            ("1s", "1s"),
            ("60s", "1m"),
            ("90s", "90s"),
            ("3600s", "1h"),
            ("1d", "24h"),
            ("7d", "168h"),
            ("400d", "9600h"),
            ("007m", "7m"),
            ("2 weeks", "2 weeks"),
            ("052 weeks", "52 weeks"),
        ] {
            assert_eq!(given.parse::<Per>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn what_is_no_name_is_told() {
        for wrong in [
            "",
            "s",
            "0s",
            "401d",
            "-1s",
            "+1s",
            "1.5h",
            "1 h",
            "1w",
            "24H",
            "Day",
            "24",
            "1hé",
            "week s",
            "1 weeks",
            "2 week",
            "2weeks",
            "+2 weeks",
            "53 weeks",
            "99999 weeks",
            " weeks",
            "99999999999999999999d",
            "18446744073709551615d",
        ] {
            let error = wrong.parse::<Per>().unwrap_err().to_string();
            assert!(error.contains("write minute, hour"), "{error}");
            assert!(wrong.parse::<Elapsed>().is_err(), "{wrong}");
        }
    }
}
