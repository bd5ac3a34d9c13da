//! The atomic batches that wait or are under way. Batches that wait and share accounts are one component. Invariant:
//! an account is in one component at a time, so the batches of this instance never race with each other.

use std::collections::VecDeque;

use foldhash::{HashMap, HashSet};

use super::group::{Group, Scope};
use super::in_flight::InFlight;
use super::lane::Lane;
use domain::identity::AccountId;

/// A component takes no further batch in if it had more claims than this.
const CLAIMS_MOST: usize = 512;

#[derive(Default)]
pub struct Batches {
    /// The components; `None` while a lane works on one.
    components: HashMap<u64, Option<Box<Group>>>,
    /// The component of each account.
    component_of: HashMap<AccountId, u64>,
    /// Batches that come after a component that takes none in any more, oldest first, and their accounts.
    later: VecDeque<Box<Group>>,
    accounts_later: HashSet<AccountId>,
    last_number: u64,
}

impl Batches {
    /// Adds an atomic batch. Returns its component if it begins one, which waits for a look.
    pub fn join(&mut self, claims: Vec<InFlight>, is_doomed: bool) -> Option<u64> {
        if claims.is_empty() {
            return None;
        }
        self.last_number += 1;
        self.admit(Box::new(Group::of_batch(
            self.last_number,
            claims,
            is_doomed,
        )))
    }

    fn admit(&mut self, batch: Box<Group>) -> Option<u64> {
        let Scope::Component { number, .. } = batch.scope else {
            return None;
        };
        // 1. A doomed batch shows what would be: it waits for nobody, and nobody waits for it.
        if batch.scope.is_doomed() {
            self.components.insert(number, Some(batch));
            return Some(number);
        }
        // 2. The components that it links. If one of them takes no batch in, or other batches wait for
        //    one, it waits too.
        let accounts = batch.scope.accounts();
        let numbers = accounts.iter().filter_map(|it| self.component_of.get(it));
        let mut numbers: Vec<u64> = numbers.copied().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let growing = numbers.iter().map(|number| self.growing(*number));
        let claims: Option<usize> = growing.map(|it| Some(it?.claims.len())).sum();
        let is_free = |claims: usize| claims == 0 || claims + batch.claims.len() <= CLAIMS_MOST;
        if !claims.is_some_and(is_free)
            || accounts.iter().any(|it| self.accounts_later.contains(it))
        {
            self.accounts_later.extend(accounts);
            self.later.push_back(batch);
            return None;
        }
        // 3. The oldest of them takes the others in. Without any, the batch begins one.
        let Some((&oldest, others)) = numbers.split_first() else {
            let accounts = accounts.iter().map(|account| (*account, number));
            self.component_of.extend(accounts);
            self.components.insert(number, Some(batch));
            return Some(number);
        };
        let mut component = self.components.remove(&oldest).flatten()?;
        let others = others.iter();
        let others = others.filter_map(|number| self.components.remove(number).flatten());
        for other in others.chain([batch]) {
            let accounts = other.scope.accounts().iter();
            self.component_of
                .extend(accounts.map(|account| (*account, oldest)));
            component.merge(*other);
        }
        self.components.insert(oldest, Some(component));
        None
    }

    /// A component that waits and takes batches in.
    fn growing(&self, number: u64) -> Option<&Group> {
        let waiting = self.components.get(&number)?.as_deref()?;
        let is_open = waiting.lane() == Some(Lane::Look) && waiting.may_grow();
        is_open.then_some(waiting)
    }

    /// Takes a component that waits. Later batches with its accounts wait for its end.
    pub fn take(&mut self, number: u64) -> Option<Box<Group>> {
        self.components.get_mut(&number)?.take()
    }

    /// Takes a component back from a lane. If it has no claims left, its accounts are free.
    pub fn give_back(&mut self, number: u64, component: Box<Group>) {
        if component.lane().is_some() {
            self.components.insert(number, Some(component));
            return;
        }
        self.components.remove(&number);
        if component.scope.is_doomed() {
            return;
        }
        for account in component.scope.accounts() {
            self.component_of.remove(account);
        }
    }

    /// Frees the accounts of a component that a lane lost.
    pub fn give_up(&mut self, number: u64) {
        if let Some(None) = self.components.get(&number) {
            self.components.remove(&number);
            self.component_of.retain(|_, of| *of != number);
        }
    }

    /// Lets the batches that wait for a component join others. Returns those that begin one.
    pub fn readmit(&mut self) -> Vec<u64> {
        self.accounts_later.clear();
        let later = std::mem::take(&mut self.later);
        later
            .into_iter()
            .filter_map(|batch| self.admit(batch))
            .collect()
    }

    /// The number of claims that wait.
    pub fn waiting(&self) -> usize {
        let components = self.components.values().flatten();
        let waiting = components.chain(&self.later);
        waiting.map(|group| group.every_claim().count()).sum()
    }
}
