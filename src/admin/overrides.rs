//! Changing what a policy has for one subject, and listing it: overrides, blocks and tiers.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::{Admin, EditError, Editor, Precondition};
use claims::instance::{ChangedTerms, Failure};
use domain::blocks::BlockTerms;
use domain::claim::Subject;
use domain::fault::Fault;
use domain::identity::AccountId;
use domain::key::SupportBounds;
use domain::limit::shape::OtherMax;
use domain::overrides::{OfSubject, OverrideTerms};
use domain::policy::{Policy, PolicyName};
use domain::subject_tier::TierTerms;
use ledger::{Change, Edited, Standing, StoredTerms};
use record::ListFailure;
use record::cursor::{self, cut_page};

/// Terms of one subject that admins change.
pub trait EditedTerms: StoredTerms {
    /// The name of a list, for its cursors.
    const LIST: &'static str;
    /// The error that there is nothing to show or to delete.
    const UNKNOWN: EditError;
    /// Whether another reason alone is a change.
    const HAS_OWN_REASON: bool;

    /// What this instance learns of a version.
    fn learned(version: OfSubject<Self>) -> ChangedTerms;

    /// Checks the terms against the policy.
    ///
    /// # Errors
    /// [`EditError::Misfit`].
    fn check(&self, policy: &Standing) -> Result<(), EditError>;

    /// The parts that are beyond the bounds of a support key.
    fn beyond(&self, policy: &Standing, bounds: SupportBounds, now: DateTime<Utc>) -> Vec<Fault>;
}

/// The fault of an end that is beyond the bounds of a support key.
fn beyond_days(
    until: Option<DateTime<Utc>>,
    bounds: SupportBounds,
    now: DateTime<Utc>,
) -> Option<Fault> {
    let days = bounds.days;
    let detail = format!("this key needs an end within {days} days: write until, or ask an admin");
    (!bounds.reach(until, now)).then(|| Fault::new("/until", detail))
}

impl EditedTerms for OverrideTerms {
    const LIST: &'static str = "overrides";
    const UNKNOWN: EditError = EditError::UnknownOverride;
    const HAS_OWN_REASON: bool = false;

    fn learned(version: OfSubject<Self>) -> ChangedTerms {
        ChangedTerms {
            overrides: vec![Ok(version)],
            ..ChangedTerms::default()
        }
    }

    fn check(&self, policy: &Standing) -> Result<(), EditError> {
        let misfits = self.misfits(&versions(policy));
        if misfits.is_empty() {
            Ok(())
        } else {
            Err(EditError::Misfit(misfits))
        }
    }

    fn beyond(&self, _policy: &Standing, bounds: SupportBounds, now: DateTime<Utc>) -> Vec<Fault> {
        let most = bounds.max;
        let limits = self.limits.iter().enumerate();
        let beyond = limits.filter(|(_, limit)| limit.max > most);
        let faults = beyond.map(|(index, _)| {
            let detail = format!("this key may put at most {most}: write less, or ask an admin");
            Fault::new(format!("/limits/{index}/max"), detail)
        });
        faults.chain(beyond_days(self.until, bounds, now)).collect()
    }
}

impl EditedTerms for BlockTerms {
    const LIST: &'static str = "blocks";
    const UNKNOWN: EditError = EditError::UnknownBlock;
    const HAS_OWN_REASON: bool = true;

    fn learned(version: OfSubject<Self>) -> ChangedTerms {
        ChangedTerms {
            blocks: vec![Ok(version)],
            ..ChangedTerms::default()
        }
    }

    fn check(&self, _policy: &Standing) -> Result<(), EditError> {
        Ok(())
    }

    fn beyond(&self, _policy: &Standing, bounds: SupportBounds, now: DateTime<Utc>) -> Vec<Fault> {
        beyond_days(self.until, bounds, now).into_iter().collect()
    }
}

impl EditedTerms for TierTerms {
    const LIST: &'static str = "tiers";
    const UNKNOWN: EditError = EditError::UnknownTier;
    const HAS_OWN_REASON: bool = false;

    fn learned(version: OfSubject<Self>) -> ChangedTerms {
        ChangedTerms {
            tiers: vec![Ok(version)],
            ..ChangedTerms::default()
        }
    }

    fn check(&self, policy: &Standing) -> Result<(), EditError> {
        match self.misfit(&versions(policy)) {
            None => Ok(()),
            Some(misfit) => Err(EditError::Misfit(vec![misfit])),
        }
    }

    fn beyond(&self, policy: &Standing, bounds: SupportBounds, now: DateTime<Utc>) -> Vec<Fault> {
        let most = bounds.max;
        let versions = versions(policy);
        let tiers = versions
            .iter()
            .filter_map(|version| version.rule.tier(&self.tier));
        let mut limits = tiers.flat_map(|tier| &tier.limits);
        let beyond = limits.find(|limit| limit.max > most).map(|limit| {
            let OtherMax { max, per } = limit;
            let detail = format!(
                "this key may put at most {most}, and the tier {} has {max} per {per}: write another \
                 tier, or ask an admin",
                self.tier
            );
            Fault::new("/tier", detail)
        });
        let beyond = beyond.into_iter();
        beyond.chain(beyond_days(self.until, bounds, now)).collect()
    }
}

/// The versions that an exception must fit: the one in force, and the newest one.
fn versions(policy: &Standing) -> Vec<&Policy> {
    let mut versions = vec![&policy.in_force];
    if policy.newest.version != policy.in_force.version {
        versions.push(&policy.newest);
    }
    versions
}

/// Checks that a support key stays within its bounds, and changes only what it put itself.
fn check_bounds<T: EditedTerms>(
    policy: &Standing,
    current: Option<&OfSubject<T>>,
    terms: Option<&T>,
    editor: &Editor,
    now: DateTime<Utc>,
) -> Result<(), EditError> {
    let Some(bounds) = editor.bounds else {
        return Ok(());
    };
    let present = current.filter(|current| current.in_force(now).is_some());
    if present.is_some_and(|present| present.changed_by != *editor.key) {
        return Err(EditError::BeyondBounds);
    }
    match terms.map(|terms| terms.beyond(policy, bounds, now)) {
        Some(faults) if !faults.is_empty() => Err(EditError::Misfit(faults)),
        Some(_) | None => Ok(()),
    }
}

fn is_same<T: EditedTerms>(current: &OfSubject<T>, terms: &T, reason: Option<&str>) -> bool {
    let has_same_reason = !T::HAS_OWN_REASON || current.reason.as_deref() == reason;
    current.terms.as_ref() == Some(terms) && has_same_reason
}

impl Admin {
    /// Creates or replaces an exception of a subject. One that is already so is left as it is.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn put_of_subject<T: EditedTerms>(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: Subject,
        terms: T,
        reason: Option<String>,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<Edited<OfSubject<T>>, EditError>, Failure> {
        let now = self.instance.clock.now();
        let by = editor.clone();
        self.edit_of_subject(
            policy,
            subject,
            editor,
            move |policy, current: Option<&OfSubject<T>>| {
                precondition.check(current.map(|current| current.version))?;
                terms.check(policy)?;
                check_bounds(policy, current, Some(&terms), &by, now)?;
                match current {
                    Some(current) if is_same(current, &terms, reason.as_deref()) => {
                        return Ok(Change::Keep);
                    }
                    Some(_) if reason.is_none() => return Err(EditError::ReasonRequired),
                    Some(_) | None => {}
                }
                Ok(Change::Version {
                    terms: Some(terms.clone()),
                    reason: reason.clone(),
                })
            },
        )
        .await
    }

    /// Ends an exception of a subject.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn delete_of_subject<T: EditedTerms>(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: Subject,
        reason: String,
        precondition: Precondition,
        editor: Editor,
    ) -> Result<Result<Edited<OfSubject<T>>, EditError>, Failure> {
        let now = self.instance.clock.now();
        let by = editor.clone();
        self.edit_of_subject(
            policy,
            subject,
            editor,
            move |policy, current: Option<&OfSubject<T>>| {
                let current = current.ok_or(T::UNKNOWN)?;
                precondition.check(Some(current.version))?;
                check_bounds(policy, Some(current), None, &by, now)?;
                Ok(Change::Version {
                    terms: None,
                    reason: Some(reason.clone()),
                })
            },
        )
        .await
    }

    async fn edit_of_subject<T: EditedTerms>(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: Subject,
        editor: Editor,
        decide: impl Fn(&Standing, Option<&OfSubject<T>>) -> Result<Change<Option<T>>, EditError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Result<Edited<OfSubject<T>>, EditError>, Failure> {
        let admin = self.clone();
        let work = async move {
            let now = admin.instance.clock.now();
            let decide = |policy: Option<&Standing>, current: Option<&OfSubject<T>>, erased_at| {
                let policy = policy.filter(|policy| !policy.newest.archived);
                let policy = policy.ok_or(EditError::UnknownPolicy)?;
                if let Some(at) = erased_at {
                    return Err(EditError::BeingErased(at));
                }
                decide(policy, current.filter(|current| current.terms.is_some()))
            };
            let edited = admin
                .ledger
                .edit_of_subject(
                    &policy,
                    &subject,
                    &editor.key,
                    now,
                    editor.is_dry_run,
                    decide,
                )
                .await?;
            if let Ok(edited) = &edited
                && !editor.is_dry_run
            {
                let learned = T::learned(edited.after.clone());
                admin
                    .instance
                    .policies
                    .terms
                    .learn_of_subjects(learned, None);
            }
            Ok(edited)
        };
        self.instance.detached(work).await?
    }

    /// An exception of a subject as the ledger has it.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError::UnknownPolicy`] or [`EditedTerms::UNKNOWN`] inside.
    pub async fn of_subject<T: EditedTerms>(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: &Subject,
    ) -> Result<Result<OfSubject<T>, EditError>, Failure> {
        let account = self.instance.account_in_view(&policy, subject).await?;
        if self.policy(policy).await?.is_none() {
            return Ok(Err(EditError::UnknownPolicy));
        }
        let admin = self.clone();
        let work = async move { admin.ledger.of_subject(account).await };
        let found = self.instance.detached(work).await??;
        let found = found.filter(|found: &OfSubject<T>| found.terms.is_some());
        Ok(found.ok_or(T::UNKNOWN))
    }

    /// A page of a policy's exceptions of a kind, in the order of their accounts, and the cursor of the
    /// next page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn of_subjects<T: EditedTerms>(
        self: &Arc<Self>,
        policy: PolicyName,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<OfSubject<T>>, Option<String>), ListFailure> {
        let list = format!("{} of {policy}", T::LIST);
        let identity = self.ledger.identity();
        let after = match cursor {
            Some(cursor) => Uuid::from_bytes(cursor::decode(identity, &list, cursor)?),
            None => Uuid::nil(),
        };
        let found = self.policy(policy.clone()).await?;
        let id = found
            .ok_or(ListFailure::UnknownOrArchived(policy))?
            .newest
            .id;
        let admin = self.clone();
        let work = async move {
            admin
                .ledger
                .of_subjects(id, AccountId(after), limit + 1)
                .await
        };
        let mut found: Vec<OfSubject<T>> =
            self.instance.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut found, limit)
            .map(|last| cursor::encode(identity, &list, last.account.0.as_bytes()));
        Ok((found, next))
    }
}
