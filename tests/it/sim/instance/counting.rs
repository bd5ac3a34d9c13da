//! An instance that lets Redis decide. The production code of `counted` decides what happens
//! next. This file replaces its workers by an executor without async.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use chrono::TimeDelta;
use perdiem::claims::counted::decision::{
    ASKS_MOST, CountStep, CountedClaim, asked_too_often, count_of, counted_again, counted_first,
    first_count, first_word, is_counted_now, leave_uncounted, not_counted, unanswered, word_of,
};
use perdiem::claims::counted::recording::{Recording, Round, terms_of};
use perdiem::claims::instance::is_fresh;
use perdiem::claims::protocol::account_view::Missing;
use perdiem::claims::protocol::in_flight::InFlight;
use perdiem::claims::protocol::settle::Settling;
use perdiem::claims::protocol::step::LeaveReason;
use perdiem::counter::{Count, Counted, LedgerWord, QueuedGrant, Settlement};
use perdiem::domain::account_facts::AccountFacts;
use perdiem::domain::drafting::Drafting;
use perdiem::domain::grant::Line;
use perdiem::domain::identity::AccountId;
use perdiem::domain::limit::total::Total;
use perdiem::domain::policy::Policy;
use perdiem::engine::Undecided;
use perdiem::ledger::{Burst, Draft, LedgerError, LedgerView, Look};

use super::{Around, Instance, look_for_key, settle};
use crate::sim::Planted;
use crate::sim::calls::{Counting, Recorded, Request, Response, Waiting};

/// The difference between two clocks that instances allow for.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::seconds(1);

impl Instance {
    /// A claim leaves for Redis.
    pub fn leave(&mut self, claim: InFlight, reason: LeaveReason, around: &mut Around) {
        let at = around.time.at();
        if is_counted_now(&claim, reason, at) {
            self.count(claim.into(), around);
        } else if at >= claim.deadline {
            claim.end(Err(Undecided::Deadline));
        } else {
            let waiting = Waiting::GoBack(Box::new(claim));
            around.calls.push((Request::Pause, waiting));
        }
    }

    /// Redis decides a claim.
    pub fn count(&mut self, mut counted: CountedClaim, around: &mut Around) {
        let present = self.facts.present(around.time);
        let word = first_word(self.ledger_is_silent);
        match first_count(&mut counted, word, present.terms, present.now) {
            Some(count) => self.send_count(counted, count, 0, around),
            None => {
                let step = leave_uncounted(&mut counted.claim);
                self.go(counted.claim, step, around);
            }
        }
    }

    fn send_count(
        &mut self,
        mut counted: CountedClaim,
        count: Count,
        asks: u32,
        around: &mut Around,
    ) {
        if !self.counters_answer {
            let step = unanswered(&mut counted.claim, false);
            return self.go(counted.claim, step, around);
        }
        let counting = Counting {
            counted,
            count: count.clone(),
            as_of: self.facts.terms.as_of(),
            asks,
        };
        let age = TimeDelta::from_std(around.time.0 - self.connected_at.0).expect("a short time");
        let request = Request::Count(count.clone(), count.now - age + CLOCKS_DIFFER);
        around
            .calls
            .push((request, Waiting::Count(Box::new(counting))));
    }

    /// Handles Redis' answer to a count; `None` means that no answer came.
    pub fn counted(&mut self, counting: Counting, answer: Option<Counted>, around: &mut Around) {
        let Counting {
            mut counted,
            count,
            as_of,
            asks,
        } = counting;
        let claim = &mut counted.claim;
        let at = around.time.at();
        let step = match answer {
            None => {
                let is_sent = self.planted != Planted::CountsUnseen;
                CountStep::GoBack(unanswered(claim, is_sent))
            }
            answer if asks > 0 => counted_again(claim, count, answer, at),
            answer => counted_first(claim, count, answer, as_of, at),
        };
        let asks_most = match self.planted {
            Planted::AsksOnce => 1,
            _ => ASKS_MOST,
        };
        match step {
            CountStep::ReadLedger if asks >= asks_most => {
                let step = asked_too_often(claim);
                self.go(counted.claim, step, around);
            }
            CountStep::ReadLedger => self.ask_ledger(counted, asks, around),
            CountStep::Probe(denial) => {
                let look = look_for_key(claim);
                let waiting = Waiting::CountedKey(Box::new(counted), denial);
                around.calls.push((Request::Look(look), waiting));
            }
            CountStep::CountLater if at >= claim.deadline => {
                counted.claim.end(Err(Undecided::Deadline));
            }
            CountStep::CountLater => {
                let waiting = Waiting::CountAgain(Box::new(counted));
                around.calls.push((Request::Pause, waiting));
            }
            CountStep::GoBack(step) => self.go(counted.claim, step, around),
        }
    }

    /// Asks the ledger about a claim, which Redis decides again afterwards.
    pub fn ask_ledger(&mut self, counted: CountedClaim, asks: u32, around: &mut Around) {
        if asks == 0 && self.ledger_is_silent {
            return self.count(counted, around);
        }
        let work = &counted.claim.work;
        let look = Look {
            accounts: vec![work.account],
            keys: work.key.into_iter().collect(),
            ..Look::default()
        };
        let waiting = Waiting::Word(Box::new(counted), asks + 1);
        around.calls.push((Request::Look(look), waiting));
    }

    /// Handles the ledger's answer about a claim; `None` means that no answer came. The claim is
    /// then counted with this answer.
    pub fn told(
        &mut self,
        mut counted: CountedClaim,
        asks: u32,
        seen: Option<&LedgerView>,
        around: &mut Around,
    ) {
        let claim = &mut counted.claim;
        let now = self.facts.present(around.time).now;
        let mut word = LedgerWord::Silent;
        let mut totals = None;
        if let Some(seen) = seen {
            let last = seen.lines.get(&claim.work.account);
            claim.work.policy = self.terms_after(claim, last, around);
            if let Some(step) = not_counted(claim, seen, now) {
                return self.go(counted.claim, step, around);
            }
            if let Some(line) = last {
                let account = claim.work.account;
                let seen = claim.hints.counter;
                settle(Settling::confirmation(account, line, seen, now), around);
            }
            word = word_of(last);
            totals = Some(self.totals(claim, last, around));
        }
        let count = count_of(&mut counted, totals, word, now);
        self.send_count(counted, count, asks, around);
    }

    fn terms_after(&self, claim: &InFlight, last: Option<&Line>, around: &Around) -> Arc<Policy> {
        let work = &claim.work;
        let present = self.facts.present(around.time);
        let terms = present.terms;
        let after = || terms.after(&work.policy, work.account, last, present.now);
        if !is_fresh(terms.as_of(), present.at) || after().is_none() {
            self.poll(around);
        }
        after().expect("every version is known")
    }

    fn totals(&self, claim: &InFlight, last: Option<&Line>, around: &Around) -> Vec<Total> {
        let account = claim.work.account;
        let now = self.facts.present(around.time).now;
        let mut known = AccountFacts::default();
        loop {
            let policy = &claim.work.policy;
            let drafting = Drafting::begin(account, policy, last.cloned(), &known, now);
            match drafting.and_then(|drafting| drafting.totals()) {
                Ok(totals) => return totals,
                Err(unknown) => around.ledger.tell(&mut known, unknown, account, last, now),
            }
        }
    }

    /// Handles the content of the queue: looks up the queued grants in the ledger.
    pub fn drain(&mut self, queued: Vec<QueuedGrant>, around: &mut Around) {
        let mut accounts: BTreeMap<AccountId, Vec<QueuedGrant>> = BTreeMap::new();
        let mut look = Look::default();
        for queued in queued {
            let grant = &queued.grant;
            look.keys.extend(grant.key);
            look.entries.push(grant.entry);
            accounts.entry(grant.account).or_default().push(queued);
        }
        look.accounts = accounts.keys().copied().collect();
        if self.planted == Planted::DrainsUnseen {
            look = Look {
                accounts: look.accounts,
                ..Look::default()
            };
        }
        let waiting = Waiting::Queue(accounts.into_values().collect());
        around.calls.push((Request::Look(look), waiting));
    }

    /// Handles the look-up of queued grants: decides each grant and appends the result.
    pub fn record(
        &mut self,
        accounts: Vec<Vec<QueuedGrant>>,
        mut seen: LedgerView,
        around: &mut Around,
    ) {
        if self.planted == Planted::TakesLaterEntries {
            let lines = &seen.lines;
            for entry in &mut seen.entries {
                let last = lines.get(&entry.account);
                entry.line.number = last.map_or(0, |line| line.number);
            }
        }
        self.poll(around);
        let present = self.facts.present(around.time);
        let mut round = Round {
            seen: &seen,
            terms: present.terms,
            now: present.now,
            keys: HashSet::new(),
        };
        let mut recorded = Vec::new();
        for queued in accounts {
            self.nonce += 1;
            let recording = decide(&queued, &mut round, self.nonce, around);
            recorded.push((queued, recording));
        }
        let drafts = drafts(&recorded);
        if drafts.is_empty() {
            return self.take_off(recorded, &HashSet::new(), around);
        }
        let fence = seen.fence.expect("a look at accounts shows the fence");
        let waiting = Waiting::Record(recorded);
        around.calls.push((Request::Burst(drafts, fence), waiting));
    }

    /// Handles the end of a transaction that appends queued grants.
    pub fn recorded(&mut self, recorded: Vec<Recorded>, response: Response, around: &mut Around) {
        let drafts = drafts(&recorded);
        match response {
            Response::Burst(Burst::Committed(_)) => {
                let all = drafts.iter().map(|draft| draft.account).collect();
                self.take_off(recorded, &all, around);
            }
            Response::Burst(Burst::Behind) => self.take_off(recorded, &HashSet::new(), around),
            Response::Burst(_) => {
                let waiting = Waiting::Record(recorded);
                around.calls.push((Request::Append(drafts), waiting));
            }
            Response::Appended(accounts) => self.take_off(recorded, &accounts, around),
            Response::Failed(LedgerError::Conflict) => {
                self.take_off(recorded, &HashSet::new(), around);
            }
            // The grants wait for the next drain.
            _ => {}
        }
    }

    fn take_off(
        &mut self,
        recorded: Vec<Recorded>,
        appended: &HashSet<AccountId>,
        around: &mut Around,
    ) {
        let now = self.facts.present(around.time).now;
        let committed = recorded
            .iter()
            .filter(|(_, recording)| recording.is_committed(appended));
        let records: Vec<(Settlement, Vec<QueuedGrant>)> = committed
            .filter_map(|(queued, recording)| recording.recorded(queued, now))
            .map(|recorded| {
                let grants = recorded.grants.into_iter().cloned();
                (recorded.settlement, grants.collect())
            })
            .collect();
        if !records.is_empty() {
            around
                .calls
                .push((Request::Record(records), Waiting::Drained));
        }
    }
}

/// Decides an account's queued grants.
fn decide(queued: &[QueuedGrant], round: &mut Round, nonce: u64, around: &Around) -> Recording {
    let policies = &around.ledger.policies;
    let decided_by = queued.iter().map(|queued| {
        let policy = policies[queued.grant.policy_version as usize - 1].clone();
        terms_of(queued, policy.into())
    });
    let decided_by: Vec<Arc<Policy>> = decided_by.collect();
    let account = queued[0].grant.account;
    let last = round.seen.lines.get(&account);
    let mut known = AccountFacts::to_append(nonce);
    loop {
        match round.record(queued, &decided_by, &known) {
            Ok(recording) => return recording.expect("few units"),
            Err(Missing::Ledger(unknown)) => {
                let now = round.now;
                around.ledger.tell(&mut known, unknown, account, last, now);
            }
            Err(Missing::Policy) => panic!("an unknown version"),
        }
    }
}

fn drafts(recorded: &[Recorded]) -> Vec<Draft> {
    let drafts = recorded.iter().map(|(_, recording)| &recording.draft);
    let drafts = drafts.filter(|draft| !draft.entries.is_empty());
    drafts.cloned().collect()
}
