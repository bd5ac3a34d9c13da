//! An instance that records lapses. The production code of `claims/lapses.rs` decides which are due,
//! and drafts them. This file replaces the sweep by an executor without async. Instances take no
//! turns: turns save work, and no promise depends on them.

use chrono::{DateTime, TimeDelta, Utc};
use perdiem::claims::lapses::draft_of_lapses;
use perdiem::claims::protocol::settle::Settling;
use perdiem::domain::account_facts::AccountFacts;
use perdiem::domain::identity::AccountId;
use perdiem::ledger::{Draft, LedgerView, Look};

use super::{Around, Instance, LAPSES_MOST, settle};
use crate::sim::Planted;
use crate::sim::calls::{Request, Response, Waiting};

/// How early a sweep ends holds if that fault is planted.
const TOO_EARLY: TimeDelta = TimeDelta::seconds(2);

impl Instance {
    /// Begins a sweep: asks for the holds that have ended.
    pub fn sweep(&self, around: &mut Around) {
        let mut now = self.facts.present(around.time).now;
        if self.planted == Planted::LapsesEarly {
            now += TOO_EARLY;
        }
        let request = Request::Due(now);
        around.calls.push((request, Waiting::Sweep(now)));
    }

    /// Handles the accounts of the holds that have ended: looks at their last lines.
    pub fn found_due(accounts: Vec<AccountId>, now: DateTime<Utc>, around: &mut Around) {
        if accounts.is_empty() {
            return;
        }
        let look = Look {
            accounts: accounts.clone(),
            ..Look::default()
        };
        let waiting = Waiting::Lapses(accounts, now);
        around.calls.push((Request::Look(look), waiting));
    }

    /// Handles the last lines of accounts: drafts the lapses that are due, and appends them.
    pub fn record_lapses(
        &mut self,
        accounts: Vec<AccountId>,
        seen: &LedgerView,
        now: DateTime<Utc>,
        around: &mut Around,
    ) {
        let drafts = accounts.into_iter();
        let drafts = drafts.filter_map(|account| self.draft_lapses(account, seen, now, around));
        let drafts: Vec<Draft> = drafts.collect();
        if !drafts.is_empty() {
            let waiting = Waiting::Lapsed(drafts.clone(), now);
            around.calls.push((Request::Append(drafts), waiting));
        }
    }

    fn draft_lapses(
        &mut self,
        account: AccountId,
        seen: &LedgerView,
        now: DateTime<Utc>,
        around: &Around,
    ) -> Option<Draft> {
        let last = seen.lines.get(&account)?;
        let own = &around.ledger.policies[0];
        let newest = self.facts.terms.newest(own.id);
        let terms = newest.expect("a policy that can be read")?;
        self.nonce += 1;
        let mut known = AccountFacts {
            lapses_most: LAPSES_MOST,
            ..AccountFacts::to_append(self.nonce)
        };
        let mut draft = loop {
            match draft_of_lapses(account, &terms, last, &known, now) {
                Ok(draft) => break draft?,
                Err(unknown) => {
                    around
                        .ledger
                        .tell(&mut known, unknown, account, Some(last), now);
                }
            }
        };
        if self.planted == Planted::LapsesUnderNewTerms {
            let entries = draft.entries.iter_mut();
            entries.for_each(|entry| entry.line.policy_version = terms.version);
        }
        Some(draft)
    }

    /// Handles the end of a transaction that appends lapses. The next sweep, or a decision, records
    /// what was not appended.
    pub fn lapses_recorded(
        &self,
        drafts: &[Draft],
        response: Response,
        now: DateTime<Utc>,
        around: &mut Around,
    ) {
        let Response::Appended(accounts) = response else {
            return;
        };
        for draft in drafts.iter().filter(|it| accounts.contains(&it.account)) {
            let counts = self.facts.terms.may_be_counted(draft.policy);
            let settling = Settling::of_draft(draft, counts, now);
            if let Some(settling) = settling.filter(|_| self.facts.has_counters) {
                settle(settling, around);
            }
        }
    }
}
