//! Claims and groups for the unit tests of the protocol.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::Instant;
use uuid::Uuid;

use super::account_view::AccountView;
use super::group::Group;
use super::in_flight::{InFlight, Outcome, Undecided, Waiter};
use super::plan::Basis;
use super::present::Present;
use super::step::Steps;
use crate::instance::{Epoch, Memory, Places, Terms};
use domain::account_facts::AccountFacts;
use domain::grant::Entry;
use domain::identity::AccountId;
use domain::policy::Policy;
use domain::samples::{policy, work};
use domain::work::Task;
use ledger::LedgerView;

pub type ClaimAnswered = Receiver<Result<Outcome, Undecided>>;

pub fn benefit() -> Arc<Policy> {
    Arc::new(policy(1, "UTC", &[(3, "day")]))
}

pub fn account(number: u128) -> AccountId {
    AccountId(Uuid::from_u128(number))
}

/// A claim without a key: only the ids of its entries tell whether its grant is committed.
pub fn claim_of(account: AccountId) -> (InFlight, ClaimAnswered) {
    let (answer, answered) = oneshot::channel();
    let work = work(Task::Claim(None), benefit(), account);
    let waiter = Waiter {
        answer,
        turn: None,
        _place: Places::new(1).try_take(&"shop".into()).unwrap(),
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    (InFlight::new(work, deadline, waiter), answered)
}

pub fn claim() -> (InFlight, ClaimAnswered) {
    claim_of(account(1))
}

/// Takes a step at an instant, with what an instance knows that has just started.
pub fn at<T>(micros: i64, step: impl FnOnce(&Present) -> T) -> T {
    let at = Instant::now();
    let terms = Terms::new(at);
    let memory = Memory::default();
    step(&Present {
        terms: &terms,
        memory: &memory,
        now: DateTime::UNIX_EPOCH + TimeDelta::microseconds(micros),
        at,
        has_counters: false,
    })
}

/// Decides the claims of new accounts at an instant. Returns the entries to append.
pub fn decide(group: &mut Group, micros: i64) -> Vec<Entry> {
    at(micros, |present| {
        let basis = Basis {
            epoch: Epoch::default(),
            seen_at: present.now,
            as_of: present.at,
        };
        let view = |account: &AccountId| AccountView {
            account: *account,
            after: None,
            facts: AccountFacts::default(),
        };
        let views: Vec<_> = group.scope.accounts().iter().map(view).collect();
        group.decide(basis, &views, &[], present).unwrap();
    });
    let entries = group.drafts().flat_map(|draft| &draft.entries);
    entries.cloned().collect()
}

/// Looks at a ledger that holds some entries. Returns the next steps.
pub fn look(group: &mut Group, entries: Vec<Entry>) -> Steps {
    let seen = LedgerView {
        entries,
        ..LedgerView::default()
    };
    let mut steps = Steps::default();
    at(0, |present| group.after_look(&seen, present, &mut steps));
    steps
}
