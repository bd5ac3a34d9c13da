//! The policies and overrides as this instance knows them, so that a claim need not read them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep_until};

use super::access::Access;
use crate::domain::account::{Sums, Unknown, Verdict, decide, instant_after};
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::overrides::{Override, OverrideTerms};
use crate::domain::policy::{Policy, PolicyId, PolicyName};
use crate::domain::schedule::Versions;
use crate::domain::work::Work;
use crate::faults::reach;
use crate::ledger::{Ledger, LedgerError};

/// How long a change may take to hold everywhere.
pub const FRESH: Duration = Duration::from_secs(1);
/// The least time between the beginnings of two reads for what is not known: unknown names and
/// keys, however many come, cost the ledger 50 reads a second.
const READS_APART: Duration = Duration::from_millis(20);

/// Whether what was known as of an instant may still be decided by.
pub fn is_fresh(as_of: Instant) -> bool {
    as_of.elapsed() < FRESH
}

/// Every policy's versions that are or may come into force, archived ones too, and every
/// account's override.
pub struct Policies {
    /// The keys are learned by the same poll.
    access: Arc<Access>,
    known: ArcSwap<KnownPolicies>,
    overrides: RwLock<Overrides>,
    progress: Mutex<Progress>,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct KnownPolicies {
    ids: HashMap<PolicyName, PolicyId>,
    versions: HashMap<PolicyId, Versions>,
}

#[derive(Default)]
struct Overrides {
    by_account: HashMap<AccountId, KnownOverride>,
    /// The accounts whose override was deleted after `revision`. They are kept until then, so
    /// that no older version takes their place.
    deleted: Vec<AccountId>,
    /// All changes up to this one are known.
    revision: u64,
}

/// The last version of an override; without terms it is deleted.
struct KnownOverride {
    version: u32,
    revision: u64,
    terms: Option<Arc<OverrideTerms>>,
}

struct Progress {
    /// All changes up to this one are known.
    revision: u64,
    /// When the last read that succeeded began.
    as_of: Instant,
    /// When the last read for what is not known began, and why it failed; `None` once another
    /// read succeeded.
    failed: Option<(Instant, Arc<LedgerError>)>,
}

impl Policies {
    /// Reads every policy and override.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn load(ledger: &Ledger, access: Arc<Access>) -> Result<Self, LedgerError> {
        let policies = Self {
            access,
            known: ArcSwap::default(),
            overrides: RwLock::default(),
            progress: Mutex::new(Progress {
                revision: 0,
                as_of: Instant::now(),
                failed: None,
            }),
            refreshing: tokio::sync::Mutex::new(()),
        };
        policies.refresh(ledger).await?;
        Ok(policies)
    }

    /// The version of a policy that is in force at an instant.
    pub fn get(&self, name: &PolicyName, at: DateTime<Utc>) -> Option<Arc<Policy>> {
        let known = self.known.load();
        let versions = known.versions.get(known.ids.get(name)?)?;
        versions.in_force(at, 0).cloned()
    }

    /// The newest version of the policy with an id, in force or not.
    pub fn newest(&self, id: PolicyId) -> Option<Arc<Policy>> {
        let known = self.known.load();
        known.versions.get(&id)?.newest().cloned()
    }

    /// A certain version of a policy, if it is or may come into force.
    pub fn version(&self, id: PolicyId, version: u32) -> Option<Arc<Policy>> {
        let known = self.known.load();
        known.versions.get(&id)?.get(version).cloned()
    }

    /// What a claim in an account is decided by at `now`, after its `last` line: the version of
    /// its policy that is in force at the instant of the decision, and no older than the line's
    /// if one is known, with the account's override.
    pub fn terms(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
    ) -> Arc<Policy> {
        let at = instant_after(last, now);
        let since = last.map_or(0, |line| line.policy_version);
        let known = self.known.load();
        let versions = known.versions.get(&policy.id);
        let in_force = versions.and_then(|versions| versions.in_force(at, since));
        let in_force = in_force.unwrap_or(policy);
        match self.override_of(account, at) {
            Some(terms) => Arc::new(terms.apply(in_force)),
            None => in_force.clone(),
        }
    }

    /// The [`Policies::terms`], once the version that the last line was decided under is known.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`], also when there is no such
    /// version.
    pub async fn terms_after(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
        ledger: &Ledger,
    ) -> Result<Arc<Policy>, LedgerError> {
        let version = last.map_or(0, |line| line.policy_version);
        let terms = self.terms(policy, account, last, now);
        if terms.version >= version {
            return Ok(terms);
        }
        self.refresh(ledger).await?;
        let terms = self.terms(policy, account, last, now);
        match terms.version >= version {
            true => Ok(terms),
            false => Err(LedgerError::Corrupt(format!(
                "an entry under version {version} of {}, which has none",
                terms.name
            ))),
        }
    }

    /// What a claim's rule says after a line that may not be the account's last one; by the terms
    /// that hold then, which are the claim's own from now on.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn decide_on(
        &self,
        line: &Line,
        work: &mut Work,
        now: DateTime<Utc>,
    ) -> Result<Verdict, Unknown> {
        work.policy = self.terms(&work.policy, work.account, Some(line), now);
        decide(&work.policy, work.units, Some(line), &Sums::default(), now)
    }

    /// What an account's override says at an instant.
    pub fn override_of(&self, account: AccountId, at: DateTime<Utc>) -> Option<Arc<OverrideTerms>> {
        let overrides = self
            .overrides
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let terms = overrides.by_account.get(&account)?.terms.as_ref();
        terms.filter(|terms| terms.hold(at)).cloned()
    }

    /// The version of every policy that is in force at an instant.
    pub fn all(&self, at: DateTime<Utc>) -> Vec<Arc<Policy>> {
        let known = self.known.load();
        let in_force = |versions: &Versions| versions.in_force(at, 0).cloned();
        known.versions.values().filter_map(in_force).collect()
    }

    /// Whether every change older than [`FRESH`] is known.
    pub fn are_fresh(&self) -> bool {
        is_fresh(self.as_of())
    }

    /// Every change that was made before this instant is known.
    pub fn as_of(&self) -> Instant {
        self.progress().as_of
    }

    /// Learns what changed since the last time.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn refresh(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        let _one_at_a_time = self.refreshing.lock().await;
        self.read(ledger).await
    }

    /// As [`Policies::refresh`], unless all is fresh, or the ledger found silent, when it is its
    /// turn: of many who wait one reads for all.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn freshen(
        &self,
        ledger: &Ledger,
        is_silent: impl Fn() -> bool,
    ) -> Result<(), LedgerError> {
        if self.are_fresh() {
            return Ok(());
        }
        let _one_at_a_time = self.refreshing.lock().await;
        match self.are_fresh() || is_silent() {
            true => Ok(()),
            false => self.read(ledger).await,
        }
    }

    /// Learns all that was committed before an instant: sees to it that a read that began after
    /// it has ended. One read serves all who wait for it. `note` is called before each read.
    ///
    /// # Errors
    /// Why that read failed.
    pub async fn learn_all_before(
        &self,
        instant: Instant,
        ledger: &Ledger,
        note: impl Fn(),
    ) -> Result<(), Arc<LedgerError>> {
        loop {
            let one_at_a_time = self.refreshing.lock().await;
            let (as_of, failed) = {
                let progress = self.progress();
                (progress.as_of, progress.failed.clone())
            };
            if as_of >= instant {
                return Ok(());
            }
            let mut last = as_of;
            if let Some((began_at, error)) = failed {
                if began_at >= instant {
                    return Err(error);
                }
                last = began_at;
            }
            let began_at = Instant::now();
            if began_at < last + READS_APART {
                drop(one_at_a_time);
                sleep_until(last + READS_APART).await;
                continue;
            }
            note();
            let read = self.read(ledger).await.map_err(Arc::new);
            if let Err(error) = &read {
                self.progress().failed = Some((began_at, error.clone()));
            }
            return read;
        }
    }

    async fn read(&self, ledger: &Ledger) -> Result<(), LedgerError> {
        let as_of = Instant::now();
        let known = self.progress().revision;
        let revision = ledger.revision().await?;
        reach("policies.polled");
        // First, so that a revoked key stops working also where a policy cannot be read.
        self.access.refresh(ledger, revision).await?;
        if revision > known {
            let policies = ledger.policies_between(known, revision).await?;
            let overrides = ledger.overrides_between(known, revision).await?;
            // Together, so that no version of a policy is known before an older override.
            self.learn_overrides(overrides, Some(revision));
            self.learn(policies);
        }
        *self.progress() = Progress {
            revision,
            as_of,
            failed: None,
        };
        Ok(())
    }

    /// Takes over versions of policies.
    pub fn learn(&self, policies: Vec<Policy>) {
        let policies: Vec<Arc<Policy>> = policies.into_iter().map(Arc::new).collect();
        self.known.rcu(|known| {
            let mut next = KnownPolicies::clone(known);
            for policy in &policies {
                next.ids.insert(policy.name.clone(), policy.id);
                let versions = next.versions.entry(policy.id).or_default();
                versions.insert(policy.clone());
            }
            next
        });
    }

    /// Takes over versions of overrides: one that was made here, or all up to a revision.
    pub fn learn_overrides(&self, learned: Vec<Override>, up_to: Option<u64>) {
        let mut overrides = self
            .overrides
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for learned in learned {
            let account = learned.account;
            let known = overrides.by_account.get(&account);
            let is_newer = known.is_none_or(|known| known.version < learned.version);
            if !is_newer || learned.revision <= overrides.revision {
                continue;
            }
            if learned.terms.is_none() {
                overrides.deleted.push(account);
            }
            let known = KnownOverride {
                version: learned.version,
                revision: learned.revision,
                terms: learned.terms.map(Arc::new),
            };
            overrides.by_account.insert(account, known);
        }
        if let Some(up_to) = up_to {
            overrides.forget_deleted(up_to);
        }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overrides {
    /// All changes up to a revision are known: no older version comes any more.
    fn forget_deleted(&mut self, up_to: u64) {
        self.revision = up_to;
        let by_account = &mut self.by_account;
        self.deleted.retain(|account| {
            let known = by_account.get(account);
            let is_deleted = known.is_some_and(|known| known.terms.is_none());
            let may_be_older = known.is_some_and(|known| known.revision > up_to);
            if is_deleted && !may_be_older {
                by_account.remove(account);
            }
            is_deleted && may_be_older
        });
    }
}
