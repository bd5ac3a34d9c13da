//! Durations of elapsed time, in whole seconds.

use std::fmt;
use std::str::FromStr;

use chrono::TimeDelta;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_comes_back_as_it_was(seconds in 1u64..=400 * 86_400) {
            let elapsed = Elapsed::from_seconds(seconds).unwrap();
            prop_assert_eq!(elapsed.to_string().parse(), Ok(elapsed));
        }
    }
}
