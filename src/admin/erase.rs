//! The erasure of a subject, when an admin asks for it.

use std::sync::Arc;

use chrono::TimeDelta;
use tokio::time::{Instant, timeout, timeout_at};

use crate::Admin;
use claims::instance::Failure;
use domain::claim::Subject;
use domain::identity::{AccountId, to_micros};
use domain::policy::Policy;
use ledger::{Act, ActKind, LedgerError, NewErasure};

/// After this time another instance continues to erase the texts.
const GIVEN_UP: TimeDelta = TimeDelta::seconds(30);

/// An erasure that was recorded.
#[derive(Debug, Clone)]
pub struct SubjectErasure {
    pub act: Act,
    /// Whether all texts are erased. If not, the eraser continues in the background.
    pub is_done: bool,
}

impl Admin {
    /// Erases a subject under all policies: its texts are erased, and its name finds nothing any
    /// more. Safe to repeat. `None` if the subject is unknown. `about` makes the JSON of the act
    /// from the number of erased accounts.
    ///
    /// # Errors
    /// [`Failure`]; [`Failure::Unseen`] if grants that wait in Redis may name the subject.
    pub async fn erase(
        self: &Arc<Self>,
        subject: Subject,
        reason: String,
        by: &Arc<str>,
        about: fn(u64) -> String,
    ) -> Result<Option<SubjectErasure>, Failure> {
        let deadline = Instant::now() + self.instance.answer_time / 2;
        self.instance.learn_unknown(Instant::now()).await?;
        self.clear_queues(deadline).await?;
        let now = to_micros(self.instance.clock.now());
        let act = Act {
            revision: 0,
            kind: ActKind::Erasure,
            about: String::new(),
            at: now,
            by: by.to_string(),
            reason: Some(reason),
        };
        let admin = self.clone();
        let erasing = async move {
            let accounts = admin.accounts_of(&subject)?;
            let new = NewErasure {
                subject: &subject,
                accounts: &accounts,
                act,
                about,
                due_at: now + GIVEN_UP,
            };
            let Some(act) = admin.ledger.begin_erasure(&new).await? else {
                return Ok(None);
            };
            let revision = act.revision;
            let eraser = admin.eraser.clone();
            let erasing = admin
                .instance
                .detached(async move { eraser.erase_texts_of(revision).await });
            let is_done = match timeout(admin.instance.answer_time / 4, erasing).await {
                Ok(Ok(erased)) => erased.is_ok(),
                // The eraser continues in the background.
                Ok(Err(_)) | Err(_) => false,
            };
            Ok::<_, LedgerError>(Some(SubjectErasure { act, is_done }))
        };
        Ok(self.instance.detached(erasing).await??)
    }

    fn accounts_of(&self, subject: &Subject) -> Result<Vec<AccountId>, LedgerError> {
        let identity = self.ledger.identity();
        let policies = self
            .instance
            .policies
            .terms
            .all(self.instance.clock.now())?;
        let account = |policy: &Arc<Policy>| identity.account(&policy.name, subject);
        Ok(policies.iter().map(account).collect())
    }

    /// Waits until the grants that wait in Redis are in the ledger, because they have the names of
    /// their subjects.
    async fn clear_queues(&self, deadline: Instant) -> Result<(), Failure> {
        let policies = self.instance.policies.terms.all(self.instance.clock.now());
        let policies = policies.map_err(LedgerError::from)?;
        let mut ids = policies.iter().map(|policy| policy.id);
        let may_be_counted = ids.any(|id| self.instance.policies.terms.may_be_counted(id));
        let Some(drain) = self.drain.as_ref().filter(|_| may_be_counted) else {
            return Ok(());
        };
        match timeout_at(deadline, drain.cleared()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Failure::Unseen),
        }
    }
}
