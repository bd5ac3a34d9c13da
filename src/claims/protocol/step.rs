//! What happens next to a claim, and what a step of a group results in.

use tokio::time::Instant;

use super::in_flight::{InFlight, Outcome, Undecided};
use super::settle::Settling;
use domain::refusal::Refusal;

#[derive(Debug)]
pub enum Step {
    /// The counter of the account is asked.
    Ask,
    /// The counter denies the claim: the ledger is searched for the key of the claim.
    Probe(CounterDenial),
    /// The claim joins the group of its account.
    Join,
    /// The claim leaves for Redis (`counted`), and may come back.
    Leave(LeaveReason),
    /// The claim is answered.
    End(Result<Outcome, Undecided>),
}

/// Why a claim leaves for Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveReason {
    /// Redis decides the claim.
    RedisDecides,
    /// Older grants of the account wait in the queue of Redis, and go into the ledger first.
    GrantsWait,
}

#[derive(Debug)]
pub struct CounterDenial {
    /// The limits without room.
    pub refusal: Refusal,
    /// The counter was judged with every change of a policy that was made before this instant.
    pub as_of: Instant,
}

/// The results of a step of a group.
#[derive(Default)]
pub struct Steps {
    /// Claims that leave the group, each with its next step.
    pub claims: Vec<(InFlight, Step)>,
    /// New lines for counters.
    pub settlements: Vec<Settling>,
}
