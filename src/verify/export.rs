//! Exports: a file, its manifest, and the record of the export.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::files::sha256_of;
use crate::rows::{Row, RowCutter};
use api::exports::{ExportAct, Manifest};
use domain::seal::leaf::hex;
use domain::seal::note::{Checkpoint, VerifierKey};
use domain::seal::proof::LogProof;

/// The word for the acts that record exports.
const EXPORT: &str = "export";

/// The member of a workbook's manifest that has the digest of the workbook. Its `sha256` is of the rows
/// as NDJSON, from which the workbook was made.
pub const WORKBOOK_SHA256: &str = "workbook_sha256";

/// What is counted of a row.
#[derive(Default, Deserialize)]
struct CountedRow {
    kind: String,
    units: i64,
}

#[derive(Debug, Default)]
struct Contents {
    sha256: String,
    rows: BTreeMap<String, u64>,
    units_taken: u128,
    units_given_back: u128,
    first_position: Option<u64>,
    last_position: Option<u64>,
}

impl Contents {
    fn read(file: &Path, is_csv: bool) -> anyhow::Result<Self> {
        let mut reader = File::open(file)?;
        let mut contents = Self::default();
        let mut hasher = Sha256::new();
        let mut cutter = RowCutter::new(is_csv);
        let mut names = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let count = reader.read(&mut bytes)?;
            if count == 0 {
                break;
            }
            hasher.update(&bytes[..count]);
            cutter.cut(&bytes[..count], |row, bytes| {
                match row {
                    Row::Header => names = csv_cells(bytes),
                    Row::Entry(position) => contents.add(position, CountedRow::read(bytes, &names)),
                    Row::Manifest => {}
                }
                Ok(())
            })?;
        }
        contents.sha256 = hex(&hasher.finalize());
        Ok(contents)
    }

    fn add(&mut self, position: u64, row: CountedRow) {
        let CountedRow { kind, units } = row;
        *self.rows.entry(kind).or_default() += 1;
        match units {
            0.. => self.units_taken += u128::from(units.unsigned_abs()),
            ..0 => self.units_given_back += u128::from(units.unsigned_abs()),
        }
        self.first_position = self.first_position.or(Some(position));
        self.last_position = Some(position);
    }

    /// The fields of a manifest that describe the file's contents: as found, and as recorded.
    fn compared(&self, manifest: &Manifest) -> [(&'static str, Value, Value); 5] {
        // No file has a number above 64 bits.
        let number = |units: u128| json!(u64::try_from(units).unwrap_or(u64::MAX));
        let taken = number(self.units_taken);
        let given_back = number(self.units_given_back);
        let first = json!(self.first_position);
        let last = json!(self.last_position);
        [
            ("rows", json!(self.rows), json!(manifest.rows)),
            ("units_taken", taken, number(manifest.units_taken)),
            (
                "units_given_back",
                given_back,
                number(manifest.units_given_back),
            ),
            ("first_position", first, json!(manifest.first_position)),
            ("last_position", last, json!(manifest.last_position)),
        ]
    }
}

impl CountedRow {
    /// Reads a row of NDJSON, or of CSV with these column names. A wrong row has another digest.
    fn read(row: &[u8], names: &[String]) -> Self {
        if names.is_empty() {
            return serde_json::from_slice(row).unwrap_or_default();
        }
        let cells = names.iter().map(String::as_str).zip(csv_cells(row));
        let mut cells: BTreeMap<&str, String> = cells.collect();
        let units = cells.get("units").and_then(|units| units.parse().ok());
        Self {
            kind: cells.remove("kind").unwrap_or_default(),
            units: units.unwrap_or_default(),
        }
    }
}

/// The cells of a row of CSV (RFC 4180).
fn csv_cells(row: &[u8]) -> Vec<String> {
    let mut cells = vec![Vec::new()];
    let mut is_quoted = false;
    let mut bytes = row.trim_ascii_end().iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if is_quoted && bytes.next_if(|next| **next == b'"').is_some() => {
                cells
                    .last_mut()
                    .into_iter()
                    .for_each(|cell| cell.push(b'"'));
            }
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => cells.push(Vec::new()),
            byte => cells
                .last_mut()
                .into_iter()
                .for_each(|cell| cell.push(*byte)),
        }
    }
    let cells = cells.into_iter();
    let cells = cells.map(|cell| String::from_utf8_lossy(&cell).into_owned());
    cells.collect()
}

/// An export whose file has what its manifest says.
pub struct CheckedExport {
    pub manifest: Manifest,
    /// The SHA-256 of the file.
    pub sha256: String,
}

impl CheckedExport {
    /// What was found, in words.
    pub fn told(&self, file: &Path) -> String {
        let name = file.display();
        format!("{name} matches its manifest, SHA-256 {}", self.sha256)
    }

    /// Checks that the manifest belongs to the change that a proof shows, and tells which one that is.
    ///
    /// # Errors
    /// The proof is wrong, or of something else.
    pub fn check_proof(&self, proof: &Path, key: &VerifierKey) -> anyhow::Result<String> {
        let recorded = RecordedExport::proven(proof, key)?;
        recorded.check(&self.manifest)?;
        let revision = recorded.revision;
        Ok(format!(
            "the proof belongs to this export: change {revision}"
        ))
    }
}

/// Checks a file by its manifest.
///
/// # Errors
/// The files cannot be read, or differ.
pub fn check_export(file: &Path, manifest: &Path) -> anyhow::Result<CheckedExport> {
    let document = fs::read_to_string(manifest);
    let document = document.with_context(|| format!("{} cannot be read", manifest.display()))?;
    let not_one = || format!("{} is not a manifest", manifest.display());
    let document: Value = serde_json::from_str(&document).with_context(not_one)?;
    let manifest: Manifest = api::read(&document).with_context(not_one)?;
    let sha256 = match document.get(WORKBOOK_SHA256).and_then(Value::as_str) {
        Some(recorded) => check_workbook(file, recorded)?,
        None => check_rows(file, &manifest)?,
    };
    Ok(CheckedExport { manifest, sha256 })
}

/// The change that recorded an export.
pub struct RecordedExport {
    pub revision: u64,
    /// The word for the kind of the act.
    pub kind: String,
    pub at: DateTime<Utc>,
    pub by: String,
    /// What was exported, as JSON.
    pub about: String,
}

/// The leaf of an act.
#[derive(Deserialize)]
struct ActLeaf {
    revision: u64,
    kind: String,
    changed_at: DateTime<Utc>,
    changed_by: String,
}

/// The private part of the leaf of an act.
#[derive(Deserialize)]
struct ActPrivate {
    about: String,
}

impl RecordedExport {
    /// The change as a proof shows it.
    fn proven(file: &Path, key: &VerifierKey) -> anyhow::Result<Self> {
        let named = || file.display().to_string();
        let proof = fs::read_to_string(file).with_context(named)?;
        let proof = LogProof::parse(&proof).with_context(named)?;
        let proven = proof.check(key).with_context(named)?;
        let Some(private) = proven.private else {
            bail!("{}: the proof does not contain what was exported", named());
        };
        let of_another = || format!("{}: the proof is not of an export", named());
        let leaf: ActLeaf = serde_json::from_value(proven.leaf).with_context(of_another)?;
        let private: ActPrivate = serde_json::from_value(private).with_context(of_another)?;
        Ok(Self {
            revision: leaf.revision,
            kind: leaf.kind,
            at: leaf.changed_at,
            by: leaf.changed_by,
            about: private.about,
        })
    }

    /// Checks that a manifest belongs to this export.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let revision = self.revision;
        ensure!(self.kind == EXPORT, "change {revision} is not an export");
        let about: ExportAct = serde_json::from_str(&self.about)
            .with_context(|| format!("the recorded export {revision} cannot be read"))?;
        let ExportAct {
            format,
            as_of,
            mut filters,
            ..
        } = manifest.act.clone();
        // A filter that named a subject who was erased since is no longer known.
        filters.retain(|name, _| !about.erased.contains(name));
        let by = &manifest.exported_by;
        let at = manifest.exported_at;
        for (name, found, recorded) in [
            ("revision", json!(manifest.revision), json!(revision)),
            ("format", json!(format), json!(about.format)),
            ("as_of", json!(as_of), json!(about.as_of)),
            ("filters", json!(filters), json!(about.filters)),
            ("exported_by", json!(by), json!(self.by)),
            ("exported_at", json!(at), json!(self.at)),
        ] {
            ensure!(
                found == recorded,
                "the manifest has {found} for {name}, but the recorded export has {recorded}: the \
                 manifest was changed"
            );
        }
        Ok(())
    }
}

fn check_digest(file: &Path, found: String, recorded: &str) -> anyhow::Result<String> {
    ensure!(
        found == recorded,
        "{} has the SHA-256 {found}, but its manifest has {recorded}: one of the two files was changed",
        file.display()
    );
    Ok(found)
}

/// Checks a workbook by the digest in its manifest.
fn check_workbook(file: &Path, recorded: &str) -> anyhow::Result<String> {
    let found = sha256_of(file)?;
    check_digest(file, found, recorded)
}

/// Checks the rows of a file by its manifest.
fn check_rows(file: &Path, manifest: &Manifest) -> anyhow::Result<String> {
    let contents = Contents::read(file, manifest.act.format == "csv");
    let contents = contents.with_context(|| format!("{} cannot be read", file.display()))?;
    let digest = check_digest(file, contents.sha256.clone(), &manifest.sha256)?;
    for (name, found, recorded) in contents.compared(manifest) {
        ensure!(
            found == recorded,
            "{} has {found} for {name}, but its manifest has {recorded}: the manifest was changed",
            file.display()
        );
    }
    Ok(digest)
}

/// Checks the seal of a manifest, and tells what it shows.
///
/// # Errors
/// The seal is wrong, or does not have the positions of the export.
pub fn check_seal(manifest: &Manifest, key: Option<&VerifierKey>) -> anyhow::Result<Vec<String>> {
    let Some(note) = &manifest.seal else {
        let told = "the manifest has no seal: it was made before its positions were sealed";
        return Ok(vec![told.to_owned()]);
    };
    let seal = Checkpoint::parse(note).context("the seal of the manifest")?;
    let mut told = Vec::new();
    match key {
        Some(key) => seal.check(key).context("the seal of the manifest")?,
        None => told.push("the signature was not checked: add --key".to_owned()),
    }
    let last = manifest.act.as_of;
    ensure!(
        last <= seal.size,
        "the manifest names position {last}, but its seal has only {} positions",
        seal.size
    );
    told.push(format!(
        "its positions are among the {} sealed positions of {}",
        seal.size, seal.origin
    ));
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_out_of_their_quotes() {
        let cells = csv_cells(b"\"12\",\"a \"\"b\"\",\r\nc\",,d\r\n");
        assert_eq!(cells, ["12", "a \"b\",\r\nc", "", "d"]);
    }
}
