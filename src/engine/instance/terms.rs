//! What claims are decided by, as this instance knows it: policies and overrides. Nothing here reads
//! the ledger.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use foldhash::HashMap;
use tokio::time::Instant;

use crate::domain::account::{Sums, Unknown, Verdict, decide, instant_after};
use crate::domain::grant::Line;
use crate::domain::identity::AccountId;
use crate::domain::overrides::{Override, OverrideTerms};
use crate::domain::policy::{Policy, PolicyId, PolicyName};
use crate::domain::schedule::Versions;
use crate::domain::work::Work;

/// How long a change may take to hold everywhere.
pub const FRESH: Duration = Duration::from_secs(1);

/// Whether claims may still be decided by what was known as of an instant.
pub fn is_fresh(as_of: Instant, now: Instant) -> bool {
    now.saturating_duration_since(as_of) < FRESH
}

/// Every policy's versions that are or may come into force, archived ones too, and every
/// account's override.
pub struct Terms {
    known: ArcSwap<KnownPolicies>,
    overrides: RwLock<Overrides>,
    /// Every change that was made before this instant is known.
    as_of: Mutex<Instant>,
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

impl Terms {
    /// Nothing is known.
    pub fn new(now: Instant) -> Self {
        Self {
            known: ArcSwap::default(),
            overrides: RwLock::default(),
            as_of: Mutex::new(now),
        }
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
    pub fn of(
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

    /// The [`Terms::of`]; `None` while the version that the last line was decided under is not
    /// known.
    pub fn after(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
    ) -> Option<Arc<Policy>> {
        let version = last.map_or(0, |line| line.policy_version);
        let terms = self.of(policy, account, last, now);
        (terms.version >= version).then_some(terms)
    }

    /// Whether Redis decided claims of a policy under any of its versions, or may come to.
    pub fn may_be_counted(&self, policy: PolicyId) -> bool {
        let known = self.known.load();
        let versions = known.versions.get(&policy);
        versions.is_some_and(Versions::may_be_counted)
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
        work.policy = self.of(&work.policy, work.account, Some(line), now);
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

    /// Every change that was made before this instant is known.
    pub fn as_of(&self) -> Instant {
        *self.as_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every change that was made before an instant is known now.
    pub fn know_as_of(&self, instant: Instant) {
        *self.as_of.lock().unwrap_or_else(PoisonError::into_inner) = instant;
    }

    /// Takes over versions of policies.
    pub fn learn(&self, policies: Vec<Policy>) {
        let policies: Vec<Arc<Policy>> = policies.into_iter().map(Arc::new).collect();
        self.known.rcu(|known| known.with(&policies));
    }

    /// Takes over versions of overrides: one that was made here, or all up to a revision.
    pub fn learn_overrides(&self, learned: Vec<Override>, up_to: Option<u64>) {
        self.write_overrides().learn(learned, up_to);
    }

    /// Takes over all versions of policies and overrides up to a revision, in the place of all that
    /// was known.
    pub fn replace(&self, policies: Vec<Policy>, overrides: Vec<Override>, revision: u64) {
        let mut known = self.write_overrides();
        *known = Overrides::default();
        known.learn(overrides, Some(revision));
        let policies: Vec<Arc<Policy>> = policies.into_iter().map(Arc::new).collect();
        self.known
            .store(Arc::new(KnownPolicies::default().with(&policies)));
    }

    fn write_overrides(&self) -> RwLockWriteGuard<'_, Overrides> {
        self.overrides
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownPolicies {
    fn with(&self, policies: &[Arc<Policy>]) -> Self {
        let mut next = self.clone();
        for policy in policies {
            next.ids.insert(policy.name.clone(), policy.id);
            let versions = next.versions.entry(policy.id).or_default();
            versions.insert(policy.clone());
        }
        next
    }
}

impl Overrides {
    fn learn(&mut self, learned: Vec<Override>, up_to: Option<u64>) {
        for learned in learned {
            let account = learned.account;
            let known = self.by_account.get(&account);
            let is_newer = known.is_none_or(|known| known.version < learned.version);
            if !is_newer || learned.revision <= self.revision {
                continue;
            }
            if learned.terms.is_none() {
                self.deleted.push(account);
            }
            let known = KnownOverride {
                version: learned.version,
                revision: learned.revision,
                terms: learned.terms.map(Arc::new),
            };
            self.by_account.insert(account, known);
        }
        if let Some(up_to) = up_to {
            self.forget_deleted(up_to);
        }
    }

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
