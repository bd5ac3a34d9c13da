//! Reversals and confirmations of grants.

use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use tokio::time::timeout_at;
use utoipa::ToSchema;

use super::body::{Body, OptionalBody};
use super::caller::{ByHandler, Caller, Claimer};
use super::denial::Asked;
use super::error::{ApiError, Problem};
use super::extract::{EngineData, Faults, engine, path_id};
use super::grants::GrantBody;
use super::limits::LimitUsage;
use super::openapi::{Faults4xx, Faults5xx, Faults404, FaultsBody};
use crate::domain::grant::{Followers, Grant, Note};
use crate::domain::policy::check_reason;
use crate::engine::{Admission, Correction, Outcome, Undecided};

/// Why a grant is reversed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReversalRequest {
    /// Why: 1 to 1000 characters.
    #[schema(example = "SMS gateway refused", min_length = 1, max_length = 1000)]
    reason: String,
}

/// Nothing: a confirmation says all by its URL. Clients that always send an object may.
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
/// They are given back to the windows in which they were granted, also to those that have ended.
/// Once: repeated, it answers 200 with what the first one did. A held grant can be reversed too.
///
/// Roles: `claim`, `admin`.
#[utoipa::path(
    post, path = "/v1/grants/{id}/reversal", operation_id = "reverse_grant", tag = "grants",
    params(("id" = uuid::Uuid, Path, example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")),
    request_body = ReversalRequest,
    responses(
        (status = 201, description = "Reversed.", body = CorrectionAnswer),
        (status = 200, description = "Reversed before.", body = CorrectionAnswer),
        (status = 409, description = "`hold-lapsed`: its units were given back when it lapsed.", body = Problem, content_type = "application/problem+json"),
        FaultsBody, Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn reverse(
    caller: Caller<Claimer, ByHandler>,
    body: Body<ReversalRequest>,
    request: HttpRequest,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let admission = data.admit(&caller.key())?;
    let grant = find(&caller, &request, &data, &admission).await?;
    let mut faults = Faults::default();
    let reason = faults.body("/reason", check_reason(&body.0.reason));
    faults.or(reason)?;
    let (correction, reason) = (Correction::Reversal, Some(body.0.reason));
    correct(&caller, grant, correction, reason, &data, admission).await
}

/// Confirm a hold: its units stay taken.
///
/// Repeated, it answers 200 with what the first one did.
///
/// Roles: `claim`, `admin`.
#[utoipa::path(
    post, path = "/v1/grants/{id}/confirmation", operation_id = "confirm_grant", tag = "grants",
    params(("id" = uuid::Uuid, Path, example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")),
    responses(
        (status = 201, description = "Confirmed.", body = CorrectionAnswer),
        (status = 200, description = "Confirmed before.", body = CorrectionAnswer),
        (status = 409, description = "`not-a-hold`: there is nothing to confirm; `grant-reversed`: its units were given back.", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`hold-lapsed`: it was not confirmed in time.", body = Problem, content_type = "application/problem+json"),
        FaultsBody, Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn confirm(
    caller: Caller<Claimer, ByHandler>,
    _body: OptionalBody<ConfirmationRequest>,
    request: HttpRequest,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let admission = data.admit(&caller.key())?;
    let grant = find(&caller, &request, &data, &admission).await?;
    let correction = Correction::Confirmation;
    correct(&caller, grant, correction, None, &data, admission).await
}

async fn find(
    caller: &Caller<Claimer, ByHandler>,
    request: &HttpRequest,
    data: &EngineData,
    admission: &Admission,
) -> Result<Grant, ApiError> {
    let id = path_id(request, "a grant's id")?;
    let grant = timeout_at(admission.deadline, engine(data).grant(id)).await;
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
    data: &EngineData,
    admission: Admission,
) -> Result<HttpResponse, ApiError> {
    let note = Note {
        by: caller.key(),
        reason,
    };
    let claimed_by = caller.key_number();
    let correcting = data.correct(admission, &grant, correction, claimed_by, note);
    let outcome = correcting.await?;
    let (entry, mut response) = match outcome {
        Outcome::Entered(entry) => (entry, HttpResponse::Created()),
        Outcome::Repeated(entry) => (entry, HttpResponse::Ok()),
        Outcome::KeyReused => return Err(ApiError::KeyReused),
        Outcome::Refused(policy, refusal) => {
            let asked = Asked {
                policy,
                subject: grant.subject.unwrap_or_default(),
                units: grant.entry.units,
                now: data.now(),
            };
            return Err(ApiError::refused(asked, refusal));
        }
    };
    let followers = match correction {
        // A hold may have been confirmed between the look at it and its reversal.
        Correction::Reversal if grant.entry.held_until().is_some() => {
            engine(data).followers(&grant.entry).await?
        }
        Correction::Reversal | Correction::Confirmation => {
            Followers::among(grant.entry.id, [&entry])
        }
    };
    let grant = Grant { followers, ..grant };
    Ok(response.json(CorrectionAnswer {
        grant: GrantBody::new(&grant, data.now()),
        limits: entry.line.totals.iter().map(LimitUsage::from).collect(),
    }))
}
