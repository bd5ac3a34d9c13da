//! A subject under all policies: its usage, its overrides, its tiers and its blocks.

use std::sync::Arc;

use crate::instance::Failure;
use crate::{Claims, Usage};
use domain::claim::Subject;
use domain::exceptions::Exceptions;
use domain::identity::AccountId;
use domain::policy::{Policy, PolicyName};
use ledger::Look;

/// How many accounts are looked for at once.
const ACCOUNTS_MOST: usize = 1000;

/// Some policies that know a subject.
#[derive(Debug)]
pub struct SubjectPage {
    /// The policies, by name, and the subject's usage under each.
    pub policies: Vec<Usage>,
    /// Whether more policies follow.
    pub has_more: bool,
}

impl Claims {
    /// The policies under which a subject has entries or an exception, by name, at most `limit` of
    /// those after `after`. If the caller is confined to policies, only these.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn of_subject(
        self: &Arc<Self>,
        subject: &Subject,
        confined_to: Option<&[PolicyName]>,
        after: Option<&PolicyName>,
        limit: usize,
    ) -> Result<SubjectPage, Failure> {
        // 1. The policies that the caller may see.
        let mut policies = self.instance.policies_in_use(confined_to).await?;
        policies.retain(|policy| after.is_none_or(|after| policy.name.as_str() > after.as_str()));
        policies.sort_by(|one, two| one.name.as_str().cmp(two.name.as_str()));
        // 2. The accounts that exist are found with few looks.
        let mut page = SubjectPage {
            policies: Vec::new(),
            has_more: false,
        };
        for some in policies.chunks(ACCOUNTS_MOST) {
            for policy in self.that_may_know(subject, some).await? {
                // 3. Each of them shows its usage, as by itself.
                let usage = self.usage(&policy.name, subject).await?;
                let knows =
                    |usage: &Usage| usage.has_entries || usage.exceptions != Exceptions::default();
                let Some(usage) = usage.filter(knows) else {
                    continue;
                };
                if page.policies.len() == limit {
                    page.has_more = true;
                    return Ok(page);
                }
                page.policies.push(usage);
            }
        }
        Ok(page)
    }

    /// The policies that have an account or an exception of a subject. A grant that Redis counted
    /// is in the ledger a moment later.
    async fn that_may_know(
        self: &Arc<Self>,
        subject: &Subject,
        policies: &[Arc<Policy>],
    ) -> Result<Vec<Arc<Policy>>, Failure> {
        let identity = self.ledger.identity();
        let account = |policy: &Arc<Policy>| identity.account(&policy.name, subject);
        let accounts: Vec<AccountId> = policies.iter().map(account).collect();
        let look = Look {
            accounts: accounts.clone(),
            ..Look::default()
        };
        let claims = self.clone();
        let work = async move { claims.ledger.look(&look).await };
        let seen = self.instance.detached(work).await??;
        let terms = &self.instance.policies.terms;
        let now = self.instance.now();
        let may_know = |(_, account): &(&Arc<Policy>, &AccountId)| {
            seen.lines.contains_key(*account)
                || terms.exceptions(**account, now) != Exceptions::default()
        };
        let found = policies.iter().zip(&accounts).filter(may_know);
        Ok(found.map(|(policy, _)| policy.clone()).collect())
    }
}
