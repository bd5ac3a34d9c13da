//! Records the grants of Redis' queues in the ledger: in order, each at its own instant, even over
//! the limit. A grant over the limit is marked.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::recording::{Recording, Round, terms_of};
use crate::instance::{DrainSignal, Metrics, Policies, Stage, Watch, nonce};
use crate::protocol::account_view::Missing;
use crate::protocol::learn_facts;
use counter::{CountedGrant, Counters, Queued, QueuedGrant, RecordedGrants, Unavailable};
use domain::account_facts::AccountFacts;
use domain::identity::AccountId;
use domain::policy::Policy;
use host::chain::Chain;
use host::clock::Clock;
use host::faults::reach;
use ledger::{ClaimTables, Draft, Fence, LedgerError, Look};

/// How often all queues are read, including those that other instances left.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// Grants that arrive within this time are recorded together, unless a claim waits for them.
const ROUND_EVERY: Duration = Duration::from_millis(50);
/// The largest number of grants in a round, and from one queue.
const ROUND_MOST: usize = 4096;
const OF_BUCKET_MOST: usize = 256;
/// The largest number of accounts whose grants leave the queues in one call. Between the calls,
/// claims that wait for Redis go on.
const RECORD_MOST: usize = 32;
/// The pause before an unreachable ledger or Redis is tried again.
const RETRY: Duration = Duration::from_millis(250);

pub struct Drainer {
    pub counters: Counters,
    pub ledger: ClaimTables,
    pub clock: Clock,
    pub policies: Arc<Policies>,
    /// The queues that hold grants.
    pub signal: DrainSignal,
    /// Whether the disk of the ledger takes writes.
    pub watch: Arc<Watch>,
    pub metrics: Metrics,
}

/// Why a round stopped. Its other grants wait for the next round.
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

/// The number of grants in a round. A busy Redis may have too little time for a large round: then
/// the next round is half as large. Each round that ends well doubles the next one.
struct RoundSize {
    most: usize,
}

impl Default for RoundSize {
    fn default() -> Self {
        Self { most: ROUND_MOST }
    }
}

impl RoundSize {
    fn ended_well(&mut self) {
        self.most = (self.most * 2).min(ROUND_MOST);
    }

    /// At least one grant is left: otherwise nothing would ever be recorded.
    fn ended_late(&mut self) {
        self.most = (self.most / 2).max(1);
    }

    /// The number of grants to take from each queue. There are at most 256 queues.
    fn of_each(&self, queues: usize) -> usize {
        (self.most / queues.max(1)).clamp(1, OF_BUCKET_MOST)
    }
}

impl Drainer {
    /// Drains the queues, for ever.
    pub async fn run(self) {
        let mut sweeps = interval(SWEEP_EVERY);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_stuck = false;
        let mut size = RoundSize::default();
        let mut next_round = Instant::now();
        // The queues that the present clearance waits for.
        let mut uncleared: Option<HashSet<u8>> = None;
        loop {
            // 1. Waits for the next round, or for the next read of all queues.
            tokio::select! {
                () = self.signal.0.changed.notified() => tokio::select! {
                    () = sleep_until(next_round) => {}
                    () = self.signal.0.hurried.notified() => {}
                },
                _ = sweeps.tick() => drop(self.sweep().await),
            }
            next_round = Instant::now() + ROUND_EVERY;
            // 2. Starts a clearance if one is wanted: all grants that wait now must leave the
            //    queues.
            if uncleared.is_none() && self.signal.begin_clearance() {
                uncleared = self.sweep().await.ok();
                if uncleared.is_none() {
                    self.signal.end_clearance(false);
                }
            }
            // 3. Drains the queues that hold grants.
            let buckets = self.signal.take();
            match self.drain(&buckets, &size).await {
                Ok(left) => {
                    was_stuck = false;
                    size.ended_well();
                    let is_left = |bucket: &u8| !buckets.contains(bucket) || left.contains(bucket);
                    if let Some(queues) = &mut uncleared {
                        queues.retain(is_left);
                    }
                }
                Err(error) => {
                    // An unreachable Redis is not logged here: no grants are known to wait.
                    if !was_stuck && matches!(error, Stuck::Ledger(_)) {
                        tracing::warn!(error = %Chain(&error), "trying again");
                    }
                    was_stuck = true;
                    if matches!(error, Stuck::Counters) {
                        size.ended_late();
                    }
                    self.signal.wake(buckets);
                    if matches!(error, Stuck::Counters) && uncleared.take().is_some() {
                        self.signal.end_clearance(false);
                    }
                    sleep(RETRY).await;
                }
            }
            // 4. Ends the clearance when its queues were empty.
            if uncleared.take_if(|queues| queues.is_empty()).is_some() {
                self.signal.end_clearance(true);
            }
        }
    }

    /// Counts the waiting grants, including those that other instances left. Returns the queues
    /// that hold grants.
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

    /// One round: takes the first grants of some queues, about as many as the round size. If grants
    /// are left, the next round starts at once. Returns the buckets of the queues with grants left.
    async fn drain(&self, buckets: &[u8], size: &RoundSize) -> Result<HashSet<u8>, Stuck> {
        // 1. The grants are read from the queues. They stay there until the ledger has them.
        let of_bucket_most = size.of_each(buckets.len());
        let queued = self.counters.queued(buckets, of_bucket_most).await?;
        if queued.is_empty() {
            return Ok(HashSet::new());
        }
        // 2. The policies are read again if they are old or do not know a grant. A policy that
        //    cannot be read exists: a newer instance records its grants.
        let is_known = |grant: &CountedGrant| {
            let newest = self.policies.terms.newest(grant.policy);
            newest.map_or(true, |newest| newest.is_some())
        };
        let is_strange = |queued: &Queued| match queued {
            Queued::Grant(queued) => !is_known(&queued.grant),
            Queued::Unreadable(..) => false,
        };
        if !self.policies.are_fresh() || queued.iter().any(is_strange) {
            self.policies.refresh().await?;
        }
        // 3. A full queue may hold more grants. The grants come queue by queue.
        let of_queues = queued.chunk_by(|one, next| one.bucket() == next.bucket());
        let full = of_queues.filter(|queued| queued.len() == of_bucket_most);
        let unread: HashSet<u8> = full.map(|queued| queued[0].bucket()).collect();
        // 4. The grants are sorted by account. Grants that cannot be recorded are set aside.
        let mut accounts: HashMap<AccountId, Vec<QueuedGrant>> = HashMap::new();
        for queued in queued {
            match queued {
                // A policy is missing only if a copy of the ledger lacks it.
                Queued::Grant(queued) if is_known(&queued.grant) => {
                    let account = queued.grant.account;
                    accounts.entry(account).or_default().push(queued);
                }
                Queued::Grant(_) | Queued::Unreadable(..) => self.set_aside(&queued).await?,
            }
        }
        // 5. The grants are recorded in one transaction. If the ledger refuses the data, they are
        //    recorded one by one.
        let accounts: Vec<Vec<QueuedGrant>> = accounts.into_values().collect();
        let mut left = match self.record(&accounts).await {
            Err(Stuck::Ledger(error)) if error.is_about_data() => {
                self.record_one_by_one(&accounts).await?
            }
            result => result?,
        };
        // 6. The queues with grants left are drained again.
        self.signal.wake(left.iter().copied());
        if !unread.is_empty() {
            self.signal.hurry_all(unread.iter().copied());
        }
        left.extend(unread);
        Ok(left)
    }

    /// Records grants one by one. A grant that the ledger refuses is set aside.
    ///
    /// # Errors
    /// If an account or a rule cannot be read: its grants wait.
    async fn record_one_by_one(&self, accounts: &[Vec<QueuedGrant>]) -> Result<HashSet<u8>, Stuck> {
        let mut left = HashSet::new();
        let mut unreadable = None;
        for queued in accounts.iter().flatten() {
            let one = [vec![queued.clone()]];
            match self.record(&one).await {
                Err(Stuck::Ledger(
                    error @ (LedgerError::Refused(_) | LedgerError::Archived(_)),
                )) => {
                    tracing::error!(error = %Chain(&error), "the ledger refuses a queued grant");
                    self.set_aside(&Queued::Grant(queued.clone())).await?;
                }
                Err(Stuck::Ledger(
                    error @ (LedgerError::Corrupt(_) | LedgerError::Unreadable(_)),
                )) => unreadable = Some(error),
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

    /// Appends queued grants in one transaction, and takes the grants that the ledger has off their
    /// queues. An account that lost to another writer waits for the next round. Returns the buckets
    /// of such accounts.
    async fn record(&self, accounts: &[Vec<QueuedGrant>]) -> Result<HashSet<u8>, Stuck> {
        // 1. The ledger is read after the queues. Invariant: a grant that is no longer in its queue
        //    is in the ledger.
        let queued = || accounts.iter().flatten();
        let look = Look {
            accounts: accounts
                .iter()
                .map(|queued| queued[0].grant.account)
                .collect(),
            keys: queued().filter_map(|queued| queued.grant.key).collect(),
            entries: queued().map(|queued| queued.grant.entry).collect(),
            counts: true,
            ..Look::default()
        };
        reach("drain.begun");
        let seen = self.ledger.look(&look).await?;
        // 2. Each account decides which entries its grants need.
        let mut round = Round {
            seen: &seen,
            terms: &self.policies.terms,
            now: self.clock.now(),
            keys: HashSet::new(),
        };
        let mut recordings = Vec::with_capacity(accounts.len());
        for queued in accounts {
            recordings.push(self.decide(queued, &mut round).await?);
        }
        // 3. All entries go into one transaction. Another writer may be first.
        let drafts = recordings.iter().map(|recording| &recording.draft);
        let drafts: Vec<&Draft> = drafts.filter(|draft| !draft.entries.is_empty()).collect();
        let appended = if drafts.is_empty() {
            HashSet::new()
        } else {
            match self.append(&drafts, seen.fence.as_ref()).await {
                Err(LedgerError::Conflict) => HashSet::new(),
                result => result?,
            }
        };
        reach("drain.appended");
        // 4. The grants leave the queues only after the commit. The counters get the new lines in
        //    the same step.
        let now = self.clock.now();
        let decided = || accounts.iter().zip(&recordings);
        let committed = || decided().filter(|(_, recording)| recording.is_committed(&appended));
        let recorded =
            committed().filter_map(|(queued, recording)| recording.recorded(queued, now));
        let recorded: Vec<RecordedGrants> = recorded.collect();
        for some in recorded.chunks(RECORD_MOST) {
            self.counters.record(some).await?;
        }
        // 5. The metrics.
        for (_, recording) in committed() {
            self.metrics.crossed(&recording.draft.entries);
            let entries = recording.draft.entries.iter();
            let grants = entries.filter_map(|entry| entry.provisional);
            let repeated = recording.settled - grants.clone().count();
            grants.for_each(|how| self.metrics.recorded(how));
            (0..repeated).for_each(|_| self.metrics.repeated());
        }
        // 6. The accounts with grants left.
        let is_left = |(queued, recording): &(&Vec<QueuedGrant>, &Recording)| {
            !recording.is_committed(&appended) || recording.settled < queued.len()
        };
        let left = decided().filter(is_left);
        Ok(left
            .map(|(queued, _)| queued[0].grant.account.bucket())
            .collect())
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
        let appended = appended?;
        // Such grants wait in their queues.
        for (_, why) in &appended.untimely {
            self.metrics.untimely();
            self.watch.clocks.note_untimely(*why);
        }
        Ok(appended.accounts)
    }

    /// Decides the entries of the queued grants of one account. Reads more if the rule asks for it.
    async fn decide(
        &self,
        queued: &[QueuedGrant],
        round: &mut Round<'_>,
    ) -> Result<Recording, LedgerError> {
        let mut decided_by = Vec::with_capacity(queued.len());
        for queued in queued {
            decided_by.push(terms_of(queued, self.policy_of(&queued.grant).await?));
        }
        let account = queued[0].grant.account;
        let last = round.seen.lines.get(&account);
        let mut known = AccountFacts::to_append(nonce());
        let mut is_refreshed = false;
        loop {
            match round.record(queued, &decided_by, &known) {
                Ok(recorded) => return recorded.map_err(|it| LedgerError::Refused(it.into())),
                Err(Missing::Ledger(unknown)) => {
                    let learning =
                        learn_facts(&mut known, unknown, &self.ledger, account, last, round.now);
                    learning.await?;
                }
                Err(Missing::Policy) if is_refreshed => {
                    let corrupt = "a line under a version that its policy does not have";
                    return Err(LedgerError::Corrupt(corrupt.to_owned()));
                }
                Err(Missing::Policy) => {
                    self.policies.refresh().await?;
                    is_refreshed = true;
                }
            }
        }
    }

    async fn policy_of(&self, grant: &CountedGrant) -> Result<Arc<Policy>, LedgerError> {
        let id = grant.policy;
        let version = grant.policy_version;
        if let Some(policy) = self.policies.terms.version(id, version)? {
            return Ok(policy);
        }
        let newest = self.policies.terms.newest(id)?;
        let newest = newest
            .ok_or_else(|| LedgerError::Corrupt(format!("a queued grant of policy {}", id.0)))?;
        let read = self.policies.read_version(&newest.name, version).await?;
        Ok(read.map_or(newest, Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Redis that answers in time only for a few grants is asked for a few grants in the end.
    #[test]
    fn rounds_halve_until_redis_answers_in_time() {
        for in_time in [1, 3, 100, 1000, ROUND_MOST] {
            let mut size = RoundSize::default();
            let mut late = 0;
            while size.most > in_time {
                size.ended_late();
                late += 1;
            }
            assert!(size.most * 2 > in_time, "{in_time}");
            assert!(late <= 12, "{in_time}");
        }
    }

    #[test]
    fn rounds_never_come_to_nothing_and_grow_again() {
        let mut size = RoundSize::default();
        for _ in 0..100 {
            size.ended_late();
        }
        assert_eq!((size.most, size.of_each(256)), (1, 1));
        for _ in 0..12 {
            assert!(size.most < ROUND_MOST);
            size.ended_well();
        }
        size.ended_well();
        assert_eq!(size.most, ROUND_MOST);
    }

    #[test]
    fn queues_share_a_round() {
        let mut size = RoundSize::default();
        let of_each = [0, 1, 16, 17, 256].map(|queues| size.of_each(queues));
        assert_eq!(of_each, [256, 256, 256, 240, 16]);
        size.ended_late();
        let of_each = [1, 16, 256].map(|queues| size.of_each(queues));
        assert_eq!(of_each, [256, 128, 8]);
    }
}
