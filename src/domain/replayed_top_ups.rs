//! The top-ups of accounts in a backtest. A draft draws on them by its own limits.

use std::collections::HashMap;
use std::sync::Arc;

use super::claim::Units;
use super::identity::{AccountId, EntryId};
use super::kind::{EntryKind, KindWord};
use super::top_up::{Returned, TopUp, TopUps};

/// The top-ups of each account that has some, and what grants took of them.
#[derive(Default)]
pub struct ReplayedTopUps {
    accounts: HashMap<AccountId, TopUps>,
    grants: HashMap<EntryId, DrawnGrant>,
}

/// A grant of which units will be given back.
struct DrawnGrant {
    top_ups: TopUps,
    returned: u64,
}

impl ReplayedTopUps {
    /// Goes on to the next entry of an account. A top-up that is met for the first time has what the ledger says
    /// that it had before the entry.
    pub fn meet(
        &mut self,
        account: AccountId,
        id: EntryId,
        kind: EntryKind,
        told: Option<&Arc<TopUps>>,
    ) {
        if told.is_none() && !self.accounts.contains_key(&account) {
            return;
        }
        let at = id.at();
        let own = self.accounts.entry(account).or_default();
        *own = own.at(at);
        for top_up in told.into_iter().flat_map(|told| &told.each) {
            if own.each.iter().all(|known| known.id != top_up.id) {
                let left = match kind.word() {
                    KindWord::Grant => top_up.left.saturating_add(top_up.moved),
                    _ => top_up.left.saturating_sub(top_up.moved),
                };
                own.add(TopUp {
                    left,
                    moved: 0,
                    ..*top_up
                });
            }
        }
        if let EntryKind::TopUpReversal { of } = kind {
            own.remove(of);
        }
    }

    /// The units that are left at the entry of an account that was met last.
    pub fn left(&self, account: AccountId) -> u64 {
        self.accounts.get(&account).map_or(0, TopUps::left)
    }

    /// Draws what the limits have no room for. Returns the units that are left to them.
    pub fn draw(
        &mut self,
        account: AccountId,
        grant: EntryId,
        (units, room): (Units, u64),
        is_given_back: bool,
    ) -> Option<Units> {
        let Some(own) = self.accounts.get_mut(&account) else {
            return Some(units);
        };
        own.draw(units.get().saturating_sub(room));
        let drawn = own.aside;
        if is_given_back && drawn > 0 {
            let top_ups = own.clone();
            let returned = 0;
            let drawn_grant = DrawnGrant { top_ups, returned };
            self.grants.insert(grant, drawn_grant);
        }
        units.less(drawn)
    }

    /// Gives units of a grant back. Returns those that the limits get.
    pub fn give_back(&mut self, account: AccountId, grant: EntryId, units: Units) -> Option<Units> {
        let Some(drawn) = self.grants.get_mut(&grant) else {
            return Some(units);
        };
        let returned = Returned::new(grant, Some(&drawn.top_ups), drawn.returned, units);
        let own_units = returned.own_units();
        drawn.returned += units.get();
        if let Some(own) = self.accounts.get_mut(&account) {
            own.give_back(returned.draws);
        }
        Units::new(own_units.into()).ok()
    }

    /// Gives back what an entry gave back of a grant that is older than the replay.
    pub fn give_back_as(&mut self, account: AccountId, told: Option<&Arc<TopUps>>) {
        if let Some(own) = self.accounts.get_mut(&account) {
            own.give_back(told.into_iter().flat_map(|told| told.draws()));
        }
    }
}
