//! What instances ask of the stores, and what waits for the answers.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use perdiem::counter::{Answer, Ask, Count, Counted, QueuedGrant, Settlement};
use perdiem::domain::identity::AccountId;
use perdiem::engine::claim::CounterDenial;
use perdiem::engine::claim::group::Group;
use perdiem::engine::claim::in_flight::{AnsweredClaim, InFlight};
use perdiem::engine::claim::way::{Lane, Step};
use perdiem::engine::counted::recording::Recording;
use perdiem::ledger::{Burst, Draft, Fence, LedgerError, LedgerView, Look};
use tokio::time::Instant;

use super::time::Time;

/// What is sent to a store.
pub enum Request {
    Ask(Ask),
    Look(Look),
    /// The second half of a look, after the lines.
    Entries(Look, LedgerView),
    Burst(Vec<Draft>, Fence),
    Append(Vec<Draft>),
    Settle(Settlement),
    /// With the instant from which on Redis' keys are trusted.
    Count(Count, DateTime<Utc>),
    /// What waits in the queue.
    Queue,
    /// Grants that the ledger holds leave the queue, and their accounts are settled.
    Record(Vec<(Settlement, Vec<QueuedGrant>)>),
    /// Nothing, after a moment.
    Pause,
}

impl Request {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ask(_) => "ask",
            Self::Look(_) | Self::Entries(..) => "look",
            Self::Burst(..) => "burst",
            Self::Append(_) => "guarded append",
            Self::Settle(_) => "settlement",
            Self::Count(..) => "count",
            Self::Queue => "look at the queue",
            Self::Record(_) => "record",
            Self::Pause => "pause",
        }
    }
}

/// What a store answers.
pub enum Response {
    Counter(Answer),
    View(LedgerView),
    Burst(Burst),
    Appended(HashSet<AccountId>),
    Settled,
    Counted(Counted),
    Queued(Vec<QueuedGrant>),
    Failed(LedgerError),
}

/// A claim that Redis is asked to count.
pub struct Counting {
    pub claim: InFlight,
    pub count: Count,
    /// Every change of a policy that was made before this instant was known.
    pub as_of: Instant,
    /// How often the ledger was asked.
    pub asks: u32,
}

/// An account's queued grants, and what becomes of them.
pub type Recorded = (Vec<QueuedGrant>, Recording);

/// What waits for a response.
pub enum Waiting {
    Counter(Box<InFlight>),
    Key(Box<InFlight>, CounterDenial),
    Look(Vec<Group>, Lane, Time),
    /// With the fence of the burst, and what became of the burst.
    Append(Vec<Group>, Option<Fence>, Option<Burst>),
    Settlement(Vec<AnsweredClaim>),
    /// For Redis to count a claim.
    Count(Box<Counting>),
    /// For the ledger's word on a claim that is to be counted.
    Word(Box<InFlight>, u32),
    /// For what waits in the queue; then for the ledger's word on it, for it to be appended, and for
    /// it to leave the queue.
    Drain,
    Queue(Vec<Vec<QueuedGrant>>),
    Record(Vec<Recorded>),
    Drained,
    /// For its account's grants to leave the queue.
    Moment(Box<InFlight>, Step),
}

impl Response {
    pub fn view(self) -> Option<LedgerView> {
        match self {
            Self::View(view) => Some(view),
            _ => None,
        }
    }

    pub fn unavailable() -> Self {
        Self::Failed(LedgerError::Unavailable(sqlx::Error::WorkerCrashed))
    }
}

impl Waiting {
    /// The accounts whose groups wait for a look or an append.
    pub fn accounts(&self) -> Vec<AccountId> {
        match self {
            Self::Look(groups, ..) | Self::Append(groups, ..) => {
                groups.iter().map(|group| group.account).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// What an instance asked of a store.
pub struct Call {
    pub instance: usize,
    /// What is asked, in a word.
    pub what: &'static str,
    /// `None` once it had its effect, or is lost.
    pub request: Option<Request>,
    /// `None` until the effect.
    pub response: Option<Response>,
    /// `None` once nobody waits for it.
    pub waiting: Option<Waiting>,
    /// Whether the response is of a ledger that was replaced.
    pub is_of_lost: bool,
}

impl Call {
    pub fn is_for_redis(&self) -> bool {
        let Some(request) = &self.request else {
            return matches!(
                self.waiting,
                Some(
                    Waiting::Counter(_)
                        | Waiting::Settlement(_)
                        | Waiting::Count(_)
                        | Waiting::Drain
                        | Waiting::Drained
                        | Waiting::Moment(..)
                )
            );
        };
        matches!(
            request,
            Request::Ask(_)
                | Request::Settle(_)
                | Request::Count(..)
                | Request::Queue
                | Request::Record(_)
                | Request::Pause
        )
    }

    pub fn drains(&self) -> bool {
        matches!(
            self.waiting,
            Some(Waiting::Drain | Waiting::Queue(_) | Waiting::Record(_) | Waiting::Drained)
        )
    }

    pub fn settles(&self, account: AccountId) -> bool {
        match &self.request {
            Some(Request::Settle(settlement)) => settlement.account == account,
            Some(Request::Record(records)) => records.iter().any(|(it, _)| it.account == account),
            _ => false,
        }
    }
}
