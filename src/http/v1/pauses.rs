//! The pause of a policy: a state that only these requests change.

use actix_web::http::StatusCode;

use super::policies::policy_answer;
use crate::answer::{HttpAnswer, changed};
use crate::operation::{POLICY, describe};
use crate::request::{
    Admin, AdminData, Body, Caller, DryRun, Faults, IfMatch, PolicyPath, Reason, Then,
};
use api::policies::{PauseBody, PolicyAnswer};
use domain::policy::check_reason;
use engine::{Editor, Precondition};

describe! {
    /// Pause a policy: it grants no claim until the pause ends.
    ///
    /// Every other change of the policy keeps the pause, also a scheduled one. Grants can be confirmed and
    /// reversed. A policy that is already paused stays as it is.
    PUT: "pause_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "Paused, or already paused; or the result of a dry run.").etag()
        .follows("put_policy", 201, POLICY)
}
pub async fn put(
    caller: Caller<Admin>,
    dry_run: DryRun,
    Then(body, (policy, IfMatch(precondition))): Then<Body<PauseBody>, (PolicyPath, IfMatch)>,
    admin: AdminData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let reason = body.0.reason.unwrap_or_default();
    let checked = faults.body("/reason", check_reason(&reason));
    faults.or(checked)?;
    set(
        policy,
        true,
        reason,
        precondition,
        caller.editor(dry_run),
        &admin,
    )
    .await
}

describe! {
    /// End the pause of a policy.
    ///
    /// It decides claims again.
    END: "resume_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "The pause has ended; or the result of a dry run.").etag()
        .follows("pause_policy", 200, POLICY)
}
pub async fn end(
    caller: Caller<Admin>,
    policy: PolicyPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    dry_run: DryRun,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    set(policy, false, reason.0, precondition, editor, &admin).await
}

async fn set(
    policy: PolicyPath,
    paused: bool,
    reason: String,
    precondition: Precondition,
    editor: Editor,
    admin: &AdminData,
) -> HttpAnswer {
    let is_dry_run = editor.is_dry_run;
    let edited = admin
        .pause_policy(policy.0.clone(), paused, reason, precondition, editor)
        .await?
        .map_err(|error| (policy.0, error))?;
    let mut response = changed(StatusCode::OK, edited.after.newest.version, is_dry_run);
    Ok(response.json(policy_answer(edited.after)))
}
