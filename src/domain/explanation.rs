//! What a claim met at an instant of the past: the terms that held for an account then, and what
//! the rule that decides claims says on the line that was the last one then.

use chrono::{DateTime, Utc};

use super::account::{Unknown, Verdict, totals_at};
use super::claim::Units;
use super::correction::Hold;
use super::drafting::{Drafting, Known};
use super::grant::{Entry, Line};
use super::identity::AccountId;
use super::limit::total::Total;
use super::overrides::Override;
use super::past::Past;
use super::policy::Policy;

/// The terms that held for an account at an instant.
#[derive(Debug, Clone)]
pub struct TermsThen {
    /// The version of the policy that was in force.
    pub version: Policy,
    /// The version of the override that held.
    pub exception: Option<Override>,
    /// The policy with the limits of the account.
    policy: Policy,
}

/// What a claim would have met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// One total a limit, in the policy's order, without the claim's own units.
    pub totals: Vec<Total>,
    /// The holds that had lapsed, though no entry said so yet.
    pub lapsed: Vec<Hold>,
    pub verdict: Verdict,
}

impl TermsThen {
    /// The terms of a claim at an instant, after the account's `last` line; `None` where no version
    /// of the policy was in force. Versions come oldest first.
    pub fn of_claim(
        versions: &[Policy],
        overrides: &[Override],
        last: Option<&Line>,
        at: DateTime<Utc>,
    ) -> Option<Self> {
        // Nobody decides under a version older than the last line's, whatever the clock says.
        let since = last.map_or(0, |line| line.policy_version);
        let is_in_force =
            |version: &&Policy| version.effective_at <= at || version.version <= since;
        let version = versions.iter().rev().find(is_in_force)?.clone();
        let exception = holding(overrides, at);
        let terms = exception.as_ref().and_then(|found| found.terms.as_ref());
        let policy = terms.map_or_else(|| version.clone(), |terms| terms.apply(&version));
        Some(Self {
            version,
            exception,
            policy,
        })
    }

    /// The terms of a grant, as its line tells them; `None` without the line's version.
    pub fn of_grant(versions: &[Policy], overrides: &[Override], line: &Line) -> Option<Self> {
        let is_its = |version: &&Policy| version.version == line.policy_version;
        let version = versions.iter().find(is_its)?.clone();
        let policy = version.with_max(|per| {
            let total = line.totals.iter().find(|total| total.per() == per);
            total.map(|total| total.max)
        });
        Some(Self {
            version,
            exception: holding(overrides, line.at),
            policy,
        })
    }

    /// What a claim would have met after the account's `last` line.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn explain(
        &self,
        account: AccountId,
        last: Option<&Line>,
        known: &Known,
        at: DateTime<Utc>,
        units: Units,
    ) -> Result<Explanation, Unknown> {
        let drafting = Drafting::begin(account, &self.policy, last.cloned(), known, at)?;
        let holds = known.holds.iter();
        Ok(Explanation {
            totals: drafting.totals()?,
            lapsed: holds.flat_map(|holds| holds.lapsed.clone()).collect(),
            verdict: drafting.rehearse(units)?,
        })
    }

    /// The totals in the windows in which a grant counts, after the line before the grant's: the
    /// lapses that were due then have entries.
    ///
    /// # Errors
    /// [`Unknown::Past`].
    pub fn before(
        &self,
        grant: &Entry,
        last: Option<&Line>,
        past: &Past,
    ) -> Result<Vec<Total>, Unknown> {
        totals_at(&self.policy, last, past, grant.counted_at())
    }
}

/// The version of an override that held at an instant.
fn holding(overrides: &[Override], at: DateTime<Utc>) -> Option<Override> {
    let mut newest_first = overrides.iter().rev();
    let last = newest_first.find(|version| version.changed_at <= at)?;
    let holds = last.terms.as_ref().is_some_and(|terms| terms.hold(at));
    holds.then(|| last.clone())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::limit::shape::OtherMax;
    use crate::domain::overrides::OverrideTerms;
    use crate::domain::policy::PolicyId;
    use crate::domain::refusal::Refusal;
    use crate::domain::samples::policy;
    use crate::domain::window::Length;

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

    /// The max that is told at an instant for an account without entries; `None` without a version.
    fn max_at(versions: &[Policy], overrides: &[Override], seconds: i64) -> Option<u64> {
        let terms = TermsThen::of_claim(versions, overrides, None, at(seconds))?;
        let known = Known::default();
        let explanation = terms.explain(ACCOUNT, None, &known, at(seconds), Units::ONE);
        Some(explanation.unwrap().totals[0].max)
    }

    #[test]
    fn the_version_is_the_highest_that_was_in_force() {
        // The second one waits, and the third one supersedes it before its time.
        let versions = [
            version(1, 1, 10, 10),
            version(2, 2, 20, 90),
            version(3, 3, 30, 30),
        ];
        let told = [9, 10, 29, 30, 90].map(|seconds| max_at(&versions, &[], seconds));
        assert_eq!(told, [None, Some(1), Some(1), Some(3), Some(3)]);
        assert_eq!(max_at(&versions[..2], &[], 90), Some(2));
        // A line tells that a version was in force on another clock.
        let line = Line {
            number: 1,
            at: at(9),
            policy_version: 1,
            lapses_at: None,
            totals: Vec::new().into(),
        };
        let terms = TermsThen::of_claim(&versions, &[], Some(&line), at(9));
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
        let terms = TermsThen::of_claim(&versions, &overrides, None, at(20)).unwrap();
        let met = terms.explain(ACCOUNT, None, &Known::default(), at(20), Units::ONE);
        let Verdict::Refused(Refusal::Denied(totals)) = met.unwrap().verdict else {
            panic!("not denied")
        };
        assert_eq!((totals[0].max, totals[0].used()), (0, 0));
    }

    #[test]
    fn a_grants_limits_are_those_that_its_line_tells() {
        let versions = [version(1, 3, 0, 0), version(2, 4, 0, 0)];
        let known = Known::default();
        let overridden = TermsThen::of_claim(
            &versions[..1],
            &[exception(1, 0, Some((9, None)))],
            None,
            at(5),
        );
        let met = overridden
            .unwrap()
            .explain(ACCOUNT, None, &known, at(5), Units::ONE);
        let Verdict::Granted(line) = met.unwrap().verdict else {
            panic!("not granted")
        };
        // Neither the version nor the deletion that came at the same instant held for it.
        let terms = TermsThen::of_grant(&versions, &[], &line).unwrap();
        assert_eq!(terms.version.version, 1);
        let told = terms.explain(ACCOUNT, None, &known, at(5), Units::ONE);
        assert_eq!(told.unwrap().totals[0].max, 9);
    }
}
