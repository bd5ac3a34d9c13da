//! Orphaned overrides: a change of a policy's limits leaves them without their limit, or beyond its bounds.
//! A subject whose tier the change removes is treated alike.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::limit::shape::OtherMax;
use super::overrides::{Override, OverrideTerms, SubjectTier};
use super::policy::Rule;
use super::subject_tier::TierTerms;

/// What becomes of the overrides that a change of the policy orphans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnOrphans {
    /// They end. The limits that they still have stay overridden.
    Drop,
    /// They stay, without an effect on the limits that they lost. Tiers count again if the policy gets them
    /// back.
    Keep,
}

impl OnOrphans {
    pub const ALL: [Self; 2] = [Self::Drop, Self::Keep];

    /// The name in the HTTP contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Keep => "keep",
        }
    }
}

impl FromStr for OnOrphans {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|choice| choice.as_str() == text);
        found.ok_or("this value is unknown; write drop or keep")
    }
}

/// An override that a change of the policy orphans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanedOverride {
    pub found: Override,
    /// What the override says about limits that do not exist any more, or about limits whose bounds it
    /// exceeds.
    pub lost: Vec<OtherMax>,
}

/// What a change of the policy orphans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphans {
    pub overrides: Vec<OrphanedOverride>,
    /// The tiers of subjects that the policy loses.
    pub tiers: Vec<SubjectTier>,
}

impl Orphans {
    /// Those that would outlast a change at an instant. The others end before they lose anything.
    pub fn lasting(mut self, effective_at: DateTime<Utc>) -> Self {
        self.overrides
            .retain(|it| it.found.in_force(effective_at).is_some());
        self.tiers.retain(|it| it.in_force(effective_at).is_some());
        self
    }

    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty() && self.tiers.is_empty()
    }
}

/// Whether a rule can orphan an override that fits another rule.
pub fn may_orphan(rule: &Rule, before: &Rule) -> bool {
    let mut limits = before.limits.iter();
    limits.any(|old| rule.limits.iter().all(|limit| limit.shape != old.shape))
}

/// Whether a rule lacks a tier of another rule.
pub fn may_orphan_tiers(rule: &Rule, before: &Rule) -> bool {
    let mut tiers = before.tiers.iter();
    tiers.any(|tier| rule.tier(&tier.name).is_none())
}

/// Whether a new rule orphans a subject's tier at `now`. One that the rules `before` lack too, or that has
/// ended, is not told again.
pub fn is_orphaned(found: &SubjectTier, rule: &Rule, before: &[&Rule], now: DateTime<Utc>) -> bool {
    found.in_force(now).is_some_and(|terms| {
        let mut before = before.iter();
        !terms.is_in(rule) && before.any(|before| terms.is_in(before))
    })
}

/// The terms that an orphaned tier of a subject has after a change that takes effect at an instant: it
/// counts until then. `None` if it ends at once.
pub fn dropped_tier(
    found: &SubjectTier,
    effective_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Option<TierTerms> {
    let terms = found.terms.as_ref().filter(|_| effective_at > now)?;
    Some(TierTerms {
        until: Some(effective_at),
        ..terms.clone()
    })
}

impl OrphanedOverride {
    /// The override, if a new rule orphans it at `now`. An override that was already orphaned under the
    /// rules `before`, or that has ended, is not told again.
    pub fn of(found: Override, rule: &Rule, before: &[&Rule], now: DateTime<Utc>) -> Option<Self> {
        let terms = found.in_force(now)?;
        let is_lost =
            |other: &&OtherMax| !other.fits(rule) && before.iter().any(|before| other.fits(before));
        let lost: Vec<OtherMax> = terms.limits.iter().filter(is_lost).copied().collect();
        (!lost.is_empty()).then_some(Self { found, lost })
    }

    /// The terms that the override has after a change that takes effect at an instant. `None` if they
    /// do not change: an override has no effect on limits that it lost.
    pub fn dropped(
        &self,
        effective_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Option<Option<OverrideTerms>> {
        let terms = self.found.terms.as_ref()?;
        let others = terms
            .limits
            .iter()
            .filter(|other| !self.lost.contains(other));
        let others: Vec<OtherMax> = others.copied().collect();
        let is_scheduled = effective_at > now;
        match (others.is_empty(), is_scheduled) {
            (true, false) => Some(None),
            (false, false) => Some(Some(OverrideTerms {
                limits: others,
                until: terms.until,
            })),
            // Until the change takes effect, the override applies.
            (true, true) => Some(Some(OverrideTerms {
                limits: terms.limits.clone(),
                until: Some(effective_at),
            })),
            (false, true) => None,
        }
    }
}
