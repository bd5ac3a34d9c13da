//! Exports of entries, and their manifests.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::keys::KeyName;
use super::reading::flattened;
use super::words::{self, Word};

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
    /// The parameters that named a subject who was erased since. Their values are deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub erased: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Manifest {
    /// The change that records the export: see `/v1/changes`.
    #[schema(example = 42)]
    pub revision: u64,
    #[serde(flatten, deserialize_with = "flattened")]
    pub act: ExportAct,
    /// The instants between which the entries count, by the filters; null for no bound.
    pub counted_from: Option<DateTime<Utc>>,
    pub counted_to: Option<DateTime<Utc>>,
    /// The versions that were in force in that span, as known at `as_of`.
    pub policies: Vec<PolicyInForce>,
    /// The number of rows of each kind of entry.
    #[schema(value_type = BTreeMap<String, u64>, example = json!({ "grant": 12, "reversal": 1 }))]
    pub rows: BTreeMap<Word, u64>,
    #[schema(value_type = u64, example = 12)]
    pub units_taken: u128,
    #[schema(value_type = u64, example = 1)]
    pub units_given_back: u128,
    /// The rows whose texts were erased since: the file then has other bytes than before.
    pub rows_erased: u64,
    pub first_position: Option<u64>,
    pub last_position: Option<u64>,
    /// The SHA-256 of all bytes of the file; for NDJSON, of all lines before the manifest.
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )]
    pub sha256: String,
    /// The newest seal that covers all these positions. The end of an export waits for it, at most 20 seconds.
    #[schema(
        example = "perdiem/0198c0de-7a11-4c0f-8d3a-5c1f0e7b9a42\n1842\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— …\n"
    )]
    pub seal: Option<String>,
    pub exported_at: DateTime<Utc>,
    #[schema(example = "PERDIEM_ADMIN_KEY")]
    pub exported_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<KeyName>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyInForce {
    #[schema(example = "benefit")]
    pub policy: String,
    #[schema(example = 1)]
    pub version: u32,
    #[schema(example = "Asia/Shanghai")]
    pub time_zone: String,
    pub effective_at: DateTime<Utc>,
}

/// The last line of an export as NDJSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct ManifestLine {
    pub manifest: Manifest,
}
