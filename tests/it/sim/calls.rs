//! The requests of instances to the stores, and the state that waits for each response.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use perdiem::claims::counted::decision::CountedClaim;
use perdiem::claims::counted::recording::Recording;
use perdiem::claims::protocol::CounterDenial;
use perdiem::claims::protocol::group::Group;
use perdiem::claims::protocol::in_flight::{AnsweredClaim, InFlight};
use perdiem::claims::protocol::lane::Lane;
use perdiem::counter::{Answer, Ask, Count, Counted, QueuedGrant, Settlement};
use perdiem::domain::identity::AccountId;
use perdiem::ledger::{Burst, Draft, Fence, LedgerError, LedgerView, Look};
use tokio::time::Instant;

use super::time::Time;

/// A request to a store.
pub enum Request {
    Ask(Ask),
    Look(Look),
    /// The second half of a look, after the lines.
    Entries(Look, LedgerView),
    Burst(Vec<Draft>, Fence),
    Append(Vec<Draft>),
    Settle(Settlement),
    /// The instant is the one from which Redis' keys are trusted.
    Count(Count, DateTime<Utc>),
    /// Read the queue.
    Queue,
    /// Remove grants from the queue that the ledger has, and settle their accounts.
    Record(Vec<(Settlement, Vec<QueuedGrant>)>),
    /// Read whose holds have ended by an instant.
    Due(DateTime<Utc>),
    /// Nothing, after a short wait.
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
            Self::Due(_) => "look for ended holds",
            Self::Pause => "pause",
        }
    }
}

/// A store's response.
pub enum Response {
    Counter(Answer),
    View(LedgerView),
    Burst(Burst),
    Appended(HashSet<AccountId>),
    Settled,
    Counted(Counted),
    Queued(Vec<QueuedGrant>),
    /// The accounts of the holds that have ended.
    Due(Vec<AccountId>),
    Failed(LedgerError),
}

/// A claim that Redis is asked to count.
pub struct Counting {
    pub counted: CountedClaim,
    pub count: Count,
    /// The instance knew every change of a policy that was made before this instant.
    pub as_of: Instant,
    /// How often the ledger was asked.
    pub asks: u32,
}

/// An account's queued grants, and what becomes of them.
pub type Recorded = (Vec<QueuedGrant>, Recording);

/// The state that waits for a response.
pub enum Waiting {
    Counter(Box<InFlight>),
    Key(Box<InFlight>, CounterDenial),
    /// As [`Self::Key`], for a claim that Redis decides.
    CountedKey(Box<CountedClaim>, CounterDenial),
    Look(Vec<Group>, Lane, Time),
    /// With the fence of the burst and the burst's outcome.
    Append(Vec<Group>, Option<Fence>, Option<Burst>),
    Settlement(Vec<AnsweredClaim>),
    /// Redis counts a claim.
    Count(Box<Counting>),
    /// The ledger answers a question about a claim that Redis is to count.
    Word(Box<CountedClaim>, u32),
    /// A drain. It waits for the queue, then for the ledger's answer, then for the append, then for
    /// the grants to leave the queue.
    Drain,
    Queue(Vec<Vec<QueuedGrant>>),
    Record(Vec<Recorded>),
    Drained,
    /// A sweep of this instant. It waits for the holds that have ended, then for the last lines of
    /// their accounts, then for the append of their lapses.
    Sweep(DateTime<Utc>),
    Lapses(Vec<AccountId>, DateTime<Utc>),
    Lapsed(Vec<Draft>, DateTime<Utc>),
    /// A claim waits until its account's grants leave the queue, and goes back.
    GoBack(Box<InFlight>),
    /// As [`Self::GoBack`], but Redis decides the claim.
    CountAgain(Box<CountedClaim>),
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
    /// The accounts whose groups wait for a look or an append, or whose lapses wait for an append.
    pub fn accounts(&self) -> Vec<AccountId> {
        match self {
            Self::Look(groups, ..) | Self::Append(groups, ..) => {
                let accounts = groups.iter().flat_map(|group| group.scope.accounts());
                accounts.copied().collect()
            }
            Self::Lapsed(drafts, _) => drafts.iter().map(|draft| draft.account).collect(),
            _ => Vec::new(),
        }
    }
}

/// A request of an instance to a store.
pub struct Call {
    pub instance: usize,
    /// The request in one word, for the printed history.
    pub what: &'static str,
    /// `None` after the request had its effect, or was lost.
    pub request: Option<Request>,
    /// `None` until the request has its effect.
    pub response: Option<Response>,
    /// `None` when nobody waits for the response any more.
    pub waiting: Option<Waiting>,
    /// Whether the response comes from a ledger that was replaced.
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
                        | Waiting::GoBack(_)
                        | Waiting::CountAgain(_)
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

    pub fn sweeps(&self) -> bool {
        matches!(
            self.waiting,
            Some(Waiting::Sweep(_) | Waiting::Lapses(..) | Waiting::Lapsed(..))
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
