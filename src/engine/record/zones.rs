//! The time zones that a policy had.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::Record;
use crate::domain::local_days::LocalDays;
use crate::domain::policy::PolicyName;
use crate::domain::record::RecordPlace;
use crate::domain::zone::Zone;
use crate::engine::instance::Failure;
use crate::ledger::LedgerError;

impl Record {
    /// The time zone that a policy had at each of some instants. `None` for a policy without a version.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn zones(
        self: &Arc<Self>,
        policy: PolicyName,
        instants: Vec<DateTime<Utc>>,
    ) -> Result<Vec<Option<Zone>>, Failure> {
        let record = self.clone();
        let read = async move {
            let known = record
                .ledger
                .record()
                .known_versions(&policy, RecordPlace::LAST)
                .await;
            let versions = known?;
            let days = LocalDays::of(&versions);
            let zones = instants.into_iter().map(|at| days.zone(at).cloned());
            Ok::<_, LedgerError>(zones.collect())
        };
        Ok(self.instance.detached(read).await??)
    }
}
