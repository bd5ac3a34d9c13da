//! What a group knows of one account, and the decision of its claims.

use std::sync::Arc;

use super::present::Present;
use domain::account::Unknown;
use domain::account_facts::AccountFacts;
use domain::claim::Subject;
use domain::drafting::{Decided, Drafting, draft};
use domain::grant::{Entry, Line};
use domain::identity::AccountId;
use domain::policy::Policy;
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
    pub decided: Option<Vec<Decided>>,
}

impl AccountView {
    /// Decides claims of the account after its last line. `claimed` is the policy that the first of them came with.
    pub fn decide<'w>(
        &self,
        claimed: &Arc<Policy>,
        works: impl Iterator<Item = &'w Work> + Clone,
        present: &Present,
    ) -> Result<AccountDecision, Gap> {
        let account = self.account;
        // 1. The terms that are in force after the last line.
        let policy = self.terms(claimed, present)?;
        // 2. The rule decides the claims and drafts the entries.
        let after = self.after.clone();
        let drafted = draft(
            account,
            &policy,
            after,
            works.clone(),
            &self.facts,
            present.now,
        );
        let drafted = drafted.map_err(|unknown| self.gap(Missing::Ledger(unknown)))?;
        let subject = works.clone().find_map(|work| work.subject.clone());
        let draft = Draft {
            shared: drafted.shared,
            ..self.draft(&policy, subject, drafted.entries)
        };
        Ok(AccountDecision {
            policy,
            draft,
            decided: drafted.decided,
        })
    }

    /// The terms that are in force after the last line.
    pub fn terms(&self, claimed: &Arc<Policy>, present: &Present) -> Result<Arc<Policy>, Gap> {
        let last = self.after.as_ref();
        let policy = present
            .terms
            .after(claimed, self.account, last, present.now);
        policy.ok_or(self.gap(Missing::Policy))
    }

    /// Starts the draft of the account with the lapses that are due.
    pub fn begin<'a>(&'a self, policy: &'a Policy, present: &Present) -> Result<Drafting<'a>, Gap> {
        let after = self.after.clone();
        let begun = Drafting::begin(self.account, policy, after, &self.facts, present.now);
        begun.map_err(|unknown| self.gap(Missing::Ledger(unknown)))
    }

    pub fn draft(&self, policy: &Policy, subject: Option<Subject>, entries: Vec<Entry>) -> Draft {
        Draft {
            account: self.account,
            component: self.account,
            policy: policy.id,
            subject,
            after: self.after.clone(),
            entries,
            shared: Vec::new(),
        }
    }

    pub fn gap(&self, missing: Missing) -> Gap {
        Gap {
            account: self.account,
            missing,
        }
    }
}
