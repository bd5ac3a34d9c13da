//! Exports of grants.

use actix_web::web::Bytes;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::IntoParams;

use super::grants::GrantFilterQuery;
use crate::answer::{HttpAnswer, csv_lines, file_answer, json_lines, streamed};
use crate::operation::describe;
use crate::request::{
    Auditor, Caller, Faults, InQuery, MetadataQuery, Query, RecordData, SpanQuery,
};
use api::format::ExportFormat;
use api::grants::GrantBody;
use api::instant::written;
use api::limits::levels_cell;
use api::words;
use domain::claim::Subject;
use domain::grant::Grant;
use domain::reads::ReadKind;
use engine::ExportPiece;

/// The format of an export of grants.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    #[param(value_type = words::ExportFormat, example = "csv")]
    format: Option<String>,
}

describe! {
    /// Export grants, newest first, with their state at one instant.
    ///
    /// CSV (RFC 4180) has every cell quoted, with the text as it is. For people, `perdiem export --xlsx` writes
    /// cells that no spreadsheet takes for numbers or formulas.
    EXPORT: "export_grants" of "grants", |it| it
        .text(200, "The grants.", &["text/csv", "application/x-ndjson"])
        .needs_entries()
}
pub async fn export(
    caller: Caller<Auditor, InQuery>,
    query: Query<ExportQuery>,
    filter: Query<GrantFilterQuery>,
    span: Query<SpanQuery>,
    metadata: Query<MetadataQuery>,
    record: RecordData,
) -> HttpAnswer {
    let mut faults = Faults::default();
    let format = query.0.format.unwrap_or_default();
    let format = faults.parameter("format", Some(&format), ExportFormat::parse);
    let filter = filter.0.check(&span.0, &metadata.0, &mut faults);
    let (format, filter) = faults.or(format.map(|format| (format, filter)))?;
    let policy = filter.policy.clone();
    let subject = filter.subject.clone();
    let pieces = record.export(&caller.key(), filter).await?;
    let subject = subject.as_ref().map(Subject::as_str);
    let read = caller.record_read(&record, ReadKind::Grants, policy.as_ref(), subject);
    read.await?;
    let header = match format {
        ExportFormat::Csv => csv_lines([CSV_COLUMNS.map(str::to_owned)].into_iter()),
        ExportFormat::Ndjson => Bytes::new(),
    };
    let now = record.instance.now();
    let render = move |piece| match piece {
        ExportPiece::Rows(grants) => page(format, &grants, now),
        ExportPiece::End(()) => Bytes::new(),
    };
    let rows = streamed(pieces, header, caller.authority(&record.callers), render);
    Ok(file_answer(format, "grants").streaming(rows))
}

const CSV_COLUMNS: [&str; 18] = [
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
    "returned_units",
    "crossed",
    "bundle",
    "topped_up_units",
];

fn page(format: ExportFormat, grants: &[Grant], now: DateTime<Utc>) -> Bytes {
    match format {
        ExportFormat::Csv => csv_lines(grants.iter().map(|grant| csv_cells(grant, now))),
        ExportFormat::Ndjson => json_lines(grants.iter().map(|grant| GrantBody::new(grant, now))),
    }
}

fn csv_cells(grant: &Grant, now: DateTime<Utc>) -> [String; 18] {
    let body = GrantBody::new(grant, now);
    let reversal = body.reversal.as_ref();
    [
        body.id.to_string(),
        body.policy,
        body.policy_version.to_string(),
        body.subject.unwrap_or_default(),
        body.units.to_string(),
        body.state.into_owned(),
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
        reversal.map_or_else(String::new, |reversal| reversal.reason.clone()),
        body.returned_units.to_string(),
        levels_cell(&body.crossed),
        body.bundle
            .map(|bundle| bundle.to_string())
            .unwrap_or_default(),
        body.topped_up_units.to_string(),
    ]
}
