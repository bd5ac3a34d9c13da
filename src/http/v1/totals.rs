//! What all subjects of a policy share.

use actix_web::HttpResponse;

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{POLICY, describe};
use crate::request::{Anyone, Caller, ClaimsData, PolicyPath};
use api::claims::TotalBody;
use api::limits::LimitUsage;

describe! {
    /// Show the limits that all subjects of a policy share, with their usage now.
    ///
    /// A policy sets them in `total`. The usage is read from the ledger.
    GET: "get_total" of "policies", |it| it
        .json::<TotalBody>(200, "The limits; none for a policy without them.")
        .is_about_nobody()
        .follows("put_policy", 201, POLICY)
}
pub async fn get(_caller: Caller<Anyone>, policy: PolicyPath, claims: ClaimsData) -> HttpAnswer {
    let total = claims.total(&policy.0).await?;
    let (policy, total) = total.ok_or_else(|| ApiError::UnknownPolicy(policy.0.to_string()))?;
    Ok(HttpResponse::Ok().json(TotalBody {
        policy: policy.name.to_string(),
        policy_version: policy.version,
        time_zone: policy.rule.calendar.zone.name().to_owned(),
        total: LimitUsage::shared(&total),
    }))
}
