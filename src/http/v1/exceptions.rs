//! What the requests about overrides, blocks and tiers of subjects have in common.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Serialize;

use crate::answer::{HttpAnswer, changed, versioned};
use crate::request::{Auditor, Caller, RecordData};
use domain::claim::Subject;
use domain::overrides::OfSubject;
use domain::policy::PolicyName;
use domain::reads::ReadKind;
use engine::{Admin, EditedTerms, Editor, Precondition};

/// Terms of one subject, with their answer.
pub trait ShownTerms: EditedTerms {
    type Answer: Serialize;
    const READ: ReadKind;

    fn answer(policy: &PolicyName, version: OfSubject<Self>) -> Self::Answer;
}

/// Puts terms.
pub async fn put<T: ShownTerms>(
    admin: &Arc<Admin>,
    editor: Editor,
    policy: PolicyName,
    subject: Subject,
    (terms, reason): (T, Option<String>),
    precondition: Precondition,
) -> HttpAnswer {
    let is_dry_run = editor.is_dry_run;
    let name = policy.clone();
    let edited = admin
        .put_of_subject(name, subject, terms, reason, precondition, editor)
        .await?
        .map_err(|error| (policy.clone(), error))?;
    let before = edited.before;
    let status = if before.is_some_and(|before| before.terms.is_some()) {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let mut response = changed(status, edited.after.version, is_dry_run);
    Ok(response.json(T::answer(&policy, edited.after)))
}

/// Shows terms, and records the read.
pub async fn get<T: ShownTerms>(
    admin: &Arc<Admin>,
    record: &RecordData,
    caller: &Caller<Auditor>,
    policy: PolicyName,
    subject: Subject,
) -> HttpAnswer {
    let found: OfSubject<T> = admin
        .of_subject(policy.clone(), &subject)
        .await?
        .map_err(|error| (policy.clone(), error))?;
    let read = caller.record_read(record, T::READ, Some(&policy), subject.as_str());
    read.await?;
    let mut response = versioned(StatusCode::OK, found.version);
    Ok(response.json(T::answer(&policy, found)))
}

/// Ends terms. The answer has the last version.
pub async fn end<T: ShownTerms>(
    admin: &Arc<Admin>,
    editor: Editor,
    policy: PolicyName,
    subject: Subject,
    reason: String,
    precondition: Precondition,
) -> HttpAnswer {
    let name = policy.clone();
    let edited = admin
        .delete_of_subject::<T>(name, subject, reason, precondition, editor)
        .await?
        .map_err(|error| (policy.clone(), error))?;
    let ended = OfSubject {
        terms: edited.before.and_then(|before| before.terms),
        ..edited.after
    };
    Ok(HttpResponse::Ok().json(T::answer(&policy, ended)))
}
