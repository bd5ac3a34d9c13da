//! Corrections: reversals and confirmations of grants, and adjustments.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::instance::{Failure, nonce};
use crate::protocol::{ClaimFailure, Outcome, Step, Undecided};
use crate::{Admission, Claims};
use domain::claim::{IdempotencyKey, Subject, Units};
use domain::grant::{Direction, Entry, Followers, Grant, Note};
use domain::key::KeyNumber;
use domain::policy::PolicyName;
use domain::refusal::Refusal;
use domain::work::{Task, Work};

/// What to do with a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// Give units back: these, or all that are left.
    Reversal(Option<Units>),
    /// Confirm a hold: these units stay used, or all that are left.
    Confirmation(Option<Units>),
}

/// An adjustment: units that a person enters.
#[derive(Debug, Clone)]
pub struct Adjustment {
    pub subject: Subject,
    pub units: Units,
    pub direction: Direction,
    /// The instant in whose windows the units count, not in the future. `None` means now.
    pub counted_at: Option<DateTime<Utc>>,
    pub key: Option<IdempotencyKey>,
    /// The key that enters the units.
    pub claimed_by: KeyNumber,
    /// Who enters them, and why.
    pub note: Note,
}

impl Claims {
    /// Corrects a grant, once. The correction ends in the same way whether or not somebody waits
    /// for it.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn correct(
        &self,
        admission: Admission,
        grant: &Grant,
        correction: Correction,
        key: Option<&IdempotencyKey>,
        claimed_by: KeyNumber,
        note: Note,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self
            .instance
            .known_policy(&grant.policy, Instant::now())
            .await;
        let policy = policy.map_err(Undecided::from)?;
        let policy = policy.ok_or_else(|| ClaimFailure::UnknownPolicy(grant.policy.clone()))?;
        let entry = Arc::new(grant.entry.clone());
        let work = Work {
            policy,
            account: entry.account,
            subject: None,
            units: entry.units,
            key: key.map(|key| self.ledger.identity().key(&grant.policy, key)),
            metadata: None,
            claimed_by,
            note: Some(note),
            nonce: nonce(),
            task: match correction {
                Correction::Reversal(units) => Task::Reverse(entry, units),
                Correction::Confirmation(units) => Task::Confirm(entry, units),
            },
        };
        self.submit(admission, work, |_, _| Step::Join).await
    }

    /// Enters an adjustment. The policy need not be active.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn adjust(
        &self,
        admission: Admission,
        policy: &PolicyName,
        adjustment: Adjustment,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.policy_of_claim(policy, Instant::now()).await?;
        // Without a key this cannot be the repetition of an earlier adjustment.
        if policy.archived && adjustment.key.is_none() {
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
            claimed_by: adjustment.claimed_by,
            note: Some(adjustment.note),
            nonce: nonce(),
            policy,
        };
        self.submit(admission, work, |_, _| Step::Join).await
    }

    /// The entries that name a grant. None yet for a grant that waits for the ledger; the ledger
    /// need not answer then.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn followers(self: &Arc<Self>, grant: &Entry) -> Result<Followers, Failure> {
        if !grant.is_recorded() {
            return Ok(Followers::default());
        }
        let grant = self.grant(grant.id.0).await?;
        Ok(grant.map_or_else(Followers::default, |grant| grant.followers))
    }
}
