//! Erasures of subjects.

use actix_web::HttpResponse;

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::describe;
use crate::request::{Admin, AdminData, Body, Caller, NeedlessKey, SubjectPath, Then};
use api::erasures::{ErasureAct, ErasureAnswer, ErasureRequest};
use domain::erasure::names;
use domain::policy::check_reason;
use engine::{Failure, LedgerError, SubjectErasure};

fn about(accounts: u64) -> String {
    serde_json::json!(ErasureAct { accounts }).to_string()
}

describe! {
    /// Erase a subject, under all policies.
    ///
    /// The service deletes the subject's name, its metadata, its stored denials, and the reasons of its
    /// corrections and overrides. From then on the name finds nothing, but claims under it are still counted,
    /// so that nobody gets a second quota today. When the windows of the last entry are over, the account gets
    /// a random id, and 48 hours after the last entry the hashes of its idempotency keys are deleted. Units,
    /// sums, positions and seals stay. Backups, exported files and your own logs are not changed.
    ///
    /// Status 202 means that an erasure of many entries has begun and continues by itself. Send the request
    /// again later: 200 means that all texts are deleted, and 404 that the account has its random id.
    POST: "erase_subject" of "changes", |it| it
        .json::<ErasureAnswer>(200, "All texts are deleted, and the name finds nothing.")
        .json::<ErasureAnswer>(202, "The erasure has begun and continues by itself. Some texts are \
            not deleted yet.")
        .problem(404, "`not-found`: nothing is known about this subject, or everything was erased.")
}
pub async fn post(
    caller: Caller<Admin>,
    Then(body, (_, subject)): Then<Body<ErasureRequest>, (NeedlessKey, SubjectPath)>,
    admin: AdminData,
) -> HttpAnswer {
    let reason = body.0.reason;
    let checked = check_reason(&reason).and_then(|()| {
        if names(&reason, &subject.0) {
            Err("the reason stays, so it must not name the subject: leave out the name".to_owned())
        } else {
            Ok(())
        }
    });
    checked.map_err(|detail| ApiError::invalid_body("/reason", detail))?;
    let erased = admin.erase(subject.0, reason, &caller.key(), about).await?;
    let SubjectErasure { act, is_done } = erased.ok_or(ApiError::NotFound(UNKNOWN))?;
    let mut response = if is_done {
        HttpResponse::Ok()
    } else {
        HttpResponse::Accepted()
    };
    let said = serde_json::from_str(&act.about).map_err(|error| {
        let what = format!("the act {}: {error}", act.revision);
        Failure::from(LedgerError::Corrupt(what))
    })?;
    Ok(response.json(ErasureAnswer {
        revision: act.revision,
        act: said,
        erased_at: act.at,
        erased_by: act.by,
        reason: act.reason,
    }))
}

const UNKNOWN: &str = "nothing is known about this subject, or everything was erased";
