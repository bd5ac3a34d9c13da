//! The queue of grants that Redis alone decided goes into the ledger, in order, each at its own
//! instant: over the limit if it must be, and marked so.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::chain::Chain;
use crate::clock::Clock;
use crate::counter::{
    CountedGrant, Counters, Queued, QueuedGrant, RecordedGrants, SettledKeys, Settlement,
    Unavailable,
};
use crate::domain::account::{Unknown, instant_after, record};
use crate::domain::drafting::{Drafting, Known, Lapses};
use crate::domain::grant::{Entry, EntryKind, Line, Provisional};
use crate::domain::identity::{AccountId, KeyId};
use crate::domain::policy::{Limit, Policy};
use crate::domain::totals::are_over;
use crate::domain::window::Per;
use crate::engine::Engine;
use crate::engine::claim::useful_for;
use crate::engine::instance::{DrainSignal, Metrics, Policies, Stage, Watch};
use crate::faults::reach;
use crate::ledger::{Draft, Fence, Ledger, LedgerError, LedgerView, Look};

/// How often every queue is looked at, also those that other instances left.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// What comes within this time goes into the ledger together, unless somebody waits for it.
const ROUND_EVERY: Duration = Duration::from_millis(50);
/// How many grants a round takes, and how many of one queue.
const ROUND_MOST: usize = 4096;
const OF_BUCKET_MOST: usize = 256;
/// How many accounts' grants are taken off the queues before claims that wait for Redis go on.
const RECORD_MOST: usize = 32;
/// How long to wait before an unreachable ledger or Redis is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// Brings queued grants into the ledger.
pub struct Drainer {
    /// Where they wait.
    pub counters: Counters,
    /// Where they go.
    pub ledger: Ledger,
    /// The source of time.
    pub clock: Clock,
    /// Their policies.
    pub policies: Arc<Policies>,
    /// Which queues to look at.
    pub signal: DrainSignal,
    /// What is known of the ledger's disk.
    pub watch: Arc<Watch>,
    /// What is measured.
    pub metrics: Metrics,
}

/// Why a round got no further. What it had not done waits for the next one.
#[derive(Debug, thiserror::Error)]
enum Stuck {
    #[error("the ledger did not take queued grants")]
    Ledger(#[from] LedgerError),
    #[error("the queues cannot be read")]
    Counters,
}

impl From<Unavailable> for Stuck {
    fn from(Unavailable: Unavailable) -> Self {
        Self::Counters
    }
}

/// What one account's queued grants become.
struct Recording<'a> {
    /// Without entries where the ledger holds all that it can.
    draft: Draft,
    /// The grants that the ledger holds once the entries stand.
    settled: Vec<&'a QueuedGrant>,
}

impl Drainer {
    /// Drains the queues, for ever.
    pub async fn run(self) {
        let mut sweeps = interval(SWEEP_EVERY);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_stuck = false;
        let mut next_round = Instant::now();
        // The queues that the clearance under way waits for.
        let mut uncleared: Option<HashSet<u8>> = None;
        loop {
            tokio::select! {
                () = self.signal.0.changed.notified() => tokio::select! {
                    () = sleep_until(next_round) => {}
                    () = self.signal.0.hurried.notified() => {}
                },
                _ = sweeps.tick() => drop(self.sweep().await),
            }
            next_round = Instant::now() + ROUND_EVERY;
            if uncleared.is_none() && self.signal.begin_clearance() {
                uncleared = self.sweep().await.ok();
                if uncleared.is_none() {
                    self.signal.end_clearance(false);
                }
            }
            let buckets = self.signal.take();
            match self.drain(&buckets).await {
                Ok(left) => {
                    was_stuck = false;
                    let is_left = |bucket: &u8| !buckets.contains(bucket) || left.contains(bucket);
                    if let Some(queues) = &mut uncleared {
                        queues.retain(is_left);
                    }
                }
                Err(error) => {
                    // While Redis is away nothing is known to wait.
                    if !was_stuck && matches!(error, Stuck::Ledger(_)) {
                        tracing::warn!(error = %Chain(&error), "trying again");
                    }
                    was_stuck = true;
                    self.signal.wake(buckets);
                    if matches!(error, Stuck::Counters) && uncleared.take().is_some() {
                        self.signal.end_clearance(false);
                    }
                    sleep(RETRY).await;
                }
            }
            if uncleared.take_if(|queues| queues.is_empty()).is_some() {
                self.signal.end_clearance(true);
            }
        }
    }

    /// Counts what waits, also what other instances left. Returns the queues that hold something.
    async fn sweep(&self) -> Result<HashSet<u8>, Unavailable> {
        let buckets: Vec<u8> = (0..=u8::MAX).collect();
        let lengths = self.counters.queue_lengths(&buckets).await?;
        self.metrics.provisional_queue(lengths.iter().sum());
        let waiting = buckets.into_iter().zip(lengths);
        let waiting = waiting.filter(|(_, length)| *length > 0);
        let waiting: HashSet<u8> = waiting.map(|(bucket, _)| bucket).collect();
        self.signal.wake(waiting.iter().copied());
        Ok(waiting)
    }

    /// A round: takes the first grants of some buckets' queues. Where it leaves some, the next one
    /// comes at once. Returns the buckets where it did.
    async fn drain(&self, buckets: &[u8]) -> Result<HashSet<u8>, Stuck> {
        // There are 256 buckets at most.
        let of_bucket_most = (ROUND_MOST / buckets.len().max(1)).min(OF_BUCKET_MOST);
        let queued = self.counters.queued(buckets, of_bucket_most).await?;
        if queued.is_empty() {
            return Ok(HashSet::new());
        }
        let is_known = |grant: &CountedGrant| self.policies.terms.newest(grant.policy).is_some();
        let is_strange = |queued: &Queued| match queued {
            Queued::Grant(queued) => !is_known(&queued.grant),
            Queued::Unreadable(..) => false,
        };
        if !self.policies.are_fresh() || queued.iter().any(is_strange) {
            self.policies.refresh(&self.ledger).await?;
        }
        // They come queue by queue.
        let of_queues = queued.chunk_by(|one, next| one.bucket() == next.bucket());
        let full = of_queues.filter(|queued| queued.len() == of_bucket_most);
        let unread: HashSet<u8> = full.map(|queued| queued[0].bucket()).collect();
        let mut accounts: HashMap<AccountId, Vec<QueuedGrant>> = HashMap::new();
        for queued in queued {
            match queued {
                // A policy is forgotten only where a copy of the ledger lacks it.
                Queued::Grant(queued) if is_known(&queued.grant) => {
                    let account = queued.grant.account;
                    accounts.entry(account).or_default().push(queued);
                }
                Queued::Grant(_) | Queued::Unreadable(..) => self.set_aside(&queued).await?,
            }
        }
        let accounts: Vec<Vec<QueuedGrant>> = accounts.into_values().collect();
        let mut left = match self.record(&accounts).await {
            Err(Stuck::Ledger(LedgerError::Refused(_) | LedgerError::Corrupt(_))) => {
                self.record_one_by_one(&accounts).await?
            }
            result => result?,
        };
        self.signal.wake(left.iter().copied());
        if !unread.is_empty() {
            self.signal.hurry_all(unread.iter().copied());
        }
        left.extend(unread);
        Ok(left)
    }

    /// Finds the grant that the ledger refuses, and lets the others through.
    ///
    /// # Errors
    /// Also where an account cannot be read: its grants go on to wait.
    async fn record_one_by_one(&self, accounts: &[Vec<QueuedGrant>]) -> Result<HashSet<u8>, Stuck> {
        let mut left = HashSet::new();
        let mut unreadable = None;
        for queued in accounts.iter().flatten() {
            let one = [vec![queued.clone()]];
            match self.record(&one).await {
                Err(Stuck::Ledger(error @ LedgerError::Refused(_))) => {
                    tracing::error!(error = %Chain(&error), "the ledger refuses a queued grant");
                    self.set_aside(&Queued::Grant(queued.clone())).await?;
                }
                Err(Stuck::Ledger(error @ LedgerError::Corrupt(_))) => unreadable = Some(error),
                result => left.extend(result?),
            }
        }
        unreadable.map_or(Ok(left), |error| Err(error.into()))
    }

    async fn set_aside(&self, queued: &Queued) -> Result<(), Stuck> {
        self.counters.set_aside(queued).await?;
        self.metrics.set_aside();
        tracing::error!(
            bucket = queued.bucket(),
            place = queued.place(),
            "a queued grant cannot be recorded and was set aside"
        );
        Ok(())
    }

    /// Appends queued grants in one transaction, and takes off their queues what the ledger
    /// holds then. An account that another writer was quicker at waits for the next round: returns
    /// the buckets of such.
    async fn record(&self, accounts: &[Vec<QueuedGrant>]) -> Result<HashSet<u8>, Stuck> {
        // After the queue was read: what is in it no more stands in the ledger.
        let queued = || accounts.iter().flatten();
        let look = Look {
            accounts: accounts
                .iter()
                .map(|queued| queued[0].grant.account)
                .collect(),
            keys: queued().filter_map(|queued| queued.grant.key).collect(),
            entries: queued().map(|queued| queued.grant.entry).collect(),
            ..Look::default()
        };
        reach("drain.begun");
        let seen = self.ledger.look(&look).await?;
        let mut taken = HashSet::new();
        let mut batches = Vec::with_capacity(accounts.len());
        for queued in accounts {
            batches.push(self.batch(queued, &seen, &mut taken).await?);
        }
        let drafts = batches.iter().map(|batch| &batch.draft);
        let drafts: Vec<&Draft> = drafts.filter(|draft| !draft.entries.is_empty()).collect();
        let appended = match drafts.is_empty() {
            true => HashSet::new(),
            false => match self.append(&drafts, seen.fence.as_ref()).await {
                Err(LedgerError::Conflict) => HashSet::new(),
                result => result?,
            },
        };
        reach("drain.appended");
        let now = self.clock.now();
        let stands = |Recording { draft, .. }: &Recording| {
            draft.entries.is_empty() || appended.contains(&draft.account)
        };
        let recorded: Vec<RecordedGrants> = batches
            .iter()
            .filter(|batch| stands(batch))
            .filter_map(|batch| batch.recorded(now))
            .collect();
        for some in recorded.chunks(RECORD_MOST) {
            self.counters.record(some).await?;
        }
        let left = accounts.iter().zip(&batches);
        let left =
            left.filter(|(queued, batch)| !stands(batch) || batch.settled.len() < queued.len());
        let left = left.map(|(queued, _)| queued[0].grant.account.bucket());
        let left = left.collect();
        for batch in batches.iter().filter(|batch| stands(batch)) {
            let entries = &batch.draft.entries;
            for entry in entries {
                entry
                    .provisional
                    .into_iter()
                    .for_each(|how| self.metrics.recorded(how));
            }
            let grants = entries.iter().filter_map(|entry| entry.provisional);
            let repeated = batch.settled.len() - grants.count();
            (0..repeated).for_each(|_| self.metrics.repeated());
        }
        Ok(left)
    }

    async fn append(
        &self,
        drafts: &[&Draft],
        fence: Option<&Fence>,
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let entries = drafts.iter().map(|draft| draft.entries.len()).sum();
        let appending = pin!(self.ledger.append_in_burst(drafts, fence));
        let appended = self.metrics.timed(Stage::Record, entries, appending).await;
        self.watch.note_write(&appended);
        Ok(appended?.accounts)
    }

    /// What becomes of an account's queued grants. `taken` holds the keys of this round.
    async fn batch<'a>(
        &self,
        queued: &'a [QueuedGrant],
        seen: &LedgerView,
        taken: &mut HashSet<KeyId>,
    ) -> Result<Recording<'a>, LedgerError> {
        let first = &queued[0].grant;
        let last = seen.lines.get(&first.account);
        let lapses = self.lapses(&queued[0], last).await?;
        let mut batch = Recording {
            draft: Draft {
                account: first.account,
                subject: first.subject.clone(),
                after: last.cloned(),
                policy: first.policy,
                entries: lapses.entries,
            },
            settled: Vec::new(),
        };
        if lapses.has_more {
            return Ok(batch);
        }
        for queued in queued {
            let grant = &queued.grant;
            let mut key = grant.key;
            if let Some(standing) = standing(grant, seen) {
                if standing.id == grant.entry || is_same_claim(standing, grant) {
                    if last.is_none_or(|last| last.number < standing.line.number) {
                        // It came after the last line was read, which does not count it: the
                        // next round sees a line that does.
                        break;
                    }
                    batch.settled.push(queued);
                    continue;
                }
                // Another claim has the key. This grant was given, and is recorded without.
                key = None;
            }
            if key.is_some_and(|key| !taken.insert(key)) {
                // Another account of this round has it: the next round sees what it is.
                break;
            }
            let entries = &mut batch.draft.entries;
            let line = entries.last().map(|entry| &entry.line);
            let line = line.or(lapses.line.as_ref());
            let may_learn = entries.is_empty();
            let next = self.next_line(queued, last, line, may_learn).await?;
            let Some((line, provisional)) = next else {
                break;
            };
            entries.push(Entry {
                account: grant.account,
                id: grant.entry,
                kind: EntryKind::Grant { held_until: None },
                units: grant.units,
                key,
                metadata: grant.metadata.clone(),
                provisional: Some(provisional),
                would_deny: are_over(&queued.totals),
                claimed_by: grant.claimed_by,
                note: None,
                line,
            });
            batch.settled.push(queued);
        }
        Ok(batch)
    }

    /// The line of a queued grant after a `line`, and how it stands there. `last` is the account's
    /// last line in the ledger. `None` where only the ledger could tell, and may not be asked: it
    /// lacks the entries of this batch.
    async fn next_line(
        &self,
        queued: &QueuedGrant,
        last: Option<&Line>,
        line: Option<&Line>,
        may_learn: bool,
    ) -> Result<Option<(Line, Provisional)>, LedgerError> {
        let (grant, ledger) = (&queued.grant, &self.ledger);
        let (account, at) = (grant.account, grant.entry.at());
        let mut policy = self.terms_of(queued).await?;
        let mut known = Known::default();
        loop {
            match record(&policy, grant.units, line, &known.sums, at) {
                Ok(Ok(recorded)) => return Ok(Some(recorded)),
                Ok(Err(too_many)) => return Err(LedgerError::Refused(too_many.into())),
                Err(Unknown::Policy) => {
                    let policies = &self.policies;
                    let terms = policies.terms_after(&policy, account, line, at, ledger);
                    policy = terms.await?;
                }
                Err(_) if !may_learn => return Ok(None),
                Err(unknown) => known.learn(unknown, ledger, account, last, at).await?,
            }
        }
    }

    /// The lapses that are due in an account, which go before what was counted without those
    /// holds; and the line that they leave.
    async fn lapses(
        &self,
        queued: &QueuedGrant,
        last: Option<&Line>,
    ) -> Result<Lapses, LedgerError> {
        let now = self.clock.now();
        let account = queued.grant.account;
        let is_due = |line: &Line| line.may_have_lapses(instant_after(last, now));
        if !last.is_some_and(is_due) {
            return Ok(Lapses::none(last.cloned()));
        }
        let mut policy = self.terms_of(queued).await?;
        if last.is_some_and(|last| last.policy_version > policy.version) {
            let (policies, ledger) = (&self.policies, &self.ledger);
            let terms = policies.terms_after(&policy, account, last, now, ledger);
            policy = terms.await?;
        }
        let mut known = Known::to_append(Engine::nonce());
        loop {
            match Drafting::begin(account, &policy, last.cloned(), &known, now) {
                Ok(drafting) => return Ok(drafting.into_lapses()),
                Err(unknown) => {
                    let learning = known.learn(unknown, &self.ledger, account, last, now);
                    learning.await?;
                }
            }
        }
    }
}

impl Drainer {
    /// What a grant was decided by: its version of the policy, with the `max` of then.
    async fn terms_of(&self, queued: &QueuedGrant) -> Result<Arc<Policy>, LedgerError> {
        let policy = self.policy_of(&queued.grant).await?;
        let decided_by = |per: Per| {
            let total = queued.totals.iter().find(|total| total.per == per);
            total.map(|total| total.max)
        };
        let is_own = |limit: &Limit| decided_by(limit.per).is_none_or(|max| max == limit.max);
        Ok(match policy.rule.limits.iter().all(is_own) {
            true => policy,
            false => Arc::new(policy.with_max(decided_by)),
        })
    }

    async fn policy_of(&self, grant: &CountedGrant) -> Result<Arc<Policy>, LedgerError> {
        let (id, version) = (grant.policy, grant.policy_version);
        if let Some(policy) = self.policies.terms.version(id, version) {
            return Ok(policy);
        }
        let newest = self.policies.terms.newest(id);
        let newest = newest
            .ok_or_else(|| LedgerError::Corrupt(format!("a queued grant of policy {}", id.0)))?;
        let next = version.saturating_add(1);
        let mut version = self.ledger.versions(&newest.name, next, 1).await?;
        Ok(version.pop().map_or(newest, Arc::new))
    }
}

/// The entry that bears a queued grant's id, or else its key.
fn standing<'a>(grant: &CountedGrant, seen: &'a LedgerView) -> Option<&'a Entry> {
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

impl<'a> Recording<'a> {
    /// What to take off the queue once the entries stand.
    fn recorded(&self, now: DateTime<Utc>) -> Option<RecordedGrants<'a>> {
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
            grants: self.settled.clone(),
        })
    }
}
