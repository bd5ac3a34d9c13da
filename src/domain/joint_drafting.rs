//! Drafts the next entries of several accounts that batches of claims link. The batches are decided one after the
//! other, and one that is not granted leaves no trace in the drafts.

use super::account::Unknown;
use super::correction::Holds;
use super::drafting::{Decided, Drafting};
use super::grant::{Entry, Line};
use super::shared::SharedChange;
use super::work::Work;

/// Drafts in progress, one for each account.
pub struct JointDrafting<'a> {
    accounts: Vec<Drafting<'a>>,
    /// What all entries do to the limits that all subjects share, in the order of the decisions.
    shared: Vec<SharedChange>,
    /// The states of the accounts of the present batch before it.
    saved: Vec<Savepoint>,
    /// How many changes there were before the present batch.
    shared_before: usize,
}

/// The state of a draft before a batch.
struct Savepoint {
    account: usize,
    line: Option<Line>,
    entries: usize,
    holds: Option<Holds>,
}

impl<'a> JointDrafting<'a> {
    /// Goes on from drafts that have their lapses, and no more are due.
    pub fn after_lapses(mut accounts: Vec<Drafting<'a>>) -> Self {
        let lapses = accounts.iter_mut();
        let shared: Vec<_> = lapses
            .flat_map(|it| std::mem::take(&mut it.shared))
            .collect();
        Self {
            accounts,
            shared_before: shared.len(),
            shared,
            saved: Vec::new(),
        }
    }

    /// Decides the next claim of the present batch, on what all claims before it leave.
    ///
    /// # Errors
    /// [`Unknown`]: the drafts must be dropped.
    pub fn decide(&mut self, account: usize, work: &Work) -> Result<Decided, Unknown> {
        let drafting = &mut self.accounts[account];
        if !self.saved.iter().any(|it| it.account == account) {
            self.saved.push(Savepoint {
                account,
                line: drafting.line.clone(),
                entries: drafting.entries.len(),
                holds: drafting.holds.clone(),
            });
        }
        // The draft must see the changes by other accounts too.
        std::mem::swap(&mut drafting.shared, &mut self.shared);
        let decided = drafting.decide(work);
        std::mem::swap(&mut drafting.shared, &mut self.shared);
        decided
    }

    /// The entry of a draft that answers a claim.
    pub fn entry(&self, account: usize, place: usize) -> &Entry {
        &self.accounts[account].entries[place]
    }

    /// Ends the present batch, which is granted.
    pub fn keep(&mut self) {
        self.saved.clear();
        self.shared_before = self.shared.len();
    }

    /// Ends the present batch, which takes nothing: its accounts go back to before it.
    pub fn take_back(&mut self) {
        for before in self.saved.drain(..) {
            let drafting = &mut self.accounts[before.account];
            drafting.entries.truncate(before.entries);
            drafting.line = before.line;
            drafting.holds = before.holds;
        }
        // Its answers are told only if shared limits still have, and lack, the room that it found. So its changes
        // stay, and others undo them.
        let made = &self.shared[self.shared_before..];
        let undone = made.iter().filter(|change| change.units != 0);
        let undone: Vec<_> = undone
            .map(|change| SharedChange {
                key: change.key,
                units: -change.units,
                room: None,
            })
            .collect();
        self.shared.extend(undone);
        self.keep();
    }

    /// The entries of each account, and what all of them do to the limits that all subjects share.
    pub fn into_entries(self) -> (Vec<Vec<Entry>>, Vec<SharedChange>) {
        let entries = self.accounts.into_iter().map(|it| it.entries);
        (entries.collect(), self.shared)
    }
}
