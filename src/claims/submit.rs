//! Admission of claims and corrections: the place, the turn of the key, the deadline, the answer.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::Claims;
use crate::instance::Place;
use crate::protocol::present::Present;
use crate::protocol::step::Step;
use crate::protocol::{
    ClaimFailure, InFlight, KeyTurn, Outcome, Undecided, Waiter, outcome_of, woken_together,
};
use domain::work::Work;
use host::faults::reach;

/// The permission to submit a claim or correction: a place among those in progress, and a deadline.
pub struct Admission {
    pub place: Place,
    /// After this instant no client waits.
    pub deadline: Instant,
}

/// The channel on which the answer to a claim arrives.
pub type Reply = oneshot::Receiver<Result<Outcome, Undecided>>;

impl Claims {
    /// Admits a claim or correction, unless its caller has too many in progress.
    ///
    /// # Errors
    /// [`Undecided::Overloaded`].
    pub fn admit(&self, caller: &Arc<str>) -> Result<Admission, Undecided> {
        let place = self.under_way.try_take(caller);
        self.admission(place, self.claim_deadline())
    }

    /// Waits until the caller has a free place, and admits a claim. The deadline is also the
    /// deadline of the claim.
    ///
    /// # Errors
    /// [`Undecided::Overloaded`].
    pub async fn admit_in_turn(
        &self,
        caller: &Arc<str>,
        deadline: Instant,
    ) -> Result<Admission, Undecided> {
        let place = self.under_way.take(caller, deadline).await;
        self.admission(place, deadline)
    }

    /// The deadline of a claim or correction that comes now.
    pub fn claim_deadline(&self) -> Instant {
        Instant::now() + self.instance.claim_time
    }

    fn admission(&self, place: Option<Place>, deadline: Instant) -> Result<Admission, Undecided> {
        let admission = place.map(|place| Admission { place, deadline });
        admission.ok_or_else(|| {
            let refused = Undecided::Overloaded.into();
            self.instance
                .metrics
                .claim_ended(outcome_of(Err(&refused)), Instant::now());
            Undecided::Overloaded
        })
    }

    /// Submits a claim or correction. `begin` returns its first step. The claim ends in the same
    /// way whether or not the client still waits.
    pub(crate) async fn submit(
        &self,
        admission: Admission,
        work: Work,
        begin: impl FnOnce(&mut InFlight, &Present) -> Step,
    ) -> Result<Outcome, ClaimFailure> {
        let Admission { place, deadline } = admission;
        let (mut claim, answer) = self.take_on(work, deadline, place)?;
        if let Some(counting) = &self.counting {
            counting.let_leave(&mut claim);
        }
        let present = self.dispatch.present();
        reach("claim.received");
        let first = begin(&mut claim, &present);
        // An answer that does not depend on the ledger needs no clock.
        if !matches!(first, Step::End(_)) && self.instance.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        self.dispatch.go(claim, first);
        match timeout_at(deadline, woken_together(answer)).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Err(_) => Err(Undecided::Deadline.into()),
        }
    }

    /// Takes on work: the turn of its key, and the channel for its answer.
    ///
    /// # Errors
    /// [`ClaimFailure::InProgress`].
    pub(super) fn take_on(
        &self,
        work: Work,
        deadline: Instant,
        place: Place,
    ) -> Result<(InFlight, Reply), ClaimFailure> {
        let turn = match work.key {
            None => None,
            Some(key) => Some(
                self.keys_in_progress
                    .begin(key)
                    .ok_or(ClaimFailure::InProgress)?,
            ),
        };
        Ok(in_flight(work, deadline, place, turn))
    }
}

/// A claim, and the channel for its answer.
pub fn in_flight(
    work: Work,
    deadline: Instant,
    place: Place,
    turn: Option<KeyTurn>,
) -> (InFlight, Reply) {
    let (answer, reply) = oneshot::channel();
    let waiter = Waiter {
        answer,
        turn,
        _place: place,
    };
    (InFlight::new(work, deadline, waiter), reply)
}
