//! `per`, the name of a limit: a calendar word or a duration.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use chrono::TimeDelta;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::window::Length;

const SECOND: u32 = 1;
const MINUTE: u32 = 60 * SECOND;
const HOUR: u32 = 60 * MINUTE;
const DAY: u32 = 24 * HOUR;

/// A duration of 1 second to 400 days, in whole seconds. Zones and daylight saving do not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Elapsed(u32);

impl Elapsed {
    pub const MAX: Self = Self(400 * DAY);

    /// `None` outside the bounds.
    pub fn from_seconds(seconds: u64) -> Option<Self> {
        let seconds = u32::try_from(seconds).ok()?;
        (1..=Self::MAX.0)
            .contains(&seconds)
            .then_some(Self(seconds))
    }

    pub fn seconds(self) -> u32 {
        self.0
    }

    pub fn micros(self) -> i64 {
        i64::from(self.0) * 1_000_000
    }

    pub fn delta(self) -> TimeDelta {
        TimeDelta::seconds(self.0.into())
    }
}

/// Writes the duration in the largest unit of `h`, `m` and `s` that divides it: `24h`, `90s`.
impl fmt::Display for Elapsed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(HOUR, 'h'), (MINUTE, 'm'), (SECOND, 's')];
        let divides = |(unit, _): &(u32, char)| self.0.is_multiple_of(*unit);
        let (unit, letter) = units.into_iter().find(divides).unwrap_or((SECOND, 's'));
        write!(formatter, "{}{letter}", self.0 / unit)
    }
}

impl Serialize for Elapsed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Elapsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl FromStr for Elapsed {
    type Err = NotElapsed;

    /// Reads a whole number and `s`, `m`, `h` or `d`.
    fn from_str(text: &str) -> Result<Self, NotElapsed> {
        let read = || {
            let unit = match text.chars().next_back()? {
                's' => SECOND,
                'm' => MINUTE,
                'h' => HOUR,
                'd' => DAY,
                _ => return None,
            };
            let number = &text[..text.len() - 1];
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let number: u64 = is_number.then(|| number.parse().ok()).flatten()?;
            Self::from_seconds(number.checked_mul(unit.into())?)
        };
        read().ok_or_else(|| NotElapsed {
            given: text.to_owned(),
        })
    }
}

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no duration; write one from 1s to 400d, such as 90s, 15m, 24h or 7d")]
pub struct NotElapsed {
    given: String,
}

/// The name of a limit. Invariant: no two limits of a policy have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Per {
    /// A window of the local calendar.
    Calendar(Length),
    /// One window without an end.
    Ever,
    /// A duration.
    Elapsed(Elapsed),
}

impl Per {
    /// The word for the window without an end.
    pub const EVER: &'static str = "ever";

    /// The name as text. Only the text of a duration needs memory of its own.
    pub fn as_text(&self) -> Cow<'static, str> {
        match self {
            Self::Calendar(length) => length.as_str().into(),
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

impl FromStr for Per {
    type Err = UnknownPer;

    /// Reads a calendar word in lower case, `ever`, or a duration.
    fn from_str(text: &str) -> Result<Self, UnknownPer> {
        if text == Self::EVER {
            return Ok(Self::Ever);
        }
        let calendar = text.parse().map(Self::Calendar).ok();
        let per = calendar.or_else(|| text.parse().map(Self::Elapsed).ok());
        per.ok_or_else(|| UnknownPer {
            given: text.to_owned(),
        })
    }
}

/// The text names no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no limit is per {given:?}; write minute, hour, day, week, month, quarter, year or ever, or a duration \
     from 1s to 400d, such as 24h"
)]
pub struct UnknownPer {
    given: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            "99999999999999999999d",
            "18446744073709551615d",
        ] {
            let error = wrong.parse::<Per>().unwrap_err().to_string();
            assert!(error.contains("write minute, hour"), "{error}");
            assert!(wrong.parse::<Elapsed>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_duration_comes_back_as_it_was(seconds in 1u64..=400 * 86_400) {
            let elapsed = Elapsed::from_seconds(seconds).unwrap();
            prop_assert_eq!(elapsed.to_string().parse(), Ok(elapsed));
        }
    }
}
