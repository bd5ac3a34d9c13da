//! Exports of entries, and their manifests.

use std::collections::BTreeMap;

use actix_web::HttpResponse;
use actix_web::http::header;
use serde::Deserialize;

use super::exports::ExportQuery;
use super::history::{HistoryFilterQuery, KeyName};
use super::manifests::{ExportAct, ExportFile, ExportMade, Manifest};
use crate::domain::reads::ReadKind;
use crate::engine::{Act, AsOf, ExportPiece, Failure, HistoryQuery, LedgerError};
use crate::http::answer::{ApiError, ExportFormat, Forbidden, HttpAnswer, streamed};
use crate::http::request::{
    Auditor, ByHandler, Caller, EngineData, Faults, InQuery, MetadataQuery, Query, RevisionPath,
    SpanQuery,
};

/// The parameters of a query by their names, without the format.
type Filters = BTreeMap<String, String>;

fn parse_filters(filters: &Filters, faults: &mut Faults) -> Result<HistoryQuery, ApiError> {
    let filters = serde_json::json!(filters);
    let history = HistoryFilterQuery::deserialize(&filters);
    let span = SpanQuery::deserialize(&filters);
    let metadata = MetadataQuery::deserialize(&filters);
    match (history, span, metadata) {
        (Ok(history), Ok(span), Ok(metadata)) => Ok(history.check(&span, &metadata, faults)),
        // Every parameter is a text, so this does not happen.
        _ => Err(ApiError::Malformed("the query cannot be read".to_owned())),
    }
}

/// The details of an export's act, and the key that made it.
async fn made(engine: &EngineData, act: Act) -> Result<ExportMade, ApiError> {
    let about = serde_json::from_str(&act.about).map_err(|error| {
        let what = format!("the act {}: {error}", act.revision);
        Failure::from(LedgerError::Corrupt(what))
    })?;
    let key = match act.by.parse() {
        Ok(id) => engine.key(id).await?,
        Err(_) => None,
    };
    Ok(ExportMade {
        act,
        about,
        key: key.map(KeyName::from),
    })
}

/// Export entries in the order of the record, up to a position.
///
/// The formats are CSV (RFC 4180, every cell quoted, for programs) and NDJSON, one JSON object on
/// each line. The answer is streamed. The last line of NDJSON is the manifest: `{"manifest": {…}}`.
/// For CSV, read the manifest at the URL in `Link`. An export without its end was interrupted:
/// continue with the same `as_of`, and with the position of the last whole row as `after`. The same
/// filters and the same `as_of` give the same bytes, except for the manifest and for subjects that
/// were erased since. Each export is recorded as a change: see `/v1/changes`. A key that is
/// confined to policies must name one of them.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/entries/export", operation_id = "export_entries", tag = "entries",
    params(ExportQuery, HistoryFilterQuery, SpanQuery, MetadataQuery),
    responses(
        (status = 200, description = "The entries.",
            content(
                (String = "text/csv"),
                (String = "application/x-ndjson"),
            ),
            headers(
                ("Link" = String, description = "The URL of the manifest, as `describedby`."),
                ("Perdiem-As-Of" = u64, description = "The export has the entries up to this position."),
            ),
        ),
    ),
)]
pub async fn export(
    caller: Caller<Auditor, InQuery>,
    query: Query<Filters>,
    engine: EngineData,
) -> HttpAnswer {
    let mut filters = query.0;
    // 1. Check the parameters, and report all wrong ones at once.
    let mut faults = Faults::default();
    let format = filters.remove("format").unwrap_or_default();
    let format = faults.parameter("format", Some(&format), ExportFormat::parse);
    let history = parse_filters(&filters, &mut faults)?;
    let (format, history) = faults.or(format.map(|format| (format, history)))?;
    // 2. Record the export as an act, with the position up to which it reads.
    filters.remove("as_of");
    let about = |as_of| {
        let format = format.as_str().to_owned();
        let act = ExportAct {
            format,
            as_of,
            filters,
            erased: Vec::new(),
        };
        serde_json::json!(act).to_string()
    };
    let (act, export) = engine.export_entries(&caller.key(), history, about).await?;
    // 3. Stream the rows. The act names the manifest.
    let link = format!("</v1/exports/{}>; rel=\"describedby\"", act.revision);
    let mut file = ExportFile::new(made(&engine, act).await?, format, export.span);
    let header = file.header();
    let authority = caller.authority(&engine);
    let rows = streamed(export.pieces, header, authority, move |piece| {
        file.piece(piece)
    });
    Ok(format
        .answer("entries")
        .insert_header((header::LINK, link))
        .insert_header(("Perdiem-As-Of", export.as_of))
        .streaming(rows))
}

/// Show the manifest of an export of entries.
///
/// The service reads all rows again to make the manifest. A file whose bytes have another SHA-256
/// is incomplete, was changed, or names a subject that was erased since.
///
/// Roles: `audit`, `admin`.
#[utoipa::path(
    get, path = "/v1/exports/{revision}", operation_id = "get_export", tag = "entries",
    responses((status = 200, description = "The manifest.", body = Manifest)),
)]
pub async fn manifest(
    caller: Caller<Auditor, ByHandler>,
    revision: RevisionPath,
    engine: EngineData,
) -> HttpAnswer {
    let act = engine.export_act(revision.0).await?;
    let made = made(&engine, act.ok_or(ApiError::NotFound(UNKNOWN))?).await?;
    if !made.about.erased.is_empty() {
        return Err(ApiError::NotFound(ERASED));
    }
    let mut faults = Faults::default();
    let format = ExportFormat::parse(&made.about.format);
    let history = parse_filters(&made.about.filters, &mut faults)?;
    let (format, history) = faults.or(format.ok().map(|format| (format, history)))?;
    match &history.policy {
        Some(policy) => caller.may_use(policy)?,
        None if caller.policies().is_some() => return Err(Forbidden::AllPolicies.into()),
        None => {}
    }
    let history = HistoryQuery {
        as_of: Some(AsOf::Position(made.about.as_of)),
        ..history
    };
    let mut export = engine.repeat_export(&caller.key(), history.clone()).await?;
    let mut file = ExportFile::new(made, format, export.span);
    file.header();
    while let Some(piece) = export.pieces.recv().await {
        match piece.map_err(Failure::from)? {
            ExportPiece::Rows(entries) => drop(file.rows(entries)),
            ExportPiece::End(end) => {
                if let Some(subject) = &history.subject {
                    let (kind, policy) = (ReadKind::Entries, history.policy.as_ref());
                    let read = caller.record_read(&engine, kind, policy, subject.as_str());
                    read.await?;
                }
                return Ok(HttpResponse::Ok().json(file.manifest(&end)));
            }
        }
    }
    Err(Failure::Interrupted.into())
}

const ERASED: &str =
    "the export was about a subject that was erased since: its name is no longer known";
const UNKNOWN: &str = "there is no export with this revision";
