//! Backtests of drafts.

use std::collections::HashMap;

use actix_web::HttpResponse;
use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::policies::PolicyBody;
use crate::domain::backtest::{BacktestDay, BacktestTally, DayRange, DeniedAccount};
use crate::domain::identity::AccountId;
use crate::domain::policy::{PolicyName, Rule};
use crate::engine::Backtested;
use crate::http::answer::{ApiError, HttpAnswer, OrphansBody};
use crate::http::request::{
    Auditor, Body, Caller, EngineData, Faults, Object, PolicyPath, Then, parse_date,
};

/// A draft of a policy, and the days to try it on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BacktestBody {
    /// The draft, with the fields of a policy. Only its limits and its calendar count. `paused`,
    /// `active_from`, `active_until`, `mode`, `durability` and `on_ledger_outage` have no effect.
    #[schema(value_type = PolicyBody)]
    policy: Object<PolicyBody>,
    /// The first day, a local date of the draft's calendar.
    #[schema(value_type = NaiveDate, example = "2026-11-01")]
    from: String,
    /// The local date after the last day; at most 400 days after `from`.
    #[schema(value_type = NaiveDate, example = "2026-12-01")]
    to: String,
}

/// The grants that the draft would have denied.
#[derive(Debug, Serialize, ToSchema)]
pub struct BacktestAnswer {
    #[schema(example = "benefit")]
    policy: String,
    /// Every local day from `from` until the day before `to`.
    days: Vec<BacktestDayAnswer>,
    total: BacktestTotal,
    /// The subjects that the draft would have denied first, in that order; at most 100.
    first_denied: Vec<DeniedSubject>,
    /// The overrides that the draft would orphan. Absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    orphaned_overrides: Option<OrphansBody>,
}

/// A local day: the ledger's grants, and those of them that the draft would have denied.
#[derive(Debug, Serialize, ToSchema)]
pub struct BacktestDayAnswer {
    #[schema(example = "2026-11-21")]
    local_date: NaiveDate,
    #[schema(example = "2026-11-20T16:00:00Z")]
    start: DateTime<Utc>,
    #[schema(example = "2026-11-21T16:00:00Z")]
    end: DateTime<Utc>,
    /// The number of grants in the ledger.
    #[schema(example = 1200)]
    grants: u64,
    /// The units of these grants.
    #[schema(example = 1300)]
    units: u64,
    /// The number of grants that the draft would have denied.
    #[schema(example = 12)]
    denied_grants: u64,
    /// The units of these grants.
    #[schema(example = 14)]
    denied_units: u64,
}

/// The sums of all days.
#[derive(Debug, Serialize, ToSchema)]
pub struct BacktestTotal {
    /// The number of grants in the ledger.
    #[schema(example = 36_000)]
    grants: u64,
    /// The units of these grants.
    #[schema(example = 39_000)]
    units: u64,
    /// The number of grants that the draft would have denied.
    #[schema(example = 360)]
    denied_grants: u64,
    /// The units of these grants.
    #[schema(example = 420)]
    denied_units: u64,
    /// The number of subjects with a grant that the draft would have denied.
    #[schema(example = 25)]
    denied_subjects: u64,
}

/// A subject with a grant that the draft would have denied.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeniedSubject {
    /// Null after the subject was erased.
    #[schema(example = "member-42")]
    subject: Option<String>,
    /// The subject's first grant that the draft would have denied.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    first_grant: Uuid,
    /// When this grant was made.
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    first_denied_at: DateTime<Utc>,
    /// The number of the subject's grants that the draft would have denied.
    #[schema(example = 3)]
    denied_grants: u64,
}

impl BacktestBody {
    fn check(self, has_counters: bool) -> Result<(Rule, DayRange), ApiError> {
        let mut faults = Faults::default();
        let from = faults.body("/from", parse_date(&self.from));
        let to = faults.body("/to", parse_date(&self.to));
        let range = from.zip(to).map(|(from, to)| DayRange::new(from, to));
        let range = range.and_then(|range| faults.body("/to", range));
        let rule = match self.policy.0.check(has_counters) {
            Ok(change) => Some(change.rule),
            Err(ApiError::Invalid(parts)) => {
                for part in parts {
                    faults.add(part.inside("/policy"));
                }
                None
            }
            Err(other) => return Err(other),
        };
        faults.or(rule.zip(range))
    }
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

impl BacktestAnswer {
    fn new(policy: &PolicyName, tried: Backtested) -> Self {
        let Backtested {
            report,
            mut subjects,
            orphans,
        } = tried;
        let BacktestTally {
            grants,
            units,
            denied_grants,
            denied_units,
        } = report.total;
        let first_denied = report.first_denied.into_iter();
        Self {
            policy: policy.to_string(),
            days: report.days.into_iter().map(Into::into).collect(),
            total: BacktestTotal {
                grants,
                units,
                denied_grants,
                denied_units,
                denied_subjects: report.denied_accounts,
            },
            first_denied: first_denied
                .map(|denied| DeniedSubject::new(denied, &mut subjects))
                .collect(),
            orphaned_overrides: OrphansBody::some(&orphans),
        }
    }
}

impl DeniedSubject {
    fn new(denied: DeniedAccount, subjects: &mut HashMap<AccountId, String>) -> Self {
        Self {
            subject: subjects.remove(&denied.account),
            first_grant: denied.first.0,
            first_denied_at: denied.first.at(),
            denied_grants: denied.grants,
        }
    }
}

/// Backtest a draft of a policy: see which past grants it would have denied.
///
/// Use this to choose limits from data. The draft decides the past grants of the policy, archived
/// or not. A grant that fits into all windows that contain it takes its units. Any other grant
/// counts as denied. Reversals, lapses and adjustments count as they did. Reading begins with the
/// earliest window that contains the first day, so that a month is complete. Overrides are not
/// applied. A grant of a subject that was blocked then, under a policy that observed, counts as denied.
/// Claims that were denied in the past are not known. Nothing is changed.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    post, path = "/v1/policies/{policy}/backtest", operation_id = "backtest_policy", tag = "policies",
    request_body = BacktestBody,
    responses((status = 200, description = "The grants that the draft would have denied.", body = BacktestAnswer)),
)]
pub async fn post(
    caller: Caller<Auditor>,
    Then(body, policy): Then<Body<BacktestBody>, PolicyPath>,
    engine: EngineData,
) -> HttpAnswer {
    let (draft, range) = body.0.check(engine.has_counters())?;
    let name = policy.0.clone();
    let key = caller.key();
    let tried = engine.backtest(&key, name, draft, range).await?;
    Ok(HttpResponse::Ok().json(BacktestAnswer::new(&policy.0, tried)))
}
