//! The judge of a ledger and its counters: a history of what clients were told and what is stored
//! go in, breaches of the promises come out.
//!
//! It shares no arithmetic with perdiem: it reads the tables and Redis with queries of its own, and
//! works out sums, numbers and windows again; limits whose units return after a time by the plain model
//! (`crate::plain`). `planted` tests it: each breach is planted in turn.

mod accounts;
mod claims;
mod corrections;
mod history;
mod planted;
mod stores;
mod totals;
mod windows;

use uuid::Uuid;

pub use history::{Attempt, Correction, History, LostPart, Mark, Outcome, Why, Wish};
pub use stores::{Entry, Kind, Provisional, Stores};
pub use totals::Total;

/// Something that no fault excuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// More units than a limit allows: in its window, or in some span of time.
    Over { entry: Uuid, total: Total },
    /// A total that the account's entries do not add up to.
    NotTheSum {
        entry: Uuid,
        total: Total,
        sum: i128,
    },
    /// A total that tells the units used, and not when they return or what was given back of them.
    NotTheState { entry: Uuid, total: Total },
    /// A limit that neither the version of the policy nor an override has, or one that is missing.
    NotTheRule { entry: Uuid },
    /// A window that is not its calendar's, not the entry's, or not opened by the first grant.
    NotTheWindow { entry: Uuid, total: Total },
    /// A number missing or out of turn.
    Gap { entry: Uuid, number: i64 },
    /// An instant or a policy's version before its predecessor's.
    Backwards { entry: Uuid },
    /// A mark on a grant that is not so: over a limit where it is within, or the other way round.
    Marked { entry: Uuid },
    /// It names no grant of its account, or one that was confirmed or given back before, or gives
    /// other units back.
    NotItsGrant { entry: Uuid },
    /// A confirmation after the end of its hold, a lapse before it, or a line that comes after the
    /// end of an open hold or does not tell it.
    NotInTime { entry: Uuid },
    /// A grant that a client was told, and that is not in the ledger.
    Lost { wish: usize, id: Uuid },
    /// A claim with several entries.
    Doubled { wish: usize, ids: Vec<Uuid> },
    /// An entry that nobody asked for, or whose every attempt was denied.
    Foreign { entry: Uuid, wish: Option<usize> },
    /// An entry that is not as the claim was, or not as it was told.
    Altered { wish: usize, entry: Uuid },
    /// The same key was told different grants, or twice that it was new.
    TwoGrants { wish: usize, ids: Vec<Uuid> },
    /// A claim was denied after its grant was known, or was in the ledger.
    Forgotten { wish: usize },
    /// A claim that was never decided, with all servers up again.
    Undecided { wish: usize },
    /// An answer that is none of the contract's.
    Wrong { wish: usize, answer: String },
    /// A correction that a client was told, and that is not in the ledger.
    CorrectionLost { kind: Kind, of: Uuid },
    /// A correction that two clients were told is new, or that nobody was told is new, or that was
    /// told in two ways.
    CorrectionDiffers { kind: Kind, of: Uuid },
    /// A counter that is not its account's last line.
    Drift { account: Uuid, counter: String },
    /// Something left in Redis that is no counter.
    Left(String),
}

impl Breach {
    /// The wish that it is about.
    pub fn wish(&self) -> Option<usize> {
        match self {
            Self::Lost { wish, .. }
            | Self::Doubled { wish, .. }
            | Self::Altered { wish, .. }
            | Self::TwoGrants { wish, .. }
            | Self::Forgotten { wish }
            | Self::Undecided { wish }
            | Self::Wrong { wish, .. } => Some(*wish),
            Self::Foreign { wish, .. } => *wish,
            _ => None,
        }
    }
}

impl Breach {
    /// Whether it passes by itself when a settlement or a drain that is under way ends.
    pub fn may_pass(&self, history: &History) -> bool {
        match self {
            Self::Drift { .. } | Self::Left(_) => true,
            Self::Lost { wish, .. } => history.is_provisional(*wish),
            _ => false,
        }
    }
}

/// Everything that is wrong in a ledger, whatever clients were told.
pub fn judge_ledger(stores: &Stores) -> Vec<Breach> {
    accounts::check(stores)
}

/// Everything that is wrong, once nothing is under way.
pub fn judge(history: &History, stores: &Stores) -> Vec<Breach> {
    let mut breaches = judge_ledger(stores);
    breaches.extend(claims::check(history, stores));
    breaches.extend(corrections::check_told(history, stores));
    breaches.extend(stores.drifted().into_iter().map(|counter| Breach::Drift {
        account: counter.account,
        counter: format!("{} {}", counter.number, counter.line),
    }));
    breaches.extend(stores.others.iter().cloned().map(Breach::Left));
    breaches
}
