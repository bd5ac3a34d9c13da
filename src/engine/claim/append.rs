//! Group commit: what many groups were granted shares one transaction, and is answered after it is
//! on disk.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::group::Group;
use super::lanes::{Lanes, halves};
use super::way::{Steps, appended, lost_known_line};
use crate::domain::identity::AccountId;
use crate::engine::instance::Stage;
use crate::faults::reach;
use crate::ledger::{Appended, Burst, Draft, Fence, LedgerError};

/// A transaction that ended.
pub struct EndedTransaction {
    /// The groups whose drafts it was to append.
    groups: Vec<Group>,
    /// The accounts whose drafts are committed.
    result: Result<HashSet<AccountId>, Arc<LedgerError>>,
}

impl Lanes {
    /// Appends the drafts of groups. Where the ledger refuses the data of one of them, each half is
    /// tried alone. A group whose draft may not be sent any more is left as it is.
    pub async fn append(&self, mut groups: Vec<Group>) -> Vec<EndedTransaction> {
        reach("append.begun");
        // Together: a line of another epoch does not go with this fence.
        let (epoch, fence) = self.dispatch.memory.fence();
        let now = Instant::now();
        groups
            .iter_mut()
            .for_each(|group| group.check_draft(epoch, now));
        let mut ended = Vec::new();
        let mut batches = vec![groups];
        while let Some(groups) = batches.pop() {
            match self.append_drafts(&groups, fence.as_ref()).await {
                Err(error) if error.is_about_data() && groups.len() > 1 => {
                    batches.extend(halves(groups));
                }
                result => ended.push(EndedTransaction {
                    groups,
                    result: result.map_err(Arc::new),
                }),
            }
        }
        ended
    }

    /// Returns the accounts whose drafts are committed.
    async fn append_drafts(
        &self,
        groups: &[Group],
        fence: Option<&Fence>,
    ) -> Result<HashSet<AccountId>, LedgerError> {
        let drafts: Vec<&Draft> = groups.iter().filter_map(Group::draft).collect();
        if drafts.is_empty() {
            return Ok(HashSet::new());
        }
        reach("append.decided");
        let memory = &self.dispatch.memory;
        let entries = drafts.iter().map(|draft| draft.entries.len()).sum();
        let appending = pin!(self.ledger.append_in_burst(&drafts, fence));
        let appended = self.metrics.timed(Stage::Append, entries, appending).await;
        self.watch.note_write(&appended);
        let Appended { accounts, burst } = appended?;
        reach("append.committed");
        match burst {
            Some(Burst::Behind) => {
                tracing::warn!(
                    "the ledger was restored or replaced, or its server was started again"
                );
                self.metrics.burst_fell_back();
            }
            Some(Burst::Conflict) => self.metrics.burst_fell_back(),
            Some(Burst::Committed(_) | Burst::Exist(_)) | None => {}
        }
        let is_behind = lost_known_line(groups, &accounts);
        burst
            .into_iter()
            .for_each(|burst| memory.burst_ended(burst, is_behind, Instant::now()));
        Ok(accounts)
    }

    /// Says what follows from transactions that ended. Returns their groups, and the error of one
    /// that the ledger did not take.
    pub fn appended(
        &self,
        ended: Vec<EndedTransaction>,
        steps: &mut Steps,
    ) -> (Vec<Group>, Option<Arc<LedgerError>>) {
        let present = self.dispatch.present();
        let (mut all, mut failure) = (Vec::new(), None);
        for EndedTransaction { mut groups, result } in ended {
            let losses = appended(&mut groups, &result, &present, steps);
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
