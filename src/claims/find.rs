//! Finding a grant by its id, also a grant that Redis has just counted and the ledger does not have
//! yet.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::Claims;
use crate::instance::Failure;
use domain::grant::Grant;
use domain::identity::EntryId;
use ledger::LedgerError;

impl Claims {
    async fn find_grant(&self, id: EntryId, deadline: Instant) -> Result<Option<Grant>, Failure> {
        let found = self.ledger.grant(id).await?;
        if found.is_none() && self.ledger.is_dropped(id).await? {
            let gone =
                "this entry was archived and dropped: find it by its id in the archive's files";
            return Err(LedgerError::Archived(gone.to_owned()).into());
        }
        let Some(counting) = self.counting.as_ref().filter(|_| found.is_none()) else {
            return Ok(found);
        };
        let cleared = timeout_at(deadline, counting.drain.cleared()).await;
        match cleared {
            Ok(Ok(())) => Ok(self.ledger.grant(id).await?),
            // A grant may also wait if its policy is not counted any more.
            Ok(Err(_)) | Err(_) => Err(Failure::MayWait),
        }
    }

    /// The grant with this id. If the ledger does not have it and it may wait in Redis, the queues
    /// are drained first.
    ///
    /// # Errors
    /// [`Failure`]; [`Failure::MayWait`] if this is not known at the deadline of a claim.
    pub async fn grant(self: &Arc<Self>, id: Uuid) -> Result<Option<Grant>, Failure> {
        let deadline = Instant::now() + self.instance.claim_time;
        let claims = self.clone();
        let work = async move { claims.find_grant(EntryId(id), deadline).await };
        self.instance.detached(work).await?
    }
}
