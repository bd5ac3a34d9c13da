//! Exceptions: what a policy has for one subject. Its tier, its override and its block are changed
//! apart, and each can end by itself.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::blocks::{BlockTerms, SubjectTerms};
use super::identity::AccountId;
use super::limit::per::Per;
use super::overrides::{Block, OfSubject, Override, OverrideTerms, SubjectTier};
use super::policy::{Policy, Rule};
use super::subject_tier::TierTerms;

/// The exceptions of a subject that are in force at an instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exceptions {
    pub tier: Option<Arc<TierTerms>>,
    pub overridden: Option<Arc<OverrideTerms>>,
    pub blocked: Option<BlockTerms>,
}

impl Exceptions {
    /// A version of the policy as it is for the subject: with the limits of its tier, and above them those
    /// of its override.
    pub fn apply(&self, version: &Arc<Policy>) -> Arc<Policy> {
        if *self == Self::default() {
            return version.clone();
        }
        let mut policy = Policy::clone(version);
        let rule = &version.rule;
        if let Some(tier) = &self.tier {
            policy.set_maxima(|per| tier.max_of(rule, per));
        }
        if let Some(overridden) = &self.overridden {
            policy.set_maxima(|per| overridden.max_of(rule, per));
        }
        policy.blocked = self.blocked;
        Arc::new(policy)
    }

    /// The `max` that they have for a limit of a rule.
    pub fn max_of(&self, rule: &Rule, per: Per) -> Option<u64> {
        let overridden = self.overridden.as_ref();
        let max = overridden.and_then(|terms| terms.max_of(rule, per));
        max.or_else(|| self.tier.as_ref()?.max_of(rule, per))
    }

    /// The instants at which one of them ends.
    pub fn ends(&self) -> impl Iterator<Item = DateTime<Utc>> + use<> {
        let tier = self.tier.as_ref().and_then(|terms| terms.until);
        let overridden = self.overridden.as_ref().and_then(|terms| terms.until);
        let blocked = self.blocked.and_then(|terms| terms.until);
        [tier, overridden, blocked].into_iter().flatten()
    }
}

/// All versions of the exceptions of a subject, each kind from the oldest.
#[derive(Debug, Clone, Default)]
pub struct ExceptionVersions {
    pub tiers: Vec<SubjectTier>,
    pub overrides: Vec<Override>,
    pub blocks: Vec<Block>,
}

/// The versions that were in force at an instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExceptionsThen {
    pub tier: Option<SubjectTier>,
    pub overridden: Option<Override>,
    pub block: Option<Block>,
}

impl ExceptionVersions {
    pub fn at(&self, at: DateTime<Utc>) -> ExceptionsThen {
        ExceptionsThen {
            tier: holding(&self.tiers, at),
            overridden: holding(&self.overrides, at),
            block: holding(&self.blocks, at),
        }
    }

    /// Those that were known at an instant.
    pub fn known_at(&self, at: DateTime<Utc>) -> Self {
        Self {
            tiers: known(&self.tiers, at),
            overrides: known(&self.overrides, at),
            blocks: known(&self.blocks, at),
        }
    }
}

/// The versions of the exceptions of many subjects.
#[derive(Debug, Clone, Default)]
pub struct ExceptionHistory(HashMap<AccountId, ExceptionVersions>);

impl ExceptionHistory {
    /// The history of all versions of a policy's exceptions, those of an account in their order.
    pub fn of(all: ExceptionVersions) -> Self {
        let mut history = Self::default();
        for version in all.tiers {
            history.of_account(version.account).tiers.push(version);
        }
        for version in all.overrides {
            history.of_account(version.account).overrides.push(version);
        }
        for version in all.blocks {
            history.of_account(version.account).blocks.push(version);
        }
        history
    }

    fn of_account(&mut self, account: AccountId) -> &mut ExceptionVersions {
        self.0.entry(account).or_default()
    }

    /// The exceptions of an account that were in force at an instant; `None` for an account that never
    /// had one.
    pub fn at(&self, account: AccountId, at: DateTime<Utc>) -> Option<Exceptions> {
        let versions = self.0.get(&account)?;
        Some(versions.at(at).terms())
    }
}

impl ExceptionsThen {
    pub fn terms(&self) -> Exceptions {
        Exceptions {
            tier: terms(self.tier.as_ref()).map(Arc::new),
            overridden: terms(self.overridden.as_ref()).map(Arc::new),
            blocked: terms(self.block.as_ref()),
        }
    }
}

fn terms<T: Clone>(version: Option<&OfSubject<T>>) -> Option<T> {
    version.and_then(|version| version.terms.clone())
}

fn known<T: Clone>(versions: &[OfSubject<T>], at: DateTime<Utc>) -> Vec<OfSubject<T>> {
    let known = versions.iter().filter(|version| version.changed_at <= at);
    known.cloned().collect()
}

/// The version of one kind that is in force at an instant.
fn holding<T: SubjectTerms + Clone>(
    versions: &[OfSubject<T>],
    at: DateTime<Utc>,
) -> Option<OfSubject<T>> {
    let mut newest_first = versions.iter().rev();
    let last = newest_first.find(|version| version.changed_at <= at)?;
    last.in_force(at).map(|_| last.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::shape::OtherMax;
    use crate::samples::policy;
    use crate::tiers::{Tier, TierName};
    use crate::window::Length;

    #[test]
    fn an_override_wins_over_a_tier() {
        let other = |max, per: Length| OtherMax {
            max,
            per: per.into(),
        };
        let name = |text: &str| TierName::new(text).unwrap();
        let mut version = policy(1, "UTC", &[(3, "day"), (9, "week"), (20, "month")]);
        version.rule.tiers = [Tier {
            name: name("gold"),
            limits: vec![other(10, Length::Day), other(30, Length::Week)],
        }]
        .into();
        let version = Arc::new(version);
        let applied = |tier: Option<&str>, max: Option<u64>| {
            let tier = tier.map(|tier| TierTerms {
                tier: name(tier),
                until: None,
            });
            let overridden = max.map(|max| OverrideTerms {
                limits: vec![other(max, Length::Day)],
                until: None,
            });
            let exceptions = Exceptions {
                tier: tier.map(Arc::new),
                overridden: overridden.map(Arc::new),
                blocked: None,
            };
            let limits = &exceptions.apply(&version).rule.limits;
            let limits = limits.iter().map(|limit| (limit.max, limit.ceiling));
            limits.collect::<Vec<_>>()
        };
        let own = [(3, 3), (9, 9), (20, 20)];
        assert_eq!(applied(None, None), own);
        assert_eq!(applied(Some("silver"), None), own);
        assert_eq!(applied(Some("gold"), None), [(10, 10), (30, 30), (20, 20)]);
        // The override can end: what fits the tier fits one day.
        assert_eq!(
            applied(Some("gold"), Some(1)),
            [(1, 10), (30, 30), (20, 20)]
        );
        assert_eq!(applied(None, Some(1)), [(1, 3), (9, 9), (20, 20)]);
    }
}
