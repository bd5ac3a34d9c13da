//! Statistics: the figures of policies' local days and quarter hours.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answer::HttpAnswer;
use crate::operation::describe;
use crate::request::{Auditor, Caller, Faults, InQuery, PageQuery, Query, RecordData};
use api::statistics::{DayStatistics, QuarterList, QuarterStatistics, StatisticsList};
use domain::policy::PolicyName;
use engine::{FigureOfDay, FigurePage, FigureQuery, QuarterPage, QuarterQuery};

fn day_statistics(found: FigureOfDay) -> DayStatistics {
    let figures = found.day.figures;
    DayStatistics {
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
        resets: figures.resets,
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

fn statistics_list(page: FigurePage) -> StatisticsList {
    StatisticsList {
        items: page.days.into_iter().map(day_statistics).collect(),
        next_cursor: page.next_cursor,
        as_of: page.as_of,
    }
}

/// Filters for days. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatisticsQuery {
    /// Only of this policy, archived or not.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// The first local day. An instant means the local day that begins then.
    #[param(format = "day-or-instant", example = "2026-11-03")]
    from: Option<String>,
    /// The local day after the last one. An instant means the local day that begins then.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
    /// Only what was recorded on this local day or later, such as later corrections.
    #[param(format = "day-or-instant", example = "2026-11-03")]
    recorded_from: Option<String>,
    /// Only what was recorded before this local day: the figures as they were known then.
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

describe! {
    /// List the figures of each policy and local day, oldest first.
    ///
    /// An entry counts on the day of its units: a reversal counts on the day of its grant. The figures follow
    /// the record within seconds, or later under heavy load. A day without figures is left out.
    LIST: "list_statistics" of "entries", |it| it
        .json::<StatisticsList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(
    _caller: Caller<Auditor, InQuery>,
    query: Query<StatisticsQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let query = query.0.check(&mut faults);
    let page = page.0.check(&mut faults);
    let query = faults.or(Some(query))?;
    let found = record.statistics(&query, page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(statistics_list(found)))
}

fn quarter_list(page: QuarterPage) -> QuarterList {
    let quarters = page.quarters.into_iter().map(|found| QuarterStatistics {
        policy: found.policy.to_string(),
        starts_at: found.quarter.starts_at(),
        grants: found.figures.grants,
        units: found.figures.units,
        given_back_units: found.figures.given_back_units,
        denied_claims: found.denied_claims,
    });
    QuarterList {
        items: quarters.collect(),
        next_cursor: page.next_cursor,
        as_of: page.as_of,
    }
}

/// Filters for quarter hours. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct QuartersQuery {
    /// Only of this policy, archived or not. Required for local days.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Only at this instant or later. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-03T06:00:00Z")]
    from: Option<String>,
    /// Only before this instant. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
}

describe! {
    /// List the figures of each policy and quarter hour of the last 14 days, oldest first.
    ///
    /// The figures are for charts, and are no part of the record. An entry counts in the quarter hour in which
    /// it happened: a reversal or a lapse counts when it gave units back, and a denied claim when it was
    /// denied. Adjustments do not count. The figures follow the record within seconds, or later under heavy
    /// load. A quarter hour without figures is left out.
    QUARTERS: "list_quarter_statistics" of "entries", |it| it
        .json::<QuarterList>(200, "A page.")
        .is_about_nobody()
}
pub async fn quarters(
    _caller: Caller<Auditor, InQuery>,
    query: Query<QuartersQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let query = query.0;
    let mut faults = Faults::default();
    let query = QuarterQuery {
        policy: faults.parameter("policy", query.policy.as_ref(), PolicyName::new),
        from: faults.bound("from", query.from.as_ref()),
        to: faults.bound("to", query.to.as_ref()),
    };
    let page = page.0.check(&mut faults);
    faults.or(Some(()))?;
    let found = record.quarters(&query, page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(quarter_list(found)))
}
