//! Settlements: after the answer, the new last lines go into the counters, many at once.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::batch::in_batches;
use super::in_flight::{AnsweredClaim, InFlight, Outcome};
use super::plan::{CounterNeed, Plan};
use crate::instance::{Metrics, Stage};
use counter::{Counters, KEYS_MAX, SettledKeys, Settlement};
use domain::erasure::KEY_MEMORY;
use domain::grant::{Entry, Line};
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::work::Task;
use host::faults::reach;
use ledger::{ClaimTables, Draft};

const WORKERS: u32 = 2;
const BATCH_MOST: usize = 256;
/// The largest number of settlements that wait. More are dropped; a dropped settlement costs speed
/// only.
const WAITING_MOST: usize = 16_384;
/// A counter lives at least this long, even if its window ends at once.
const TTL_LEAST: Duration = Duration::from_secs(1);

/// A settlement in progress, and the claims that wait for it.
pub struct Settling {
    /// The line for the counter.
    pub settlement: Settlement,
    /// Whether the keys that the account must remember are still to be read from the ledger.
    pub wants_keys: bool,
    /// The instant of the decision.
    pub now: DateTime<Utc>,
    /// The corrections that are answered after the settlement.
    pub answers: Vec<AnsweredClaim>,
}

impl Settling {
    /// Returns the answers of a committed plan of one account, and the settlement of the account.
    /// `counts` tells whether Redis may decide the claims of the account alone: then the counter
    /// holds keys. A correction is answered after its settlement, so that the units that it gives back can be
    /// claimed at once.
    pub fn of_plan(
        plan: Plan,
        need: CounterNeed,
        counts: bool,
        now: DateTime<Utc>,
    ) -> (Vec<AnsweredClaim>, Option<Self>) {
        let settling = Self::after(&plan, need, counts, now);
        let answers = plan.answers();
        let Some(settling) = settling else {
            return (answers.collect(), None);
        };
        let is_claim = |(claim, _): &AnsweredClaim| matches!(claim.work.task, Task::Claim(_));
        let (claims, corrections) = answers.partition(is_claim);
        let settling = Self {
            answers: corrections,
            ..settling
        };
        (claims, Some(settling))
    }

    /// A settlement of the last line as the ledger has it, with all keys of the account. `seen` is
    /// the number that the counter had before the ledger was read.
    pub fn confirmation(
        account: AccountId,
        line: &Line,
        seen: Option<u64>,
        now: DateTime<Utc>,
    ) -> Self {
        let settlement = Settlement {
            account,
            ttl: useful_for(line, true, now),
            line: line.clone(),
            confirmed_at: now,
            seen,
            only_existing: false,
            keys: SettledKeys::After(line.clone(), Vec::new()),
        };
        Self {
            settlement,
            wants_keys: true,
            now,
            answers: Vec::new(),
        }
    }

    /// The settlement of a committed draft that answers nobody. Lapses make no counter: nobody
    /// claims.
    pub fn of_draft(draft: &Draft, counts: bool, now: DateTime<Utc>) -> Option<Self> {
        let last = draft.entries.last()?;
        let settlement = Settlement {
            account: draft.account,
            ttl: useful_for(&last.line, counts, now),
            line: last.line.clone(),
            confirmed_at: now,
            seen: None,
            only_existing: draft.has_only_lapses(),
            keys: keys_after(draft.after.as_ref(), &draft.entries, counts),
        };
        Some(Self {
            settlement,
            wants_keys: false,
            now,
            answers: Vec::new(),
        })
    }

    /// A settlement of the new last line. After a denial without new entries, a confirmation of the
    /// old line.
    fn after(plan: &Plan, need: CounterNeed, counts: bool, now: DateTime<Utc>) -> Option<Self> {
        let draft = plan.drafts.first()?;
        let entries = &draft.entries;
        let line = entries.last().map(|entry| &entry.line);
        let line = line.or(draft.after.as_ref())?;
        // Only the next claim that asks the counter gains by a confirmation.
        let asks = |claim: &InFlight| counts || claim.work.key.is_none();
        // A claim that the counter denied can be denied for another reason: then the counter may be too high.
        let confirms = |(claim, outcome): &(InFlight, Outcome)| {
            asks(claim) && (outcome.has_no_room() || claim.hints.is_denied)
        };
        if entries.is_empty() && !plan.others.iter().any(confirms) {
            return None;
        }
        let has_keys = counts && plan.claims().any(|claim| claim.work.key.is_some());
        let settlement = Settlement {
            account: draft.account,
            ttl: useful_for(line, has_keys, now),
            line: line.clone(),
            confirmed_at: plan.basis.seen_at,
            seen: plan.claims().filter_map(|claim| claim.hints.counter).max(),
            only_existing: need == CounterNeed::Kept,
            keys: keys_after(draft.after.as_ref(), entries, counts),
        };
        let wants_keys = counts && plan.claims().any(|claim| claim.hints.wants_keys);
        Some(Self {
            settlement,
            wants_keys: wants_keys && draft.after.is_some(),
            now,
            answers: Vec::new(),
        })
    }
}

/// The queue of settlements. An instance without counters has none.
#[derive(Clone)]
pub struct SettleQueue(Option<Sender<Settling>>);

impl SettleQueue {
    /// A queue and its receiver for [`settle_all`].
    pub fn new() -> (Self, Receiver<Settling>) {
        let (sender, receiver) = mpsc::channel(WAITING_MOST);
        (Self(Some(sender)), receiver)
    }

    pub fn none() -> Self {
        Self(None)
    }

    /// Queues the settlement of a committed draft.
    pub fn send_draft(&self, draft: &Draft, counts: bool, now: DateTime<Utc>) {
        if let Some(settling) = Settling::of_draft(draft, counts, now) {
            self.send(settling);
        }
    }

    pub fn exists(&self) -> bool {
        self.0.is_some()
    }

    pub fn waiting(&self) -> usize {
        let queue = self.0.as_ref();
        queue.map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }

    /// Queues a settlement. A settlement is dropped if the queue is full; this costs speed only.
    pub fn send(&self, job: Settling) {
        let Some(queue) = &self.0 else {
            return end_all(job.answers);
        };
        if let Err(error) = queue.try_send(job) {
            tracing::debug!("a settlement was lost");
            end_all(error.into_inner().answers);
        }
    }
}

fn end_all(answers: Vec<AnsweredClaim>) {
    for (claim, answer) in answers {
        claim.end(answer);
    }
}

/// The keys that entries after a line bring to a counter.
fn keys_after(after: Option<&Line>, entries: &[Entry], counts: bool) -> SettledKeys {
    let keys = entries.iter().filter_map(|entry| entry.key).collect();
    if counts {
        SettledKeys::since(after, keys)
    } else {
        SettledKeys::Unknown
    }
}

/// How long a counter is useful: until the last of its windows has ended, and as long as its keys
/// must be remembered.
pub fn useful_for(line: &Line, remembers_keys: bool, now: DateTime<Utc>) -> Duration {
    // A total without an end of its window needs the counter only as long as the keys.
    let windows_end = line.totals.iter().filter_map(Total::resets_at).max();
    let forgets_at = remembers_keys.then(|| now + KEY_MEMORY);
    let ends_at = windows_end.max(forgets_at);
    let ttl = ends_at.map_or(TimeDelta::zero(), |ends_at| ends_at - now);
    ttl.to_std().unwrap_or(TTL_LEAST).max(TTL_LEAST)
}

/// Settles what is queued. A settlement that fails is dropped; this costs speed only.
pub async fn settle_all(
    queue: Receiver<Settling>,
    counters: Counters,
    ledger: ClaimTables,
    metrics: Metrics,
) {
    in_batches(queue, WORKERS, BATCH_MOST, move |jobs| {
        let counters = counters.clone();
        let ledger = ledger.clone();
        let metrics = metrics.clone();
        async move {
            let mut settlements = Vec::with_capacity(jobs.len());
            let mut answers = Vec::new();
            let erased = erased(&jobs, &ledger).await;
            for mut job in jobs {
                let is_erased = erased.contains(&job.settlement.account);
                if is_erased {
                    job.settlement.keys = SettledKeys::Unknown;
                }
                if job.wants_keys || is_erased {
                    read_keys(&mut job, &ledger).await;
                }
                settlements.push(job.settlement);
                answers.extend(job.answers);
            }
            reach("settle.begun");
            let settling = pin!(counters.settle(&settlements));
            let count = settlements.len();
            if metrics.timed(Stage::Settle, count, settling).await.is_err() {
                tracing::debug!(count, "settlements were lost");
            }
            end_all(answers);
            reach("settle.ended");
        }
    })
    .await;
}

/// The accounts whose first entries do not bring all keys: an erasure gave older entries to other accounts.
async fn erased(jobs: &[Settling], ledger: &ClaimTables) -> HashSet<AccountId> {
    let settlements = jobs.iter().map(|job| &job.settlement);
    let new = settlements.filter(|it| matches!(it.keys, SettledKeys::All(_)));
    let new: Vec<AccountId> = new.map(|it| it.account).collect();
    let erased = ledger.erased(&new).await;
    erased.unwrap_or_else(|_| new.into_iter().collect())
}

/// Adds to a settlement all keys that its account must remember, if they are few.
async fn read_keys(job: &mut Settling, ledger: &ClaimTables) {
    let settlement = &mut job.settlement;
    let starts = settlement
        .line
        .totals
        .iter()
        .map(|total| total.span(settlement.line.at).start);
    let since = starts
        .chain([job.now - KEY_MEMORY])
        .min()
        .unwrap_or(job.now);
    let keys = ledger
        .keys_of(settlement.account, since, KEYS_MAX + 1)
        .await;
    if let Ok(keys) = keys
        && keys.len() <= KEYS_MAX as usize
    {
        settlement.keys = SettledKeys::All(keys);
    }
}
