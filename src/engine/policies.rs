//! The policies as this instance knows them, so that a claim need not read them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::access::Access;
use crate::domain::policy::{Policy, PolicyId, PolicyName};
use crate::ledger::{Ledger, LedgerError};

/// How long a change may take to hold everywhere.
pub const FRESH: Duration = Duration::from_secs(1);

/// Every policy's newest version, archived ones too.
pub struct Policies {
    /// The keys are learned by the same poll.
    access: Arc<Access>,
    known: ArcSwap<Known>,
    progress: Mutex<Progress>,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct Known {
    by_name: HashMap<PolicyName, Arc<Policy>>,
    by_id: HashMap<PolicyId, Arc<Policy>>,
}

struct Progress {
    /// All changes up to this one are known.
    revision: u64,
    /// When the ledger was last asked.
    as_of: Instant,
}

impl Policies {
    /// Reads every policy.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn load(ledger: &Ledger, access: Arc<Access>) -> Result<Self, LedgerError> {
        let policies = Self {
            access,
            known: ArcSwap::default(),
            progress: Mutex::new(Progress {
                revision: 0,
                as_of: Instant::now(),
            }),
            refreshing: tokio::sync::Mutex::new(()),
        };
        policies.refresh(ledger).await?;
        Ok(policies)
    }

    /// A policy's newest known version.
    pub fn get(&self, name: &PolicyName) -> Option<Arc<Policy>> {
        self.known.load().by_name.get(name).cloned()
    }

    /// The newest known version of the policy with an id.
    pub fn with_id(&self, id: PolicyId) -> Option<Arc<Policy>> {
        self.known.load().by_id.get(&id).cloned()
    }

    /// Takes the newest known version, if it is newer.
    pub fn renew(&self, policy: &mut Arc<Policy>) {
        let newest = self.get(&policy.name);
        if let Some(newest) = newest.filter(|newest| newest.version > policy.version) {
            *policy = newest;
        }
    }

    /// Every policy.
    pub fn all(&self) -> Vec<Arc<Policy>> {
        self.known.load().by_name.values().cloned().collect()
    }

    /// Whether every change older than [`FRESH`] is known.
    pub fn are_fresh(&self) -> bool {
        self.progress().as_of.elapsed() < FRESH
    }

    /// Learns what changed since the last time.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn refresh(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        let _one_at_a_time = self.refreshing.lock().await;
        let as_of = Instant::now();
        let known = self.progress().revision;
        let revision = ledger.revision().await?;
        // First, so that a revoked key stops working also where a policy cannot be read.
        self.access.refresh(ledger, revision).await?;
        if revision > known {
            self.learn(ledger.policies_between(known, revision).await?);
        }
        *self.progress() = Progress { revision, as_of };
        Ok(())
    }

    /// The newest version of a policy that is out of date.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`], also when there is none.
    pub async fn newer(
        &self,
        policy: &Policy,
        ledger: &Ledger,
    ) -> Result<Arc<Policy>, LedgerError> {
        self.refresh(ledger).await?;
        let newest = self.get(&policy.name);
        newest
            .filter(|newest| newest.version > policy.version)
            .ok_or_else(|| {
                LedgerError::Corrupt(format!(
                    "an entry under a version after {} of {}, which has none",
                    policy.version, policy.name
                ))
            })
    }

    /// Takes over versions that are newer than the known ones.
    pub fn learn(&self, versions: Vec<Policy>) {
        let versions: Vec<Arc<Policy>> = versions.into_iter().map(Arc::new).collect();
        self.known.rcu(|known| {
            let mut next = Known::clone(known);
            for policy in &versions {
                let newer = next
                    .by_id
                    .get(&policy.id)
                    .is_none_or(|known| known.version < policy.version);
                if newer {
                    next.by_name.insert(policy.name.clone(), policy.clone());
                    next.by_id.insert(policy.id, policy.clone());
                }
            }
            next
        });
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
