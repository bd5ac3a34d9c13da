//! Reconciliation: compares the counters with the ledger, and checks the ledger itself.

use chrono::{DateTime, NaiveDate, Utc};
use uuid::Uuid;

use super::identity::AccountId;
use super::limit::per::Per;
use super::policy::{PolicyId, PolicyName};
use super::window::Window;

/// The number of differences that a report stores. The report counts all of them.
pub const DIFFERENCES_KEPT: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DifferenceKind {
    /// The counter has a higher number than the ledger.
    CounterTooHigh,
    /// The counter has a lower number than the ledger, and no settlement came.
    CounterLags,
    /// The counter has the number of the last line, but another line.
    CounterDiffers,
    /// The counter has the wrong type, or no readable line.
    CounterUnreadable,
    /// The counter belongs to an account that the ledger does not have.
    CounterOrphaned,
    /// The totals of an entry are not the sums of the entries in their windows.
    WrongTotal,
    /// The numbers of an account have a gap before this entry. Without an entry: the account has
    /// lost all of its entries.
    Gap,
    /// The instant of an entry is before the instant of the entry before it.
    TimeBackwards,
    /// The calendar of the account is another one than before, and the entry moves none.
    WrongCalendar,
    /// The top-ups on the line do not follow from the entries.
    WrongTopUps,
    /// The account of the entry was never opened, or belongs to another policy or subject.
    ForeignEntry,
    UnreadableEntry,
    /// A figure of a day is not what the entries make it.
    WrongFigure,
}

impl DifferenceKind {
    pub const ALL: [Self; 13] = [
        Self::CounterTooHigh,
        Self::CounterLags,
        Self::CounterDiffers,
        Self::CounterUnreadable,
        Self::CounterOrphaned,
        Self::WrongTotal,
        Self::Gap,
        Self::TimeBackwards,
        Self::WrongCalendar,
        Self::WrongTopUps,
        Self::ForeignEntry,
        Self::UnreadableEntry,
        Self::WrongFigure,
    ];

    /// The name in the HTTP contract and in the ledger.
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
            Self::WrongCalendar => "wrong_calendar",
            Self::WrongTopUps => "wrong_top_ups",
            Self::ForeignEntry => "foreign_entry",
            Self::UnreadableEntry => "unreadable_entry",
            Self::WrongFigure => "wrong_figure",
        }
    }

    /// Whether the ledger itself is wrong. An alarm is never healed: the ledger is append-only.
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
            | Self::WrongCalendar
            | Self::WrongTopUps
            | Self::ForeignEntry
            | Self::UnreadableEntry
            | Self::WrongFigure => true,
        }
    }
}

/// The found and the expected units of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    pub per: Per,
    pub window: Window,
    /// The units on the counter or entry; `None` if it does not have the window.
    pub found: Option<u64>,
    /// The units on the line of the ledger, or the sum of its entries.
    pub expected: Option<u64>,
}

/// A figure of a local day of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayFigure {
    pub policy: PolicyId,
    pub counted_on: NaiveDate,
    pub name: String,
}

/// A difference: a counter that differs from the last line of its account, an entry that does not
/// follow from the entries before it, or a figure that the entries do not make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub kind: DifferenceKind,
    /// The account; `None` for a figure, and for a row of the ledger whose account cannot be read.
    pub account: Option<AccountId>,
    pub figure: Option<DayFigure>,
    /// The number of the counter or entry; or the figure.
    pub found: Option<u64>,
    pub expected: Option<u64>,
    /// The windows with different units.
    pub windows: Vec<Figures>,
    pub is_healed: bool,
}

/// Whether a reconciliation compared the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountersCompared {
    /// All counters were compared.
    Compared,
    /// There are no counters: the ledger decides alone.
    Absent,
    /// Redis did not answer: some counters were not compared.
    Unavailable,
}

impl CountersCompared {
    pub const ALL: [Self; 3] = [Self::Compared, Self::Absent, Self::Unavailable];

    /// The name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compared => "compared",
            Self::Absent => "absent",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How much of the ledger a reconciliation checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerChecked {
    Whole,
    /// The entries that are new since the reconciliation before it, the accounts of its alarms, and the next
    /// part of the whole.
    Part,
}

impl LedgerChecked {
    pub const ALL: [Self; 2] = [Self::Whole, Self::Part];

    /// The name in the HTTP contract and in the ledger.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Part => "part",
        }
    }
}

/// A part of the ledger: the accounts from one id to another. Ids of accounts are hashes or random, so parts of the
/// same width have about as many accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerPart {
    pub first: AccountId,
    pub last: AccountId,
}

impl LedgerPart {
    pub const WHOLE: Self = Self {
        first: AccountId::FIRST,
        last: AccountId(Uuid::max()),
    };

    /// The part from an account on that is one of `parts` of the whole. So many parts in turn are the whole.
    pub fn one_of(parts: u64, first: AccountId) -> Self {
        let width = u128::MAX / u128::from(parts.max(1));
        let last = first.0.as_u128().saturating_add(width);
        Self {
            first,
            last: AccountId(Uuid::from_u128(last)),
        }
    }

    /// The part with one account.
    pub fn of(account: AccountId) -> Self {
        Self {
            first: account,
            last: account,
        }
    }

    /// The first account of the next part. After the last part the first one comes again.
    pub fn next(self) -> AccountId {
        self.last.next().unwrap_or(AccountId::FIRST)
    }
}

/// How far the checks of the ledger came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedUpTo {
    /// The start of the reconciliation.
    pub at: DateTime<Utc>,
    /// The entries up to this position of the record were checked after they were appended.
    pub position: u64,
    /// The account from which the next part begins.
    pub next: AccountId,
}

/// The start of a reconciliation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// A UUIDv7.
    pub id: Uuid,
    pub started_at: DateTime<Utc>,
    /// The key that requested the reconciliation; `None` for a regular one.
    pub requested_by: Option<String>,
    /// Whether counters are healed.
    pub apply: bool,
    pub ledger: LedgerChecked,
}

/// The end of a reconciliation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub finished_at: DateTime<Utc>,
    pub counters: CountersCompared,
    pub checked: CheckedUpTo,
    pub tally: Tally,
}

/// The counts of a reconciliation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accounts whose entries were checked.
    pub accounts: u64,
    /// Entries that were checked.
    pub entries: u64,
    /// Counters that were compared.
    pub counters: u64,
    /// All differences, including alarms.
    pub differences: u64,
    /// Counters that were healed.
    pub healed: u64,
    /// Differences of the ledger itself.
    pub alarms: u64,
}

/// A stored report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciliation {
    pub started: Started,
    /// The end; `None` while the reconciliation runs, and for ever if its instance died.
    pub finished: Option<Finished>,
}

/// A stored difference, with its policy and subject if the ledger knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDifference {
    pub difference: Difference,
    pub policy: Option<PolicyName>,
    /// The subject of the account; `None` also if it was erased.
    pub subject: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each account is in one of the parts that follow each other.
        #[test]
        fn parts_in_turn_are_the_whole(parts in 1..200_u64, account: u128) {
            let mut part = LedgerPart::one_of(parts, AccountId::FIRST);
            let mut found = 0;
            let mut count = 0;
            loop {
                let id = AccountId(Uuid::from_u128(account));
                found += usize::from(part.first <= id && id <= part.last);
                count += 1;
                if part.last == LedgerPart::WHOLE.last {
                    break;
                }
                part = LedgerPart::one_of(parts, part.next());
            }
            prop_assert_eq!(found, 1);
            prop_assert_eq!(count, parts);
            prop_assert_eq!(part.next(), AccountId::FIRST);
        }
    }

    #[test]
    fn one_part_is_the_whole() {
        assert_eq!(LedgerPart::one_of(1, AccountId::FIRST), LedgerPart::WHOLE);
    }
}
