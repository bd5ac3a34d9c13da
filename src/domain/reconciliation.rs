//! A reconciliation: the counters compared with the ledger, and the ledger with itself.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::identity::AccountId;
use super::limit::per::Per;
use super::policy::PolicyName;
use super::window::Window;

/// How many differences a report keeps. It counts all of them.
pub const DIFFERENCES_KEPT: usize = 1000;

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DifferenceKind {
    /// The counter bears a higher number than the ledger.
    CounterTooHigh,
    /// The counter bears a lower number than the ledger, and no settlement came.
    CounterLags,
    /// The counter bears the last line's number, and another line.
    CounterDiffers,
    /// The counter is of the wrong type, or no line can be read in it.
    CounterUnreadable,
    /// There is a counter for an account that the ledger does not know.
    CounterOrphaned,
    /// An entry's totals are not the sums of the entries in their windows.
    WrongTotal,
    /// An account's numbers have a gap before this entry; without an entry, nothing is left of
    /// the account.
    Gap,
    /// An entry's instant lies before the one before it.
    TimeBackwards,
    /// An entry of an account that was never opened, or that is not its policy's and subject's.
    ForeignEntry,
    /// An entry cannot be read.
    UnreadableEntry,
}

impl DifferenceKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::CounterTooHigh,
        Self::CounterLags,
        Self::CounterDiffers,
        Self::CounterUnreadable,
        Self::CounterOrphaned,
        Self::WrongTotal,
        Self::Gap,
        Self::TimeBackwards,
        Self::ForeignEntry,
        Self::UnreadableEntry,
    ];

    /// Its name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CounterTooHigh => "counter_too_high",
            Self::CounterLags => "counter_lags",
            Self::CounterDiffers => "counter_differs",
            Self::CounterUnreadable => "counter_unreadable",
            Self::CounterOrphaned => "counter_orphaned",
            Self::WrongTotal => "wrong_total",
            Self::Gap => "gap",
            Self::TimeBackwards => "time_backwards",
            Self::ForeignEntry => "foreign_entry",
            Self::UnreadableEntry => "unreadable_entry",
        }
    }

    /// Whether the ledger itself is wrong. That is never healed: the ledger is append-only.
    pub fn is_alarm(self) -> bool {
        match self {
            Self::CounterTooHigh
            | Self::CounterLags
            | Self::CounterDiffers
            | Self::CounterUnreadable
            | Self::CounterOrphaned => false,
            Self::WrongTotal
            | Self::Gap
            | Self::TimeBackwards
            | Self::ForeignEntry
            | Self::UnreadableEntry => true,
        }
    }
}

/// What was found in a window, and what ought to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// The length of the window.
    pub per: Per,
    /// The window.
    pub window: Window,
    /// The units that the counter or the entry tells; `None` when it does not tell the window.
    pub found: Option<u64>,
    /// The units that the ledger tells, or the sum of its entries.
    pub expected: Option<u64>,
}

/// Something that differs: a counter from its account's last line, or an entry from those
/// before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs.
    pub kind: DifferenceKind,
    /// Whose. `None` for a row of the ledger whose account cannot be read.
    pub account: Option<AccountId>,
    /// The number that the counter or the entry bears.
    pub found: Option<u64>,
    /// The number that it ought to bear.
    pub expected: Option<u64>,
    /// The windows whose figures differ.
    pub windows: Vec<Figures>,
    /// Whether the counter was healed.
    pub is_healed: bool,
}

/// What became of the counters in a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountersCompared {
    /// They were compared.
    Compared,
    /// There are none: the ledger decides alone.
    Absent,
    /// Redis did not serve: not all of them were compared.
    Unavailable,
}

impl CountersCompared {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Compared, Self::Absent, Self::Unavailable];

    /// Its name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compared => "compared",
            Self::Absent => "absent",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How a reconciliation was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its id, a UUIDv7.
    pub id: Uuid,
    /// When.
    pub started_at: DateTime<Utc>,
    /// The key that asked for it; `None` when it ran by itself.
    pub requested_by: Option<String>,
    /// Whether it heals counters.
    pub apply: bool,
}

/// What a reconciliation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// When.
    pub finished_at: DateTime<Utc>,
    /// What became of the counters.
    pub counters: CountersCompared,
    /// How many there was of what.
    pub tally: Tally,
}

/// How many there was of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accounts whose entries were checked.
    pub accounts: u64,
    /// Entries that were checked.
    pub entries: u64,
    /// Counters that were compared.
    pub counters: u64,
    /// All differences, alarms too.
    pub differences: u64,
    /// Counters that were healed.
    pub healed: u64,
    /// Differences of the ledger from itself.
    pub alarms: u64,
}

/// A report, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciliation {
    /// How it was begun.
    pub started: Started,
    /// What it came to; `None` while it runs, and for good where its instance died.
    pub finished: Option<Finished>,
}

/// A kept difference, and whose it is as far as the ledger knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDifference {
    /// What differs.
    pub difference: Difference,
    /// The account's policy.
    pub policy: Option<PolicyName>,
    /// The account's subject; `None` also once it was erased.
    pub subject: Option<String>,
}
