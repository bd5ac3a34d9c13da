//! What becomes of the grants that wait in an account's queue, once the ledger was looked at. Nothing
//! here waits, sends, or reads a clock: `drain` does the IO, and the simulator drives the same
//! functions.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::counter::{CountedGrant, QueuedGrant, RecordedGrants, SettledKeys, Settlement};
use crate::domain::account::{Unknown, instant_after, record};
use crate::domain::drafting::{Drafting, Known, Lapses};
use crate::domain::grant::{Entry, EntryKind, Line, Provisional};
use crate::domain::identity::{AccountId, KeyId};
use crate::domain::limit::per::Per;
use crate::domain::limit::shape::Limit;
use crate::domain::limit::total::TooMany;
use crate::domain::past::Past;
use crate::domain::policy::Policy;
use crate::engine::claim::useful_for;
use crate::engine::claim::way::Missing;
use crate::engine::instance::Terms;
use crate::ledger::{Draft, LedgerView};

/// What the queued grants of a round are recorded by.
pub struct Round<'a> {
    /// What the ledger showed after the queues were read: what has left them since is in it.
    pub seen: &'a LedgerView,
    /// What grants are decided by.
    pub terms: &'a Terms,
    /// The present instant.
    pub now: DateTime<Utc>,
    /// The keys of the entries of this round.
    pub keys: HashSet<KeyId>,
}

/// What one account's queued grants become.
pub struct Recording {
    /// Without entries where the ledger holds all that it can.
    pub draft: Draft,
    /// How many of the grants, from the first one on, the ledger holds once the entries are
    /// committed.
    pub settled: usize,
}

impl Round<'_> {
    /// What becomes of an account's queued grants. `decided_by` tells the policy of each, as
    /// [`terms_of`] does. `known` is what was learned of the account.
    ///
    /// # Errors
    /// [`Missing`] outside, [`TooMany`] inside.
    pub fn record(
        &mut self,
        queued: &[QueuedGrant],
        decided_by: &[Arc<Policy>],
        known: &Known,
    ) -> Result<Result<Recording, TooMany>, Missing> {
        let first = &queued[0].grant;
        let last = self.seen.lines.get(&first.account);
        let lapses = self.lapses(first.account, &decided_by[0], last, known)?;
        let mut recording = Recording {
            draft: Draft {
                account: first.account,
                subject: first.subject.clone(),
                after: last.cloned(),
                policy: first.policy,
                entries: lapses.entries,
            },
            settled: 0,
        };
        if lapses.has_more {
            return Ok(Ok(recording));
        }
        for (queued, policy) in queued.iter().zip(decided_by) {
            let grant = &queued.grant;
            let mut key = grant.key;
            if let Some(entry) = entry_of(grant, self.seen) {
                if entry.id == grant.entry || is_same_claim(entry, grant) {
                    if last.is_none_or(|last| last.number < entry.line.number) {
                        // It came after the last line was read, which does not count it: the
                        // next round sees a line that does.
                        break;
                    }
                    recording.settled += 1;
                    continue;
                }
                // Another claim has the key. This grant was given, and is recorded without.
                key = None;
            }
            let is_recorded = |entry: &Entry| entry.id == grant.entry;
            if recording.draft.entries.iter().any(is_recorded) {
                // Redis forgot that it waits, and queued it again.
                recording.settled += 1;
                continue;
            }
            if key.is_some_and(|key| self.keys.contains(&key)) {
                // Another account of this round has it: the next round sees what it is.
                break;
            }
            let entries = &mut recording.draft.entries;
            // The ledger tells the past up to its last line, without the entries of this round.
            let may_learn = entries.is_empty();
            let none = Past::default();
            let past = if may_learn { &known.past } else { &none };
            let line = entries.last().map(|entry| &entry.line);
            let line = line.or(lapses.line.as_ref());
            let (line, provisional) = match self.next_line(grant, policy, line, past) {
                Ok(Ok(recorded)) => recorded,
                Ok(Err(too_many)) => return Ok(Err(too_many)),
                Err(Missing::Ledger(_)) if !may_learn => break,
                Err(missing) => return Err(missing),
            };
            self.keys.extend(key);
            entries.push(Entry {
                key,
                ..grant.entry(line, provisional, &queued.totals)
            });
            recording.settled += 1;
        }
        Ok(Ok(recording))
    }

    /// The line of a queued grant after a `line`, and how it is recorded.
    fn next_line(
        &self,
        grant: &CountedGrant,
        policy: &Arc<Policy>,
        line: Option<&Line>,
        past: &Past,
    ) -> Result<Result<(Line, Provisional), TooMany>, Missing> {
        let at = grant.entry.at();
        match record(policy, grant.units, line, past, at) {
            Err(Unknown::Policy) => {
                let policy = self.terms.after(policy, grant.account, line, at);
                let policy = policy.ok_or(Missing::Policy)?;
                record(&policy, grant.units, line, past, at).map_err(Missing::Ledger)
            }
            recorded => recorded.map_err(Missing::Ledger),
        }
    }

    /// The lapses that are due in an account, which go before what was counted without those
    /// holds; and the line that they leave.
    fn lapses(
        &self,
        account: AccountId,
        policy: &Arc<Policy>,
        last: Option<&Line>,
        known: &Known,
    ) -> Result<Lapses, Missing> {
        let is_due = |line: &Line| line.may_have_lapses(instant_after(last, self.now));
        if !last.is_some_and(is_due) {
            return Ok(Lapses::none(last.cloned()));
        }
        let is_newer = last.is_some_and(|last| last.policy_version > policy.version);
        let policy = match is_newer {
            true => self.terms.after(policy, account, last, self.now),
            false => Some(policy.clone()),
        };
        let policy = policy.ok_or(Missing::Policy)?;
        let drafting = Drafting::begin(account, &policy, last.cloned(), known, self.now);
        Ok(drafting.map_err(Missing::Ledger)?.into_lapses())
    }
}

impl Recording {
    /// Whether the ledger holds its entries, once those of some accounts were appended.
    pub fn is_committed(&self, appended: &HashSet<AccountId>) -> bool {
        self.draft.entries.is_empty() || appended.contains(&self.draft.account)
    }

    /// What to take off the queue once the entries are committed.
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
        let keys = entries.iter().filter_map(|entry| entry.key).collect();
        let settlement = Settlement {
            account: *account,
            line: line.clone(),
            confirmed_at: now,
            only_existing: false,
            seen: None,
            keys: SettledKeys::since(after.as_ref(), keys),
            ttl: useful_for(line, true, now),
        };
        Some(RecordedGrants {
            settlement,
            grants: queued[..self.settled].iter().collect(),
        })
    }
}

/// What a grant was decided by: its version of the policy, with the `max` of then.
pub fn terms_of(queued: &QueuedGrant, policy: Arc<Policy>) -> Arc<Policy> {
    let decided_by = |per: Per| {
        let total = queued.totals.iter().find(|total| total.per() == per);
        total.map(|total| total.max)
    };
    let is_own = |limit: &Limit| decided_by(limit.per()).is_none_or(|max| max == limit.max);
    match policy.rule.limits.iter().all(is_own) {
        true => policy,
        false => Arc::new(policy.with_max(decided_by)),
    }
}

/// The entry that has a queued grant's id, or else its key.
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
