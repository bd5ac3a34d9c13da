//! The groups of all accounts, and the atomic batches. Invariant: the group of an account is in one
//! lane at a time, so this instance races with itself only where a batch has the account too.

use std::collections::VecDeque;

use foldhash::HashMap;

use super::group::{Group, Scope};
use super::in_flight::InFlight;
use super::lane::Lane;
use super::present::Present;
use domain::identity::AccountId;

/// The accounts with claims in progress.
#[derive(Default)]
pub struct Accounts {
    accounts: HashMap<AccountId, AccountGroup>,
    look: VecDeque<QueuedGroup>,
    contend: VecDeque<QueuedGroup>,
    append: VecDeque<QueuedGroup>,
    together: VecDeque<QueuedGroup>,
    shared: VecDeque<QueuedGroup>,
}

/// What waits in the queue of a lane.
enum QueuedGroup {
    /// The group of an account.
    Account(AccountId),
    Batch(Box<Group>),
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

    /// Adds an atomic batch. Returns the lane that it waits for.
    pub fn join_batch(&mut self, batch: Group, present: &Present) -> Option<Lane> {
        self.wait(Box::new(batch), present)
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
        let queues = [&self.look, &self.contend, &self.together];
        let of_batches = queues.into_iter().flatten().map(|queued| match queued {
            QueuedGroup::Account(_) => 0,
            QueuedGroup::Batch(batch) => batch.every_claim().count(),
        });
        of_accounts.chain(of_batches).sum()
    }

    /// Takes groups that wait for a lane, until they have about `most` claims.
    pub fn take(&mut self, lane: Lane, most: usize) -> Vec<Group> {
        let mut groups = Vec::new();
        let mut claims = 0;
        while claims < most
            && let Some(queued) = self.queue(lane).pop_front()
        {
            let account = match queued {
                QueuedGroup::Account(account) => account,
                QueuedGroup::Batch(batch) => {
                    claims += batch.every_claim().count();
                    groups.push(*batch);
                    continue;
                }
            };
            let Some(waits) = self.accounts.get_mut(&account) else {
                continue;
            };
            let under_way = AccountGroup::UnderWay(Vec::new());
            match std::mem::replace(waits, under_way) {
                AccountGroup::Waits(group) => {
                    claims += group.every_claim().count();
                    groups.push(*group);
                }
                another_lanes => *waits = another_lanes,
            }
        }
        groups
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

    /// Frees the account of a group that a lane lost. Its later claims make a new group.
    pub fn give_up(&mut self, account: AccountId, present: &Present) -> Option<Lane> {
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
        let lane = group.lane()?;
        match group.scope {
            Scope::Account(account) => {
                self.queue(lane).push_back(QueuedGroup::Account(account));
                self.accounts.insert(account, AccountGroup::Waits(group));
            }
            Scope::Batch { .. } => self.queue(lane).push_back(QueuedGroup::Batch(group)),
        }
        Some(lane)
    }

    fn queue(&mut self, lane: Lane) -> &mut VecDeque<QueuedGroup> {
        match lane {
            Lane::Look => &mut self.look,
            Lane::Contend => &mut self.contend,
            Lane::Append => &mut self.append,
            Lane::Together => &mut self.together,
            Lane::Shared => &mut self.shared,
        }
    }
}
