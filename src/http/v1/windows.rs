//! A policy's windows.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{POLICY, describe};
use crate::request::{
    AdminData, Auditor, Caller, Faults, PageQuery, PolicyPath, Query, RecordData,
};
use api::policies::{WindowAnswer, WindowList};
use api::words;
use domain::limit::per::Per;
use domain::window::Length;
use engine::{LivedWindow, WindowQuery};

/// The windows to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WindowListQuery {
    /// A word of the calendar, or the name of a limit of the policy. Default: `day`.
    #[param(value_type = Option<words::LimitName>, example = "day")]
    per: Option<String>,
    /// Begins with the window that contains this instant. A date means the start of that local day of the
    /// policy. Default: now.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    from: Option<String>,
    /// Only windows that begin before this instant. A date means the start of that local day of the policy.
    /// Default: one window.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
}

fn window_answer(lived: LivedWindow) -> WindowAnswer {
    WindowAnswer {
        start: lived.window.start,
        end: lived.window.end,
        local_date: lived.local_date,
        policy_version: lived.policy_version,
        time_zone: lived.zone.name().to_owned(),
    }
}

describe! {
    /// List the windows of a policy in a span, each by the version that was in force then.
    ///
    /// If a change of the calendar or of the limit took effect in the middle of a window, the windows of both are
    /// listed.
    LIST: "list_windows" of "policies", |it| it
        .json::<WindowList>(200, "A page, oldest first.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
}
pub async fn list(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    query: Query<WindowListQuery>,
    page: Query<PageQuery>,
    admin: AdminData,
    record: RecordData,
) -> HttpAnswer {
    let WindowListQuery { per, from, to } = query.0;
    let mut faults = Faults::default();
    let per = faults.parameter("per", per.as_ref(), str::parse::<Per>);
    let per = per.unwrap_or(Length::Day.into());
    let from = faults.bound("from", from.as_ref());
    let to = faults.bound("to", to.as_ref());
    let page = page.0.check(&mut faults);
    faults.or(Some(()))?;
    let query = WindowQuery { per, from, to };
    // An archived policy has no windows.
    let found = admin.policy(policy.0.clone()).await?;
    found.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let windows = record.windows(&policy.0, &query, page.limit, page.cursor());
    Ok(HttpResponse::Ok().json(WindowList::new(windows.await?, window_answer)))
}
