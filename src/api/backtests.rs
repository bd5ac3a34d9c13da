//! Backtests of drafts.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::orphans::OrphansBody;
use super::policies::PolicyBody;
use super::strict::Object;
use domain::backtest::{BacktestDay, BacktestTally};

/// A draft of a policy, and the days to try it on.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "policy": { "time_zone": "Asia/Shanghai", "limits": [{ "max": 2, "per": "day" }] },
    "from": "2026-11-01",
    "to": "2026-12-01",
}))]
pub struct BacktestBody {
    /// The draft, with the fields of a policy. Only its limits and its calendar count. `paused`,
    /// `active_from`, `active_until`, `mode`, `durability` and `on_ledger_outage` have no effect.
    #[schema(value_type = PolicyBody)]
    pub policy: Object<PolicyBody>,
    /// The first day, a local date of the draft's calendar.
    #[schema(value_type = NaiveDate, example = "2026-11-01")]
    pub from: String,
    /// The local date after the last day; at most 400 days after `from`.
    #[schema(value_type = NaiveDate, example = "2026-12-01")]
    pub to: String,
}

/// The grants that the draft would have denied.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BacktestAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    /// Every local day from `from` until the day before `to`.
    pub days: Vec<BacktestDayAnswer>,
    pub total: BacktestTotal,
    /// The subjects that the draft would have denied first, in that order; at most 100.
    pub first_denied: Vec<DeniedSubject>,
    /// The overrides that the draft would orphan. Absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned_overrides: Option<OrphansBody>,
}

/// A local day: the ledger's grants, and those of them that the draft would have denied.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BacktestDayAnswer {
    #[schema(example = "2026-11-21")]
    pub local_date: NaiveDate,
    #[schema(example = "2026-11-20T16:00:00Z")]
    pub start: DateTime<Utc>,
    #[schema(example = "2026-11-21T16:00:00Z")]
    pub end: DateTime<Utc>,
    /// The number of grants in the ledger.
    #[schema(example = 1200)]
    pub grants: u64,
    /// The units of these grants.
    #[schema(example = 1300)]
    pub units: u64,
    /// The number of grants that the draft would have denied.
    #[schema(example = 12)]
    pub denied_grants: u64,
    /// The units of these grants.
    #[schema(example = 14)]
    pub denied_units: u64,
}

/// The sums of all days.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BacktestTotal {
    /// The number of grants in the ledger.
    #[schema(example = 36_000)]
    pub grants: u64,
    /// The units of these grants.
    #[schema(example = 39_000)]
    pub units: u64,
    /// The number of grants that the draft would have denied.
    #[schema(example = 360)]
    pub denied_grants: u64,
    /// The units of these grants.
    #[schema(example = 420)]
    pub denied_units: u64,
    /// The number of subjects with a grant that the draft would have denied.
    #[schema(example = 25)]
    pub denied_subjects: u64,
}

/// A subject with a grant that the draft would have denied.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeniedSubject {
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    /// The subject's first grant that the draft would have denied.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    pub first_grant: Uuid,
    /// When this grant was made.
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub first_denied_at: DateTime<Utc>,
    /// The number of the subject's grants that the draft would have denied.
    #[schema(example = 3)]
    pub denied_grants: u64,
}

impl From<BacktestDay> for BacktestDayAnswer {
    fn from(day: BacktestDay) -> Self {
        let BacktestTally {
            grants,
            units,
            denied_grants,
            denied_units,
        } = day.tally;
        Self {
            local_date: day.local_date,
            start: day.window.start,
            end: day.window.end,
            grants,
            units,
            denied_grants,
            denied_units,
        }
    }
}
