//! Reversals and confirmations of grants.

use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use tokio::time::timeout_at;
use utoipa::ToSchema;

use crate::domain::forecast::Forecast;
use crate::domain::grant::{Followers, Grant, Note};
use crate::domain::policy::check_reason;
use crate::engine::{Admission, Correction, Undecided};
use crate::http::answer::{ApiError, GrantBody, HttpAnswer, LimitUsage, entered};
use crate::http::request::{Body, ByHandler, Caller, Claimer, EngineData, OptionalBody, path_id};

/// The reason for which a grant is reversed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReversalRequest {
    /// The reason: 1 to 1000 characters.
    #[schema(example = "SMS gateway refused", min_length = 1, max_length = 1000)]
    reason: String,
}

/// An empty object. The body is optional: the URL says everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmationRequest {}

/// A grant that was corrected, now or before.
#[derive(Debug, Serialize, ToSchema)]
pub struct CorrectionAnswer {
    grant: GrantBody,
    /// The policy's limits after the correction, in the policy's order.
    limits: Vec<LimitUsage>,
}

/// Reverse a grant: give its units back.
///
/// The units are given back to the windows in which they were granted, even if these windows have
/// ended. A grant is reversed once: a repeated request answers 200 with the first reversal. A hold
/// can be reversed too.
///
/// Roles: `claim`, `admin`.
#[utoipa::path(
    post, path = "/v1/grants/{id}/reversal", operation_id = "reverse_grant", tag = "grants",
    request_body = ReversalRequest,
    responses(
        (status = 201, description = "Reversed.", body = CorrectionAnswer),
        (status = 200, description = "Already reversed.", body = CorrectionAnswer),
        (status = 409, description = "`hold-lapsed`: the hold lapsed, and its units were given back then."),
    ),
)]
pub async fn reverse(
    caller: Caller<Claimer, ByHandler>,
    body: Body<ReversalRequest>,
    request: HttpRequest,
    engine: EngineData,
) -> HttpAnswer {
    let admission = engine.admit(&caller.key())?;
    let grant = find(&caller, &request, &engine, &admission).await?;
    let reason = body.0.reason;
    check_reason(&reason).map_err(|detail| ApiError::invalid_body("/reason", detail))?;
    let correction = Correction::Reversal;
    correct(&caller, grant, correction, Some(reason), &engine, admission).await
}

/// Confirm a hold: its units stay taken.
///
/// A repeated request answers 200 with the first confirmation.
///
/// Roles: `claim`, `admin`.
#[utoipa::path(
    post, path = "/v1/grants/{id}/confirmation", operation_id = "confirm_grant", tag = "grants",
    responses(
        (status = 201, description = "Confirmed.", body = CorrectionAnswer),
        (status = 200, description = "Already confirmed.", body = CorrectionAnswer),
        (status = 409, description = "`not-a-hold`: the grant is not a hold; `grant-reversed`: the hold was reversed, and its units were given back."),
        (status = 410, description = "`hold-lapsed`: the hold was not confirmed in time; `archived`: the grant was archived and dropped."),
    ),
)]
pub async fn confirm(
    caller: Caller<Claimer, ByHandler>,
    _body: OptionalBody<ConfirmationRequest>,
    request: HttpRequest,
    engine: EngineData,
) -> HttpAnswer {
    let admission = engine.admit(&caller.key())?;
    let grant = find(&caller, &request, &engine, &admission).await?;
    let correction = Correction::Confirmation;
    correct(&caller, grant, correction, None, &engine, admission).await
}

async fn find(
    caller: &Caller<Claimer, ByHandler>,
    request: &HttpRequest,
    engine: &EngineData,
    admission: &Admission,
) -> Result<Grant, ApiError> {
    let id = path_id(request, "a grant's id")?;
    let grant = timeout_at(admission.deadline, engine.grant(id)).await;
    let grant = grant.map_err(|_| Undecided::Deadline)??;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    caller.may_use(&grant.policy)?;
    Ok(grant)
}

async fn correct(
    caller: &Caller<Claimer, ByHandler>,
    grant: Grant,
    correction: Correction,
    reason: Option<String>,
    engine: &EngineData,
    admission: Admission,
) -> HttpAnswer {
    let note = Note {
        by: caller.key(),
        reason,
    };
    let claimed_by = caller.key_number();
    let correcting = engine.correct(admission, &grant, correction, claimed_by, note);
    let outcome = correcting.await?;
    let (subject, units) = (grant.subject.as_deref(), grant.entry.units);
    let not_denied = Forecast::default();
    let (entry, is_repeat) = entered(outcome, not_denied, subject, units, engine.now())?;
    let forecast = match is_repeat {
        true => Forecast::default(),
        false => engine.foretell_entry(&grant.policy, &entry).await,
    };
    let mut response = match is_repeat {
        true => HttpResponse::Ok(),
        false => HttpResponse::Created(),
    };
    let followers = match correction {
        // The hold may have been confirmed after it was read and before its reversal.
        Correction::Reversal if grant.entry.held_until().is_some() => {
            engine.followers(&grant.entry).await?
        }
        Correction::Reversal | Correction::Confirmation => {
            Followers::among(grant.entry.id, [&entry])
        }
    };
    let grant = Grant { followers, ..grant };
    Ok(response.json(CorrectionAnswer {
        grant: GrantBody::new(&grant, engine.now()),
        limits: LimitUsage::foretold(&entry.line.totals, &forecast),
    }))
}
