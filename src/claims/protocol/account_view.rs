//! What a group knows of one account, and the decision of its claims.

use std::sync::Arc;
use std::vec;

use super::present::Present;
use domain::account::Unknown;
use domain::account_facts::AccountFacts;
use domain::drafting::{Decided, draft};
use domain::grant::Line;
use domain::identity::AccountId;
use domain::policy::Policy;
use domain::shared::SharedChange;
use domain::work::Work;
use ledger::Draft;

/// The facts that the claims of an account are decided on.
pub struct AccountView {
    pub account: AccountId,
    /// The last line of the account.
    pub after: Option<Line>,
    pub facts: AccountFacts,
}

/// A fact that is missing to decide the claims of an account.
#[derive(Debug, PartialEq, Eq)]
pub struct Gap {
    pub account: AccountId,
    pub missing: Missing,
}

/// The information that is missing.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// The version of the policy that decided the last line.
    Policy,
    /// Information that the ledger has.
    Ledger(Unknown),
}

/// The decision of the claims of an account.
pub struct AccountDecision {
    pub policy: Arc<Policy>,
    pub draft: Draft,
    /// The outcomes of the claims; `None` if the draft has only lapses.
    pub decided: Option<vec::IntoIter<Decided>>,
}

impl AccountView {
    /// Decides claims of the account after its last line, and after changes that the group makes in other accounts;
    /// `None` if there are none.
    pub fn decide<'w>(
        &self,
        works: impl Iterator<Item = &'w Work> + Clone,
        changes: &[SharedChange],
        present: &Present,
    ) -> Result<Option<AccountDecision>, Gap> {
        let Some(first) = works.clone().next() else {
            return Ok(None);
        };
        let account = self.account;
        let gap = |missing| Gap { account, missing };
        // 1. The terms that are in force after the last line.
        let now = present.now;
        let last = self.after.as_ref();
        let policy = present.terms.after(&first.policy, account, last, now);
        let policy = policy.ok_or(gap(Missing::Policy))?;
        // 2. The rule decides the claims and drafts the entries.
        let after = self.after.clone();
        let facts = self.facts.after(changes);
        let drafted = draft(account, &policy, after, works.clone(), &facts, now);
        let drafted = drafted.map_err(|unknown| gap(Missing::Ledger(unknown)))?;
        let draft = Draft {
            account,
            policy: policy.id,
            subject: works.clone().find_map(|work| work.subject.clone()),
            after: self.after.clone(),
            entries: drafted.entries,
            shared: drafted.shared,
        };
        Ok(Some(AccountDecision {
            policy,
            draft,
            decided: drafted.decided.map(Vec::into_iter),
        }))
    }
}
