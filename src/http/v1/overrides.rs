//! Overrides: another `max` for one subject of a policy.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use chrono::{DateTime, Utc};

use crate::answer::{ApiError, HttpAnswer, changed, versioned};
use crate::operation::{POLICY, POLICY_OF_SUBJECT, SUBJECT, describe};
use crate::request::{
    AdminData, Auditor, Body, Caller, DryRun, Faults, IfMatch, IfMatchOrNone, NewSubjectPath, Page,
    PolicyPath, Reason, RecordData, SubjectPath, Supporter, Then,
};
use api::overrides::{OverrideAnswer, OverrideBody, OverrideList};
use api::strict::Object;
use domain::identity::to_micros;
use domain::limit::draft::MaxDraft;
use domain::overrides::{Override, OverrideTerms};
use domain::reads::ReadKind;

fn check(
    body: OverrideBody,
    now: DateTime<Utc>,
) -> Result<(OverrideTerms, Option<String>), ApiError> {
    let mut faults = Faults::default();
    let until = faults.body_instant("/until", body.until.as_ref());
    let until = until.map(to_micros);
    faults.reason(body.reason.as_ref());
    let limits = body.limits.into_iter().map(|Object(limit)| MaxDraft {
        max: limit.max.0,
        per: limit.per,
    });
    let limits: Vec<MaxDraft> = limits.collect();
    let terms = faults.draft(OverrideTerms::check(&limits, until, now));
    Ok((faults.or(terms)?, body.reason))
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
    let name = policy.0.clone();
    let editor = caller.editor(dry_run);
    let is_dry_run = editor.is_dry_run;
    let edited = admin
        .put_of_subject(name, subject.0, terms, reason, precondition, editor)
        .await?
        .map_err(|error| (policy.0.clone(), error))?;
    let before = edited.before;
    let status = if before.is_some_and(|before| before.terms.is_some()) {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let mut response = changed(status, edited.after.version, is_dry_run);
    Ok(response.json(OverrideAnswer::new(&policy.0, edited.after)))
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
    let policy = policy.0;
    let subject = subject.0;
    let found: Override = admin
        .of_subject(policy.clone(), &subject)
        .await?
        .map_err(|error| (policy.clone(), error))?;
    let read = caller.record_read(&record, ReadKind::Override, Some(&policy), subject.as_str());
    read.await?;
    let mut response = versioned(StatusCode::OK, found.version);
    Ok(response.json(OverrideAnswer::new(&policy, found)))
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
    let name = policy.0.clone();
    let editor = caller.editor(dry_run);
    let edited = admin
        .delete_of_subject::<OverrideTerms>(name, subject.0, reason.0, precondition, editor)
        .await?
        .map_err(|error| (policy.0.clone(), error))?;
    let deleted = Override {
        terms: edited.before.and_then(|before| before.terms),
        ..edited.after
    };
    Ok(HttpResponse::Ok().json(OverrideAnswer::new(&policy.0, deleted)))
}
