//! Bundles: the grants of an atomic batch, which are found, reversed and confirmed together.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use tokio::time::{Instant, timeout_at};

use crate::Claims;
use crate::corrections::Correction;
use crate::instance::Failure;
use crate::protocol::{ClaimFailure, Outcome, Undecided};
use crate::submit::in_flight;
use domain::grant::{Grant, Note};
use domain::identity::BundleId;
use domain::key::KeyNumber;
use domain::refusal::{CorrectionRefusal, Refusal};
use ledger::LedgerError;

/// What became of the correction of a bundle.
#[derive(Debug)]
pub enum BundleCorrected {
    /// Every grant is corrected: some now, or all before.
    Done { is_repeat: bool },
    /// Nothing is corrected, because the correction of this grant is refused.
    Refused(Box<Grant>, Box<Outcome>),
}

impl Claims {
    /// The grants of a bundle, in the order of their ids; none if there is no such bundle.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn bundle(self: &Arc<Self>, id: BundleId) -> Result<Vec<Grant>, Failure> {
        let claims = self.clone();
        let work = async move {
            let found = claims.ledger.bundle(id).await?;
            // After the read: grants may be dropped between the two.
            if claims.ledger.is_cut(id).await? {
                let gone = "grants of this bundle were archived and dropped: find each one by its id, or in the \
                            archive's files";
                return Err(LedgerError::Archived(gone.to_owned()));
            }
            Ok(found)
        };
        Ok(self.instance.detached(work).await??)
    }

    /// Corrects the grants of a bundle in one transaction: a reversal takes those that have not ended, and a confirmation
    /// takes the holds. If one of these is refused, nothing is done.
    ///
    /// # Errors
    /// [`ClaimFailure`].
    pub async fn correct_bundle(
        self: &Arc<Self>,
        caller: &Arc<str>,
        mut grants: Vec<Grant>,
        correction: Correction,
        claimed_by: KeyNumber,
        note: &Note,
    ) -> Result<BundleCorrected, ClaimFailure> {
        let deadline = self.claim_deadline();
        // What an entry has closed stays closed. Whether a hold has lapsed, only the ledger knows: it may have been
        // confirmed after it was read.
        grants.retain(|grant| match correction {
            Correction::Reversal(_) => grant.followers.closing.is_none(),
            Correction::Confirmation(_) => grant.entry.held_until().is_some(),
        });
        loop {
            let correcting =
                self.correct_together(caller, &grants, correction, claimed_by, note, deadline);
            let outcomes = correcting.await?;
            let is_repeat = !outcomes
                .iter()
                .any(|outcome| matches!(outcome, Outcome::Entered(_)));
            let mut lapsed = HashSet::new();
            for (grant, outcome) in grants.iter().zip(outcomes) {
                match &outcome {
                    Outcome::Refused(_, Refusal::NotCorrected(CorrectionRefusal::GivenBack(_))) => {
                        lapsed.insert(grant.entry.id);
                    }
                    Outcome::Refused(..) => {
                        let refused = Box::new(grant.clone());
                        return Ok(BundleCorrected::Refused(refused, Box::new(outcome)));
                    }
                    _ => {}
                }
            }
            if lapsed.is_empty() {
                return Ok(BundleCorrected::Done { is_repeat });
            }
            // Holds that lapsed gave their units back. The others are reversed without them.
            grants.retain(|grant| !lapsed.contains(&grant.entry.id));
        }
    }

    /// Corrects grants in one transaction: all of them, or none.
    async fn correct_together(
        &self,
        caller: &Arc<str>,
        grants: &[Grant],
        correction: Correction,
        claimed_by: KeyNumber,
        note: &Note,
        deadline: Instant,
    ) -> Result<Vec<Outcome>, ClaimFailure> {
        if grants.is_empty() {
            return Ok(Vec::new());
        }
        if self.instance.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        let places = self.under_way.try_take_many(caller, grants.len());
        let mut places = places.ok_or(Undecided::Overloaded)?;
        let works = grants
            .iter()
            .map(|grant| self.correction(grant, correction, None, claimed_by, note.clone()));
        let works = try_join_all(works).await?;
        let taken_on = works
            .into_iter()
            .map(|work| in_flight(work, deadline, places.split_off(), None));
        let (claims, answers): (Vec<_>, Vec<_>) = taken_on.unzip();
        self.dispatch.go_together(claims, false);
        let answers = timeout_at(deadline, join_all(answers)).await;
        let answers = answers.map_err(|_| Undecided::Deadline)?.into_iter();
        let answers = answers.map(|answer| answer.unwrap_or(Err(Undecided::Ending)));
        Ok(answers.collect::<Result<_, _>>()?)
    }
}
