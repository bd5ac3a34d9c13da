//! Approvals: a second admin makes the change that another one proposed.

use actix_web::http::StatusCode;

use super::policies::changed_policy;
use crate::answer::{ApiError, HttpAnswer, changed};
use crate::operation::describe;
use crate::request::{Admin, AdminData, Body, Caller, DryRun};
use api::approvals::{ApprovalAnswer, ApprovalBody};
use engine::ProposedChange;

describe! {
    /// Approve a change of a policy that another admin proposed.
    ///
    /// A change of a policy that `PERDIEM_FOUR_EYES` names gets 409 `needs-approval`, with a `proposal` that
    /// contains the whole change. The approval makes exactly this change, within 7 days, and only to the version
    /// that it was proposed for. A dry run shows the proposal, to its proposer too. The change has the approver in
    /// `changed_by`, and its reason names the proposer. A second approval of the same proposal gets 412.
    POST: "approve_change" of "policies", |it| it
        .json::<ApprovalAnswer>(200, "The change is made; or the result of a dry run.").etag()
        .problem(403, "`own-proposal`: the key of the request proposed the change; `forbidden`: the key has \
            another role.")
        .problem(409, "`orphaned-overrides`: the change leaves overrides without their limit, or \
            beyond its bounds, or subjects without their tier.")
        .problem(412, "`precondition-failed`: the policy has changed since the change was proposed.")
        .problem(422, "`invalid`: the text is no proposal of this ledger, its time is over, or the key that \
            proposed it is not valid any more.")
}
pub async fn post(
    caller: Caller<Admin>,
    dry_run: DryRun,
    body: Body<ApprovalBody>,
    admin: AdminData,
) -> HttpAnswer {
    // 1. What is proposed?
    let proposal = admin.proposal(&body.0.proposal);
    let proposal = proposal.map_err(|fault| ApiError::invalid_body("/proposal", fault))?;
    let operation = match &proposal.change {
        ProposedChange::Put(_) => "put",
        ProposedChange::Archive { .. } => "archive",
    };
    let expires_at = proposal.until();
    let reason = proposal.reason().map(str::to_owned);
    // 2. Make it, or see what it makes.
    let editor = caller.editor(dry_run);
    let is_dry_run = editor.is_dry_run;
    let approved = admin.approve(proposal.clone(), editor).await?;
    let approved = approved.map_err(|error| (proposal.policy.clone(), error))?;
    // 3. Tell what became of it.
    let after = approved.edited.edited.after.newest.version;
    let mut response = changed(StatusCode::OK, after, is_dry_run);
    Ok(response.json(ApprovalAnswer {
        policy: proposal.policy.to_string(),
        operation: operation.into(),
        version: proposal.version,
        proposed_by: proposal.by,
        proposer: approved.proposer,
        proposed_at: proposal.at,
        expires_at,
        reason,
        result: changed_policy(approved.edited),
    }))
}
