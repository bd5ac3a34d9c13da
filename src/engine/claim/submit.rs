//! How a claim or correction is taken on: its place, its turn, its deadline, its answer.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::in_flight::{ClaimFailure, InFlight, Outcome, Undecided, Waiter, outcome_of};
use super::present::Present;
use super::wake::woken_together;
use super::way::Step;
use crate::domain::work::Work;
use crate::engine::Engine;
use crate::engine::instance::Place;
use crate::faults::reach;

/// What a claim or correction needs to be taken on: a place among those under way, and the
/// instant after which nobody waits for it.
pub struct Admission {
    place: Place,
    /// After this nobody waits any more.
    pub deadline: Instant,
}

impl Engine {
    /// Admits a claim or correction, if its caller has not too many under way.
    ///
    /// # Errors
    /// [`Undecided::Overloaded`].
    pub fn admit(&self, caller: &Arc<str>) -> Result<Admission, Undecided> {
        let place = self.claims_under_way.try_take(caller);
        self.admission(place, self.claim_deadline())
    }

    /// Admits a claim as soon as its caller has not too many under way, until a deadline, which
    /// is the claim's too.
    ///
    /// # Errors
    /// [`Undecided::Overloaded`].
    pub async fn admit_in_turn(
        &self,
        caller: &Arc<str>,
        deadline: Instant,
    ) -> Result<Admission, Undecided> {
        let place = self.claims_under_way.take(caller, deadline).await;
        self.admission(place, deadline)
    }

    /// Until when a claim or correction is decided that comes now.
    pub fn claim_deadline(&self) -> Instant {
        Instant::now() + self.claim_deadline
    }

    fn admission(&self, place: Option<Place>, deadline: Instant) -> Result<Admission, Undecided> {
        let admission = place.map(|place| Admission { place, deadline });
        admission.ok_or_else(|| {
            let refused = Err(Undecided::Overloaded.into());
            self.metrics
                .claim_ended(outcome_of(&refused), Instant::now());
            Undecided::Overloaded
        })
    }

    /// Takes on a claim or correction. `begin` tells its first step. It ends the same way whether or
    /// not anybody waits.
    pub(in crate::engine) async fn submit(
        &self,
        admission: Admission,
        work: Work,
        begin: impl FnOnce(&mut InFlight, &Present) -> Step,
    ) -> Result<Outcome, ClaimFailure> {
        let Admission { place, deadline } = admission;
        let turn = match work.key {
            None => None,
            Some(key) => Some(
                self.keys_in_progress
                    .begin(key)
                    .ok_or(ClaimFailure::InProgress)?,
            ),
        };
        let (answer, answered) = oneshot::channel();
        let present = self.dispatch.present();
        let waiter = Waiter {
            answer,
            turn,
            _place: place,
        };
        let mut claim = InFlight::new(work, deadline, waiter);
        if self.counting.is_some() {
            claim.let_count(self.claim_deadline);
        }
        reach("claim.received");
        let first = begin(&mut claim, &present);
        // What no ledger could change needs no clock.
        if !matches!(first, Step::End(_)) && self.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        self.dispatch.go(claim, first);
        match timeout_at(deadline, woken_together(answered)).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Err(_) => Err(Undecided::Deadline.into()),
        }
    }
}
