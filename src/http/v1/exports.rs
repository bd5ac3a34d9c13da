//! Exports of grants.

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::sync::mpsc::Receiver;
use utoipa::IntoParams;

use super::grants::GrantFilterQuery;
use crate::chain::Chain;
use crate::domain::grant::Grant;
use crate::engine::LedgerError;
use crate::http::answer::{GrantBody, HttpAnswer, words};
use crate::http::request::{Auditor, Caller, EngineData, Faults, InQuery, Query};

/// How to export grants.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// `csv` or `ndjson`.
    #[param(value_type = words::ExportFormat, example = "csv")]
    format: Option<String>,
}

/// Export grants, newest first, as they stand at one instant.
///
/// CSV (RFC 4180) or one JSON object a line, streamed. Every CSV cell is quoted; one that a
/// spreadsheet would take for a formula has an apostrophe before it. A key that is confined to
/// policies must name one of them.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/grants/export", operation_id = "export_grants", tag = "grants",
    params(ExportQuery, GrantFilterQuery),
    responses(
        (status = 200, description = "The grants.", content(
            (String = "text/csv"),
            (String = "application/x-ndjson"),
        )),
    ),
)]
pub async fn export(
    caller: Caller<Auditor, InQuery>,
    query: Query<ExportQuery>,
    filter: Query<GrantFilterQuery>,
    engine: EngineData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let format = query.0.format.unwrap_or_default();
    let format = faults.parameter("format", Some(&format), Format::parse);
    let filter = filter.0.check(&mut faults);
    let (format, filter) = faults.or(format.map(|format| (format, filter)))?;
    let pages = engine.export(&caller.key(), filter).await?;
    let name = format!("attachment; filename=\"grants.{}\"", format.extension());
    Ok(HttpResponse::Ok()
        .content_type(format.content_type())
        .insert_header((header::CONTENT_DISPOSITION, name))
        .streaming(rendered(pages, format, engine.now())))
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Csv,
    Ndjson,
}

const CSV_COLUMNS: [&str; 14] = [
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
    "would_deny",
    "held_until",
    "reversed_at",
    "reversal_reason",
];

impl Format {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "csv" => Ok(Self::Csv),
            "ndjson" => Ok(Self::Ndjson),
            _ => Err("write format=csv or format=ndjson"),
        }
    }

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

    fn page(self, grants: &[Grant], now: DateTime<Utc>) -> Result<Bytes, RenderError> {
        match self {
            Self::Csv => csv_lines(grants.iter().map(|grant| csv_cells(grant, now))),
            Self::Ndjson => {
                let mut lines = Vec::new();
                for grant in grants {
                    serde_json::to_writer(&mut lines, &GrantBody::new(grant, now))?;
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
    now: DateTime<Utc>,
) -> impl stream::Stream<Item = Result<Bytes, RenderError>> {
    let rest = stream::unfold(pages, move |mut pages| async move {
        let page = pages.recv().await?;
        let bytes = page
            .map_err(RenderError::from)
            .and_then(|grants| format.page(&grants, now))
            .inspect_err(|error| tracing::error!(error = %Chain(error), "an export broke off"));
        Some((bytes, pages))
    });
    let bytes = stream::iter([format.header()]).chain(rest);
    // An empty piece would end a chunked body.
    bytes.filter(|bytes| std::future::ready(!bytes.as_ref().is_ok_and(Bytes::is_empty)))
}

fn csv_lines(rows: impl Iterator<Item = [String; 14]>) -> Result<Bytes, RenderError> {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .quote_style(csv::QuoteStyle::Always)
        .from_writer(Vec::new());
    for row in rows {
        writer.write_record(row)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(bytes.into())
}

fn csv_cells(grant: &Grant, now: DateTime<Utc>) -> [String; 14] {
    let body = GrantBody::new(grant, now);
    let written = |instant: DateTime<Utc>| instant.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let reversal = body.reversal.as_ref();
    [
        body.id.to_string(),
        body.policy,
        body.policy_version.to_string(),
        safe_cell(body.subject.unwrap_or_default()),
        body.units.to_string(),
        body.state.to_owned(),
        written(body.granted_at),
        body.metadata
            .map_or(String::new(), |json| json.get().to_owned()),
        body.provisional.to_string(),
        body.over.to_string(),
        body.would_deny.to_string(),
        body.held_until.map(written).unwrap_or_default(),
        reversal
            .map(|reversal| written(reversal.at))
            .unwrap_or_default(),
        safe_cell(reversal.map_or_else(String::new, |reversal| reversal.reason.clone())),
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
