//! Corrections: reversals and confirmations of grants, and units that are entered by hand.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::claim::ClaimFailure;
use super::pending::{Outcome, Task};
use super::submit::Work;
use super::{Engine, Failure};
use crate::domain::account::Refusal;
use crate::domain::claim::{IdempotencyKey, Subject, Units};
use crate::domain::grant::{Direction, Followers, Grant, Note};
use crate::domain::identity::EntryId;
use crate::domain::policy::PolicyName;

/// What is to become of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// Its units are given back.
    Reversal,
    /// It is a hold, and its units stay taken.
    Confirmation,
}

/// Units to be entered by hand.
#[derive(Debug, Clone)]
pub struct Adjustment {
    /// Whose.
    pub subject: Subject,
    /// How many.
    pub units: Units,
    /// Which way.
    pub direction: Direction,
    /// The instant in whose windows they count, which is not to come; the present one when
    /// absent.
    pub counted_at: Option<DateTime<Utc>>,
    /// What makes a retry safe.
    pub key: Option<IdempotencyKey>,
    /// Who enters them, and why.
    pub note: Note,
}

impl Engine {
    /// Corrects a grant, once. It ends the same way whether or not anybody waits for it.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn correct(
        &self,
        grant: &Grant,
        correction: Correction,
        note: Note,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.known_policy(&grant.policy)?;
        let entry = Arc::new(grant.entry.clone());
        let work = Work {
            policy,
            account: entry.account,
            subject: None,
            units: entry.units,
            key: None,
            metadata: None,
            note: Some(note),
            may_be_counted: false,
            task: match correction {
                Correction::Reversal => Task::Reverse(entry),
                Correction::Confirmation => Task::Confirm(entry),
            },
        };
        self.submit(work, &self.queues.append).await
    }

    /// Enters units by hand. The policy need not be active.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn adjust(
        &self,
        policy: &PolicyName,
        adjustment: Adjustment,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.known_policy(policy)?;
        if policy.archived {
            return Ok(Outcome::Refused(policy, Refusal::Archived));
        }
        let identity = self.ledger.identity();
        let key = adjustment.key.as_ref();
        let work = Work {
            task: Task::Adjust(adjustment.direction, adjustment.counted_at),
            account: identity.account(&policy.name, &adjustment.subject),
            subject: Some(adjustment.subject),
            units: adjustment.units,
            key: key.map(|key| identity.key(&policy.name, key)),
            metadata: None,
            note: Some(adjustment.note),
            may_be_counted: false,
            policy,
        };
        self.submit(work, &self.queues.append).await
    }

    /// What came of a grant.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn followers(self: &Arc<Self>, grant: EntryId) -> Result<Followers, Failure> {
        let grant = self.grant(grant.0).await?;
        Ok(grant.map_or_else(Followers::default, |grant| grant.followers))
    }
}
