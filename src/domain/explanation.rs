//! Explains a claim at an instant of the past: the terms of an account at that instant, and the
//! verdict of the rule after the line that was the last one.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::account::{Unknown, Verdict, instant_after};
use super::account_facts::AccountFacts;
use super::account_totals::totals_asked;
use super::claim::Units;
use super::correction::Hold;
use super::course::Course;
use super::drafting::Drafting;
use super::exceptions::{ExceptionVersions, ExceptionsThen};
use super::grant::{Entry, Line};
use super::identity::AccountId;
use super::limit::total::Total;
use super::past::Past;
use super::policy::Policy;
use super::shared::SharedTotal;

/// The terms of an account at an instant.
#[derive(Debug, Clone)]
pub struct TermsThen {
    /// The active version of the policy.
    pub version: Policy,
    /// The active exceptions of the subject.
    pub exceptions: ExceptionsThen,
    /// The policy with the exceptions of the account.
    policy: Arc<Policy>,
}

/// The answer that a claim would have got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// One total for each limit, in the order of the policy, without the units of the claim.
    pub totals: Vec<Total>,
    /// The limits that all subjects share, without them too.
    pub shared: Vec<SharedTotal>,
    /// The holds that had lapsed without an entry for their lapse.
    pub lapsed: Vec<Hold>,
    pub verdict: Verdict,
}

impl TermsThen {
    /// The terms of a claim at an instant, after the `last` line of the account; `None` if no
    /// version of the policy was active. Versions are ordered from the oldest.
    pub fn of_claim(
        versions: &[Policy],
        exceptions: &ExceptionVersions,
        last: Option<&Line>,
        at: DateTime<Utc>,
    ) -> Option<Self> {
        // A version older than the version of the last line decides nothing, whatever the clock
        // says.
        let since = last.map_or(0, |line| line.policy_version);
        let is_in_force =
            |version: &&Policy| version.effective_at <= at || version.version <= since;
        let version = versions.iter().rev().find(is_in_force)?.clone();
        let exceptions = exceptions.at(at);
        Some(Self {
            policy: exceptions.terms().apply(&Arc::new(version.clone())),
            version,
            exceptions,
        })
    }

    /// The course of the terms after an instant, as far as it was known then.
    pub fn course(
        versions: &[Policy],
        exceptions: &ExceptionVersions,
        last: Option<&Line>,
        at: DateTime<Utc>,
    ) -> Course {
        let since = last.map_or(0, |line| line.policy_version);
        let known = |version: &&Policy| version.changed_at <= at || version.version <= since;
        let known: Vec<Policy> = versions.iter().filter(known).cloned().collect();
        // An exception that ends keeps its place: no later version was known.
        let ends = exceptions.at(at).terms().ends();
        let changes = known.iter().map(|version| version.effective_at);
        let exceptions = exceptions.known_at(at);
        Course::new(at, changes.chain(ends), |later| {
            let terms = Self::of_claim(&known, &exceptions, last, later);
            terms.map(|terms| terms.policy)
        })
    }

    /// The windows of the limits that all subjects share at an instant.
    pub fn shared_windows(&self, at: DateTime<Utc>) -> Vec<SharedTotal> {
        self.policy.shared_totals(|_| 0, at)
    }

    /// The terms of a grant, from its line; `None` if the version of the line is missing.
    pub fn of_grant(
        versions: &[Policy],
        exceptions: &ExceptionVersions,
        line: &Line,
    ) -> Option<Self> {
        let is_its = |version: &&Policy| version.version == line.policy_version;
        let version = versions.iter().find(is_its)?.clone();
        let policy = version.with_max(|per| {
            let total = line.totals.iter().find(|total| total.per() == per);
            total.map(|total| total.max)
        });
        Some(Self {
            version,
            exceptions: exceptions.at(line.at),
            policy: Arc::new(policy),
        })
    }

    /// The answer that a claim would have got after the `last` line of the account.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn explain(
        &self,
        account: AccountId,
        last: Option<&Line>,
        known: &AccountFacts,
        at: DateTime<Utc>,
        units: Units,
    ) -> Result<Explanation, Unknown> {
        let drafting = Drafting::begin(account, &self.policy, last.cloned(), known, at)?;
        let holds = known.holds.iter();
        Ok(Explanation {
            totals: drafting.totals()?,
            lapsed: holds.flat_map(|holds| holds.lapsed.clone()).collect(),
            shared: drafting.shared_totals(instant_after(last, at)),
            verdict: drafting.rehearse(units)?,
        })
    }

    /// The totals of the windows that count a grant, after the line before the grant. The lapses
    /// that were due have entries.
    ///
    /// # Errors
    /// [`Unknown::Past`].
    pub fn before(
        &self,
        grant: &Entry,
        last: Option<&Line>,
        past: &Past,
    ) -> Result<Vec<Total>, Unknown> {
        let calendar = grant.line.calendar.as_deref();
        totals_asked(&self.policy, calendar, last, past, grant.counted_at())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::limit::shape::OtherMax;
    use crate::overrides::{Override, OverrideTerms};
    use crate::policy::PolicyId;
    use crate::refusal::{DeniedClaim, Refusal};
    use crate::samples::policy;
    use crate::window::Length;

    const ACCOUNT: AccountId = AccountId(Uuid::nil());

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn version(version: u32, max: u64, changed_at: i64, effective_at: i64) -> Policy {
        Policy {
            changed_at: at(changed_at),
            effective_at: at(effective_at),
            ..policy(version, "UTC", &[(max, "day")])
        }
    }

    fn exception(version: u32, changed_at: i64, terms: Option<(u64, Option<i64>)>) -> Override {
        let terms = terms.map(|(max, until)| OverrideTerms {
            limits: vec![OtherMax {
                max,
                per: Length::Day.into(),
            }],
            until: until.map(at),
        });
        Override {
            account: ACCOUNT,
            policy: PolicyId(1),
            subject: None,
            version,
            revision: version.into(),
            terms,
            changed_at: at(changed_at),
            changed_by: String::new(),
            reason: None,
        }
    }

    fn overridden(overrides: &[Override]) -> ExceptionVersions {
        ExceptionVersions {
            overrides: overrides.to_vec(),
            ..ExceptionVersions::default()
        }
    }

    /// The `max` at an instant for an account without entries; `None` without an active version.
    fn max_at(versions: &[Policy], overrides: &[Override], seconds: i64) -> Option<u64> {
        let terms = TermsThen::of_claim(versions, &overridden(overrides), None, at(seconds))?;
        let known = AccountFacts::default();
        let explanation = terms.explain(ACCOUNT, None, &known, at(seconds), Units::ONE);
        Some(explanation.unwrap().totals[0].max)
    }

    #[test]
    fn the_version_is_the_highest_that_was_in_force() {
        // The second version waits, and the third version supersedes it before its time.
        let versions = [
            version(1, 1, 10, 10),
            version(2, 2, 20, 90),
            version(3, 3, 30, 30),
        ];
        let told = [9, 10, 29, 30, 90].map(|seconds| max_at(&versions, &[], seconds));
        assert_eq!(told, [None, Some(1), Some(1), Some(3), Some(3)]);
        assert_eq!(max_at(&versions[..2], &[], 90), Some(2));
        // The line shows that a version was active on another clock.
        let line = Line {
            number: 1,
            at: at(9),
            policy_version: 1,
            lapses_at: None,
            calendar: None,
            top_ups: None,
            totals: Vec::new().into(),
        };
        let terms = TermsThen::of_claim(&versions, &overridden(&[]), Some(&line), at(9));
        assert_eq!(terms.unwrap().version.version, 1);
    }

    #[test]
    fn an_override_holds_from_its_change_to_its_end() {
        let versions = [version(1, 3, 0, 0)];
        let overrides = [
            exception(1, 10, Some((7, None))),
            exception(2, 20, Some((0, Some(30)))),
            exception(3, 40, Some((9, None))),
            exception(4, 50, None),
        ];
        let told = [9, 10, 20, 30, 40, 50].map(|seconds| max_at(&versions, &overrides, seconds));
        assert_eq!(told.map(Option::unwrap), [3, 7, 0, 3, 9, 3]);
        let terms = TermsThen::of_claim(&versions, &overridden(&overrides), None, at(20)).unwrap();
        let met = terms.explain(ACCOUNT, None, &AccountFacts::default(), at(20), Units::ONE);
        let Verdict::Refused(Refusal::Denied(DeniedClaim { totals, .. })) = met.unwrap().verdict
        else {
            panic!("not denied")
        };
        assert_eq!((totals[0].max, totals[0].used()), (0, 0));
    }

    #[test]
    fn a_grants_limits_are_those_that_its_line_tells() {
        let versions = [version(1, 3, 0, 0), version(2, 4, 0, 0)];
        let known = AccountFacts::default();
        let exceptions = overridden(&[exception(1, 0, Some((9, None)))]);
        let terms = TermsThen::of_claim(&versions[..1], &exceptions, None, at(5));
        let met = terms
            .unwrap()
            .explain(ACCOUNT, None, &known, at(5), Units::ONE);
        let Verdict::Granted(line) = met.unwrap().verdict else {
            panic!("not granted")
        };
        // Neither the version nor the deletion of the same instant was active for the line.
        let terms = TermsThen::of_grant(&versions, &overridden(&[]), &line).unwrap();
        assert_eq!(terms.version.version, 1);
        let told = terms.explain(ACCOUNT, None, &known, at(5), Units::ONE);
        assert_eq!(told.unwrap().totals[0].max, 9);
    }
}
