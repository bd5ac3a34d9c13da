//! Manifests. A manifest describes an export of entries, so that anyone can check a file of it.

use std::collections::BTreeMap;

use actix_web::web::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::history::{HistoryItem, KeyName};
use crate::domain::local_days::InForce;
use crate::domain::policy::Policy;
use crate::engine::{Act, ExportEnd, ExportPiece, InstantSpan, RecordedEntry};
use crate::http::answer::{ExportFormat, csv_lines, json_lines, words};

/// An act of export.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ExportAct {
    #[schema(value_type = words::ExportFormat, example = "csv")]
    pub format: String,
    /// The export has the entries up to this position.
    #[schema(example = 1842)]
    pub as_of: u64,
    /// The parameters of the request, without `format` and `as_of`.
    #[schema(example = json!({ "policy": "benefit", "on": "2026-11-03" }))]
    pub filters: BTreeMap<String, String>,
    /// The names of the parameters that named a subject who was erased since. Their values are
    /// deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub erased: Vec<String>,
}

/// The description of an export, and who exported.
#[derive(Debug, Serialize, ToSchema)]
pub struct Manifest {
    /// The number of the change that records the export: see `/v1/changes`.
    #[schema(example = 42)]
    revision: u64,
    #[serde(flatten)]
    act: ExportAct,
    /// Where the filters limit the instants in whose windows the entries count: the first instant.
    /// Null for no bound.
    counted_from: Option<DateTime<Utc>>,
    /// The instant before which the entries count. Null for no bound.
    counted_to: Option<DateTime<Utc>>,
    /// The versions of the rows' policies that were in force in that span, as known at the position
    /// `as_of`.
    policies: Vec<PolicyInForce>,
    /// The number of rows of each kind of entry.
    #[schema(example = json!({ "grant": 12, "reversal": 1 }))]
    rows: BTreeMap<&'static str, u64>,
    /// The sum of the units that the rows add to the usage.
    #[schema(value_type = u64, example = 12)]
    units_taken: u128,
    /// The sum of the units that the rows give back.
    #[schema(value_type = u64, example = 1)]
    units_given_back: u128,
    /// The number of rows whose texts were erased since. The file then has other bytes than before.
    rows_erased: u64,
    /// The position of the first row; null without rows.
    first_position: Option<u64>,
    /// The position of the last row; null without rows.
    last_position: Option<u64>,
    /// The SHA-256 of all bytes of the file; for NDJSON, of all lines before the manifest.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    /// The newest seal that covers all these positions: a signed checkpoint. The end of an export waits
    /// for it, at most 20 seconds. Null where it did not come, or nothing is sealed.
    seal: Option<String>,
    exported_at: DateTime<Utc>,
    /// Who exported: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    exported_by: String,
    /// The key that exported. Absent for `PERDIEM_ADMIN_KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyName>,
}

/// A version of a policy that was in force.
#[derive(Debug, Serialize, ToSchema)]
pub struct PolicyInForce {
    #[schema(example = "benefit")]
    policy: String,
    #[schema(example = 1)]
    version: u32,
    #[schema(example = "Asia/Shanghai")]
    time_zone: String,
    /// When the version took effect.
    effective_at: DateTime<Utc>,
}

impl PolicyInForce {
    fn all(versions: &[Policy], span: InstantSpan) -> impl Iterator<Item = Self> {
        let in_force = InForce::of(versions).into_iter();
        let in_force = in_force.filter(move |it| it.from < span.to && span.from < it.until);
        in_force.map(|InForce { version, .. }| Self {
            policy: version.name.to_string(),
            version: version.version,
            time_zone: version.rule.calendar.zone.name().to_owned(),
            effective_at: version.effective_at,
        })
    }
}

/// The last line of an export as NDJSON.
#[derive(Serialize)]
struct ManifestLine {
    manifest: Manifest,
}

const CSV_COLUMNS: [&str; 19] = [
    "position",
    "recorded_at",
    "policy",
    "subject",
    "counted_on",
    "number",
    "id",
    "kind",
    "units",
    "at",
    "counted_at",
    "grant",
    "by",
    "reason",
    "policy_version",
    "limits",
    "key_id",
    "key_name",
    "metadata",
];

/// The act of an export, as recorded and as parsed, with its key.
pub struct ExportMade {
    pub act: Act,
    pub about: ExportAct,
    pub key: Option<KeyName>,
}

/// Writes the bytes of an export, and collects what the manifest needs.
pub struct ExportFile {
    made: ExportMade,
    format: ExportFormat,
    span: InstantSpan,
    hasher: Sha256,
    rows: BTreeMap<&'static str, u64>,
    units_taken: u128,
    units_given_back: u128,
    rows_erased: u64,
    first_position: Option<u64>,
    last_position: Option<u64>,
}

impl ExportFile {
    pub fn new(made: ExportMade, format: ExportFormat, span: Option<InstantSpan>) -> Self {
        Self {
            made,
            format,
            span: span.unwrap_or(InstantSpan::ALL),
            hasher: Sha256::new(),
            rows: BTreeMap::new(),
            units_taken: 0,
            units_given_back: 0,
            rows_erased: 0,
            first_position: None,
            last_position: None,
        }
    }

    /// The bytes before the rows.
    pub fn header(&mut self) -> Bytes {
        let header = match self.format {
            ExportFormat::Csv => csv_lines([CSV_COLUMNS.map(str::to_owned)].into_iter()),
            ExportFormat::Ndjson => Bytes::new(),
        };
        self.hasher.update(&header);
        header
    }

    /// The next bytes. In NDJSON the manifest follows the rows.
    pub fn piece(&mut self, piece: ExportPiece<RecordedEntry, ExportEnd>) -> Bytes {
        match (piece, self.format) {
            (ExportPiece::Rows(entries), _) => self.rows(entries),
            (ExportPiece::End(_), ExportFormat::Csv) => Bytes::new(),
            (ExportPiece::End(end), ExportFormat::Ndjson) => {
                let manifest = self.manifest(&end);
                json_lines([ManifestLine { manifest }].iter())
            }
        }
    }

    pub fn rows(&mut self, entries: Vec<RecordedEntry>) -> Bytes {
        let erased = entries.iter().filter(|it| it.listed.entry.is_erased);
        self.rows_erased += erased.count() as u64;
        let items: Vec<HistoryItem> = entries.into_iter().map(HistoryItem::from).collect();
        for item in &items {
            *self.rows.entry(item.entry.kind).or_default() += 1;
            let units = u128::from(item.entry.units.unsigned_abs());
            match item.entry.units {
                0.. => self.units_taken += units,
                ..0 => self.units_given_back += units,
            }
            self.first_position = self.first_position.or(Some(item.position));
            self.last_position = Some(item.position);
        }
        let bytes = match self.format {
            ExportFormat::Csv => csv_lines(items.iter().map(csv_cells)),
            ExportFormat::Ndjson => json_lines(items.iter()),
        };
        self.hasher.update(&bytes);
        bytes
    }

    /// The manifest. Call it after all rows were written.
    pub fn manifest(&self, end: &ExportEnd) -> Manifest {
        let act = &self.made.act;
        let span = self.span;
        let policies = end.versions.iter();
        let policies = policies.flat_map(|versions| PolicyInForce::all(versions, span));
        let sha256 = self.hasher.clone().finalize();
        Manifest {
            revision: act.revision,
            act: self.made.about.clone(),
            counted_from: Some(span.from).filter(|from| *from != InstantSpan::ALL.from),
            counted_to: Some(span.to).filter(|to| *to != InstantSpan::ALL.to),
            policies: policies.collect(),
            rows: self.rows.clone(),
            units_taken: self.units_taken,
            units_given_back: self.units_given_back,
            rows_erased: self.rows_erased,
            first_position: self.first_position,
            last_position: self.last_position,
            sha256: sha256.iter().map(|byte| format!("{byte:02x}")).collect(),
            seal: end.seal.clone(),
            exported_at: act.at,
            exported_by: act.by.clone(),
            key: self.made.key.clone(),
        }
    }
}

fn csv_cells(item: &HistoryItem) -> [String; 19] {
    let written = |instant: DateTime<Utc>| instant.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    let entry = &item.entry;
    let key = item.key.as_ref();
    let metadata = item.metadata.as_ref();
    [
        item.position.to_string(),
        written(item.recorded_at),
        item.policy.clone(),
        item.subject.clone().unwrap_or_default(),
        item.counted_on.to_string(),
        entry.number.to_string(),
        entry.id.to_string(),
        entry.kind.to_owned(),
        entry.units.to_string(),
        written(entry.at),
        written(entry.counted_at),
        entry
            .grant
            .map(|grant| grant.to_string())
            .unwrap_or_default(),
        entry.by.clone().unwrap_or_default(),
        entry.reason.clone().unwrap_or_default(),
        entry.policy_version.to_string(),
        serde_json::json!(entry.limits).to_string(),
        key.map(|key| key.id.to_string()).unwrap_or_default(),
        key.map(|key| key.name.clone()).unwrap_or_default(),
        metadata
            .map(|json| json.get().to_owned())
            .unwrap_or_default(),
    ]
}
