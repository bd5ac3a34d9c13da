//! The time zones that policies had.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::domain::local_days::LocalDays;
use crate::domain::policy::PolicyName;
use crate::domain::record::RecordPlace;
use crate::domain::zone::Zone;
use crate::engine::{Engine, Failure};
use crate::ledger::LedgerError;

impl Engine {
    /// The time zone that each policy had at its instant. `None` for a policy without a version.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn zones(
        self: &Arc<Self>,
        wanted: Vec<(PolicyName, DateTime<Utc>)>,
    ) -> Result<Vec<Option<Zone>>, Failure> {
        let engine = self.clone();
        let read = async move {
            let mut versions = HashMap::new();
            for (policy, _) in &wanted {
                if !versions.contains_key(policy) {
                    let known = engine.ledger.known_versions(policy, RecordPlace::LAST);
                    versions.insert(policy.clone(), known.await?);
                }
            }
            let zone = |(policy, at): &(PolicyName, DateTime<Utc>)| {
                LocalDays::of(&versions[policy]).zone(*at).cloned()
            };
            Ok::<_, LedgerError>(wanted.iter().map(zone).collect())
        };
        Ok(self.detached(read).await??)
    }
}
