//! Statistics: the figures of policies' local days and quarter hours, and first denials.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::LimitUsage;
use super::page::{NextCursor, page};
use super::words;
use domain::limit::per::Per;
use domain::statistics::FirstDenial;

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DayStatistics {
    #[schema(example = "benefit")]
    pub policy: String,
    /// By the version of the policy that was in force then.
    pub date: NaiveDate,
    pub starts_at: DateTime<Utc>,
    pub ends_at: DateTime<Utc>,
    /// Whose units count on the day.
    #[schema(example = 12480)]
    pub grants: u64,
    #[schema(example = 12480)]
    pub units: u64,
    /// The day's grants that were reversed, on any day.
    #[schema(example = 3)]
    pub reversed_grants: u64,
    #[schema(example = 3)]
    pub reversed_units: u64,
    /// The day's holds whose lapse is recorded.
    #[schema(example = 0)]
    pub lapsed_grants: u64,
    #[schema(example = 0)]
    pub lapsed_units: u64,
    #[schema(example = 1)]
    pub adjustments: u64,
    #[schema(example = 2)]
    pub adjusted_up_units: u64,
    #[schema(example = 0)]
    pub adjusted_down_units: u64,
    /// Resets of a limit, or of all limits. They change no other figure.
    #[schema(example = 0)]
    pub resets: u64,
    /// What remains used, as if no limit was reset. Units that were adjusted down before their grant was reversed
    /// are subtracted twice here; a subject's usage never falls below 0.
    #[schema(example = 12479)]
    pub net_units: i64,
    /// Grants that Redis alone decided.
    #[schema(example = 0)]
    pub provisional_grants: u64,
    /// Those of them that went over a limit.
    #[schema(example = 0)]
    pub over_grants: u64,
    /// Grants that the policy would have denied in the mode `enforce`.
    #[schema(example = 0)]
    pub would_deny_grants: u64,
    /// Those with a grant.
    #[schema(example = 5120)]
    pub subjects: u64,
    /// Those with a grant after which a limit had no units left.
    #[schema(example = 3010)]
    pub subjects_at_limit: u64,
    /// Without dry runs. If an instance was killed, the denials of its last 5 seconds can be missing.
    #[schema(example = 871)]
    pub denied_claims: u64,
    /// The first denials that are not stored, because an instance had more than 100 of them in a second.
    #[schema(example = 0)]
    pub denials_not_kept: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticsList {
    pub items: Vec<DayStatistics>,
    #[schema(value_type = NextCursor, required = false)]
    pub next_cursor: Option<String>,
    /// The figures contain the entries up to this position.
    #[schema(example = 1842)]
    pub as_of: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarterStatistics {
    #[schema(example = "benefit")]
    pub policy: String,
    pub starts_at: DateTime<Utc>,
    #[schema(example = 240)]
    pub grants: u64,
    #[schema(example = 240)]
    pub units: u64,
    /// What reversals and lapses of this quarter hour gave back, of grants of any time.
    #[schema(example = 3)]
    pub given_back_units: u64,
    /// Without dry runs. If an instance was killed, the denials of its last 5 seconds can be missing.
    #[schema(example = 17)]
    pub denied_claims: u64,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarterList {
    pub items: Vec<QuarterStatistics>,
    #[schema(value_type = NextCursor, required = false)]
    pub next_cursor: Option<String>,
    /// The figures contain the entries up to this position.
    #[schema(example = 1842)]
    pub as_of: u64,
}

/// The first denial of a subject in a window.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FirstDenialAnswer {
    pub denied_at: DateTime<Utc>,
    #[schema(example = 1)]
    pub units: u64,
    /// The limit without room for the units.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    #[schema(example = 1)]
    pub policy_version: u32,
    pub limits: Vec<LimitUsage>,
}

impl From<FirstDenial> for FirstDenialAnswer {
    fn from(denial: FirstDenial) -> Self {
        Self {
            denied_at: denial.denied_at,
            units: denial.units,
            per: denial.window.0,
            policy_version: denial.policy_version,
            limits: LimitUsage::all(&denial.totals),
        }
    }
}

page!(DenialList of FirstDenialAnswer);

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DenialItem {
    #[schema(example = "benefit")]
    pub policy: String,
    /// Null also where the ledger has no entry, override or block of the subject under the policy.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    #[serde(flatten)]
    pub denial: FirstDenialAnswer,
}

page!(DenialItemList of DenialItem);
