//! Dry runs of claims that Redis decides. Nothing is counted.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::time::{Instant, sleep};

use super::count::Counting;
use crate::instance::READ_AGAIN_AFTER;
use crate::protocol::{Outcome, Undecided};
use domain::account::{line_of, refuse};
use domain::grant::Entry;
use domain::limit::total::Total;
use domain::policy::Mode;
use domain::refusal::{DeniedClaim, Refusal};
use domain::work::Work;
use ledger::{LedgerError, Look};

impl Counting {
    /// The outcome that a claim would have at Redis; `None` if the ledger would decide it.
    ///
    /// # Errors
    /// [`Undecided`].
    pub async fn rehearse(
        &self,
        work: &Work,
        deadline: Instant,
    ) -> Result<Option<Outcome>, Undecided> {
        loop {
            match self.try_rehearsal(work).await {
                // A connection may break while the ledger does not answer.
                Err(LedgerError::Unavailable(_)) if Instant::now() < deadline => {
                    sleep(READ_AGAIN_AFTER).await;
                }
                tried => return tried.map_err(|error| Undecided::Ledger(Arc::new(error))),
            }
        }
    }

    async fn try_rehearsal(&self, work: &Work) -> Result<Option<Outcome>, LedgerError> {
        let now = self.clock.now();
        let Some(totals) = self.look(&work.policy, work.account, now).await? else {
            return Ok(None);
        };
        let look = Look {
            keys: work.key.into_iter().collect(),
            ..Look::default()
        };
        let seen = match work.key {
            Some(_) => self.ledger.look(&look).await?.entries,
            None => Vec::new(),
        };
        let earlier = Outcome::of_earlier(work, &seen, now);
        Ok(Some(
            earlier.unwrap_or_else(|| outcome_of_totals(work, totals, now)),
        ))
    }
}

/// The outcome of a claim that Redis decides on these totals. The ledger does not have its line.
fn outcome_of_totals(work: &Work, mut totals: Vec<Total>, now: DateTime<Utc>) -> Outcome {
    let policy = &work.policy;
    let refused = |refusal| Outcome::Refused(policy.clone(), refusal);
    if let Some(refusal) = refuse(policy, &work.asked(), 0, now) {
        return refused(refusal);
    }
    let fits = policy.blocked.is_none() && totals.iter().all(|total| total.fits(work.units));
    if !fits && policy.rule.mode == Mode::Enforce {
        let last = Some(line_of(policy.version, &totals, now));
        return refused(Refusal::Denied(DeniedClaim {
            own_units: work.units.get(),
            totals: totals.into(),
            last,
            shared: Box::default(),
        }));
    }
    let mut taken = totals.iter_mut();
    if taken.any(|total| total.take(work.units, now, now).is_err()) {
        return refused(Refusal::TooMany);
    }
    let entry = Entry {
        would_deny: !fits,
        ..work.entry(line_of(policy.version, &totals, now))
    };
    Outcome::Withheld(policy.clone(), entry)
}
