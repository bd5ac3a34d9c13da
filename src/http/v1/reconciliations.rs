//! Reconciliations and their reports.

use actix_web::HttpResponse;
use actix_web::http::header;

use crate::answer::{ApiError, HttpAnswer};
use crate::operation::{ID, describe};
use crate::request::{Admin, AuditData, Auditor, Body, Caller, Page, ReportPath};
use api::reconciliations::{
    ReconciliationAnswer, ReconciliationBody, ReconciliationList, ReconciliationReport,
};

describe! {
    /// Run a reconciliation: compare the counters with the ledger, and check the ledger.
    ///
    /// Each counter in Redis is compared with its account's last entry, and each account's totals with the sums
    /// of its entries. The figures of one closed day of one policy, chosen at random, are counted again. Claims
    /// continue meanwhile. A long reconciliation continues after the answer, also when the client leaves. An
    /// instance runs one at a time. `apply` requires the role `admin`.
    POST: "reconcile" of "reconciliations", |it| it
        .json::<ReconciliationAnswer>(201, "Done.")
        .header::<String>("Location", "The URL of the report.")
        .json::<ReconciliationAnswer>(202, "In progress: the report so far.")
        .header::<String>("Location", "The URL of the report.")
        .problem(409, "`reconciliation-in-progress`: this instance already runs a reconciliation.")
}
pub async fn post(
    caller: Caller<Auditor>,
    body: Body<ReconciliationBody>,
    audit: AuditData,
) -> HttpAnswer {
    if body.0.apply {
        caller.must_be::<Admin>()?;
    }
    let report = audit.reconcile(body.0.apply, caller.key()).await?;
    let mut response = match report.0.finished {
        Some(_) => HttpResponse::Created(),
        None => HttpResponse::Accepted(),
    };
    let location = format!("/v1/reconciliations/{}", report.0.started.id);
    Ok(response
        .insert_header((header::LOCATION, location))
        .json(ReconciliationAnswer::from(report)))
}

describe! {
    /// Show a report.
    ///
    /// One without `finished_at` is in progress, or its instance ended before.
    GET: "get_reconciliation" of "reconciliations", |it| it
        .json::<ReconciliationAnswer>(200, "The report.")
        .is_about_nobody()
        .follows("reconcile", 201, ID)
}
pub async fn get(_caller: Caller<Auditor>, id: ReportPath, audit: AuditData) -> HttpAnswer {
    let report = audit.reconciliation(id.0).await?;
    let report = report.ok_or(ApiError::NotFound("there is no report with this id"))?;
    Ok(HttpResponse::Ok().json(ReconciliationAnswer::from(report)))
}

describe! {
    /// List the reports, newest first, without their differences.
    ///
    /// A single report has its differences.
    LIST: "list_reconciliations" of "reconciliations", |it| it
        .json::<ReconciliationList>(200, "A page.")
        .is_about_nobody()
}
pub async fn list(_caller: Caller<Auditor>, page: Page, audit: AuditData) -> HttpAnswer {
    let found = audit.reconciliations(page.limit, page.cursor()).await?;
    Ok(HttpResponse::Ok().json(ReconciliationList::new(found, ReconciliationReport::from)))
}
