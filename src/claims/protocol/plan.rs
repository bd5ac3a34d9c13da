//! The plan of a group: what its claims become once its drafts are committed.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::in_flight::{AnsweredClaim, InFlight, Outcome, Undecided};
use crate::instance::{Epoch, is_fresh};
use domain::drafting::Decided;
use domain::grant::{Entry, Line};
use domain::identity::EntryId;
use domain::policy::Policy;
use domain::shared::after;
use domain::work::Task;
use ledger::{Draft, LedgerView};

/// The outcome of a group's claims, valid once the drafts are committed.
pub struct Plan {
    /// The basis of the decision.
    pub basis: Basis,
    /// The entries to append to each account. A draft without entries appends nothing.
    pub drafts: Vec<Draft>,
    /// The claims that an entry of a draft answers.
    pub entered: Vec<Entered>,
    /// The other claims and their answers. These answers follow from the last lines or from the
    /// entries of the drafts.
    pub others: Vec<(InFlight, Outcome)>,
}

/// When and where the facts of a decision were read.
#[derive(Debug, Clone, Copy)]
pub struct Basis {
    /// The epoch in which the last lines became known.
    pub epoch: Epoch,
    /// The ledger was read after this instant. Entries that were appended since may be missing.
    pub seen_at: DateTime<Utc>,
    /// Every change of a policy that was made before this instant was known.
    pub as_of: Instant,
}

/// A claim or correction that an entry of a draft answers.
pub struct Entered {
    pub claim: InFlight,
    /// The index of the draft.
    pub draft: usize,
    /// The index of the entry in the draft.
    pub entry: usize,
    /// Whether the entry belongs to an earlier claim that did the same.
    pub is_repeat: bool,
}

/// What an account needs from its counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterNeed {
    /// No counter. None exists, and none could deny the next claim.
    Absent,
    /// If a counter exists, the counter must not lag. No counter could deny the next claim.
    Kept,
    /// A counter must exist.
    Wanted,
}

impl Plan {
    pub fn new(basis: Basis) -> Self {
        Self {
            basis,
            drafts: Vec::with_capacity(1),
            entered: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds a decided claim of the account of a draft.
    pub fn take_in(
        &mut self,
        mut claim: InFlight,
        draft: usize,
        decided: Decided,
        policy: &Arc<Policy>,
    ) {
        claim.work.policy = policy.clone();
        let outcome = match decided {
            Decided::Entry(entry) | Decided::Repeated(entry) => {
                return self.entered.push(Entered {
                    claim,
                    draft,
                    entry,
                    is_repeat: matches!(decided, Decided::Repeated(_)),
                });
            }
            Decided::Stands(entry) => Outcome::Repeated(*entry),
            Decided::Refused(refusal) => Outcome::Refused(policy.clone(), refusal),
        };
        self.others.push((claim, outcome));
    }

    /// The drafts that append entries.
    pub fn drafts(&self) -> impl Iterator<Item = &Draft> {
        self.drafts.iter().filter(|draft| !draft.entries.is_empty())
    }

    /// Whether a draft changes the usage of a limit that all subjects share.
    pub fn shares(&self) -> bool {
        self.drafts.iter().any(|draft| !draft.shared.is_empty())
    }

    /// Whether the limits that all subjects share have the room that the drafts need, as the ledger showed them.
    pub fn has_room(&self, seen: &LedgerView) -> bool {
        let changes = self.drafts.iter().flat_map(|draft| &draft.shared);
        after(&seen.shared, changes).is_some()
    }

    /// Whether the drafts may be sent, or the claims answered: the terms are fresh, and every claim
    /// still has time.
    pub fn holds(&self, now: Instant) -> bool {
        is_fresh(self.basis.as_of, now) && self.claims().all(|claim| now < claim.deadline)
    }

    /// Whether the drafts are committed: one of their entries is among these entries. All drafts of a
    /// plan are in one transaction.
    pub fn is_among(&self, entries: &[Entry]) -> bool {
        let mut ids = self.entry_ids();
        ids.any(|id| entries.iter().any(|entry| entry.id == id))
    }

    /// Whether drafts that were not found may still be committed: the last line of each account is
    /// still the line before its draft, and none of the keys has another entry.
    pub fn may_be_committed(&self, seen: &LedgerView) -> bool {
        let number = |line: Option<&Line>| line.map_or(0, |line| line.number);
        let is_taken = |entry: &Entry| {
            let mut entered = self.entered.iter();
            entry.key.is_some() && entered.any(|entered| entered.claim.work.key == entry.key)
        };
        let is_next =
            |draft: &Draft| number(draft.after.as_ref()) == number(seen.lines.get(&draft.account));
        !seen.entries.iter().any(is_taken) && self.drafts().all(is_next)
    }

    pub fn claims(&self) -> impl Iterator<Item = &InFlight> + Clone {
        let entered = self.entered.iter().map(|entered| &entered.claim);
        entered.chain(self.others.iter().map(|(claim, _)| claim))
    }

    pub fn into_claims(self) -> impl Iterator<Item = InFlight> {
        let entered = self.entered.into_iter().map(|entered| entered.claim);
        entered.chain(self.others.into_iter().map(|(claim, _)| claim))
    }

    pub fn remember_ids(&mut self) {
        // A repeated claim has no entry of its own.
        let own = self.entered.iter_mut().filter(|entered| !entered.is_repeat);
        for Entered {
            claim,
            draft,
            entry,
            ..
        } in own
        {
            claim.sent.push(self.drafts[*draft].entries[*entry].id);
        }
    }

    /// The ids of the entries to append.
    pub fn entry_ids(&self) -> impl Iterator<Item = EntryId> {
        let entries = self.drafts.iter().flat_map(|draft| &draft.entries);
        entries.map(|entry| entry.id)
    }

    /// What an account needs from its counter. After a denial the next claim may be denied too.
    /// After a correction a claim may be granted that the counter would deny.
    pub fn counter_need(&self) -> CounterNeed {
        let is_plain = |claim: &InFlight| matches!(claim.work.task, Task::Claim(_));
        let allows = !self.others.iter().any(|(_, outcome)| outcome.has_no_room())
            && self.claims().all(is_plain);
        let mut claims = self.claims().peekable();
        // A draft of lapses alone has no claims: nothing tells whether a counter exists.
        let has_claims = claims.peek().is_some();
        if !allows {
            CounterNeed::Wanted
        } else if has_claims && claims.all(|claim| claim.hints.has_no_counter) {
            CounterNeed::Absent
        } else {
            CounterNeed::Kept
        }
    }

    /// The answers of all claims. The drafts must be committed; then no other drafts that follow the
    /// same lines can be.
    pub fn answers(self) -> impl Iterator<Item = AnsweredClaim> {
        let drafts = self.drafts;
        let others = self.others.into_iter().map(|(claim, outcome)| {
            let is_refused = matches!(outcome, Outcome::Refused(..) | Outcome::Withheld(..));
            let has_entries =
                |it: &Draft| it.account == claim.work.account && !it.entries.is_empty();
            let may_stand = !claim.sent.is_empty() && !drafts.iter().any(has_entries);
            let is_unseen =
                outcome.is_denied() && claim.work.key.is_some() && claim.grants_may_wait;
            let answer = match outcome {
                _ if is_refused && may_stand => Err(Undecided::Sent),
                _ if is_unseen => Err(Undecided::Unseen),
                outcome => Ok(outcome),
            };
            (claim, answer)
        });
        let others: Vec<AnsweredClaim> = others.collect();
        let entered = self.entered.into_iter().map(move |entered| {
            let entry = drafts[entered.draft].entries[entered.entry].clone();
            let outcome = if entered.is_repeat {
                Outcome::Repeated(entry)
            } else {
                Outcome::Entered(entry)
            };
            (entered.claim, Ok(outcome))
        });
        entered.chain(others)
    }
}
