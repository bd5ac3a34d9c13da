//! The round of a group after a look at the ledger: it is answered, or it is decided as soon as
//! every fact is known. Nothing here reads the ledger: the round says which fact is missing, and its
//! caller learns it. The lanes and the simulator drive the same rounds.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::account_view::{AccountView, Gap, Missing};
use super::group::{Group, Scope};
use super::plan::Basis;
use super::present::Present;
use super::step::Steps;
use crate::instance::Epoch;
use domain::account_facts::AccountFacts;
use domain::identity::AccountId;
use domain::policy::Policy;
use ledger::LedgerView;

/// What a look showed.
pub struct Seen<'a> {
    pub ledger: &'a LedgerView,
    /// The epoch of the lines.
    pub epoch: Epoch,
    /// The ledger was read after this instant.
    pub at: DateTime<Utc>,
}

pub struct LookRound<'a> {
    group: &'a mut Group,
    seen: &'a Seen<'a>,
    /// Invariant: a round has one instant. At another instant the totals of other windows could be
    /// missing, again and again if the clock steps back over the edge of a window.
    present: Present<'a>,
    basis: Basis,
    views: Vec<AccountView>,
}

impl<'a> LookRound<'a> {
    /// Tells a group what a look showed. Returns the round that decides it; `None` if its drafts are
    /// sent again. `facts` is what a writer knows of an account before it reads anything.
    pub fn begin(
        group: &'a mut Group,
        seen: &'a Seen<'a>,
        present: Present<'a>,
        facts: impl Fn() -> AccountFacts,
        steps: &mut Steps,
    ) -> Option<Self> {
        let looked_for = group.every_claim().count();
        group.after_look(seen.ledger, &present, steps);
        if group.plan().is_some() {
            return None;
        }
        if group.together_most != usize::MAX && group.claims.len() < looked_for {
            // The look may have left out what comes next.
            return None;
        }
        // Not by the account: while an erasure gives it another id, its entries are under both.
        let naming = seen.ledger.entries.iter();
        let naming = naming.filter(|entry| entry.kind.of().is_some());
        let facts = || match group.scope {
            // Nothing is appended, so every lapse is decided at once.
            Scope::Component {
                is_doomed: true, ..
            } => AccountFacts::default(),
            Scope::Account(_) | Scope::Component { .. } => facts(),
        };
        let view = |account: &AccountId| AccountView {
            account: *account,
            after: seen.ledger.lines.get(account).cloned(),
            facts: AccountFacts {
                followers: naming.clone().cloned().collect(),
                shared: seen.ledger.shared.clone(),
                ..facts()
            },
        };
        let views = group.scope.accounts().iter().map(view).collect();
        let basis = Basis {
            epoch: seen.epoch,
            seen_at: seen.at,
            as_of: present.terms.as_of(),
        };
        Some(Self {
            group,
            seen,
            present,
            basis,
            views,
        })
    }

    /// The instant of the round.
    pub fn now(&self) -> DateTime<Utc> {
        self.present.now
    }

    /// Decides the group.
    ///
    /// # Errors
    /// A [`Gap`] of each account that lacks a fact: nothing is decided.
    pub fn decide(&mut self, steps: &mut Steps) -> Result<(), Vec<Gap>> {
        let seen = self.seen.ledger;
        let present = &self.present;
        self.group
            .decide_on_look(self.basis, &self.views, seen, present, steps)
    }

    /// What is known of the accounts with gaps, each with what is missing and with the policy that
    /// its claims came with.
    pub fn to_learn(
        &mut self,
        gaps: Vec<Gap>,
    ) -> impl Iterator<Item = (&mut AccountView, Missing, Arc<Policy>)> {
        let claims = &self.group.claims;
        let mut gaps = gaps.into_iter().peekable();
        self.views.iter_mut().filter_map(move |view| {
            let gap = gaps.next_if(|gap| gap.account == view.account)?;
            let mut claims = claims.iter();
            let claim = claims.find(|claim| claim.work.account == view.account)?;
            Some((view, gap.missing, claim.work.policy.clone()))
        })
    }
}
