//! Why a claim is not granted, or a correction not made.

use chrono::{DateTime, Utc};

use super::limit::per::Per;
use super::limit::total::{NotUsed, TooMany, Total};
use super::policy::Inactive;

/// Why a claim is not granted, or a correction not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The policy takes no more claims.
    Archived,
    /// The policy grants nothing just now.
    Inactive(Inactive),
    /// The units are more than fit into a limit at once, also without an override that lowers it:
    /// they could never fit.
    NeverFits {
        per: Per,
        /// The most that fit at once.
        max: u64,
    },
    /// Some window lacks room: the totals as they stand, the policy's limits in order.
    Denied(Vec<Total>),
    /// More units would be used in some window than can be counted.
    TooMany,
    /// The correction cannot be made.
    NotCorrected(CorrectionRefusal),
}

impl From<CorrectionRefusal> for Refusal {
    fn from(refusal: CorrectionRefusal) -> Self {
        Self::NotCorrected(refusal)
    }
}

impl From<NotUsed> for Refusal {
    fn from(not_used: NotUsed) -> Self {
        CorrectionRefusal::NotUsed(not_used).into()
    }
}

impl From<TooMany> for Refusal {
    fn from(TooMany: TooMany) -> Self {
        Self::TooMany
    }
}

/// Why a correction is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorrectionRefusal {
    /// Only a hold can be confirmed.
    NotAHold,
    /// The grant's units were given back at this instant.
    Reversed(DateTime<Utc>),
    /// The hold lapsed at this instant, before it was confirmed.
    Lapsed(DateTime<Utc>),
    /// There is nothing to give back: the hold lapsed at this instant.
    GivenBack(DateTime<Utc>),
    /// Fewer units are used than are to be taken off.
    NotUsed(NotUsed),
}
