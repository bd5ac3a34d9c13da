//! The state of an instance.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{self, Word};

/// The state of an instance.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// `ready`, or `not ready`: then the instance decides no claims. An instance that only reads is
    /// ready when it can read.
    #[schema(value_type = words::ReadinessStatus, example = "ready")]
    pub status: Word,
    /// The version of perdiem that the instance runs.
    #[schema(value_type = String, example = "0.1.0")]
    pub version: Word,
    /// What is wrong and what to do. A `ready` instance can have troubles too.
    pub troubles: Vec<String>,
    /// The store of the ledger: `PostgreSQL` or `SQLite`.
    #[schema(value_type = words::Store, example = "SQLite")]
    pub ledger: Word,
    /// Whether the instance uses Redis.
    pub counters: bool,
    /// Whether this instance seals the record: `sealed`, or `not sealed` without a key.
    #[schema(value_type = words::Sealing, example = "sealed")]
    pub seals: Word,
    /// Whether this instance only reads: it decides no claims and changes nothing.
    pub read_only: bool,
    /// How old the answers of an instance that only reads are at most, in seconds, because its
    /// database follows a primary. Null if that is not known, and at any other instance.
    #[schema(example = json!(null))]
    pub lag_seconds: Option<f64>,
    /// The time zone rules: the release of the tz database, and the source of this copy.
    #[schema(example = "2026b (system)")]
    pub zone_rules: String,
}
