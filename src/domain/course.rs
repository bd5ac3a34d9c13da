//! The course of the terms of an account, as far as it is known now: what a policy and an override
//! will be if nobody changes them.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::policy::Policy;

/// The terms of an account from an instant on.
#[derive(Debug, Clone)]
pub struct TermsSpan {
    pub from: DateTime<Utc>,
    /// The policy, with the limits of the account. `None` if it cannot be read: nothing is known of
    /// its decisions.
    pub policy: Option<Arc<Policy>>,
}

/// The terms of an account from an instant on, in order. Never empty.
#[derive(Debug, Clone)]
pub struct Course {
    spans: Vec<TermsSpan>,
}

impl Course {
    /// The course from an instant on. `changes` has the later instants at which the terms can
    /// change, in any order, and `terms` says what they are from an instant on.
    pub fn new(
        from: DateTime<Utc>,
        changes: impl IntoIterator<Item = DateTime<Utc>>,
        terms: impl Fn(DateTime<Utc>) -> Option<Arc<Policy>>,
    ) -> Self {
        let mut instants = vec![from];
        instants.extend(changes.into_iter().filter(|at| *at > from));
        instants.sort_unstable();
        instants.dedup();
        let spans = instants.into_iter().map(|from| TermsSpan {
            from,
            policy: terms(from),
        });
        Self {
            spans: spans.collect(),
        }
    }

    /// A course without a change.
    pub fn of(policy: Arc<Policy>, from: DateTime<Utc>) -> Self {
        Self::new(from, [], |_| Some(policy.clone()))
    }

    /// Whether the terms stay the same. The policy may still become active or inactive.
    pub fn is_steady(&self) -> bool {
        self.spans.len() == 1
    }

    /// The policy at an instant.
    pub fn policy_at(&self, at: DateTime<Utc>) -> Option<&Arc<Policy>> {
        self.span_at(at).policy.as_ref()
    }

    /// The next instant after `at` at which another policy applies, or the policy becomes active or
    /// inactive.
    pub fn next_change(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let next = self.spans.iter().map(|span| span.from);
        let rule = self.policy_at(at).map(|policy| &policy.rule);
        let bounds = rule.into_iter().flat_map(|rule| {
            let bounds = [rule.active_from, rule.active_until];
            bounds.into_iter().flatten()
        });
        next.chain(bounds).filter(|change| *change > at).min()
    }

    fn span_at(&self, at: DateTime<Utc>) -> &TermsSpan {
        let begun = self.spans.partition_point(|span| span.from <= at);
        &self.spans[begun.saturating_sub(1)]
    }
}
