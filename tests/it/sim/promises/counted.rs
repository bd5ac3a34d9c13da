//! The promises of claims that Redis decides alone.
//!
//! 1. Never over, while Redis alone decides and forgets nothing. A grant over the limit is marked.
//! 2. A grant that was answered is in the queue or in the ledger, and at the end in the ledger,
//!    exactly once. A queued grant may be lost only when Redis forgets it.
//! 3. A key gets one grant, while Redis alone decides.
//! 4. Counters follow the ledger: when nothing is open, no units wait.
//! 5. A claim that fits is granted, unless it waited for half of its time.
//! 6. Redis decides alone, while Redis and the ledger answer.
//!
//! Redis does not decide alone in these cases: Redis or the ledger does not answer an instance,
//! Redis forgets, the policy changes, or the ledger decides a hold (`docs/reliability.md`).

use std::collections::{BTreeMap, BTreeSet};

use perdiem::claims::counted::decision::entry_of;
use perdiem::counter::{Count, QueuedGrant};
use perdiem::domain::grant::{Entry, EntryKind, Provisional};
use perdiem::domain::identity::{AccountId, KeyId};
use perdiem::domain::work::Work;

use super::{Broken, nonce, nonce_of, promise};
use crate::sim::Counting;
use crate::sim::clients::{CLAIM_TIME, Sent};
use crate::sim::ledger::Ledger;
use crate::sim::redis::Redis;
use crate::sim::time::Time;

/// The grants that Redis decided, and whether it decided alone.
#[derive(Default)]
pub struct Counts {
    counting: Option<Counting>,
    /// Whether something other than Redis also decided.
    pub is_mixed: bool,
    /// The grants that clients were told.
    told: Vec<Entry>,
    /// The account of each key; `None` when several accounts use the key.
    keys: BTreeMap<KeyId, Option<AccountId>>,
    /// The grants that were in the queue when Redis forgot it.
    forgotten: Vec<QueuedGrant>,
    /// Grants that were recorded without their keys, because another claim had them. Here they have
    /// their keys.
    without_keys: Vec<Entry>,
    /// The claims that Redis did not grant, and was asked to count once more by a late message.
    late: BTreeSet<u64>,
}

impl Counts {
    pub fn new(counting: Counting) -> Self {
        Self {
            counting: Some(counting).filter(|it| *it != Counting::Never),
            ..Self::default()
        }
    }

    /// Whether Redis may decide claims in this scene.
    pub fn is_possible(&self) -> bool {
        self.counting.is_some()
    }

    /// From now on something other than Redis may decide, or Redis without its earlier counts.
    pub fn mix(&mut self) {
        self.is_mixed |= self.is_possible();
    }

    /// Redis counts a claim.
    pub fn counted(&mut self) {
        self.is_mixed |= self.counting == Some(Counting::InOutage);
    }

    /// A message that arrives late asks Redis once more to count a claim that it did not grant: it
    /// may grant the claim now.
    pub fn count_late(&mut self, count: &Count) {
        self.mix();
        let grant = count.grant.as_ref();
        self.late.extend(grant.map(|grant| nonce_of(grant.entry)));
    }

    /// Whether a claim may have these two entries. One of them, without a key, is from Redis, to
    /// which a message came late (`docs/reliability.md`).
    pub fn may_be_twice(&self, one: &Entry, other: &Entry) -> bool {
        let from_redis = [one, other].map(|entry| entry.provisional.is_some());
        one.key.is_none() && from_redis[0] != from_redis[1] && self.late.contains(&nonce(one))
    }

    pub fn sent(&mut self, work: &Work) {
        if let Some(key) = work.key {
            let account = self.keys.entry(key).or_insert(Some(work.account));
            *account = account.filter(|it| *it == work.account);
        }
    }

    pub fn redis_forgot(&mut self, grants: Vec<QueuedGrant>) {
        self.forgotten.extend(grants);
    }

    /// The queued grants that the ledger lacks, as entries without numbers.
    pub fn waiting(ledger: &Ledger, redis: &Redis) -> Vec<Entry> {
        let queued = redis.queue.iter().cloned();
        let entries = queued.map(|queued| entry_of(&queued.grant, queued.totals));
        entries
            .filter(|entry| !is_recorded(entry, &ledger.entries))
            .collect()
    }

    /// Notes a grant of Redis that was recorded without the key of its claim.
    pub fn note_key(&mut self, entry: &Entry, claim: &Sent) {
        let key = claim.work.key;
        if entry.provisional.is_some() && entry.key != key {
            let entry = entry.clone();
            self.without_keys.push(Entry { key, ..entry });
        }
    }

    pub fn check_appended(&self, entry: &Entry) -> Result<(), Broken> {
        let is_past = matches!(entry.kind, EntryKind::Grant { .. }) && entry.provisional.is_none();
        promise(
            !is_past || self.is_mixed || self.counting != Some(Counting::Always),
            || "Redis decides alone: a claim went past the queue".to_owned(),
        )?;
        let is_over = entry.provisional == Some(Provisional::Over);
        promise(!is_over || self.is_mixed, || {
            "never over: Redis alone decided".to_owned()
        })
    }

    /// Checks the grant in the answer to a claim.
    pub fn check_told(&mut self, entry: &Entry, lost: &[Entry]) -> Result<(), Broken> {
        let is_own = entry.key.is_some_and(|key| self.keys[&key].is_some());
        if self.is_possible() && is_own && !self.is_mixed && lost.is_empty() {
            let is_other = |told: &Entry| told.key == entry.key && told.id != entry.id;
            promise(!self.told.iter().any(is_other), || {
                "the same key gets the same grant".to_owned()
            })?;
        }
        if self.is_possible() {
            self.told.push(entry.clone());
        }
        Ok(())
    }

    /// Grants that were queued, and that no store has with their keys any more: Redis forgot them, or
    /// they were recorded without their keys.
    pub fn were_queued(&self) -> Vec<Entry> {
        let forgotten = self.forgotten.iter().cloned();
        let entries = forgotten.map(|queued| entry_of(&queued.grant, queued.totals));
        entries.chain(self.without_keys.iter().cloned()).collect()
    }

    /// Whether a grant that Redis counted is in the queue or in the ledger, or may be lost.
    pub fn is_safe(&self, entry: &Entry, lost: &[Entry], ledger: &Ledger, redis: &Redis) -> bool {
        let waits = |queued: &QueuedGrant| queued.grant.entry == entry.id;
        redis.queue.iter().any(waits)
            || is_recorded(entry, &ledger.entries)
            || is_recorded(entry, lost)
            || self.forgotten.iter().any(waits)
    }

    /// Whether a claim that fits may be denied.
    pub fn may_deny(&self, claim: &Sent, time: Time) -> bool {
        let has_waited = time.0 >= claim.sent_at.0 + CLAIM_TIME / 2;
        self.is_mixed || self.is_possible() && has_waited
    }

    pub fn check_rest(&self, lost: &[Entry], ledger: &Ledger, redis: &Redis) -> Result<(), Broken> {
        promise(redis.is_drained(), || {
            "counters follow the ledger: units wait, and nothing is queued".to_owned()
        })?;
        let counted = self.told.iter().filter(|entry| entry.line.number == 0);
        let is_safe = |entry: &Entry| self.is_safe(entry, lost, ledger, redis);
        promise(counted.into_iter().all(is_safe), || {
            "a queued grant ends in the ledger, exactly once".to_owned()
        })
    }
}

/// Whether the entries contain a grant's id or its key.
fn is_recorded(grant: &Entry, entries: &[Entry]) -> bool {
    let has_key = |entry: &Entry| {
        grant.key.is_some() && entry.key == grant.key && entry.account == grant.account
    };
    entries
        .iter()
        .any(|entry| entry.id == grant.id || has_key(entry))
}
