//! First denials: those of a subject, and those of all subjects.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answer::HttpAnswer;
use crate::operation::describe;
use crate::request::{
    Auditor, Caller, Faults, InQuery, Page, PageQuery, PolicyPath, Query, RecordData, SubjectPath,
    parse_date,
};
use api::statistics::{DenialItem, DenialItemList, DenialList, FirstDenialAnswer};
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use engine::{DaySpan, DenialQuery};

describe! {
    /// List a subject's denials of the last 30 days, newest first: the first denial in each window.
    ///
    /// An instance stores at most 100 denials in a second; `denials_not_kept` in the statistics counts the
    /// others.
    OF_SUBJECT: "list_denials" of "entries", |it| it.json::<DenialList>(200, "A page.")
}
pub async fn of_subject(
    caller: Caller<Auditor>,
    policy: PolicyPath,
    subject: SubjectPath,
    page: Page,
    record: RecordData,
) -> HttpAnswer {
    let policy = policy.0;
    let subject = subject.0;
    let found = record.first_denials(&policy, &subject, page.limit, page.cursor());
    let found = found.await?;
    let read = caller.record_read(&record, ReadKind::Denials, Some(&policy), subject.as_str());
    read.await?;
    Ok(HttpResponse::Ok().json(DenialList::new(found, FirstDenialAnswer::from)))
}

/// Filters for denials. They combine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DenialsQuery {
    /// Only of this policy, archived or not. Required for local days.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Only on this local day of the policy, by the version that was in force then.
    #[param(value_type = Option<NaiveDate>, example = "2026-11-03")]
    on: Option<String>,
    /// Only at this instant or later. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-03T00:00:00Z")]
    from: Option<String>,
    /// Only before this instant. A date means the start of that local day of the policy.
    #[param(format = "day-or-instant", example = "2026-11-04")]
    to: Option<String>,
}

describe! {
    /// List the denials of all subjects of the last 30 days, newest first: the first denial of each subject in
    /// each window.
    ///
    /// An instance stores at most 100 denials in a second; `denials_not_kept` in the statistics counts the
    /// others. A denial by a block belongs to no window, and is only counted.
    LIST: "list_denials_of_all" of "entries", |it| it
        .json::<DenialItemList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(
    _caller: Caller<Auditor, InQuery>,
    query: Query<DenialsQuery>,
    page: Query<PageQuery>,
    record: RecordData,
) -> HttpAnswer {
    let query = query.0;
    let mut faults = Faults::default();
    let span = DaySpan {
        on: faults.parameter("on", query.on.as_ref(), parse_date),
        from: faults.bound("from", query.from.as_ref()),
        to: faults.bound("to", query.to.as_ref()),
    };
    let policy = faults.parameter("policy", query.policy.as_ref(), PolicyName::new);
    let page = page.0.check(&mut faults);
    faults.or(Some(()))?;
    let query = DenialQuery { policy, span };
    let found = record.denials(&query, page.limit, page.cursor()).await?;
    Ok(
        HttpResponse::Ok().json(DenialItemList::new(found, |listed| DenialItem {
            policy: listed.policy.to_string(),
            subject: listed.subject,
            denial: FirstDenialAnswer::from(listed.denial),
        })),
    )
}
