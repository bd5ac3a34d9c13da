//! The pause of a policy: a state that only these requests change.

use actix_web::http::StatusCode;

use super::policies::policy_answer;
use crate::answer::{HttpAnswer, versioned};
use crate::operation::{POLICY, describe};
use crate::request::{Admin, AdminData, Body, Caller, Faults, IfMatch, PolicyPath, Reason, Then};
use api::policies::{PauseBody, PolicyAnswer};
use domain::policy::check_reason;

describe! {
    /// Pause a policy: it grants no claim until the pause ends.
    ///
    /// Every other change of the policy keeps the pause. A version that is scheduled takes effect at its time,
    /// and is paused too. Grants can be confirmed and reversed. A policy that is already paused stays as it is.
    /// The pause takes effect at this instance with the next claim, and at every other instance within a
    /// second.
    PUT: "pause_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "Paused, or already paused.").etag()
        .problem(412, "`precondition-failed`: the policy has another version.")
        .follows("put_policy", 201, POLICY)
}
pub async fn put(
    caller: Caller<Admin>,
    Then(body, (policy, IfMatch(precondition))): Then<Body<PauseBody>, (PolicyPath, IfMatch)>,
    admin: AdminData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let reason = body.0.reason.unwrap_or_default();
    let checked = faults.body("/reason", check_reason(&reason));
    faults.or(checked)?;
    let edited = admin
        .pause_policy(policy.0.clone(), true, reason, precondition, caller.key())
        .await?
        .map_err(|error| (policy.0, error))?;
    let mut response = versioned(StatusCode::OK, edited.after.newest.version);
    Ok(response.json(policy_answer(edited.after)))
}

describe! {
    /// End the pause of a policy.
    END: "resume_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "The pause has ended.").etag()
        .problem(412, "`precondition-failed`: the policy has another version.")
        .follows("pause_policy", 200, POLICY)
}
pub async fn end(
    caller: Caller<Admin>,
    policy: PolicyPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    admin: AdminData,
) -> HttpAnswer {
    let edited = admin
        .pause_policy(
            policy.0.clone(),
            false,
            reason.0,
            precondition,
            caller.key(),
        )
        .await?
        .map_err(|error| (policy.0, error))?;
    let mut response = versioned(StatusCode::OK, edited.after.newest.version);
    Ok(response.json(policy_answer(edited.after)))
}
