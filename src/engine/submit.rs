//! How a claim or correction is taken on: its place, its turn, its deadline, its answer.

use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Engine;
use super::claim::ClaimFailure;
use super::pending::{Asked, Hint, Outcome, Pending, Undecided, send};
use super::work::Work;
use crate::faults::reach;

impl Engine {
    /// Sends work to the first queue of its way, and waits for what becomes of it. It ends the
    /// same way whether or not anybody waits.
    pub(super) async fn submit(
        &self,
        work: Work,
        may_be_counted: bool,
        hint: Option<Hint>,
        first: &Sender<Pending>,
    ) -> Result<Outcome, ClaimFailure> {
        if self.watch.clock_is_off() {
            return Err(Undecided::Clock.into());
        }
        let under_way = self.claims_under_way.clone();
        let place = under_way
            .try_acquire_owned()
            .map_err(|_| Undecided::Overloaded)?;
        let turn = match work.key {
            None => None,
            Some(key) => Some(
                self.keys_in_progress
                    .begin(key)
                    .ok_or(ClaimFailure::InProgress)?,
            ),
        };
        let now = Instant::now();
        let deadline = now + self.claim_deadline;
        let (answer, answered) = oneshot::channel();
        let may_wait = self.counting.is_some() && work.policy.rule.may_be_counted();
        let pending = Pending {
            work,
            deadline,
            count_from: now + self.claim_deadline / 2,
            may_be_counted: self.counting.is_some() && may_be_counted,
            may_wait,
            sent: Vec::new(),
            counted: None,
            asked: Asked {
                hint,
                ..Asked::default()
            },
            answer,
            turn,
            _place: place,
        };
        reach("claim.received");
        send(first, pending);
        match timeout_at(deadline, answered).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(_)) => Err(Undecided::Ending.into()),
            Err(_) => Err(Undecided::Deadline.into()),
        }
    }
}
