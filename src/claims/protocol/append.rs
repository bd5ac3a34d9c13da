//! Group commit: the drafts of many groups share one transaction. Claims are answered after the
//! commit is on disk.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::group::Group;
use super::lane_worker::{LaneWorker, halves};
use super::plan::Plan;
use super::step::Steps;
use super::way::{after_append, lost_known_line};
use crate::instance::Stage;
use domain::identity::AccountId;
use host::faults::reach;
use ledger::{Appended, Burst, Draft, Fence, LedgerError};

/// A transaction that has ended.
pub struct EndedTransaction {
    /// The groups whose drafts were in the transaction.
    groups: Vec<Group>,
    /// The accounts whose drafts are committed.
    result: Result<HashSet<AccountId>, Arc<LedgerError>>,
}

impl LaneWorker {
    /// Appends the drafts of groups. If the ledger refuses the data of one draft, each half of the
    /// batch is tried alone. A group whose draft must not be sent any more is not changed.
    pub async fn append(&self, mut groups: Vec<Group>) -> Vec<EndedTransaction> {
        reach("append.begun");
        // 1. The epoch and the fence are read together. Invariant: a line of another epoch never
        //    goes with this fence.
        let (epoch, fence) = self.dispatch.memory.fence();
        // 2. Drafts that are too old, or of another epoch, are dropped.
        let now = Instant::now();
        groups
            .iter_mut()
            .for_each(|group| group.check_drafts(epoch, now));
        // 3. The drafts are appended in one transaction. On bad data the groups are halved until the
        //    bad draft is alone.
        let mut ended = Vec::new();
        let mut batches = vec![groups];
        while let Some(groups) = batches.pop() {
            match self.append_drafts(&groups, fence.as_ref()).await {
                Err(error) if error.is_about_data() && groups.len() > 1 => {
                    batches.extend(halves(groups));
                }
                Ok(appended) => ended.extend(ended_apart(groups, appended)),
                Err(error) => ended.push(EndedTransaction {
                    groups,
                    result: Err(Arc::new(error)),
                }),
            }
        }
        ended
    }

    /// As [`LaneWorker::append`], in up to four transactions. A batch and a single claim may have drafts of one
    /// account, and nobody waits longer because others lock what all subjects share.
    pub async fn append_apart(&self, groups: Vec<Group>) -> Vec<EndedTransaction> {
        let kind = |group: &Group| {
            let shares = group.plan().is_some_and(Plan::shares);
            (group.scope.is_component(), shares)
        };
        let mut groups = groups;
        let mut ended = Vec::new();
        while let Some(last) = groups.last().map(kind) {
            let of_kind = groups.extract_if(.., |group| kind(group) == last);
            ended.extend(self.append(of_kind.collect()).await);
        }
        ended
    }

    /// Returns which drafts are committed, and which were refused for their instants.
    async fn append_drafts(
        &self,
        groups: &[Group],
        fence: Option<&Fence>,
    ) -> Result<Appended, LedgerError> {
        // 1. A batch without drafts needs no transaction.
        let drafts: Vec<&Draft> = groups.iter().flat_map(Group::drafts).collect();
        if drafts.is_empty() {
            return Ok(Appended::default());
        }
        reach("append.decided");
        // 2. The ledger commits the drafts. The fence proves that the ledger has not gone back in
        //    time.
        let memory = &self.dispatch.memory;
        let entries = drafts.iter().map(|draft| draft.entries.len()).sum();
        let appending = pin!(self.ledger.append_in_burst(&drafts, fence));
        let appended = self.metrics.timed(Stage::Append, entries, appending).await;
        self.watch.note_write(&appended);
        let mut appended = appended?;
        reach("append.committed");
        for (_, why) in &appended.untimely {
            self.metrics.untimely();
            self.watch.clocks.note_untimely(*why);
        }
        // 3. The burst tells whether the ledger is still the one that this instance knows.
        match appended.burst {
            Some(Burst::Behind) => {
                tracing::warn!(
                    "a subject was erased, or the ledger was restored or replaced, or its server was \
                     started again: last lines are read again"
                );
                self.metrics.burst_fell_back();
            }
            Some(Burst::Conflict) => self.metrics.burst_fell_back(),
            Some(Burst::Committed(_) | Burst::Exist(_) | Burst::Untimely(_)) | None => {}
        }
        // 4. The memory learns how the burst ended.
        let is_behind = lost_known_line(groups, &appended.accounts);
        if let Some(burst) = appended.burst.take() {
            memory.burst_ended(burst, is_behind, Instant::now());
        }
        Ok(appended)
    }

    /// Tells the groups what their transactions did. Returns the groups, and the error of a
    /// transaction that did not reach the ledger.
    pub fn report(
        &self,
        ended: Vec<EndedTransaction>,
        steps: &mut Steps,
    ) -> (Vec<Group>, Option<Arc<LedgerError>>) {
        let present = self.dispatch.present();
        let mut all = Vec::new();
        let mut failure = None;
        for EndedTransaction { mut groups, result } in ended {
            if let Ok(committed) = &result {
                let is_marked =
                    |draft: &&Draft| draft.entries.iter().any(|entry| !entry.crossed.is_empty());
                let drafts = groups.iter().flat_map(Group::drafts).filter(is_marked);
                let committed = drafts.filter(|draft| committed.contains(&draft.account));
                committed.for_each(|draft| self.metrics.crossed(&draft.entries));
            }
            let losses = after_append(&mut groups, &result, &present, steps);
            self.metrics.conflicts(losses);
            if let Err(error) = result {
                failure = matches!(*error, LedgerError::Unavailable(_))
                    .then_some(error)
                    .or(failure);
            }
            all.extend(groups);
        }
        (all, failure)
    }
}

/// The groups of a transaction. Groups whose drafts were refused for their instants end apart from
/// the others.
fn ended_apart(groups: Vec<Group>, appended: Appended) -> impl Iterator<Item = EndedTransaction> {
    let Appended {
        accounts, untimely, ..
    } = appended;
    let why = |group: &Group| {
        let mut untimely = untimely.iter();
        untimely.find_map(|(account, why)| group.scope.accounts().contains(account).then_some(*why))
    };
    let mut accepted = Vec::with_capacity(groups.len());
    let mut refused = Vec::new();
    for group in groups {
        match why(&group) {
            None => accepted.push(group),
            Some(why) => refused.push(EndedTransaction {
                groups: vec![group],
                result: Err(Arc::new(LedgerError::Untimely(why))),
            }),
        }
    }
    let accepted = EndedTransaction {
        groups: accepted,
        result: Ok(accounts),
    };
    std::iter::once(accepted).chain(refused)
}
