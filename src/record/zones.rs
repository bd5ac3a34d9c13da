//! The time zones that a policy had.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::Record;
use claims::instance::Failure;
use domain::local_days::LocalDays;
use domain::policy::PolicyName;
use domain::record::RecordPlace;
use domain::zone::Zone;
use ledger::LedgerError;

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
