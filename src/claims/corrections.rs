//! Corrections: reversals and confirmations of grants, and what admins enter for subjects.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, timeout};

use crate::instance::{Failure, nonce};
use crate::protocol::{ClaimFailure, Outcome, Step, Undecided};
use crate::{Admission, Claims};
use domain::claim::{IdempotencyKey, Subject, Units};
use domain::grant::{Direction, Entry, Followers, Grant, Note};
use domain::identity::EntryId;
use domain::key::KeyNumber;
use domain::limit::per::Per;
use domain::own_calendar::OwnCalendar;
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

/// What an admin enters for a subject.
#[derive(Debug, Clone)]
pub struct ByHand {
    pub entry: AdminEntry,
    pub subject: Subject,
    pub key: Option<IdempotencyKey>,
    /// The key that enters it.
    pub claimed_by: KeyNumber,
    /// Who enters it, and why.
    pub note: Note,
}

/// What an entry by hand does.
#[derive(Debug, Clone)]
pub enum AdminEntry {
    /// Units are added or taken off. They count at an instant that is not in the future. `None` means now.
    Adjust(Units, Direction, Option<DateTime<Utc>>),
    /// A limit begins again, or all limits.
    Reset(Option<Per>),
    /// These parts of the calendar move.
    MoveCalendar(OwnCalendar),
    /// The subject gets units beside its windows until an instant.
    TopUp(Units, DateTime<Utc>),
    /// What is left of a top-up is taken back.
    EndTopUp(EntryId),
}

impl AdminEntry {
    pub fn units(&self) -> Units {
        match self {
            Self::Adjust(units, ..) | Self::TopUp(units, _) => *units,
            Self::Reset(_) | Self::MoveCalendar(_) | Self::EndTopUp(_) => Units::ONE,
        }
    }

    fn task(&self) -> Task {
        match self {
            Self::Adjust(_, direction, counted_at) => Task::Adjust(*direction, *counted_at),
            Self::Reset(per) => Task::Reset(*per),
            Self::MoveCalendar(_) => Task::MoveCalendar,
            Self::TopUp(_, until) => Task::TopUp(*until),
            Self::EndTopUp(top_up) => Task::EndTopUp(*top_up),
        }
    }
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
        let work = self.correction(grant, correction, key, claimed_by, note);
        self.submit(admission, work.await?, |_, _| Step::Join).await
    }

    /// The work of a correction.
    pub(crate) async fn correction(
        &self,
        grant: &Grant,
        correction: Correction,
        key: Option<&IdempotencyKey>,
        claimed_by: KeyNumber,
        note: Note,
    ) -> Result<Work, ClaimFailure> {
        let policy = self
            .instance
            .known_policy(&grant.policy, Instant::now())
            .await;
        let policy = policy.map_err(Undecided::from)?;
        let policy = policy.ok_or_else(|| ClaimFailure::UnknownPolicy(grant.policy.clone()))?;
        let entry = Arc::new(grant.entry.clone());
        Ok(Work {
            policy,
            account: entry.account,
            subject: None,
            units: entry.units,
            key: key.map(|key| self.ledger.identity().key(&grant.policy, key)),
            bundle: None,
            calendar: None,
            metadata: None,
            claimed_by,
            note: Some(note),
            nonce: nonce(),
            task: match correction {
                Correction::Reversal(units) => Task::Reverse(entry, units),
                Correction::Confirmation(units) => Task::Confirm(entry, units),
            },
        })
    }

    /// Enters what an admin enters for a subject. The policy need not be active. Before a reset, grants that wait
    /// in Redis are recorded first, if Redis answers: they were given before the reset, and count before it also
    /// if they are recorded later.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn enter(
        &self,
        admission: Admission,
        policy: &PolicyName,
        by_hand: ByHand,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.policy_of_claim(policy, Instant::now()).await?;
        let task = by_hand.entry.task();
        let waits = matches!(task, Task::Reset(_))
            && self.instance.policies.terms.may_be_counted(policy.id);
        if let Some(counting) = self.counting.as_ref().filter(|_| waits) {
            // Without an answer in time the grants are recorded later.
            let _ = timeout(self.instance.claim_time / 2, counting.drain.cleared()).await;
        }
        // Without a key this cannot be the repetition of an earlier entry.
        let is_new = by_hand.key.is_none() && !matches!(task, Task::EndTopUp(_));
        if policy.archived && is_new {
            return Ok(Outcome::Refused(policy, Refusal::Archived));
        }
        let identity = self.ledger.identity();
        let key = by_hand.key.as_ref();
        let work = Work {
            task,
            account: identity.account(&policy.name, &by_hand.subject),
            subject: Some(by_hand.subject),
            units: by_hand.entry.units(),
            key: key.map(|key| identity.key(&policy.name, key)),
            bundle: None,
            calendar: match by_hand.entry {
                AdminEntry::MoveCalendar(calendar) => Some(Arc::new(calendar)),
                _ => None,
            },
            metadata: None,
            claimed_by: by_hand.claimed_by,
            note: Some(by_hand.note),
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
