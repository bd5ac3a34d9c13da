//! Changing overrides, and listing them.

use std::sync::Arc;

use uuid::Uuid;

use crate::domain::claim::Subject;
use crate::domain::identity::AccountId;
use crate::domain::overrides::{Override, OverrideTerms};
use crate::domain::policy::{Policy, PolicyName};
use crate::engine::cursor::{self, cut_page};
use crate::engine::{EditError, Engine, Failure, ListFailure, Precondition};
use crate::ledger::{Change, Edited};

impl Engine {
    /// Creates or replaces a subject's override. An override that is already so is left as it is.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn put_override(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: Subject,
        terms: OverrideTerms,
        reason: Option<String>,
        precondition: Precondition,
        changed_by: Arc<str>,
    ) -> Result<Result<Edited<Override>, EditError>, Failure> {
        self.edit_override(policy, subject, changed_by, move |policy, current| {
            precondition.check(current.map(|current| current.version))?;
            let misfits = terms.misfits(policy);
            if !misfits.is_empty() {
                return Err(EditError::Misfit(misfits));
            }
            match current {
                Some(current) if current.terms.as_ref() == Some(&terms) => {
                    return Ok(Change::Keep);
                }
                Some(_) if reason.is_none() => return Err(EditError::ReasonRequired),
                Some(_) | None => {}
            }
            Ok(Change::Version {
                terms: Some(terms.clone()),
                reason: reason.clone(),
            })
        })
        .await
    }

    /// Deletes a subject's override. The policy's own limits are in force again.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError`] inside.
    pub async fn delete_override(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: Subject,
        reason: String,
        precondition: Precondition,
        changed_by: Arc<str>,
    ) -> Result<Result<Edited<Override>, EditError>, Failure> {
        self.edit_override(policy, subject, changed_by, move |_, current| {
            let current = current.ok_or(EditError::UnknownOverride)?;
            precondition.check(Some(current.version))?;
            Ok(Change::Version {
                terms: None,
                reason: Some(reason.clone()),
            })
        })
        .await
    }

    async fn edit_override(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: Subject,
        changed_by: Arc<str>,
        decide: impl Fn(&Policy, Option<&Override>) -> Result<Change<Option<OverrideTerms>>, EditError>
        + Send
        + Sync
        + 'static,
    ) -> Result<Result<Edited<Override>, EditError>, Failure> {
        let engine = self.clone();
        let work = async move {
            let now = engine.clock.now();
            let decide = |policy: Option<&Policy>, current: Option<&Override>, erased_at| {
                let policy = policy.filter(|policy| !policy.archived);
                let policy = policy.ok_or(EditError::UnknownPolicy)?;
                if let Some(at) = erased_at {
                    return Err(EditError::BeingErased(at));
                }
                decide(policy, current.filter(|current| current.terms.is_some()))
            };
            let edited = engine
                .ledger
                .edit_override(&policy, &subject, &changed_by, now, decide)
                .await?;
            if let Ok(edited) = &edited {
                let learned = vec![Ok(edited.after.clone())];
                engine.policies.terms.learn_overrides(learned, None);
            }
            Ok(edited)
        };
        self.detached(work).await?
    }

    /// A subject's override as the ledger has it.
    ///
    /// # Errors
    /// [`Failure`] outside, [`EditError::UnknownPolicy`] or [`EditError::UnknownOverride`] inside.
    pub async fn override_of(
        self: &Arc<Self>,
        policy: PolicyName,
        subject: &Subject,
    ) -> Result<Result<Override, EditError>, Failure> {
        let account = self.account_in_view(&policy, subject).await?;
        if self.policy(policy).await?.is_none() {
            return Ok(Err(EditError::UnknownPolicy));
        }
        let engine = self.clone();
        let work = async move { engine.ledger.override_of(account).await };
        let found = self.detached(work).await??;
        let found = found.filter(|found| found.terms.is_some());
        Ok(found.ok_or(EditError::UnknownOverride))
    }

    /// A page of a policy's overrides, in the order of their accounts, and the cursor of the next
    /// page.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn overrides(
        self: &Arc<Self>,
        policy: PolicyName,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<(Vec<Override>, Option<String>), ListFailure> {
        let list = format!("overrides of {policy}");
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
        let engine = self.clone();
        let work = async move {
            engine
                .ledger
                .overrides(id, AccountId(after), limit + 1)
                .await
        };
        let mut overrides = self.detached(work).await?.map_err(Failure::from)?;
        let next = cut_page(&mut overrides, limit)
            .map(|last| cursor::encode(identity, &list, last.account.0.as_bytes()));
        Ok((overrides, next))
    }
}
