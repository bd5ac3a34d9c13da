//! The terms of claims, as this instance knows them: policies, and the exceptions of subjects. Nothing
//! here reads the ledger.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use foldhash::HashMap;
use tokio::time::Instant;

use domain::account::{Unknown, Verdict, decide, instant_after};
use domain::blocks::{BlockTerms, SubjectTerms};
use domain::course::Course;
use domain::exceptions::{Exceptions, ExceptionsThen};
use domain::grant::Line;
use domain::identity::AccountId;
use domain::overrides::{OfSubject, OverrideTerms, UnreadableOfSubject};
use domain::past::Past;
use domain::policy::{Policy, PolicyId, PolicyName};
use domain::schedule::{StoredVersion, UnreadableTerms, UnreadableVersion, Versions};
use domain::subject_tier::TierTerms;
use domain::work::Work;

/// How long a change may take to reach every instance.
pub const FRESH: Duration = Duration::from_secs(1);

/// Whether terms that were complete as of an instant may still decide claims.
pub fn is_fresh(as_of: Instant, now: Instant) -> bool {
    now.saturating_duration_since(as_of) < FRESH
}

/// All versions of policies that are or may become active, including archived policies, and the
/// exceptions of every account.
pub struct Terms {
    known: ArcSwap<CachedPolicies>,
    of_subjects: RwLock<TermsOfSubjects>,
    /// Every change that was made before this instant is known.
    as_of: Mutex<Instant>,
}

#[derive(Clone, Default)]
struct CachedPolicies {
    ids: HashMap<PolicyName, PolicyId>,
    versions: HashMap<PolicyId, Versions>,
    /// The policies with an exception that cannot be read.
    stopped: HashMap<PolicyId, Arc<UnreadableTerms>>,
}

/// Exceptions, under one lock: a claim sees all as of the same change.
#[derive(Default)]
struct TermsOfSubjects {
    tiers: ByAccount<TierTerms>,
    overrides: ByAccount<OverrideTerms>,
    blocks: ByAccount<BlockTerms>,
}

/// The exceptions of one kind.
struct ByAccount<T> {
    by_account: HashMap<AccountId, CachedTerms<T>>,
    unreadable: HashMap<AccountId, Arc<UnreadableTerms>>,
    /// The accounts whose terms were deleted after `revision`. They are kept until then, so that no
    /// older version replaces the deletion.
    deleted: Vec<AccountId>,
    /// Every change up to this revision is known.
    revision: u64,
}

/// The last version of an exception; `None` as terms means ended.
struct CachedTerms<T> {
    version: u32,
    revision: u64,
    terms: Option<Arc<T>>,
}

impl<T> Default for ByAccount<T> {
    fn default() -> Self {
        Self {
            by_account: HashMap::default(),
            unreadable: HashMap::default(),
            deleted: Vec::new(),
            revision: 0,
        }
    }
}

type LearnedTerms<T> = Vec<Result<OfSubject<T>, UnreadableOfSubject>>;

/// Versions of exceptions that this instance learns of.
#[derive(Default)]
pub struct ChangedTerms {
    pub tiers: LearnedTerms<TierTerms>,
    pub overrides: LearnedTerms<OverrideTerms>,
    pub blocks: LearnedTerms<BlockTerms>,
}

impl ChangedTerms {
    /// The versions that cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &UnreadableTerms> {
        let tiers = self.tiers.iter().filter_map(|it| it.as_ref().err());
        let overrides = self.overrides.iter().filter_map(|it| it.as_ref().err());
        let blocks = self.blocks.iter().filter_map(|it| it.as_ref().err());
        let unreadable = tiers.chain(overrides).chain(blocks);
        unreadable.map(|unreadable| &*unreadable.terms)
    }
}

impl From<ExceptionsThen> for ChangedTerms {
    fn from(changed: ExceptionsThen) -> Self {
        Self {
            tiers: changed.tier.into_iter().map(Ok).collect(),
            overrides: changed.overridden.into_iter().map(Ok).collect(),
            blocks: changed.block.into_iter().map(Ok).collect(),
        }
    }
}

impl Terms {
    pub fn new(now: Instant) -> Self {
        Self {
            known: ArcSwap::default(),
            of_subjects: RwLock::default(),
            as_of: Mutex::new(now),
        }
    }

    /// The version of a policy that is active at an instant.
    ///
    /// # Errors
    /// The part of the policy that cannot be read.
    pub fn get(
        &self,
        name: &PolicyName,
        at: DateTime<Utc>,
    ) -> Result<Option<Arc<Policy>>, Arc<UnreadableTerms>> {
        let known = self.known.load();
        match known.ids.get(name) {
            Some(id) => known.in_force(*id, at),
            None => Ok(None),
        }
    }

    /// The newest version of a policy, active or not.
    ///
    /// # Errors
    /// The part of the policy that cannot be read.
    pub fn newest(&self, id: PolicyId) -> Result<Option<Arc<Policy>>, Arc<UnreadableTerms>> {
        let known = self.known.load();
        let versions = known.versions.get(&id);
        read(versions.and_then(Versions::newest))
    }

    /// A version of a policy, if it is or may become active.
    ///
    /// # Errors
    /// The part of the policy that cannot be read.
    pub fn version(
        &self,
        id: PolicyId,
        version: u32,
    ) -> Result<Option<Arc<Policy>>, Arc<UnreadableTerms>> {
        let known = self.known.load();
        let versions = known.versions.get(&id);
        read(versions.and_then(|versions| versions.get(version)))
    }

    /// The terms that decide a claim of an account at `now`, after its `last` line: the version of
    /// the policy that is active at the instant of the decision, with the exceptions of the account.
    /// The version is not older than the version of the last line, if such a version is known. If
    /// the version cannot be read, the result is the version that the claim started with; the rule
    /// refuses it after a line of a newer version.
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
        let in_force = in_force.and_then(|version| version.as_ref().ok());
        self.under(in_force.unwrap_or(policy), account, at)
    }

    /// A version of a policy, with the exceptions of an account at an instant.
    fn under(&self, version: &Arc<Policy>, account: AccountId, at: DateTime<Utc>) -> Arc<Policy> {
        self.exceptions(account, at).apply(version)
    }

    /// The known course of the terms of an account after its `last` line, from the instant of a
    /// decision at `now` on. It begins with the terms of [`Terms::of`].
    pub fn course(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
    ) -> Course {
        let from = instant_after(last, now);
        let since = last.map_or(0, |line| line.policy_version);
        let known = self.known.load();
        let versions = known.versions.get(&policy.id);
        let changes = versions.into_iter().flat_map(Versions::changes);
        let ends = self.exceptions(account, from).ends();
        Course::new(from, changes.chain(ends), |at| {
            if at == from {
                return Some(self.of(policy, account, last, now));
            }
            let in_force = versions.and_then(|versions| versions.in_force(at, since));
            let in_force = in_force.and_then(|version| version.as_ref().ok());
            in_force.map(|version| self.under(version, account, at))
        })
    }

    /// Whether no change of the terms of an account is known that is still to come.
    pub fn are_steady(&self, policy: PolicyId, account: AccountId, at: DateTime<Utc>) -> bool {
        let known = self.known.load();
        let versions = known.versions.get(&policy);
        let mut changes = versions.into_iter().flat_map(Versions::changes);
        let mut ends = self.exceptions(account, at).ends();
        changes.all(|change| change <= at) && ends.next().is_none()
    }

    /// As [`Terms::of`]; `None` while the version of the last line is not known.
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

    /// Whether any version of a policy that was known here lets Redis decide claims.
    pub fn may_be_counted(&self, policy: PolicyId) -> bool {
        let known = self.known.load();
        let versions = known.versions.get(&policy);
        versions.is_some_and(Versions::may_be_counted)
    }

    /// Applies the rule to a claim after a line that may not be the last line of the account. The
    /// claim gets the terms of that decision.
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
        decide(
            &work.policy,
            work.asked(),
            Some(line),
            &Past::default(),
            now,
        )
    }

    /// The exceptions of an account that are in force at an instant.
    pub fn exceptions(&self, account: AccountId, at: DateTime<Utc>) -> Exceptions {
        let known = self
            .of_subjects
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        Exceptions {
            tier: known.tiers.in_force(account, at).cloned(),
            overridden: known.overrides.in_force(account, at).cloned(),
            blocked: known.blocks.in_force(account, at).map(|terms| **terms),
        }
    }

    /// The active version of every policy at an instant.
    ///
    /// # Errors
    /// The part of a policy that cannot be read.
    pub fn all(&self, at: DateTime<Utc>) -> Result<Vec<Arc<Policy>>, Arc<UnreadableTerms>> {
        let known = self.known.load();
        let in_force = known.versions.keys().map(|id| known.in_force(*id, at));
        in_force.filter_map(Result::transpose).collect()
    }

    /// The active version of every policy at an instant, without the policies that cannot be read.
    pub fn readable(&self, at: DateTime<Utc>) -> Vec<Arc<Policy>> {
        let known = self.known.load();
        let in_force = known.versions.keys().map(|id| known.in_force(*id, at));
        in_force.filter_map(|read| read.ok().flatten()).collect()
    }

    /// How many policies cannot be read at an instant: this instance does not decide their claims.
    pub fn unreadable(&self, at: DateTime<Utc>) -> usize {
        let known = self.known.load();
        let in_force = known.versions.keys().map(|id| known.in_force(*id, at));
        in_force.filter(Result::is_err).count()
    }

    /// Every change that was made before this instant is known.
    pub fn as_of(&self) -> Instant {
        *self.as_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that every change before an instant is known.
    pub fn know_as_of(&self, instant: Instant) {
        *self.as_of.lock().unwrap_or_else(PoisonError::into_inner) = instant;
    }

    /// Adds versions of policies.
    pub fn learn(&self, versions: &[StoredVersion]) {
        self.known.rcu(|known| known.with(versions));
    }

    /// Adds versions of exceptions: those that were made here, or all up to a revision.
    pub fn learn_of_subjects(&self, changed: impl Into<ChangedTerms>, up_to: Option<u64>) {
        let mut known = self.write_of_subjects();
        known.learn(changed.into(), up_to);
        let stopped = known.stopped();
        if stopped != self.known.load().stopped {
            self.known.rcu(|known| CachedPolicies {
                stopped: stopped.clone(),
                ..CachedPolicies::clone(known)
            });
        }
    }

    /// Replaces everything by all versions of policies and exceptions up to a revision.
    pub fn replace(&self, versions: &[StoredVersion], changed: ChangedTerms, revision: u64) {
        let mut known = self.write_of_subjects();
        *known = TermsOfSubjects::default();
        known.learn(changed, Some(revision));
        let policies = CachedPolicies {
            stopped: known.stopped(),
            ..CachedPolicies::default()
        };
        self.known.store(Arc::new(policies.with(versions)));
    }

    fn write_of_subjects(&self) -> RwLockWriteGuard<'_, TermsOfSubjects> {
        self.of_subjects
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Errors
/// The part of the version that cannot be read.
fn read(version: Option<&StoredVersion>) -> Result<Option<Arc<Policy>>, Arc<UnreadableTerms>> {
    match version {
        None => Ok(None),
        Some(Ok(policy)) => Ok(Some(policy.clone())),
        Some(Err(UnreadableVersion { terms, .. })) => Err(terms.clone()),
    }
}

impl CachedPolicies {
    fn with(&self, versions: &[StoredVersion]) -> Self {
        let mut next = self.clone();
        for version in versions {
            let (id, name) = match version {
                Ok(policy) => (policy.id, &policy.name),
                Err(UnreadableVersion { terms, .. }) => (terms.policy, &terms.name),
            };
            next.ids.insert(name.clone(), id);
            next.versions.entry(id).or_default().insert(version.clone());
        }
        next
    }

    fn in_force(
        &self,
        id: PolicyId,
        at: DateTime<Utc>,
    ) -> Result<Option<Arc<Policy>>, Arc<UnreadableTerms>> {
        if let Some(terms) = self.stopped.get(&id) {
            return Err(terms.clone());
        }
        let versions = self.versions.get(&id);
        read(versions.and_then(|versions| versions.in_force(at, 0)))
    }
}

impl TermsOfSubjects {
    fn learn(&mut self, changed: ChangedTerms, up_to: Option<u64>) {
        self.tiers.learn(changed.tiers, up_to);
        self.overrides.learn(changed.overrides, up_to);
        self.blocks.learn(changed.blocks, up_to);
    }

    /// The policies with an exception that cannot be read.
    fn stopped(&self) -> HashMap<PolicyId, Arc<UnreadableTerms>> {
        let tiers = self.tiers.unreadable.values();
        let unreadable = tiers.chain(self.overrides.unreadable.values());
        let unreadable = unreadable.chain(self.blocks.unreadable.values());
        unreadable
            .map(|terms| (terms.policy, terms.clone()))
            .collect()
    }
}

impl<T: SubjectTerms> ByAccount<T> {
    /// The terms of an account that are in force at an instant.
    fn in_force(&self, account: AccountId, at: DateTime<Utc>) -> Option<&Arc<T>> {
        let terms = self.by_account.get(&account)?.terms.as_ref();
        terms.filter(|terms| terms.hold(at))
    }

    fn learn(&mut self, learned: LearnedTerms<T>, up_to: Option<u64>) {
        for learned in learned {
            let (account, version, revision) = match &learned {
                Ok(learned) => (learned.account, learned.version, learned.revision),
                Err(learned) => (learned.account, learned.version, learned.revision),
            };
            let known = self.by_account.get(&account);
            let is_newer = known.is_none_or(|known| known.version < version);
            if !is_newer || revision <= self.revision {
                continue;
            }
            let terms = match learned {
                Ok(learned) => {
                    self.unreadable.remove(&account);
                    learned.terms.map(Arc::new)
                }
                Err(learned) => {
                    self.unreadable.insert(account, learned.terms);
                    None
                }
            };
            if terms.is_none() {
                self.deleted.push(account);
            }
            let known = CachedTerms {
                version,
                revision,
                terms,
            };
            self.by_account.insert(account, known);
        }
        if let Some(up_to) = up_to {
            self.forget_deleted(up_to);
        }
    }

    /// Notes that every change up to a revision is known: no older version can arrive any more.
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
