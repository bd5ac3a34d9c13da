//! Corrections: reversals and confirmations of grants, adjustments, resets, and moves of calendars.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, timeout};

use crate::instance::{Failure, nonce};
use crate::protocol::{ClaimFailure, Outcome, Step, Undecided};
use crate::{Admission, Claims};
use domain::claim::{IdempotencyKey, Subject, Units};
use domain::grant::{Direction, Entry, Followers, Grant, Note};
use domain::key::KeyNumber;
use domain::limit::per::Per;
use domain::own_calendar::OwnCalendar;
use domain::policy::{Policy, PolicyName};
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

/// What an admin enters for a subject.
struct ByHand {
    task: Task,
    subject: Subject,
    units: Units,
    calendar: Option<Arc<OwnCalendar>>,
    key: Option<IdempotencyKey>,
    claimed_by: KeyNumber,
    note: Note,
}

/// A reset of a subject's limit.
#[derive(Debug, Clone)]
pub struct Reset {
    pub subject: Subject,
    /// `None`: all limits.
    pub per: Option<Per>,
    pub key: Option<IdempotencyKey>,
    /// The key that resets.
    pub claimed_by: KeyNumber,
    /// Who resets, and why.
    pub note: Note,
}

/// A move of a subject's calendar.
#[derive(Debug, Clone)]
pub struct CalendarMove {
    pub subject: Subject,
    /// The parts that move.
    pub calendar: OwnCalendar,
    pub key: Option<IdempotencyKey>,
    /// The key that moves it.
    pub claimed_by: KeyNumber,
    /// Who moves it, and why.
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
        let by_hand = ByHand {
            task: Task::Adjust(adjustment.direction, adjustment.counted_at),
            subject: adjustment.subject,
            units: adjustment.units,
            calendar: None,
            key: adjustment.key,
            claimed_by: adjustment.claimed_by,
            note: adjustment.note,
        };
        let policy = self.policy_of_claim(policy, Instant::now()).await?;
        self.enter_by_hand(admission, policy, by_hand).await
    }

    /// Resets a limit of a subject, or all limits. The policy need not be active. Grants that wait in
    /// Redis are recorded first, if Redis answers: they were given before the reset, and count before it
    /// also if they are recorded later.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn reset(
        &self,
        admission: Admission,
        policy: &PolicyName,
        reset: Reset,
    ) -> Result<Outcome, ClaimFailure> {
        let policy = self.policy_of_claim(policy, Instant::now()).await?;
        let may_be_counted = self.instance.policies.terms.may_be_counted(policy.id);
        if let Some(counting) = self.counting.as_ref().filter(|_| may_be_counted) {
            // Without an answer in time the grants are recorded later.
            let _ = timeout(self.instance.claim_time / 2, counting.drain.cleared()).await;
        }
        let by_hand = ByHand {
            task: Task::Reset(reset.per),
            subject: reset.subject,
            units: Units::ONE,
            calendar: None,
            key: reset.key,
            claimed_by: reset.claimed_by,
            note: reset.note,
        };
        self.enter_by_hand(admission, policy, by_hand).await
    }

    /// Moves the calendar of a subject. The policy need not be active.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn move_calendar(
        &self,
        admission: Admission,
        policy: &PolicyName,
        moved: CalendarMove,
    ) -> Result<Outcome, ClaimFailure> {
        let by_hand = ByHand {
            task: Task::MoveCalendar,
            subject: moved.subject,
            units: Units::ONE,
            calendar: Some(Arc::new(moved.calendar)),
            key: moved.key,
            claimed_by: moved.claimed_by,
            note: moved.note,
        };
        let policy = self.policy_of_claim(policy, Instant::now()).await?;
        self.enter_by_hand(admission, policy, by_hand).await
    }

    async fn enter_by_hand(
        &self,
        admission: Admission,
        policy: Arc<Policy>,
        by_hand: ByHand,
    ) -> Result<Outcome, ClaimFailure> {
        // Without a key this cannot be the repetition of an earlier entry.
        if policy.archived && by_hand.key.is_none() {
            return Ok(Outcome::Refused(policy, Refusal::Archived));
        }
        let identity = self.ledger.identity();
        let key = by_hand.key.as_ref();
        let work = Work {
            task: by_hand.task,
            account: identity.account(&policy.name, &by_hand.subject),
            subject: Some(by_hand.subject),
            units: by_hand.units,
            key: key.map(|key| identity.key(&policy.name, key)),
            bundle: None,
            calendar: by_hand.calendar,
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
