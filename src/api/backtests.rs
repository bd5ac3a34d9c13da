//! Backtests of drafts.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::orphans::OrphansBody;
use super::policies::PolicyBody;
use super::strict::Object;
use domain::backtest::{BacktestDay, BacktestTally};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "policy": { "time_zone": "Asia/Shanghai", "limits": [{ "max": 2, "per": "day" }] },
    "from": "2026-11-01",
    "to": "2026-12-01",
}))]
pub struct BacktestBody {
    /// Only its limits, its tiers, its total and its calendar count.
    #[schema(value_type = PolicyBody)]
    pub policy: Object<PolicyBody>,
    /// The first local day of the draft's calendar.
    #[schema(value_type = NaiveDate, example = "2026-11-01")]
    pub from: String,
    /// The local day after the last one; at most 400 days after `from`.
    #[schema(value_type = NaiveDate, example = "2026-12-01")]
    pub to: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BacktestAnswer {
    #[schema(example = "benefit")]
    pub policy: String,
    pub days: Vec<BacktestDayAnswer>,
    pub total: BacktestTotal,
    /// Those that the draft would have denied first, in that order; at most 100.
    pub first_denied: Vec<DeniedSubject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub orphaned_overrides: Option<OrphansBody>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BacktestDayAnswer {
    pub local_date: NaiveDate,
    pub start: DateTime<Utc>,
    pub end: DateTime<Utc>,
    #[schema(example = 1200)]
    pub grants: u64,
    #[schema(example = 1300)]
    pub units: u64,
    #[schema(example = 12)]
    pub denied_grants: u64,
    #[schema(example = 14)]
    pub denied_units: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BacktestTotal {
    #[schema(example = 36_000)]
    pub grants: u64,
    #[schema(example = 39_000)]
    pub units: u64,
    #[schema(example = 360)]
    pub denied_grants: u64,
    #[schema(example = 420)]
    pub denied_units: u64,
    #[schema(example = 25)]
    pub denied_subjects: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeniedSubject {
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    pub first_grant: Uuid,
    pub first_denied_at: DateTime<Utc>,
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
