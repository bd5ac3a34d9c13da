//! Grants: one, lists and exports.

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc::Receiver;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::error::ApiError;
use super::extract::{Caller, EngineData, Faults, Query, decoded, engine};
use super::openapi::{Faults4xx, Faults5xx, Faults404};
use super::words;
use crate::chain::Chain;
use crate::domain::claim::{IdempotencyKey, Subject};
use crate::domain::grant::{Grant, GrantState, Provisional};
use crate::domain::policy::PolicyName;
use crate::engine::GrantQuery;
use crate::ledger::{LedgerError, ProvisionalScope};

/// A grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantBody {
    /// A UUIDv7: ids are in the order of grants.
    #[schema(example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")]
    id: Uuid,
    #[schema(example = "benefit")]
    policy: String,
    /// The version of the policy that granted it.
    #[schema(example = 1)]
    policy_version: u32,
    /// Null once the subject was erased.
    #[schema(example = "member-42")]
    subject: Option<String>,
    #[schema(example = 1)]
    units: u64,
    /// `held`, `granted`, `reversed` or `lapsed`.
    #[schema(value_type = words::GrantState, example = "granted")]
    state: &'static str,
    #[schema(example = "2026-11-21T03:04:05.678Z")]
    granted_at: DateTime<Utc>,
    /// `true` where Redis alone decided it, and the ledger recorded it afterwards. Absent
    /// otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    provisional: bool,
    /// `true` where it went over a limit, as only a provisional grant can. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false, example = false)]
    over: bool,
    /// What the claim brought.
    #[schema(value_type = Option<Object>, example = json!({ "order": "A-17" }))]
    metadata: Option<Box<RawValue>>,
}

impl From<&Grant> for GrantBody {
    fn from(grant: &Grant) -> Self {
        let entry = &grant.entry;
        let metadata = entry.metadata.as_ref();
        Self {
            id: entry.id.0,
            policy: grant.policy.to_string(),
            policy_version: entry.line.policy_version,
            subject: grant.subject.clone(),
            units: entry.units.get(),
            state: entry.state().as_str(),
            granted_at: entry.granted_at(),
            provisional: entry.provisional.is_some(),
            over: entry.provisional == Some(Provisional::Over),
            metadata: metadata
                .and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok()),
        }
    }
}

/// A page of grants.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantList {
    items: Vec<GrantBody>,
    /// Where the next page begins; null on the last. It stays right while new grants come in.
    next_cursor: Option<String>,
}

/// Which grants to list. Filters combine.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantFilterQuery {
    /// Those of a policy, archived or not.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Those of a subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
    /// Those granted at this instant or later.
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<String>,
    /// Those granted before this instant.
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<String>,
    /// `held`, `granted`, `reversed` or `lapsed`.
    #[param(value_type = Option<words::GrantState>)]
    state: Option<String>,
    /// Those that bear this key.
    #[param(pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#)]
    idempotency_key: Option<String>,
    /// `true`: those that Redis alone decided.
    #[param(value_type = Option<words::OnlyTrue>)]
    provisional: Option<String>,
    /// `true`: those of them that went over a limit.
    #[param(value_type = Option<words::OnlyTrue>)]
    over: Option<String>,
    /// Items a page: 1 to 1000; 100 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
    /// The `next_cursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9_-]+$")]
    cursor: Option<String>,
}

/// Which grants to export, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// `csv` or `ndjson`.
    #[param(value_type = words::ExportFormat, example = "csv")]
    format: Option<String>,
    /// Those of a policy, archived or not.
    #[param(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    policy: Option<String>,
    /// Those of a subject.
    #[param(
        min_length = 1,
        max_length = 256,
        pattern = "^[^\\u0000-\\u001F\\u007F-\\u009F]*$"
    )]
    subject: Option<String>,
    /// Those granted at this instant or later.
    #[param(value_type = Option<DateTime<Utc>>)]
    from: Option<String>,
    /// Those granted before this instant.
    #[param(value_type = Option<DateTime<Utc>>)]
    to: Option<String>,
    /// `held`, `granted`, `reversed` or `lapsed`.
    #[param(value_type = Option<words::GrantState>)]
    state: Option<String>,
    /// Those that bear this key.
    #[param(pattern = r#"^([!#-~]([ -~]{0,253}[!-~])?|"([ !#-\[\]-~]|\\["\\]){1,255}")$"#)]
    idempotency_key: Option<String>,
    /// `true`: those that Redis alone decided.
    #[param(value_type = Option<words::OnlyTrue>)]
    provisional: Option<String>,
    /// `true`: those of them that went over a limit.
    #[param(value_type = Option<words::OnlyTrue>)]
    over: Option<String>,
}

impl GrantFilterQuery {
    fn check(&self, faults: &mut Faults) -> GrantQuery {
        GrantQuery {
            policy: faults.parameter("policy", self.policy.as_ref(), PolicyName::new),
            subject: faults.parameter("subject", self.subject.as_ref(), Subject::new),
            from: faults.instant("from", self.from.as_ref()),
            to: faults.instant("to", self.to.as_ref()),
            state: faults.parameter("state", self.state.as_ref(), parse_state),
            key: faults.parameter(
                "idempotency_key",
                self.idempotency_key.as_ref(),
                IdempotencyKey::parse,
            ),
            provisional: self.provisional(faults),
        }
    }

    fn provisional(&self, faults: &mut Faults) -> Option<ProvisionalScope> {
        let all = faults.parameter("provisional", self.provisional.as_ref(), parse_true);
        let over = faults.parameter("over", self.over.as_ref(), parse_true);
        let all = all.map(|()| ProvisionalScope::All);
        over.map(|()| ProvisionalScope::Over).or(all)
    }
}

fn parse_true(text: &str) -> Result<(), &'static str> {
    match text {
        "true" => Ok(()),
        _ => Err("write true, or leave it out"),
    }
}

fn parse_state(text: &str) -> Result<GrantState, String> {
    let found = GrantState::ALL
        .into_iter()
        .find(|state| state.as_str() == text);
    found.ok_or_else(|| {
        let names = GrantState::ALL.map(GrantState::as_str);
        format!("a state is one of {}", names.join(", "))
    })
}

/// One grant.
#[utoipa::path(
    get, path = "/v1/grants/{id}", operation_id = "get_grant", tag = "grants",
    params(("id" = Uuid, Path, example = "0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42")),
    responses(
        (status = 200, description = "The grant.", body = GrantBody),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn get(
    _caller: Caller,
    request: actix_web::HttpRequest,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let id = Uuid::parse_str(&decoded(&request, "id"));
    let id = id.map_err(|_| ApiError::invalid("id", "a grant's id is a UUID"))?;
    let grant = engine(&data).grant(id).await?;
    let grant = grant.ok_or(ApiError::NotFound("there is no grant with this id"))?;
    Ok(HttpResponse::Ok().json(GrantBody::from(&grant)))
}

/// Grants, newest first.
#[utoipa::path(
    get, path = "/v1/grants", operation_id = "list_grants", tag = "grants",
    params(GrantFilterQuery),
    responses(
        (status = 200, description = "A page.", body = GrantList),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn list(
    _caller: Caller,
    query: Query<GrantFilterQuery>,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let mut faults = Faults::default();
    let filter = query.0.check(&mut faults);
    let limit = faults.limit(query.0.limit.as_ref());
    let filter = faults.or(Some(filter))?;
    let cursor = query.0.cursor.as_deref();
    let page = engine(&data).grants(filter, limit, cursor).await?;
    Ok(HttpResponse::Ok().json(GrantList {
        items: page.grants.iter().map(GrantBody::from).collect(),
        next_cursor: page.next_cursor,
    }))
}

/// Export grants, newest first, as they stand at one instant.
///
/// CSV (RFC 4180) or one JSON object a line, streamed. A CSV cell that a spreadsheet would
/// take for a formula has an apostrophe before it.
#[utoipa::path(
    get, path = "/v1/grants/export", operation_id = "export_grants", tag = "grants",
    params(ExportQuery),
    responses(
        (status = 200, description = "The grants.", content(
            (String = "text/csv"),
            (String = "application/x-ndjson"),
        )),
        Faults4xx, Faults404, Faults5xx,
    ),
)]
pub async fn export(
    _caller: Caller,
    query: Query<ExportQuery>,
    data: EngineData,
) -> Result<HttpResponse, ApiError> {
    let ExportQuery {
        format,
        policy,
        subject,
        from,
        to,
        state,
        idempotency_key,
        provisional,
        over,
    } = query.0;
    let filter = GrantFilterQuery {
        policy,
        subject,
        from,
        to,
        state,
        idempotency_key,
        provisional,
        over,
        limit: None,
        cursor: None,
    };
    let mut faults = Faults::default();
    let format = match format.as_deref() {
        Some("csv") => Some(Format::Csv),
        Some("ndjson") => Some(Format::Ndjson),
        Some(_) | None => {
            let detail = "write format=csv or format=ndjson";
            faults.add(super::error::InvalidPart::parameter("format", detail));
            None
        }
    };
    let filter = filter.check(&mut faults);
    let (format, filter) = faults.or(format.map(|format| (format, filter)))?;
    let pages = engine(&data).export(filter).await?;
    let name = format!("attachment; filename=\"grants.{}\"", format.extension());
    Ok(HttpResponse::Ok()
        .content_type(format.content_type())
        .insert_header((header::CONTENT_DISPOSITION, name))
        .streaming(rendered(pages, format)))
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Csv,
    Ndjson,
}

const CSV_COLUMNS: [&str; 10] = [
    "id",
    "policy",
    "policy_version",
    "subject",
    "units",
    "state",
    "granted_at",
    "metadata",
    "provisional",
    "over",
];

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    fn header(self) -> Result<Bytes, RenderError> {
        match self {
            Self::Csv => csv_lines([CSV_COLUMNS.map(str::to_owned)].into_iter()),
            Self::Ndjson => Ok(Bytes::new()),
        }
    }

    fn page(self, grants: &[Grant]) -> Result<Bytes, RenderError> {
        match self {
            Self::Csv => csv_lines(grants.iter().map(csv_cells)),
            Self::Ndjson => {
                let mut lines = Vec::new();
                for grant in grants {
                    serde_json::to_writer(&mut lines, &GrantBody::from(grant))?;
                    lines.push(b'\n');
                }
                Ok(lines.into())
            }
        }
    }
}

/// Why an export broke off. The client sees a body without its end.
#[derive(Debug, thiserror::Error)]
enum RenderError {
    #[error("the ledger failed")]
    Ledger(#[from] LedgerError),
    #[error("a page could not be written as CSV")]
    Csv(#[from] csv::Error),
    #[error("a page could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// The header and the pages, as they come.
fn rendered(
    pages: Receiver<Result<Vec<Grant>, LedgerError>>,
    format: Format,
) -> impl stream::Stream<Item = Result<Bytes, RenderError>> {
    let rest = stream::unfold(pages, move |mut pages| async move {
        let page = pages.recv().await?;
        let bytes = page
            .map_err(RenderError::from)
            .and_then(|grants| format.page(&grants))
            .inspect_err(|error| tracing::error!(error = %Chain(error), "an export broke off"));
        Some((bytes, pages))
    });
    let header = stream::iter([format.header()]);
    let bytes = stream::StreamExt::chain(header, rest);
    // An empty piece would end a chunked body.
    stream::StreamExt::filter(bytes, |bytes| {
        std::future::ready(!bytes.as_ref().is_ok_and(Bytes::is_empty))
    })
}

fn csv_lines(rows: impl Iterator<Item = [String; 10]>) -> Result<Bytes, RenderError> {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    for row in rows {
        writer.write_record(row)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(bytes.into())
}

fn csv_cells(grant: &Grant) -> [String; 10] {
    let body = GrantBody::from(grant);
    [
        body.id.to_string(),
        body.policy,
        body.policy_version.to_string(),
        safe_cell(body.subject.unwrap_or_default()),
        body.units.to_string(),
        body.state.to_owned(),
        body.granted_at
            .to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
        body.metadata
            .map_or(String::new(), |json| json.get().to_owned()),
        body.provisional.to_string(),
        body.over.to_string(),
    ]
}

/// A cell that no spreadsheet takes for a formula (OWASP, "CSV Injection"): what begins like
/// one gets an apostrophe before it.
fn safe_cell(text: String) -> String {
    let begins_like_one =
        text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    match begins_like_one {
        true => format!("'{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_no_formulas() {
        for formula in ["=1+1", "+1", "-1", "@A1", "＝1", "\t=1"] {
            assert_eq!(safe_cell(formula.to_owned()), format!("'{formula}"));
        }
        assert_eq!(safe_cell("member-42".to_owned()), "member-42");
    }
}
