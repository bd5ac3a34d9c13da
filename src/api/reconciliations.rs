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

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "apply": false }))]
pub struct ReconciliationBody {
    /// Whether to give the counters that differ the ledger's values. The ledger is never changed.
    #[serde(default)]
    pub apply: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReconciliationReport {
    pub id: Uuid,
    pub started_at: DateTime<Utc>,
    /// Null while the reconciliation runs, and where the instance or the ledger failed meanwhile.
    pub finished_at: Option<DateTime<Utc>>,
    pub apply: bool,
    /// Null for an automatic reconciliation.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub requested_by: Option<String>,
    /// Null until the end.
    #[schema(value_type = Option<words::CountersCompared>, example = "compared")]
    pub counters: Option<Word>,
    #[schema(value_type = words::LedgerChecked, example = "whole")]
    pub ledger: Word,
    #[schema(example = 40)]
    pub counter_count: u64,
    /// An account with new entries can be counted more than once.
    #[schema(example = 42)]
    pub account_count: u64,
    /// Each time that one was checked.
    #[schema(example = 97)]
    pub entry_count: u64,
    /// With the alarms.
    #[schema(example = 1)]
    pub difference_count: u64,
    #[schema(example = 0)]
    pub healed_count: u64,
    /// Differences within the ledger itself.
    #[schema(example = 0)]
    pub alarm_count: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ReconciliationAnswer {
    #[serde(flatten, deserialize_with = "flattened")]
    pub report: ReconciliationReport,
    /// At most 1000: alarms rather than others.
    pub differences: Vec<DifferenceBody>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DifferenceBody {
    #[schema(value_type = words::DifferenceKind, example = "counter_too_high")]
    pub kind: Word,
    /// A difference within the ledger itself. It is never healed.
    pub alarm: bool,
    pub healed: bool,
    /// Null for an account that the ledger does not know.
    #[schema(example = "benefit")]
    pub policy: Option<String>,
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// A wrong figure, with its name in `/v1/stats`.
    #[schema(example = "units")]
    pub figure: Option<String>,
    /// The local date of a wrong figure.
    pub date: Option<NaiveDate>,
    /// A keyed hash of policy and subject.
    pub account: Option<Uuid>,
    /// The number that the counter or the entry has; or the wrong figure.
    #[schema(example = 9)]
    pub found_number: Option<u64>,
    /// The number of the account's last entry; or what the entries make the figure.
    #[schema(example = 3)]
    pub expected_number: Option<u64>,
    /// The windows whose units differ.
    pub windows: Vec<WindowFigures>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WindowFigures {
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    pub window_start: DateTime<Utc>,
    /// The first instant after the window.
    pub resets_at: DateTime<Utc>,
    /// The units in the counter or the entry.
    #[schema(example = 9)]
    pub found: Option<u64>,
    /// The units in the account's last entry, or the sum of the entries.
    #[schema(example = 3)]
    pub expected: Option<u64>,
}

page!(ReconciliationList of ReconciliationReport);

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
