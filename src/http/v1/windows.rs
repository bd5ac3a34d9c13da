//! A policy's windows.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::domain::window::Length;
use crate::engine::{LivedWindow, WindowQuery};
use crate::http::answer::{ApiError, HttpAnswer, page, words};
use crate::http::request::{Auditor, Caller, EngineData, Faults, PageQuery, PolicyPath, Query};

/// The windows to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WindowListQuery {
    /// `minute`, `hour`, `day`, `week`, `month` or `year`. Default: `day`.
    #[param(value_type = Option<words::WindowLength>, example = "day")]
    per: Option<String>,
    /// The list begins with the window that contains this instant. A date means the start of that local
    /// day of the policy. Default: now.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    from: Option<String>,
    /// The list has the windows that begin before this instant. A date means the start of that local day
    /// of the policy. Default: one window.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
}

/// A window of a policy.
#[derive(Debug, Serialize, ToSchema)]
pub struct WindowAnswer {
    #[schema(example = "2026-11-20T16:00:00Z")]
    start: DateTime<Utc>,
    /// The end of the window: the first instant after it.
    #[schema(example = "2026-11-21T16:00:00Z")]
    end: DateTime<Utc>,
    /// The local date of the window, or of its first day.
    #[schema(example = "2026-11-21")]
    local_date: NaiveDate,
    /// The version of the policy that was in force when the window began. If the calendar changed
    /// inside the window: the version that brought the calendar.
    #[schema(example = 1)]
    policy_version: u32,
    /// The time zone of that version.
    #[schema(example = "+08:00")]
    time_zone: String,
}

impl From<LivedWindow> for WindowAnswer {
    fn from(lived: LivedWindow) -> Self {
        Self {
            start: lived.window.start,
            end: lived.window.end,
            local_date: lived.local_date,
            policy_version: lived.policy_version,
            time_zone: lived.zone.name().to_owned(),
        }
    }
}

page! {
    /// A page of windows.
    WindowList of WindowAnswer
    /// The cursor of the next page; null on the last page.
}

/// List the windows of a policy in a span, each by the version that was in force then.
///
/// If a change of the calendar took effect in the middle of a window, the windows of both calendars
/// are listed.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}/windows", operation_id = "list_windows", tag = "policies",
    params(WindowListQuery, PageQuery),
    responses((status = 200, description = "A page, oldest first.", body = WindowList)),
)]
pub async fn list(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    query: Query<WindowListQuery>,
    page: Query<PageQuery>,
    engine: EngineData,
) -> HttpAnswer {
    let WindowListQuery { per, from, to } = query.0;
    let mut faults = Faults::default();
    let per = faults.parameter("per", per.as_ref(), str::parse::<Length>);
    let per = per.unwrap_or(Length::Day);
    let from = faults.bound("from", from.as_ref());
    let to = faults.bound("to", to.as_ref());
    let page = page.0.check(&mut faults);
    faults.or(Some(()))?;
    let query = WindowQuery { per, from, to };
    // An archived policy has no windows.
    let found = engine.policy(policy.0.clone()).await?;
    found.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let windows = engine.windows(&policy.0, &query, page.limit, page.cursor());
    WindowList::answer(windows.await?, WindowAnswer::from)
}
