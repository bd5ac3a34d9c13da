//! Reconciliations and their reports.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::domain::limit::per::Per;
use crate::domain::reconciliation::{Figures, KeptDifference, Reconciliation, Tally};
use crate::http::answer::{ApiError, HttpAnswer, page, words};
use crate::http::request::{Admin, Auditor, Body, Caller, EngineData, Page, PageQuery, path_id};

/// How to run a reconciliation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconciliationBody {
    /// Whether to heal the counters that differ: they get the ledger's values. Without it, the
    /// reconciliation only reports. It never changes the ledger.
    #[serde(default)]
    #[schema(example = false)]
    apply: bool,
}

/// The report of a reconciliation.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReconciliationReport {
    /// A UUIDv7.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    id: Uuid,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    started_at: DateTime<Utc>,
    /// Null while the reconciliation runs. It stays null where the instance or the ledger failed
    /// meanwhile.
    finished_at: Option<DateTime<Utc>>,
    /// Whether the reconciliation heals counters.
    apply: bool,
    /// Who asked for it: a key's id, or `PERDIEM_ADMIN_KEY`; null for an automatic reconciliation.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    requested_by: Option<String>,
    /// Whether the counters were compared. `compared`: all of them. `absent`: the service has no
    /// Redis, and only the ledger was checked. `unavailable`: Redis was unavailable, and not all
    /// counters were compared. Null until the end.
    #[schema(value_type = Option<words::CountersCompared>, example = "compared")]
    counters: Option<&'static str>,
    /// The number of counters that were compared.
    #[schema(example = 40)]
    counter_count: u64,
    /// The number of accounts that were checked.
    #[schema(example = 42)]
    account_count: u64,
    /// The number of entries that were checked.
    #[schema(example = 97)]
    entry_count: u64,
    /// The number of differences, with the alarms.
    #[schema(example = 1)]
    difference_count: u64,
    /// The number of counters that were healed.
    #[schema(example = 0)]
    healed_count: u64,
    /// The number of alarms: differences within the ledger itself.
    #[schema(example = 0)]
    alarm_count: u64,
}

/// A report with its differences.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReconciliationAnswer {
    #[serde(flatten)]
    report: ReconciliationReport,
    /// The first 1000 differences.
    differences: Vec<DifferenceBody>,
}

/// A counter that differs from its account's last entry, an entry that does not fit the entries before
/// it, or a figure that the entries do not make.
#[derive(Debug, Serialize, ToSchema)]
pub struct DifferenceBody {
    /// Counters: `counter_too_high` and `counter_lags`: the counter's number is above or below that
    /// of the account's last entry; `counter_differs`: the counter differs in another way;
    /// `counter_unreadable`: the counter cannot be read; `counter_orphaned`: the ledger does not
    /// know the account. Alarms: `wrong_total`: a total is not the sum of the entries; `gap`:
    /// numbers are missing before this entry; `time_backwards`: the entry is earlier than the one
    /// before it; `foreign_entry`: the entry is not of an account that perdiem opened;
    /// `unreadable_entry`: the entry cannot be read; `wrong_figure`: a figure of a day is not what the
    /// entries make it.
    #[schema(value_type = words::DifferenceKind, example = "counter_too_high")]
    kind: &'static str,
    /// Whether this is a difference within the ledger itself. It is never healed.
    alarm: bool,
    /// Whether the counter was healed.
    healed: bool,
    /// Null for an account that the ledger does not know.
    #[schema(example = "benefit")]
    policy: Option<String>,
    /// Null for a figure, for an account that the ledger does not know, and after the subject was
    /// erased.
    #[schema(example = "member-42")]
    subject: Option<String>,
    /// The name of a wrong figure, as in `/v1/stats`; null for every other kind.
    #[schema(example = "units")]
    figure: Option<String>,
    /// The local date of a wrong figure; null for every other kind.
    #[schema(example = "2026-11-03")]
    date: Option<NaiveDate>,
    /// The account: a keyed hash of policy and subject. Null for a figure.
    #[schema(example = "5a0c8d1e-9b1f-8a77-1c22-6d5e4f3a2b10")]
    account: Option<Uuid>,
    /// The number that the counter or the entry has; or the wrong figure.
    #[schema(example = 9)]
    found_number: Option<u64>,
    /// The number that it should have: for a counter, the number of the account's last entry; for a
    /// figure, what the entries make it.
    #[schema(example = 3)]
    expected_number: Option<u64>,
    /// The windows whose units differ.
    windows: Vec<WindowFigures>,
}

/// The units that were found in a window, and the units that should be there.
#[derive(Debug, Serialize, ToSchema)]
pub struct WindowFigures {
    /// The limit's window.
    #[schema(value_type = words::LimitName, example = "day")]
    per: Per,
    #[schema(example = "2026-11-20T16:00:00Z")]
    window_start: DateTime<Utc>,
    /// The end of the window: the first instant after it.
    #[schema(example = "2026-11-21T16:00:00Z")]
    resets_at: DateTime<Utc>,
    /// The units in the counter or the entry; null where it does not have the window.
    #[schema(example = 9)]
    found: Option<u64>,
    /// The units in the account's last entry, or the sum of the entries.
    #[schema(example = 3)]
    expected: Option<u64>,
}

page! {
    /// A page of reports.
    ReconciliationList of ReconciliationReport
    /// The cursor of the next page; null on the last page.
}

impl From<Reconciliation> for ReconciliationReport {
    fn from(report: Reconciliation) -> Self {
        let Reconciliation { started, finished } = report;
        let tally = finished
            .as_ref()
            .map_or(Tally::default(), |finished| finished.tally);
        Self {
            id: started.id,
            started_at: started.started_at,
            finished_at: finished.as_ref().map(|finished| finished.finished_at),
            apply: started.apply,
            requested_by: started.requested_by,
            counters: finished.map(|finished| finished.counters.as_str()),
            counter_count: tally.counters,
            account_count: tally.accounts,
            entry_count: tally.entries,
            difference_count: tally.differences,
            healed_count: tally.healed,
            alarm_count: tally.alarms,
        }
    }
}

impl From<(Reconciliation, Vec<KeptDifference>)> for ReconciliationAnswer {
    fn from((report, differences): (Reconciliation, Vec<KeptDifference>)) -> Self {
        Self {
            report: report.into(),
            differences: differences.into_iter().map(DifferenceBody::from).collect(),
        }
    }
}

impl From<KeptDifference> for DifferenceBody {
    fn from(kept: KeptDifference) -> Self {
        let difference = kept.difference;
        let date = difference.figure.as_ref().map(|figure| figure.counted_on);
        Self {
            kind: difference.kind.as_str(),
            alarm: difference.kind.is_alarm(),
            healed: difference.is_healed,
            policy: kept.policy.map(|policy| policy.to_string()),
            subject: kept.subject,
            figure: difference.figure.map(|figure| figure.name),
            date,
            account: difference.account.map(|account| account.0),
            found_number: difference.found,
            expected_number: difference.expected,
            windows: difference.windows.iter().map(WindowFigures::from).collect(),
        }
    }
}

impl From<&Figures> for WindowFigures {
    fn from(figures: &Figures) -> Self {
        Self {
            per: figures.per,
            window_start: figures.window.start,
            resets_at: figures.window.end,
            found: figures.found,
            expected: figures.expected,
        }
    }
}

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
    let report = engine.reconcile(body.0.apply, caller.key()).await?;
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
    let report = engine.reconciliation(id).await?;
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
    let found = engine.reconciliations(page.limit, page.cursor()).await?;
    ReconciliationList::answer(found, ReconciliationReport::from)
}
