//! The rule that records the queued grants of an account after the ledger was read. Nothing here
//! waits, sends, or reads a clock: `drain` does the IO, and the simulator drives the same
//! functions.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::instance::Terms;
use crate::protocol::account_view::Missing;
use crate::protocol::useful_for;
use counter::{CountedGrant, QueuedGrant, RecordedGrants, SettledKeys, Settlement};
use domain::account::{Unknown, instant_after, record};
use domain::account_facts::AccountFacts;
use domain::account_totals::levels_reached;
use domain::drafting::{Drafting, Lapses};
use domain::grant::{Entry, EntryKind, Line, Provisional};
use domain::identity::{AccountId, KeyId};
use domain::limit::per::Per;
use domain::limit::shape::Limit;
use domain::limit::total::TooMany;
use domain::past::Past;
use domain::policy::Policy;
use domain::warning::Levels;
use ledger::{Draft, LedgerView};

/// The basis for recording queued grants.
pub struct Round<'a> {
    /// The view of the ledger after the queues were read. Invariant: a grant that left the queues
    /// meanwhile is in this view.
    pub seen: &'a LedgerView,
    pub terms: &'a Terms,
    pub now: DateTime<Utc>,
    /// The keys of the entries of this round.
    pub keys: HashSet<KeyId>,
}

/// The recording of the queued grants of one account.
pub struct Recording {
    /// The entries to append; none if the ledger already has them all.
    pub draft: Draft,
    /// How many grants, from the first one on, the ledger has once the entries are committed.
    pub settled: usize,
    /// Whether an erasure gave older entries of the account, with their keys, to another one.
    pub is_erased: bool,
}

impl Round<'_> {
    /// Records the queued grants of an account. `decided_by` has the policy of each grant, as
    /// [`terms_of`] returns it. `known` is what was read about the account.
    ///
    /// # Errors
    /// [`Missing`] outside, [`TooMany`] inside.
    pub fn record(
        &mut self,
        queued: &[QueuedGrant],
        decided_by: &[Arc<Policy>],
        known: &AccountFacts,
    ) -> Result<Result<Recording, TooMany>, Missing> {
        // 1. Lapses that are due go first. If many are due, they are recorded alone.
        let first = &queued[0].grant;
        let last = self.seen.lines.get(&first.account);
        let lapses = self.lapses(first.account, &decided_by[0], last, known)?;
        let mut recording = Recording {
            draft: Draft {
                account: first.account,
                component: first.account,
                subject: first.subject.clone(),
                after: last.cloned(),
                policy: first.policy,
                entries: lapses.entries,
                shared: lapses.shared,
            },
            settled: 0,
            is_erased: self.seen.erased.contains(&first.account),
        };
        if lapses.has_more {
            return Ok(Ok(recording));
        }
        // 2. Each grant is recorded in the order of the queue.
        for (queued, policy) in queued.iter().zip(decided_by) {
            let grant = &queued.grant;
            let mut key = grant.key;
            // 2a. The ledger has the grant already, or an entry with its key.
            if let Some(entry) = entry_of(grant, self.seen) {
                if entry.id == grant.entry || is_same_claim(entry, grant) {
                    if last.is_none_or(|last| last.number < entry.line.number) {
                        // The entry came after the last line was read, and the line does not count
                        // it: the next round has a newer line.
                        break;
                    }
                    recording.settled += 1;
                    continue;
                }
                // Another claim has the key. This grant was answered, so it is recorded without its
                // key.
                key = None;
            }
            // 2b. The grant is queued twice.
            let is_recorded = |entry: &Entry| entry.id == grant.entry;
            if recording.draft.entries.iter().any(is_recorded) {
                // Redis forgot that the grant waits, and queued it again.
                recording.settled += 1;
                continue;
            }
            // 2c. The key belongs to another account of this round.
            if key.is_some_and(|key| self.keys.contains(&key)) {
                // The next round sees the entry with the key.
                break;
            }
            // 2d. The grant gets the next line.
            let entries = &mut recording.draft.entries;
            // The past was read up to the last line of the ledger: it does not contain the entries
            // of this round.
            let may_learn = entries.is_empty();
            let none = Past::default();
            let past = if may_learn { &known.past } else { &none };
            let line = entries.last().map(|entry| &entry.line);
            let line = line.or(lapses.line.as_ref());
            let (line, provisional, crossed) = match self.next_line(grant, policy, line, past) {
                Ok(Ok(recorded)) => recorded,
                Ok(Err(too_many)) => return Ok(Err(too_many)),
                Err(Missing::Ledger(_)) if !may_learn => break,
                Err(missing) => return Err(missing),
            };
            self.keys.extend(key);
            let entry = Entry {
                key,
                crossed,
                ..grant.entry(line, provisional, &queued.totals)
            };
            // A policy with a total is not counted, but it may have been when Redis granted this.
            let shared = policy.shared_changes(&entry, policy.version);
            recording.draft.shared.extend(shared);
            recording.draft.entries.push(entry);
            recording.settled += 1;
        }
        Ok(Ok(recording))
    }

    /// The line of a queued grant after `line`, whether the grant went over a limit, and the levels of use
    /// that it reached.
    fn next_line(
        &self,
        grant: &CountedGrant,
        policy: &Arc<Policy>,
        line: Option<&Line>,
        past: &Past,
    ) -> Result<Result<(Line, Provisional, Levels), TooMany>, Missing> {
        let at = grant.entry.at();
        let recorded = |policy: &Policy| match record(policy, grant.units, line, past, at)? {
            Ok((new, provisional)) => {
                let levels = levels_reached(policy, line, past, &new)?;
                Ok(Ok((new, provisional, levels)))
            }
            Err(too_many) => Ok(Err(too_many)),
        };
        match recorded(policy) {
            Err(Unknown::Policy) => {
                let policy = self.terms.after(policy, grant.account, line, at);
                let policy = policy.ok_or(Missing::Policy)?;
                recorded(&policy).map_err(Missing::Ledger)
            }
            recorded => recorded.map_err(Missing::Ledger),
        }
    }

    /// The lapses that are due in an account, and the line after them. They go before grants that
    /// were counted without the lapsed holds.
    fn lapses(
        &self,
        account: AccountId,
        policy: &Arc<Policy>,
        last: Option<&Line>,
        known: &AccountFacts,
    ) -> Result<Lapses, Missing> {
        let is_due = |line: &Line| line.may_have_lapses(instant_after(last, self.now));
        if !last.is_some_and(is_due) {
            return Ok(Lapses::none(last.cloned()));
        }
        let is_newer = last.is_some_and(|last| last.policy_version > policy.version);
        let policy = if is_newer {
            self.terms.after(policy, account, last, self.now)
        } else {
            Some(policy.clone())
        };
        let policy = policy.ok_or(Missing::Policy)?;
        let drafting = Drafting::begin(account, &policy, last.cloned(), known, self.now);
        Ok(drafting.map_err(Missing::Ledger)?.into_lapses())
    }
}

impl Recording {
    /// Whether the ledger has the entries, once the drafts of some accounts were appended.
    pub fn is_committed(&self, appended: &HashSet<AccountId>) -> bool {
        self.draft.entries.is_empty() || appended.contains(&self.draft.account)
    }

    /// The grants to take off the queue once the entries are committed.
    pub fn recorded<'a>(
        &self,
        queued: &'a [QueuedGrant],
        now: DateTime<Utc>,
    ) -> Option<RecordedGrants<'a>> {
        let Draft {
            account,
            after,
            entries,
            ..
        } = &self.draft;
        let appended = entries.last().map(|entry| &entry.line);
        let line = appended.or(after.as_ref())?;
        let keys = if self.is_erased {
            SettledKeys::Unknown
        } else {
            let keys = entries.iter().filter_map(|entry| entry.key);
            SettledKeys::since(after.as_ref(), keys.collect())
        };
        let settlement = Settlement {
            account: *account,
            line: line.clone(),
            confirmed_at: now,
            only_existing: false,
            seen: None,
            keys,
            ttl: useful_for(line, true, now),
        };
        Some(RecordedGrants {
            settlement,
            grants: queued[..self.settled].iter().collect(),
        })
    }
}

/// The policy that decided a grant: its version, with the `max` of the time of the grant.
pub fn terms_of(queued: &QueuedGrant, policy: Arc<Policy>) -> Arc<Policy> {
    let decided_by = |per: Per| {
        let total = queued.totals.iter().find(|total| total.per() == per);
        total.map(|total| total.max)
    };
    let is_own = |limit: &Limit| decided_by(limit.per()).is_none_or(|max| max == limit.max);
    if policy.rule.limits.iter().all(is_own) {
        policy
    } else {
        Arc::new(policy.with_max(decided_by))
    }
}

/// The entry with the id of a queued grant, or else the entry with its key.
fn entry_of<'a>(grant: &CountedGrant, seen: &'a LedgerView) -> Option<&'a Entry> {
    let by_id = seen.entries.iter().find(|entry| entry.id == grant.entry);
    by_id.or_else(|| {
        let mut entries = seen.entries.iter();
        entries.find(|entry| grant.key.is_some() && entry.key == grant.key)
    })
}

fn is_same_claim(entry: &Entry, grant: &CountedGrant) -> bool {
    entry.account == grant.account
        && entry.units == grant.units
        && entry.metadata == grant.metadata
        && entry.kind == EntryKind::Grant { held_until: None }
}
