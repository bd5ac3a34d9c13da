//! Reconciliations and their reports.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::page::page;
use super::reading::flattened;
use super::words::{self, Word};
use domain::limit::per::Per;
use domain::reconciliation::{Figures, KeptDifference, Reconciliation, Tally};

/// How to run a reconciliation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "apply": false }))]
pub struct ReconciliationBody {
    /// Whether to heal the counters that differ: they get the ledger's values. Without it, the
    /// reconciliation only reports. It never changes the ledger.
    #[serde(default)]
    #[schema(example = false)]
    pub apply: bool,
}

/// The report of a reconciliation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReconciliationReport {
    /// A UUIDv7.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub id: Uuid,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub started_at: DateTime<Utc>,
    /// Null while the reconciliation runs. It stays null where the instance or the ledger failed
    /// meanwhile.
    pub finished_at: Option<DateTime<Utc>>,
    /// Whether the reconciliation heals counters.
    pub apply: bool,
    /// Who asked for it: a key's id, or `PERDIEM_ADMIN_KEY`; null for an automatic reconciliation.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub requested_by: Option<String>,
    /// Whether the counters were compared. `compared`: all of them. `absent`: the service has no
    /// Redis, and only the ledger was checked. `unavailable`: Redis was unavailable, and not all
    /// counters were compared. Null until the end.
    #[schema(value_type = Option<words::CountersCompared>, example = "compared")]
    pub counters: Option<Word>,
    /// How much of the ledger is checked. `whole`: all of it. `part`: the entries that are new since the
    /// reconciliation before, the accounts of its alarms, and the next part of all accounts; the parts of about a week
    /// are the whole.
    #[schema(value_type = words::LedgerChecked, example = "whole")]
    pub ledger: Word,
    /// The number of counters that were compared.
    #[schema(example = 40)]
    pub counter_count: u64,
    /// The number of accounts that were checked. An account with new entries can be counted more than once.
    #[schema(example = 42)]
    pub account_count: u64,
    /// The number of entries that were checked, each time that they were.
    #[schema(example = 97)]
    pub entry_count: u64,
    /// The number of differences, with the alarms.
    #[schema(example = 1)]
    pub difference_count: u64,
    /// The number of counters that were healed.
    #[schema(example = 0)]
    pub healed_count: u64,
    /// The number of alarms: differences within the ledger itself.
    #[schema(example = 0)]
    pub alarm_count: u64,
}

/// A report with its differences.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReconciliationAnswer {
    #[serde(flatten, deserialize_with = "flattened")]
    pub report: ReconciliationReport,
    /// At most 1000 differences: alarms rather than others.
    pub differences: Vec<DifferenceBody>,
}

/// A counter that differs from its account's last entry, an entry that does not fit the entries before
/// it, or a figure that the entries do not make.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DifferenceBody {
    /// Counters: `counter_too_high` and `counter_lags`: the counter's number is above or below that
    /// of the account's last entry; `counter_differs`: the counter differs in another way;
    /// `counter_unreadable`: the counter cannot be read; `counter_orphaned`: the ledger does not
    /// know the account. Alarms: `wrong_total`: a total is not the sum of the entries; `gap`:
    /// numbers are missing before this entry; `time_backwards`: the entry is earlier than the one
    /// before it; `foreign_entry`: the entry is not of an account that perdiem opened;
    /// `unreadable_entry`: the entry cannot be read; `wrong_figure`: a figure of a day is not what the
    /// entries make it.
    #[schema(value_type = words::DifferenceKind, example = "counter_too_high")]
    pub kind: Word,
    /// Whether this is a difference within the ledger itself. It is never healed.
    pub alarm: bool,
    /// Whether the counter was healed.
    pub healed: bool,
    /// Null for an account that the ledger does not know.
    #[schema(example = "benefit")]
    pub policy: Option<String>,
    /// Null for a figure, for an account that the ledger does not know, and after the subject was
    /// erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The name of a wrong figure, as in `/v1/stats`; null for every other kind.
    #[schema(example = "units")]
    pub figure: Option<String>,
    /// The local date of a wrong figure; null for every other kind.
    #[schema(example = "2026-11-03")]
    pub date: Option<NaiveDate>,
    /// The account: a keyed hash of policy and subject. Null for a figure.
    #[schema(example = "5a0c8d1e-9b1f-8a77-1c22-6d5e4f3a2b10")]
    pub account: Option<Uuid>,
    /// The number that the counter or the entry has; or the wrong figure.
    #[schema(example = 9)]
    pub found_number: Option<u64>,
    /// The number that it should have: for a counter, the number of the account's last entry; for a
    /// figure, what the entries make it.
    #[schema(example = 3)]
    pub expected_number: Option<u64>,
    /// The windows whose units differ.
    pub windows: Vec<WindowFigures>,
}

/// The units that were found in a window, and the units that should be there.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WindowFigures {
    /// The limit's window.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    #[schema(example = "2026-11-20T16:00:00Z")]
    pub window_start: DateTime<Utc>,
    /// The end of the window: the first instant after it.
    #[schema(example = "2026-11-21T16:00:00Z")]
    pub resets_at: DateTime<Utc>,
    /// The units in the counter or the entry; null where it does not have the window.
    #[schema(example = 9)]
    pub found: Option<u64>,
    /// The units in the account's last entry, or the sum of the entries.
    #[schema(example = 3)]
    pub expected: Option<u64>,
}

page! {
    /// A page of reports.
    ReconciliationList of ReconciliationReport
    /// The cursor of the next page; null on the last page.
}

impl From<Reconciliation> for ReconciliationReport {
    fn from(report: Reconciliation) -> Self {
        let Reconciliation { started, finished } = report;
        let tally = finished
            .as_ref()
            .map_or(Tally::default(), |finished| finished.tally);
        Self {
            id: started.id,
            started_at: started.started_at,
            finished_at: finished.as_ref().map(|finished| finished.finished_at),
            apply: started.apply,
            requested_by: started.requested_by,
            counters: finished.map(|finished| finished.counters.as_str().into()),
            ledger: started.ledger.as_str().into(),
            counter_count: tally.counters,
            account_count: tally.accounts,
            entry_count: tally.entries,
            difference_count: tally.differences,
            healed_count: tally.healed,
            alarm_count: tally.alarms,
        }
    }
}

impl From<(Reconciliation, Vec<KeptDifference>)> for ReconciliationAnswer {
    fn from((report, differences): (Reconciliation, Vec<KeptDifference>)) -> Self {
        Self {
            report: report.into(),
            differences: differences.into_iter().map(DifferenceBody::from).collect(),
        }
    }
}

impl From<KeptDifference> for DifferenceBody {
    fn from(kept: KeptDifference) -> Self {
        let difference = kept.difference;
        let date = difference.figure.as_ref().map(|figure| figure.counted_on);
        Self {
            kind: difference.kind.as_str().into(),
            alarm: difference.kind.is_alarm(),
            healed: difference.is_healed,
            policy: kept.policy.map(|policy| policy.to_string()),
            subject: kept.subject,
            figure: difference.figure.map(|figure| figure.name),
            date,
            account: difference.account.map(|account| account.0),
            found_number: difference.found,
            expected_number: difference.expected,
            windows: difference.windows.iter().map(WindowFigures::from).collect(),
        }
    }
}

impl From<&Figures> for WindowFigures {
    fn from(figures: &Figures) -> Self {
        Self {
            per: figures.per,
            window_start: figures.window.start,
            resets_at: figures.window.end,
            found: figures.found,
            expected: figures.expected,
        }
    }
}
