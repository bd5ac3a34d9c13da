//! Statistics: the figures of policies' local days, and a subject's first denials.

use actix_web::HttpResponse;
use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::domain::limit::per::Per;
use crate::domain::policy::PolicyName;
use crate::domain::reads::ReadKind;
use crate::domain::statistics::FirstDenial;
use crate::engine::{FigureOfDay, FigurePage, FigureQuery};
use crate::http::answer::{HttpAnswer, LimitUsage, page, words};
use crate::http::request::{
    Auditor, Caller, EngineData, Faults, InQuery, Page, PageQuery, PolicyPath, Query, SubjectPath,
};

/// The figures of a policy's local day.
#[derive(Debug, Serialize, ToSchema)]
pub struct DayStatistics {
    #[schema(example = "benefit")]
    policy: String,
    /// The local date, by the version of the policy that was in force then.
    #[schema(example = "2026-11-03")]
    date: NaiveDate,
    /// When the day began.
    #[schema(example = "2026-11-02T16:00:00Z")]
    starts_at: DateTime<Utc>,
    /// When the day ended.
    #[schema(example = "2026-11-03T16:00:00Z")]
    ends_at: DateTime<Utc>,
    /// The number of grants whose units count on the day.
    #[schema(example = 12480)]
    grants: u64,
    /// The units of these grants.
    #[schema(example = 12480)]
    units: u64,
    /// The number of the day's grants that were reversed, on any day.
    #[schema(example = 3)]
    reversed_grants: u64,
    #[schema(example = 3)]
    reversed_units: u64,
    /// The number of the day's holds whose lapse is recorded.
    #[schema(example = 0)]
    lapsed_grants: u64,
    #[schema(example = 0)]
    lapsed_units: u64,
    #[schema(example = 1)]
    adjustments: u64,
    /// The units that adjustments added.
    #[schema(example = 2)]
    adjusted_up_units: u64,
    /// The units that adjustments subtracted.
    #[schema(example = 0)]
    adjusted_down_units: u64,
    /// The units that remain used: `units` plus `adjusted_up_units`, minus the units that were
    /// reversed, lapsed or adjusted down. Units that were adjusted down before their grant was
    /// reversed are subtracted twice here. A subject's usage never falls below 0.
    #[schema(example = 12479)]
    net_units: i64,
    /// The number of grants that Redis alone decided.
    #[schema(example = 0)]
    provisional_grants: u64,
    /// The number of these grants that went over a limit.
    #[schema(example = 0)]
    over_grants: u64,
    /// The number of grants that the policy would have denied in the mode `enforce`.
    #[schema(example = 0)]
    would_deny_grants: u64,
    /// The number of subjects with a grant.
    #[schema(example = 5120)]
    subjects: u64,
    /// The number of subjects with a grant after which a limit had no units left.
    #[schema(example = 3010)]
    subjects_at_limit: u64,
    /// The number of denied claims, without dry runs. If an instance was killed, the denials of its
    /// last 5 seconds can be missing.
    #[schema(example = 871)]
    denied_claims: u64,
    /// The number of first denials that are not stored, because an instance had more than 100 of
    /// them in a second.
    #[schema(example = 0)]
    denials_not_kept: u64,
}

impl From<FigureOfDay> for DayStatistics {
    fn from(found: FigureOfDay) -> Self {
        let figures = found.day.figures;
        Self {
            policy: found.day.policy_name.to_string(),
            date: found.day.date,
            starts_at: found.starts_at,
            ends_at: found.ends_at,
            grants: figures.grants,
            units: figures.units,
            reversed_grants: figures.reversed_grants,
            reversed_units: figures.reversed_units,
            lapsed_grants: figures.lapsed_grants,
            lapsed_units: figures.lapsed_units,
            adjustments: figures.adjustments,
            adjusted_up_units: figures.adjusted_up_units,
            adjusted_down_units: figures.adjusted_down_units,
            net_units: figures.net_units(),
            provisional_grants: figures.provisional_grants,
            over_grants: figures.over_grants,
            would_deny_grants: figures.would_deny_grants,
            subjects: figures.subjects,
            subjects_at_limit: figures.subjects_at_limit,
            denied_claims: figures.denied_claims,
            denials_not_kept: figures.denials_not_kept,
        }
    }
}

/// A page of days.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatisticsList {
    items: Vec<DayStatistics>,
    /// The cursor of the next page; null on the last page.
    next_cursor: Option<String>,
    /// The figures contain the entries up to this position of the record.
    #[schema(example = 1842)]
    as_of: u64,
}

impl From<FigurePage> for StatisticsList {
    fn from(page: FigurePage) -> Self {
        Self {
            items: page.days.into_iter().map(DayStatistics::from).collect(),
            next_cursor: page.next_cursor,
            as_of: page.as_of,
        }
    }
}

/// Filters for days. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatisticsQuery {
    /// Only figures of this policy, archived or not.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// The first local day of the policy. An instant means the local day that begins then.
    #[param(format = "day-or-instant", example = "2026-11-03")]
    from: Option<String>,
    /// The local day after the last one. An instant means the local day that begins then.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
    /// Only what was recorded on this local day or later, such as later corrections. An instant means
    /// the local day that begins then.
    #[param(format = "day-or-instant", example = "2026-11-03")]
    recorded_from: Option<String>,
    /// Only what was recorded before this local day: the figures as they were known then. An instant
    /// means the local day that begins then.
    #[param(format = "day-or-instant", example = "2026-11-05")]
    recorded_to: Option<String>,
}

impl StatisticsQuery {
    fn check(&self, faults: &mut Faults) -> FigureQuery {
        let mut date = |name, text: &Option<String>| faults.bound(name, text.as_ref());
        let query = FigureQuery {
            policy: None,
            from: date("from", &self.from),
            to: date("to", &self.to),
            recorded_from: date("recorded_from", &self.recorded_from),
            recorded_to: date("recorded_to", &self.recorded_to),
        };
        let policy = faults.parameter("policy", self.policy.as_ref(), PolicyName::new);
        FigureQuery { policy, ..query }
    }
}

/// List the figures of each policy and local day, oldest first.
///
/// The figures are about grants, corrections, subjects and denials. An entry counts on the day of
/// its units: a reversal counts on the day of its grant. The figures follow the record within
/// seconds, or later under heavy load: `as_of` is the last position that they contain. A day without
/// figures is left out. A key that is confined to policies must name one of them.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "list_statistics", tag = "entries",
    params(StatisticsQuery, PageQuery),
    responses((status = 200, description = "A page.", body = StatisticsList)),
)]
pub async fn list(
    _caller: Caller<Auditor, InQuery>,
    query: Query<StatisticsQuery>,
    page: Query<PageQuery>,
    engine: EngineData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let query = query.0.check(&mut faults);
    let page = page.0.check(&mut faults);
    let query = faults.or(Some(query))?;
    let found = engine.statistics(&query, page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(StatisticsList::from(found)))
}

/// The first denial of a subject in a window.
#[derive(Debug, Serialize, ToSchema)]
pub struct FirstDenialAnswer {
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    denied_at: DateTime<Utc>,
    /// The units of the claim.
    #[schema(example = 1)]
    units: u64,
    /// The limit without room for the units.
    #[schema(value_type = words::LimitName, example = "day")]
    per: Per,
    /// The version of the policy that decided the claim.
    #[schema(example = 1)]
    policy_version: u32,
    /// The policy's limits at the denial.
    limits: Vec<LimitUsage>,
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

/// List a subject's denials of the last 30 days, newest first: the first denial in each window.
///
/// An instance stores at most 100 denials in a second; `denials_not_kept` in the statistics counts
/// the others. A denial is listed within seconds.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}/subjects/{subject}/denials", operation_id = "list_denials", tag = "entries",
    params(PageQuery),
    responses((status = 200, description = "A page.", body = DenialList)),
)]
pub async fn denials(
    caller: Caller<Auditor>,
    policy: PolicyPath,
    subject: SubjectPath,
    page: Page,
    engine: EngineData,
) -> HttpAnswer {
    let policy = policy.0;
    let subject = subject.0;
    let found = engine.first_denials(&policy, &subject, page.limit, page.cursor());
    let found = found.await?;
    let read = caller.record_read(&engine, ReadKind::Denials, Some(&policy), subject.as_str());
    read.await?;
    DenialList::answer(found, FirstDenialAnswer::from)
}
