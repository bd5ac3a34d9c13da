//! Policies and their versions.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::answer::{ApiError, HttpAnswer, versioned};
use crate::operation::{POLICY, describe};
use crate::request::{
    Admin, AdminData, Auditor, Body, ByHandler, Caller, Faults, IfMatch, IfMatchOrNone,
    NewPolicyPath, Page, PolicyPath, Query, Reason, Then, parse_true,
};
use api::orphans::OrphansBody;
use api::policies::{PauseAnswer, PolicyAnswer, PolicyBody, PolicyList};
use api::problem::InvalidPart;
use api::strict::Object;
use api::words;
use domain::limit::draft::LimitDraft;
use domain::policy::{Durability, OnLedgerOutage, RuleDraft};
use engine::{PolicyChange, Standing};

pub fn policy_answer(standing: Standing) -> PolicyAnswer {
    PolicyAnswer {
        in_force_version: Some(standing.in_force.version),
        pause: standing.pause.map(PauseAnswer::from),
        ..standing.newest.into()
    }
}

pub fn check(body: PolicyBody, has_counters: bool) -> Result<PolicyChange, ApiError> {
    let mut faults = Faults::default();
    let active_from = faults.body_instant("/active_from", body.active_from.as_ref());
    let active_until = faults.body_instant("/active_until", body.active_until.as_ref());
    let effective = body.effective.as_deref().unwrap_or("now").parse();
    let effective = faults.body("/effective", effective);
    faults.reason(body.reason.as_ref());
    let on_orphans = body.orphaned_overrides.as_deref().map(str::parse);
    let on_orphans = faults.body("/orphaned_overrides", on_orphans.transpose());
    let limits = body.limits.into_iter().map(|Object(limit)| LimitDraft {
        max: limit.max.0,
        per: limit.per,
        kind: limit.kind,
        step: limit.step,
        burst: limit.burst.map(|burst| burst.0),
    });
    let draft = RuleDraft {
        description: body.description,
        time_zone: body.time_zone,
        limits: limits.collect(),
        day_starts_at: body.day_starts_at,
        week_starts_on: body.week_starts_on,
        active_from,
        active_until,
        paused: false,
        mode: body.mode,
        durability: body.durability,
        on_ledger_outage: body.on_ledger_outage,
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
        reason: body.reason,
        paused: body.paused,
        on_orphans,
    })
}

/// Whether to change the policy, or only to show the change.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PutQuery {
    /// `true`: change nothing, and show what the policy would become.
    #[param(value_type = Option<words::OnlyTrue>)]
    dry_run: Option<String>,
}

describe! {
    /// Create, replace or revive a policy.
    ///
    /// The request replaces the whole policy: repeat the settings that you want to keep. Every change
    /// makes a new version. A policy that already has these settings is not changed. Without
    /// `If-Match`, the last writer wins; with it, the change is made only to the version that you have
    /// read.
    ///
    /// Every instance knows a new or revived policy at once. A change takes effect at this instance
    /// with the next claim, and at every other instance within a second. With `effective: next_window`
    /// it takes effect at the same instant everywhere. A change that leaves overrides without their limit
    /// is refused until `orphaned_overrides` says what becomes of them; a dry run lists them. Of the versions that have taken effect, the
    /// highest is in force.
    PUT: "put_policy" of "policies", |it| it
        .json::<PolicyAnswer>(201, "Created, or revived.").etag()
        .json::<PolicyAnswer>(200, "Replaced, or not changed; or the result of a dry run.")
        .etag()
        .problem(409, "`orphaned-overrides`: the change leaves overrides without their limit, or \
            beyond its bounds.")
        .problem(412, "`precondition-failed`: the policy has another version.")
}
pub async fn put(
    caller: Caller<Admin>,
    query: Query<PutQuery>,
    Then(body, (policy, IfMatchOrNone(precondition))): Then<
        Body<PolicyBody>,
        (NewPolicyPath, IfMatchOrNone),
    >,
    admin: AdminData,
) -> HttpAnswer {
    let dry_run = query.0.dry_run.as_deref().map(parse_true).transpose();
    let dry_run = dry_run.map_err(|error| ApiError::invalid("dry_run", error))?;
    let dry_run = dry_run.is_some();
    let change = check(body.0, admin.instance.has_counters)?;
    let name = policy.0.clone();
    let edited = admin
        .put_policy(name, change, precondition, caller.key(), dry_run)
        .await?
        .map_err(|error| (policy.0, error))?;
    let orphaned_overrides = OrphansBody::some(&edited.orphans);
    let edited = edited.edited;
    let existed = edited.before.is_some_and(|before| !before.newest.archived);
    let version = edited.after.newest.version;
    let mut response = if dry_run {
        // The answer has no ETag: no policy has that version.
        HttpResponse::Ok()
    } else if existed {
        versioned(StatusCode::OK, version)
    } else {
        versioned(StatusCode::CREATED, version)
    };
    Ok(response.json(PolicyAnswer {
        orphaned_overrides,
        ..policy_answer(edited.after)
    }))
}

describe! {
    /// Show a policy in its newest version. The ETag is the version.
    ///
    /// The newest version may not be in force yet: see `effective_at`.
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
    /// List the policies that are not archived, by name.
    ///
    /// A key that is confined to policies sees only these policies.
    LIST: "list_policies" of "policies", |it| it
        .json::<PolicyList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(caller: Caller<Auditor, ByHandler>, page: Page, admin: AdminData) -> HttpAnswer {
    let found = admin.policies(caller.policies(), page.limit, page.cursor());
    Ok(HttpResponse::Ok().json(PolicyList::new(found.await?, policy_answer)))
}

describe! {
    /// Archive a policy: it takes no more claims, and its history stays.
    ARCHIVE: "archive_policy" of "policies", |it| it
        .json::<PolicyAnswer>(200, "Archived. The answer has the last version.")
        .problem(412, "`precondition-failed`: the policy has another version.")
        .follows("put_policy", 201, POLICY)
}
pub async fn archive(
    caller: Caller<Admin>,
    policy: PolicyPath,
    IfMatch(precondition): IfMatch,
    reason: Reason,
    admin: AdminData,
) -> HttpAnswer {
    let edited = admin
        .archive_policy(policy.0.clone(), reason.0, precondition, caller.key())
        .await?
        .map_err(|error| (policy.0, error))?;
    Ok(HttpResponse::Ok().json(policy_answer(edited.after)))
}

describe! {
    /// List all versions of a policy, newest first.
    ///
    /// Each version says who made it, when and why. The policy may be archived.
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
