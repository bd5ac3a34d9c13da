//! Exports of grants.

use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::mpsc::Receiver;
use utoipa::IntoParams;

use super::caller::{Auditor, Caller, InQuery};
use super::error::ApiError;
use super::extract::{EngineData, Faults, engine};
use super::grants::{GrantBody, GrantFilterQuery};
use super::openapi::{Faults4xx, Faults5xx, Faults404};
use super::query::Query;
use super::words;
use crate::chain::Chain;
use crate::domain::grant::Grant;
use crate::ledger::LedgerError;

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
    /// `true`: those that an observing policy would have denied.
    #[param(value_type = Option<words::OnlyTrue>)]
    would_deny: Option<String>,
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
    caller: Caller<Auditor, InQuery>,
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
        would_deny,
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
        would_deny,
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
    let pages = engine(&data).export(&caller.key(), filter).await?;
    let name = format!("attachment; filename=\"grants.{}\"", format.extension());
    Ok(HttpResponse::Ok()
        .content_type(format.content_type())
        .insert_header((header::CONTENT_DISPOSITION, name))
        .streaming(rendered(pages, format, data.now())))
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
    let header = stream::iter([format.header()]);
    let bytes = stream::StreamExt::chain(header, rest);
    // An empty piece would end a chunked body.
    stream::StreamExt::filter(bytes, |bytes| {
        std::future::ready(!bytes.as_ref().is_ok_and(Bytes::is_empty))
    })
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
