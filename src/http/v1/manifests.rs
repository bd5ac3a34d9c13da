//! Manifests. A manifest describes an export of entries, so that anyone can check a file of it.

use std::collections::BTreeMap;

use actix_web::web::Bytes;
use sha2::{Digest, Sha256};

use super::history::history_item;
use crate::answer::{csv_lines, json_lines};
use api::entries::HistoryItem;
use api::exports::{ExportAct, Manifest, ManifestLine, PolicyInForce};
use api::format::ExportFormat;
use api::instant::written;
use api::keys::KeyName;
use api::limits::levels_cell;
use api::words::Word;
use domain::local_days::InForce;
use domain::policy::Policy;
use domain::seal::leaf::hex;
use engine::{Act, ExportEnd, ExportPiece, InstantSpan, RecordedEntry};

fn in_force(versions: &[Policy], span: InstantSpan) -> impl Iterator<Item = PolicyInForce> {
    let in_force = InForce::of(versions).into_iter();
    let in_force = in_force.filter(move |it| it.from < span.to && span.from < it.until);
    in_force.map(|InForce { version, .. }| PolicyInForce {
        policy: version.name.to_string(),
        version: version.version,
        time_zone: version.rule.calendar.zone.name().to_owned(),
        effective_at: version.effective_at,
    })
}

const CSV_COLUMNS: [&str; 28] = [
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
    "held_until",
    "grant",
    "per",
    "by",
    "reason",
    "policy_version",
    "crossed",
    "limits",
    "key_id",
    "key_name",
    "metadata",
    "bundle",
    "own_time_zone",
    "anchor",
    "topped_up_units",
    "top_up",
    "top_up_until",
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
    rows: BTreeMap<Word, u64>,
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
        let items: Vec<HistoryItem> = entries.into_iter().map(history_item).collect();
        for item in &items {
            *self.rows.entry(item.entry.kind.clone()).or_default() += 1;
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
        let policies = policies.flat_map(|versions| in_force(versions, span));
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
            sha256: hex(&sha256),
            seal: end.seal.clone(),
            exported_at: act.at,
            exported_by: act.by.clone(),
            key: self.made.key.clone(),
        }
    }
}

fn csv_cells(item: &HistoryItem) -> [String; 28] {
    let entry = &item.entry;
    let own = entry.calendar.clone().unwrap_or_default();
    let top_up = entry.top_up.as_ref();
    let topped_up = Some(entry.topped_up_units).filter(|units| *units > 0);
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
        entry.kind.clone().into_owned(),
        entry.units.to_string(),
        written(entry.at),
        written(entry.counted_at),
        entry.held_until.map(written).unwrap_or_default(),
        entry
            .grant
            .map(|grant| grant.to_string())
            .unwrap_or_default(),
        entry.per.clone().unwrap_or_default(),
        entry.by.clone().unwrap_or_default(),
        entry.reason.clone().unwrap_or_default(),
        entry.policy_version.to_string(),
        levels_cell(&entry.crossed),
        serde_json::json!(entry.limits).to_string(),
        key.map(|key| key.id.to_string()).unwrap_or_default(),
        key.map(|key| key.name.clone()).unwrap_or_default(),
        metadata
            .map(|json| json.get().to_owned())
            .unwrap_or_default(),
        entry
            .bundle
            .map(|bundle| bundle.to_string())
            .unwrap_or_default(),
        own.time_zone.unwrap_or_default(),
        own.anchor
            .map(|anchor| anchor.to_string())
            .unwrap_or_default(),
        topped_up.map(|units| units.to_string()).unwrap_or_default(),
        top_up.map(|it| it.id.to_string()).unwrap_or_default(),
        top_up
            .and_then(|it| it.until)
            .map(written)
            .unwrap_or_default(),
    ]
}
