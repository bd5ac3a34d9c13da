//! Statistics: the figures of policies' local days and quarter hours, and first denials.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::LimitUsage;
use super::page::page;
use super::words;
use domain::limit::per::Per;
use domain::statistics::FirstDenial;

/// The figures of a policy's local day.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DayStatistics {
    #[schema(example = "benefit")]
    pub policy: String,
    /// The local date, by the version of the policy that was in force then.
    #[schema(example = "2026-11-03")]
    pub date: NaiveDate,
    /// When the day began.
    #[schema(example = "2026-11-02T16:00:00Z")]
    pub starts_at: DateTime<Utc>,
    /// When the day ended.
    #[schema(example = "2026-11-03T16:00:00Z")]
    pub ends_at: DateTime<Utc>,
    /// The number of grants whose units count on the day.
    #[schema(example = 12480)]
    pub grants: u64,
    /// The units of these grants.
    #[schema(example = 12480)]
    pub units: u64,
    /// The number of the day's grants that were reversed, on any day.
    #[schema(example = 3)]
    pub reversed_grants: u64,
    #[schema(example = 3)]
    pub reversed_units: u64,
    /// The number of the day's holds whose lapse is recorded.
    #[schema(example = 0)]
    pub lapsed_grants: u64,
    #[schema(example = 0)]
    pub lapsed_units: u64,
    #[schema(example = 1)]
    pub adjustments: u64,
    /// The units that adjustments added.
    #[schema(example = 2)]
    pub adjusted_up_units: u64,
    /// The units that adjustments subtracted.
    #[schema(example = 0)]
    pub adjusted_down_units: u64,
    /// The units that remain used: `units` plus `adjusted_up_units`, minus the units that were
    /// reversed, lapsed or adjusted down. Units that were adjusted down before their grant was
    /// reversed are subtracted twice here. A subject's usage never falls below 0.
    #[schema(example = 12479)]
    pub net_units: i64,
    /// The number of grants that Redis alone decided.
    #[schema(example = 0)]
    pub provisional_grants: u64,
    /// The number of these grants that went over a limit.
    #[schema(example = 0)]
    pub over_grants: u64,
    /// The number of grants that the policy would have denied in the mode `enforce`.
    #[schema(example = 0)]
    pub would_deny_grants: u64,
    /// The number of subjects with a grant.
    #[schema(example = 5120)]
    pub subjects: u64,
    /// The number of subjects with a grant after which a limit had no units left.
    #[schema(example = 3010)]
    pub subjects_at_limit: u64,
    /// The number of denied claims, without dry runs. If an instance was killed, the denials of its
    /// last 5 seconds can be missing.
    #[schema(example = 871)]
    pub denied_claims: u64,
    /// The number of first denials that are not stored, because an instance had more than 100 of
    /// them in a second.
    #[schema(example = 0)]
    pub denials_not_kept: u64,
}

/// A page of days.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticsList {
    pub items: Vec<DayStatistics>,
    /// The cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// The figures contain the entries up to this position of the record.
    #[schema(example = 1842)]
    pub as_of: u64,
}

/// The figures of a policy's quarter hour.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarterStatistics {
    #[schema(example = "benefit")]
    pub policy: String,
    /// When the quarter hour began.
    #[schema(example = "2026-11-03T06:00:00Z")]
    pub starts_at: DateTime<Utc>,
    /// The number of grants.
    #[schema(example = 240)]
    pub grants: u64,
    /// The units of these grants.
    #[schema(example = 240)]
    pub units: u64,
    /// The units that reversals and lapses of this quarter hour gave back, of grants of any time.
    #[schema(example = 3)]
    pub given_back_units: u64,
    /// The number of denied claims, without dry runs. If an instance was killed, the denials of its
    /// last 5 seconds can be missing.
    #[schema(example = 17)]
    pub denied_claims: u64,
}

/// A page of quarter hours.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QuarterList {
    pub items: Vec<QuarterStatistics>,
    /// The cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// The figures contain the entries up to this position of the record.
    #[schema(example = 1842)]
    pub as_of: u64,
}

/// The first denial of a subject in a window.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FirstDenialAnswer {
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    pub denied_at: DateTime<Utc>,
    /// The units of the claim.
    #[schema(example = 1)]
    pub units: u64,
    /// The limit without room for the units.
    #[schema(value_type = words::LimitName, example = "day")]
    pub per: Per,
    /// The version of the policy that decided the claim.
    #[schema(example = 1)]
    pub policy_version: u32,
    /// The policy's limits at the denial.
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

page! {
    /// A page of a subject's first denials.
    DenialList of FirstDenialAnswer
    /// The cursor of the next page; null on the last page. It stays valid while denials are stored.
}

/// A first denial in a list of all subjects.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DenialItem {
    #[schema(example = "benefit")]
    pub policy: String,
    /// Null where the ledger has no entry, override or block of the subject under the policy, and after the
    /// subject was erased.
    #[schema(example = "member-42")]
    pub subject: Option<String>,
    #[serde(flatten)]
    pub denial: FirstDenialAnswer,
}

page! {
    /// A page of first denials of all subjects.
    DenialItemList of DenialItem
    /// The cursor of the next page; null on the last page. It stays valid while denials are stored.
}
