//! The groups of all accounts, and the components of atomic batches. Invariant: the group of an account is in one
//! lane at a time, so this instance races with itself only where a batch has the account too.

use std::collections::VecDeque;

use foldhash::HashMap;

use super::batches::Batches;
use super::group::{Group, GroupName, Scope};
use super::in_flight::InFlight;
use super::lane::Lane;
use super::present::Present;
use domain::identity::AccountId;

/// The accounts with claims in progress.
#[derive(Default)]
pub struct Accounts {
    accounts: HashMap<AccountId, AccountGroup>,
    batches: Batches,
    look: VecDeque<GroupName>,
    contend: VecDeque<GroupName>,
    append: VecDeque<GroupName>,
    together: VecDeque<GroupName>,
    shared: VecDeque<GroupName>,
}

enum AccountGroup {
    /// The group waits for a lane.
    Waits(Box<Group>),
    /// A lane works on the group. These claims came later.
    UnderWay(Vec<InFlight>),
}

impl Accounts {
    /// Adds a claim to the group of its account. Returns the lane that a new group waits for.
    pub fn join(&mut self, claim: InFlight, present: &Present) -> Option<Lane> {
        let account = claim.work.account;
        match self.accounts.get_mut(&account) {
            Some(AccountGroup::UnderWay(later)) => later.push(claim),
            Some(AccountGroup::Waits(group)) => {
                if let Some(claim) = group.extend(claim, present) {
                    group.claims.push(claim);
                }
            }
            None => return self.wait(Box::new(Group::new(claim)), present),
        }
        None
    }

    /// Adds an atomic batch. `is_doomed` tells that something besides the claims prevents every grant.
    /// Returns the lane that a new component waits for.
    pub fn join_batch(&mut self, claims: Vec<InFlight>, is_doomed: bool) -> Option<Lane> {
        let begun = self.batches.join(claims, is_doomed);
        self.queue_looks(begun)
    }

    pub fn wait_for(&self, lane: Lane) -> bool {
        match lane {
            Lane::Look => !self.look.is_empty(),
            Lane::Contend => !self.contend.is_empty(),
            Lane::Append => !self.append.is_empty(),
            Lane::Together => !self.together.is_empty(),
            Lane::Shared => !self.shared.is_empty(),
        }
    }

    /// How many claims wait for a lane, or for a group that a lane works on.
    pub fn waiting(&self) -> usize {
        let of_accounts = self.accounts.values().map(|account| match account {
            AccountGroup::Waits(group) => group.every_claim().count(),
            AccountGroup::UnderWay(later) => later.len(),
        });
        of_accounts.sum::<usize>() + self.batches.waiting()
    }

    /// Takes groups that wait for a lane, until they have about `most` claims.
    pub fn take(&mut self, lane: Lane, most: usize) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut claims = 0;
        while claims < most
            && let Some(name) = self.queue(lane).pop_front()
        {
            let taken = match name {
                GroupName::Account(account) => self.take_account(account),
                GroupName::Component(number) => self.batches.take(number),
            };
            if let Some(group) = taken {
                claims += group.every_claim().count();
                groups.push(*group);
            }
        }
        groups
    }

    fn take_account(&mut self, account: AccountId) -> Option<Box<Group>> {
        let waits = self.accounts.get_mut(&account)?;
        let under_way = AccountGroup::UnderWay(Vec::new());
        match std::mem::replace(waits, under_way) {
            AccountGroup::Waits(group) => Some(group),
            another_lanes => {
                *waits = another_lanes;
                None
            }
        }
    }

    /// Takes a group back from a lane. Returns the lane that the group waits for next, if the group
    /// has claims left.
    pub fn give_back(&mut self, mut group: Group, present: &Present) -> Option<Lane> {
        if let Scope::Account(account) = group.scope
            && let Some(AccountGroup::UnderWay(later)) = self.accounts.remove(&account)
        {
            group.claims.extend(later);
        }
        self.wait(Box::new(group), present)
    }

    /// Frees the accounts of a group that a lane lost. Their later claims make new groups.
    pub fn give_up(&mut self, name: GroupName, present: &Present) -> Option<Lane> {
        match name {
            GroupName::Account(account) => self.give_up_account(account, present),
            GroupName::Component(number) => {
                self.batches.give_up(number);
                self.readmit()
            }
        }
    }

    fn give_up_account(&mut self, account: AccountId, present: &Present) -> Option<Lane> {
        let Some(AccountGroup::UnderWay(later)) = self.accounts.get_mut(&account) else {
            return None;
        };
        let mut later = std::mem::take(later).into_iter();
        self.accounts.remove(&account);
        let mut group = Group::new(later.next()?);
        group.claims.extend(later);
        self.wait(Box::new(group), present)
    }

    fn wait(&mut self, mut group: Box<Group>, present: &Present) -> Option<Lane> {
        group.decide_on_known_line(present);
        let name = group.name();
        let lane = group.lane();
        if let Some(lane) = lane {
            self.queue(lane).push_back(name);
        }
        match name {
            GroupName::Account(account) if lane.is_some() => {
                self.accounts.insert(account, AccountGroup::Waits(group));
            }
            GroupName::Account(_) => {}
            GroupName::Component(number) => {
                let may_free = !group.scope.is_doomed() && matches!(lane, None | Some(Lane::Look));
                self.batches.give_back(number, group);
                return may_free.then(|| self.readmit()).flatten().or(lane);
            }
        }
        lane
    }

    /// Lets the batches that waited for a component go on.
    fn readmit(&mut self) -> Option<Lane> {
        let begun = self.batches.readmit();
        self.queue_looks(begun)
    }

    fn queue_looks(&mut self, begun: impl IntoIterator<Item = u64>) -> Option<Lane> {
        let before = self.look.len();
        let begun = begun.into_iter().map(GroupName::Component);
        self.look.extend(begun);
        (before < self.look.len()).then_some(Lane::Look)
    }

    fn queue(&mut self, lane: Lane) -> &mut VecDeque<GroupName> {
        match lane {
            Lane::Look => &mut self.look,
            Lane::Contend => &mut self.contend,
            Lane::Append => &mut self.append,
            Lane::Together => &mut self.together,
            Lane::Shared => &mut self.shared,
        }
    }
}
