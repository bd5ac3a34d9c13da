//! Policies and their versions.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answer::{ApiError, HttpAnswer, changed, versioned};
use crate::operation::{POLICY, describe};
use crate::request::{
    Admin, AdminData, Auditor, Body, ByHandler, Caller, DryRun, Faults, IfMatch, IfMatchOrNone,
    NewPolicyPath, Page, PolicyPath, Query, Reason, Then, is_true, parse_effective,
};
use api::orphans::OrphansBody;
use api::policies::{PauseAnswer, PolicyAnswer, PolicyBody, PolicyList, PolicyPatch};
use api::problem::InvalidPart;
use api::words;
use domain::policy::{Durability, OnLedgerOutage, RuleDraft};
use domain::schedule::Effective;
use engine::{EditError, EditedPolicy, PolicyChange, Precondition, Standing};

pub fn policy_answer(standing: Standing) -> PolicyAnswer {
    PolicyAnswer {
        in_force_version: Some(standing.in_force.version),
        pause: standing.pause.map(PauseAnswer::from),
        ..standing.newest.into()
    }
}

/// Checks a body. Without `effective` in it, the change takes effect as `by_default` says.
pub fn check(
    body: PolicyBody,
    by_default: Effective,
    has_counters: bool,
) -> Result<PolicyChange, ApiError> {
    let mut faults = Faults::default();
    let active_from = faults.body_instant("/active_from", body.active_from.as_ref());
    let active_until = faults.body_instant("/active_until", body.active_until.as_ref());
    let effective = body.effective.as_deref().map(parse_effective).transpose();
    let effective = faults.body("/effective", effective);
    let effective = effective.map(|effective| effective.unwrap_or(by_default));
    faults.reason(body.reason.as_ref());
    let on_orphans = body.orphaned_overrides.as_deref().map(str::parse);
    let on_orphans = faults.body("/orphaned_overrides", on_orphans.transpose());
    let reason = body.reason.clone();
    let paused = body.paused;
    let draft = RuleDraft {
        active_from,
        active_until,
        ..RuleDraft::from(body)
    };
    let rule = faults.draft(draft.check());
    if let Some(rule) = &rule
        && !has_counters
    {
        let detail = "this setting requires Redis: set REDIS_URL, or leave the setting out";
        if rule.durability == Durability::Counted {
            faults.add(InvalidPart::body("/durability", detail));
        }
        if rule.on_ledger_outage == OnLedgerOutage::Count {
            faults.add(InvalidPart::body("/on_ledger_outage", detail));
        }
    }
    let parts = rule.zip(effective).zip(on_orphans);
    let ((rule, effective), on_orphans) = faults.or(parts)?;
    Ok(PolicyChange {
        rule,
        effective,
        reason,
        paused,
        on_orphans,
    })
}

/// Which policies to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PoliciesQuery {
    /// Archived policies too, in their last versions.
    #[param(value_type = Option<words::OnlyTrue>)]
    archived: Option<String>,
}

describe! {
    /// Create, replace or revive a policy.
    ///
    /// The request replaces the whole policy: repeat the settings that you want to keep. Every change makes a
    /// new version, and no change makes none. Without `If-Match`, the last writer wins.
    ///
    /// Every instance knows a new or revived policy at once. With `effective: next_window` a change takes
    /// effect at the same instant everywhere. Of the versions that have taken effect the highest is in force,
    /// so a change that takes effect now ends those that are scheduled. A change that leaves overrides without
    /// their limit, or subjects without their tier, is refused until `orphaned_overrides` says what becomes of them; a dry run lists them.
    PUT: "put_policy" of "policies", |it| it
        .json::<PolicyAnswer>(201, "Created, or revived.").etag()
        .json::<PolicyAnswer>(200, "Replaced, or not changed; or the result of a dry run.")
        .etag()
        .problem(409, "`orphaned-overrides`: the change leaves overrides without their limit, or \
            beyond its bounds, or subjects without their tier. `needs-approval`: the change waits for a second admin.")
}
pub async fn put(
    caller: Caller<Admin>,
    dry_run: DryRun,
    Then(body, (policy, IfMatchOrNone(precondition))): Then<
        Body<PolicyBody>,
        (NewPolicyPath, IfMatchOrNone),
    >,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    let is_dry_run = editor.is_dry_run;
    let change = check(body.0, Effective::Now, admin.instance.has_counters)?;
    let name = policy.0.clone();
    let edited = admin
        .put_policy(name, change, precondition, editor)
        .await?
        .map_err(|error| (policy.0, error))?;
    Ok(edited_answer(edited, is_dry_run))
}

/// The answer to a change of a policy, or to a dry run of one.
fn edited_answer(edited: EditedPolicy, is_dry_run: bool) -> HttpResponse {
    let before = edited.edited.before.as_ref();
    let existed = before.is_some_and(|before| !before.newest.archived);
    let version = edited.edited.after.newest.version;
    let status = if existed {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let mut response = changed(status, version, is_dry_run);
    response.json(changed_policy(edited))
}

/// A policy after a change of it.
pub fn changed_policy(edited: EditedPolicy) -> PolicyAnswer {
    PolicyAnswer {
        orphaned_overrides: OrphansBody::some(&edited.orphans),
        ..policy_answer(edited.edited.after)
    }
}

describe! {
    /// Change some settings of a policy, and keep the others.
    ///
    /// The body is a JSON merge patch (RFC 7396) of the policy as `GET` shows it. A change of a version that is
    /// scheduled takes effect at the same instant, unless `effective` says otherwise. A change that somebody
    /// else makes meanwhile is kept.
    PATCH: "patch_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "Changed, or not changed; or the result of a dry run.")
        .etag()
        .problem(409, "`orphaned-overrides`: the change leaves overrides without their limit, or \
            beyond its bounds, or subjects without their tier. `needs-approval`: the change waits for a second admin.")
        .follows("put_policy", 201, POLICY)
}
pub async fn patch(
    caller: Caller<Admin>,
    dry_run: DryRun,
    Then(body, (policy, IfMatch(precondition))): Then<Body<PolicyPatch>, (PolicyPath, IfMatch)>,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    let name = policy.0;
    loop {
        // 1. Read the version that the patch is for.
        let found = admin.policy(name.clone()).await?;
        let found = found.ok_or_else(|| ApiError::UnknownPolicy(name.to_string()))?;
        let newest = found.newest;
        let version = newest.version;
        let failed = |error| ApiError::from((name.clone(), error));
        precondition.check(Some(version)).map_err(failed)?;
        // 2. Make the change of this version.
        let body = body.0.clone().onto(newest.into());
        let change = check(body, Effective::WithNewest, admin.instance.has_counters)?;
        // 3. If somebody else changed the policy meanwhile, begin again.
        let only = Precondition::Versions(vec![version]);
        let edited = admin
            .put_policy(name.clone(), change, only, editor.clone())
            .await?;
        match edited {
            Err(EditError::PreconditionFailed(_)) => {}
            edited => return Ok(edited_answer(edited.map_err(failed)?, editor.is_dry_run)),
        }
    }
}

describe! {
    /// Show a policy in its newest version. The ETag is the version.
    ///
    /// It may not be in force yet: see `effective_at`.
    GET: "get_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "The policy.").etag()
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
}
pub async fn get(_caller: Caller<Auditor>, policy: PolicyPath, admin: AdminData) -> HttpAnswer {
    let found = admin.policy(policy.0.clone()).await?;
    let found = found.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let mut response = versioned(StatusCode::OK, found.newest.version);
    Ok(response.json(policy_answer(found)))
}

describe! {
    /// List the policies by name.
    ///
    /// A key that is confined to policies sees only these.
    LIST: "list_policies" of "policies", |it| it
        .json::<PolicyList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(
    caller: Caller<Auditor, ByHandler>,
    query: Query<PoliciesQuery>,
    page: Page,
    admin: AdminData,
) -> HttpAnswer {
    let archived = is_true("archived", query.0.archived.as_deref())?;
    let found = admin.policies(caller.policies(), archived, page.limit, page.cursor());
    Ok(HttpResponse::Ok().json(PolicyList::new(found.await?, policy_answer)))
}

describe! {
    /// Archive a policy: it takes no more claims, and its history stays.
    ///
    /// Its grants can still be confirmed and reversed. `PUT` makes the policy active again. The answer has the
    /// last version.
    ARCHIVE: "archive_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "Archived; or the result of a dry run.")
        .problem(409, "`needs-approval`: the change waits for a second admin.")
        .follows("put_policy", 201, POLICY)
}
pub async fn archive(
    caller: Caller<Admin>,
    policy: PolicyPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    dry_run: DryRun,
    admin: AdminData,
) -> HttpAnswer {
    let editor = caller.editor(dry_run);
    let edited = admin
        .archive_policy(policy.0.clone(), reason.0, precondition, editor)
        .await?
        .map_err(|error| (policy.0, error))?;
    Ok(HttpResponse::Ok().json(policy_answer(edited.edited.after)))
}

describe! {
    /// List all versions of a policy, newest first.
    ///
    /// The policy may be archived.
    VERSIONS: "list_policy_versions" of "policies", |it| it
        .json::<PolicyList>(200, "A page.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
}
pub async fn versions(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    page: Page,
    admin: AdminData,
) -> HttpAnswer {
    let versions = admin.versions(policy.0.clone(), page.limit, page.cursor());
    let versions = versions.await?;
    if versions.0.is_empty() && page.cursor().is_none() {
        return Err(ApiError::UnknownPolicy(policy.0.to_string()));
    }
    Ok(HttpResponse::Ok().json(PolicyList::new(versions, PolicyAnswer::from)))
}
