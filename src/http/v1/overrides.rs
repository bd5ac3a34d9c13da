//! Overrides: another `max` for one subject of a policy.

use actix_web::HttpResponse;
use chrono::{DateTime, Utc};

use super::exceptions::{self, ShownTerms};
use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{POLICY, POLICY_OF_SUBJECT, SUBJECT, describe};
use crate::request::{
    AdminData, Auditor, Body, Caller, DryRun, Faults, IfMatch, IfMatchOrNone, NewSubjectPath, Page,
    PolicyPath, Reason, RecordData, SubjectPath, Supporter, Then,
};
use api::overrides::{OverrideAnswer, OverrideBody, OverrideList};
use api::strict::Object;
use domain::identity::to_micros;
use domain::limit::maxima::MaxDraft;
use domain::overrides::{OfSubject, Override, OverrideTerms};
use domain::policy::PolicyName;
use domain::reads::ReadKind;

fn check(
    body: OverrideBody,
    now: DateTime<Utc>,
) -> Result<(OverrideTerms, Option<String>), ApiError> {
    let mut faults = Faults::default();
    let until = faults.body_instant("/until", body.until.as_ref());
    let until = until.map(to_micros);
    faults.reason(body.reason.as_ref());
    let limits = body.limits.into_iter().map(|Object(limit)| limit.into());
    let limits: Vec<MaxDraft> = limits.collect();
    let terms = faults.draft(OverrideTerms::check(&limits, until, now));
    Ok((faults.or(terms)?, body.reason))
}

impl ShownTerms for OverrideTerms {
    type Answer = OverrideAnswer;
    const READ: ReadKind = ReadKind::Override;

    fn answer(policy: &PolicyName, version: OfSubject<Self>) -> OverrideAnswer {
        OverrideAnswer::new(policy, version)
    }
}

describe! {
    /// Create or replace a subject's override.
    ///
    /// A lower `max` takes back nothing that was granted. An override of an archived policy has no effect until
    /// the policy is revived.
    PUT: "put_override" of "overrides", |it| it
        .json::<OverrideAnswer>(201, "Created.").etag()
        .json::<OverrideAnswer>(200, "Replaced, or not changed; or the result of a dry run.").etag()
        .problem(409, "`being-erased`: the subject is being erased. `detail` says when to try \
            again.")
}
pub async fn put(
    caller: Caller<Supporter>,
    dry_run: DryRun,
    Then(body, (policy, subject, IfMatchOrNone(precondition))): Then<
        Body<OverrideBody>,
        (PolicyPath, NewSubjectPath, IfMatchOrNone),
    >,
    admin: AdminData,
) -> HttpAnswer {
    let (terms, reason) = check(body.0, admin.instance.now())?;
    let editor = caller.editor(dry_run);
    let terms = (terms, reason);
    exceptions::put(&admin, editor, policy.0, subject.0, terms, precondition).await
}

describe! {
    /// Show a subject's override. The ETag is its version.
    ///
    /// It is shown until somebody deletes it, also after its `until`.
    GET: "get_override" of "overrides", |it| it
        .json::<OverrideAnswer>(200, "The override.").etag()
        .follows("put_override", 201, SUBJECT)
}
pub async fn get(
    caller: Caller<Auditor>,
    policy: PolicyPath,
    subject: SubjectPath,
    admin: AdminData,
    record: RecordData,
) -> HttpAnswer {
    exceptions::get::<OverrideTerms>(&admin, &record, &caller, policy.0, subject.0).await
}

describe! {
    /// List the overrides of a policy.
    ///
    /// Overrides whose `until` has passed are listed too.
    LIST: "list_overrides" of "overrides", |it| it
        .json::<OverrideList>(200, "A page.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
        .follows("put_override", 201, POLICY_OF_SUBJECT)
}
pub async fn list(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    page: Page,
    admin: AdminData,
) -> HttpAnswer {
    let found = admin.of_subjects(policy.0.clone(), page.limit, page.cursor());
    Ok(
        HttpResponse::Ok().json(OverrideList::new(found.await?, |found: Override| {
            OverrideAnswer::new(&policy.0, found)
        })),
    )
}

describe! {
    /// Delete a subject's override: the policy's own limits apply again.
    ///
    /// The answer has the last version.
    DELETE: "delete_override" of "overrides", |it| it
        .json::<OverrideAnswer>(200, "Deleted; or the result of a dry run.")
        .problem(409, "`being-erased`: the subject is being erased. `detail` says when to try \
            again.")
        .follows("put_override", 201, SUBJECT)
}
pub async fn delete(
    caller: Caller<Supporter>,
    policy: PolicyPath,
    subject: SubjectPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    dry_run: DryRun,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    let reason = reason.0;
    exceptions::end::<OverrideTerms>(&admin, editor, policy.0, subject.0, reason, precondition)
        .await
}
