//! Overrides: another `max` for one subject of a policy. Blocks and tiers of subjects are stored in the
//! same way.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::blocks::{BlockTerms, SubjectTerms, check_end};
use super::claim::Subject;
use super::fault::Fault;
use super::identity::AccountId;
use super::limit::fit::misfit;
use super::limit::maxima::{MaxDraft, check_maxima, misfit_of};
use super::limit::per::Per;
use super::limit::shape::OtherMax;
use super::policy::{Policy, PolicyId, Rule};
use super::schedule::UnreadableTerms;
use super::subject_tier::TierTerms;

const NO_ZERO: &str = "an override has a max of 1 or more; to deny every claim of a subject, write a \
                       block: PUT /v1/policies/{policy}/blocks/{subject}";

/// A version of what a policy has for one subject: an override, a block or a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfSubject<T> {
    pub account: AccountId,
    pub policy: PolicyId,
    /// The subject of the account; `None` if it was erased.
    pub subject: Option<Subject>,
    /// Every change creates a new version. The override, the block and the tier of a subject share
    /// the numbers 1, 2, 3 …
    pub version: u32,
    /// The number of the change, in the order of changes of the ledger.
    pub revision: u64,
    /// The content; `None` if this version ends it.
    pub terms: Option<T>,
    pub changed_at: DateTime<Utc>,
    pub changed_by: String,
    /// The reason; optional for a first version.
    pub reason: Option<String>,
}

/// A version of an override.
pub type Override = OfSubject<OverrideTerms>;

/// A version of a block. The reason and the author of a block are those of its version.
pub type Block = OfSubject<BlockTerms>;

/// A version of a subject's tier.
pub type SubjectTier = OfSubject<TierTerms>;

/// The last version of an exception, if this instance cannot read it.
#[derive(Debug, Clone)]
pub struct UnreadableOfSubject {
    pub account: AccountId,
    pub version: u32,
    pub revision: u64,
    pub terms: Arc<UnreadableTerms>,
}

impl<T: SubjectTerms> OfSubject<T> {
    /// The terms that apply at an instant, if this is the last version.
    pub fn in_force(&self, at: DateTime<Utc>) -> Option<&T> {
        self.terms.as_ref().filter(|terms| terms.hold(at))
    }
}

impl SubjectTerms for OverrideTerms {
    fn until(&self) -> Option<DateTime<Utc>> {
        self.until
    }
}

/// The content of an override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverrideTerms {
    /// Another `max` for some limits of the policy. The other limits do not change. A
    /// limit that the policy does not have is ignored.
    pub limits: Vec<OtherMax>,
    /// From this instant on the limits of the policy apply again.
    pub until: Option<DateTime<Utc>>,
}

impl OverrideTerms {
    /// Checks an override that a client wrote at `now`.
    ///
    /// # Errors
    /// All faults of the override.
    pub fn check(
        limits: &[MaxDraft],
        until: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let drafts = limits;
        let limits = check_maxima(drafts, "/limits", &mut faults);
        for (index, _) in drafts
            .iter()
            .enumerate()
            .filter(|(_, draft)| draft.max == 0)
        {
            let pointer = format!("/limits/{index}/max");
            let of_max = faults.iter_mut().filter(|fault| fault.pointer == pointer);
            of_max.for_each(|fault| fault.detail = NO_ZERO.to_owned());
        }
        check_end(until, now, &mut faults);
        if faults.is_empty() {
            Ok(Self { limits, until })
        } else {
            Err(faults)
        }
    }

    /// The `max` that the override has for a limit of a rule. One that does not fit the rule has no
    /// effect: it would make the limit inexact.
    pub fn max_of(&self, rule: &Rule, per: Per) -> Option<u64> {
        let limit = self.limits.iter().find(|limit| limit.per == per);
        let limit = limit.filter(|limit| limit.fits(rule));
        limit.map(|limit| limit.max)
    }

    /// The faults of limits that no version in force or to come has, or whose kind does not allow the
    /// `max`.
    pub fn misfits(&self, versions: &[&Policy]) -> Vec<Fault> {
        let own = || versions.iter().flat_map(|version| &version.rule.limits);
        let name = versions.first().map(|version| version.name.as_str());
        let whose = format!("the policy {}", name.unwrap_or_default());
        let limits = self.limits.iter().enumerate();
        limits
            .filter_map(|(index, other)| misfit_of(&format!("/limits/{index}"), other, own, &whose))
            .collect()
    }
}

impl OtherMax {
    /// Whether a rule has the limit, and its kind allows the `max`.
    pub fn fits(&self, rule: &Rule) -> bool {
        let mut limits = rule.limits.iter();
        let own = limits.find(|own| own.per() == self.per);
        own.is_some_and(|own| misfit(own.shape, self.max).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::UNITS_MAX;

    fn limit(max: i128, per: &str) -> MaxDraft {
        MaxDraft {
            max,
            per: per.to_owned(),
        }
    }

    #[test]
    fn every_fault_is_told() {
        let now = DateTime::UNIX_EPOCH;
        let limits = [
            limit(-1, "day"),
            limit(i128::from(UNITS_MAX) + 1, "eon"),
            limit(1, "day"),
        ];
        let faults = OverrideTerms::check(&limits, Some(now), now).unwrap_err();
        let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
        let expected = [
            "/limits/0/max",
            "/limits/1/max",
            "/limits/1/per",
            "/limits/2/per",
            "/until",
        ];
        assert_eq!(pointers, expected);
        assert_eq!(
            OverrideTerms::check(&[], None, now).unwrap_err()[0].pointer,
            "/limits"
        );
        assert!(OverrideTerms::check(&[limit(1, "day")], None, now).is_ok());
        let faults = OverrideTerms::check(&[limit(0, "day")], None, now).unwrap_err();
        assert!(faults[0].detail.contains("blocks/"), "{faults:?}");
    }

    #[test]
    fn it_holds_until_its_end() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let limits = [limit(1, "day")];
        let terms = OverrideTerms::check(&limits, Some(at(10)), at(0)).unwrap();
        assert!(terms.hold(at(9)));
        assert!(!terms.hold(at(10)));
    }
}
