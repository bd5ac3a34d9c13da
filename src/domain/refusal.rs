//! The reasons to refuse a claim or a correction.

use chrono::{DateTime, Utc};

use super::blocks::BlockTerms;
use super::claim::Units;
use super::grant::{GrantEnd, Line};
use super::limit::per::Per;
use super::limit::total::{NotUsed, TooMany, Total};
use super::policy::Inactive;
use super::shared::SharedTotal;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    Archived,
    /// The subject is blocked.
    Blocked(BlockTerms),
    /// The policy is not active now.
    Inactive(Inactive),
    /// The claim has more units than fit into a limit at once, even without an override that lowers
    /// the limit: it could never be granted.
    NeverFits {
        per: Per,
        /// The most units that fit at once.
        max: u64,
    },
    /// A calendar for the subject, under a policy whose own calendar divides time.
    NoOwnCalendar,
    /// A window has no room.
    Denied(DeniedClaim),
    /// The usage of a window would be larger than perdiem can count.
    TooMany,
    /// The grant of the claim's `Idempotency-Key` has ended.
    Ended(GrantEnd),
    NotCorrected(CorrectionRefusal),
}

/// A claim that a window has no room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedClaim {
    /// The units that the limits had to have room for: those that no top-up has.
    pub own_units: u64,
    /// The present totals, in the order of the policy's limits.
    pub totals: Box<[Total]>,
    /// The line that the claim was decided on; `None` for an account without entries. The number is
    /// 0 where Redis decided: it knows the totals alone.
    pub last: Option<Line>,
    /// The limits that all subjects share, if they lack room and the subject itself has some.
    pub shared: Box<[SharedTotal]>,
}

impl DeniedClaim {
    /// The limits of the subject that lack room, with the instants from which on they have it if nothing more is
    /// granted.
    pub fn lacking(&self) -> impl Iterator<Item = (&Total, Option<DateTime<Utc>>)> {
        lacking(&self.totals, self.own_units)
    }

    /// Whether the subject itself has room: what all subjects share is used up.
    pub fn has_own_room(&self) -> bool {
        !self.shared.is_empty()
    }
}

/// The limits without room for some units, with the instants from which on they have it.
pub fn lacking(
    totals: &[Total],
    own_units: u64,
) -> impl Iterator<Item = (&Total, Option<DateTime<Utc>>)> {
    let units = Units::new(own_units.into()).ok();
    let lacks = move |total: &&Total| units.is_some_and(|units| !total.fits(units));
    let fits_at = move |total: &Total| units.and_then(|units| total.fits_at(units));
    totals
        .iter()
        .filter(lacks)
        .map(move |total| (total, fits_at(total)))
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorrectionRefusal {
    NotAHold,
    /// The units of the grant were given back at this instant.
    Reversed(DateTime<Utc>),
    Lapsed(DateTime<Utc>),
    /// The hold lapsed at this instant: nothing can be given back.
    GivenBack(DateTime<Utc>),
    /// Only so many units of the grant are left.
    FewerLeft(u64),
    /// The hold was confirmed with these units.
    ConfirmedOther(Units),
    /// The grant has as many partial reversals as a grant can have.
    TooManyParts,
    /// The subject of the grant was erased, and keys with it: a part could be given back twice.
    ErasedInParts,
    /// The adjustment would take off more units than are used.
    NotUsed(NotUsed),
    /// The policy has no limit with the name in a reset.
    NoSuchLimit(Per),
    /// Nothing is used of the limit in a reset, or of any limit.
    NothingUsed(Option<Per>),
    /// A top-up under a policy by which Redis decides alone.
    NoTopUps,
    /// The account has as many top-ups as it can have.
    TooManyTopUps,
    /// The end of a top-up has passed.
    EndHasPassed,
    /// The account has no top-up with this id of which something is left.
    NothingLeft,
}
