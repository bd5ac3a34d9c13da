//! Policies and their versions.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::api::orphans::OrphansBody;
use crate::api::policies::{PauseAnswer, PolicyAnswer, PolicyList};
use crate::api::problem::InvalidPart;
use crate::api::words;
use crate::domain::limit::draft::LimitDraft;
use crate::domain::policy::{Durability, OnLedgerOutage, RuleDraft};
use crate::engine::{PolicyChange, Precondition, Standing};
use crate::http::answer::{ApiError, HttpAnswer, versioned};
use crate::http::request::{
    Admin, Auditor, Body, ByHandler, Caller, EngineData, Faults, IfMatch, IfNoneMatch, Object,
    Page, PageQuery, PolicyPath, Query, Reason, ReasonQuery, Then, WholeNumber, parse_true,
};

/// A policy to create, or to replace another one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyBody {
    /// A text for people: at most 1000 characters.
    #[schema(example = "3 benefit claims per member per day", max_length = 1000)]
    description: Option<String>,
    /// The time zone of the policy: an IANA name, or a fixed offset written `+08:00`, `UTC+8` or
    /// `GMT+8`.
    #[schema(example = "Asia/Shanghai", format = "time-zone")]
    time_zone: String,
    /// One or more limits, no two with the same `per`.
    #[schema(value_type = Vec<LimitBody>, min_items = 1, max_items = 10)]
    limits: Vec<Object<LimitBody>>,
    /// The local time at which a day begins, as `HH:MM`. Default: midnight.
    #[schema(example = "00:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    day_starts_at: Option<String>,
    /// The first day of a week, as an English name in lower case. Default: `monday`.
    #[schema(value_type = Option<words::Weekday>, example = "monday")]
    week_starts_on: Option<String>,
    /// Before this instant the policy grants no claim.
    #[schema(value_type = Option<DateTime<Utc>>)]
    active_from: Option<String>,
    /// From this instant on the policy grants no claim.
    #[schema(value_type = Option<DateTime<Utc>>)]
    active_until: Option<String>,
    /// Leave it out: a pause has its own URL, and this request does not change it. A value that is not
    /// the present one is refused with 422.
    #[schema(example = false)]
    paused: Option<bool>,
    /// `enforce`: claims that do not fit are denied. `observe`: all claims are granted, up to 2^53
    /// − 1 units in a window, and those that would have been denied are marked. Default: `enforce`.
    #[schema(value_type = Option<words::Mode>, example = "enforce")]
    mode: Option<String>,
    /// `recorded`: a grant is committed to the ledger before the claim is answered. `counted`:
    /// Redis alone decides, and queues the grant for the ledger. A claim then does not wait for the
    /// ledger, but a grant is only as durable as Redis. Default: `recorded`.
    #[schema(value_type = Option<words::Durability>, example = "recorded")]
    durability: Option<String>,
    /// What happens to claims while the ledger cannot decide. `refuse`: they are answered with 503.
    /// `count`: Redis decides, perhaps over a limit, and the ledger records the grants afterwards.
    /// Default: `refuse`.
    #[schema(value_type = Option<words::OnLedgerOutage>, example = "refuse")]
    on_ledger_outage: Option<String>,
    /// When the change takes effect: `now`, or with `next_window` at the start of the policy's next
    /// local day. Default: `now`.
    #[schema(value_type = Option<words::Effective>, example = "now")]
    effective: Option<String>,
    /// The reason: 1 to 1000 characters. Required when a policy is replaced.
    #[schema(example = "campaign 7", min_length = 1, max_length = 1000)]
    reason: Option<String>,
    /// What becomes of overrides that the change leaves without their limit, or beyond its bounds.
    /// `drop`: they end, when the change takes effect. `keep`: they stay, and have no effect on the
    /// limits that they lost. Required if there are such overrides.
    #[schema(value_type = Option<words::OnOrphans>, example = "keep")]
    orphaned_overrides: Option<String>,
}

/// `max` units `per` window.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitBody {
    /// The most units in a window.
    #[schema(value_type = u64, example = 3, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    max: WholeNumber,
    /// `minute`, `hour`, `day`, `week`, `month`, `year` or `ever`; or a duration from 1s to 400d,
    /// such as `24h`. A duration requires a `kind`.
    #[schema(value_type = words::LimitName, example = "day")]
    per: String,
    /// Required for a duration. `from_first_claim`: all units return together, one duration after
    /// the first grant. `sliding`: each unit returns one duration after it was taken. `rate`: units
    /// return evenly.
    #[schema(value_type = Option<words::LimitKind>, example = "sliding")]
    kind: Option<String>,
    /// For `sliding`: instants are rounded up to multiples of this duration. It divides `per` into
    /// at most 100 parts. Without it, `max` is at most 100.
    #[schema(example = "1h", pattern = "^[0-9]+[smhd]$")]
    step: Option<String>,
    /// For `rate`: the most units at once. Default: `max`.
    #[schema(value_type = Option<u64>, example = 20, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    burst: Option<WholeNumber>,
}

impl From<Standing> for PolicyAnswer {
    fn from(standing: Standing) -> Self {
        Self {
            in_force_version: Some(standing.in_force.version),
            pause: standing.pause.map(PauseAnswer::from),
            ..standing.newest.into()
        }
    }
}

impl PolicyBody {
    pub fn check(self, has_counters: bool) -> Result<PolicyChange, ApiError> {
        let mut faults = Faults::default();
        let active_from = faults.body_instant("/active_from", self.active_from.as_ref());
        let active_until = faults.body_instant("/active_until", self.active_until.as_ref());
        let effective = self.effective.as_deref().unwrap_or("now").parse();
        let effective = faults.body("/effective", effective);
        faults.reason(self.reason.as_ref());
        let on_orphans = self.orphaned_overrides.as_deref().map(str::parse);
        let on_orphans = faults.body("/orphaned_overrides", on_orphans.transpose());
        let limits = self.limits.into_iter().map(|Object(limit)| LimitDraft {
            max: limit.max.0,
            per: limit.per,
            kind: limit.kind,
            step: limit.step,
            burst: limit.burst.map(|burst| burst.0),
        });
        let draft = RuleDraft {
            description: self.description,
            time_zone: self.time_zone,
            limits: limits.collect(),
            day_starts_at: self.day_starts_at,
            week_starts_on: self.week_starts_on,
            active_from,
            active_until,
            paused: false,
            mode: self.mode,
            durability: self.durability,
            on_ledger_outage: self.on_ledger_outage,
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
            reason: self.reason,
            paused: self.paused,
            on_orphans,
        })
    }
}

/// Whether to change the policy, or only to show the change.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PutQuery {
    /// `true`: change nothing, and show what the policy would become.
    #[param(value_type = Option<words::OnlyTrue>)]
    dry_run: Option<String>,
}

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
///
/// Roles: `admin`.
#[utoipa::path(
    put, path = "/v1/policies/{policy}", operation_id = "put_policy", tag = "policies",
    params(IfMatch, IfNoneMatch, PutQuery),
    request_body = PolicyBody,
    responses(
        (status = 201, description = "Created, or revived.", body = PolicyAnswer, headers(("ETag" = String))),
        (status = 200, description = "Replaced, or not changed; or the result of a dry run.", body = PolicyAnswer, headers(("ETag" = String))),
        (status = 409, description = "`orphaned-overrides`: the change leaves overrides without their limit, or beyond its bounds."),
        (status = 412, description = "`precondition-failed`: the policy has another version."),
    ),
)]
pub async fn put(
    caller: Caller<Admin>,
    query: Query<PutQuery>,
    Then(body, (policy, precondition)): Then<Body<PolicyBody>, (PolicyPath, Precondition)>,
    engine: EngineData,
) -> HttpAnswer {
    let dry_run = query.0.dry_run.as_deref().map(parse_true).transpose();
    let dry_run = dry_run.map_err(|error| ApiError::invalid("dry_run", error))?;
    let dry_run = dry_run.is_some();
    let change = body.0.check(engine.has_counters())?;
    let name = policy.0.clone();
    let edited = engine
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
        ..edited.after.into()
    }))
}

/// Show a policy in its newest version. The ETag is the version.
///
/// The newest version may not be in force yet: see `effective_at`.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}", operation_id = "get_policy", tag = "policies",
    responses((status = 200, description = "The policy.", body = PolicyAnswer, headers(("ETag" = String)))),
)]
pub async fn get(_caller: Caller<Auditor>, policy: PolicyPath, engine: EngineData) -> HttpAnswer {
    let found = engine.policy(policy.0.clone()).await?;
    let found = found.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    let mut response = versioned(StatusCode::OK, found.newest.version);
    Ok(response.json(PolicyAnswer::from(found)))
}

/// List the policies that are not archived, by name.
///
/// A key that is confined to policies sees only these policies.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies", operation_id = "list_policies", tag = "policies",
    params(PageQuery),
    responses((status = 200, description = "A page.", body = PolicyList)),
)]
pub async fn list(
    caller: Caller<Auditor, ByHandler>,
    page: Page,
    engine: EngineData,
) -> HttpAnswer {
    let found = engine.policies(caller.policies(), page.limit, page.cursor());
    Ok(HttpResponse::Ok().json(PolicyList::new(found.await?, PolicyAnswer::from)))
}

/// Archive a policy: it takes no more claims, and its history stays.
///
/// Roles: `admin`.
#[utoipa::path(
    delete, path = "/v1/policies/{policy}", operation_id = "archive_policy", tag = "policies",
    params(IfMatch, ReasonQuery),
    responses(
        (status = 200, description = "Archived. The answer has the last version.", body = PolicyAnswer),
        (status = 412, description = "`precondition-failed`: the policy has another version."),
    ),
)]
pub async fn archive(
    caller: Caller<Admin>,
    policy: PolicyPath,
    precondition: Precondition,
    reason: Reason,
    engine: EngineData,
) -> HttpAnswer {
    let edited = engine
        .archive_policy(policy.0.clone(), reason.0, precondition, caller.key())
        .await?
        .map_err(|error| (policy.0, error))?;
    Ok(HttpResponse::Ok().json(PolicyAnswer::from(edited.after)))
}

/// List all versions of a policy, newest first.
///
/// Each version says who made it, when and why. The policy may be archived.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}/versions", operation_id = "list_policy_versions", tag = "policies",
    params(PageQuery),
    responses((status = 200, description = "A page.", body = PolicyList)),
)]
pub async fn versions(
    _caller: Caller<Auditor>,
    policy: PolicyPath,
    page: Page,
    engine: EngineData,
) -> HttpAnswer {
    let versions = engine.versions(policy.0.clone(), page.limit, page.cursor());
    let versions = versions.await?;
    if versions.0.is_empty() && page.cursor().is_none() {
        return Err(ApiError::UnknownPolicy(policy.0.to_string()));
    }
    Ok(HttpResponse::Ok().json(PolicyList::new(versions, PolicyAnswer::from)))
}
