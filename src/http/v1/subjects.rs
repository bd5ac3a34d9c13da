//! A subject under all policies.

use actix_web::HttpResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use super::claims::usage_body;
use crate::answer::HttpAnswer;
use crate::operation::describe;
use crate::request::{
    Auditor, ByHandler, Caller, ClaimsData, Faults, Query, RecordData, SubjectPath,
};
use api::subjects::SubjectAnswer;
use domain::policy::PolicyName;
use domain::reads::ReadKind;

/// The most policies of an answer.
const POLICIES_MOST: usize = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubjectQuery {
    /// Only policies after this name: the `next_after` of the page before.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$", example = "benefit")]
    after: Option<String>,
}

describe! {
    /// Show a subject under all policies: its usage, its overrides and its blocks.
    ///
    /// The answer has the policies under which the ledger knows the subject, each as `GET
    /// /v1/policies/{policy}/subjects/{subject}` shows it; a page has at most 100 of them. Archived policies
    /// are left out. A key that is confined to policies sees only these policies.
    GET: "get_subject" of "claims", |it| it
        .json::<SubjectAnswer>(200, "What is known about the subject, perhaps nothing.")
        .follows("put_override", 201, &[("subject", "$response.body#/subject")])
}
pub async fn get(
    caller: Caller<Auditor, ByHandler>,
    subject: SubjectPath,
    query: Query<SubjectQuery>,
    claims: ClaimsData,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let after = faults.parameter("after", query.0.after.as_ref(), PolicyName::new);
    let after = faults.or(Some(after))?;
    let confined_to = caller.policies();
    let found = claims.of_subject(&subject.0, confined_to, after.as_ref(), POLICIES_MOST);
    let found = found.await?;
    let subject = subject.0.as_str();
    caller
        .record_read(&record, ReadKind::Usage, None, subject)
        .await?;
    let last = found.policies.last().filter(|_| found.has_more);
    Ok(HttpResponse::Ok().json(SubjectAnswer {
        subject: subject.to_owned(),
        next_after: last.map(|usage| usage.policy.name.to_string()),
        items: found
            .policies
            .into_iter()
            .map(|usage| usage_body(usage, subject))
            .collect(),
    }))
}
