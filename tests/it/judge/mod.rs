//! The judge of a ledger and its counters. Its input is a history (the requests of clients and the
//! answers they received) and the content of the stores. Its output is a list of breaches of the
//! promises.
//!
//! The judge shares no arithmetic with perdiem. It reads the tables and Redis with its own queries
//! (`stores`), and computes sums, numbers and windows again (`accounts`, `totals`, `windows`). For
//! limits whose units return after a time it asks the plain model (`crate::plain`). `claims` and
//! `corrections` compare the ledger with the answers. Read `judge` first, then `Breach`: each
//! variant is one check. `figures` is for a ledger at rest: there `judge_at_rest` compares the
//! statistics and the usage with the entries.
//!
//! `planted` tests the judge: it plants each breach in a correct ledger, and the judge must find
//! exactly that breach.

mod accounts;
mod claims;
mod corrections;
mod figures;
mod history;
mod planted;
mod shared;
mod stores;
mod top_ups;
mod totals;
mod windows;

use chrono::NaiveDate;
use uuid::Uuid;

pub use figures::{Progress, Story, ToldUsage};
pub use history::{Attempt, Correction, History, LostPart, Mark, Outcome, Why, Wish};
pub use stores::{Entry, Kind, Provisional, Stores};
pub use totals::Total;

/// A breach of a promise, which no fault excuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// An entry exceeds a limit: in its window, or in some span of time.
    Over { entry: Uuid, total: Total },
    /// A total differs from the sum of the account's entries.
    NotTheSum {
        entry: Uuid,
        total: Total,
        sum: i128,
    },
    /// A total has the right usage, but the wrong instants of return or the wrong units given back.
    NotTheState { entry: Uuid, total: Total },
    /// A limit is missing, or neither the policy's version nor an override has it.
    NotTheRule { entry: Uuid },
    /// A window is not in the calendar, does not belong to the entry, or was not opened by the
    /// first grant.
    NotTheWindow { entry: Uuid, total: Total },
    /// The calendar of the account is another one than before, and nobody moved it.
    NotItsCalendar { entry: Uuid },
    /// The top-ups of a line do not follow from the entries, or are used before the windows.
    NotItsTopUps { entry: Uuid },
    /// A number is missing or out of order.
    Gap { entry: Uuid, number: i64 },
    /// An instant or a policy version is before its predecessor's.
    Backwards { entry: Uuid },
    /// A grant has the wrong mark: over a limit where it is within, or the reverse.
    Marked { entry: Uuid },
    /// An entry is marked with another level of use than those that it reached.
    NotItsLevels { entry: Uuid },
    /// An entry names no grant of its account, or a grant that was already confirmed or reversed,
    /// or gives back a different number of units.
    NotItsGrant { entry: Uuid },
    /// A confirmation comes after the end of its hold, or a lapse before the end. Or a line comes
    /// after the end of an open hold, or does not contain that end.
    NotInTime { entry: Uuid },
    /// A client was told a grant that is not in the ledger.
    Lost { wish: usize, id: Uuid },
    /// A claim has several entries.
    Doubled { wish: usize, ids: Vec<Uuid> },
    /// The ledger has some grants of a bundle, and not all.
    HalfBundle { wish: usize },
    /// Nobody asked for the entry, or every attempt of its claim was denied.
    Foreign { entry: Uuid, wish: Option<usize> },
    /// An entry differs from its claim, or from the answer.
    Altered { wish: usize, entry: Uuid },
    /// Answers for one key name different grants, or two answers say that the grant is new.
    TwoGrants { wish: usize, ids: Vec<Uuid> },
    /// A retry was told that its grant had ended, and the ledger does not say so.
    NotEnded { wish: usize },
    /// A claim was denied after its grant was known, or was in the ledger.
    Forgotten { wish: usize },
    /// A claim was never decided, although all servers are up again.
    Undecided { wish: usize },
    /// An answer is not in the contract.
    Wrong { wish: usize, answer: String },
    /// A client was told a correction that is not in the ledger.
    CorrectionLost { kind: Kind, of: Uuid },
    /// A correction was new to two clients, or to none, or clients were told different content.
    CorrectionDiffers { kind: Kind, of: Uuid },
    /// A figure of a policy's local day, in the table or in an answer, differs from the sum of the
    /// entries. Without a day: a sum over all days differs from the answers to clients.
    FiguresDiffer {
        policy: String,
        day: Option<NaiveDate>,
        figure: String,
        told: i128,
        sum: i128,
    },
    /// A subject's usage of a limit, as perdiem told it, differs from the sum of the entries.
    UsageDiffers {
        policy: String,
        subject: String,
        per: String,
        told: u64,
        sum: i128,
    },
    /// The usage of a limit that all subjects share differs from the sum of the entries.
    SharedDiffers {
        policy: String,
        per: String,
        told: i64,
        sum: i128,
    },
    /// More was granted than all subjects may have together.
    OverAll {
        policy: String,
        per: String,
        used: i128,
    },
    /// A counter differs from its account's last line.
    Drift { account: Uuid, counter: String },
    /// A key remains in Redis that is no counter.
    Left(String),
}

impl Breach {
    /// The wish that the breach is about.
    pub fn wish(&self) -> Option<usize> {
        match self {
            Self::Lost { wish, .. }
            | Self::Doubled { wish, .. }
            | Self::HalfBundle { wish }
            | Self::Altered { wish, .. }
            | Self::TwoGrants { wish, .. }
            | Self::NotEnded { wish }
            | Self::Forgotten { wish }
            | Self::Undecided { wish }
            | Self::Wrong { wish, .. } => Some(*wish),
            Self::Foreign { wish, .. } => *wish,
            _ => None,
        }
    }
}

impl Breach {
    /// Whether the breach can disappear when an open settlement or drain ends.
    pub fn may_pass(&self, history: &History) -> bool {
        match self {
            Self::Drift { .. } | Self::Left(_) => true,
            Self::Lost { wish, .. } => history.is_provisional(*wish),
            _ => false,
        }
    }
}

/// Returns the breaches that the ledger alone shows, without the answers of clients.
pub fn judge_ledger(stores: &Stores) -> Vec<Breach> {
    let mut breaches = accounts::check(stores);
    breaches.extend(shared::check(stores));
    breaches
}

/// Returns all breaches. Call it when no request, settlement or drain is open.
pub fn judge(history: &History, stores: &Stores) -> Vec<Breach> {
    // 1. Check each account by its own entries.
    let mut breaches = judge_ledger(stores);
    // 2. Compare the ledger with the answers to claims.
    breaches.extend(claims::check(history, stores));
    // 3. Compare the ledger with the answers to corrections.
    breaches.extend(corrections::check_told(history, stores));
    // 4. Compare each counter with its account's last line.
    breaches.extend(stores.drifted().into_iter().map(|counter| Breach::Drift {
        account: counter.account,
        counter: format!("{} {}", counter.number, counter.line),
    }));
    // 5. Report keys in Redis that are no counters.
    breaches.extend(stores.others.iter().cloned().map(Breach::Left));
    breaches
}

/// Returns the breaches in what perdiem tells at rest: no request is open, each lapse that is due
/// is recorded, and the statistics have every entry.
pub fn judge_at_rest(stores: &Stores, story: &Story) -> Vec<Breach> {
    let mut breaches = figures::check_days(stores, story);
    breaches.extend(figures::check_usages(stores, story));
    breaches
}

/// Compares the denials in the statistics with a history in which every claim was answered.
pub fn judge_denials(history: &History, story: &Story) -> Vec<Breach> {
    figures::check_denials(history, story)
}
