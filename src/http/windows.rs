//! A policy's windows.

use actix_web::HttpResponse;
use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::caller::{Auditor, Caller};
use super::error::{ApiError, InvalidPart};
use super::extract::{EngineData, Faults, PolicyPath, engine};
use super::openapi::{Faults4xx, Faults5xx, Faults404};
use super::query::Query;
use super::words;
use crate::domain::window::Per;
use crate::engine::WindowQuery;

/// Which windows to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WindowListQuery {
    /// `minute`, `hour`, `day`, `week`, `month` or `year`; `day` when absent.
    #[param(value_type = Option<words::Per>, example = "day")]
    per: Option<String>,
    /// From the window that contains this instant on; now when absent.
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<String>,
    /// Windows that begin before this instant; when absent, one window.
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<String>,
    /// Items a page: 1 to 1000; 100 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9_-]+$")]
    cursor: Option<String>,
}

/// A window of a policy.
#[derive(Debug, Serialize, ToSchema)]
pub struct WindowAnswer {
    #[schema(example = "2026-11-20T16:00:00Z")]
    start: DateTime<Utc>,
    /// The window ends before this instant.
    #[schema(example = "2026-11-21T16:00:00Z")]
    end: DateTime<Utc>,
    /// The local date of the window, or of its first day.
    #[schema(example = "2026-11-21")]
    local_date: NaiveDate,
}

/// A page of windows.
#[derive(Debug, Serialize, ToSchema)]
pub struct WindowList {
    items: Vec<WindowAnswer>,
    /// Where the next page begins; null on the last.
    next_cursor: Option<String>,
}

/// The windows of a policy that touch a span, by the version in force.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}/windows", operation_id = "list_windows", tag = "policies",
    params(
        ("policy" = String, Path, pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit"),
        WindowListQuery,
    ),
    responses(
        (status = 200, description = "A page, oldest first.", body = WindowList),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn list(
    _caller: Caller<Auditor>,
    query: Query<WindowListQuery>,
    policy: PolicyPath,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let mut faults = Faults::default();
    let WindowListQuery {
        per,
        from,
        to,
        limit,
        cursor,
    } = query.0;
    let per = faults.parameter("per", per.as_ref(), str::parse::<Per>);
    let per = per.unwrap_or(Per::Day);
    let from = faults.instant("from", from.as_ref());
    let to = faults.instant("to", to.as_ref());
    let limit = faults.limit(limit.as_ref());
    if to.is_some_and(|to| to <= from.unwrap_or_else(|| data.now())) {
        faults.add(InvalidPart::parameter("to", "it must come after from"));
    }
    faults.or(Some(()))?;
    let found = engine(&data).policy(policy.0.clone()).await?;
    let found = found.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let found = found.in_force;
    let query = WindowQuery { per, from, to };
    let (windows, next_cursor) = data.windows(&found, &query, limit, cursor.as_deref())?;
    let calendar = &found.rule.calendar;
    let items = windows.into_iter().map(|window| WindowAnswer {
        start: window.start,
        end: window.end,
        local_date: calendar.local_date(per, window),
    });
    Ok(HttpResponse::Ok().json(WindowList {
        items: items.collect(),
        next_cursor,
    }))
}
