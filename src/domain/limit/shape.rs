//! A limit: its `max`, and how the units that were taken return.

use chrono::NaiveDate;

use super::per::Per;
use crate::elapsed::Elapsed;
use crate::window::{Division, Length};

/// The most units that a total can have: the stores sum this number exactly.
pub const TOTAL_MAX: u64 = i64::MAX as u64;

/// The most limits of a policy, and of an override. Each entry keeps the totals of all limits.
pub const LIMITS_MOST: usize = 10;

/// The most pairs of instant and units that the log of a sliding limit keeps. An exact log needs at most
/// one pair for each unit. A log with a step needs one pair for each step, and one more.
pub const PAIRS_MOST: usize = 101;

/// The largest `max` of a sliding limit without a step.
pub const EXACT_MAX: u64 = PAIRS_MOST as u64 - 1;

/// How the units that were taken return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All units return when the next window of the local calendar begins.
    Calendar(Division),
    /// No unit returns.
    Ever,
    /// All units return after this time, counted from the first grant of the window.
    FromFirstClaim(Elapsed),
    /// Each unit returns `per` after it was taken.
    Sliding {
        per: Elapsed,
        /// Instants are rounded up to multiples of the step.
        step: Option<Elapsed>,
    },
    /// Units return evenly: `max` units in each `per`.
    Rate {
        per: Elapsed,
        /// The most units at once. `None`: as many as `max`.
        burst: Option<u64>,
    },
}

/// The kinds of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    Calendar,
    FromFirstClaim,
    Sliding,
    Rate,
}

impl LimitKind {
    pub const ALL: [Self; 4] = [
        Self::Calendar,
        Self::FromFirstClaim,
        Self::Sliding,
        Self::Rate,
    ];

    /// Its name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calendar => "calendar",
            Self::FromFirstClaim => "from_first_claim",
            Self::Sliding => "sliding",
            Self::Rate => "rate",
        }
    }
}

impl Shape {
    pub fn per(self) -> Per {
        match self {
            Self::Calendar(division) => division.into(),
            Self::Ever => Per::Ever,
            Self::FromFirstClaim(per) | Self::Sliding { per, .. } | Self::Rate { per, .. } => {
                Per::Elapsed(per)
            }
        }
    }

    pub fn kind(self) -> LimitKind {
        match self {
            Self::Calendar(_) | Self::Ever => LimitKind::Calendar,
            Self::FromFirstClaim(_) => LimitKind::FromFirstClaim,
            Self::Sliding { .. } => LimitKind::Sliding,
            Self::Rate { .. } => LimitKind::Rate,
        }
    }

    pub fn step(self) -> Option<Elapsed> {
        match self {
            Self::Sliding { step, .. } => step,
            _ => None,
        }
    }

    /// The kind, where `per` alone does not tell it: a duration is of several kinds.
    pub fn told_kind(self) -> Option<LimitKind> {
        matches!(self.per(), Per::Elapsed(_)).then(|| self.kind())
    }

    /// The date on which a run of weeks begins.
    pub fn first_day(self) -> Option<NaiveDate> {
        match self {
            Self::Calendar(Division::Weeks(run)) => Some(run.from),
            _ => None,
        }
    }

    /// The burst of a rate, if the policy sets it.
    pub fn burst(self) -> Option<u64> {
        match self {
            Self::Rate { burst, .. } => burst,
            _ => None,
        }
    }

    /// Tells whether Redis alone can count this limit. Redis counts an account that it does not know from
    /// zero. Only a new calendar window begins at zero.
    pub fn may_be_counted(self) -> bool {
        matches!(self, Self::Calendar(_))
    }

    /// The most units that fit at once under a `max`.
    pub fn at_once(self, max: u64) -> u64 {
        match self {
            Self::Rate { burst, .. } => burst.unwrap_or(max),
            _ => max,
        }
    }
}

impl From<Length> for Shape {
    fn from(length: Length) -> Self {
        Self::Calendar(length.into())
    }
}

/// A limit of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// 1 … 2^53 − 1. 0 if an override blocks the subject.
    pub max: u64,
    pub shape: Shape,
    /// A claim for more units than this can never fit. If an override is lower, this is the policy's own
    /// bound: the override can end.
    pub ceiling: u64,
}

impl Limit {
    /// A limit that no override lowers.
    pub fn new(max: u64, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        Self {
            max,
            shape,
            ceiling: shape.at_once(max),
        }
    }

    pub fn per(&self) -> Per {
        self.shape.per()
    }

    /// The limit with another `max`.
    pub fn with_max(self, max: u64) -> Self {
        Self {
            max,
            shape: self.shape,
            ceiling: self.ceiling.max(self.shape.at_once(max)),
        }
    }
}

/// Another `max` for the limit with this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherMax {
    /// 0 … 2^53 − 1.
    pub max: u64,
    pub per: Per,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_tells_its_parts() {
        let day: Elapsed = "24h".parse().unwrap();
        let hour: Elapsed = "1h".parse().unwrap();
        let step = Some(hour);
        let burst = Some(20);
        let told = |shape: Shape| {
            let per = shape.per().to_string();
            let kind = shape.kind().as_str();
            (per, kind, shape.step(), shape.burst(), shape.at_once(5))
        };
        let calendar = "calendar";
        let from_first_claim = "from_first_claim";
        for (shape, per, kind, step, burst, at_once) in [
            (Length::Day.into(), "day", calendar, None, None, 5),
            (Shape::Ever, "ever", calendar, None, None, 5),
            (
                Shape::FromFirstClaim(day),
                "24h",
                from_first_claim,
                None,
                None,
                5,
            ),
            (
                Shape::Sliding {
                    per: day,
                    step: None,
                },
                "24h",
                "sliding",
                None,
                None,
                5,
            ),
            (
                Shape::Sliding { per: day, step },
                "24h",
                "sliding",
                step,
                None,
                5,
            ),
            (
                Shape::Rate {
                    per: hour,
                    burst: None,
                },
                "1h",
                "rate",
                None,
                None,
                5,
            ),
            (
                Shape::Rate { per: hour, burst },
                "1h",
                "rate",
                None,
                burst,
                20,
            ),
        ] {
            assert_eq!(told(shape), (per.to_owned(), kind, step, burst, at_once));
            // Redis can lose a counter. Only a limit whose windows begin at zero stays right then.
            let begins_anew = shape == Length::Day.into();
            assert_eq!(shape.may_be_counted(), begins_anew);
        }
    }

    #[test]
    fn another_max_moves_a_burst_that_was_not_given() {
        let per: Elapsed = "1s".parse().unwrap();
        let ceilings = |burst| {
            let limit = Limit::new(5, Shape::Rate { per, burst });
            [0, 3, 9].map(|max| limit.with_max(max).ceiling)
        };
        assert_eq!(ceilings(None), [5, 5, 9]);
        assert_eq!(ceilings(Some(20)), [20, 20, 20]);
        assert_eq!(ceilings(Some(2)), [2, 2, 2]);
    }
}
