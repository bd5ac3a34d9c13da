//! Levels of use. The entry that brings a limit to one of them, or beyond it, is marked with it.

use std::fmt;

use super::limit::total::Total;

/// The levels that a policy can choose, in percent of a limit's most units at once.
pub const LEVELS: [u8; 8] = [50, 60, 70, 75, 80, 90, 95, 100];

/// Some of the [`LEVELS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Levels {
    /// One bit for each level, the lowest for the first.
    bits: u8,
}

/// The number is none of the levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no level; write some of 50, 60, 70, 75, 80, 90, 95 and 100, in percent")]
pub struct WrongLevel(pub i128);

impl Levels {
    /// # Errors
    /// [`WrongLevel`].
    pub fn of(percents: &[i128]) -> Result<Self, WrongLevel> {
        let mut levels = Self::default();
        for percent in percents {
            let place = LEVELS
                .iter()
                .position(|level| i128::from(*level) == *percent);
            levels.bits |= 1 << place.ok_or(WrongLevel(*percent))?;
        }
        Ok(levels)
    }

    /// The levels of these bits, the lowest for the first level.
    pub fn of_bits(bits: u8) -> Self {
        Self { bits }
    }

    pub fn bits(self) -> u8 {
        self.bits
    }

    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// In percent, the lowest first.
    pub fn percents(self) -> impl Iterator<Item = u8> {
        let all = LEVELS.into_iter().enumerate();
        all.filter_map(move |(place, level)| (self.bits & (1 << place) != 0).then_some(level))
    }

    /// The levels of these that limits reach between two states. Both have the same limits in the same order.
    pub fn crossed(self, before: &[Total], after: &[Total]) -> Self {
        let mut bits = 0;
        for (before, after) in before.iter().zip(after) {
            let used_before = u128::from(before.used()) * 100;
            let used = u128::from(after.used()) * 100;
            for (place, level) in LEVELS.into_iter().enumerate() {
                let reached = u128::from(after.at_once()) * u128::from(level);
                if reached > 0 && used_before < reached && reached <= used {
                    bits |= 1 << place;
                }
            }
        }
        Self {
            bits: bits & self.bits,
        }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, percent) in self.percents().enumerate() {
            let between = if place == 0 { "" } else { "," };
            write!(formatter, "{between}{percent}")?;
        }
        Ok(())
    }
}
