//! Exports of entries, and their manifests.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::keys::KeyName;
use super::reading::flattened;
use super::words::{self, Word};

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
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Manifest {
    /// The number of the change that records the export: see `/v1/changes`.
    #[schema(example = 42)]
    pub revision: u64,
    #[serde(flatten, deserialize_with = "flattened")]
    pub act: ExportAct,
    /// Where the filters limit the instants in whose windows the entries count: the first instant.
    /// Null for no bound.
    pub counted_from: Option<DateTime<Utc>>,
    /// The instant before which the entries count. Null for no bound.
    pub counted_to: Option<DateTime<Utc>>,
    /// The versions of the rows' policies that were in force in that span, as known at the position
    /// `as_of`.
    pub policies: Vec<PolicyInForce>,
    /// The number of rows of each kind of entry.
    #[schema(value_type = BTreeMap<String, u64>, example = json!({ "grant": 12, "reversal": 1 }))]
    pub rows: BTreeMap<Word, u64>,
    /// The sum of the units that the rows add to the usage.
    #[schema(value_type = u64, example = 12)]
    pub units_taken: u128,
    /// The sum of the units that the rows give back.
    #[schema(value_type = u64, example = 1)]
    pub units_given_back: u128,
    /// The number of rows whose texts were erased since. The file then has other bytes than before.
    pub rows_erased: u64,
    /// The position of the first row; null without rows.
    pub first_position: Option<u64>,
    /// The position of the last row; null without rows.
    pub last_position: Option<u64>,
    /// The SHA-256 of all bytes of the file; for NDJSON, of all lines before the manifest.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
    /// The newest seal that covers all these positions: a signed checkpoint. The end of an export waits
    /// for it, at most 20 seconds. Null where it did not come, or nothing is sealed.
    pub seal: Option<String>,
    pub exported_at: DateTime<Utc>,
    /// Who exported: a key's id, or `PERDIEM_ADMIN_KEY`.
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub exported_by: String,
    /// The key that exported. Absent for `PERDIEM_ADMIN_KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyName>,
}

/// A version of a policy that was in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyInForce {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = 1)]
    pub version: u32,
    #[schema(example = "Asia/Shanghai")]
    pub time_zone: String,
    /// When the version took effect.
    pub effective_at: DateTime<Utc>,
}

/// The last line of an export as NDJSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct ManifestLine {
    pub manifest: Manifest,
}
