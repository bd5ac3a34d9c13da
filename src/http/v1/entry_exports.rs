//! Exports of entries, and their manifests.

use std::collections::BTreeMap;
use std::convert::Infallible;

use actix_web::http::{Method, header};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use super::exports::ExportQuery;
use super::history::HistoryFilterQuery;
use super::manifests::{ExportFile, ExportMade};
use crate::answer::{ApiError, Forbidden, HttpAnswer, file_answer, streamed};
use crate::operation::describe;
use crate::request::{
    AdminData, Auditor, ByHandler, Caller, Faults, InQuery, MetadataQuery, Query, RecordData,
    RevisionPath, SpanQuery, parse_position,
};
use api::exports::{ExportAct, Manifest};
use api::format::ExportFormat;
use domain::claim::Subject;
use domain::reads::ReadKind;
use engine::{Act, AsOf, EntryExport, ExportPiece, Failure, HistoryQuery, LedgerError};

/// The parameters of a query by their names, without the format.
type Filters = BTreeMap<String, String>;

/// The query of an export. Its parameters are kept as they are, because the act of the export records them.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct EntryExportQuery(Filters);

impl IntoParams for EntryExportQuery {
    fn into_params(parameter_in: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        [
            ExportQuery::into_params(&parameter_in),
            RecordedExportQuery::into_params(&parameter_in),
            HistoryFilterQuery::into_params(&parameter_in),
            SpanQuery::into_params(&parameter_in),
            MetadataQuery::into_params(&parameter_in),
        ]
        .concat()
    }
}

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
async fn made(admin: &AdminData, act: Act) -> Result<ExportMade, ApiError> {
    let about = serde_json::from_str(&act.about).map_err(|error| {
        let what = format!("the act {}: {error}", act.revision);
        Failure::from(LedgerError::Corrupt(what))
    })?;
    let key = match act.by.parse() {
        Ok(id) => admin.key(id).await?,
        Err(_) => None,
    };
    Ok(ExportMade {
        act,
        about,
        key: key.map(|found| found.key.into()),
    })
}

/// An export that was recorded before.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "read by the derive")]
struct RecordedExportQuery {
    /// The revision of an earlier export, to get its rows again with the key that made it. `after` leaves out
    /// rows at the beginning; all other parameters can be left out, and must be those of that export.
    #[param(value_type = Option<u64>)]
    export: Option<String>,
}

impl ExportMade {
    /// Checks that a caller may read the rows of this export again, and that no given parameter asks
    /// for another export.
    fn check_again(&self, caller: &str, given: &Filters) -> Result<(), ApiError> {
        if self.act.by != caller {
            return Err(Forbidden::OtherExporter.into());
        }
        let about = &self.about;
        let is_same = |name: &str, value: &String| match name {
            "format" => about.format == *value,
            "as_of" => about.as_of.to_string() == *value,
            name => about.filters.get(name) == Some(value),
        };
        match given.iter().find(|(name, value)| !is_same(name, value)) {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::invalid(
                "export",
                format!("this export was made without this value of {name}: leave {name} out"),
            )),
        }
    }

    /// The format and the query of this export, to read its rows again.
    fn query(&self) -> Result<(ExportFormat, HistoryQuery), ApiError> {
        if !self.about.erased.is_empty() {
            return Err(ApiError::NotFound(ERASED));
        }
        let mut faults = Faults::default();
        let format = ExportFormat::parse(&self.about.format);
        let history = parse_filters(&self.about.filters, &mut faults)?;
        let (format, history) = faults.or(format.ok().map(|format| (format, history)))?;
        let as_of = Some(AsOf::Position(self.about.as_of));
        Ok((format, HistoryQuery { as_of, ..history }))
    }
}

/// Streams the rows of an export. The act names the manifest. `HEAD` gets no rows.
fn answer(
    caller: &Caller<Auditor, InQuery>,
    request: &HttpRequest,
    record: &RecordData,
    (made, format, export): (ExportMade, ExportFormat, EntryExport),
) -> HttpResponse {
    let link = format!("</v1/exports/{}>; rel=\"describedby\"", made.act.revision);
    let mut answer = file_answer(format, "entries");
    answer
        .insert_header((header::LINK, link))
        .insert_header(("Perdiem-As-Of", export.as_of));
    if request.method() == Method::HEAD {
        return answer.streaming(stream::empty::<Result<Bytes, Infallible>>());
    }
    let mut file = ExportFile::new(made, format, export.span);
    let header = file.header();
    let authority = caller.authority(&record.callers);
    answer.streaming(streamed(export.pieces, header, authority, move |piece| {
        file.piece(piece)
    }))
}

describe! {
    /// Export entries in the order of the record, up to a position.
    ///
    /// CSV (RFC 4180) has every cell quoted, for programs. The last line of NDJSON is the manifest:
    /// `{"manifest": {…}}`; that of CSV is at the URL in `Link`. An export without its end was interrupted:
    /// continue with the same `as_of`, and with the position of the last whole row as `after`. The same filters
    /// and the same `as_of` give the same bytes, except for the manifest and for subjects that were erased
    /// since. Each export is recorded as a change. `HEAD` records an export and sends no rows: `export` gets
    /// them, also from an instance that only reads.
    EXPORT: "export_entries" of "entries", |it| it
        .text(200, "The entries.", &["text/csv", "application/x-ndjson"])
        .header::<String>("Link", "The URL of the manifest, as `describedby`.")
        .header::<u64>("Perdiem-As-Of", "The export has the entries up to this position.")
        .needs_entries()
}
pub async fn export(
    caller: Caller<Auditor, InQuery>,
    query: Query<EntryExportQuery>,
    request: HttpRequest,
    admin: AdminData,
    record: RecordData,
) -> HttpAnswer {
    let mut filters = query.0.0;
    if let Some(revision) = filters.remove("export") {
        let again = export_again(&caller, &revision, filters, &admin, &record).await?;
        return Ok(answer(&caller, &request, &record, again));
    }
    // 1. Check the parameters, and report all wrong ones at once.
    let mut faults = Faults::default();
    let format = filters.remove("format").unwrap_or_default();
    let format = faults.parameter("format", Some(&format), ExportFormat::parse);
    let history = parse_filters(&filters, &mut faults)?;
    let (format, history) = faults.or(format.map(|format| (format, history)))?;
    // 2. Record the export as an act, with the position up to which it reads.
    if record.instance.is_read_only() {
        return Err(ApiError::Unrecorded);
    }
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
    let (act, export) = record.export_entries(&caller.key(), history, about).await?;
    // 3. Stream the rows.
    let begun = (made(&admin, act).await?, format, export);
    Ok(answer(&caller, &request, &record, begun))
}

/// Begins to read the rows of a recorded export again, or those after a position. `given` are the
/// other parameters.
async fn export_again(
    caller: &Caller<Auditor, InQuery>,
    revision: &String,
    mut given: Filters,
    admin: &AdminData,
    record: &RecordData,
) -> Result<(ExportMade, ExportFormat, EntryExport), ApiError> {
    let mut faults = Faults::default();
    let after = given.remove("after");
    let revision = faults.parameter("export", Some(revision), parse_position);
    let after = faults.parameter("after", after.as_ref(), parse_position);
    let revision = faults.or(revision)?;
    let act = record.export_act(revision).await?;
    let mut made = made(admin, act.ok_or(ApiError::NotFound(UNKNOWN))?).await?;
    made.check_again(&caller.key(), &given)?;
    let (format, mut history) = made.query()?;
    // The manifest describes the rows of this answer.
    if after > history.after {
        history.after = after;
        let after = after.map(|after| ("after".to_owned(), after.to_string()));
        made.about.filters.extend(after);
    }
    record_read(caller, record, &history).await?;
    let export = record.repeat_export(&caller.key(), history).await?;
    Ok((made, format, export))
}

describe! {
    /// Show the manifest of an export of entries.
    ///
    /// All rows are read again for it. A file whose bytes have another SHA-256 is incomplete, was changed, or
    /// names a subject that was erased since.
    MANIFEST: "get_export" of "entries", |it| it
        .json::<Manifest>(200, "The manifest.")
        .needs_entries()
}
pub async fn manifest(
    caller: Caller<Auditor, ByHandler>,
    revision: RevisionPath,
    admin: AdminData,
    record: RecordData,
) -> HttpAnswer {
    let act = record.export_act(revision.0).await?;
    let made = made(&admin, act.ok_or(ApiError::NotFound(UNKNOWN))?).await?;
    let (format, history) = made.query()?;
    match &history.policy {
        Some(policy) => caller.may_use(policy)?,
        None if caller.policies().is_some() => return Err(Forbidden::AllPolicies.into()),
        None => {}
    }
    let mut export = record.repeat_export(&caller.key(), history.clone()).await?;
    let mut file = ExportFile::new(made, format, export.span);
    file.header();
    while let Some(piece) = export.pieces.recv().await {
        match piece.map_err(Failure::from)? {
            ExportPiece::Rows(entries) => drop(file.rows(entries)),
            ExportPiece::End(end) => {
                record_read(&caller, &record, &history).await?;
                return Ok(HttpResponse::Ok().json(file.manifest(&end)));
            }
        }
    }
    Err(Failure::Interrupted.into())
}

/// Records a read of the rows of a recorded export, or of their hash.
async fn record_read<W, P>(
    caller: &Caller<W, P>,
    record: &RecordData,
    history: &HistoryQuery,
) -> Result<(), ApiError> {
    let kind = ReadKind::Entries;
    let policy = history.policy.as_ref();
    let subject = history.subject.as_ref().map(Subject::as_str);
    caller.record_read(record, kind, policy, subject).await
}

const ERASED: &str =
    "the export was about a subject that was erased since: its name is no longer known";
const UNKNOWN: &str = "there is no export with this revision";
