//! Reads the policies, overrides, blocks and keys from the ledger, so that a claim does not read them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep_until};

use super::access::Access;
use super::terms::{ChangedTerms, Terms, is_fresh};
use domain::grant::Line;
use domain::identity::AccountId;
use domain::policy::{Policy, PolicyName};
use domain::schedule::StoredVersion;
use host::faults::reach;
use ledger::{AdminTables, LedgerError, LedgerPlace, LedgerView};

/// The shortest time between the starts of two reads for unknown names and keys. However many
/// unknown names come, the ledger gets at most 50 such reads a second.
const READS_APART: Duration = Duration::from_millis(20);

/// Logs, once, the versions that cannot be read.
fn tell_unreadable(versions: &[StoredVersion], changed: &ChangedTerms) {
    let versions = versions.iter().filter_map(|version| version.as_ref().err());
    let versions = versions.map(|version| &*version.terms);
    for terms in versions.chain(changed.unreadable()) {
        tracing::error!("{terms}");
    }
}

/// The exceptions that changed after a revision and up to another.
async fn changed_between(
    ledger: &AdminTables,
    after: u64,
    up_to: u64,
) -> Result<ChangedTerms, LedgerError> {
    Ok(ChangedTerms {
        tiers: ledger.of_subjects_between(after, up_to).await?,
        overrides: ledger.of_subjects_between(after, up_to).await?,
        blocks: ledger.of_subjects_between(after, up_to).await?,
    })
}

/// Keeps the terms of claims fresh.
pub struct Policies {
    ledger: AdminTables,
    pub terms: Arc<Terms>,
    /// The keys. The same poll reads them.
    access: Arc<Access>,
    progress: Mutex<Progress>,
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Progress {
    /// Every change up to this revision is known.
    revision: u64,
    /// The server that the last lines were read from.
    place: Option<LedgerPlace>,
    /// The start and the error of the last failed read for something unknown; `None` after a read
    /// succeeded.
    failed: Option<(Instant, Arc<LedgerError>)>,
}

impl Policies {
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn load(ledger: AdminTables, access: Arc<Access>) -> Result<Self, LedgerError> {
        let policies = Self {
            ledger,
            terms: Arc::new(Terms::new(Instant::now())),
            access,
            progress: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        };
        policies.refresh().await?;
        Ok(policies)
    }

    /// As [`Terms::of`], once the version of the last line is known.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`]; also [`LedgerError::Corrupt`] if
    /// that version does not exist.
    pub async fn terms_after(
        &self,
        policy: &Arc<Policy>,
        account: AccountId,
        last: Option<&Line>,
        now: DateTime<Utc>,
    ) -> Result<Arc<Policy>, LedgerError> {
        if let Some(terms) = self.terms.after(policy, account, last, now) {
            return Ok(terms);
        }
        self.refresh().await?;
        if let Some(terms) = self.terms.after(policy, account, last, now) {
            return Ok(terms);
        }
        let version = last.map_or(0, |line| line.policy_version);
        self.terms.version(policy.id, version)?;
        let name = &policy.name;
        let corrupt = format!("an entry under version {version} of {name}, which has none");
        Err(LedgerError::Corrupt(corrupt))
    }

    /// Whether the terms are fresh.
    pub fn are_fresh(&self) -> bool {
        is_fresh(self.terms.as_of(), Instant::now())
    }

    /// Reads the changes since the last read.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn refresh(&self) -> Result<(), LedgerError> {
        let _one_at_a_time = self.refreshing.lock().await;
        self.read().await
    }

    /// As [`Policies::refresh`], unless everything is fresh or the ledger is silent when the turn
    /// comes: of many callers, one reads for all.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn freshen(&self, is_silent: impl Fn() -> bool) -> Result<(), LedgerError> {
        if self.are_fresh() {
            return Ok(());
        }
        let _one_at_a_time = self.refreshing.lock().await;
        if self.are_fresh() || is_silent() {
            Ok(())
        } else {
            self.read().await
        }
    }

    /// As [`Policies::freshen`], after lines were read. If another server showed these lines,
    /// everything is read again: a copy took the place of the ledger, and may lack versions that
    /// are known here.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn freshen_for(&self, seen: &LedgerView) -> Result<(), LedgerError> {
        let Some(place) = seen.fence.map(|fence| fence.place) else {
            return self.freshen(|| false).await;
        };
        let is_another = || {
            let known = *self.progress().place.get_or_insert(place);
            !known.is_same_server(&place)
        };
        if !is_another() {
            return self.freshen(|| false).await;
        }
        let _one_at_a_time = self.refreshing.lock().await;
        if is_another() {
            self.read_all().await?;
            self.progress().place = Some(place);
        }
        Ok(())
    }

    /// The newest version of a policy up to this one, as the ledger has it.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn read_version(
        &self,
        name: &PolicyName,
        version: u32,
    ) -> Result<Option<Policy>, LedgerError> {
        let before = version.saturating_add(1);
        Ok(self.ledger.versions(name, before, 1).await?.pop())
    }

    /// Makes sure that everything is known that was committed before an instant: waits for a read
    /// that started after the instant. One read serves all callers. `note` is called before each
    /// read.
    ///
    /// # Errors
    /// The error of that read.
    pub async fn learn_all_before(
        &self,
        instant: Instant,
        note: impl Fn(),
    ) -> Result<(), Arc<LedgerError>> {
        loop {
            // 1. Only one caller reads at a time.
            let one_at_a_time = self.refreshing.lock().await;
            let as_of = self.terms.as_of();
            let failed = self.progress().failed.clone();
            // 2. A read that started after the instant is enough, also a failed one.
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
            // 3. Reads keep a distance from each other.
            let began_at = Instant::now();
            if began_at < last + READS_APART {
                drop(one_at_a_time);
                sleep_until(last + READS_APART).await;
                continue;
            }
            // 4. This caller reads for all.
            note();
            let read = self.read().await.map_err(Arc::new);
            if let Err(error) = &read {
                self.progress().failed = Some((began_at, error.clone()));
            }
            return read;
        }
    }

    async fn read(&self) -> Result<(), LedgerError> {
        let as_of = Instant::now();
        let known = self.progress().revision;
        let revision = self.ledger.revision().await?;
        reach("policies.polled");
        if revision < known {
            return self.read_all().await;
        }
        // 1. The keys come first: a revoked key stops working even if a policy cannot be read.
        self.access.refresh(revision).await?;
        if revision > known {
            let policies = self.ledger.policies_between(known, revision).await?;
            let changed = changed_between(&self.ledger, known, revision).await?;
            tell_unreadable(&policies, &changed);
            // 2. Exceptions come before policies: no version of a policy is known before an older
            //    exception.
            self.terms.learn_of_subjects(changed, Some(revision));
            self.terms.learn(&policies);
        }
        self.note_read(revision, as_of);
        Ok(())
    }

    /// Reads everything again, and forgets what the ledger lacks.
    async fn read_all(&self) -> Result<(), LedgerError> {
        tracing::warn!("the ledger may have gone back in time: policies and keys are read again");
        let as_of = Instant::now();
        let revision = self.ledger.revision().await?;
        self.access.read_all(revision).await?;
        let policies = self.ledger.policies_between(0, revision).await?;
        let changed = changed_between(&self.ledger, 0, revision).await?;
        tell_unreadable(&policies, &changed);
        self.terms.replace(&policies, changed, revision);
        self.note_read(revision, as_of);
        Ok(())
    }

    fn note_read(&self, revision: u64, as_of: Instant) {
        let mut progress = self.progress();
        progress.revision = revision;
        progress.failed = None;
        drop(progress);
        self.terms.know_as_of(as_of);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
