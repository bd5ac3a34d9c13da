//! Reconciliations and their reports.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

use crate::api::reconciliations::ReconciliationBody;
use crate::api::reconciliations::{ReconciliationAnswer, ReconciliationList, ReconciliationReport};
use crate::http::answer::{ApiError, HttpAnswer};
use crate::http::request::{Admin, Auditor, Body, Caller, EngineData, Page, PageQuery, path_id};

/// Run a reconciliation: compare the counters with the ledger, and check the ledger.
///
/// Each counter in Redis is compared with its account's last entry. Each account's totals are
/// compared with the sums of its entries. The figures of one closed day of one policy, chosen at
/// random, are counted again. Claims continue meanwhile. A long reconciliation continues after the
/// answer, also when the client leaves: read its report at the URL in `Location`. An instance runs
/// one reconciliation at a time. Healing the counters (`apply`) requires the role `admin`.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    post, path = "/v1/reconciliations", operation_id = "reconcile", tag = "reconciliations",
    request_body = ReconciliationBody,
    responses(
        (status = 201, description = "Done. The answer has the report.", body = ReconciliationAnswer, headers(
            ("Location" = String, description = "The URL of the report."),
        )),
        (status = 202, description = "In progress. The answer has the report so far.", body = ReconciliationAnswer, headers(
            ("Location" = String, description = "The URL of the report."),
        )),
        (status = 409, description = "`reconciliation-in-progress`: this instance already runs a reconciliation."),
    ),
)]
pub async fn post(
    caller: Caller<Auditor>,
    body: Body<ReconciliationBody>,
    engine: EngineData,
) -> HttpAnswer {
    if body.0.apply {
        caller.must_be::<Admin>()?;
    }
    let report = engine.audit.reconcile(body.0.apply, caller.key()).await?;
    let mut response = match report.0.finished {
        Some(_) => HttpResponse::Created(),
        None => HttpResponse::Accepted(),
    };
    let location = format!("/v1/reconciliations/{}", report.0.started.id);
    Ok(response
        .insert_header((header::LOCATION, location))
        .json(ReconciliationAnswer::from(report)))
}

/// Show a report.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/reconciliations/{id}", operation_id = "get_reconciliation", tag = "reconciliations",
    responses((status = 200, description = "The report.", body = ReconciliationAnswer)),
)]
pub async fn get(_caller: Caller<Auditor>, request: HttpRequest, engine: EngineData) -> HttpAnswer {
    let id = path_id(&request, "a report's id")?;
    let report = engine.audit.reconciliation(id).await?;
    let report = report.ok_or(ApiError::NotFound("there is no report with this id"))?;
    Ok(HttpResponse::Ok().json(ReconciliationAnswer::from(report)))
}

/// List the reports, newest first, without their differences.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/reconciliations", operation_id = "list_reconciliations", tag = "reconciliations",
    params(PageQuery),
    responses((status = 200, description = "A page.", body = ReconciliationList)),
)]
pub async fn list(_caller: Caller<Auditor>, page: Page, engine: EngineData) -> HttpAnswer {
    let found = engine
        .audit
        .reconciliations(page.limit, page.cursor())
        .await?;
    Ok(HttpResponse::Ok().json(ReconciliationList::new(found, ReconciliationReport::from)))
}
